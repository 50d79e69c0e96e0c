//! An authority that issues certificates for a test.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, KeyPair};

/// A private authority; no other program trusts it.
pub struct Authority {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    ///
    /// Those of making a key.
    pub fn new() -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = params("tenure-test-authority", &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self { certificate: params.self_signed(&key).map_err(io::Error::other)?, key })
    }

    /// Writes its certificate into a file, as PEM.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        fs::write(file, self.certificate.pem())
    }

    /// Writes `<name>.pem` and `<name>.key` into `dir`: a certificate for `127.0.0.1` and `localhost` that servers and
    /// clients may use, and its key.
    ///
    /// # Errors
    ///
    /// Those of making a key, and of writing.
    pub fn issue(&self, dir: &Path, name: &str) -> io::Result<(PathBuf, PathBuf)> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let params = params(name, &["127.0.0.1", "localhost"])?;
        let certificate = params.signed_by(&key, &self.certificate, &self.key).map_err(io::Error::other)?;
        let (cert, secret) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        fs::write(&cert, certificate.pem())?;
        fs::write(&secret, key.serialize_pem())?;
        Ok((cert, secret))
    }
}

fn params(name: &str, hosts: &[&str]) -> io::Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}
