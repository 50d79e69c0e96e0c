//! What the tests of this driver share.

use std::ops::{Deref, DerefMut};

use tenure_testkit::{RedisOptions, RedisServer, Reply};

/// A server that is looked at when its test ends: no key lives for ever but the counter of fences.
pub(crate) struct Server(RedisServer);

pub(crate) fn server() -> Server {
    Server(RedisServer::start(RedisOptions::new()).unwrap())
}

impl Deref for Server {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut RedisServer {
        &mut self.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() || self.pid().is_none() {
            return; // the test has failed already, or ended the server
        }
        let mut client = self.connect().unwrap();
        let keys = client.call(&["KEYS", "*"]).unwrap();
        let mut left: Vec<String> = keys.items().iter().map(Reply::text).collect();
        left.retain(|key| key != "tenure:{fence}" && client.call(&["PTTL", key]).unwrap().int() == Some(-1));
        assert!(left.is_empty(), "keys without an end: {left:?}");
    }
}
