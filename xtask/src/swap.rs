//! The swap: tests of code that takes locks, unchanged on SQLite, PostgreSQL, Redis and etcd by `TENURE_URL` alone. In memory they run
//! with all other tests.

use tenure_testkit::{EtcdCluster, EtcdOptions, PostgresOptions, PostgresServer, RedisOptions, RedisServer};

use crate::command::{Failure, Outcome, cargo};
use crate::steps::{self, Counts};

/// With all features of everything, so that nothing is built again for it.
const TESTS: &[&str] =
    &["test", "--workspace", "--all-features", "--no-fail-fast", "--test", "application", "--test", "box_office"];

pub(crate) fn run() -> Outcome {
    let redis = RedisServer::start(RedisOptions::new()).map_err(|error| Failure(format!("no Redis: {error}")))?;
    let etcd = EtcdCluster::single(EtcdOptions::new()).map_err(|error| Failure(format!("no etcd: {error}")))?;
    let folder = tenure_testkit::TempDir::new("swap").map_err(|error| Failure(format!("no folder: {error}")))?;
    let file = format!("sqlite:{}", folder.path().join("locks.db").display());
    let postgres = PostgresServer::start(PostgresOptions::new());
    let postgres = postgres.map_err(|error| Failure(format!("no PostgreSQL: {error}")))?;
    let database = format!("{}?migrate=true", postgres.url("postgres"));
    for url in [file, database, redis.url(), etcd.url()] {
        let name = format!("the application on {url}");
        let ended = steps::run_as(&name, cargo(TESTS).env("TENURE_URL", url), |out| Counts::of(out).to_string())?;
        if Counts::of(&ended.stdout).passed == 0 {
            return Err(Failure(format!("{name}: no test ran")));
        }
    }
    Ok(())
}
