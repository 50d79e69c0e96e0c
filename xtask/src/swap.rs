//! The swap: tests of code that takes locks, unchanged on SQLite, PostgreSQL, MariaDB, Redis and etcd by `TENURE_URL` alone. In
//! memory they run with all other tests.

use tenure_testkit::{
    EtcdCluster, EtcdOptions, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

use crate::command::{Failure, Outcome};
use crate::programs::{self, Program};
use crate::schedule::{Job, Load, Ran, Second, Unit};

/// Programs, and the module of the tests; none means all.
const TESTS: &[(&str, &[&str])] = &[("test it", &["application::"]), ("examples/swap_in_tests test box_office", &[])];

pub(crate) fn job(programs: &[Program]) -> Job<'_> {
    let work = |_: &[String]| Ran { failure: run(programs).err().map(|Failure(why)| why), ..Ran::default() };
    let (name, unit, second) = (String::from("swap"), Unit::Nothing, Second::Run);
    Job { name, load: Load::Light, unit, second, work: Box::new(work) }
}

fn run(programs: &[Program]) -> Outcome {
    let failed = |what: &'static str| move |error: std::io::Error| Failure(format!("no {what}: {error}"));
    let redis = RedisServer::start(RedisOptions::new()).map_err(failed("Redis"))?;
    let etcd = EtcdCluster::single(EtcdOptions::new()).map_err(failed("etcd"))?;
    let folder = tenure_testkit::TempDir::new("swap").map_err(failed("folder"))?;
    let file = format!("sqlite:{}", folder.path().join("locks.db").display());
    let postgres = PostgresServer::start(PostgresOptions::new()).map_err(failed("PostgreSQL"))?;
    let database = format!("{}?migrate=true", postgres.url("postgres"));
    let mariadb = MariaDbServer::start(MariaDbOptions::new()).and_then(|server| {
        server.create_database("app")?;
        Ok(server)
    });
    let mariadb = mariadb.map_err(failed("MariaDB"))?;
    let maria = format!("{}?migrate=true", mariadb.url("app"));
    for url in [file, database, maria, redis.url(), etcd.url()] {
        let store = url.split(':').next().unwrap_or_default();
        for (name, modules) in TESTS {
            let program = programs::find(programs, name)?;
            let step = format!("swap {store} {name}");
            let ran = program.run(&step, Load::Light, |command| {
                command.args(*modules).env("TENURE_URL", &url);
            });
            if let Some(why) = ran.failure {
                return Err(Failure(why));
            }
            if ran.counts.passed == 0 {
                return Err(Failure(format!("{step}: no test ran")));
            }
        }
    }
    Ok(())
}
