//! The swap: tests of code that takes locks, unchanged on SQLite, PostgreSQL, MariaDB, Redis and etcd by `TENURE_URL` alone. In
//! memory they run with all other tests.

use tenure_testkit::{
    EtcdCluster, EtcdOptions, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use crate::command::{Failure, Outcome};
use crate::programs::{self, Program};

const TESTS: &[&str] = &["test application", "examples/swap_in_tests test box_office"];

pub(crate) fn run(programs: &[Program]) -> Outcome {
    let redis = RedisServer::start(RedisOptions::new()).map_err(|error| Failure(format!("no Redis: {error}")))?;
    let etcd = EtcdCluster::single(EtcdOptions::new()).map_err(|error| Failure(format!("no etcd: {error}")))?;
    let folder = tenure_testkit::TempDir::new("swap").map_err(|error| Failure(format!("no folder: {error}")))?;
    let file = format!("sqlite:{}", folder.path().join("locks.db").display());
    let postgres = PostgresServer::start(PostgresOptions::new());
    let postgres = postgres.map_err(|error| Failure(format!("no PostgreSQL: {error}")))?;
    let database = format!("{}?migrate=true", postgres.url("postgres"));
    let mariadb = MariaDbServer::start(MariaDbOptions::new()).and_then(|server| {
        server.create_database("app")?;
        Ok(server)
    });
    let mariadb = mariadb.map_err(|error| Failure(format!("no MariaDB: {error}")))?;
    let maria = format!("{}?migrate=true", mariadb.url("app"));
    for url in [file, database, maria, redis.url(), etcd.url()] {
        println!("the application on {url}");
        for name in TESTS {
            let counts = programs::find(programs, name)?.run(|command| command.env("TENURE_URL", &url))?;
            if counts.passed == 0 {
                return Err(Failure(format!("{name} on {url}: no test ran")));
            }
        }
    }
    Ok(())
}
