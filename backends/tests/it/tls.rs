//! The errors when TLS is not available: they name the part to repair and its owner, on every driver.
#![cfg(feature = "etcd")]

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, Stream};
use tenure::{Error, ErrorKind};
use tenure_testkit::{ClosedPort, TempDir};

struct Authority {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new(dir: &Path, file: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(dir.join(file), certificate.pem()).unwrap();
        Self { certificate, key }
    }

    /// A server's certificate for this name.
    fn issue(&self, name: &str, expired: bool) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.into()]).unwrap();
        if expired {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        (certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }
}

/// Answers handshakes, and nothing afterwards; returns the port.
fn handshakes(
    authority: &Authority,
    (certificate, key): (CertificateDer<'static>, PrivateKeyDer<'static>),
    asks: bool,
) -> u16 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = ServerConfig::builder();
    let builder = if asks {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.der().clone()).unwrap();
        builder.with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    serve(move |mut tcp| {
        let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        let _ = std::io::copy(&mut Stream::new(&mut tls, &mut tcp), &mut std::io::sink());
    })
}

fn serve(answer: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || answer(tcp));
        }
    });
    port
}

const SCHEMES: &[&str] =
    if cfg!(feature = "etcd") { &["rediss", "fred+rediss", "etcds"] } else { &["rediss", "fred+rediss"] };

async fn refused(url: &str) -> Error {
    match tenure::connect(url).await {
        Ok(_) => panic!("{url} was connected to"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn each_fault_of_tls_is_a_fault_of_the_setting_and_says_what_to_do() {
    let dir = TempDir::new("tls").unwrap();
    let (ours, other) = (Authority::new(dir.path(), "ca.pem"), Authority::new(dir.path(), "other.pem"));
    let ca = dir.path().join("ca.pem").display().to_string();
    let faults = [
        (handshakes(&ours, other.issue("127.0.0.1", false), false), "its authority (ca)"),
        (handshakes(&ours, ours.issue("elsewhere.example", false), false), "for another name"),
        (handshakes(&ours, ours.issue("127.0.0.1", true), false), "has expired"),
        (handshakes(&ours, ours.issue("127.0.0.1", false), true), "(cert, key)"),
        (serve(|mut tcp| drop(tcp.write_all(b"-ERR this is no TLS\r\n"))), "does not speak TLS"),
    ];
    for (port, reported) in faults {
        for scheme in SCHEMES {
            let error = refused(&format!("{scheme}://127.0.0.1:{port}/?ca={ca}")).await;
            // The refusal of a client comes after its handshake in TLS 1.3, and etcd's client may see nothing but its end.
            let late = *scheme == "etcds" && reported == "(cert, key)" && error.kind() == ErrorKind::Unavailable;
            assert!(late || error.kind() == ErrorKind::Misconfigured, "{scheme}, {reported}: {error:?}");
            assert!(error.to_string().contains(reported), "{scheme}, {reported}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_node_of_a_quorum_with_an_expired_certificate_is_named() {
    let dir = TempDir::new("tls").unwrap();
    let ours = Authority::new(dir.path(), "ca.pem");
    let ca = dir.path().join("ca.pem").display().to_string();
    let expired = handshakes(&ours, ours.issue("127.0.0.1", true), false);
    let (first, third) = (ClosedPort::new().unwrap(), ClosedPort::new().unwrap());
    let nodes = [first.number(), expired, third.number()].map(|port| format!("127.0.0.1:{port}"));
    let url = format!("redlock+rediss://{}/?ca={ca}", nodes.join(","));
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("the node 127.0.0.1:{expired}")) && text.contains("has expired"), "{text}");
}

#[tokio::test]
async fn protected_mode_is_a_fault_of_the_setting() {
    let denied =
        b"-DENIED Redis is running in protected mode because protected mode is enabled and no password is set.\r\n";
    let port = serve(move |mut tcp| {
        let _ = tcp.write_all(denied);
        // The client reads it before it hears of the end.
        let _ = std::io::copy(&mut tcp, &mut std::io::sink());
    });
    for scheme in ["redis", "fred+redis"] {
        let error = refused(&format!("{scheme}://127.0.0.1:{port}")).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{scheme}: {error:?}");
        assert!(error.to_string().contains("set a password"), "{scheme}: {error:?}");
    }
}
