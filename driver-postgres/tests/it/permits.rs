//! Semaphores and read-write locks through the driver: what the model of the functions cannot see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sql::{GRANTS, LONGEST, Tables, installed, micros, session, session_at};
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Begun, Busy, Family, ForceReleased, Grant, Handing, PermitChange, PermitHold,
    PermitRequest, Permits, Queueing, Released, Renewed, Share, Signal, Ttl, Watch,
};
use tenure_core::{ErrorKind, Label, LockName, OwnerToken, Result};
use tenure_postgres::{PostgresDriver, permits_sql};
use tenure_testkit::PostgresServer;

const FAMILY: Family = Family::Semaphore;
const PRESENCE: Duration = Duration::from_secs(20);

async fn backend(server: &PostgresServer) -> Backend {
    PostgresDriver::connect(&server.url_for("app", None, "postgres")).await.unwrap().into()
}

async fn driver(server: &PostgresServer) -> Arc<dyn Permits> {
    Arc::clone(backend(server).await.permits().unwrap())
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn ttl() -> Ttl {
    Ttl::new(LONGEST).unwrap()
}

fn hold(token: OwnerToken) -> PermitHold {
    PermitHold::new(FAMILY, name(), token)
}

const fn share(weight: u32) -> Share {
    Share { weight, capacity: 3 }
}

fn request(token: OwnerToken, weight: u32) -> PermitRequest {
    PermitRequest::new(FAMILY, share(weight), AcquireRequest::new(name(), token, ttl()))
}

fn waiting(token: OwnerToken, weight: u32, accepts: Handing) -> PermitRequest {
    let queue = Queueing::Join { presence: PRESENCE, accepts };
    let lock =
        AcquireRequest::new(name(), token, ttl()).with_queue(queue).with_label(Some(Label::new("waiter").unwrap()));
    PermitRequest::new(FAMILY, share(weight), lock)
}

fn granted(answer: Result<Acquisition>) -> Grant {
    match answer.unwrap() {
        Acquisition::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn busy(answer: Result<Acquisition>) -> Busy {
    match answer.unwrap() {
        Acquisition::Busy(busy) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

async fn signal(watch: &mut Watch) -> Signal {
    tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("a signal within ten seconds")
}

/// Waits for a hold to be handed over; the listening session may wake its waiters as it begins.
async fn handed(watch: &mut Watch) -> tenure_core::driver::Handed {
    loop {
        if let Signal::Handed(handed) = signal(watch).await {
            return handed;
        }
    }
}

#[tokio::test]
async fn two_clients_share_a_name_wait_in_line_and_are_notified() {
    let server = installed(Tables::Unlogged);
    let (one, other) = (driver(&server).await, driver(&server).await);
    let [first, heavy, light, late] = [(); 4].map(|()| OwnerToken::random());
    let grant = granted(one.acquire(&request(first, 2)).await);
    assert_eq!((grant.begun, grant.ttl), (Begun::Now, LONGEST));
    assert_eq!(granted(one.acquire(&request(first, 2)).await).begun, Begun::Earlier);
    let mut heavy_watch = other.watch(&hold(heavy)).await.unwrap();
    let mut light_watch = other.watch(&hold(light)).await.unwrap();
    let answer = busy(other.acquire(&waiting(heavy, 3, Handing::Direct)).await);
    assert_eq!(answer.position, Some(0));
    assert!(answer.recheck_after.is_some_and(|after| after <= LONGEST), "{answer:?}");
    assert_eq!(busy(other.acquire(&waiting(light, 1, Handing::Asked)).await).position, Some(1));
    assert_eq!(busy(other.acquire(&request(late, 1)).await).position, None, "it would overtake two waiters");
    let seen = one.inspect(FAMILY, &name(), 10).await.unwrap();
    assert_eq!((seen.used, seen.waiters, seen.holders.len()), (2, 2, 1));
    assert_eq!((seen.holders[0].share, seen.holders[0].holder.fence), (share(2), Some(grant.fence)));
    for other_name in [(Family::RwLock, name()), (FAMILY, LockName::new("b").unwrap())] {
        assert_eq!(one.inspect(other_name.0, &other_name.1, 10).await.unwrap().holders, []);
    }
    assert_eq!(one.release(&hold(first)).await.unwrap(), Released::Released);
    let given = handed(&mut heavy_watch).await;
    assert!(given.fence > grant.fence);
    let extended = granted(other.acquire(&waiting(heavy, 3, Handing::Direct)).await);
    assert_eq!((extended.fence, extended.begun, extended.ttl), (given.fence, Begun::Now, LONGEST));
    // Less at once: the light waiter is notified, and asks.
    let smaller = granted(other.resize(&PermitChange::new(hold(heavy), share(1), 1)).await);
    assert_eq!((smaller.fence, smaller.begun), (given.fence, Begun::Now));
    assert!(matches!(signal(&mut light_watch).await, Signal::Wake));
    granted(other.acquire(&waiting(light, 1, Handing::Asked)).await);
    // More when it fits, before all others, with a new fence.
    let change = PermitChange::new(hold(heavy), share(3), 2).with_presence(Some(PRESENCE));
    let mut heavy_watch = other.watch(&hold(heavy)).await.unwrap();
    assert_eq!(busy(other.resize(&change).await).position, Some(0));
    let change_of_another = PermitChange::new(hold(light), share(2), 1);
    assert_eq!(other.resize(&change_of_another).await.unwrap_err().kind(), ErrorKind::LimitReached);
    busy(one.acquire(&request(late, 1)).await);
    let seen = one.inspect(FAMILY, &name(), 1).await.unwrap();
    assert_eq!((seen.used, seen.holders.len()), (2, 1));
    let light_fence = one.inspect(FAMILY, &name(), 2).await.unwrap().holders[1].holder.fence.unwrap();
    assert_eq!(one.evict(FAMILY, &name(), light_fence).await.unwrap(), ForceReleased::Released);
    assert_eq!(one.evict(FAMILY, &name(), light_fence).await.unwrap(), ForceReleased::NotHeld);
    assert!(matches!(signal(&mut heavy_watch).await, Signal::Wake));
    let upgraded = granted(other.resize(&change).await);
    assert!(upgraded.fence > light_fence && upgraded.begun == Begun::Now);
    let late_change = PermitChange::new(hold(heavy), share(1), 1);
    assert_eq!(other.resize(&late_change).await.unwrap_err().kind(), ErrorKind::NotHeld);
    let renewed = other.renew(ttl(), &[hold(heavy), hold(light)]).await;
    assert!(matches!(renewed[0], Ok(Renewed::Extended { .. })), "{renewed:?}");
    assert!(matches!(renewed[1], Ok(Renewed::Lost)), "{renewed:?}");
    other.abandon(&hold(heavy)).await.unwrap();
    assert_eq!(other.acquire(&request(heavy, 1)).await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert_eq!(other.acquire(&request(late, 4)).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    granted(one.acquire(&request(late, 3)).await);
    // Neither the lock of the name nor a read-write lock is concerned.
    let rw =
        PermitRequest::new(Family::RwLock, Share::WRITER, AcquireRequest::new(name(), OwnerToken::random(), ttl()));
    granted(one.acquire(&rw).await);
    let lock = backend(&server).await.locks().inspect(&name()).await.unwrap();
    assert_eq!(lock.holder, None);
}

/// A renewal leaves out a hold whose row another transaction keeps locked, and renews the others.
#[tokio::test]
async fn a_row_that_is_kept_locked_delays_no_other_renewal() {
    let server = installed(Tables::Unlogged);
    let driver = driver(&server).await;
    let tokens = [(); 3].map(|()| OwnerToken::random());
    for token in &tokens[..2] {
        granted(driver.acquire(&request(*token, 1)).await);
    }
    let owner = session_at(&server.url("postgres")).await;
    let kept =
        format!("BEGIN; SELECT FROM tenure.permit_hold WHERE token = '{}' FOR UPDATE", tokens[0].expose().as_str());
    owner.batch_execute(&kept).await.unwrap();
    let renewed = driver.renew(ttl(), &tokens.map(hold)).await;
    assert!(matches!(&renewed[0], Err(error) if error.kind() == ErrorKind::Unavailable), "{renewed:?}");
    assert!(matches!(renewed[1], Ok(Renewed::Extended { .. })), "{renewed:?}");
    assert!(matches!(renewed[2], Ok(Renewed::Lost)), "{renewed:?}");
    owner.batch_execute("ROLLBACK").await.unwrap();
    let renewed = driver.renew(ttl(), &tokens[..1].iter().copied().map(hold).collect::<Vec<_>>()).await;
    assert!(matches!(renewed[0], Ok(Renewed::Extended { .. })), "{renewed:?}");
}

/// A holder may still believe in its lease: no name gets a grant until the longest lease has ended, of a lock or of permits.
#[tokio::test]
async fn a_killed_server_grants_no_permits_until_the_longest_lease_has_ended() {
    let mut server = installed(Tables::Unlogged);
    let token = OwnerToken::random();
    let before = granted(driver(&server).await.acquire(&request(token, 1)).await);
    server.kill().unwrap();
    server.restart().unwrap();
    let locks = backend(&server).await;
    let after = Arc::clone(locks.permits().unwrap());
    assert!(matches!(after.renew(ttl(), &[hold(token)]).await[0], Ok(Renewed::Lost)));
    assert_eq!(after.release(&hold(token)).await.unwrap(), Released::NotHeld);
    let asked = Instant::now();
    let next = loop {
        match after.acquire(&request(OwnerToken::random(), 1)).await {
            Ok(Acquisition::Granted(grant)) => break grant,
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(asked.elapsed() >= LONGEST - Duration::from_millis(50), "granted after {:?}", asked.elapsed());
    assert!(next.fence > before.fence);
    // The lock of another name needs no further wait.
    let lock = AcquireRequest::new(LockName::new("lock").unwrap(), OwnerToken::random(), ttl());
    assert!(matches!(locks.locks().acquire(&lock).await, Ok(Acquisition::Granted(_))));
}

#[tokio::test]
async fn holds_in_logged_tables_outlive_a_kill() {
    let mut server = installed(Tables::Logged);
    let token = OwnerToken::random();
    let before = granted(driver(&server).await.acquire(&request(token, 3)).await);
    server.kill().unwrap();
    server.restart().unwrap();
    let after = driver(&server).await;
    busy(after.acquire(&request(OwnerToken::random(), 1)).await);
    assert!(matches!(after.renew(ttl(), &[hold(token)]).await[0], Ok(Renewed::Extended { .. })));
    assert_eq!(after.release(&hold(token)).await.unwrap(), Released::Released);
    assert!(granted(after.acquire(&request(OwnerToken::random(), 1)).await).fence > before.fence);
}

/// A schema from before permits: permits alone are refused, with what to run, and migrating adds them.
#[tokio::test]
async fn a_schema_without_permits_works_and_gets_them_by_their_statements() {
    for (tables, by_hand) in [(Tables::Unlogged, true), (Tables::Logged, false)] {
        let server = installed(tables);
        let drop_all = "DO $$ DECLARE f record; BEGIN
            FOR f IN SELECT p.oid::regprocedure AS s FROM pg_proc p WHERE p.pronamespace = 'tenure'::regnamespace AND p.proname LIKE 'permit%'
            LOOP EXECUTE 'DROP FUNCTION ' || f.s; END LOOP;
          END $$; DROP TABLE tenure.permit, tenure.permit_hold, tenure.permit_waiter, tenure.permit_tombstone";
        server.sql("postgres", drop_all).unwrap();
        let url = format!("{}?migrate=true", server.url_for("app", None, "postgres"));
        // A user without the right to add them connects all the same.
        let backend = Backend::from(PostgresDriver::connect(&url).await.unwrap());
        let app = backend.permits().unwrap();
        let lock = AcquireRequest::new(name(), OwnerToken::random(), ttl());
        assert!(matches!(backend.locks().acquire(&lock).await, Ok(Acquisition::Granted(_))));
        let token = OwnerToken::random();
        let error = app.acquire(&request(token, 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("permits_sql()"), "{error}");
        assert_eq!(app.renew(ttl(), &[hold(token)]).await[0].as_ref().unwrap_err().kind(), ErrorKind::Misconfigured);
        match by_hand {
            // Twice: they may be run again.
            true => (0..2).for_each(|_| drop(server.script("postgres", permits_sql()).unwrap())),
            false => drop(PostgresDriver::connect(&format!("{}?migrate=true", server.url("postgres"))).await.unwrap()),
        }
        assert_eq!(app.acquire(&request(token, 1)).await.unwrap_err().kind(), ErrorKind::Denied);
        server.sql("postgres", GRANTS).unwrap();
        granted(app.acquire(&request(token, 1)).await);
        let kinds = "SELECT string_agg(relname || relpersistence::text, ' ' ORDER BY relname) FROM pg_class
          WHERE relnamespace = 'tenure'::regnamespace AND relkind = 'r' AND relname IN ('lock', 'permit', 'permit_hold', 'permit_waiter')";
        let of = if tables == Tables::Logged { "p" } else { "u" };
        let expected = format!("lock{of} permit{of} permit_hold{of} permit_waiteru");
        assert_eq!(server.sql("postgres", kinds).unwrap(), expected);
    }
}

/// Names that were idle for a day go, with what their holders left behind; others stay.
#[tokio::test]
async fn idle_names_are_removed_and_held_ones_stay() {
    let server = installed(Tables::Unlogged);
    let app = session(&server).await;
    let ask = async |name: &str, days: i64| {
        let statement = "SELECT * FROM tenure.permit_acquire($1, $2, 1, 3, 60000000, NULL, NULL, false, 0, 10, 10, 0)";
        let row = app.query_one(statement, &[&name.as_bytes(), &name]).await.unwrap();
        assert_eq!(row.get::<_, i32>("code"), 1);
        let day = micros(Duration::from_secs(86_400)) * days;
        server
            .sql("postgres", &format!("UPDATE tenure.permit SET fence = fence - {day} WHERE name = '{name}'"))
            .unwrap();
        day
    };
    for name in ["s idle", "s held"] {
        ask(name, 3).await;
    }
    let day = ask("s fresh", 0).await + micros(Duration::from_secs(86_400)) * 3;
    server
        .sql("postgres", &format!("UPDATE tenure.permit_hold SET until = until - {day} WHERE name = 's idle'"))
        .unwrap();
    ask("s new", 0).await;
    let names = "SELECT string_agg(convert_from(name, 'UTF8'), ',' ORDER BY name) FROM tenure.permit";
    assert_eq!(server.sql("postgres", names).unwrap(), "s fresh,s held,s new");
    let held = "SELECT string_agg(convert_from(name, 'UTF8'), ',' ORDER BY name) FROM tenure.permit_hold";
    assert_eq!(server.sql("postgres", held).unwrap(), "s fresh,s held,s new");
}
