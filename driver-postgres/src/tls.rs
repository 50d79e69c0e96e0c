//! Encrypted connections.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::sync::Arc;
use tenure_core::{Error, ErrorKind, Result};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Connections to servers whose certificates these authorities have issued, and whose names fit.
pub(crate) fn trusting(authorities: &[u8]) -> Result<MakeRustlsConnect> {
    let invalid = |text: &'static str| Error::new(ErrorKind::InvalidArgument, text);
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate = certificate.map_err(|error| invalid("\"ca\" is no PEM file").with_source(error))?;
        roots
            .add(certificate)
            .map_err(|error| invalid("\"ca\" has a certificate of no authority").with_source(error))?;
    }
    if roots.is_empty() {
        return Err(invalid("\"ca\" has no certificate"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS cannot be set up").with_source(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
