//! MySQL itself, and its default method to sign in, `caching_sha2_password`: the first time a password goes over the wire, and is never
//! readable there; later a digest does.

use crate::common::{DATABASE, mysql_8, start};
use tenure_core::{Client, ErrorKind};
use tenure_mysql::MysqlDriver;
use tenure_testkit::{MariaDbOptions, MariaDbServer};

fn server(options: MariaDbOptions) -> MariaDbServer {
    let server = start(options.mysql(mysql_8()));
    let user = "CREATE USER worker IDENTIFIED WITH caching_sha2_password BY 'secret'; GRANT EXECUTE ON app.* TO worker";
    server.sql("", user).unwrap();
    server
}

/// With the password on the wire, with a digest, and with the password once more.
async fn signs_in(server: &MariaDbServer, url: impl Fn(&str) -> String) {
    let works = async |times: usize| {
        for _ in 0..times {
            let client = Client::new(MysqlDriver::connect(&url("secret")).await.unwrap());
            client.lock("orders/42").acquire().await.unwrap().release().await.unwrap();
        }
    };
    let refused = async || {
        let error = MysqlDriver::connect(&url("wrong")).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("the user or the password"), "{error}");
    };
    refused().await;
    works(2).await;
    refused().await;
    server.sql("", "FLUSH PRIVILEGES").unwrap(); // the server forgets the digests
    works(1).await;
}

/// Built with OpenSSL 1.0, this server has no cipher suite in common with rustls: later ones have. It is refused, with the reason.
#[cfg(feature = "tls")]
#[tokio::test]
#[ignore = "needs MySQL 8.0; cargo xtask test"]
async fn a_server_without_modern_ciphers_is_named() {
    let certificates = tenure_testkit::Certificates::make().unwrap();
    let server = server(MariaDbOptions::new()); // it makes a certificate for itself
    let url = format!("{}?ca={}", server.url_for("worker", "secret", DATABASE), certificates.authority().display());
    let error = MysqlDriver::connect(&url).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misconfigured && error.to_string().contains("version or cipher"), "{error}");
}

/// The client library asks for the server's public key, and encrypts the password with it.
#[tokio::test]
#[ignore = "needs MySQL 8.0; cargo xtask test"]
async fn caching_sha2_password_signs_in_without_tls() {
    let server = server(MariaDbOptions::new());
    signs_in(&server, |password| server.url_for("worker", password, DATABASE)).await;
}

/// Then the server takes no password but over TLS or a socket, and refuses it as it refuses a wrong one.
#[tokio::test]
#[ignore = "needs MySQL 8.0; cargo xtask test"]
async fn without_tls_a_server_without_a_key_refuses_and_over_its_socket_it_does_not() {
    let options = MariaDbOptions::new().setting("caching-sha2-password-auto-generate-rsa-keys", "OFF");
    let options = options.setting("caching-sha2-password-private-key-path", "none.pem");
    let server = server(options.setting("caching-sha2-password-public-key-path", "none.pem"));
    let error = MysqlDriver::connect(&server.url_for("worker", "secret", DATABASE)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("over TLS alone"), "{error}");
    let socket = server.socket().display().to_string();
    signs_in(&server, |password| format!("mysql://worker:{password}@localhost/{DATABASE}?socket={socket}")).await;
}
