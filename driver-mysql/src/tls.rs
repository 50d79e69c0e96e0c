//! The authorities that encrypted connections trust.

use mysql_async::SslOpts;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tenure_core::{Error, ErrorKind, Result};

use crate::encryption::Encryption;
use crate::error::misconfigured;

/// Connections to servers whose certificates the authorities have issued, and whose names fit; `None` for plain ones.
pub(crate) fn options(encryption: &Encryption) -> Result<Option<SslOpts>> {
    let authorities = match encryption {
        Encryption::Plain => return Ok(None),
        Encryption::System => of_system()?,
        Encryption::Authorities(pem) => of_file(pem)?,
    };
    // The client library panics without a provider; one that is there already stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let roots = authorities.into_iter().map(|certificate| certificate.as_ref().to_vec().into()).collect();
    Ok(Some(SslOpts::default().with_root_certs(roots).with_disable_built_in_roots(true)))
}

fn of_file(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let invalid = |text: &'static str| Error::new(ErrorKind::InvalidArgument, text);
    let mut all = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| invalid("\"ca\" is no PEM file").with_source(error))?;
        RootCertStore::empty()
            .add(certificate.clone())
            .map_err(|error| invalid("\"ca\" has a certificate of no authority").with_source(error))?;
        all.push(certificate);
    }
    if all.is_empty() { Err(invalid("\"ca\" has no certificate")) } else { Ok(all) }
}

/// Those of the system that can be read. Some systems keep certificates that no program can use.
fn of_system() -> Result<Vec<CertificateDer<'static>>> {
    let found = rustls_native_certs::load_native_certs();
    let usable = |certificate: &CertificateDer<'static>| RootCertStore::empty().add(certificate.clone()).is_ok();
    let all: Vec<_> = found.certs.into_iter().filter(usable).collect();
    if !all.is_empty() {
        return Ok(all);
    }
    let error = misconfigured(
        "the system has no authority to trust: install its package of them (ca-certificates), or name the file of one (ca)",
    );
    Err(found.errors.into_iter().fold(error, Error::with_source))
}
