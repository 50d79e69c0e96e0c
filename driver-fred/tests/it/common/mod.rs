//! What the tests of this driver share.

use tenure_testkit::{CheckedServer, RedisOptions};

/// A server on which no key may live for ever but the counter of fences.
pub(crate) fn server() -> CheckedServer {
    CheckedServer::start(RedisOptions::new(), |key| key == "tenure:{fence}").unwrap()
}
