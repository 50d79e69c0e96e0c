//! TLS and mutual TLS.
#![cfg(feature = "tls")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tenure_core::{Client, ErrorKind};
use tenure_etcd::EtcdDriver;
use tenure_testkit::{EtcdCertificates, EtcdCluster, EtcdOptions, TempDir};

struct Authority {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    /// Writes `<name>.pem` and `<name>.key`.
    fn issue(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        let (cert, secret) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        fs::write(&cert, certificate.pem()).unwrap();
        fs::write(&secret, key.serialize_pem()).unwrap();
        (cert, secret)
    }

    fn write(&self, file: &Path) {
        fs::write(file, self.certificate.pem()).unwrap();
    }
}

#[tokio::test]
async fn both_sides_prove_who_they_are() {
    let dir = TempDir::new("tls").unwrap();
    let path = |file: &str| dir.path().join(file);
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.write(&path("ca.pem"));
    stranger.write(&path("other.pem"));
    let (cert, key) = authority.issue(dir.path(), "server");
    authority.issue(dir.path(), "client");
    stranger.issue(dir.path(), "foreign");
    let certificates = EtcdCertificates { cert, key, client_ca: Some(path("ca.pem")) };
    let cluster = EtcdCluster::single(EtcdOptions::new().tls(certificates)).unwrap();
    let base = cluster.url().replace("etcd://", "etcds://");
    let url = |ca: &str, client: &str| {
        let file = |name: String| path(&name).display().to_string();
        let (cert, key) = (file(format!("{client}.pem")), file(format!("{client}.key")));
        format!("{base}/?ca={}&cert={cert}&key={key}", file(ca.into()))
    };
    let client = Client::new(EtcdDriver::connect(&url("ca.pem", "client")).await.unwrap());
    client.lock("x").unwrap().try_acquire().await.unwrap().unwrap().release().await.unwrap();

    let wrong = EtcdDriver::connect(&url("other.pem", "client")).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Unavailable, "{wrong}");
    assert!(wrong.to_string().contains("certificate"), "{wrong}");
    for refused in [url("ca.pem", "foreign"), format!("{base}/?ca={}", path("ca.pem").display()), cluster.url()] {
        let error = EtcdDriver::connect(&refused).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let missing = EtcdDriver::connect(&url("nowhere.pem", "client")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::InvalidArgument, "{missing}");
    assert!(missing.to_string().contains("cannot read the file of ca"), "{missing}");
}
