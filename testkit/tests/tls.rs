//! Servers with TLS.
#![cfg(feature = "tls")]

use std::sync::Arc;

use tenure_testkit::{Certificates, RedisOptions, RedisServer, Reply, RespClient};

#[test]
fn a_server_with_tls_speaks_nothing_else_on_its_port() {
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = RedisServer::start(RedisOptions::new().tls(certificates)).unwrap();
    assert!(server.url().starts_with("rediss://"));
    assert!(RespClient::tcp(server.port()).unwrap().call(&["PING"]).is_err());
    assert_eq!(server.cli(&["PING"]).unwrap(), Reply::Status("PONG".into()));
}
