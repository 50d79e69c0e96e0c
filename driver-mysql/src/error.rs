//! The mapping of the server's errors.

use mysql_async::{DriverError, Error as SqlError};
use tenure_core::{Error, ErrorKind};

use crate::config::MysqlConfig;

/// What to do where the procedures are missing or of another version.
pub(crate) const INSTALL: &str = "connect once with migrate=true as a user who may create tables and procedures there, or run the \
                                  statements of tenure_mysql::install_sql(), which `tenure schema mysql` prints, in it";

/// What the server calls a procedure that is not there.
pub(crate) const NO_PROCEDURE: u16 = 1305;

/// What gives a user the right that is needed.
const GRANTS: &str = "GRANT EXECUTE ON the_database.* TO the_user";

/// What to do where a user signs in by a method that the client library does not know.
pub(crate) const AUTHENTICATION: &str = "the user signs in by a method that this driver does not know: let an administrator set a password for \
                              caching_sha2_password or mysql_native_password";

/// Why no connection could be opened.
pub(crate) fn unreached(error: SqlError, config: &MysqlConfig) -> Error {
    let (kind, text) = match &error {
        SqlError::Server(server) => match server.code {
            1045 if config.is_readable_on_the_way() => (
                ErrorKind::Denied,
                "the server refuses the user or the password, or takes them over TLS alone: set ssl-mode=REQUIRED",
            ),
            1045 | 1698 | 1130 => (ErrorKind::Denied, "the server refuses the user or the password"),
            1044 => (ErrorKind::Denied, "the user has no right to the database"),
            1049 => (ErrorKind::Misconfigured, "there is no such database"),
            1040 | 1203 | 1226 => (ErrorKind::Unavailable, "the server has no connection left (max_connections)"),
            3159 => (ErrorKind::Misconfigured, "the server takes encrypted connections only: set ssl-mode=REQUIRED"),
            1129 => (ErrorKind::Unavailable, "the server blocks this host after failed connections (FLUSH HOSTS)"),
            _ => (ErrorKind::Unavailable, "the server refuses the connection"),
        },
        SqlError::Driver(DriverError::NoClientSslFlagFromServer) => (
            ErrorKind::Misconfigured,
            "the server does not speak TLS: switch it on there, or leave out ssl-mode and ca",
        ),
        SqlError::Driver(DriverError::UnknownAuthPlugin { .. } | DriverError::CleartextPluginDisabled) => {
            (ErrorKind::Misconfigured, AUTHENTICATION)
        }
        other => match told_by_tls(other) {
            Some(fault) => (ErrorKind::Misconfigured, fault),
            None => (ErrorKind::Unavailable, "cannot connect to the server"),
        },
    };
    Error::new(kind, text).with_source(error)
}

fn told_by_tls(error: &SqlError) -> Option<&'static str> {
    let chain = tenure_core::driver::reason("", Some(error));
    tenure_core::driver::tls_fault(&chain)
}

/// Why a request failed that was sent over an open connection.
pub(crate) fn failed(error: SqlError) -> Error {
    let (kind, text) = match &error {
        SqlError::Server(server) => return refused(server.code, &server.state.clone(), error),
        _ if is_too_large(&error) => {
            (ErrorKind::Misconfigured, "the request is larger than the server takes: raise its max_allowed_packet")
        }
        _ => (ErrorKind::Indeterminate, "the connection ended before the answer"),
    };
    Error::new(kind, text).with_source(error)
}

/// A request that the client library does not even send. It reports that in words only.
fn is_too_large(error: &SqlError) -> bool {
    matches!(error, SqlError::Driver(DriverError::PacketTooLarge))
        || tenure_core::driver::reason("", Some(error)).contains("larger than max_allowed_packet")
}

fn refused(code: u16, state: &str, error: SqlError) -> Error {
    let (kind, text) = match (state, code) {
        // A procedure may be several transactions: an error that ends it half-way does not show how far it came.
        ("TN002", _) | (_, 1053 | 1317 | 1927 | 1969 | 3024) => {
            (ErrorKind::Indeterminate, "the server ended the request half-way")
        }
        ("TN003", _) | (_, 1290 | 1792 | 1836) => (ErrorKind::Unavailable, "the server is read-only"),
        (_, 1370 | 1044 | 1142 | 1143 | 1227) => return denied(error),
        (_, NO_PROCEDURE | 1146 | 1318 | 1054) => return missing(error),
        (_, 1449) => (
            ErrorKind::Misconfigured,
            "the user who created tenure's procedures does not exist any more: run install_sql() as another one",
        ),
        (_, 1153) => {
            (ErrorKind::Misconfigured, "the request is larger than the server takes: raise its max_allowed_packet")
        }
        (_, 1665) => (
            ErrorKind::Misconfigured,
            "the binary log has statements instead of rows: set binlog_format to ROW or MIXED",
        ),
        // What follows has rolled back.
        ("TN005", _) | (_, 1205) => {
            (ErrorKind::Unavailable, "another transaction keeps a row or table of tenure locked")
        }
        (_, 1213 | 1020) => (ErrorKind::Unavailable, "a deadlock, or a conflict with another node of the cluster"),
        (_, 1021 | 1026 | 1030 | 1041 | 1114) => (ErrorKind::Unavailable, "the server's disk or memory is full"),
        (_, 1461) => (ErrorKind::Unavailable, "the server has no prepared statement left (max_prepared_stmt_count)"),
        (_, 1047) => (ErrorKind::Unavailable, "the node is no part of its cluster at the moment"),
        (_, 1034 | 1035 | 1194 | 1195) => (ErrorKind::Damaged, "the server found damaged data"),
        _ => (ErrorKind::Misconfigured, "the server refuses the request"),
    };
    Error::new(kind, text).with_source(error)
}

fn denied(error: SqlError) -> Error {
    let text = format!("the user may not call tenure's procedures: let an administrator run {GRANTS}");
    Error::new(ErrorKind::Denied, text).with_source(error)
}

fn missing(error: SqlError) -> Error {
    let text = format!("tenure's tables and procedures are missing in this database: {INSTALL}");
    Error::new(ErrorKind::Misconfigured, text).with_source(error)
}

pub(crate) fn misconfigured(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Misconfigured, text.into())
}

/// An answer that this library's procedures do not give.
pub(crate) fn odd() -> Error {
    Error::new(ErrorKind::Protocol, "the server returned an unexpected answer")
}

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;

    use super::*;

    fn reported(code: u16, state: &str) -> SqlError {
        SqlError::Server(ServerError { code, message: String::from("its own words"), state: state.into() })
    }

    #[test]
    fn what_was_not_done_is_distinguished_from_what_is_not_known() {
        for (code, kind, words) in [
            (1205, ErrorKind::Unavailable, "another transaction"),
            (1213, ErrorKind::Unavailable, "another node of the cluster"),
            (1047, ErrorKind::Unavailable, "no part of its cluster"),
            (1461, ErrorKind::Unavailable, "max_prepared_stmt_count"),
            (1290, ErrorKind::Unavailable, "read-only"),
            (1836, ErrorKind::Unavailable, "read-only"),
            (1021, ErrorKind::Unavailable, "full"),
            (1114, ErrorKind::Unavailable, "full"),
            (1053, ErrorKind::Indeterminate, "half-way"),
            (1317, ErrorKind::Indeterminate, "half-way"),
            (1927, ErrorKind::Indeterminate, "half-way"),
            (1153, ErrorKind::Misconfigured, "max_allowed_packet"),
            (1305, ErrorKind::Misconfigured, "install_sql()"),
            (1370, ErrorKind::Denied, "GRANT EXECUTE"),
            (1449, ErrorKind::Misconfigured, "does not exist"),
        ] {
            let error = failed(reported(code, "HY000"));
            assert!(error.kind() == kind && error.to_string().contains(words), "{code}: {error}");
        }
        assert_eq!(failed(reported(1644, "TN002")).kind(), ErrorKind::Indeterminate);
        assert_eq!(failed(reported(1644, "TN003")).kind(), ErrorKind::Unavailable);
        for (code, kind) in
            [(1045, ErrorKind::Denied), (1049, ErrorKind::Misconfigured), (1040, ErrorKind::Unavailable)]
        {
            let config = "mysql://app@db/shop".parse().unwrap();
            assert_eq!(unreached(reported(code, "HY000"), &config).kind(), kind, "{code}");
        }
    }
}
