//! Tables that are locked, disks that are full, connections that are used up, deadlocks, restarts under load, very long queues.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::start;
use crate::sql::{Answer, GRANTS, LONGEST, Listener, Request, Tables, code, install, installed, session, session_at};
use tenure_core::driver::{AcquireRequest, Acquisition, DistributedLock, Hold, Renewed, Ttl};
use tenure_core::{Client, Error, ErrorKind, HoldState, LockName, OwnerId, OwnerToken};
use tenure_postgres::PostgresDriver;
use tenure_testkit::{PostgresOptions, PostgresServer, TcpProxy, TempDir, eventually};
use tokio_postgres::error::SqlState;

fn url(server: &PostgresServer) -> String {
    server.url_for("app", None, "postgres")
}

async fn client(url: &str) -> Client {
    Client::builder(PostgresDriver::connect(url).await.unwrap()).ttl(LONGEST).build().unwrap()
}

/// Asks until it succeeds: whatever stood in the way passes.
async fn within<T, F: Future<Output = Result<T, Error>>>(limit: Duration, mut ask: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        match ask().await {
            Ok(done) => return done,
            Err(error) => assert!(error.is_transient() && start.elapsed() < limit, "{error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What somebody does at a prompt and forgets: everybody is told of an outage that names it, and it passes with the transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_transaction_that_keeps_the_table_is_an_outage_that_is_named_and_passes() {
    let server = installed(Tables::Unlogged);
    let client = client(&url(&server)).await;
    let held = client.lock("a").acquire().await.unwrap();
    let owner = session_at(&server.url("postgres")).await;
    owner.batch_execute("BEGIN; LOCK TABLE tenure.lock IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let app = session(&server).await;
    let start = Instant::now();
    let refused = Request::new("b", "first").ask(&app).await.unwrap_err();
    assert_eq!(code(&refused), &SqlState::LOCK_NOT_AVAILABLE);
    assert!(start.elapsed() < Duration::from_secs(10), "a request waits for {:?}", start.elapsed());
    let error = client.lock("b").try_acquire().await.unwrap_err();
    assert!(error.is_transient(), "{error:#}");
    tokio::time::timeout(LONGEST * 2, held.lost())
        .await
        .expect("a holder that cannot renew learns of the loss in time");
    owner.batch_execute("ROLLBACK").await.unwrap();
    within(Duration::from_secs(10), || async { client.lock("a").try_acquire().await })
        .await
        .expect("it is free, since its lease has ended")
        .release()
        .await
        .unwrap();
}

/// Whoever sets this for a user or a database makes every session read-only, on a primary.
#[tokio::test]
async fn a_session_that_is_made_read_only_is_named() {
    let server = installed(Tables::Unlogged);
    server.sql("postgres", "ALTER USER app SET default_transaction_read_only = on").unwrap();
    let client = client(&url(&server)).await;
    let queue = client.queue_of_bytes("jobs").unwrap();
    for error in [client.lock("a").try_acquire().await.unwrap_err(), queue.push(&Vec::new()).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
        assert!(error.to_string().contains("default_transaction_read_only"), "{error}");
    }
    server.sql("postgres", "ALTER USER app RESET ALL").unwrap();
    server.terminate("tenure").unwrap();
    drop(within(Duration::from_secs(10), || async { client.lock("a").try_acquire().await }).await.expect("it is free"));
}

/// The primary was demoted while the client had its connections, and is promoted again.
#[tokio::test]
async fn a_server_that_becomes_a_standby_is_an_outage_that_is_named() {
    for tables in [Tables::Unlogged, Tables::Logged] {
        let mut server = installed(tables);
        let client = client(&url(&server)).await;
        let queue = client.queue_of_bytes("jobs").unwrap();
        drop(client.lock("a").acquire().await.unwrap());
        server.shut_down().unwrap();
        std::fs::write(server.data().join("standby.signal"), "").unwrap();
        server.restart().unwrap();
        // The connections from before end with the first requests.
        let start = Instant::now();
        loop {
            let errors =
                [client.lock("b").try_acquire().await.unwrap_err(), queue.push(&Vec::new()).await.unwrap_err()];
            let unavailable = |error: &Error| error.kind() == ErrorKind::Unavailable;
            if errors.iter().all(|error| unavailable(error) && error.to_string().contains("standby")) {
                break;
            }
            let passes = errors.iter().all(Error::is_transient) && start.elapsed() < Duration::from_secs(20);
            assert!(passes, "{tables:?}: {errors:#?}");
        }
        server.promote().unwrap();
        within(Duration::from_secs(20), || async { queue.push(&b"again".to_vec()).await }).await;
        drop(within(LONGEST * 5, || async { client.lock("b").try_acquire().await }).await.expect("it is free"));
    }
}

/// After a failover the address leads to another server, and sessions at the old one stay open. Requests and wake-ups move.
#[tokio::test]
async fn a_demoted_server_is_left_for_the_new_primary() {
    let (old, new) = (installed(Tables::Unlogged), installed(Tables::Unlogged));
    let proxy = TcpProxy::start(old.port()).unwrap();
    let through = format!("{}?connections=1", old.url_through(proxy.port(), "postgres"));
    let (client, holder) = (client(&through).await, client(&new.url("postgres")).await);
    let before = self::client(&old.url("postgres")).await.lock("before").acquire().await.unwrap();
    // It waits in vain, and listens at the old server.
    assert!(
        client.lock("before").acquire_within(Duration::from_millis(300)).await.is_err_and(|error| error.is_timed_out())
    );
    drop(before);
    old.sql("postgres", "ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    old.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    proxy.lead_to(new.port());
    within(Duration::from_secs(5), || async { client.lock("after").try_acquire().await.map(drop) }).await;
    let held = holder.lock("wanted").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { client.lock("wanted").acquire().await.map(drop) });
    while holder.lock("wanted").inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let released = Instant::now();
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap();
    assert!(released.elapsed() < Duration::from_secs(2), "it was not woken: {:?}", released.elapsed());
}

/// The schema is dropped and made again while clients are connected, as after a restore.
#[tokio::test]
async fn a_schema_that_is_dropped_is_named_and_one_that_is_made_again_is_used() {
    let server = installed(Tables::Unlogged);
    let client = client(&url(&server)).await;
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    server.sql("postgres", "DROP SCHEMA tenure CASCADE").unwrap();
    let error = client.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("install_sql()"), "{error}");
    install(&server, "postgres", Tables::Unlogged);
    let error = client.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:#}");
    assert!(error.to_string().contains("GRANT USAGE ON SCHEMA tenure"), "{error}");
    server.sql("postgres", GRANTS).unwrap();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    let queue = client.queue_of_bytes("jobs").unwrap();
    queue.push(&b"x".to_vec()).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap();
}

/// An administrator keeps the row of a name locked while tasks ask for it, and while its holder renews it: the other names of the same
/// client are renewed and granted, although it has one connection for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_kept_locked_holds_up_its_name_alone() {
    const LEASE: Duration = Duration::from_secs(10);
    let server = start(PostgresOptions::new()).unwrap();
    let url = format!("{}?connections=1", server.url("postgres"));
    let driver = PostgresDriver::connect(&url).await.unwrap();
    let client = Client::builder(driver).ttl(LEASE).op_timeout(Duration::from_secs(3)).build().unwrap();
    let (kept, other) = (client.lock("kept").acquire().await.unwrap(), client.lock("other").acquire().await.unwrap());
    let reentrant = client.reentrant("entered", &OwnerId::new()).acquire().await.unwrap();
    let mut owner = session_at(&server.url("postgres")).await;
    let administers = owner.transaction().await.unwrap();
    let (driver, ttl) = (PostgresDriver::connect(&url).await.unwrap(), Ttl::new(LEASE).unwrap());
    let mut holds = Vec::new();
    for name in ["row", "beside it"] {
        let request = AcquireRequest::new(LockName::new(name).unwrap(), OwnerToken::random(), ttl);
        assert!(matches!(driver.acquire(&request).await.unwrap(), Acquisition::Granted(_)));
        holds.push(Hold::new(request.name, request.token));
    }
    administers.batch_execute("SELECT FROM tenure.lock WHERE name IN ('kept', 'row') FOR UPDATE").await.unwrap();
    // In one batch: the other name of it is renewed.
    let renewed = DistributedLock::renew(&driver, ttl, &holds).await;
    assert_eq!(renewed[0].as_ref().unwrap_err().kind(), ErrorKind::Unavailable, "{renewed:?}");
    assert!(matches!(renewed[1], Ok(Renewed::Extended { .. })), "{renewed:?}");
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let lock = client.lock("kept");
        asking.spawn(async move { lock.acquire_within(LEASE * 4).await });
    }
    let until = Instant::now() + LEASE * 3 / 2;
    while Instant::now() < until {
        let third = within(LEASE, || async { client.lock("third").acquire_within(LEASE).await }).await;
        assert!(
            third.release().await.err().is_none_or(|error| error.is_transient()),
            "what was sent last may wait for a second"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(other.is_held() && reentrant.is_held(), "they were not renewed");
    assert!(!kept.is_held(), "nobody can renew it");
    administers.rollback().await.unwrap();
    let mut granted = 0;
    while let Some(asked) = asking.join_next().await {
        granted += usize::from(asked.unwrap().is_ok());
    }
    assert!(granted > 0, "the row is free");
}

/// The database ends one of two transactions that wait for each other. If that is a request, it was not done, and is asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_with_somebody_elses_transaction_is_an_outage_that_passes() {
    let server = installed(Tables::Unlogged);
    server.sql("postgres", "ALTER SYSTEM SET deadlock_timeout = '100ms'; ").unwrap();
    server.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    let app = session(&server).await;
    let held = Request::new("a", "first");
    held.granted(&app).await;
    let stranger = session_at(&server.url("postgres")).await;
    stranger.batch_execute("BEGIN; SELECT FROM tenure.lock WHERE name = 'a' FOR UPDATE").await.unwrap();
    let abandoned = held.clone();
    let asking = tokio::spawn(async move {
        let statement = "SELECT tenure.abandon($1, NULL, $2, 60000000, 0)";
        app.execute(statement, &[&abandoned.name, &abandoned.token]).await
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("the request to wait for the row", || (server.sql("postgres", waits).unwrap() == "1").then_some(()))
        .unwrap();
    let theirs = stranger
        .batch_execute("SELECT pg_advisory_xact_lock(hashtextextended(encode('a', 'hex'), 1952804453)); COMMIT")
        .await;
    let ours = asking.await.unwrap();
    let refused: Vec<_> = [theirs.err(), ours.err()].into_iter().flatten().collect();
    assert_eq!(refused.iter().map(code).collect::<Vec<_>>(), [&SqlState::T_R_DEADLOCK_DETECTED]);
    // Whichever it was: the name can be had, after what is left of the lease at the latest.
    let client = client(&url(&server)).await;
    held.abandon(&session(&server).await).await;
    client.lock("a").acquire_within(Duration::from_secs(5)).await.unwrap().release().await.unwrap();
}

/// The program's own pool leaves none for the locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_connection_left_is_named_and_those_that_are_open_continue() {
    let few = PostgresOptions::new().setting("max_connections", "12").setting("superuser_reserved_connections", "3");
    let server = PostgresServer::start(few).unwrap();
    install(&server, "postgres", Tables::Unlogged);
    server.create_user("app", "secret").unwrap();
    server.sql("postgres", GRANTS).unwrap();
    let one = format!("{}?connections=1", url(&server));
    let client = client(&one).await;
    let held = client.lock("a").acquire().await.unwrap();
    let mut pool = Vec::new();
    while let Ok((session, connection)) = tokio_postgres::connect(&url(&server), tokio_postgres::NoTls).await {
        tokio::spawn(connection);
        pool.push(session);
    }
    assert!(pool.len() >= 5, "{} sessions", pool.len());
    let error = PostgresDriver::connect(&one).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    // Who waits needs one more connection, that listens.
    let error = client.lock("a").acquire_within(Duration::from_millis(300)).await.unwrap_err();
    assert!(error.is_transient(), "{error:#}");
    held.extend(LONGEST).await.unwrap();
    assert_eq!(held.state(), HoldState::Held);
    drop(pool);
    let waiting = tokio::spawn({
        let lock = client.lock("a");
        async move { within(Duration::from_secs(20), || lock.acquire_within(Duration::from_secs(10))).await }
    });
    while client.lock("a").inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// A user may have fewer connections than the client is set to: names share them, and one makes room for the listening session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_two_connections_has_every_name() {
    let server = installed(Tables::Unlogged);
    server.sql("postgres", "ALTER ROLE app CONNECTION LIMIT 2").unwrap();
    let client = client(&url(&server)).await;
    let take = |number| {
        let lock = client.lock(format!("few/{number}"));
        tokio::spawn(async move { lock.try_acquire().await })
    };
    for taken in (0..16).map(take).collect::<Vec<_>>() {
        taken.await.unwrap().unwrap().expect("it is free").release().await.unwrap();
    }
    let held = client.lock("wanted").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("wanted");
        async move { lock.acquire_within(Duration::from_secs(10)).await }
    });
    while client.lock("wanted").inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Eight tasks of two clients take turns, and messages pass, while the server is restarted twice as administrators do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_loses_nothing() {
    const TURNS: usize = 40;
    const MESSAGES: usize = 60;
    let mut server = installed(Tables::Unlogged);
    let clients = [client(&url(&server)).await, client(&url(&server)).await];
    let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for number in 0..8 {
        let lock = clients[number % 2].lock("hot");
        let (inside, done) = (Arc::clone(&inside), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            while done.load(Ordering::SeqCst) < TURNS {
                let Ok(guard) = lock.acquire_within(Duration::from_secs(2)).await else { continue };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                tokio::time::sleep(Duration::from_millis(5)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
                let _ = guard.release().await; // an outage may keep the answer; the lease ends by itself
            }
        }));
    }
    let (producer, consumer) = (clients[0].queue_of_bytes("jobs").unwrap(), clients[1].queue_of_bytes("jobs").unwrap());
    let pushing = tokio::spawn(async move {
        for number in 0..MESSAGES {
            // Under a name of its own: what was stored although the answer was lost is not stored twice.
            let (payload, id) = (number.to_string().into_bytes(), format!("m{number}"));
            within(Duration::from_secs(20), || {
                let (queue, payload, id) = (producer.clone(), payload.clone(), id.clone());
                async move { queue.push(&payload).id(id).await }
            })
            .await;
        }
    });
    let receiving = tokio::spawn(async move {
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < MESSAGES {
            let Ok(delivery) = consumer.receive().await else { continue };
            seen.insert(delivery.payload().as_bytes().to_vec());
            let _ = delivery.ack().await;
        }
    });
    for _ in 0..2 {
        let before = done.load(Ordering::SeqCst);
        server.shut_down().unwrap();
        server.restart().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while done.load(Ordering::SeqCst) < TURNS.min(before + 5) {
            assert!(Instant::now() < deadline, "nobody gets the lock after the restart");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
        pushing.await.unwrap();
        receiving.await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("everybody comes to an end");
}

/// Requests may take a second, and to listen takes one and a half: whoever comes after those who gave up finds it done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_takes_longer_than_a_request_may_is_made_all_the_same() {
    let server = installed(Tables::Unlogged);
    let proxy = TcpProxy::start(server.port()).unwrap();
    let through = url(&server).replace(&server.port().to_string(), &proxy.port().to_string());
    let (near, far) = (client(&url(&server)).await, client(&format!("{through}?connections=1")).await);
    let held = near.lock("a").acquire().await.unwrap();
    proxy.set_delay(Duration::from_millis(370)); // each way
    proxy.cut();
    let waiting = tokio::spawn({
        let lock = far.lock("a");
        async move { within(Duration::from_secs(20), || lock.acquire_within(Duration::from_secs(20))).await }
    });
    let start = Instant::now();
    while near.lock("a").inspect().await.unwrap().waiters == 0 {
        assert!(start.elapsed() < Duration::from_secs(15), "it never comes to wait");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    held.release().await.unwrap();
    drop(waiting.await.unwrap()); // the first release takes two round trips: too long for its answer, and it goes on
}

/// Ten thousand wait: the next one is refused, each release serves the first, and none looks at all of them twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_served_in_order() {
    let server = installed(Tables::Unlogged);
    let mut listener = Listener::new(&server, 5).await;
    let app = session(&server).await;
    let held = Request::new("a", "holder");
    held.granted(&app).await;
    // The first by its own request, the others as it would have written them.
    assert_eq!(Request::new("a", "waiter 0").waiting(5, true).ask(&app).await.unwrap(), Answer::Busy { ahead: 0 });
    let others = "INSERT INTO tenure.waiter (name, token, client, present, ttl, fences, accepts)
      SELECT 'a', 'waiter ' || n, 5, tenure.us() + 600000000, 60000000, 8, true FROM generate_series(1, 9998) n";
    server.sql("postgres", others).unwrap();
    let last = Request::new("a", "waiter 9999").waiting(5, true);
    assert_eq!(last.ask(&app).await.unwrap(), Answer::Busy { ahead: 9_999 });
    assert_eq!(last.ask(&app).await.unwrap(), Answer::Busy { ahead: 9_999 }, "asking again keeps the place");
    let full: i32 = app
        .query_one(
            "SELECT code FROM tenure.acquire('a', NULL, 'one more', 1000000, 1, NULL, 20000000, true, 5, 10000, 10, 0)",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(full, -2, "the queue is full");
    assert_eq!(crate::sql::inspect(&app, b"a").await.1, 10_000);
    let (mut holder, start) = (held, Instant::now());
    for number in 0..200 {
        assert!(holder.release(&app).await);
        let reported = listener.heard().await.expect("the first waiter is notified");
        assert!(reported.starts_with(&format!("h waiter {number} ")), "{reported}");
        holder = Request::new("a", &format!("waiter {number}"));
    }
    assert!(start.elapsed() < Duration::from_secs(10), "200 hand-overs took {:?}", start.elapsed());
    assert_eq!(crate::sql::inspect(&app, b"a").await.1, 9_800);
}

/// The disk with the tables has no byte left: requests are an outage, and once there is room all is as before.
#[test]
fn a_full_disk_is_an_outage_that_passes() {
    on_a_small_disk("a_full_disk_is_an_outage_that_passes", Small::Tables, full_of_tables);
}

/// The disk with the server's log has no byte left: the server ends. Once there is room and it is started, all that was answered is there.
#[test]
fn a_server_that_ends_since_its_log_finds_no_room_has_lost_nothing() {
    on_a_small_disk("a_server_that_ends_since_its_log_finds_no_room_has_lost_nothing", Small::Everything, full_of_log);
}

/// What is on the small disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Small {
    Tables,
    Everything,
}

/// Runs the test `name` on a small disk in memory, which only a process in a space of mounts of its own may make; there the test goes
/// on.
fn on_a_small_disk<F: Future<Output = ()>>(name: &str, small: Small, work: impl FnOnce(String) -> F) {
    const FOLDER: &str = "TENURE_TEST_FULL_DISK";
    if let Ok(folder) = std::env::var(FOLDER) {
        return tokio::runtime::Runtime::new().unwrap().block_on(work(folder));
    }
    let folder = TempDir::new("disk").unwrap();
    let size = if small == Small::Tables { "2m" } else { "100m" };
    let mount = format!("mount -t tmpfs -o size={size},mode=777 tmpfs \"$0\" && exec \"$@\"");
    let mut again = Command::new("unshare");
    again.arg(if is_root() { "-m" } else { "-rm" }).args(["sh", "-c", &mount]).arg(folder.path());
    again.arg(std::env::current_exe().unwrap()).args(["--exact", &format!("bad_days::{name}")]);
    if small == Small::Everything {
        again.env("TMPDIR", folder.path());
    }
    let output = again.env(FOLDER, folder.path()).process_group(0).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}

async fn full_of_tables(folder: String) {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let place = format!("{folder}/tables");
    std::fs::create_dir(&place).unwrap();
    if is_root() {
        let owner = std::fs::metadata(server.data()).unwrap();
        use std::os::unix::fs::MetadataExt as _;
        std::os::unix::fs::chown(&place, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{place}'")).unwrap();
    server.sql("postgres", "ALTER SYSTEM SET default_tablespace = 'small'").unwrap();
    server.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    install(&server, "postgres", Tables::Unlogged);
    server.create_user("app", "secret").unwrap();
    server.sql("postgres", GRANTS).unwrap();
    let client = client(&url(&server)).await;
    let held = client.lock("held").acquire().await.unwrap();
    std::fs::write(format!("{folder}/ballast"), vec![0; 2 << 20]).unwrap_err();
    let queue = client.queue_of_bytes("jobs").unwrap();
    let mut stored = 0;
    let full = loop {
        match queue.push(&vec![7; 4_000]).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 2_000, "the disk does not fill");
    };
    assert_eq!(full.kind(), ErrorKind::Unavailable, "{full:#}");
    assert!(full.to_string().contains("disk is full"), "{full}");
    held.extend(LONGEST).await.unwrap(); // it needs no room
    std::fs::remove_file(format!("{folder}/ballast")).unwrap();
    assert_eq!(held.state(), HoldState::Held);
    within(Duration::from_secs(10), || async { queue.push(&b"room".to_vec()).await }).await;
    let mut received = 0;
    while received <= stored {
        let batch = queue.receive_many(100, Duration::ZERO).await.unwrap();
        assert!(!batch.is_empty(), "{received} of {} messages came", stored + 1);
        received += batch.len();
        queue.ack_many(batch).await.unwrap();
    }
    assert_eq!(received, stored + 1, "what was refused is not there");
    held.release().await.unwrap();
}

async fn full_of_log(folder: String) {
    // All of the server is there: its folder, and so its log.
    let on_disk = PostgresOptions::new().on_disk().setting("max_wal_size", "32MB").setting("min_wal_size", "32MB");
    let mut server = PostgresServer::start(on_disk).unwrap();
    install(&server, "postgres", Tables::Logged);
    server.create_user("app", "secret").unwrap();
    server.sql("postgres", GRANTS).unwrap();
    let session = session(&server).await;
    let held = Request::new("held", "first");
    let fence = held.granted(&session).await;
    let driver = PostgresDriver::connect(&url(&server)).await.unwrap();
    // Other tests keep the disk busy: a flush may take seconds.
    let client = Client::builder(driver).ttl(LONGEST).op_timeout(Duration::from_secs(20)).build().unwrap();
    let queue = client.queue_of_bytes("jobs").unwrap();
    let (stored, ballast) = (50, format!("{folder}/ballast"));
    for number in 0..stored {
        queue.push(&vec![number; 100]).await.unwrap();
    }
    std::fs::write(&ballast, vec![0; 200 << 20]).unwrap_err();
    let filler = "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 200000))";
    let start = Instant::now();
    while server.sql("postgres", filler).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(60), "the log does not fill");
    }
    let error = client.lock("other").try_acquire().await.unwrap_err();
    assert!(error.is_transient(), "{error:#}");
    std::fs::remove_file(&ballast).unwrap();
    server.restart().unwrap();
    let again = crate::sql::session(&server).await;
    assert_eq!(crate::sql::inspect(&again, b"held").await.0, Some(fence));
    drop(client.lock("other").acquire_within(Duration::from_secs(10)).await.unwrap());
    let mut received = 0;
    while received < usize::from(stored) {
        let batch = within(Duration::from_secs(10), || async { queue.receive_many(100, Duration::ZERO).await }).await;
        assert!(!batch.is_empty(), "{received} of {stored} messages came");
        received += batch.len();
        queue.ack_many(batch).await.unwrap();
    }
}
