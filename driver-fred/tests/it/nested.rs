//! An answer that is nested without end.

use std::process::Command;

use tenure_fred::FredDriver;
use tenure_testkit::{Link, RedisOptions, RedisServer, TcpProxy};

/// The client library's decoder calls itself for each level, so the stack ends, and with it the process. No setting bounds it, so
/// the README and SECURITY.md say so. When this test fails, the library is mended, and they can promise an error.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_nested_without_end_ends_the_process() {
    const PORT: &str = "TENURE_TEST_PORT";
    if let Ok(port) = std::env::var(PORT) {
        FredDriver::connect(&format!("fred+redis://127.0.0.1:{port}/")).await.unwrap_err();
        return;
    }
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let proxy = TcpProxy::start(server.port()).unwrap();
    proxy.set_new(Link::EndlessNesting);
    let name = "nested::an_answer_that_is_nested_without_end_ends_the_process";
    let mut again = Command::new(std::env::current_exe().unwrap());
    let ended = again.args(["--exact", name]).env(PORT, proxy.port().to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("overflowed its stack"), "{said}");
}
