//! TLS and mutual TLS.
#![cfg(feature = "tls")]

use tenure_core::{Client, ErrorKind};
use tenure_etcd::EtcdDriver;
use tenure_testkit::{Authority, EtcdCertificates, EtcdCluster, EtcdOptions, TempDir};

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let dir = TempDir::new("tls").unwrap();
    let path = |file: &str| dir.path().join(file);
    let (authority, stranger) = (Authority::new().unwrap(), Authority::new().unwrap());
    authority.write(&path("ca.pem")).unwrap();
    stranger.write(&path("other.pem")).unwrap();
    let (cert, key) = authority.issue(dir.path(), "server").unwrap();
    authority.issue(dir.path(), "client").unwrap();
    stranger.issue(dir.path(), "foreign").unwrap();
    let certificates = EtcdCertificates { cert, key, client_ca: Some(path("ca.pem")) };
    let cluster = EtcdCluster::single(EtcdOptions::new().tls(certificates)).unwrap();
    let base = cluster.url().replace("etcd://", "etcds://");
    let url = |ca: &str, client: &str| {
        let file = |name: String| path(&name).display().to_string();
        let (cert, key) = (file(format!("{client}.pem")), file(format!("{client}.key")));
        format!("{base}/?ca={}&cert={cert}&key={key}", file(ca.into()))
    };
    let client = Client::new(EtcdDriver::connect(&url("ca.pem", "client")).await.unwrap());
    client.lock("x").try_acquire().await.unwrap().unwrap().release().await.unwrap();

    let wrong = EtcdDriver::connect(&url("other.pem", "client")).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Misconfigured, "{wrong}");
    assert!(wrong.to_string().contains("its authority (ca)"), "{wrong}");
    for refused in [url("ca.pem", "foreign"), format!("{base}/?ca={}", path("ca.pem").display())] {
        let error = EtcdDriver::connect(&refused).await.unwrap_err();
        // Which of the two is up to whether the alert or the end of the connection is read first.
        assert!(matches!(error.kind(), ErrorKind::Misconfigured | ErrorKind::Unavailable), "{error}");
        assert!(error.to_string().contains("client's certificate"), "{error}");
    }
    let error = EtcdDriver::connect(&cluster.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let missing = EtcdDriver::connect(&url("nowhere.pem", "client")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::InvalidArgument, "{missing}");
    assert!(missing.to_string().contains("cannot read the file of ca"), "{missing}");
}
