//! The kit's own promises about database servers.

use std::path::Path;
use std::process::{Command, Stdio};

use tenure_testkit::{MariaDbOptions, MariaDbServer, PgBouncer, PostgresOptions, PostgresServer, eventually};

/// Whether a process is there and no mere zombie.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['R', 'S', 'D', 'T']))
}

/// The processes whose parent is `pid`.
fn workers(pid: u32) -> Vec<u32> {
    let parent = |id: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent(*id) == Some(pid)).collect()
}

/// A `psql` that says nothing.
fn psql(statement: &str, url: &str) -> Command {
    let mut command = Command::new("psql");
    command.args(["-X", "-w", "-c", statement, url]).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Seconds that a server's clock is ahead of this process's.
fn ahead(now_at_server: &str) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now_at_server.parse::<i64>().unwrap() - i64::try_from(now.as_secs()).unwrap()
}

#[test]
fn postgres_keeps_its_place_and_committed_rows_over_a_kill_but_not_unlogged_ones() {
    let mut server = PostgresServer::start(PostgresOptions::new()).unwrap();
    server.create_database("shop").unwrap();
    server.script("shop", "CREATE TABLE a (n int);\nCREATE UNLOGGED TABLE b (n int);").unwrap();
    server.sql("shop", "INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)").unwrap();
    let (port, pid) = (server.port(), server.pid().unwrap());
    let all: Vec<_> = workers(pid).into_iter().chain([pid]).collect();
    assert!(all.len() > 1, "{all:?}");
    server.kill().unwrap();
    assert!(!all.iter().any(|pid| lives(*pid)), "all of its processes are gone");
    assert!(server.sql("shop", "SELECT 1").is_err());
    server.restart().unwrap();
    assert_eq!(server.port(), port);
    assert_eq!(server.sql("shop", "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)").unwrap(), "1|0");
}

#[test]
fn postgres_asks_for_passwords_and_takes_settings() {
    let options = PostgresOptions::new().password("it's secret").setting("work_mem", "5MB");
    let server = PostgresServer::start(options).unwrap();
    server.create_user("app", "other").unwrap();
    assert_eq!(server.sql("postgres", "SHOW work_mem").unwrap(), "5MB");
    for promise in ["fsync", "full_page_writes", "synchronous_commit"] {
        assert_eq!(server.sql("postgres", &format!("SHOW {promise}")).unwrap(), "on", "{promise}");
    }
    let sign_in = |password: &str| {
        let url = server.url_for("app", None, "postgres");
        psql("SELECT 1", &url).env("PGPASSWORD", password).status().unwrap().success()
    };
    assert!(sign_in("other"));
    assert!(!sign_in("wrong"));
}

#[test]
fn a_paused_postgres_answers_only_when_it_continues() {
    let mut server = PostgresServer::start(PostgresOptions::new()).unwrap();
    server.pause().unwrap();
    let mut asked = psql("SELECT 1", &server.url("postgres")).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(asked.try_wait().unwrap(), None);
    server.resume().unwrap();
    assert!(asked.wait().unwrap().success());
}

#[test]
fn a_standby_follows_and_can_be_promoted() {
    let mut primary = PostgresServer::start(PostgresOptions::new()).unwrap();
    primary.sql("postgres", "CREATE TABLE a (n int); INSERT INTO a VALUES (1)").unwrap();
    let standby = primary.standby().unwrap();
    primary.sql("postgres", "INSERT INTO a VALUES (2)").unwrap();
    primary.wait_for(&standby).unwrap();
    assert_eq!(standby.sql("postgres", "SELECT count(*), pg_is_in_recovery() FROM a").unwrap(), "2|t");
    let refused = standby.sql("postgres", "INSERT INTO a VALUES (3)").unwrap_err().to_string();
    assert!(refused.contains("read-only"), "{refused}");
    primary.kill().unwrap();
    standby.promote().unwrap();
    standby.sql("postgres", "INSERT INTO a VALUES (3)").unwrap();
}

#[test]
fn connections_to_postgres_are_terminated_by_name() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let url = format!("{}?application_name=mine-1", server.url("postgres"));
    let mut sleeper = psql("SELECT pg_sleep(60)", &url).spawn().unwrap();
    let cut = eventually("the connection to be there", || Some(server.terminate("mine").unwrap()).filter(|n| *n > 0));
    assert_eq!(cut.unwrap(), 1);
    assert!(!sleeper.wait().unwrap().success());
    assert_eq!(server.terminate("mine").unwrap(), 0);
}

#[test]
fn the_clock_of_postgres_moves() {
    let server = PostgresServer::start(PostgresOptions::new().movable_clock()).unwrap();
    let behind = || ahead(&server.sql("postgres", "SELECT floor(extract(epoch FROM clock_timestamp()))").unwrap());
    assert!(behind().abs() < 60, "{}", behind());
    server.set_clock_offset(-3_600_000_000).unwrap();
    assert!((behind() + 3600).abs() < 60, "{}", behind());
}

#[test]
fn a_postgres_that_is_dropped_leaves_nothing() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let (pid, dir) = (server.pid().unwrap(), server.socket_dir().to_owned());
    let all: Vec<_> = workers(pid).into_iter().chain([pid]).collect();
    drop(server);
    assert!(!all.iter().any(|pid| lives(*pid)));
    assert!(!dir.exists());
}

#[test]
fn pgbouncer_gives_a_connection_for_a_transaction() {
    let mut server = PostgresServer::start(PostgresOptions::new()).unwrap();
    server.create_database("shop").unwrap();
    server.create_user("app", "unused").unwrap();
    let mut pooler = PgBouncer::start_with(&server, &["app"], &[("default_pool_size", "1")]).unwrap();
    let url = pooler.url_for("app", "shop");
    let mut others: Vec<_> = (0..4).map(|_| psql("SELECT pg_sleep(0.1)", &url).spawn().unwrap()).collect();
    assert!(others.iter_mut().all(|psql| psql.wait().unwrap().success()));
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'";
    assert_eq!(server.sql("postgres", sessions).unwrap(), "1", "four clients shared a session");
    assert!(pooler.console("SHOW POOLS").unwrap().contains("transaction"));

    let (pid, port) = (pooler.pid().unwrap(), pooler.port());
    pooler.kill().unwrap();
    assert!(!lives(pid));
    assert!(pooler.sql("shop", "SELECT 1").is_err());
    pooler.restart().unwrap();
    assert_eq!((pooler.port(), pooler.sql("shop", "SELECT 7").unwrap().as_str()), (port, "7"));
    server.restart().unwrap();
    eventually("the pooler to reach the server again", || pooler.sql("shop", "SELECT 1").ok()).unwrap();
}

#[test]
fn mariadb_keeps_its_place_and_committed_rows_over_a_kill() {
    let options = MariaDbOptions::new().movable_clock().setting("innodb-lock-wait-timeout", "7");
    let mut server = MariaDbServer::start(options).unwrap();
    assert_eq!(server.sql("", "SELECT @@innodb_lock_wait_timeout, @@innodb_flush_log_at_trx_commit").unwrap(), "7\t1");
    server.create_database("shop").unwrap();
    server.create_user("app", "it's").unwrap();
    server.sql("shop", "CREATE TABLE a (n int); INSERT INTO a VALUES (1)").unwrap();
    server.script("shop", "DELIMITER //\nCREATE PROCEDURE p() BEGIN SELECT n FROM a; END//\n").unwrap();
    let (port, pid) = (server.port(), server.pid().unwrap());
    let tcp = |user: &str, password: &str| {
        let mut mariadb = Command::new("mariadb");
        mariadb.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port.to_string(), "-u", user, "-e", "SELECT 1"]);
        mariadb.env("MYSQL_PWD", password).output().unwrap().status.success()
    };
    assert!(tcp("root", "") && tcp("app", "it's") && !tcp("app", "wrong"));
    server.kill().unwrap();
    assert!(!lives(pid));
    server.restart().unwrap();
    assert_eq!((server.port(), server.sql("shop", "CALL p()").unwrap().as_str()), (port, "1"));
    let behind = || ahead(&server.sql("", "SELECT FLOOR(UNIX_TIMESTAMP(SYSDATE()))").unwrap());
    server.set_clock_offset(-3_600_000_000).unwrap();
    assert!((behind() + 3600).abs() < 60, "{}", behind());

    server.pause().unwrap();
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-u", "root", "-e", "SELECT 1", "-S"]).arg(server.socket());
    let mut asked = client.stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(asked.try_wait().unwrap(), None);
    server.resume().unwrap();
    assert!(asked.wait().unwrap().success());

    let (pid, socket) = (server.pid().unwrap(), server.socket());
    drop(server);
    assert!(!lives(pid) && !Path::new(&socket).exists());
}

#[test]
fn a_missing_server_is_named() {
    let none = PostgresServer::start(PostgresOptions::new().programs("/nowhere")).unwrap_err();
    assert_eq!(none.kind(), std::io::ErrorKind::NotFound);
    assert!(none.to_string().contains("initdb"), "{none}");
    let none = MariaDbServer::start(MariaDbOptions::new().program("/nowhere/mariadbd")).unwrap_err();
    assert_eq!(none.kind(), std::io::ErrorKind::NotFound);
    assert!(none.to_string().contains("mariadbd"), "{none}");
}
