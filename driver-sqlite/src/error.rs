//! The mapping of SQLite's errors.

use rusqlite::ErrorCode;
use tenure_core::{Error, ErrorKind};

/// Why a request was not done.
#[derive(Debug)]
pub(crate) enum Failed {
    /// SQLite refused a statement.
    Sql(rusqlite::Error),
    /// The contract refuses the request, or stored data is unreadable.
    Refused(Error),
}

/// Shorthand for what happens inside a transaction.
pub(crate) type Done<T> = Result<T, Failed>;

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Failed> for Error {
    /// The error of a statement before the commit: whatever it was, the transaction was rolled back.
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(error) => error,
            Failed::Sql(error) => of_sqlite(error),
        }
    }
}

/// The error of a statement that was rolled back.
pub(crate) fn of_sqlite(error: rusqlite::Error) -> Error {
    let (kind, text) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => (ErrorKind::Damaged, "the database is damaged"),
        Some(ErrorCode::NotADatabase) => (ErrorKind::Damaged, "the file is not an SQLite database"),
        Some(ErrorCode::ReadOnly) => (ErrorKind::Misconfigured, "the database cannot be written"),
        Some(ErrorCode::CannotOpen) => (ErrorKind::Misconfigured, "the database cannot be opened"),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            (ErrorKind::Denied, "a right to the database is missing")
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::Unavailable, "the disk is full"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, "another program keeps the database locked")
        }
        Some(_) => (ErrorKind::Unavailable, "the database refused the request"),
        // A column of another type, a row that is not there: not what this library writes.
        None => (ErrorKind::Damaged, "the database has rows that cannot be read"),
    };
    Error::new(kind, text).with_source(error)
}

/// The error of a commit, which a failing disk may have kept or not.
pub(crate) fn of_commit(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) | None => {
            Error::new(ErrorKind::Indeterminate, "the commit failed half-way").with_source(error)
        }
        _ => of_sqlite(error),
    }
}

/// The error of a file or a socket that belongs to the database.
pub(crate) fn of_system(what: impl std::fmt::Display, error: std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    let kind = match error.kind() {
        Io::PermissionDenied => ErrorKind::Denied,
        Io::StorageFull | Io::QuotaExceeded | Io::OutOfMemory => ErrorKind::Unavailable,
        _ => ErrorKind::Misconfigured,
    };
    Error::new(kind, format!("cannot {what}")).with_source(error)
}

pub(crate) fn misconfigured(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Misconfigured, text.into())
}

pub(crate) fn damaged(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Damaged, text.into())
}
