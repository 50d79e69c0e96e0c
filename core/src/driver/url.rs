//! A parser for the URLs of backends.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, io};

use crate::value::error::{Error, ErrorKind, Result};

/// The URL of a backend, in its parts: `scheme://[user[:password]@]host[:port],host…/path?parameter=value&…`, or
/// `scheme:path?…` without the slashes.
///
/// Each reader removes the parameters it knows; [`finish`](Self::finish) fails on any left over and lists the known
/// ones. The scheme is the same in capitals. User, password, path and values may be percent-encoded (a `+` is a plus
/// sign).
///
/// No error repeats a part of the URL that may belong to a password; neither does `Debug`. If a `?`, `/` or `#` in a
/// password was not encoded, its `@` comes after the hosts: such a URL is refused. Write a legitimate `@` there as
/// `%40`, except in the URL of a file (`scheme:///path`), which has no user.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::driver::BackendUrl;
///
/// let mut url = BackendUrl::parse("REDIS://app:p%40ss@a:7000,[::1]/3?prefix=shop&connect_timeout_ms=250")?;
/// assert_eq!((url.scheme(), url.user(), url.password()), ("redis", Some("app"), Some("p@ss")));
/// assert_eq!(url.hosts(6379)?, [("a".into(), 7000), ("::1".into(), 6379)]);
/// assert_eq!(url.path(), "3");
/// assert_eq!(url.text("prefix").as_deref(), Some("shop"));
/// assert_eq!(url.millis("connect_timeout_ms")?, Some(Duration::from_millis(250)));
/// url.finish()?;
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone)]
pub struct BackendUrl {
    scheme: String,
    /// The text between the slashes and the path, without user and password; `None` without slashes.
    hosts: Option<String>,
    user: Option<String>,
    password: Option<String>,
    path: String,
    parameters: Vec<(String, String)>,
    /// The parameters that were read.
    known: BTreeSet<&'static str>,
}

impl BackendUrl {
    /// Parses a URL. It does not check schemes, hosts and parameters; that is up to the readers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it has no scheme, has a fragment, or is not encoded correctly.
    pub fn parse(text: &str) -> Result<Self> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| invalid("the URL has no scheme"))?;
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(letters) {
            return Err(invalid("the URL does not begin with a scheme"));
        }
        if rest.contains('#') {
            return Err(invalid("the URL has a fragment (a # in a password is written as %23)"));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match place.strip_prefix("//") {
            Some(place) => match place.find('/') {
                Some(slash) => (Some(&place[..slash]), &place[slash..]),
                None => (Some(place), ""),
            },
            None => (None, place),
        };
        let names_somebody = authority != Some("");
        if names_somebody && (query.contains('@') || authority.is_some() && path.contains('@')) {
            return Err(invalid(
                "the URL has an @ behind its hosts: there it is written as %40; and in a password a ? is written as %3F, a / \
                 as %2F",
            ));
        }
        let (login, hosts) = match authority.and_then(|authority| authority.rsplit_once('@')) {
            Some((login, hosts)) => (Some(login), Some(hosts)),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (Some(user), login.filter(|login| login.contains(':')).map(|_| password)),
            None => (None, None),
        };
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((key.to_owned(), decode(value)?));
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            hosts: hosts.map(str::to_owned),
            user: user.filter(|user| !user.is_empty()).map(decode).transpose()?,
            password: password.map(decode).transpose()?,
            path: decode(path)?,
            parameters,
            known: BTreeSet::new(),
        })
    }

    /// Returns the scheme, in small letters.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Removes this prefix from the scheme; returns true if it was there.
    pub fn strip_scheme(&mut self, prefix: &str) -> bool {
        let rest = self.scheme.strip_prefix(prefix).map(str::to_owned);
        rest.map(|rest| self.scheme = rest).is_some()
    }

    /// Returns true if two slashes follow the scheme.
    #[must_use]
    pub fn has_slashes(&self) -> bool {
        self.hosts.is_some()
    }

    /// Returns the user, if one is named.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the password, if there is one.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Returns the part after the hosts, without slashes at its ends.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.trim_matches('/')
    }

    /// Returns the part after the hosts, as a file path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when there is a host: such a URL has three slashes.
    pub fn file(&self) -> Result<&str> {
        match self.hosts.as_deref() {
            Some("") => Ok(&self.path),
            _ => Err(invalid(format!("the URL of a file has three slashes and no host: {}:///path", self.scheme))),
        }
    }

    /// Returns the part after the scheme, as a file path that may also be relative or absent: `scheme:a/b`,
    /// `scheme:/a/b`, `scheme:///a/b`, `scheme:`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when there is a host.
    pub fn local_file(&self) -> Result<&str> {
        if self.hosts.is_none() { Ok(&self.path) } else { self.file() }
    }

    /// Returns the hosts, without brackets, and their ports; `port` if none is named. At least one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when there is none, or one is not of the form `host[:port]`.
    pub fn hosts(&self, port: u16) -> Result<Vec<(String, u16)>> {
        match self.hosts.as_deref() {
            None => Err(invalid(format!("the URL is not of the form {}://[user[:password]@]host[:port]", self.scheme))),
            Some("") => Err(invalid("the URL has no host")),
            Some(hosts) => hosts.split(',').map(|host| host_and_port(host, port)).collect(),
        }
    }

    /// Refuses parameters of other programs. `others` has their names, each with its replacement here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] with the first of them that the URL has, and its replacement.
    pub fn refuse(&self, others: &[(&str, &str)]) -> Result<()> {
        let has = |name: &str| self.parameters.iter().any(|(key, _)| key == name);
        match others.iter().find(|(name, _)| has(name)) {
            Some((name, instead)) => Err(invalid(format!("{name} is not a parameter here: {instead}"))),
            None => Ok(()),
        }
    }

    /// Removes a parameter and returns it; the last one, if there are several.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.insert(name);
        let mut last = None;
        self.parameters.retain_mut(|(key, value)| {
            let other = key != name;
            if !other {
                last = Some(std::mem::take(value));
            }
            other
        });
        last
    }

    /// Removes a parameter if its value is this word, and returns true if it was. Another value stays.
    pub fn word(&mut self, name: &'static str, word: &str) -> bool {
        self.known.insert(name);
        let before = self.parameters.len();
        self.parameters.retain(|(key, value)| key != name || value != word);
        self.parameters.len() < before
    }

    /// Removes a parameter that is a number, and returns it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] with the name of the parameter, for any other value.
    pub fn number<N: FromStr>(&mut self, name: &'static str) -> Result<Option<N>> {
        let parsed = self.text(name).map(|value| value.parse());
        parsed.transpose().map_err(|_| invalid(format!("{name} is not a number, or out of range")))
    }

    /// Removes a parameter that is a time in milliseconds, and returns it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] with the name of the parameter, for any other value.
    pub fn millis(&mut self, name: &'static str) -> Result<Option<Duration>> {
        let millis = self.text(name).map(|value| value.parse().map(Duration::from_millis));
        millis.transpose().map_err(|_| invalid(format!("{name} is not a number of milliseconds, or out of range")))
    }

    /// Removes a parameter that is one of these words, and returns its choice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] with the name of the parameter and the words, for any other value.
    pub fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let chosen = choices.iter().find(|(word, _)| *word == value).map(|(_, choice)| *choice);
        let words = || choices.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
        chosen.map(Some).ok_or_else(|| invalid(format!("{name} is {}", words())))
    }

    /// Removes a parameter that is `true` or `false`, and returns it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] with the name of the parameter, for any other value.
    pub fn truth(&mut self, name: &'static str) -> Result<Option<bool>> {
        self.choice(name, &[("true", true), ("false", false)])
    }

    /// Removes a parameter that is the path of a file, and reads the file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] with the name of the parameter, when the file cannot be read, is a device, a pipe
    /// or a directory, or is larger than a mebibyte.
    pub fn file_of(&mut self, name: &'static str) -> Result<Option<Vec<u8>>> {
        self.text(name).map(|path| read_small_file(name, &path)).transpose()
    }

    /// Refuses parameters that were not read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] with the first of them, and all known ones.
    pub fn finish(self) -> Result<()> {
        let Some((name, _)) = self.parameters.first() else { return Ok(()) };
        let known = self.known.into_iter().collect::<Vec<_>>().join(", ");
        let text = format!("the URL has an unknown parameter \"{}\"; known are {known}", name.escape_debug());
        Err(invalid(text))
    }
}

impl fmt::Debug for BackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendUrl").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl FromStr for BackendUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`]; the host is not repeated, since it may be a password without its `@`.
pub fn host_and_port(text: &str, port: u16) -> Result<(String, u16)> {
    let bad = || invalid("one of the hosts is not of the form host[:port]");
    let (host, port) = match text.rfind(':') {
        Some(colon) if !text.ends_with(']') => {
            (&text[..colon], text[colon + 1..].parse().ok().filter(|port| *port != 0).ok_or_else(bad)?)
        }
        _ => (text, port),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    };
    if good { Ok((bare.unwrap_or(host).to_owned(), port)) } else { Err(bad()) }
}

/// Decodes percent encoding.
fn decode(text: &str) -> Result<String> {
    let bad = || invalid("the URL has a % that is not followed by two hexadecimal digits of UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(bad)?;
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(bad);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

// What a failed handshake means, whichever client library tells of it.

/// Returns the remedy for an operator when an attempt to connect failed with these words; `None` if TLS did not fail.
///
/// The client libraries return the words of `rustls`, some of them nothing else, and one in the debugging format.
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

/// Returns the problem of the server's certificate.
fn certificate(says: &impl Fn(&[&str]) -> bool) -> &'static str {
    if says(&["UnknownIssuer", "BadSignature"]) {
        "the server's certificate is not from a trusted authority: name the file of its authority (ca)"
    } else if says(&["not valid for name", "NotValidForName"]) {
        "the server's certificate is for another name: connect to a name that it has, or issue one for this name"
    } else if says(&["expired", "Expired"]) {
        "the server's certificate has expired: renew it (or the clock of this machine is wrong)"
    } else if says(&["not valid yet", "NotValidYet"]) {
        "the server's certificate is not valid yet: the clock of this machine or of the issuer is wrong"
    } else {
        "the server's certificate cannot be trusted"
    }
}

/// Returns the server's objection.
fn alert(says: &impl Fn(&[&str]) -> bool) -> &'static str {
    if says(&["CertificateRequired"]) {
        "the server asks for a client's certificate: name the files of one (cert, key)"
    } else if says(&["UnknownCA", "BadCertificate", "CertificateUnknown", "CertificateExpired", "DecryptError"]) {
        "the server refuses the client's certificate: name one that its authority has issued and that has not expired"
    } else {
        "the server refuses the handshake: it may need another version or cipher, or a client's certificate (cert, key)"
    }
}

// Files that a URL names.

/// The most bytes of such a file. All certificate authorities of a system are a quarter of it.
const LARGEST: u64 = 1 << 20;

/// Reads the file of a parameter, unless it is a device, a pipe or a directory, or too large.
pub(super) fn read_small_file(name: &str, path: &str) -> Result<Vec<u8>> {
    let cannot = |error: io::Error| refused(format!("cannot read the file of {name}")).with_source(error);
    let what = std::fs::metadata(path).map_err(cannot)?;
    if !what.is_file() {
        return Err(refused(format!("the file of {name} is not a regular file")));
    }
    if what.len() > LARGEST {
        return Err(refused(format!("the file of {name} has {} bytes, more than {LARGEST}", what.len())));
    }
    std::fs::read(path).map_err(cannot)
}

fn refused(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::{tls_fault, *};

    fn url(text: &str) -> BackendUrl {
        BackendUrl::parse(text).unwrap()
    }

    #[test]
    fn every_part_is_read() {
        let all = url("Redis+Cluster://us%3Aer:p,%40:ss@a,b:2,[::1]:3/x/y/");
        assert_eq!((all.scheme(), all.user(), all.password()), ("redis+cluster", Some("us:er"), Some("p,@:ss")));
        assert_eq!(all.hosts(1).unwrap(), [("a".into(), 1), ("b".into(), 2), ("::1".into(), 3)]);
        assert_eq!((all.path(), all.has_slashes()), ("x/y", true));
        let login = |text| {
            let url = url(text);
            (url.user().map(str::to_owned), url.password().map(str::to_owned))
        };
        assert_eq!(login("a://h"), (None, None));
        assert_eq!(login("a://:p@h"), (None, Some("p".into())));
        assert_eq!(login("a://u@h"), (Some("u".into()), None));
        assert_eq!(login("a://u:@h"), (Some("u".into()), Some(String::new())));
        assert_eq!(url("redis+unix:///run/a%20b@c").file().unwrap(), "/run/a b@c");
        for (text, file) in [("s:", ""), ("s:a/b", "a/b"), ("s:/a/b", "/a/b"), ("s:///a%20b/", "/a b/")] {
            assert_eq!(url(text).local_file().unwrap(), file, "{text}");
        }
        assert!(url("s://host/a").local_file().is_err());
        assert_eq!(url("a://h/x%40y?t=%40").path(), "x@y");
        assert_eq!(url("s:///a@b?t=@").local_file().unwrap(), "/a@b", "a URL without a host has no credentials");
        let plain = url("memory:name?x=1");
        assert_eq!((plain.path(), plain.has_slashes(), plain.hosts(1).is_err()), ("name", false, true));
        let mut stripped = url("REDLOCK+redis://a");
        assert!(stripped.strip_scheme("redlock+") && !stripped.strip_scheme("redlock+"));
        assert_eq!(stripped.scheme(), "redis");
    }

    #[test]
    fn parameters_are_taken_by_those_who_know_them_and_the_rest_is_refused() {
        let mut all = url("a://h/?t=a%26b+c&n=7&ms=5&w=one&b=true&n=8&&other=s3cret");
        let others = [("two", "use one"), ("other", "use t")];
        assert!(all.refuse(&others[..1]).is_ok());
        assert_eq!(all.refuse(&others).unwrap_err().message(), "other is not a parameter here: use t");
        assert!(!all.word("w", "two"));
        assert!(url("a://h/?w=one").word("w", "one"));
        assert_eq!(all.text("t").as_deref(), Some("a&b+c"));
        assert_eq!(all.number::<u32>("n").unwrap(), Some(8), "the last one");
        assert_eq!(all.millis("ms").unwrap(), Some(Duration::from_millis(5)));
        assert_eq!(all.choice("w", &[("one", 1), ("two", 2)]).unwrap(), Some(1));
        assert_eq!((all.truth("b").unwrap(), all.truth("none").unwrap()), (Some(true), None));
        let text = all.finish().unwrap_err().to_string();
        assert!(text.contains("\"other\"; known are b, ms, n, none, t, w") && !text.contains("s3cret"), "{text}");
        let text = url("a://h/?first=1&second=2").finish().unwrap_err().to_string();
        assert!(text.contains("\"first\""), "{text}");
    }

    #[test]
    fn an_at_sign_behind_hosts_is_refused_and_in_the_path_of_a_file_it_is_none() {
        assert!(BackendUrl::parse("a://host/x@y").is_err());
        assert_eq!(url("a:/x@y").path, "/x@y");
        assert_eq!(url("a:///x@y").path, "/x@y");
    }

    #[test]
    fn hosts_are_taken_apart() {
        for (text, expected) in [("[::1]", ("::1", 5)), ("[::1]:7", ("::1", 7)), ("h", ("h", 5)), ("h:7", ("h", 7))] {
            assert_eq!(host_and_port(text, 5).unwrap(), (expected.0.to_owned(), expected.1), "{text}");
        }
    }

    /// No error repeats a part of a password, whatever was not encoded in it.
    #[test]
    fn no_error_repeats_what_may_be_a_password() {
        for text in [
            "s3cret",
            "s3cret@host:1",
            "://s3cret",
            "a://root:s3cret",
            "a://root:s3cret%@h",
            "a://root:s3cret%zz@h",
            "a://root:x?s3cret@h",
            "a://root:x?s3cret=1@h",
            "a://root:x?y=s3cret@h&z",
            "a://root:x?1&s3cret@h/",
            "a://root:12/s3cret@h",
            "a://root:12/x?t=s3cret@h",
            "a://root:x@12/s3cret@h",
            "a:root?s3cret@h",
            "a://root:x#s3cret@h",
            "a://root:s3cret@h@i:99999",
            "a://root:s3cret@h:99999",
            "a://root:s3cret@h,,i",
            "a://root:s3cret@h:0",
            "a://root:s3cret@[h]",
            "a://root:s3cret@h i",
            "a://root:s3cret@",
            "a://root:s3cret@h?n=s3cret",
            "a://root:s3cret@h?ms=s3cret",
            "a://root:s3cret@h?w=s3cret",
            "a://root:s3cret@h?f=/s3cret",
            "a://root:s3cret@h?u=s3cret",
            "a://root:s3cret@h?n=%s3cret",
        ] {
            let read = |text: &str| {
                let mut url = BackendUrl::parse(text)?;
                url.hosts(1)?;
                url.number::<u32>("n")?;
                url.millis("ms")?;
                url.choice("w", &[("one", 1)])?;
                url.file_of("f")?;
                if !url.path().is_empty() {
                    return Err(invalid("a path"));
                }
                url.finish()
            };
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let reported = format!("{error} {error:?}");
            assert!(!reported.contains("s3cret") && !reported.contains("root"), "{text}: {reported}");
        }
        assert!(!format!("{:?}", url("a://root:s3cret@h?x=s3cret")).contains("s3cret"));
    }

    #[test]
    fn each_fault_is_reported_with_what_to_do() {
        for (words, reported) in [
            ("invalid peer certificate: UnknownIssuer", "(ca)"),
            ("invalid peer certificate: BadSignature", "(ca)"),
            ("invalid peer certificate: certificate not valid for name \"h\"; certificate is only valid for x", "name"),
            ("invalid peer certificate: certificate expired: verification time 9 (UNIX)", "expired"),
            ("invalid peer certificate: NotValidYet", "not valid yet"),
            ("invalid peer certificate: BadEncoding", "trusted"),
            ("tls: received fatal alert: CertificateRequired", "name the files of one"),
            ("IO Error: Custom { kind: InvalidData, error: InvalidCertificate(ExpiredContext { .. }) }", "expired"),
            (
                "IO Error: Custom { kind: InvalidData, error: AlertReceived(CertificateRequired) }",
                "name the files of one",
            ),
            ("received fatal alert: UnknownCA", "its authority has issued"),
            ("received fatal alert: HandshakeFailure", "cipher"),
            ("received corrupt message of type InvalidContentType", "does not speak TLS"),
        ] {
            assert!(tls_fault(words).is_some_and(|fault| fault.contains(reported)), "{words}");
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
        let mut named = BackendUrl::parse(&format!("a://h/?ca={path}")).unwrap();
        assert_eq!(named.file_of("ca").unwrap().as_deref(), Some(&b"pem"[..]));
        assert_eq!(named.file_of("cert").unwrap(), None);
        std::fs::File::create(&file).unwrap().set_len(LARGEST).unwrap();
        assert_eq!(read_small_file("ca", &path).unwrap().len() as u64, LARGEST);
        std::fs::File::create(&file).unwrap().set_len(LARGEST + 1).unwrap();
        for (path, word) in [(&*path, "bytes"), ("/dev/zero", "not a regular file"), ("/", "not a regular file")] {
            let error = read_small_file("ca", path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(word), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
