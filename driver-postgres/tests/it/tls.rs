//! Encrypted connections: whom the driver trusts, and what it says when it must not.
#![cfg(feature = "tls")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::start;
use tenure_core::{Client, ErrorKind};
use tenure_postgres::PostgresDriver;
use tenure_testkit::{Authority, Certificates, PostgresOptions, PostgresServer, TempDir};

/// Speaks TLS only, under two addresses; the certificate is for one of them.
fn encrypted(certificates: &Arc<Certificates>) -> PostgresServer {
    let addresses = ("listen_addresses", "127.0.0.1,127.0.0.2");
    start(PostgresOptions::new().tls(Arc::clone(certificates)).setting(addresses.0, addresses.1)).unwrap()
}

fn trusting(server: &PostgresServer, authority: &Path) -> String {
    format!("{}?ca={}", server.url("postgres"), authority.display())
}

async fn refused(url: &str) -> (ErrorKind, String) {
    let error = PostgresDriver::connect(url).await.unwrap_err();
    (error.kind(), format!("{error:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_waiters_and_queues_work_over_tls() {
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = encrypted(&certificates);
    let url = trusting(&server, &certificates.authority());
    let client = async || Client::new(PostgresDriver::connect(&url).await.unwrap());
    let (one, other) = (client().await, client().await);
    let held = one.lock("orders/42").acquire().await.unwrap();
    let (first, waiter) = (held.fence(), other.lock("orders/42"));
    let waiting = tokio::spawn(async move { waiter.acquire_within(Duration::from_secs(20)).await });
    while one.lock("orders/42").inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let plain = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'tenure' AND NOT ssl";
    let seen = "SELECT count(*) > 2 FROM pg_stat_activity WHERE application_name = 'tenure'";
    assert_eq!(server.sql("postgres", plain).unwrap(), "0", "a session is not encrypted, the listening one included");
    assert_eq!(server.sql("postgres", seen).unwrap(), "t");
    held.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fence() > first);
    next.release().await.unwrap();
    let queue = one.queue_of_bytes("jobs").unwrap();
    queue.push(&b"a".to_vec()).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap();
}

#[tokio::test]
async fn a_client_that_cannot_be_trusted_is_refused_by_name() {
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = encrypted(&certificates);
    let folder = TempDir::new("tls").unwrap();
    let strange = folder.path().join("strange.pem");
    Authority::new().unwrap().write(&strange).unwrap();
    let (kind, text) = refused(&trusting(&server, &strange)).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("certificate"), "{kind:?} {text}");

    let elsewhere = trusting(&server, &certificates.authority()).replace("127.0.0.1", "127.0.0.2");
    let (kind, text) = refused(&elsewhere).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("certificate"), "{kind:?} {text}");

    let (kind, text) = refused(&server.url("postgres")).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("over TLS"), "{kind:?} {text}");
}

/// Without a file of authorities those of the machine are trusted; SSL_CERT_FILE names them for the program that this one starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authorities_of_the_machine_are_trusted_where_no_file_is_named() {
    const URL: &str = "TENURE_TEST_URL";
    if let Ok(url) = std::env::var(URL) {
        let client = Client::new(PostgresDriver::connect(&url).await.unwrap());
        return client.lock("a").acquire().await.unwrap().release().await.unwrap();
    }
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = start(PostgresOptions::new().tls(Arc::clone(&certificates)).password("right")).unwrap();
    let url = server.url_for("postgres", Some("right"), "postgres");
    for parameters in ["sslmode=require", "sslmode=verify-full&sslrootcert=system&channel_binding=require"] {
        let url = format!("{url}?{parameters}");
        let (kind, text) = refused(&url).await;
        assert!(kind == ErrorKind::Misconfigured && text.contains("authorit"), "{kind:?} {text}");
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "tls::the_authorities_of_the_machine_are_trusted_where_no_file_is_named"]);
        let trusting = again.env("SSL_CERT_FILE", certificates.authority()).env(URL, &url).output().unwrap();
        assert!(trusting.status.success(), "{parameters}: {}", String::from_utf8_lossy(&trusting.stdout));
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_not_spoken_to_without() {
    let certificates = Certificates::make().unwrap();
    let server = start(PostgresOptions::new()).unwrap();
    let (kind, text) = refused(&trusting(&server, &certificates.authority())).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("TLS"), "{kind:?} {text}");
}

#[tokio::test]
async fn files_that_are_no_authorities_are_refused_before_anything_is_sent() {
    let folder = TempDir::new("tls").unwrap();
    let (empty, key) = (folder.path().join("empty.pem"), folder.path().join("garbled.pem"));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&key, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
    for file in [empty, key] {
        let (kind, text) = refused(&format!("postgres://app@127.0.0.1:1/shop?ca={}", file.display())).await;
        assert!(kind == ErrorKind::InvalidArgument && text.contains("\"ca\""), "{kind:?} {text}");
    }
}
