//! Certificates for a test: an authority, and one certificate each for a server and for a client.

#[cfg(feature = "tls")]
use std::io;
use std::path::PathBuf;

use crate::dir::TempDir;

/// Certificates in files, removed when dropped. The server's is for `127.0.0.1` and `localhost`.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// Makes them.
    ///
    /// # Errors
    ///
    /// Those of making a key, and of writing.
    #[cfg(feature = "tls")]
    pub fn make() -> io::Result<Self> {
        let (dir, authority) = (TempDir::new("tls")?, crate::Authority::new()?);
        authority.write(&dir.path().join("ca.pem"))?;
        for who in ["server", "client"] {
            authority.issue(dir.path(), who)?;
        }
        Ok(Self { dir })
    }

    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// The client's certificate and key.
    #[must_use]
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.dir.path().join("client.pem"), self.dir.path().join("client.key"))
    }

    /// The server's certificate and key.
    #[must_use]
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.dir.path().join("server.pem"), self.dir.path().join("server.key"))
    }

    /// The parameters of a URL that name the authority, and the client's certificate and key.
    #[must_use]
    pub fn parameters(&self) -> String {
        let (certificate, key) = self.client();
        format!("ca={}&cert={}&key={}", self.authority().display(), certificate.display(), key.display())
    }

    /// A server's arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        let files =
            [("--tls-cert-file", "server.pem"), ("--tls-key-file", "server.key"), ("--tls-ca-cert-file", "ca.pem")];
        let mut all: Vec<String> = files.into_iter().flat_map(|(flag, name)| [flag.to_owned(), file(name)]).collect();
        all.extend(["--tls-auth-clients", "yes", "--tls-replication", "yes"].map(String::from));
        all
    }
}
