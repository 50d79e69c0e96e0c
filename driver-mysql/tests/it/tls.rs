//! Encrypted connections and unix sockets: URLs as hosting providers print them, whom the driver trusts, and what it says when it must not.
#![cfg(feature = "tls")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::{DATABASE, start};
use tenure_core::{Client, ErrorKind};
use tenure_mysql::MysqlDriver;
use tenure_testkit::{Authority, Certificates, MariaDbOptions, MariaDbServer, TempDir};

fn encrypted(certificates: &Arc<Certificates>) -> MariaDbServer {
    start(MariaDbOptions::new().tls(Arc::clone(certificates)))
}

fn trusting(server: &MariaDbServer, authority: &Path) -> String {
    format!("{}?ca={}", server.url(DATABASE), authority.display())
}

async fn works(url: &str) {
    let client = Client::new(MysqlDriver::connect(url).await.unwrap());
    client.lock("orders/42").acquire().await.unwrap().release().await.unwrap();
    let queue = client.queue_of_bytes("jobs").unwrap();
    queue.push(&b"a".to_vec()).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap();
}

async fn refused(url: &str) -> (ErrorKind, String) {
    let error = MysqlDriver::connect(url).await.unwrap_err();
    (error.kind(), format!("{error:#}"))
}

#[tokio::test]
async fn locks_and_queues_work_over_tls_and_the_server_asks_for_it() {
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = encrypted(&certificates);
    let authority = certificates.authority().display().to_string();
    for query in [
        format!("ca={authority}"),
        format!("ssl-mode=REQUIRED&ssl-ca={authority}"),
        format!("ssl_mode=verify_identity&ssl_ca={authority}"),
    ] {
        works(&format!("{}?{query}", server.url(DATABASE))).await;
    }
    for query in ["", "?ssl-mode=DISABLED"] {
        let (kind, text) = refused(&format!("{}{query}", server.url(DATABASE))).await;
        // MariaDB says no more than of a wrong password.
        assert!(matches!(kind, ErrorKind::Denied | ErrorKind::Misconfigured), "{kind:?} {text}");
        assert!(text.contains("set ssl-mode=REQUIRED"), "{text}");
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_trusted_are_refused_by_name() {
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = encrypted(&certificates);
    let folder = TempDir::new("tls").unwrap();
    let strange = folder.path().join("strange.pem");
    Authority::new().unwrap().write(&strange).unwrap();
    let (kind, text) = refused(&trusting(&server, &strange)).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("its authority (ca)"), "{kind:?} {text}");

    let options = MariaDbOptions::new().tls(Arc::clone(&certificates)).setting("bind-address", "127.0.0.2");
    let elsewhere = start(options);
    let url = trusting(&elsewhere, &certificates.authority()).replace("127.0.0.1", "127.0.0.2");
    for url in [format!("{url}&ssl-mode=REQUIRED"), format!("{url}&ssl-mode=VERIFY_IDENTITY")] {
        let (kind, text) = refused(&url).await;
        assert!(kind == ErrorKind::Misconfigured && text.contains("for another name"), "{kind:?} {text}");
    }
}

/// Its password would be on the wire for all to read.
#[tokio::test]
async fn a_server_that_speaks_no_tls_is_not_spoken_to_without() {
    let certificates = Certificates::make().unwrap();
    let server = start(MariaDbOptions::new().setting("ssl", "0"));
    let (kind, text) = refused(&trusting(&server, &certificates.authority())).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("does not speak TLS"), "{kind:?} {text}");
}

#[tokio::test]
async fn files_that_are_no_authorities_are_refused_before_anything_is_sent() {
    let folder = TempDir::new("tls").unwrap();
    let (empty, key) = (folder.path().join("empty.pem"), folder.path().join("garbled.pem"));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&key, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
    for file in [empty, key] {
        let (kind, text) = refused(&format!("mysql://app@127.0.0.1:1/shop?ca={}", file.display())).await;
        assert!(kind == ErrorKind::InvalidArgument && text.contains("\"ca\""), "{kind:?} {text}");
    }
}

/// Where the system's authorities are is asked of the environment, so the test runs itself once more for each.
#[test]
fn the_authorities_of_the_system_are_trusted_unless_others_are_named() {
    const URL: &str = "TENURE_TEST_SYSTEM_TLS";
    if let Ok(url) = std::env::var(URL) {
        drop(tokio::runtime::Runtime::new().unwrap().block_on(MysqlDriver::connect(&url)).unwrap());
        return;
    }
    let certificates = Arc::new(Certificates::make().unwrap());
    let server = encrypted(&certificates);
    let (folder, authority) = (TempDir::new("tls").unwrap(), certificates.authority());
    let (strange, empty) = (folder.path().join("strange.pem"), folder.path().join("empty.pem"));
    Authority::new().unwrap().write(&strange).unwrap();
    std::fs::write(&empty, "").unwrap();
    let required = || String::from("ssl-mode=REQUIRED");
    for (system, query, refusal) in [
        (&authority, required(), None),
        (&authority, String::from("ssl-mode=VERIFY_IDENTITY"), None),
        (&strange, format!("ssl-mode=REQUIRED&ca={}", authority.display()), None),
        (&authority, format!("ssl-mode=REQUIRED&ca={}", strange.display()), Some("its authority (ca)")),
        (&strange, required(), Some("its authority (ca)")),
        (&empty, required(), Some("the system has no authority to trust")),
    ] {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "tls::the_authorities_of_the_system_are_trusted_unless_others_are_named"]);
        again.env(URL, format!("{}?{query}", server.url(DATABASE)));
        let output = again.env("SSL_CERT_FILE", system).env_remove("SSL_CERT_DIR").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let passed = said.contains("1 passed") && output.status.success();
        let as_told = refusal.map_or(passed, |refusal| said.contains("1 failed") && said.contains(refusal));
        assert!(as_told, "{} {query}: {said}", system.display());
    }
}

#[tokio::test]
async fn a_unix_socket_is_connected_to() {
    let server = start(MariaDbOptions::new());
    let url = |socket: &Path| format!("mysql://root@localhost/{DATABASE}?socket={}", socket.display());
    works(&url(&server.socket())).await;
    let (kind, text) = refused(&url(Path::new("/nowhere/mysqld.sock"))).await;
    assert!(kind == ErrorKind::Unavailable && text.contains("/nowhere/mysqld.sock: cannot connect"), "{kind:?} {text}");
}
