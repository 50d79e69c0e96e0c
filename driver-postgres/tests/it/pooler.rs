//! Through a pooler in transaction mode: each statement may meet another session of the server.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::start;
use tenure_core::driver::Concern;
use tenure_core::{Client, ErrorKind};
use tenure_postgres::PostgresDriver;
use tenure_testkit::{PgBouncer, PostgresOptions, PostgresServer};

async fn through(server: &PostgresServer, pooler: &PgBouncer) -> Client {
    let url = format!("{}?prepare=false&listen=127.0.0.1:{}", pooler.url("postgres"), server.port());
    Client::new(PostgresDriver::connect(&url).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_waiters_and_queues_work_through_a_pooler() {
    let server = start(PostgresOptions::new()).unwrap();
    let pooler = PgBouncer::start(&server).unwrap();
    let (one, other) = (through(&server, &pooler).await, through(&server, &pooler).await);
    let held = one.lock("orders/42").acquire().await.unwrap();
    let (first, waiter) = (held.fence(), other.lock("orders/42"));
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || one.lock("orders/42").inspect().await.unwrap().waiters == 1;
    let patience = tokio::time::timeout(Duration::from_secs(10), async {
        while !waits().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    patience.await.expect("the other waits");
    held.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("it is woken").unwrap().unwrap();
    assert!(next.fence() > first);
    next.release().await.unwrap();

    let (producer, consumer) = (one.queue_of_bytes("jobs").unwrap(), other.queue_of_bytes("jobs").unwrap());
    let receiving = tokio::spawn(async move { consumer.receive().await?.ack().await });
    producer.push(&b"a".to_vec()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), receiving).await.expect("it comes").unwrap().unwrap();
    assert!(!one.doctor().await.unwrap().findings().is_empty(), "each statement of the check-up is one by itself");
}

/// Forwards what a client sends in pieces that are smaller than a request.
fn in_pieces(target: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", target)).unwrap());
            server.set_nodelay(true).unwrap();
            let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut answers, &mut back));
            thread::spawn(move || {
                let mut piece = [0; 100];
                while let Ok(count @ 1..) = client.read(&mut piece) {
                    thread::sleep(Duration::from_millis(1));
                    server.write_all(&piece[..count])?;
                }
                server.shutdown(std::net::Shutdown::Write)
            });
        }
    });
    port
}

/// The pooler gives the server to another client when a request was answered, also between the messages of the next one. A third of the
/// callers gives up early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_not_divided_among_servers() {
    let server = start(PostgresOptions::new()).unwrap();
    let pooler = PgBouncer::start_with(&server, &[], &[("default_pool_size", "1")]).unwrap();
    let port = in_pieces(pooler.port());
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?prepare=false&connections=1");
    let url = format!("{url}&listen=127.0.0.1:{}", server.port());
    let connect = async || {
        let driver = PostgresDriver::connect(&url).await.unwrap();
        Client::builder(driver).op_timeout(Duration::from_secs(30)).build().unwrap()
    };
    let clients = [connect().await, connect().await, connect().await];
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..30 {
        let lock = clients[caller % 3].lock(format!("orders/{caller}"));
        let patience = if caller % 3 == 1 { Duration::from_millis(5) } else { Duration::from_secs(60) };
        callers.spawn(async move {
            for _ in 0..10 {
                if let Ok(guard) = tokio::time::timeout(patience, lock.acquire()).await {
                    guard.unwrap().release().await.unwrap();
                }
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
}

/// Without `listen` notifications end in the pooler: a client that would wait is refused, and leaves nothing in the pool's sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_behind_a_pooler_without_listen_is_refused_with_the_fix() {
    let server = start(PostgresOptions::new()).unwrap();
    for settings in [
        [("default_pool_size", "1"), ("server_round_robin", "0")],
        [("default_pool_size", "3"), ("server_round_robin", "1")],
    ] {
        let pooler = PgBouncer::start_with(&server, &[], &settings).unwrap();
        // It opens as many sessions as are in use at once.
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| pooler.sql("postgres", "SELECT pg_sleep(0.5)").unwrap());
            }
        });
        let url = format!("{}?prepare=false", pooler.url("postgres"));
        let client = Client::new(PostgresDriver::connect(&url).await.unwrap());
        let held = client.lock("a").try_acquire().await.unwrap().expect("what waits for nothing works");
        for _ in 0..3 {
            let error = client.lock("a").acquire_within(Duration::from_secs(10)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{settings:?}: {error:#}");
            assert!(error.to_string().contains("listen=host:port"), "{error}");
        }
        let checkup = client.doctor().await.unwrap();
        let reported = checkup.findings().iter().find(|finding| finding.meaning.contains("listen=")).unwrap();
        assert_eq!(reported.concern, Concern::Danger, "{reported:?}");
        held.release().await.unwrap();
    }
}

/// Transactions of the program itself have all sessions of the pool: requests are an outage that passes with them, and leases are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_the_program_has_used_up_is_an_outage_that_passes() {
    let server = start(PostgresOptions::new()).unwrap();
    let pooler =
        PgBouncer::start_with(&server, &[], &[("default_pool_size", "2"), ("query_wait_timeout", "1")]).unwrap();
    let client = through(&server, &pooler).await;
    let held = client.lock("a").acquire().await.unwrap();
    let mut busy = Vec::new();
    for _ in 0..2 {
        let (session, connection) =
            tokio_postgres::connect(&pooler.url("postgres"), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        session.batch_execute("BEGIN; SELECT 1").await.unwrap();
        busy.push(session);
    }
    let error = client.lock("b").try_acquire().await.unwrap_err();
    assert!(error.is_transient(), "{error:#}");
    for session in &busy {
        session.batch_execute("COMMIT").await.unwrap();
    }
    let patience = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match client.lock("b").try_acquire().await {
                Ok(Some(guard)) => return guard,
                Ok(None) => {} // the request that timed out was carried out, and is undone
                Err(error) => assert!(error.is_transient(), "{error:#}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    patience.await.expect("it passes").release().await.unwrap();
    assert!(held.is_held());
    held.release().await.unwrap();
}

/// The pooler is killed and started while clients take turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_is_started_again_under_load_loses_nothing() {
    const TURNS: usize = 60;
    let server = start(PostgresOptions::new()).unwrap();
    let mut pooler = PgBouncer::start(&server).unwrap();
    let clients = [through(&server, &pooler).await, through(&server, &pooler).await];
    let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let lock = clients[number % 2].lock("hot").ttl(Duration::from_secs(2));
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
    for _ in 0..2 {
        let before = done.load(Ordering::SeqCst);
        pooler.restart().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while done.load(Ordering::SeqCst) < TURNS.min(before + 10) {
            assert!(std::time::Instant::now() < deadline, "nobody gets the lock after the restart");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("all tasks end");
}
