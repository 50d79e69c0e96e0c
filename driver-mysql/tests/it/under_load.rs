//! Servers that are full, used up or restarted while clients work, and very many waiters.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{DATABASE, start};
use mysql_async::{Conn, Opts, OptsBuilder};
use tenure_core::{Client, Error, ErrorKind, HoldState};
use tenure_mysql::{MysqlDriver, install_sql};
use tenure_testkit::{MariaDbOptions, MariaDbServer, TempDir};
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(2);

async fn client(server: &MariaDbServer) -> Client {
    let url = format!("{}?connections=1", server.url(DATABASE));
    Client::builder(MysqlDriver::connect(&url).await.unwrap()).ttl(TTL).build().unwrap()
}

/// Asks until it succeeds: the fault passes.
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

/// The program's own pool leaves none for the locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_connection_left_is_named_and_those_that_are_open_continue() {
    let server = start(MariaDbOptions::new().setting("max-connections", "12"));
    // The server keeps one connection more for administrators.
    server.create_user("worker", "secret").unwrap();
    server.sql("", "GRANT EXECUTE ON app.* TO worker").unwrap();
    let url = format!("{}?connections=1", server.url_for("worker", "secret", DATABASE));
    let client = Client::builder(MysqlDriver::connect(&url).await.unwrap()).ttl(TTL).build().unwrap();
    let held = client.lock("a").acquire().await.unwrap();
    let opts = Opts::from_url(&server.url_for("worker", "secret", DATABASE)).unwrap();
    let opts = OptsBuilder::from_opts(opts).prefer_socket(false); // else each takes two connections for a moment
    let (mut pool, mut refused) = (Vec::new(), 0);
    while refused < 3 {
        match Conn::new(opts.clone()).await {
            Ok(session) => pool.push(session),
            Err(_) => refused += 1, // sessions that have just ended may count for a moment
        }
    }
    assert!(pool.len() >= 5, "{} sessions", pool.len());
    let error = MysqlDriver::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    held.extend(TTL).await.unwrap();
    assert_eq!(held.state(), HoldState::Held);
    drop(pool);
    let other = within(Duration::from_secs(10), || MysqlDriver::connect(&url)).await;
    held.release().await.unwrap();
    Client::new(other).lock("a").acquire_within(Duration::from_secs(10)).await.unwrap().release().await.unwrap();
}

/// Eight tasks of two clients take turns, and messages pass, while the server is killed and started twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_loses_nothing() {
    const TURNS: usize = 40;
    const MESSAGES: usize = 60;
    let mut server = start(MariaDbOptions::new());
    let clients = [client(&server).await, client(&server).await];
    let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let lock = clients[number % 2].lock("hot");
        let (inside, done) = (Arc::clone(&inside), Arc::clone(&done));
        tasks.spawn(async move {
            while done.load(Ordering::SeqCst) < TURNS {
                let Ok(guard) = lock.acquire_within(Duration::from_secs(2)).await else { continue };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                tokio::time::sleep(Duration::from_millis(5)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
                let _ = guard.release().await; // an outage may keep the answer; the lease ends by itself
            }
        });
    }
    let (producer, consumer) = (clients[0].queue_of_bytes("jobs").unwrap(), clients[1].queue_of_bytes("jobs").unwrap());
    tasks.spawn(async move {
        for number in 0..MESSAGES {
            // Under a name of its own: a message that was stored although the answer was lost is not stored twice.
            let (payload, id) = (number.to_string().into_bytes(), format!("m{number}"));
            within(Duration::from_secs(30), || {
                let (queue, payload, id) = (producer.clone(), payload.clone(), id.clone());
                async move { queue.push(&payload).id(id).await }
            })
            .await;
        }
    });
    tasks.spawn(async move {
        let mut seen = BTreeSet::new();
        while seen.len() < MESSAGES {
            let Ok(delivery) = consumer.receive().await else { continue };
            seen.insert(delivery.payload().as_bytes().to_vec());
            let _ = delivery.ack().await;
        }
    });
    for _ in 0..2 {
        let before = done.load(Ordering::SeqCst);
        server.restart().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while done.load(Ordering::SeqCst) < TURNS.min(before + 5) {
            assert!(Instant::now() < deadline, "nobody gets the lock after the restart");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap()
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("all tasks end");
}

/// Ten thousand tasks of two clients wait, and each of them asks, which is more than a server answers. The holder keeps its lease all the
/// same, releases serve one after the other, and all are told when their client closes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_take_no_lease_away_and_are_served_or_told() {
    const WAITERS: usize = 10_000;
    const SERVED: usize = 50;
    let server = start(MariaDbOptions::new());
    let clients = [client(&server).await, client(&server).await];
    let held = clients[0].lock("a").acquire().await.unwrap();
    let (inside, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut waiters = JoinSet::new();
    for number in 0..WAITERS {
        let lock = clients[number % 2].lock("a");
        let (inside, served) = (Arc::clone(&inside), Arc::clone(&served));
        waiters.spawn(async move {
            let guard = lock.acquire().await?;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
            served.fetch_add(1, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await
        });
    }
    while clients.iter().map(|client| client.stats().waiters).sum::<usize>() < WAITERS {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Their requests do not get in the way of the holder's.
    tokio::time::sleep(3 * TTL).await;
    assert_eq!(held.state(), HoldState::Held);
    held.release().await.unwrap();
    let start = Instant::now();
    while served.load(Ordering::SeqCst) < SERVED {
        assert!(start.elapsed() < Duration::from_secs(60), "{} served", served.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for client in &clients {
        client.close(Duration::from_secs(10)).await.unwrap();
    }
    while let Some(ended) = waiters.join_next().await {
        if let Err(error) = ended.unwrap() {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error:#}");
        }
    }
}

/// The disk with the tables has no byte left: requests are an outage, and once there is room all is as before.
///
/// The disk is a small one in memory, which only a process in a space of mounts of its own may make; there the test goes on.
#[test]
fn a_full_disk_is_an_outage_that_passes() {
    const INSIDE: &str = "TENURE_TEST_FULL_DISK";
    if std::env::var_os(INSIDE).is_some() {
        return tokio::runtime::Runtime::new().unwrap().block_on(on_a_small_disk());
    }
    let folder = TempDir::new("disk").unwrap();
    let mut again = Command::new("unshare");
    again.args([if is_root() { "-m" } else { "-rm" }, "--propagation", "private"]);
    again.arg(std::env::current_exe().unwrap()).args(["--exact", "under_load::a_full_disk_is_an_outage_that_passes"]);
    let output = again.env(INSIDE, folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

async fn on_a_small_disk() {
    let server = MariaDbServer::start(MariaDbOptions::new()).unwrap();
    server.create_database(DATABASE).unwrap();
    // The folder of the database is a small disk; the log and the server's own tables are on another.
    let data = server.sql("", "SELECT @@datadir").unwrap();
    let folder = Path::new(data.trim()).join(DATABASE);
    let owner = std::fs::metadata(&folder).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=777", "tmpfs"]).arg(&folder).status();
    assert!(mount.unwrap().success());
    if is_root() {
        std::os::unix::fs::chown(&folder, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.script(DATABASE, &install_sql()).unwrap();
    let client = client(&server).await;
    let held = client.lock("held").acquire().await.unwrap();
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![0; 4 << 20]).unwrap_err();
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
    assert!(full.to_string().contains("disk or memory is full"), "{full}");
    held.extend(TTL).await.unwrap(); // it needs no room
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(held.state(), HoldState::Held);
    within(Duration::from_secs(10), || async { queue.push(&b"room".to_vec()).await }).await;
    let mut received = 0;
    while received <= stored {
        let batch = queue.try_receive_many(100).await.unwrap();
        assert!(!batch.is_empty(), "{received} of {} messages came", stored + 1);
        received += batch.len();
        queue.ack_many(batch).await.unwrap();
    }
    assert_eq!(received, stored + 1, "what was refused is not there");
    held.release().await.unwrap();
    drop(server);
    let _ = Command::new("umount").arg(&folder).status();
}
