//! Tables and procedures: their statements, and the check for them in a database.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use tenure_core::{Error, ErrorKind, Result};

use crate::error::{INSTALL, failed, misconfigured, odd};
use crate::row::column;

/// Which procedures this release calls.
const VERSION: i32 = 1;

/// The clock in microseconds since 1970. SYSDATE is the time of now, in the zone of the session; the other two are fixed since
/// the statement began, and show how far that zone is away.
const NOW: &str =
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) - TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), NOW(6)))";

/// The separator of two statements.
const BETWEEN: &str = "\n//\n";

/// The statements that create tenure's tables and procedures in a database, if the program's user has no right to
/// create them. This is a script for the programs `mysql` and `mariadb`. It may be run again, and updates those of an
/// older release.
///
/// A program needs no right to a table: `GRANT EXECUTE ON the_database.* TO app`. Procedures run with the rights of the
/// user that ran the script.
#[must_use]
pub fn install_sql() -> String {
    format!("DELIMITER //\n{}\n//\nDELIMITER ;\n", statements().join(BETWEEN))
}

/// Procedures keep the mode that they were made in.
const MODE: &str = "SET SESSION sql_mode = 'STRICT_ALL_TABLES'";

fn statements() -> Vec<String> {
    let files = [
        MODE,
        include_str!("../sql/lock.sql"),
        include_str!("../sql/queue.sql"),
        include_str!("../sql/census.sql"),
        include_str!("../sql/permit.sql"),
        include_str!("../sql/about.sql"),
    ];
    let files: Vec<&str> = files.iter().map(|file| file.trim_end()).collect();
    let text = files.join(BETWEEN).replace("{now}", NOW).replace("{version}", &VERSION.to_string());
    text.split(BETWEEN).map(str::to_owned).collect()
}

/// Makes what this release needs, if it is not there. Clients that do so at once wait for each other.
pub(crate) async fn install(conn: &mut Conn) -> Result<()> {
    if !is_there(conn).await {
        return install_all(conn).await;
    }
    if has_permits(conn).await? {
        return Ok(());
    }
    // Made by a release without permits. Everything else works without, so a refusal is no error.
    match install_all(conn).await {
        Err(error) if error.kind() == ErrorKind::Denied => Ok(()),
        result => result,
    }
}

async fn install_all(conn: &mut Conn) -> Result<()> {
    let waited: Option<Option<i64>> =
        conn.query_first("SELECT GET_LOCK(CONCAT('tenure ', MD5(DATABASE())), 60)").await.map_err(failed)?;
    if waited != Some(Some(1)) {
        return Err(Error::new(ErrorKind::Unavailable, "another client has been making tenure's tables for a minute"));
    }
    if is_there(conn).await && has_permits(conn).await? {
        return Ok(());
    }
    for statement in statements() {
        conn.query_drop(statement).await.map_err(|error| match failed(error) {
            error if error.kind() == ErrorKind::Denied => {
                let text = "the user may not create tenure's tables and procedures: let an administrator run the statements of \
                            tenure_mysql::install_sql(), which `tenure schema mysql` prints, in the database";
                Error::new(ErrorKind::Denied, text).with_source(error)
            }
            error => error,
        })?;
    }
    Ok(())
}

/// Whether the database has what this release needs, or what a later one does.
async fn is_there(conn: &mut Conn) -> bool {
    version(conn).await.is_ok_and(|version| version >= VERSION)
}

/// Whether the database has semaphores and read-write locks: releases before them have the same version.
async fn has_permits(conn: &mut Conn) -> Result<bool> {
    let question = "SELECT COUNT(*) FROM information_schema.routines \
                    WHERE routine_schema = DATABASE() AND routine_name = 'tenure_permit_inspect'";
    let found: Option<i64> = conn.query_first(question).await.map_err(failed)?;
    Ok(found == Some(1))
}

async fn about(conn: &mut Conn) -> Result<Row> {
    conn.query_first("CALL tenure_about()").await.map_err(failed)?.ok_or_else(odd)
}

async fn version(conn: &mut Conn) -> Result<i32> {
    column(&about(conn).await?, 0)
}

/// Whether this release can work with the database.
pub(crate) async fn look(conn: &mut Conn) -> Result<()> {
    let row = about(conn).await?;
    let (version, read_only): (i32, bool) = (column(&row, 0)?, column(&row, 1)?);
    if version != VERSION {
        let help = if version > VERSION { "use a newer release of tenure-mysql" } else { INSTALL };
        return Err(misconfigured(format!(
            "tenure's procedures in this database are of version {version}, this release works with version {VERSION}: {help}"
        )));
    }
    if read_only {
        return Err(misconfigured("the server is a read-only replica: name the server that accepts writes"));
    }
    // An option of the server makes it NOW; then leases that a request waited for would begin in the past.
    let clock: Option<(i64, i64)> =
        conn.query_first("SELECT SLEEP(0.001), SYSDATE(6) > NOW(6)").await.map_err(failed)?;
    match clock {
        Some((_, 1)) => Ok(()),
        _ => Err(misconfigured("the server's SYSDATE() does not advance: start it without --sysdate-is-now")),
    }
}
