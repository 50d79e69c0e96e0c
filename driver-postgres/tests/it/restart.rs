//! What becomes of leases, waiters and fences when the server is killed, restarted or paused, and when connections are cut.

use std::time::{Duration, Instant};

use crate::sql::{Answer, LONGEST, Listener, Request, Tables, guard, inspect, installed, micros, session, terminate};
use tenure_core::{Client, ErrorKind, HoldState};
use tenure_postgres::PostgresDriver;
use tenure_testkit::PostgresServer;

/// Asks until the server grants again; how long that took, and the fence.
async fn granted_again(server: &PostgresServer, request: &Request, since: Instant) -> (Duration, i64) {
    let session = session(server).await;
    loop {
        match request.ask(&session).await.unwrap() {
            Answer::Granted { fence } => return (since.elapsed(), fence),
            Answer::Forgotten(left) => {
                assert!(left > 0 && left <= micros(LONGEST), "{left} us left of the quarantine");
                tokio::time::sleep(Duration::from_micros(left.cast_unsigned())).await;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The holder may still believe in its lease, so nobody is granted anything until the longest lease has ended.
#[tokio::test]
async fn a_killed_server_with_unlogged_tables_grants_nothing_until_the_longest_lease_has_ended() {
    let mut server = installed(Tables::Unlogged);
    let before = session(&server).await;
    let held = Request::new("a", "first").ttl(LONGEST);
    let fence = held.granted(&before).await;
    server.kill().unwrap();
    let killed = Instant::now();
    server.restart().unwrap();
    let after = session(&server).await;
    assert_eq!(held.renew(&after).await, None, "the lease is forgotten");
    assert!(!held.release(&after).await);
    assert_eq!(inspect(&after, b"a").await, (None, 0));
    guard(&after, b"a", fence).await.unwrap_err();
    let asked = Instant::now();
    for name in ["a", "never held", "a"] {
        let answer = Request::new(name, "second").ask(&after).await.unwrap();
        assert!(matches!(answer, Answer::Forgotten(_)), "{name}: {answer:?}");
    }
    let waiting = Request::new("a", "third").waiting(7, true).ask(&after).await.unwrap();
    assert!(matches!(waiting, Answer::Forgotten(_)), "{waiting:?}");
    let (took, next) = granted_again(&server, &Request::new("a", "second"), asked).await;
    assert!(took >= LONGEST - Duration::from_millis(50) && killed.elapsed() >= LONGEST, "granted after {took:?}");
    assert!(next > fence + 7, "{next} is not beyond the range of {fence}");
    Request::new("b", "other").granted(&after).await;
}

/// The first quarantine is forgotten like everything else, and begins anew.
#[tokio::test]
async fn a_server_killed_in_its_quarantine_begins_another() {
    let mut server = installed(Tables::Unlogged);
    let request = Request::new("a", "first");
    request.granted(&session(&server).await).await;
    server.kill().unwrap();
    server.restart().unwrap();
    let answer = request.ask(&session(&server).await).await.unwrap();
    assert!(matches!(answer, Answer::Forgotten(_)), "{answer:?}");
    tokio::time::sleep(LONGEST / 2).await;
    server.kill().unwrap();
    server.restart().unwrap();
    let asked = Instant::now();
    let (took, _) = granted_again(&server, &request, asked).await;
    assert!(took >= LONGEST - Duration::from_millis(50), "granted after {took:?}");
}

#[tokio::test]
async fn leases_outlive_a_restart_that_was_asked_for() {
    for tables in [Tables::Unlogged, Tables::Logged] {
        let mut server = installed(tables);
        let held = Request::new("a", "first");
        let fence = held.granted(&session(&server).await).await;
        server.shut_down().unwrap();
        server.restart().unwrap();
        let after = session(&server).await;
        let other = Request::new("a", "second").ask(&after).await.unwrap();
        assert_eq!(other, Answer::Busy { ahead: -1 }, "{tables:?}");
        assert_eq!(inspect(&after, b"a").await.0, Some(fence), "{tables:?}");
        assert!(held.renew(&after).await.is_some_and(|left| left > 59_000_000), "{tables:?}");
        Request::new("b", "second").granted(&after).await;
        assert!(held.release(&after).await, "{tables:?}");
        assert!(Request::new("a", "second").granted(&after).await > fence, "{tables:?}");
    }
}

#[tokio::test]
async fn leases_in_logged_tables_outlive_a_kill() {
    let mut server = installed(Tables::Logged);
    let before = session(&server).await;
    let (held, freed) = (Request::new("held", "first"), Request::new("freed", "first"));
    let fence = held.granted(&before).await;
    freed.granted(&before).await;
    assert!(freed.release(&before).await);
    server.kill().unwrap();
    server.restart().unwrap();
    let after = session(&server).await;
    assert_eq!(Request::new("held", "second").ask(&after).await.unwrap(), Answer::Busy { ahead: -1 });
    assert_eq!(inspect(&after, b"held").await.0, Some(fence));
    assert!(held.renew(&after).await.is_some());
    Request::new("freed", "second").granted(&after).await;
    Request::new("new", "second").granted(&after).await;
    assert!(held.release(&after).await);
    assert!(Request::new("held", "second").granted(&after).await > fence);
}

/// A standby has no unlogged rows: once promoted, it is as after a crash, however far it lagged.
#[tokio::test]
async fn a_promoted_standby_grants_nothing_until_the_longest_lease_has_ended() {
    let mut primary = installed(Tables::Unlogged);
    let standby = primary.standby().unwrap();
    let held = Request::new("a", "first").ttl(LONGEST);
    let fence = held.granted(&session(&primary).await).await;
    primary.wait_for(&standby).unwrap();
    let refused = held.ask(&session(&standby).await).await.unwrap_err();
    assert!(refused.as_db_error().is_some(), "a standby that is none yet grants nothing: {refused}");
    primary.kill().unwrap();
    standby.promote().unwrap();
    let asked = Instant::now();
    let (took, next) = granted_again(&standby, &Request::new("a", "second"), asked).await;
    assert!(took >= LONGEST - Duration::from_millis(50), "granted after {took:?}");
    assert!(next > fence + 7, "{next} is not beyond the range of {fence}");
}

/// A cut connection is no proof of a holder's death; it is one that a waiter cannot be told anything.
#[tokio::test]
async fn terminated_connections_cost_a_holder_nothing_and_a_waiter_its_turn() {
    let server = installed(Tables::Unlogged);
    let held = Request::new("a", "holder");
    let first = session(&server).await;
    let fence = held.granted(&first).await;
    let (gone, mut second, mut third) =
        (Listener::new(&server, 11).await, Listener::new(&server, 12).await, Listener::new(&server, 13).await);
    for (ahead, listener) in [&gone, &second, &third].into_iter().enumerate() {
        let request = Request::new("a", &format!("waiter {ahead}")).waiting(listener.number, true);
        let answer = request.ask(&listener.session).await.unwrap();
        assert_eq!(answer, Answer::Busy { ahead: i32::try_from(ahead).unwrap() });
    }
    for client in [&first, &gone.session] {
        terminate(&server, client).await;
    }
    let again = session(&server).await;
    assert_eq!(inspect(&again, b"a").await, (Some(fence), 3));
    assert!(held.renew(&again).await.is_some());
    assert!(held.release(&again).await);
    let reported = second.heard().await.expect("the next listening waiter is notified");
    assert!(reported.starts_with("h waiter 1 "), "{reported}");
    assert_eq!(third.heard().await, None, "nobody else is");
    let next = Request::new("a", "waiter 1");
    assert!(next.renew(&again).await.is_some(), "it has the lock");
    // Who was passed over is out of the line, until it asks again.
    assert_eq!(inspect(&again, b"a").await.1, 1);
    let back = Listener::new(&server, 14).await;
    Request::new("a", "waiter 0").waiting(14, true).ask(&back.session).await.unwrap();
    assert_eq!(inspect(&again, b"a").await.1, 2);
}

/// What a transaction did before its connection was cut is undone, and so is its hold of the name.
#[tokio::test]
async fn a_terminated_guarded_transaction_lets_the_next_in() {
    let server = installed(Tables::Unlogged);
    let (holder, other) = (session(&server).await, session(&server).await);
    let held = Request::new("a", "first").ttl(Duration::from_millis(300));
    let fence = held.granted(&holder).await;
    holder.batch_execute("BEGIN").await.unwrap();
    guard(&holder, b"a", fence).await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let next = Request::new("a", "second");
    assert!(matches!(next.ask(&other).await.unwrap(), Answer::Busy { .. }), "the lease ended, the transaction has not");
    terminate(&server, &holder).await;
    assert!(next.granted(&other).await > fence);
}

/// A paused server answers when it goes on, by the time that it is then: a lease that ended meanwhile is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_counts_the_pause() {
    let mut server = installed(Tables::Unlogged);
    let session = session(&server).await;
    let (short, long) = (Request::new("short", "first").ttl(Duration::from_millis(500)), Request::new("long", "first"));
    short.granted(&session).await;
    long.granted(&session).await;
    server.pause().unwrap();
    let asked = Instant::now();
    let answers = async { (short.renew(&session).await, long.renew(&session).await) };
    let resume = async {
        tokio::time::sleep(Duration::from_millis(800)).await;
        server.resume().unwrap();
    };
    let ((short_left, long_left), ()) = tokio::join!(answers, resume);
    assert!(asked.elapsed() >= Duration::from_millis(800), "answered while it was paused");
    assert_eq!(short_left, None);
    assert!(long_left.is_some_and(|left| left > 59_000_000), "{long_left:?}");
    Request::new("short", "second").granted(&session).await;
}

/// A client of the driver, whose leases last as long as they may.
async fn client(server: &PostgresServer) -> Client {
    let driver = PostgresDriver::connect(&server.url_for("app", None, "postgres")).await.unwrap();
    Client::builder(driver).ttl(LONGEST).build().unwrap()
}

/// Who asks is told why nothing is granted; who held knows that it holds no more; who waited goes on waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_live_through_a_kill_and_the_quarantine() {
    let mut server = installed(Tables::Unlogged);
    let (holder, other) = (client(&server).await, client(&server).await);
    let held = holder.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire_within(Duration::from_secs(20)).await }
    });
    while holder.lock("a").inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.kill().unwrap();
    let killed = Instant::now();
    server.restart().unwrap();
    let refused = loop {
        match other.lock("b").try_acquire().await {
            Err(error) if error.to_string().contains("without its leases") => break error,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Ok(_) => panic!("granted {:?} after the kill", killed.elapsed()),
        }
        assert!(killed.elapsed() < Duration::from_secs(10));
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    tokio::time::timeout(LONGEST, held.lost()).await.expect("its lease is lost, and it is reported");
    let lost = Instant::now();
    let next = waiting.await.unwrap().unwrap();
    assert!(killed.elapsed() >= LONGEST && Instant::now() >= lost, "granted beside the holder");
    assert!(next.fence().get() > held.fence().get() + 7);
    next.release().await.unwrap();
}

/// All connections of the driver are cut, again and again: leases are kept, waiters wait on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_live_through_terminated_connections() {
    let server = installed(Tables::Unlogged);
    let (holder, other) = (client(&server).await, client(&server).await);
    let held = holder.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire_within(Duration::from_secs(20)).await }
    });
    while holder.lock("a").inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut cut = 0;
    for _ in 0..6 {
        cut += server.terminate("tenure").unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    assert!(cut >= 12, "{cut} connections were cut");
    // The next renewal that is answered makes it certain again.
    while held.state() == HoldState::Suspect {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(held.state(), HoldState::Held);
    assert!(!waiting.is_finished(), "somebody else was granted it");
    held.release().await.unwrap();
    let start = Instant::now();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "handed over after {:?}", start.elapsed());
}

/// A server that stands still is no reason to wait for it, and what was asked meanwhile leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_is_an_outage_that_passes() {
    let mut server = installed(Tables::Unlogged);
    let (one, other) = (client(&server).await, client(&server).await);
    one.lock("a").acquire().await.unwrap().release().await.unwrap();
    other.lock("b").acquire().await.unwrap().release().await.unwrap();
    server.pause().unwrap();
    let asked = Instant::now();
    let error = one.lock("a").try_acquire().await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable | ErrorKind::TimedOut),
        "{error:#}"
    );
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    let connecting = Instant::now();
    let url = format!("{}?connect_timeout_ms=500", server.url_for("app", None, "postgres"));
    let error = PostgresDriver::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(connecting.elapsed() < Duration::from_secs(2), "{:?}", connecting.elapsed());
    server.resume().unwrap();
    // What timed out was undone, or ends with its lease.
    other.lock("a").acquire_within(Duration::from_secs(5)).await.unwrap().release().await.unwrap();
}
