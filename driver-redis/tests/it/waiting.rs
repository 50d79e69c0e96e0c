//! The queue: order, presence, wake-ups.

use std::time::Duration;

use crate::common::{Client, LONG, attempt, begun, hold, name, server, server_with, ttl, waiter, woken};
use tenure_core::driver::{Begun, Handing, Queueing};
use tenure_core::{ErrorKind, OwnerToken};
use tenure_redis::{RedisConfig, RedisSettings};
use tenure_testkit::{RedisOptions, RedisServer};

/// The clock of the server goes on by so much at once.
fn later(server: &RedisServer, span: Duration) {
    server.set_clock_offset(span.as_micros() as i64).unwrap();
}

#[tokio::test]
async fn a_waiter_that_lapsed_is_before_nobody_and_begins_anew() {
    let server = server_with(RedisOptions::new().movable_clock());
    let client = Client::of(&server).await;
    let holder = attempt("a").with_ttl(ttl(60_000));
    client.grant(&holder).await;
    let patient =
        || attempt("a").with_queue(Queueing::Join { presence: Duration::from_secs(40), accepts: Handing::Asked });
    let (first, lapsed, last) = (patient(), waiter("a"), patient());
    for (place, one) in [&first, &lapsed, &last].into_iter().enumerate() {
        assert_eq!(client.busy(one).await.position, Some(place as u32));
    }
    later(&server, Duration::from_secs(20));
    assert_eq!(client.busy(&last).await.position, Some(1), "behind one that is alive");
    assert_eq!(client.busy(&lapsed).await.position, Some(2), "it has lost its place");
    later(&server, Duration::from_secs(50));
    let lapsed = lapsed.with_token(OwnerToken::random());
    client.busy(&lapsed).await;
    for one in [&first, &last] {
        client.locks.abandon(&hold(one)).await.unwrap();
    }
    let next = patient();
    client.busy(&next).await;
    later(&server, Duration::from_secs(70)); // the lease is over, and so is the presence of the head
    assert_eq!(client.busy(&lapsed).await.position, Some(1), "it is not the head any more");
    begun(client.grant(&next).await, Begun::Now);
}

#[tokio::test]
async fn an_abandoned_turn_is_passed_on_past_the_dead() {
    let server = server_with(RedisOptions::new().movable_clock());
    let client = Client::of(&server).await;
    client.grant(&attempt("a")).await;
    let short = attempt("a").with_queue(Queueing::Join { presence: Duration::from_secs(1), accepts: Handing::Asked });
    let [second, third] = [(); 2].map(|()| {
        attempt("a").with_queue(Queueing::Join { presence: Duration::from_secs(30), accepts: Handing::Asked })
    });
    let mut watch = client.watch(&third).await;
    for one in [&short, &second, &third] {
        client.busy(one).await;
    }
    later(&server, Duration::from_secs(11)); // the lease has ended, and no client was notified
    client.locks.abandon(&hold(&second)).await.unwrap();
    assert!(woken(&mut watch).await);
    begun(client.grant(&third).await, Begun::Now);
}

#[tokio::test]
async fn a_waiter_whose_client_is_gone_is_passed_over() {
    let server = server();
    let (client, gone) = (Client::of(&server).await, Client::of(&server).await);
    let holder = attempt("a");
    client.grant(&holder).await;
    gone.busy(&waiter("a")).await;
    gone.locks.close().await;
    tenure_testkit::eventually("its subscription to end", || {
        let channels = server.cli(&["PUBSUB", "CHANNELS", "tenure:wake:*"]).unwrap();
        (channels.items().len() == 1).then_some(())
    })
    .unwrap();
    let next = waiter("a");
    let mut watch = client.watch(&next).await;
    client.busy(&next).await;
    client.locks.release(&hold(&holder)).await.unwrap();
    assert!(woken(&mut watch).await);
    client.grant(&next).await;
}

#[tokio::test]
async fn a_woken_waiter_that_does_not_ask_holds_nobody_up_for_long() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let (lazy, next) = (waiter("a"), waiter("a"));
    client.busy(&lazy).await;
    client.busy(&next).await;
    client.locks.release(&hold(&holder)).await.unwrap();
    let started = tokio::time::Instant::now();
    loop {
        match client.locks.acquire(&next).await.unwrap() {
            tenure_core::driver::Acquisition::Granted(_) => break,
            tenure_core::driver::Acquisition::Busy(busy) => {
                let left = busy.recheck_after.unwrap();
                assert!(left <= Duration::from_millis(2_001), "{left:?}");
                tokio::time::sleep(left).await;
            }
        }
        assert!(started.elapsed() < LONG);
    }
    assert!(started.elapsed() >= Duration::from_millis(1_900), "{:?}", started.elapsed());
}

#[tokio::test]
async fn the_first_waiter_knows_when_the_lease_ends_by_itself() {
    let server = server();
    let client = Client::of(&server).await;
    client.grant(&attempt("a").with_ttl(ttl(1_000))).await;
    let mine = waiter("a");
    let left = client.busy(&mine).await.recheck_after.unwrap();
    assert!(left <= Duration::from_millis(1_001), "{left:?}");
    tokio::time::sleep(left).await;
    client.grant(&mine).await;
}

#[tokio::test]
async fn a_lease_that_ran_out_wakes_the_first_when_another_asks() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let first = waiter("a");
    let mut watch = client.watch(&first).await;
    client.busy(&first).await;
    server.cli(&["DEL", "tenure:a"]).unwrap(); // as if it had expired
    assert!(client.busy(&waiter("a")).await.recheck_after.unwrap() <= Duration::from_millis(2_001));
    assert!(woken(&mut watch).await);
    client.grant(&first).await;
}

#[tokio::test]
async fn the_dead_behind_a_living_head_make_room() {
    let server = server();
    let settings = RedisSettings::default().max_waiters(3).unwrap();
    let client = Client::with(RedisConfig::unix(server.socket()).settings(settings)).await;
    client.grant(&attempt("a")).await;
    client.busy(&waiter("a")).await;
    let brief = Queueing::Join { presence: Duration::from_millis(1), accepts: Handing::Asked };
    for _ in 0..2 {
        client.busy(&attempt("a").with_queue(brief)).await;
    }
    let started = std::time::Instant::now();
    while client.locks.inspect(&name("a")).await.unwrap().waiters > 1 {
        assert!(started.elapsed() < LONG);
    }
    assert_eq!(client.busy(&waiter("a")).await.position, Some(1), "nobody alive is before it but the head");
    client.busy(&waiter("a")).await;
    assert_eq!(client.locks.acquire(&waiter("a")).await.unwrap_err().kind(), ErrorKind::LimitReached);
}

#[tokio::test]
async fn a_crowd_of_dead_waiters_does_not_stop_the_living() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    for _ in 0..700 {
        let dying =
            attempt("a").with_queue(Queueing::Join { presence: Duration::from_millis(1), accepts: Handing::Asked });
        client.busy(&dying).await;
    }
    let mine = waiter("a");
    client.busy(&mine).await;
    client.locks.release(&hold(&holder)).await.unwrap();
    let mut asked = 0;
    while let tenure_core::driver::Acquisition::Busy(busy) = client.locks.acquire(&mine).await.unwrap() {
        asked += 1;
        assert!(asked < 10, "each run removes 256");
        tokio::time::sleep(busy.recheck_after.unwrap()).await;
    }
}

#[tokio::test]
async fn an_undisturbed_release_does_two_commands() {
    let server = server();
    let client = Client::of(&server).await;
    let warm = attempt("a");
    client.grant(&warm).await;
    client.locks.release(&hold(&warm)).await.unwrap();
    let mine = attempt("a");
    client.grant(&mine).await;
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    client.locks.release(&hold(&mine)).await.unwrap();
    let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
    let ran: Vec<&str> = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next())
        .filter(|command| !["info", "config|resetstat"].contains(command))
        .collect();
    let mut sorted = ran.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["del", "evalsha", "get"]);
}
