//! What etcd's refusals and the link's failures mean.

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
    let said = |kind| (kind, format!("etcd said: {text}"));
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
        code::RESOURCE_EXHAUSTED if text.contains("database space") => said(ErrorKind::Misconfigured),
        code::RESOURCE_EXHAUSTED if text.contains("too many requests") => said(ErrorKind::Unavailable),
        code::UNAVAILABLE if text.contains("no leader") => said(ErrorKind::Unavailable),
        _ if text.contains("lease not found") => {
            (ErrorKind::Unavailable, String::from("the lease ended before the request that was to use it"))
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
