//! The mapping of etcd's refusals and of connection failures to errors.

use std::error::Error as StdError;

use tenure_core::driver::{reason, tls_fault};
use tenure_core::{Error, ErrorKind};

pub(crate) type EtcdError = etcd_client::Error;

/// The numbers that gRPC gives to its codes.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// Whether etcd says that there is no such lease (any more).
pub(crate) fn is_lease_gone(error: &EtcdError) -> bool {
    match error {
        EtcdError::GRpcStatus(status) => status.message().contains("lease not found"),
        EtcdError::LeaseKeepAliveError(text) => text.contains("lease not found"),
        _ => false,
    }
}

/// Whether an error of the contract means that.
pub(crate) fn says_lease_gone(error: &Error) -> bool {
    error.source().and_then(|source| source.downcast_ref()).is_some_and(is_lease_gone)
}

/// Whether etcd says that the token is of before the last change of users or roles. Nothing was applied.
pub(crate) fn says_token_is_old(error: &Error) -> bool {
    let status = error.source().and_then(|source| source.downcast_ref());
    matches!(status, Some(EtcdError::GRpcStatus(status)) if status.message().contains(OLD_TOKEN))
}

const OLD_TOKEN: &str = "revision of auth store is old";

/// The error of a request that changes nothing: whatever became of it, nothing was applied.
pub(crate) fn of_a_read(error: Error) -> Error {
    match (error.kind(), tls_fault(error.message())) {
        (ErrorKind::Indeterminate, Some(fault)) => error.with_kind(ErrorKind::Misconfigured).at(fault),
        (ErrorKind::Indeterminate, None) => error.with_kind(ErrorKind::Unavailable),
        _ => error,
    }
}

/// The error of the first request of a client. In TLS 1.3 it learns after its handshake that its certificate was refused, and may
/// see nothing but the end of the connection.
pub(crate) fn of_a_first_request(error: Error) -> Error {
    let says = |sign: &str| error.message().contains(sign);
    let ended = says("connection closed") || says("broken pipe") || says("connection reset");
    match error.kind() {
        ErrorKind::Unavailable if ended && says("https://") => {
            error.at("perhaps the server asks for another client's certificate (cert, key)")
        }
        _ => error,
    }
}

/// The error in the words of the contract.
pub(crate) fn translate(error: EtcdError, member: &str) -> Error {
    let (kind, text) = classify(&error, member);
    Error::new(kind, text).with_told_source(error)
}

fn classify(error: &EtcdError, member: &str) -> (ErrorKind, String) {
    let EtcdError::GRpcStatus(status) = error else {
        return match error {
            EtcdError::InvalidArgs(_) | EtcdError::InvalidUri(_) => (ErrorKind::InvalidArgument, error.to_string()),
            EtcdError::TransportError(_) | EtcdError::EndpointError(_) => {
                not_connected("cannot set up the connection to", member, &chain(error))
            }
            _ => (ErrorKind::Indeterminate, error.to_string()),
        };
    };
    let text = status.message();
    let said = |kind| (kind, format!("etcd reported: {text}"));
    match i32::from(status.code()) {
        code::PERMISSION_DENIED => (
            ErrorKind::Denied,
            String::from("the user may not read and write under the prefix (etcd: permission denied)"),
        ),
        code::UNAUTHENTICATED => said(ErrorKind::Denied),
        code::INVALID_ARGUMENT if text.contains(OLD_TOKEN) => said(ErrorKind::Unavailable),
        code::INVALID_ARGUMENT if text.contains("authentication failed") || text.contains("user name is empty") => {
            said(ErrorKind::Denied)
        }
        code::INVALID_ARGUMENT if text.contains("request is too large") => said(ErrorKind::InvalidArgument),
        code::FAILED_PRECONDITION if text.contains("authentication is not enabled") => said(ErrorKind::Misconfigured),
        code::RESOURCE_EXHAUSTED if text.contains("database space") => (
            ErrorKind::Unavailable,
            String::from(
                "the database of etcd is full, and etcd refuses every write: free space (compact, defragment) and disarm its \
                 alarm (etcdctl alarm disarm)",
            ),
        ),
        code::RESOURCE_EXHAUSTED if text.contains("too many requests") => said(ErrorKind::Unavailable),
        code::UNAVAILABLE if text.contains("no leader") => said(ErrorKind::Unavailable),
        _ if text.contains("lease not found") => {
            (ErrorKind::Unavailable, String::from("the lease ended before the request that uses it arrived"))
        }
        _ => {
            // What a status displays is meant for a debugger.
            let whole = reason(text, status.source());
            if never_sent(status, &whole) {
                not_connected("cannot connect to", member, &whole)
            } else {
                (ErrorKind::Indeterminate, format!("the call to {member} failed: {whole}"))
            }
        }
    }
}

/// There is no connection: an outage, unless a person has to mend how TLS is set up.
fn not_connected(what: &str, member: &str, whole: &str) -> (ErrorKind, String) {
    match tls_fault(whole) {
        Some(fault) => (ErrorKind::Misconfigured, format!("{what} {member}: {fault} ({whole})")),
        None => (ErrorKind::Unavailable, format!("{what} {member}: {whole}")),
    }
}

/// Whether the request cannot have left: there was no connection, or the one that it waited for ended before it was sent.
fn never_sent(status: &(dyn StdError + 'static), whole: &str) -> bool {
    let refused = |error: &(dyn StdError + 'static)| {
        error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    sources(status).any(|error| refused(error) || was_waiting(error))
        || ["connect error", "dns error", "invalid peer certificate", "received fatal alert"]
            .iter()
            .any(|sign| whole.contains(sign))
}

/// Whether the request was still waiting in this client's own connection when that ended.
fn was_waiting(error: &(dyn StdError + 'static)) -> bool {
    let cause = error.source().map(ToString::to_string);
    error.to_string() == "operation was canceled"
        && cause.is_some_and(|cause| ["connection closed", "connection was not ready"].contains(&cause.as_str()))
}

fn sources<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// The error with its causes, each said once.
fn chain(error: &(dyn StdError + 'static)) -> String {
    reason(&error.to_string(), error.source())
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    fn reported(code: Code, text: &str) -> Error {
        translate(EtcdError::GRpcStatus(Status::new(code, text)), "10.0.0.1:2379")
    }

    #[test]
    fn each_refusal_of_etcd_has_a_meaning() {
        let table = [
            (Code::PermissionDenied, "etcdserver: permission denied", ErrorKind::Denied),
            (Code::Unauthenticated, "etcdserver: invalid auth token", ErrorKind::Denied),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", ErrorKind::Unavailable),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                ErrorKind::Denied,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", ErrorKind::Denied),
            (Code::InvalidArgument, "etcdserver: request is too large", ErrorKind::InvalidArgument),
            (Code::InvalidArgument, "etcdserver: something else", ErrorKind::Indeterminate),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", ErrorKind::Misconfigured),
            (Code::FailedPrecondition, "etcdserver: something else", ErrorKind::Indeterminate),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", ErrorKind::Unavailable),
            (Code::ResourceExhausted, "etcdserver: too many requests", ErrorKind::Unavailable),
            (Code::ResourceExhausted, "etcdserver: something else", ErrorKind::Indeterminate),
            (Code::Unavailable, "etcdserver: no leader", ErrorKind::Unavailable),
            (Code::Unavailable, "etcdserver: request timed out", ErrorKind::Indeterminate),
            (Code::NotFound, "etcdserver: requested lease not found", ErrorKind::Unavailable),
            (Code::Unknown, "etcdserver: no leader", ErrorKind::Indeterminate),
        ];
        for (code, text, kind) in table {
            let error = reported(code, text);
            assert_eq!(error.kind(), kind, "{code:?} {text}: {error}");
        }
        assert!(reported(Code::Unauthenticated, "why").message().contains("etcd reported: why"));
        let unknown = reported(Code::Unknown, "why");
        assert!(unknown.message().contains("10.0.0.1:2379") && unknown.message().contains("why"), "{unknown}");
    }

    #[test]
    fn a_request_that_never_left_was_not_applied() {
        for sign in ["connect error", "dns error", "invalid peer certificate", "received fatal alert"] {
            let error = reported(Code::Unavailable, &format!("transport: {sign}"));
            let expected = if sign.starts_with("inv") || sign.starts_with("rec") {
                ErrorKind::Misconfigured
            } else {
                ErrorKind::Unavailable
            };
            assert_eq!(error.kind(), expected, "{error}");
            assert!(error.was_not_applied(), "{error}");
        }
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let mut status = Status::unavailable("tcp");
        status.set_source(std::sync::Arc::new(refused()));
        assert!(never_sent(&status, "tcp") && !never_sent(&Status::unavailable("tcp"), "tcp"));
        let mut reset = Status::unavailable("tcp");
        reset.set_source(std::sync::Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        assert!(!never_sent(&reset, "tcp"), "it may have arrived");
    }

    /// An error with a cause, in words.
    #[derive(Debug)]
    struct Told(&'static str, Option<Box<Told>>);

    impl std::fmt::Display for Told {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl StdError for Told {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn a_request_that_waited_for_its_connection_when_that_ended_never_left() {
        let reported = |text, cause: Option<&'static str>| Told(text, cause.map(|cause| Box::new(Told(cause, None))));
        let canceled = "operation was canceled";
        assert!(was_waiting(&reported(canceled, Some("connection closed"))));
        assert!(was_waiting(&reported(canceled, Some("connection was not ready"))));
        for other in
            [reported(canceled, None), reported(canceled, Some("why")), reported("why", Some("connection closed"))]
        {
            assert!(!was_waiting(&other), "{other:?}");
        }
        let outer = Told("transport", Some(Box::new(reported(canceled, Some("connection closed")))));
        assert!(never_sent(&outer, "transport"));
    }

    #[test]
    fn etcd_reports_a_missing_lease_in_two_ways() {
        let status = |text: &str| EtcdError::GRpcStatus(Status::not_found(text));
        assert!(is_lease_gone(&status("etcdserver: requested lease not found")) && !is_lease_gone(&status("key")));
        let stream = |text: &str| EtcdError::LeaseKeepAliveError(text.into());
        assert!(is_lease_gone(&stream("lease not found")) && !is_lease_gone(&stream("stream ended")));
        assert!(!is_lease_gone(&EtcdError::InvalidArgs("lease not found".into())));
        assert!(says_lease_gone(&reported(Code::NotFound, "requested lease not found")));
        assert!(
            !says_lease_gone(&reported(Code::NotFound, "key")) && !says_lease_gone(&Error::new(ErrorKind::Lost, ""))
        );
        assert!(says_token_is_old(&reported(Code::InvalidArgument, "revision of auth store is old")));
        assert!(!says_token_is_old(&reported(Code::InvalidArgument, "why")));
        assert!(!says_token_is_old(&Error::new(ErrorKind::Unavailable, "revision of auth store is old")));
    }

    #[test]
    fn nothing_is_open_about_a_read() {
        let of = |kind, text: &'static str| of_a_read(Error::new(kind, text)).kind();
        assert_eq!(of(ErrorKind::Indeterminate, "no answer"), ErrorKind::Unavailable);
        assert_eq!(of(ErrorKind::Indeterminate, "received fatal alert: HandshakeFailure"), ErrorKind::Misconfigured);
        assert_eq!(of(ErrorKind::Denied, "no"), ErrorKind::Denied);
    }

    #[test]
    fn a_first_request_that_ended_over_tls_may_lack_a_certificate() {
        let hint = |kind, text: &str| {
            of_a_first_request(Error::new(kind, text.to_owned())).to_string().contains("another client's certificate")
        };
        for ended in ["connection closed", "broken pipe", "connection reset"] {
            assert!(hint(ErrorKind::Unavailable, &format!("https://a: {ended}")), "{ended}");
            assert!(!hint(ErrorKind::Unavailable, &format!("http://a: {ended}")));
            assert!(!hint(ErrorKind::Denied, &format!("https://a: {ended}")));
        }
        assert!(!hint(ErrorKind::Unavailable, "https://a: no route"));
    }

    #[test]
    fn what_is_wrong_with_a_setting_is_reported_as_that() {
        let error = translate(EtcdError::InvalidArgs("why".into()), "m");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(translate(EtcdError::EndpointError("why".into()), "m").kind(), ErrorKind::Unavailable);
        assert_eq!(translate(EtcdError::WatchError("why".into()), "m").kind(), ErrorKind::Indeterminate);
    }
}
