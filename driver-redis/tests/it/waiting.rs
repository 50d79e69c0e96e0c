//! The queue: order, presence, wake-ups.

use std::time::Duration;

use crate::common::{Client, LONG, asleep, attempt, begun, hold, keys, name, server, server_with, ttl, waiter, woken};
use tenure_core::driver::{Begun, Handing, Queueing, Released};
use tenure_core::{ErrorKind, OwnerToken};
use tenure_redis::{RedisConfig, RedisSettings};
use tenure_testkit::{RedisOptions, RedisServer};

#[tokio::test]
async fn waiters_are_served_in_order_and_woken_one_at_a_time() {
    let server = server();
    let (client, other) = (Client::of(&server).await, Client::of(&server).await);
    let holder = attempt("a");
    client.grant(&holder).await;
    let (first, second) = (waiter("a"), waiter("a"));
    let (mut first_watch, mut second_watch) = (client.watch(&first).await, other.watch(&second).await);
    let answer = client.busy(&first).await;
    assert_eq!(answer.position, Some(0));
    assert!(answer.recheck_after.unwrap() <= Duration::from_millis(10_001));
    let answer = other.busy(&second).await;
    assert_eq!(answer.position, Some(1));
    assert!(answer.recheck_after.unwrap() >= Duration::from_secs(15), "not before two leases like this one");
    assert_eq!(client.busy(&first).await.position, Some(0), "asking again keeps the place");

    assert_eq!(client.locks.release(&hold(&holder)).await.unwrap(), Released::Released);
    assert!(woken(&mut first_watch).await);
    assert!(asleep(&other, &mut second_watch).await);
    let reserved = other.busy(&second).await;
    assert!(reserved.recheck_after.unwrap() <= Duration::from_millis(2_001), "the head has to claim in time");
    client.busy(&attempt("a")).await; // nobody passes the head
    begun(client.grant(&first).await, Begun::Now);
    assert_eq!(client.locks.release(&hold(&first)).await.unwrap(), Released::Released);
    assert!(woken(&mut second_watch).await);
    other.grant(&second).await;
    assert_eq!(other.locks.release(&hold(&second)).await.unwrap(), Released::Released);
    assert_eq!(keys(&server), ["tenure:{fence}"]);
}

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
    later(&server, Duration::from_secs(11)); // the lease is over, and nobody was told
    client.locks.abandon(&hold(&second)).await.unwrap();
    assert!(woken(&mut watch).await);
    begun(client.grant(&third).await, Begun::Now);
}

#[tokio::test]
async fn a_silent_waiter_lapses_and_the_next_is_served() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let silent =
        attempt("a").with_queue(Queueing::Join { presence: Duration::from_millis(50), accepts: Handing::Asked });
    client.busy(&silent).await;
    let next = waiter("a");
    let mut watch = client.watch(&next).await;
    assert!(client.busy(&next).await.position <= Some(1));
    tenure_testkit::eventually("the silent one to lapse", || {
        let now = server.cli(&["TIME"]).unwrap().items()[0].int().unwrap() * 1000;
        let alive = server.cli(&["ZCOUNT", "{tenure:a}:w", &format!("({now}"), "+inf"]).unwrap();
        let member = format!("{}@", silent.token.expose().as_str());
        let all = server.cli(&["ZRANGE", "{tenure:a}:w", "0", "-1", "WITHSCORES"]).unwrap();
        let score = all.items().chunks(2).find(|pair| pair[0].text().starts_with(&member))?[1].int()?;
        (score < now && alive.int() >= Some(1)).then_some(())
    })
    .unwrap();
    assert_eq!(client.locks.inspect(&name("a")).await.unwrap().waiters, 1);
    client.locks.release(&hold(&holder)).await.unwrap();
    assert!(woken(&mut watch).await);
    client.grant(&next).await;
    assert_eq!(client.busy(&silent).await.position, Some(0), "it may join again, at the end");
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
async fn an_abandoned_head_hands_on_its_turn() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let (first, second) = (waiter("a"), waiter("a"));
    let mut watch = client.watch(&second).await;
    client.busy(&first).await;
    client.busy(&second).await;
    client.locks.release(&hold(&holder)).await.unwrap();
    client.locks.abandon(&hold(&first)).await.unwrap();
    assert!(woken(&mut watch).await);
    client.grant(&second).await;
    assert_eq!(client.locks.acquire(&first).await.unwrap_err().kind(), ErrorKind::NotHeld);
}

#[tokio::test]
async fn a_forced_release_wakes_the_head() {
    let server = server();
    let client = Client::of(&server).await;
    client.grant(&attempt("a")).await;
    let first = waiter("a");
    let mut watch = client.watch(&first).await;
    client.busy(&first).await;
    client.locks.force_release(&name("a"), None).await.unwrap();
    assert!(woken(&mut watch).await);
    client.grant(&first).await;
}

#[tokio::test]
async fn the_queue_has_a_cap() {
    let server = server();
    let settings = RedisSettings::default().max_waiters(2).unwrap();
    let client = Client::with(RedisConfig::unix(server.socket()).settings(settings)).await;
    client.grant(&attempt("a")).await;
    let first = waiter("a");
    client.busy(&first).await;
    client.busy(&waiter("a")).await;
    let error = client.locks.acquire(&waiter("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.message().contains('2'), "{error}");
    client.busy(&first).await;
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
