//! The settings of encryption: on or off, and the trusted authorities.

use tenure_core::driver::BackendUrl;
use tenure_core::{Error, ErrorKind, Result};

/// The spellings of the mode, and of the file of authorities. The first is the documented one.
const MODE: [&str; 3] = ["ssl-mode", "ssl_mode", "sslmode"];
const AUTHORITIES: [&str; 3] = ["ca", "ssl-ca", "ssl_ca"];

/// The advice on a parameter of another program.
const MODES: &str =
    "set ssl-mode=REQUIRED, with ca=FILE for an authority that the system does not trust, or ssl-mode=DISABLED";
const FILE: &str = "name the file of the authority in ca=FILE";
const NO_CLIENT_CERTIFICATE: &str = "a client's certificate cannot be sent: let the user sign in with a password";
const SOCKET: &str = "name the socket in socket=FILE";

/// Parameters of other programs, as URLs of hosting providers have them, and what to use instead.
pub(crate) const OF_OTHERS: [(&str, &str); 20] = [
    ("ssl", MODES),
    ("sslMode", MODES),
    ("sslaccept", MODES),
    ("useSSL", MODES),
    ("requireSSL", MODES),
    ("require_ssl", MODES),
    ("verifyServerCertificate", MODES),
    ("verify_ca", MODES),
    ("verify_identity", MODES),
    ("ssl_verify_cert", MODES),
    ("ssl_verify_identity", MODES),
    ("tls", MODES),
    ("sslcert", FILE),
    ("sslrootcert", FILE),
    ("ssl-cert", NO_CLIENT_CERTIFICATE),
    ("ssl_cert", NO_CLIENT_CERTIFICATE),
    ("ssl-key", NO_CLIENT_CERTIFICATE),
    ("ssl_key", NO_CLIENT_CERTIFICATE),
    ("unix_socket", SOCKET),
    ("unixSocket", SOCKET),
];

/// Whether connections are encrypted, and whom they trust. The name in the certificate is compared in each case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    Plain,
    /// The authorities of the system.
    System,
    /// The authorities in this file, in PEM.
    Authorities(Vec<u8>),
}

impl Encryption {
    /// Takes the parameters out of a URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a mode that is not known or cannot be had, a file that cannot be read, and parameters that
    /// contradict each other.
    pub(crate) fn read(url: &mut BackendUrl) -> Result<Self> {
        let mode = one_of(MODE, |name| Ok(url.text(name)))?;
        let authorities = one_of(AUTHORITIES, |name| url.file_of(name))?;
        let Some(mode) = mode else { return Ok(authorities.map_or(Self::Plain, Self::Authorities)) };
        match mode.to_ascii_uppercase().as_str() {
            "DISABLED" if authorities.is_some() => {
                Err(invalid("ssl-mode=DISABLED encrypts nothing: leave out the file of authorities"))
            }
            "DISABLED" => Ok(Self::Plain),
            "REQUIRED" | "VERIFY_IDENTITY" => Ok(authorities.map_or(Self::System, Self::Authorities)),
            "VERIFY_CA" => {
                Err(invalid("ssl-mode=VERIFY_CA would accept a certificate for any name: use VERIFY_IDENTITY"))
            }
            "PREFERRED" => {
                Err(invalid("ssl-mode=PREFERRED would continue unencrypted if refused: use REQUIRED or DISABLED"))
            }
            _ => Err(invalid("ssl-mode is DISABLED, REQUIRED or VERIFY_IDENTITY")),
        }
    }
}

/// The parameter that has several spellings.
fn one_of<T>(names: [&'static str; 3], mut take: impl FnMut(&'static str) -> Result<Option<T>>) -> Result<Option<T>> {
    let mut found = None;
    for name in names {
        let Some(value) = take(name)? else { continue };
        if let Some((other, _)) = found.replace((name, value)) {
            return Err(invalid(format!(
                "the URL has {other} and {name}, which are the same parameter: leave out one"
            )));
        }
    }
    Ok(found.map(|(_, value)| value))
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Encryption> {
        let mut url = BackendUrl::parse(&format!("mysql://app@db/shop?{query}"))?;
        url.refuse(&OF_OTHERS)?;
        let encryption = Encryption::read(&mut url)?;
        url.finish().map(|()| encryption)
    }

    #[test]
    fn the_modes_that_can_be_had_are_read_in_every_spelling_and_the_others_refused_with_what_to_use() {
        let file = std::env::temp_dir().join(format!("tenure-mysql-ca-{}", std::process::id()));
        std::fs::write(&file, "pem").unwrap();
        let file = file.display().to_string();
        let authorities = || Encryption::Authorities(b"pem".to_vec());
        for (query, expected) in [
            (String::new(), Encryption::Plain),
            ("ssl-mode=DISABLED".into(), Encryption::Plain),
            ("ssl-mode=REQUIRED".into(), Encryption::System),
            ("sslmode=required".into(), Encryption::System),
            ("ssl_mode=Verify_Identity".into(), Encryption::System),
            (format!("ca={file}"), authorities()),
            (format!("ssl-ca={file}"), authorities()),
            (format!("ssl_ca={file}&ssl-mode=REQUIRED"), authorities()),
            (format!("ssl-mode=VERIFY_IDENTITY&ca={file}"), authorities()),
        ] {
            assert_eq!(read(&query).unwrap(), expected, "{query}");
        }
        for (query, reported) in [
            ("ssl-mode=VERIFY_CA", "use VERIFY_IDENTITY"),
            ("ssl-mode=preferred", "use REQUIRED or DISABLED"),
            ("ssl-mode=s3cret", "ssl-mode is DISABLED, REQUIRED or VERIFY_IDENTITY"),
            ("ssl-mode=REQUIRED&sslmode=REQUIRED", "ssl-mode and sslmode"),
            (&*format!("ca={file}&ssl-ca={file}"), "ca and ssl-ca"),
            (&*format!("ssl-mode=DISABLED&ca={file}"), "encrypts nothing"),
            ("ssl-ca=/nowhere", "ssl-ca"),
            ("ssl={\"rejectUnauthorized\":true}", "ssl-mode=REQUIRED"),
            ("sslaccept=strict", "ssl-mode=REQUIRED"),
            ("useSSL=true", "ssl-mode=REQUIRED"),
            ("ssl-cert=/c.pem", "password"),
            ("unix_socket=/s", "socket=FILE"),
            ("charset=utf8", "known are ca, ssl-ca, ssl-mode, ssl_ca, ssl_mode, sslmode"),
        ] {
            let error = read(query).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{query}");
            let text = error.to_string();
            assert!(text.contains(reported) && !text.contains("s3cret"), "{query}: {text}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
