//! What the doctor says about servers that are not as they should be, one by one.

use std::time::Duration;

use crate::common::start;
use tenure_core::Client;
use tenure_core::driver::{Concern, Topic};
use tenure_postgres::{Install, PostgresDriver, install_sql};
use tenure_testkit::{PgBouncer, PostgresOptions, PostgresServer};

/// The concern about a topic whose finding has these words.
async fn concern(url: &str, topic: Topic, words: &str) -> Concern {
    let client = Client::new(PostgresDriver::connect(url).await.unwrap());
    let checkup = client.doctor().await.unwrap();
    let found = checkup.findings().iter().find(|finding| finding.topic == topic && finding.seen.contains(words));
    found.unwrap_or_else(|| panic!("nothing about {topic:?} with {words:?}: {checkup:#?}")).concern
}

fn logged(options: PostgresOptions) -> PostgresServer {
    let server = PostgresServer::start(options).unwrap();
    let install = Install { logged: true, longest_ttl: Duration::from_secs(60) };
    server.script("postgres", &install_sql(install)).unwrap();
    server
}

#[tokio::test]
async fn a_server_that_is_well_is_of_no_concern() {
    let server = start(PostgresOptions::new()).unwrap();
    let client = Client::new(PostgresDriver::connect(&server.url("postgres")).await.unwrap());
    let checkup = client.doctor().await.unwrap();
    for finding in checkup.findings() {
        assert_eq!(finding.concern, Concern::Fine, "{finding:?}");
    }
    assert!(checkup.findings().len() >= 9, "{checkup:?}");
}

#[tokio::test]
async fn a_server_that_flushes_nothing_is_a_danger() {
    let server = start(PostgresOptions::new().setting("fsync", "off")).unwrap();
    assert_eq!(concern(&server.url("postgres"), Topic::Persistence, "fsync is off").await, Concern::Danger);
}

/// To lose the last grants of unlogged tables is what these do anyway.
#[tokio::test]
async fn commits_that_are_not_flushed_endanger_logged_locks_alone() {
    let options = || PostgresOptions::new().setting("synchronous_commit", "off");
    for (server, expected) in [(logged(options()), Concern::Danger), (start(options()).unwrap(), Concern::Fine)] {
        let words = "synchronous_commit is off";
        assert_eq!(concern(&server.url("postgres"), Topic::Persistence, words).await, expected);
    }
}

#[tokio::test]
async fn standbys_are_named_where_locks_are_logged() {
    let server = logged(PostgresOptions::new());
    assert_eq!(concern(&server.url("postgres"), Topic::Replicas, "0 standbys").await, Concern::Fine);
    let standby = server.standby().unwrap();
    server.wait_for(&standby).unwrap();
    assert_eq!(concern(&server.url("postgres"), Topic::Replicas, "1 standbys").await, Concern::Note);
}

/// The driver was connected when the server still took writes, as after a failover and back.
#[tokio::test]
async fn a_server_that_has_become_a_standby_is_a_danger() {
    let mut server = start(PostgresOptions::new()).unwrap();
    let client = Client::new(PostgresDriver::connect(&server.url("postgres")).await.unwrap());
    server.shut_down().unwrap();
    std::fs::write(server.data().join("standby.signal"), "").unwrap();
    server.restart().unwrap();
    let checkup = loop {
        match client.doctor().await {
            Ok(checkup) => break checkup,
            Err(error) => assert!(error.is_transient(), "{error:#}"), // of the connection before
        }
    };
    let found = checkup.findings().iter().find(|finding| finding.seen == "the server is a standby").unwrap();
    assert_eq!(found.concern, Concern::Danger, "{checkup:?}");
}

/// The clock of the server goes on by two minutes, which makes the transaction as old.
#[tokio::test]
async fn an_old_idle_transaction_and_a_clock_that_is_wrong_are_noted() {
    let server = start(PostgresOptions::new().movable_clock()).unwrap();
    let url = server.url("postgres");
    let (idle, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    idle.batch_execute("BEGIN; SELECT 1").await.unwrap();
    assert_eq!(concern(&url, Topic::Storage, "idle transaction").await, Concern::Fine);
    assert_eq!(concern(&url, Topic::Clock, "clock").await, Concern::Fine);
    server.set_clock_offset(120_000_000).unwrap();
    assert_eq!(concern(&url, Topic::Storage, "idle transaction").await, Concern::Note);
    assert_eq!(concern(&url, Topic::Clock, "+1").await, Concern::Note);
}

/// An old snapshot keeps the dead rows of everybody.
#[tokio::test]
async fn rows_that_nobody_cleans_up_are_noted() {
    let server = start(PostgresOptions::new().setting("autovacuum", "off")).unwrap();
    let url = server.url("postgres");
    assert_eq!(concern(&url, Topic::Storage, "dead rows").await, Concern::Fine);
    let fill = "SELECT count(tenure.push('jobs', 'x')) FROM generate_series(1, 30000); DELETE FROM tenure.message";
    server.script("postgres", fill).unwrap();
    let counted = || -> Option<()> {
        let dead = server.sql("postgres", "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'message'");
        (dead.unwrap().parse::<u64>().unwrap() >= 30_000).then_some(())
    };
    tenure_testkit::eventually("the dead rows to be counted", counted).unwrap();
    assert_eq!(concern(&url, Topic::Storage, "dead rows").await, Concern::Note);
}

#[tokio::test]
async fn a_pooler_is_noted_unless_statements_are_not_prepared() {
    let server = start(PostgresOptions::new()).unwrap();
    // One that gives the sessions in turn.
    let pooler = PgBouncer::start_with(&server, &[], &[("server_round_robin", "1")]).unwrap();
    let url = format!("{}?listen=127.0.0.1:{}", pooler.url("postgres"), server.port());
    // It opens as many as are in use at once.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| pooler.sql("postgres", "SELECT pg_sleep(1)").unwrap());
        }
    });
    assert_eq!(concern(&url, Topic::Reach, "pooler").await, Concern::Note);
    assert_eq!(concern(&format!("{url}&prepare=false"), Topic::Reach, "pooler").await, Concern::Fine);
}
