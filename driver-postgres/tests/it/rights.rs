//! The least rights that everything works with, and what those who lack them can do: nothing.

use std::time::Duration;

use crate::sql::{
    Answer, GRANTS, Listener, Request, Tables, code, guard, inspect, install, installed, session, session_at,
};
use tenure_core::driver::ForceReleased;
use tenure_core::{Client, ErrorKind};
use tenure_postgres::{PostgresDriver, census_sql};
use tenure_testkit::{PostgresOptions, PostgresServer};
use tokio_postgres::error::SqlState;

/// A call of each function of the schema, all arguments null.
async fn calls(server: &PostgresServer) -> Vec<(String, bool, String)> {
    let statement = "SELECT p.proname::text, p.prosecdef, format('SELECT tenure.%I(%s)', p.proname,
        (SELECT string_agg('NULL::' || format_type(t.oid, NULL), ', ' ORDER BY t.ord)
         FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS t(oid, ord)))
      FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace ORDER BY 1";
    let rows = session_at(&server.url("postgres")).await.query(statement, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

/// The schema's tables and sequences.
async fn tables(server: &PostgresServer) -> Vec<String> {
    let statement = "SELECT format('tenure.%I', relname) FROM pg_class
      WHERE relnamespace = 'tenure'::regnamespace AND relkind IN ('r', 'S', 'v', 'm', 'p')";
    let rows = session_at(&server.url("postgres")).await.query(statement, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn every_function_of_locks_works_with_the_documented_rights() {
    let server = installed(Tables::Unlogged);
    let app = session(&server).await;
    let mut listener = Listener::new(&server, 5).await;
    let first = Request::new("a", "first");
    let fence = first.granted(&app).await;
    assert!(first.renew(&app).await.is_some());
    guard(&app, b"a", fence).await.unwrap();
    app.execute("SELECT tenure.guard('a'::text, $1)", &[&fence]).await.unwrap();
    let waiter = Request::new("a", "waiter").waiting(5, true);
    assert_eq!(waiter.ask(&listener.session).await.unwrap(), Answer::Busy { ahead: 0 });
    assert_eq!(inspect(&app, b"a").await, (Some(fence), 1));
    assert!(first.release(&app).await);
    assert!(listener.heard().await.is_some_and(|reported| reported.starts_with("h waiter ")));
    waiter.abandon(&app).await;
    assert_eq!(waiter.ask(&app).await.unwrap(), Answer::Abandoned);
    let held = Request::new("a", "second").granted(&app).await;
    let forced: i32 = app.query_one("SELECT tenure.force_release('a'::bytea, $1, 0)", &[&held]).await.unwrap().get(0);
    assert_eq!(forced, 1);
    let about = app.query_one("SELECT version, longest FROM tenure.about()", &[]).await.unwrap();
    assert_eq!((about.get::<_, i32>(0), about.get::<_, i64>(1)), (1, 2_000_000));
}

#[tokio::test]
async fn the_driver_works_with_the_documented_rights() {
    let server = installed(Tables::Unlogged);
    let connect =
        || async { Client::new(PostgresDriver::connect(&server.url_for("app", None, "postgres")).await.unwrap()) };
    let (one, other) = (connect().await, connect().await);
    let held = one.lock("a").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    held.extend(Duration::from_secs(1)).await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.lock("a").ttl(Duration::from_secs(2));
        async move { lock.acquire_within(Duration::from_secs(10)).await }
    });
    while one.lock("a").inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let first = held.fence();
    held.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fence() > first);
    assert_eq!(one.lock("a").force_release_if(next.fence()).await.unwrap(), ForceReleased::Released);
    let kept = one.lock("b").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    let listed = other.held_locks("b").next().await.unwrap().unwrap();
    assert_eq!((listed.name.as_bytes(), listed.holder.fence), (&b"b"[..], Some(kept.fence())));
    let jobs = one.queue_of_bytes("jobs").unwrap();
    jobs.push(&b"work".to_vec()).await.unwrap();
    jobs.receive().await.unwrap().ack().await.unwrap();
}

/// Whoever lacks the right to a function is told so, and what to run.
#[tokio::test]
async fn missing_rights_are_named_with_the_statement_that_gives_them() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    install(&server, "postgres", Tables::Unlogged);
    server.create_user("app", "secret").unwrap();
    let url = server.url_for("app", None, "postgres");
    for missing in ["USAGE ON SCHEMA tenure", "EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure"] {
        server.sql("postgres", GRANTS).unwrap();
        PostgresDriver::connect(&url).await.unwrap();
        server.sql("postgres", &format!("REVOKE {missing} FROM app")).unwrap();
        let error = PostgresDriver::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{missing}: {error:#}");
        let text = error.to_string();
        assert!(text.contains("GRANT USAGE ON SCHEMA tenure") && text.contains("GRANT EXECUTE"), "{text}");
    }
}

/// A schema from before the list of held locks: the list alone is refused, with what to run, and migrating adds it.
#[tokio::test]
async fn a_schema_without_the_list_of_held_locks_works_and_gets_it_by_its_statements() {
    let server = installed(Tables::Unlogged);
    let url = server.url_for("app", None, "postgres");
    let migrated =
        async |url: &str| Client::new(PostgresDriver::connect(&format!("{url}?migrate=true")).await.unwrap());
    for by_hand in [true, false] {
        server.sql("postgres", "DROP FUNCTION tenure.held").unwrap();
        // Whoever may not add it connects all the same.
        let client = migrated(&url).await;
        let held = client.lock("a").ttl(Duration::from_secs(2)).acquire().await.unwrap();
        let error = client.held_locks("").next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("census_sql()"), "{error}");
        match by_hand {
            true => drop(server.script("postgres", census_sql()).unwrap()),
            false => drop(migrated(&server.url("postgres")).await),
        }
        let error = client.held_locks("").next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:#}");
        assert!(error.to_string().contains("GRANT EXECUTE"), "{error}");
        server.sql("postgres", GRANTS).unwrap();
        assert_eq!(client.held_locks("").next().await.unwrap().unwrap().name.as_bytes(), b"a");
        held.release().await.unwrap();
    }
}

/// A right that is taken away later is no contention.
#[tokio::test]
async fn a_right_that_is_lost_later_is_named_and_harms_no_lease() {
    let server = installed(Tables::Unlogged);
    let client = Client::new(PostgresDriver::connect(&server.url_for("app", None, "postgres")).await.unwrap());
    let held = client.lock("a").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    server.sql("postgres", "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure FROM app").unwrap();
    let error = client.lock("b").ttl(Duration::from_secs(2)).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:#}");
    server.sql("postgres", GRANTS).unwrap();
    held.extend(Duration::from_secs(2)).await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn nobody_else_may_call_a_function_or_touch_a_table() {
    let server = installed(Tables::Unlogged);
    server.create_user("stranger", "secret").unwrap();
    let (app, stranger) = (session(&server).await, session_at(&server.url_for("stranger", None, "postgres")).await);
    let (calls, tables) = (calls(&server).await, tables(&server).await);
    assert!(calls.len() > 30 && tables.len() > 10, "{} functions, {} tables", calls.len(), tables.len());
    for round in ["without", "with the schema alone"] {
        for (name, _, call) in &calls {
            let refused = stranger.simple_query(call).await.unwrap_err();
            assert_eq!(code(&refused), &SqlState::INSUFFICIENT_PRIVILEGE, "{round}: {name}");
        }
        server.sql("postgres", "GRANT USAGE ON SCHEMA tenure TO stranger").unwrap();
    }
    for table in &tables {
        for session in [&app, &stranger] {
            for statement in [
                format!("SELECT * FROM {table}"),
                format!("TRUNCATE {table}"),
                format!("DELETE FROM {table}"),
                format!("INSERT INTO {table} DEFAULT VALUES"),
                format!("DROP TABLE {table}"),
                format!("BEGIN; LOCK TABLE {table}"),
                format!("SELECT setval('{table}', 1)"),
            ] {
                let refused = session.simple_query(&statement).await.unwrap_err();
                session.simple_query("ROLLBACK").await.unwrap();
                // Statements for tables, said of sequences, and the other way round.
                let allowed =
                    [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::WRONG_OBJECT_TYPE, SqlState::FEATURE_NOT_SUPPORTED];
                assert!(allowed.contains(code(&refused)), "{statement}: {refused}");
            }
        }
    }
}

/// Parts of the functions run with the rights of their caller, who has none.
#[tokio::test]
async fn parts_of_functions_do_nothing_for_an_application() {
    let server = installed(Tables::Unlogged);
    let app = session(&server).await;
    let fence = Request::new("a", "first").granted(&app).await;
    for part in [
        "SELECT tenure.leave('a'::bytea, NULL, 'first')",
        "SELECT tenure.turn('a'::bytea, 0)",
        "SELECT tenure.queue_tell('jobs'::bytea)",
        "SELECT tenure.queue_fences(9)",
        "SELECT tenure.queue_bury(NULL, 0, NULL, 0)",
        "SELECT tenure.queue_free('jobs'::bytea, 'k'::bytea)",
    ] {
        let refused = app.simple_query(part).await.unwrap_err();
        assert_eq!(code(&refused), &SqlState::INSUFFICIENT_PRIVILEGE, "{part}");
    }
    assert_eq!(inspect(&app, b"a").await.0, Some(fence));
}

/// Names that functions of the owner look up are found in the system's schema first, and never in the caller's.
#[tokio::test]
async fn a_caller_cannot_put_its_own_functions_in_the_way() {
    let server = installed(Tables::Unlogged);
    server.sql("postgres", "CREATE SCHEMA evil AUTHORIZATION app").unwrap();
    let app = session(&server).await;
    let fence = Request::new("a", "before").granted(&app).await;
    let mut trap = String::from("SET search_path = evil, pg_temp, tenure, pg_catalog;");
    for (name, takes, gives) in [
        ("clock_timestamp", "", "timestamptz"),
        ("hashtext", "text", "integer"),
        ("encode", "bytea, text", "text"),
        ("convert_to", "text, name", "bytea"),
        ("pg_notify", "text, text", "void"),
        ("pg_advisory_xact_lock", "integer, integer", "void"),
        ("pg_try_advisory_xact_lock", "integer, integer", "boolean"),
        ("cardinality", "anyarray", "integer"),
        ("to_hex", "bigint", "text"),
    ] {
        trap += &format!(
            "CREATE FUNCTION evil.{name}({takes}) RETURNS {gives} LANGUAGE plpgsql AS \
             $$ BEGIN RAISE 'caught in evil.{name} as %', current_user; END $$;"
        );
    }
    trap += "CREATE FUNCTION evil.same(bytea, bytea) RETURNS boolean LANGUAGE plpgsql AS \
             $$ BEGIN RAISE 'caught in evil.= as %', current_user; END $$; \
             CREATE OPERATOR evil.= (FUNCTION = evil.same, LEFTARG = bytea, RIGHTARG = bytea); \
             CREATE TEMP TABLE lock (name bytea); CREATE TEMP TABLE waiter (name bytea); \
             CREATE TEMP TABLE message (number bigint); CREATE TEMP TABLE epoch (open_at bigint);";
    app.batch_execute(&trap).await.unwrap();
    let caught = app.simple_query("SELECT hashtext('x')").await.unwrap_err();
    assert!(caught.to_string().contains("db error"), "the trap is set: {caught}");
    let held = Request::new("a", "before");
    guard(&app, b"a", fence).await.unwrap();
    app.execute("SELECT tenure.guard('a'::text, $1)", &[&fence]).await.unwrap();
    assert!(held.renew(&app).await.is_some());
    assert!(held.release(&app).await);
    let next = Request::new("a", "after");
    next.granted(&app).await;
    next.abandon(&app).await;
    Request::new("new", "after").granted(&app).await;
    app.execute("SELECT tenure.push('jobs', 'x'::bytea, id => 'name', key => 'k')", &[]).await.unwrap();
}

/// Each function is either the caller's own affair, or of the owner with a search path that nobody else writes to.
#[tokio::test]
async fn functions_of_the_owner_have_a_fixed_search_path_and_no_public_right() {
    let server = installed(Tables::Unlogged);
    let statement = "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace
      AND (p.prosecdef AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)
        OR has_function_privilege('public', p.oid, 'EXECUTE'))";
    assert_eq!(server.sql("postgres", statement).unwrap(), "");
    // A function that switches ways of planning off makes its statements look dear enough to be compiled.
    let compiled = "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace
      AND array_to_string(p.proconfig, ' ') LIKE '%enable_%' AND NOT p.proconfig @> ARRAY['jit=off']";
    assert_eq!(server.sql("postgres", compiled).unwrap(), "");
    let owned = calls(&server).await.iter().filter(|(_, definer, _)| *definer).count();
    assert!(owned >= 20, "{owned} functions run with the rights of the owner");
}
