//! A server that changed while the link to it was down is looked at again.

use std::time::{Duration, Instant};

use crate::common::queue::{message, queue, up_to};
use crate::common::{Client, LONG, attempt, calls, server};
use metrics_util::CompositeKey;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tenure_core::driver::{DelayQueueExt as _, Exchanged, Next, Settle, Settled, Settlement};
use tenure_core::{Error, ErrorKind, OwnerId};
use tenure_testkit::{ClosedPort, RedisServer, RespClient, TcpProxy};

/// The connections of the driver end.
fn cut(server: &RedisServer) {
    RespClient::unix(&server.socket()).unwrap().call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    let _ = server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
}

/// Asks until it is refused.
async fn refused(c: &Client) -> Error {
    let began = Instant::now();
    loop {
        match c.locks.acquire(&attempt("a")).await {
            Err(error) if error.kind() == ErrorKind::Misconfigured => return error,
            Err(error) => assert!(error.is_transient(), "{error}"),
            Ok(_) => {}
        }
        assert!(began.elapsed() < LONG, "never refused");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many connections stand again since the last look.
fn reconnects(recorder: &DebuggingRecorder) -> u64 {
    let all = recorder.snapshotter().snapshot().into_vec();
    let count = |(key, _, _, value): (CompositeKey, _, _, _)| match value {
        DebugValue::Counter(count) if key.key().name() == "tenure.reconnects" => count,
        _ => 0,
    };
    all.into_iter().map(count).sum()
}

#[tokio::test]
async fn a_connection_that_is_replaced_is_counted() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let server = server();
    let c = Client::of(&server).await;
    c.grant(&attempt("a")).await;
    assert_eq!(reconnects(&recorder), 0, "the first one is none");
    cut(&server);
    let (began, mut count) = (Instant::now(), 0);
    while count == 0 {
        assert!(began.elapsed() < LONG, "never counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
        count = reconnects(&recorder);
    }
    assert_eq!(count, 1);
    c.grant(&attempt("b")).await;
}

#[tokio::test]
async fn a_server_that_may_evict_by_now_is_refused_until_it_is_mended() {
    let server = server();
    let c = Client::of(&server).await;
    c.grant(&attempt("before")).await;
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    c.grant(&attempt("on the same connection")).await;
    cut(&server);
    let error = refused(&c).await;
    assert!(error.message().contains("allkeys-lru"), "{error}");
    let jobs = queue("jobs");
    let of_all = [
        c.reentrant.enter(&OwnerId::new(), &attempt("b")).await.map(drop),
        c.queues.push(&jobs, &[message("a", 0)]).await.map(drop),
        c.queues.receive(&up_to(&jobs, 1)).await.map(drop),
    ];
    for result in of_all {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Misconfigured);
    }
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    c.grant(&attempt("mended")).await;
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    c.grant(&attempt("and known to be")).await;
    assert_eq!(calls(&server, "evalsha"), 1, "nothing else is asked for");
    let reported = server.cli(&["INFO", "commandstats"]).unwrap().text();
    assert!(reported.contains("cmdstat_info:calls=1,") || !reported.contains("cmdstat_info"), "{reported}");
}

/// The name of the server leads to another one, that may evict.
#[tokio::test]
async fn a_successor_that_may_evict_is_refused() {
    let (old, new) = (server(), server());
    new.cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]).unwrap();
    let name = TcpProxy::start(old.port()).unwrap();
    let c = Client::at(&format!("redis://127.0.0.1:{}/", name.port())).await;
    c.grant(&attempt("before")).await;
    let nowhere = ClosedPort::new().unwrap();
    name.lead_to(nowhere.number());
    cut(&old);
    let waits = async {
        while let Err(error) = c.locks.acquire(&attempt("waits for a connection")).await {
            if error.kind() == ErrorKind::Misconfigured {
                return;
            }
            assert!(error.is_transient(), "{error}");
        }
        panic!("granted by a server that nobody has looked at");
    };
    tokio::join!(waits, async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        name.lead_to(new.port());
    });
    let error = refused(&c).await;
    assert!(error.message().contains("volatile-lru"), "{error}");
    assert_eq!(
        new.cli(&["DBSIZE"]).unwrap().int(),
        Some(0),
        "not even what was asked for while there was no connection"
    );
}

#[tokio::test]
async fn what_was_handled_is_settled_at_a_server_that_is_not_fit_to_hand_out_more() {
    let server = server();
    let c = Client::of(&server).await;
    let jobs = queue("jobs");
    c.queues.push(&jobs, &[message("a", 0), message("b", 0)]).await.unwrap();
    let handed = c.queues.receive(&up_to(&jobs, 1)).await.unwrap();
    let handled = [Settle::new(handed.deliveries[0].receipt, Settlement::Ack)];
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    cut(&server);
    let began = Instant::now();
    let Exchanged { settled, received, .. } = loop {
        match c.queues.exchange(&handled, &up_to(&jobs, 1)).await {
            Ok(answers) => break answers,
            Err(error) => assert!(error.is_transient() && began.elapsed() < LONG, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((settled, received.deliveries.len(), received.next), (vec![Settled::Done], 0, Next::Now));
    assert_eq!(c.queues.receive(&up_to(&jobs, 1)).await.unwrap_err().kind(), ErrorKind::Misconfigured);
}

/// A server, or what stands before it, that accepts and cuts at once: clients come back after pauses that grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cuts_each_connection_at_once_is_not_stormed() {
    let server = server();
    let c = Client::of(&server).await;
    let opened = |server: &RedisServer| -> u64 {
        let stats = server.cli(&["INFO", "stats"]).unwrap().text();
        let number = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        number.unwrap().trim().parse().unwrap()
    };
    let mut control = RespClient::unix(&server.socket()).unwrap();
    let before = opened(&server);
    let began = Instant::now();
    let mut cuts = 0;
    while began.elapsed() < Duration::from_secs(3) {
        cuts += control.call(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap().int().unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let came = opened(&server) - before - 1; // that of the second look
    assert!((2..=12).contains(&came) && cuts >= 2, "{came} connections, {cuts} cut");
    let began = Instant::now();
    while c.locks.acquire(&attempt("a")).await.is_err() {
        assert!(began.elapsed() < LONG, "it does not come back");
    }
}

#[tokio::test]
async fn a_changed_password_is_denied_until_it_is_changed_back() {
    let server = server();
    let user = |password: &str| {
        server.cli(&["ACL", "SETUSER", "app", "reset", "on", password, "allkeys", "allchannels", "+@all"]).unwrap();
    };
    user(">old");
    let c = Client::at(&format!("redis://app:old@127.0.0.1:{}/", server.port())).await;
    c.grant(&attempt("before")).await;
    user(">new");
    cut(&server);
    let began = Instant::now();
    let error = loop {
        match c.locks.acquire(&attempt("a")).await {
            Err(error) if error.kind() == ErrorKind::Denied => break error,
            Err(error) => assert!(error.is_transient() && began.elapsed() < LONG, "{error}"),
            Ok(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(error.was_not_applied() && error.message().contains("WRONGPASS"), "{error}");
    user(">old");
    let began = Instant::now();
    while let Err(error) = c.locks.acquire(&attempt("b")).await {
        assert!(began.elapsed() < LONG, "it does not come back: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
