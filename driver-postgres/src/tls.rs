//! Encrypted connections.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::sync::Arc;
use tenure_core::{Error, ErrorKind, Result};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Connections to servers whose certificates these authorities have issued, or those that this machine trusts, and whose names fit.
pub(crate) fn trusting(authorities: Option<&[u8]>) -> Result<MakeRustlsConnect> {
    let roots = authorities.map_or_else(of_the_system, of_a_file)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS cannot be set up").with_source(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn invalid(text: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

fn of_a_file(authorities: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate = certificate.map_err(|error| invalid("\"ca\" is no PEM file").with_source(error))?;
        roots
            .add(certificate)
            .map_err(|error| invalid("\"ca\" has a certificate of no authority").with_source(error))?;
    }
    match roots.is_empty() {
        true => Err(invalid("\"ca\" has no certificate")),
        false => Ok(roots),
    }
}

fn of_the_system() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let none = crate::error::misconfigured(
        "this machine has no list of trusted authorities: name a file of them (sslrootcert)",
    );
    Err(match found.errors.into_iter().next() {
        Some(error) => none.with_source(error),
        None => none,
    })
}
