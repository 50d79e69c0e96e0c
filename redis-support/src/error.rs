//! The meaning of a failed request: which refusals prove that nothing was executed, and how the error names the
//! problem.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use tenure_core::driver::{one_line, reason, tls_fault};
use tenure_core::{Error, ErrorKind};

use crate::keyspace::Keyspace;
use crate::script::Script;

/// The failure of a request, reported by a connection. It never holds arguments, credentials or addresses with
/// credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ExecError {
    /// The request did not leave: the server did not and will not see it.
    NotSent {
        /// The problem, as a lowercase fragment that does not repeat the source.
        message: String,
        /// The client library's error.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// The request left, or may have left, and no reply arrived.
    SentUnknown {
        /// The problem, as a lowercase fragment that does not repeat the source.
        message: String,
        /// The client library's error.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// The server refused.
    Server {
        /// The first word of the refusal: `READONLY`, `NOSCRIPT`, `ERR`.
        code: String,
        /// The rest of it.
        message: String,
    },
    /// The server's answer is not a valid reply to this request.
    Protocol {
        /// The problem, as a lowercase fragment.
        message: String,
    },
    /// The driver was built without a feature that the configuration requires. Nothing was sent.
    Unsupported {
        /// The missing feature, as a fragment.
        message: String,
    },
    /// The driver was closed. Nothing was sent.
    Closed,
}

impl ExecError {
    /// A refusal, from its whole text: `READONLY You can't write…`.
    #[must_use]
    pub fn refused(text: &str) -> Self {
        let (code, message) = text.split_once(' ').unwrap_or((text, ""));
        Self::Server { code: code.to_owned(), message: message.to_owned() }
    }

    /// A request that was not sent, with the reason if it is known.
    #[must_use]
    pub fn not_sent(message: impl Into<String>, source: Option<Arc<dyn StdError + Send + Sync>>) -> Self {
        Self::NotSent { message: message.into(), source }
    }

    /// The error of a request that was to follow this one, and did not.
    pub(crate) fn before_request(self) -> Self {
        match self {
            Self::SentUnknown { message, source } => Self::NotSent { message, source },
            other => other,
        }
    }

    /// The error of a request that could not be sent because this one failed. Keeps the client library's error. A refused login
    /// stays one: it does not pass by itself, as an outage does.
    pub(crate) fn so_not_sent(&self, message: String) -> Self {
        match self {
            Self::Server { code, .. } if LOGINS.contains(&code.as_str()) => self.clone(),
            Self::NotSent { message: earlier, source } | Self::SentUnknown { message: earlier, source } => {
                Self::not_sent(format!("{message}: {earlier}"), source.clone())
            }
            other => Self::not_sent(format!("{message}: {other}"), None),
        }
    }

    /// Whether the server does not know the script's digest; nothing was executed.
    pub(crate) fn is_no_script(&self) -> bool {
        matches!(self, Self::Server { code, message } if recognise(code, message) == "NOSCRIPT")
    }

    /// Whether the server takes no writes, because it is a replica.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Server { code, message } if recognise(code, message) == "READONLY")
    }

    /// Whether the user lacks a right.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Server { code, message } if recognise(code, message) == "NOPERM")
    }

    /// Whether the server keeps a command from the user, or does not have it, as managed services do.
    pub(crate) fn is_withheld(&self) -> bool {
        let unknown = |message: &str| message.to_ascii_lowercase().contains("unknown command");
        self.is_denied() || matches!(self, Self::Server { message, .. } if unknown(message))
    }

    /// The error for users. `script` is what ran, if a script did, to name the command that a right is missing for.
    pub(crate) fn into_error(self, keys: &Keyspace, script: Option<&Script>) -> Error {
        match self {
            Self::NotSent { message, source } => with_source(ErrorKind::Unavailable, message, source),
            Self::SentUnknown { message, source } => with_source(ErrorKind::Indeterminate, message, source),
            Self::Server { code, message } => refusal(&code, &message, keys, script),
            Self::Protocol { message } => Error::new(ErrorKind::Protocol, message),
            Self::Unsupported { message } => Error::new(ErrorKind::Unsupported, message),
            Self::Closed => Error::new(ErrorKind::Closed, "the driver was closed"),
        }
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent { message, source } | Self::SentUnknown { message, source } => {
                let source = source.as_deref().map(|source| source as &(dyn StdError + 'static));
                f.write_str(&reason(message, source))
            }
            Self::Unsupported { message } | Self::Protocol { message } => f.write_str(message),
            Self::Server { code, message } => write!(f, "the server refused: {code} {message}"),
            Self::Closed => f.write_str("the driver was closed"),
        }
    }
}

/// Its `Display` includes the causes.
impl StdError for ExecError {}

/// The error of a request. One that has left is past the handshake of TLS: an error that ends its session later may look like a
/// fault of that, and its outcome is as unknown as after any other end.
fn with_source(kind: ErrorKind, message: String, source: Option<Arc<dyn StdError + Send + Sync>>) -> Error {
    let Some(source) = source else { return Error::new(kind, message) };
    let error = match tls_fault(&reason("", Some(&*source))) {
        Some(fault) if kind == ErrorKind::Indeterminate => Error::new(kind, format!("{message}: {fault}")),
        Some(fault) => Error::new(ErrorKind::Misconfigured, format!("{message}: {fault}")),
        None => Error::new(kind, message),
    };
    error.with_shared_source(source)
}

/// Codes of a refused login.
const LOGINS: [&str; 2] = ["NOAUTH", "WRONGPASS"];

/// Codes that older servers hide in the text of an `ERR` when a script fails.
const HIDDEN: [&str; 8] =
    ["OOM", "READONLY", "MISCONF", "MASTERDOWN", "NOREPLICAS", "NOPERM", "CLUSTERDOWN", "NOSCRIPT"];

const PROTECTED: &str = "the server is in protected mode: it has no password and takes clients of its own machine only; set a password (or \
                         an ACL user) there, or bind it to the interface that the clients come from";

/// The most bytes of a refusal that are repeated; some are essays.
const LONGEST_REFUSAL: usize = 300;

/// Wordings of a missing right that come without the code.
const DENIALS: [&str; 3] = ["The user executing the script can't", "can't run this command", "no permissions"];

/// The code that really applies.
fn recognise<'a>(code: &'a str, message: &str) -> &'a str {
    if code != "ERR" {
        return code;
    }
    if DENIALS.iter().any(|wording| message.contains(wording)) {
        return "NOPERM";
    }
    if message.starts_with("max number of clients") {
        return "MAXCLIENTS";
    }
    let hidden = |known: &&str| message.contains(&format!("-{known} "));
    HIDDEN.into_iter().find(hidden).unwrap_or(code)
}

impl Keyspace {
    /// The error for users, of a request without a script, such as connecting.
    #[must_use]
    pub(crate) fn explain(&self, error: ExecError) -> Error {
        error.into_error(self, None)
    }
}

/// Names a refusal. Every code listed is one that the server gives before it executes anything, or that makes a script
/// end before it has granted or ended anything; but a right that a script lacks may be missing at any of its commands.
fn refusal(code: &str, message: &str, keys: &Keyspace, script: Option<&Script>) -> Error {
    use ErrorKind::{Denied, Indeterminate, Misconfigured, Unavailable};
    let code = recognise(code, message);
    let (kind, what) = match code {
        "NOPERM" => {
            let error = Error::new(Denied, missing_right(message, keys, script));
            return if is_inside(message) { error.half_way() } else { error };
        }
        "NOAUTH" => (Denied, "the server asks for a password and none was given"),
        "WRONGPASS" => (Denied, "the server refuses the user name or password"),
        "READONLY" => (Unavailable, "the server has become a read-only replica; locks need the primary"),
        "MOVED" | "ASK" | "CROSSSLOT" => {
            (Misconfigured, "the server is a node of a cluster and another node serves this lock")
        }
        "OOM" => (Unavailable, "the server has reached its maxmemory and takes no new data"),
        "LOADING" => (Unavailable, "the server is still loading its data"),
        "BUSY" => (Unavailable, "the server is busy with a long script"),
        "MASTERDOWN" => (Unavailable, "the server is a replica that lost its primary"),
        "CLUSTERDOWN" => (Unavailable, "the cluster is down"),
        "TRYAGAIN" => (Unavailable, "the cluster is moving this lock's slot"),
        "MISCONF" => (Unavailable, "the server refuses writes because it cannot persist them"),
        "NOREPLICAS" => (Unavailable, "the server refuses writes because too few replicas are attached"),
        "NOSCRIPT" => (Unavailable, "the server does not know the script"),
        "DENIED" if message.contains("protected mode") => return Error::new(Misconfigured, PROTECTED),
        "MAXCLIENTS" => (Unavailable, "the server has reached its maxclients"),
        _ if message.contains("cluster support disabled") => (Misconfigured, "the server is not a node of a cluster"),
        _ if message.starts_with("DB index is out of range") => {
            (Misconfigured, "the server has no database of that number")
        }
        _ if message.starts_with("unknown command") => (Misconfigured, "the server lacks a command"),
        _ => (Indeterminate, "the server refused"),
    };
    let said = one_line(format!("{code} {message}").into(), LONGEST_REFUSAL);
    Error::new(kind, format!("{what} ({said})"))
}

/// Whether a refusal came from a command inside a script, rather than from the call of the script.
fn is_inside(message: &str) -> bool {
    message.contains("script")
}

/// Names the right that is missing, as an access control rule would give it.
fn missing_right(message: &str, keys: &Keyspace, script: Option<&Script>) -> String {
    let rules = keys.rules();
    if message.contains("channel") {
        return format!("the user has no right to the channels of wake-ups; the rules needed are {rules} (NOPERM)");
    }
    if message.contains(" key") {
        return format!("the user has no right to the keys of locks; the rules needed are {rules} (NOPERM)");
    }
    let quoted = || message.split('\'').nth(1).filter(|_| message.contains("to run the '")).map(str::to_owned);
    let appended = || message.rsplit_once(" [")?.1.strip_suffix(']').map(str::to_owned);
    let by_line = || {
        let digits = message.rsplit_once("@user_script:")?.1;
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        script?.command_at(digits[..end].parse().ok()?).map(str::to_owned)
    };
    match quoted().or_else(appended).or_else(by_line) {
        Some(command) => {
            let command = command.to_lowercase();
            format!("the user has no right to run {command}; the rule needed is +{command} (NOPERM)")
        }
        None => format!("the user lacks a right (NOPERM {message})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::ClientId;
    use crate::script::RENEW;
    use crate::settings::{FenceScope, Prefix};

    fn named(text: &str) -> Error {
        let keys = Keyspace::new(Prefix::default(), FenceScope::Node, ClientId::random());
        ExecError::refused(text).into_error(&keys, Some(&RENEW))
    }

    #[test]
    fn an_alert_is_a_fault_of_the_setup_only_before_anything_was_sent() {
        let keys = Keyspace::new(Prefix::default(), FenceScope::Node, ClientId::random());
        let alert = || -> Option<Arc<dyn StdError + Send + Sync>> {
            Some(Arc::new(std::io::Error::other("received fatal alert: CertificateExpired")))
        };
        let sent = ExecError::SentUnknown { message: "the connection broke".into(), source: alert() };
        let before = ExecError::not_sent("cannot connect", alert()).into_error(&keys, None);
        assert_eq!(sent.into_error(&keys, None).kind(), ErrorKind::Indeterminate);
        assert_eq!(before.kind(), ErrorKind::Misconfigured, "{before}");
        let asked_first = ExecError::SentUnknown { message: "no answer".into(), source: None }.before_request();
        assert!(asked_first.into_error(&keys, None).was_not_applied());
    }

    #[test]
    fn refusals_are_named() {
        use ErrorKind::{Denied, Indeterminate, Misconfigured, Unavailable};
        for (text, kind, word) in [
            ("NOSCRIPT No matching script.", Unavailable, "script"),
            ("READONLY You can't write against a read only replica.", Unavailable, "replica"),
            ("ERR Error running script (call to f_1): @user_script:3: -READONLY You can't", Unavailable, "replica"),
            ("OOM command not allowed when used memory > 'maxmemory'.", Unavailable, "maxmemory"),
            ("ERR Error running script (call to f_1): @user_script:3: -OOM command not allowed", Unavailable, "OOM"),
            ("LOADING Redis is loading the dataset in memory", Unavailable, "loading"),
            ("BUSY Redis is busy running a script.", Unavailable, "busy"),
            ("NOAUTH Authentication required.", Denied, "password"),
            ("WRONGPASS invalid username-password pair or user is disabled.", Denied, "password"),
            ("MASTERDOWN Link with MASTER is down", Unavailable, "primary"),
            ("MISCONF Errors writing to the AOF file", Unavailable, "persist"),
            ("CLUSTERDOWN The cluster is down", Unavailable, "cluster"),
            ("MOVED 3999 127.0.0.1:6381", Misconfigured, "cluster"),
            ("ASK 3999 127.0.0.1:6381", Misconfigured, "cluster"),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable, "slot"),
            ("ERR max number of clients reached", Unavailable, "maxclients"),
            ("ERR unknown command 'evalsha'", Misconfigured, "evalsha"),
            ("ERR DB index is out of range", Misconfigured, "database"),
            ("CROSSSLOT Keys in request don't hash to the same slot", Misconfigured, "node of a cluster"),
            ("NOREPLICAS Not enough good replicas to write.", Unavailable, "too few replicas"),
            ("ERR This instance has cluster support disabled", Misconfigured, "not a node of a cluster"),
            ("MAXCLIENTS x", Unavailable, "maxclients"),
            ("DENIED for another reason", Indeterminate, "DENIED for another reason"),
            ("ERR Error running script: @user_script:3: -NOSCRIPT x", Unavailable, "does not know the script"),
            ("EXECABORT -OOM x", Indeterminate, "EXECABORT"),
            ("ERR something new", Indeterminate, "something new"),
            ("DENIED Redis is running in protected mode because protected mode is enabled", Misconfigured, "password"),
        ] {
            let error = named(text);
            assert_eq!(error.kind(), kind, "{text}");
            assert!(error.message().contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn refusals_are_distinguished_by_their_code_or_by_what_an_older_server_hides_it_in() {
        let reported = |text: &str| {
            let error = ExecError::refused(text);
            [error.is_no_script(), error.is_read_only(), error.is_denied(), error.is_withheld()]
        };
        for (text, expected) in [
            ("NOSCRIPT No matching script.", [true, false, false, false]),
            ("ERR x: -READONLY You can't", [false, true, false, false]),
            ("NOPERM no permissions to run the 'info' command", [false, false, true, true]),
            ("ERR User app has no permissions to run the 'info' command", [false, false, true, true]),
            ("ERR unknown command 'info'", [false, false, false, true]),
            ("ERR Unknown command", [false, false, false, true]),
            ("ERR something else", [false; 4]),
        ] {
            assert_eq!(reported(text), expected, "{text}");
        }
        let others = [ExecError::Closed, ExecError::not_sent("unknown command", None)];
        assert!(others.iter().all(|error| !error.is_no_script() && !error.is_read_only() && !error.is_withheld()));
    }

    #[test]
    fn what_comes_after_a_failure_was_not_sent_and_says_why() {
        let source: Option<Arc<dyn StdError + Send + Sync>> = Some(Arc::new(std::io::Error::other("broken pipe")));
        let lost = ExecError::SentUnknown { message: "the connection ended".into(), source };
        for (earlier, said) in [
            (lost.clone(), "down: the connection ended: broken pipe"),
            (lost.clone().before_request(), "down: the connection ended: broken pipe"),
            (ExecError::refused("LOADING wait"), "down: the server refused: LOADING wait"),
            (ExecError::Protocol { message: "odd".into() }, "down: odd"),
            (ExecError::Unsupported { message: "no TLS".into() }, "down: no TLS"),
            (ExecError::Closed, "down: the driver was closed"),
        ] {
            let next = earlier.so_not_sent("down".into());
            assert_eq!(next.to_string(), said);
            assert!(matches!(next, ExecError::NotSent { source, .. } if source.is_some() == said.contains("pipe")));
        }
        for login in ["NOAUTH log in", "WRONGPASS no"] {
            assert!(matches!(ExecError::refused(login).so_not_sent("down".into()), ExecError::Server { .. }));
        }
        assert!(matches!(ExecError::Closed.before_request(), ExecError::Closed));
        assert!(matches!(lost.before_request(), ExecError::NotSent { source: Some(_), .. }));
    }

    #[test]
    fn a_missing_right_is_named() {
        let line = RENEW.source().lines().position(|line| line.contains("'MGET'")).unwrap() + 1;
        let at_mget = format!(
            "ERR The user executing the script can't run this command or subcommand script: 0a, on @user_script:{line}."
        );
        for (text, word) in [
            ("NOPERM this user has no permissions to run the 'evalsha' command", "+evalsha"),
            ("NOPERM User default has no permissions to run the 'evalsha' command", "+evalsha"),
            ("ERR The user executing the script can't run this command or subcommand [GET]", "+get"),
            (at_mget.as_str(), "+mget"),
            ("NOPERM this user has no permissions to access one of the keys used as arguments", "~tenure:*"),
            ("NOPERM this user has no permissions to access one of the channels used as arguments", "&tenure:*"),
            ("ERR The user executing the script can't publish to the channel mentioned in the command", "&tenure:*"),
        ] {
            let error = named(text);
            assert_eq!(error.kind(), ErrorKind::Denied, "{text}");
            assert!(error.message().contains(word), "{text}: {error}");
            assert_eq!(error.was_not_applied(), !text.contains("script"), "{text}");
        }
    }
}
