//! Servers with TLS.
#![cfg(feature = "tls")]

use std::sync::Arc;

use tenure_testkit::{Certificates, PostgresOptions, PostgresServer, RedisOptions, RedisServer, Reply, RespClient};

#[test]
fn a_server_with_tls_speaks_nothing_else_on_its_port() {
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = RedisServer::start(RedisOptions::new().tls(certificates)).unwrap();
    assert!(server.url().starts_with("rediss://"));
    assert!(RespClient::tcp(server.port()).unwrap().call(&["PING"]).is_err());
    assert_eq!(server.cli(&["PING"]).unwrap(), Reply::Status("PONG".into()));
}

#[test]
fn postgres_with_tls_speaks_nothing_else_on_its_port() {
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = PostgresServer::start(PostgresOptions::new().tls(Arc::clone(&certificates))).unwrap();
    let signs_in = |parameters: &str| {
        let url = format!("{}?{parameters}", server.url("postgres"));
        std::process::Command::new("psql").args(["-X", "-w", "-c", "SELECT 1", &url]).output().unwrap().status.success()
    };
    assert!(signs_in(&format!("sslmode=verify-full&sslrootcert={}", certificates.authority().display())));
    assert!(!signs_in("sslmode=disable"));
    assert_eq!(server.sql("postgres", "SELECT 1").unwrap(), "1");
}
