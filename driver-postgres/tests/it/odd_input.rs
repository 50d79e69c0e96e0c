//! Names of any bytes, databases and users with settings of their own, and what is said of a wrong place.

use std::time::{Duration, Instant};

use crate::sql::{
    Answer, GRANTS, LONGEST, Listener, Request, Tables, code, guard, inspect, install, installed, micros, session,
    session_at,
};
use tenure_core::{Client, ErrorKind};
use tenure_postgres::PostgresDriver;
use tenure_testkit::{PostgresOptions, PostgresServer};
use tokio_postgres::error::SqlState;

/// Names that would be something else if they were text, a pattern, or part of a statement.
fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "a",
        "A",
        "\0",
        "a\0",
        "a\0b",
        " ",
        "a ",
        "'",
        "\"",
        "\\",
        "\\x61",
        "61",
        "%",
        "_",
        "$1",
        "{}",
        "NULL",
        "'; DROP TABLE tenure.lock; --",
        "$$",
        "é",
        "e\u{301}",
        "\u{202e}",
        "\u{1f512}",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.extend([vec![0xff], vec![0xc3], vec![0x80; 3], (0..=255).collect(), (0..=255).rev().collect()]);
    names.extend([vec![0; 512], vec![0xff; 512], vec![b'a'; 512], vec![b'a'; 511]]);
    names
}

#[tokio::test]
async fn names_of_any_bytes_are_names_of_their_own() {
    let server = installed(Tables::Unlogged);
    let app = session(&server).await;
    let mut fences = Vec::new();
    for (at, name) in names().iter().enumerate() {
        let request = Request::new(name, &format!("holder {at}"));
        fences.push(request.granted(&app).await);
        assert_eq!(Request::new(name, "other").ask(&app).await.unwrap(), Answer::Busy { ahead: -1 }, "{name:?}");
    }
    let mut listener = Listener::new(&server, 3).await;
    for (at, name) in names().iter().enumerate() {
        assert_eq!(inspect(&app, name).await, (Some(fences[at]), 0), "{name:?}");
        guard(&app, name, fences[at]).await.unwrap();
        let waiter = Request::new(name, &format!("waiter-{at}")).waiting(3, true);
        assert_eq!(waiter.ask(&app).await.unwrap(), Answer::Busy { ahead: 0 });
        let held = Request::new(name, &format!("holder {at}"));
        assert!(held.renew(&app).await.is_some() && held.release(&app).await, "{name:?}");
        let reported = listener.heard().await.unwrap();
        assert!(reported.starts_with(&format!("h waiter-{at} ")), "{name:?}: {reported}");
    }
}

#[tokio::test]
async fn the_driver_takes_every_name_and_every_label() {
    let server = installed(Tables::Unlogged);
    let client = Client::new(PostgresDriver::connect(&server.url_for("app", None, "postgres")).await.unwrap());
    for name in names() {
        let lock = client.lock(&name).ttl(LONGEST);
        let held = lock.try_acquire().await.unwrap().unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none(), "{name:?}");
        held.release().await.unwrap();
    }
    for label in ["", "'", "a\0b", "\u{1f512}", "\\x00", "ключ", "line\nline"] {
        let lock = client.lock("labelled").ttl(LONGEST).label(label);
        let held = lock.try_acquire().await.unwrap_or_else(|error| panic!("{label:?}: {error:#}")).unwrap();
        let seen = client.lock("labelled").inspect().await.unwrap().holder.unwrap().label.unwrap();
        assert_eq!(seen.as_str(), label);
        held.release().await.unwrap();
    }
}

/// A name's own locks are known by 64 bits of its hash: names whose shorter hashes are one share nothing.
#[tokio::test]
async fn names_of_one_short_hash_do_not_wait_for_each_other() {
    let server = installed(Tables::Unlogged);
    let statement = "SELECT min(n) || ' ' || max(n) FROM generate_series(1, 300000) n
      GROUP BY hashtext(encode(convert_to('name ' || n, 'UTF8'), 'hex')) HAVING count(*) > 1 LIMIT 1";
    let pair = server.sql("postgres", statement).unwrap();
    let (one, two) = pair.split_once(' ').map(|(a, b)| (format!("name {a}"), format!("name {b}"))).unwrap();
    let (first, second) = (session(&server).await, session(&server).await);
    let (held_one, held_two) =
        (Request::new(&one, "first"), Request::new(&two, "second").ttl(Duration::from_millis(300)));
    let fence = held_one.granted(&first).await;
    held_two.granted(&second).await;
    assert_eq!(inspect(&first, one.as_bytes()).await.0, Some(fence));
    first.batch_execute("BEGIN").await.unwrap();
    guard(&first, one.as_bytes(), fence).await.unwrap();
    Request::new(&one, "abandoned").abandon(&first).await; // keeps the name's own lock until the commit
    tokio::time::sleep(Duration::from_millis(400)).await;
    // The lease of the other ended, and somebody takes it over beside that transaction.
    Request::new(&two, "third").granted(&second).await;
    first.batch_execute("COMMIT").await.unwrap();
    assert!(held_one.release(&first).await);
    assert_eq!(inspect(&second, one.as_bytes()).await.0, None);
    assert!(inspect(&second, two.as_bytes()).await.0.is_some());
}

/// Bytes are not text: no encoding of the database is asked about them.
#[tokio::test]
async fn databases_of_other_encodings_take_the_same_names_and_labels() {
    let server = installed(Tables::Unlogged);
    for encoding in ["LATIN1", "SQL_ASCII", "EUC_JP"] {
        let database = encoding.to_lowercase();
        let create = format!("CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        server.sql("postgres", &create).unwrap();
        install(&server, &database, Tables::Unlogged);
        server.sql(&database, GRANTS).unwrap();
        let app = session_at(&server.url_for("app", None, &database)).await;
        for (at, name) in names().iter().enumerate() {
            let fence = Request::new(name, &format!("holder {at}")).granted(&app).await;
            assert_eq!(inspect(&app, name).await.0, Some(fence), "{encoding}: {name:?}");
        }
        let client = Client::new(PostgresDriver::connect(&server.url_for("app", None, &database)).await.unwrap());
        let lock = client.lock("labelled").ttl(LONGEST).label("\u{1f512} ключ");
        let held = lock.try_acquire().await.unwrap_or_else(|error| panic!("{encoding}: {error:#}")).unwrap();
        assert_eq!(
            client.lock("labelled").inspect().await.unwrap().holder.unwrap().label.unwrap().as_str(),
            "\u{1f512} ключ"
        );
        held.release().await.unwrap();
    }
}

/// What an administrator set for the user changes nothing.
#[tokio::test]
async fn settings_of_the_user_change_nothing() {
    let server = installed(Tables::Unlogged);
    for setting in [
        "timezone = 'Pacific/Kiritimati'",
        "datestyle = 'German, DMY'",
        "intervalstyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "extra_float_digits = -15",
        "standard_conforming_strings = off",
        "transform_null_equals = on",
        "search_path = ''",
        "enable_indexscan = off",
        "enable_seqscan = off",
        "client_min_messages = 'debug1'",
        "row_security = off",
    ] {
        server.sql("postgres", &format!("ALTER USER app SET {setting}")).unwrap();
        let app = session(&server).await;
        let held = Request::new("a", "first");
        let fence = held.granted(&app).await;
        assert_eq!(Request::new("a", "other").ask(&app).await.unwrap(), Answer::Busy { ahead: -1 }, "{setting}");
        assert!(held.renew(&app).await.is_some_and(|left| left > 59_000_000), "{setting}");
        guard(&app, b"a", fence).await.unwrap();
        assert!(held.release(&app).await, "{setting}");
        server.sql("postgres", "ALTER USER app RESET ALL").unwrap();
    }
}

/// Under some isolation levels a function sees what was before it waited: what was abandoned is not granted all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_request_is_not_granted_under_any_isolation() {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let server = installed(Tables::Unlogged);
        let gives_up = session(&server).await;
        server.sql("postgres", &format!("ALTER USER app SET default_transaction_isolation = '{isolation}'")).unwrap();
        let asks = session(&server).await;
        Request::new("a", "before").granted(&gives_up).await;
        assert!(Request::new("a", "before").release(&gives_up).await);
        let request = Request::new("a", "late");
        gives_up.batch_execute("BEGIN").await.unwrap();
        request.abandon(&gives_up).await;
        let late = tokio::spawn(async move { request.ask(&asks).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        gives_up.batch_execute("COMMIT").await.unwrap();
        match late.await.unwrap() {
            Ok(answer) => assert_eq!((isolation, answer), ("read committed", Answer::Abandoned)),
            Err(error) => assert_eq!(code(&error).code(), "TN002", "{isolation}"),
        }
    }
}

/// The row of a name tells whether some of its requests were abandoned, and may be younger than they are.
#[tokio::test]
async fn an_abandoned_request_is_refused_whenever_the_row_of_its_name_was_made() {
    let server = installed(Tables::Unlogged);
    let app = session(&server).await;
    let (before, after, other) = (Request::new("a", "before"), Request::new("a", "after"), Request::new("a", "other"));
    before.abandon(&app).await;
    for late in [&before, &after] {
        other.granted(&app).await;
        assert_eq!(late.ask(&app).await.unwrap(), Answer::Busy { ahead: -1 });
        assert!(other.release(&app).await);
        after.abandon(&app).await;
        assert_eq!(late.ask(&app).await.unwrap(), Answer::Abandoned, "{late:?}");
        assert_eq!(late.clone().waiting(3, true).ask(&app).await.unwrap(), Answer::Abandoned, "{late:?}");
    }
    // A name that was swept while its tombstones are there.
    server.sql("postgres", "DELETE FROM tenure.lock").unwrap();
    other.granted(&app).await;
    assert!(other.release(&app).await);
    assert_eq!(before.ask(&app).await.unwrap(), Answer::Abandoned);
    assert!(inspect(&app, b"a").await.0.is_none());
}

#[tokio::test]
async fn a_default_isolation_that_cannot_be_worked_with_is_named() {
    let server = installed(Tables::Unlogged);
    server.sql("postgres", "ALTER USER app SET default_transaction_isolation = 'serializable'").unwrap();
    let client = Client::new(PostgresDriver::connect(&server.url_for("app", None, "postgres")).await.unwrap());
    let error = client.lock("a").ttl(LONGEST).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("SET default_transaction_isolation = 'read committed'"), "{error}");
}

#[tokio::test]
async fn floors_and_spans_at_their_ends() {
    let server = installed(Tables::Unlogged);
    let app = session(&server).await;
    let most = (1_i64 << 53) - 1;
    let far = Request { floor: most - 100, ..Request::new("floor", "a") };
    assert_eq!(far.granted(&app).await, most - 99);
    assert!(far.release(&app).await);
    assert!(Request::new("floor", "b").granted(&app).await > most - 92, "a floor is never fallen below");
    let long = Request::new("long", "a").ttl(Duration::from_secs(24 * 86_400));
    long.granted(&app).await;
    assert!(long.renew(&app).await.is_some_and(|left| left > micros(Duration::from_secs(24 * 86_400 - 5))));
}

#[tokio::test]
async fn a_wrong_place_is_named() {
    let server = PostgresServer::start(PostgresOptions::new().password("right")).unwrap();
    install(&server, "postgres", Tables::Unlogged);
    server.create_user("app", "secret").unwrap();
    server.sql("postgres", GRANTS).unwrap();
    server.create_database("empty").unwrap();
    let refused = async |user: &str, password: Option<&str>, database: &str| {
        let error = PostgresDriver::connect(&server.url_for(user, password, database)).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains("secret") && !text.contains("wr0ng"), "the text has a password: {text}");
        (error.kind(), error.to_string())
    };
    PostgresDriver::connect(&server.url_for("app", Some("secret"), "postgres")).await.unwrap();
    assert_eq!(refused("app", Some("wr0ng"), "postgres").await.0, ErrorKind::Denied);
    assert_eq!(refused("nobody", Some("secret"), "postgres").await.0, ErrorKind::Denied);
    let (kind, text) = refused("app", None, "postgres").await;
    assert!(kind == ErrorKind::Denied && text.contains("password"), "{kind:?} {text}");
    let (kind, text) = refused("app", Some("secret"), "nowhere").await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("database"), "{kind:?} {text}");
    let (kind, text) = refused("app", Some("secret"), "empty").await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("install_sql"), "{kind:?} {text}");
    // Neither is made better by migrating: what is named has to help.
    for (version, help) in [(0, "DROP SCHEMA tenure CASCADE"), (2, "newer release of tenure-postgres")] {
        server.sql("postgres", &format!("UPDATE tenure.setting SET version = {version}")).unwrap();
        for (user, password) in [("app", "secret"), ("postgres", "right")] {
            let url = format!("{}?migrate=true", server.url_for(user, Some(password), "postgres"));
            let error = PostgresDriver::connect(&url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
            let text = error.to_string();
            assert!(text.contains(&format!("version {version}")) && text.contains(help), "{text}");
        }
    }
    server.sql("postgres", "DROP SCHEMA tenure CASCADE").unwrap();
    let url = format!("{}?migrate=true", server.url_for("postgres", Some("right"), "postgres"));
    PostgresDriver::connect(&url).await.unwrap();
}

/// An application that may not create schemas is told who has to do what; nothing is left half-made.
#[tokio::test]
async fn migrating_without_the_right_to_is_refused() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    server.create_user("app", "secret").unwrap();
    let url = format!("{}?migrate=true", server.url_for("app", None, "postgres"));
    let error = PostgresDriver::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:#}");
    assert!(error.to_string().contains("install_sql"), "{error}");
    assert_eq!(server.sql("postgres", "SELECT to_regnamespace('tenure') IS NULL").unwrap(), "t");
    server.sql("postgres", "GRANT CREATE ON DATABASE postgres TO app").unwrap();
    let together: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { PostgresDriver::connect(&url).await })
        })
        .collect();
    for connected in together {
        connected.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_standby_is_refused_by_name() {
    let primary = installed(Tables::Unlogged);
    let standby = primary.standby().unwrap();
    let error = PostgresDriver::connect(&standby.url_for("app", None, "postgres")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("standby"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_carries_requests_and_notifications() {
    let server = installed(Tables::Unlogged);
    let url = format!("postgres://app@/postgres?host={}&port={}", server.socket_dir().display(), server.port());
    let client = async || Client::new(PostgresDriver::connect(&url).await.unwrap());
    let (lock, other) = (client().await.lock("a").ttl(LONGEST), client().await.lock("a").ttl(LONGEST));
    let held = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { other.acquire_within(LONGEST * 5).await });
    while lock.inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let error = PostgresDriver::connect("postgres://app@/postgres?host=/nowhere").await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("/nowhere/.s.PGSQL.5432"),
        "{error:#}"
    );
}

#[tokio::test]
async fn nothing_listens_there() {
    let mut server = installed(Tables::Unlogged);
    let url = server.url_for("app", None, "postgres");
    server.kill().unwrap();
    let start = Instant::now();
    let error = PostgresDriver::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

/// A name longer than any that the core lets through is refused by the database, and nothing is stored.
#[tokio::test]
async fn a_value_that_no_driver_sends_is_refused_and_stores_nothing() {
    let server = installed(Tables::Unlogged);
    let app = session(&server).await;
    // Noise: what can be compressed may be longer.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    })
    .take(20_000)
    .collect();
    let refused = Request::new(noise, "a").ask(&app).await.unwrap_err();
    assert_eq!(code(&refused), &SqlState::PROGRAM_LIMIT_EXCEEDED);
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM tenure.lock").unwrap(), "0");
}
