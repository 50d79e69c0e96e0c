//! The mapping of PostgreSQL's errors.

use tenure_core::{Error, ErrorKind};
use tokio_postgres::error::{DbError, SqlState};

/// What to do where the functions are missing.
const INSTALL: &str = "connect once with migrate=true as the owner of the database, or run the statements of \
                                  tenure_postgres::install_sql(), which `tenure schema postgres` prints, there";

/// What gives a user the rights that are needed.
const GRANTS: &str =
    "GRANT USAGE ON SCHEMA tenure TO the_user; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO the_user";

/// Where a server refuses to read an unlogged table during recovery. Its words are of the server's language.
const READS_UNLOGGED: &str = "get_relation_info";

/// Why no connection could be opened.
pub(crate) fn unreached(error: tokio_postgres::Error) -> Error {
    let (kind, text) = match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            (ErrorKind::Misconfigured, String::from("there is no such database"))
        }
        Some(code) if code.code().starts_with("28") && says(&error, "no encryption") => (
            ErrorKind::Misconfigured,
            String::from("the server takes this user only over TLS: set sslmode=verify-full"),
        ),
        Some(code) if code.code().starts_with("28") => {
            (ErrorKind::Denied, String::from("the server refuses the user or the password"))
        }
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
            (ErrorKind::Unavailable, String::from("the server has no connection left (max_connections)"))
        }
        Some(_) => (ErrorKind::Unavailable, String::from("the server refuses the connection")),
        None => match told_by_tls(&error) {
            Some(fault) => (ErrorKind::Misconfigured, fault),
            None if lacks_password(&error) => {
                (ErrorKind::Denied, String::from("the server asks for a password, and the URL has none"))
            }
            None => (ErrorKind::Unavailable, String::from("cannot connect to the server")),
        },
    };
    Error::new(kind, text).with_source(error)
}

fn told_by_tls(error: &tokio_postgres::Error) -> Option<String> {
    let chain = tenure_core::driver::reason("", std::error::Error::source(error));
    if chain.contains("server does not support TLS") {
        return Some(String::from("the server does not speak TLS: switch it on there (ssl), or set sslmode=disable"));
    }
    tenure_core::driver::tls_fault(&chain).map(str::to_owned)
}

/// Whether the server's own words have these.
fn says(error: &tokio_postgres::Error, words: &str) -> bool {
    error.as_db_error().is_some_and(|reported| reported.message().contains(words))
}

/// The client library's own refusal has no code.
fn lacks_password(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.to_string() == "password missing")
}

/// Why a request failed that was handed to an open connection.
pub(crate) fn failed(error: tokio_postgres::Error) -> Error {
    let Some(code) = error.code() else {
        return Error::new(ErrorKind::Indeterminate, "the connection ended before the answer").with_source(error);
    };
    let (kind, text) = match (&code.code()[..2], code.code()) {
        // The server ends: it does not report whether the request was applied.
        (_, "57P01" | "57P02" | "57P05") => (ErrorKind::Indeterminate, "the server ended the connection"),
        (_, "42501") => return denied(error),
        (_, "42883" | "42P01" | "42703" | "3F000") => return missing(error),
        // Whatever else a server says has rolled the statement back.
        (_, "TN002") => (
            ErrorKind::Misconfigured,
            "locks and queues are decided under READ COMMITTED only: run ALTER ROLE the_user SET default_transaction_isolation = 'read \
             committed'",
        ),
        (_, "26000") => {
            (ErrorKind::Misconfigured, "a pooler between does not keep prepared statements: set prepare=false")
        }
        (_, "25006") => (
            ErrorKind::Unavailable,
            "the server accepts no writes: it is a standby, or default_transaction_read_only is on for this user",
        ),
        (_, "0A000") if error.as_db_error().and_then(DbError::routine) == Some(READS_UNLOGGED) => {
            (ErrorKind::Unavailable, "the server is a standby, and accepts no writes")
        }
        (_, "53100") => (ErrorKind::Unavailable, "the server's disk is full"),
        (_, "55P03") => {
            (ErrorKind::Unavailable, "another transaction keeps a row or table of the schema \"tenure\" locked")
        }
        (_, "57014") => (ErrorKind::Unavailable, "the statement was cancelled"),
        ("XX", _) => (ErrorKind::Damaged, "the server found damaged data"),
        ("40" | "53" | "57" | "08", _) => (ErrorKind::Unavailable, "the server could not execute the request"),
        _ => (ErrorKind::Misconfigured, "the server refuses the request"),
    };
    Error::new(kind, text).with_source(error)
}

/// Whether the server said that it is a standby, or read-only: another one may take writes by now.
pub(crate) fn takes_no_writes(error: &Error) -> bool {
    let reported = std::error::Error::source(error).and_then(|source| source.downcast_ref::<tokio_postgres::Error>());
    reported.and_then(tokio_postgres::Error::code).is_some_and(|code| {
        *code == SqlState::READ_ONLY_SQL_TRANSACTION
            || reported.and_then(tokio_postgres::Error::as_db_error).and_then(DbError::routine) == Some(READS_UNLOGGED)
    })
}

/// Whether a function that the statement calls is missing.
pub(crate) fn lacks_a_function(error: &Error) -> bool {
    let reported = std::error::Error::source(error).and_then(|source| source.downcast_ref::<tokio_postgres::Error>());
    reported.and_then(tokio_postgres::Error::code) == Some(&SqlState::UNDEFINED_FUNCTION)
}

/// Whether the server gave a statement up since another transaction kept a row or table locked.
pub(crate) fn waited_for_a_lock(error: &Error) -> bool {
    let reported = std::error::Error::source(error).and_then(|source| source.downcast_ref::<tokio_postgres::Error>());
    reported.and_then(tokio_postgres::Error::code) == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

fn denied(error: tokio_postgres::Error) -> Error {
    let text = format!("the user may not call the functions of the schema \"tenure\": let its owner run {GRANTS}");
    Error::new(ErrorKind::Denied, text).with_source(error)
}

fn missing(error: tokio_postgres::Error) -> Error {
    let text = format!("the functions of the schema \"tenure\" are missing in this database: {INSTALL}");
    Error::new(ErrorKind::Misconfigured, text).with_source(error)
}

pub(crate) fn misconfigured(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Misconfigured, text.into())
}

/// An answer that this library's functions do not give.
pub(crate) fn odd() -> Error {
    Error::new(ErrorKind::Protocol, "the server returned an unexpected answer")
}
