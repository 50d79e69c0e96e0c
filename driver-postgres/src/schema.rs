//! The schema: its statements, and the check for it in a database.

use std::time::Duration;

use tenure_core::driver::Ttl;
use tenure_core::{Error, ErrorKind, Result};
use tokio_postgres::{Client, Row};

use crate::config::Install;
use crate::error::{failed, misconfigured, odd};
use crate::span::{micros, of_micros};

/// Which functions this release calls.
const VERSION: i32 = 1;

/// The statements that create the schema `tenure`, if the program's user has no right to create it. Run them in one
/// transaction, as a user with the right to create schemas in the database; that user then owns all of it.
///
/// A program needs no right to a table: `GRANT USAGE ON SCHEMA tenure TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA
/// tenure TO app`. It cannot use the internal functions, since it has no rights to the tables.
#[must_use]
pub fn install_sql(install: Install) -> String {
    let lock = include_str!("../sql/lock.sql")
        .replace("{unlogged}", if install.logged { "" } else { "UNLOGGED" })
        .replace("{logged}", if install.logged { "true" } else { "false" })
        .replace("{longest}", &micros(install.longest_ttl).to_string());
    [lock.as_str(), include_str!("../sql/queue.sql"), CENSUS, include_str!("../sql/rights.sql"), PERMITS].join("\n")
}

/// The statements that add the list of held locks to a schema without it: no other operation needs them. Run them as
/// the owner of the schema; a program then needs `GRANT EXECUTE ON FUNCTION tenure.held TO app`. They may be run again.
#[must_use]
pub fn census_sql() -> &'static str {
    CENSUS
}

/// The statements that add semaphores and read-write locks to a schema without them: no other operation needs them. Run
/// them as the owner of the schema, in one transaction; a program then needs `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA
/// tenure TO app` again. They may be run again.
#[must_use]
pub fn permits_sql() -> &'static str {
    PERMITS
}

const PERMITS: &str = include_str!("../sql/permit.sql");

const CENSUS: &str = include_str!("../sql/census.sql");

/// What a database says of its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) logged: bool,
    pub(crate) longest: Duration,
}

/// Makes the schema, if it is not there. Clients that do so at once wait for each other.
pub(crate) async fn install(client: &Client, install: Install) -> Result<()> {
    Ttl::new(install.longest_ttl)?;
    let there = "SELECT to_regclass('tenure.setting') IS NOT NULL, to_regprocedure('tenure.held(bytea,integer)') IS NOT NULL, \
                 to_regproc('tenure.permit_inspect') IS NOT NULL";
    let row = one_row(client, there).await?;
    let is_there = |at| row.try_get::<_, bool>(at).map_err(|_| odd());
    if is_there(0)? {
        for (at, part) in [(1, CENSUS), (2, PERMITS)] {
            if !is_there(at)? {
                add(client, part).await?;
            }
        }
        return Ok(());
    }
    let all = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(1952804455); \
         DO $do$ BEGIN IF to_regclass('tenure.setting') IS NULL THEN EXECUTE $sql${}$sql$; END IF; END $do$; COMMIT",
        install_sql(install)
    );
    match client.batch_execute(&all).await {
        Ok(()) => Ok(()),
        Err(error) => {
            let _ = client.batch_execute("ROLLBACK").await;
            Err(match failed(error) {
                error if error.kind() == ErrorKind::Denied => {
                    let text = "the user may not create the schema \"tenure\": let its owner run the statements of \
                                tenure_postgres::install_sql(), which `tenure schema postgres` prints";
                    Error::new(ErrorKind::Denied, text).with_source(error)
                }
                error => error,
            })
        }
    }
}

/// Adds a part to a schema that was made without it. Everything else works without, so a refusal is no error.
async fn add(client: &Client, part: &str) -> Result<()> {
    let all = format!("BEGIN; SELECT pg_advisory_xact_lock(1952804455); {part} COMMIT");
    let Err(error) = client.batch_execute(&all).await else { return Ok(()) };
    let _ = client.batch_execute("ROLLBACK").await;
    match failed(error) {
        error if error.kind() == ErrorKind::Denied => Ok(()),
        error => Err(error),
    }
}

/// Whether this release can work with the database.
pub(crate) async fn look(client: &Client) -> Result<Installed> {
    let row = one_row(client, "SELECT version, logged, longest, standby FROM tenure.about()").await?;
    let read = || -> Option<(i32, bool, i64, bool)> {
        Some((row.try_get(0).ok()?, row.try_get(1).ok()?, row.try_get(2).ok()?, row.try_get(3).ok()?))
    };
    let (version, logged, longest, standby) = read().ok_or_else(odd)?;
    if version != VERSION {
        let help = if version > VERSION {
            "use a newer release of tenure-postgres"
        } else {
            "once its messages are done with, its owner runs DROP SCHEMA tenure CASCADE and the statements of \
             tenure_postgres::install_sql()"
        };
        return Err(misconfigured(format!(
            "the schema \"tenure\" of this database is of version {version}, this release works with version {VERSION}: {help}"
        )));
    }
    if standby {
        return Err(misconfigured("the server is a standby, and accepts no writes: name its primary"));
    }
    Ok(Installed { logged, longest: of_micros(longest) })
}

/// Asks without a prepared statement, which a pooler might not keep until it is used.
pub(crate) async fn one_row(client: &Client, question: &str) -> Result<Row> {
    let rows = client.query_typed(question, &[]).await.map_err(failed)?;
    rows.into_iter().next().ok_or_else(odd)
}
