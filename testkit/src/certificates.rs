//! Certificates for a test: an authority, and one certificate each for a server and for a client.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::dir::TempDir;

/// Certificates in files, removed when dropped. The server's is for `127.0.0.1` and `localhost`.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// Makes them, with `openssl`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] when `openssl` (or what `TENURE_OPENSSL` names) is not installed; [`io::ErrorKind::Other`] with its words when it
    /// failed.
    pub fn make() -> io::Result<Self> {
        let dir = TempDir::new("tls")?;
        let at = dir.path();
        openssl(at, "req -x509 -days 2 -subj /CN=tenure-test-authority -keyout ca.key -out ca.pem")?;
        std::fs::write(at.join("server.ext"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n")?;
        std::fs::write(at.join("client.ext"), "extendedKeyUsage=clientAuth\n")?;
        for who in ["server", "client"] {
            openssl(at, &format!("req -subj /CN=tenure-test-{who} -keyout {who}.key -out {who}.csr"))?;
            let sign = "x509 -req -days 2 -CA ca.pem -CAkey ca.key -CAcreateserial";
            openssl(at, &format!("{sign} -in {who}.csr -out {who}.pem -extfile {who}.ext"))?;
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

fn openssl(dir: &Path, arguments: &str) -> io::Result<()> {
    let program = std::env::var_os("TENURE_OPENSSL").unwrap_or_else(|| "openssl".into());
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).current_dir(dir).stdin(Stdio::null());
    if arguments.starts_with("req") {
        command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    }
    let output =
        command.output().map_err(|error| io::Error::new(error.kind(), format!("cannot start openssl: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("openssl failed: {}", String::from_utf8_lossy(&output.stderr))))
}
