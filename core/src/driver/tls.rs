//! What a failed handshake means, whichever client library tells of it.

use std::io;

use crate::value::error::{Error, ErrorKind, Result};

/// What an operator has to mend when an attempt to connect failed with these words; `None` if TLS is not what failed.
///
/// The client libraries hand on the words of `rustls`, some of them nothing else, and one in the form for debugging.
#[must_use]
pub fn tls_fault(words: &str) -> Option<&'static str> {
    let says = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    if says(&["invalid peer certificate", "InvalidCertificate("]) {
        return Some(certificate(&says));
    }
    if says(&["received fatal alert", "AlertReceived("]) {
        return Some(alert(&says));
    }
    let plain = ["InvalidContentType", "corrupt message"];
    says(&plain).then_some("the server does not speak TLS at this port: use the scheme without TLS, or its TLS port")
}

/// What is wrong with the server's certificate.
fn certificate(says: &impl Fn(&[&str]) -> bool) -> &'static str {
    if says(&["UnknownIssuer", "BadSignature"]) {
        "the server's certificate is not from an authority that is trusted here: name the file of its authority (ca)"
    } else if says(&["not valid for name", "NotValidForName"]) {
        "the server's certificate is for another name: connect to a name that it has, or issue one for this name"
    } else if says(&["expired", "Expired"]) {
        "the server's certificate has expired: renew it (or the clock of this machine is wrong)"
    } else if says(&["not valid yet", "NotValidYet"]) {
        "the server's certificate is not valid yet: the clock of this machine or of the issuer is wrong"
    } else {
        "the server's certificate is not one that can be trusted"
    }
}

/// What the server did not like.
fn alert(says: &impl Fn(&[&str]) -> bool) -> &'static str {
    if says(&["CertificateRequired"]) {
        "the server asks for a client's certificate: name the files of one (cert, key)"
    } else if says(&["UnknownCA", "BadCertificate", "CertificateUnknown", "CertificateExpired", "DecryptError"]) {
        "the server refuses the client's certificate: name one that its authority has issued and that has not expired"
    } else {
        "the server refuses the handshake: versions, ciphers, or a client's certificate (cert, key) that it asks for"
    }
}

// Files that a URL names.

/// The most bytes of such a file. All authorities of a system are a quarter of it.
const LARGEST: u64 = 1 << 20;

/// Reads the file of a parameter, unless it is a device, a pipe or a directory, or too large.
pub(super) fn read_small_file(name: &str, path: &str) -> Result<Vec<u8>> {
    let cannot = |error: io::Error| refused(format!("cannot read the file of {name}")).with_source(error);
    let what = std::fs::metadata(path).map_err(cannot)?;
    if !what.is_file() {
        return Err(refused(format!("the file of {name} is no regular file")));
    }
    if what.len() > LARGEST {
        return Err(refused(format!("the file of {name} is of {} bytes, more than {LARGEST}", what.len())));
    }
    std::fs::read(path).map_err(cannot)
}

fn refused(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::tls_fault;

    #[test]
    fn each_fault_is_told_with_what_to_do() {
        for (words, told) in [
            ("invalid peer certificate: UnknownIssuer", "(ca)"),
            ("invalid peer certificate: BadSignature", "(ca)"),
            ("invalid peer certificate: certificate not valid for name \"h\"; certificate is only valid for x", "name"),
            ("invalid peer certificate: certificate expired: verification time 9 (UNIX)", "expired"),
            ("invalid peer certificate: NotValidYet", "not valid yet"),
            ("invalid peer certificate: BadEncoding", "trusted"),
            ("tls: received fatal alert: CertificateRequired", "(cert, key)"),
            ("IO Error: Custom { kind: InvalidData, error: InvalidCertificate(ExpiredContext { .. }) }", "expired"),
            ("IO Error: Custom { kind: InvalidData, error: AlertReceived(CertificateRequired) }", "(cert, key)"),
            ("received fatal alert: UnknownCA", "its authority has issued"),
            ("received fatal alert: HandshakeFailure", "ciphers"),
            ("received corrupt message of type InvalidContentType", "does not speak TLS"),
        ] {
            assert!(tls_fault(words).is_some_and(|fault| fault.contains(told)), "{words}");
        }
        assert_eq!(tls_fault("Connection refused (os error 111)"), None);
    }
}

#[cfg(test)]
mod small_file_tests {
    use super::*;

    #[test]
    fn only_a_regular_file_of_a_sensible_size_is_read() {
        let file = std::env::temp_dir().join(format!("tenure-file-{}", std::process::id()));
        let path = file.display().to_string();
        std::fs::write(&file, "pem").unwrap();
        assert_eq!(read_small_file("ca", &path).unwrap(), b"pem");
        std::fs::File::create(&file).unwrap().set_len(LARGEST + 1).unwrap();
        for (path, word) in [(&*path, "bytes"), ("/dev/zero", "no regular file"), ("/", "no regular file")] {
            let error = read_small_file("ca", path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(word), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
