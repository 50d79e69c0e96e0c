//! Connecting: what goes wrong, and how that is said.

use std::time::Duration;

use crate::common::*;
use etcd_client::{ConnectOptions, Permission};
use tenure_core::driver::DistributedLock as _;
use tenure_core::{Client, ErrorKind, OwnerId, OwnerToken};
use tenure_etcd::{EtcdConfig, EtcdDriver};
use tenure_testkit::{ClosedPort, EtcdCluster, EtcdOptions, TcpProxy, TempDir};

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let nobody = ClosedPort::new().unwrap();
    let port = nobody.number();
    let error = EtcdDriver::connect(&format!("etcd://127.0.0.1:{port}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
    let client = Client::new(EtcdDriver::new(format!("etcd://127.0.0.1:{port}").parse().unwrap()));
    let error = client.lock("x").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing was sent: {error}");
    let error = client.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn somebody_who_does_not_answer_runs_into_the_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("etcd://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let client =
        Client::builder(EtcdDriver::new(url.parse().unwrap())).op_timeout(Duration::from_millis(300)).build().unwrap();
    let error = client.lock("x").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
}

#[tokio::test]
async fn connecting_to_somebody_silent_takes_no_longer_than_connecting_may() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let started = std::time::Instant::now();
    let error = EtcdDriver::connect(&format!("etcd://127.0.0.1:{port}/?connect_timeout_ms=400")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    // And the next member is asked.
    let cluster = server();
    let url = format!("etcd://127.0.0.1:{port},127.0.0.1:{}/?connect_timeout_ms=400", cluster.ports()[0]);
    EtcdDriver::connect(&url).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_did_not_leave_over_a_cut_link_is_said_to_have_failed() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let driver = EtcdDriver::connect(&EtcdCluster::url_of(&[proxy.port()])).await.unwrap();
    let lock = name("cut");
    // Many at once, so that some wait in this client's own connection when it ends.
    let ask = async || {
        let holds = [hold(&lock, OwnerToken::random())];
        (driver.renew(ttl(5), &holds).await.remove(0).err(), driver.inspect(&lock).await.err())
    };
    let mut unsent = 0;
    for _ in 0..100 {
        let cut = async {
            tokio::task::yield_now().await;
            proxy.cut();
        };
        let (answers, ()) =
            futures_util::future::join(futures_util::future::join_all((0..50).map(|_| ask())), cut).await;
        for (renewed, looked) in answers {
            // A look changes nothing, whether it left or not.
            looked.inspect(|error| assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"));
            let canceled = renewed.filter(|error| error.to_string().contains("operation was canceled"));
            canceled.iter().for_each(|error| assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"));
            unsent += usize::from(canceled.is_some());
        }
    }
    assert!(unsent > 0, "no request waited for a link that was cut");
}

#[tokio::test]
async fn a_user_who_may_make_leases_but_not_write_leaves_none() {
    let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
    let urls = [format!("http://127.0.0.1:{}", cluster.ports()[0])];
    let mut etcd = raw(&cluster).await;
    etcd.user_add("root", "rootpw", None).await.unwrap();
    etcd.user_grant_role("root", "root").await.unwrap();
    etcd.role_add("app").await.unwrap();
    etcd.role_grant_permission("app", Permission::read_write("tenure").with_prefix()).await.unwrap();
    etcd.user_add("app", "s3cret", None).await.unwrap();
    etcd.user_grant_role("app", "app").await.unwrap();
    etcd.auth_enable().await.unwrap();
    let as_root = ConnectOptions::new().with_user("root", "rootpw");
    let mut etcd = etcd_client::Client::connect(&urls, Some(as_root)).await.unwrap();
    let url = cluster.url().replace("etcd://", "etcd://app:s3cret@");
    let client = Client::new(EtcdDriver::new(url.parse().unwrap()));
    client.lock("first").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    left(&mut etcd, 0, 0).await;

    etcd.role_grant_permission("app", Permission::read("tenure").with_prefix()).await.unwrap();
    for name in 0..10 {
        let error = client.lock(format!("{name}")).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    until("none is left", async || lease_count(&mut etcd).await == 0).await;
}

#[tokio::test]
async fn a_change_of_users_makes_a_client_sign_in_again() {
    let dir = TempDir::new("etcd-jwt").unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "not much of a secret, but long enough for a test").unwrap();
    // A token of this kind names the revision of the users that it was made in, and is old with the next.
    let tokens = format!("jwt,priv-key={},sign-method=HS256,ttl=10m", secret.display());
    let cluster = EtcdCluster::single(EtcdOptions::new().flag("auth-token", &tokens)).unwrap();
    let mut etcd = raw(&cluster).await;
    etcd.user_add("root", "rootpw", None).await.unwrap();
    etcd.user_grant_role("root", "root").await.unwrap();
    etcd.role_add("app").await.unwrap();
    etcd.role_grant_permission("app", Permission::read_write("tenure/").with_prefix()).await.unwrap();
    etcd.user_add("app", "s3cret", None).await.unwrap();
    etcd.user_grant_role("app", "app").await.unwrap();
    etcd.auth_enable().await.unwrap();
    let urls = [format!("127.0.0.1:{}", cluster.ports()[0])];
    let root = || etcd_client::Client::connect(&urls, Some(ConnectOptions::new().with_user("root", "rootpw")));
    let url = cluster.url().replace("etcd://", "etcd://app:s3cret@");
    let client = Client::builder(EtcdDriver::connect(&url).await.unwrap()).op_timeout(5 * SECOND).build().unwrap();
    let held = client.lock("held").ttl(3 * SECOND).try_acquire().await.unwrap().unwrap();
    for user in ["one", "two"] {
        root().await.unwrap().user_add(user, "pw", None).await.unwrap();
        // Several at once sign in again together.
        let taken = futures_util::future::join_all((0..20).map(|number| {
            let lock = client.lock(format!("{user}/{number}"));
            async move { lock.try_acquire().await.unwrap().unwrap().release().await.unwrap() }
        }));
        taken.await;
        let listed = client.held_locks("").next().await.unwrap().unwrap();
        assert_eq!(listed.name.as_bytes(), b"held", "the documented rights are enough for the list");
    }
    let renewed = std::time::Instant::now();
    while renewed.elapsed() < 4 * SECOND {
        assert!(held.is_held(), "renewed with the new token");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    held.release().await.unwrap();
    // Taking the right away is a refusal.
    root().await.unwrap().user_revoke_role("app", "app").await.unwrap();
    let error = client.lock("x").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_member_that_is_gone_is_passed_over() {
    let cluster = server();
    let gone = ClosedPort::new().unwrap();
    let url = format!("etcd://127.0.0.1:{},127.0.0.1:{}", gone.number(), cluster.ports()[0]);
    let client = Client::new(EtcdDriver::connect(&url).await.unwrap());
    for _ in 0..3 {
        client.lock("x").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn prefixes_do_not_meet() {
    let cluster = server();
    let at = |prefix: &str| {
        let config = cluster.url().parse::<EtcdConfig>().unwrap().prefix(prefix).unwrap();
        Client::new(EtcdDriver::new(config))
    };
    let (one, two) = (at("one"), at("one/two"));
    let _one = one.lock("x").try_acquire().await.unwrap().unwrap();
    let _two = two.lock("x").try_acquire().await.unwrap().unwrap();
    assert!(at("one").lock("x").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn no_prefix_reaches_into_the_names_of_another() {
    let cluster = server();
    let at = |prefix: &str| {
        let config = cluster.url().parse::<EtcdConfig>().unwrap().prefix(prefix).unwrap();
        Client::new(EtcdDriver::new(config))
    };
    let (outer, inner, me) = (at("shop"), at("shop/orders"), OwnerId::new());
    let mut held = Vec::new();
    // Keys of the one that look like parts of the other's locks, and the other way round.
    for name in ["wait", "hold", "orders"] {
        held.push(inner.lock(name).try_acquire().await.unwrap().expect(name));
    }
    for name in ["orders", "orders/wait", "orders/hold", "orders:queue"] {
        held.push(outer.lock(name).try_acquire().await.unwrap().expect(name));
    }
    let _entered = inner.reentrant("wait/re", &me).try_acquire().await.unwrap().unwrap();
    assert_eq!(outer.lock("orders").inspect().await.unwrap().waiters, 0);
    // A waiter of each, and a queue whose root begins as a lock of the outer prefix does.
    let waiting = [inner.lock("wait"), outer.lock("orders")];
    let waiting = waiting.map(|lock| tokio::spawn(async move { lock.acquire_within(PATIENCE).await }));
    let queue = inner.queue_of_bytes("x").unwrap();
    queue.push(&b"message".to_vec()).await.unwrap();
    assert_eq!(queue.stats().await.unwrap().ready, 1);
    for (client, name) in [(&inner, "wait"), (&outer, "orders")] {
        let lock = client.lock(name);
        until("it waits", async || lock.inspect().await.unwrap().waiters == 1).await;
    }
    for guard in held {
        guard.release().await.unwrap();
    }
    for waiting in waiting {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(queue.stats().await.unwrap().ready, 1);
}

#[tokio::test]
async fn credentials_are_used_and_their_refusal_is_said() {
    let cluster = server();
    let mut etcd = raw(&cluster).await;
    etcd.user_add("root", "rootpw", None).await.unwrap();
    etcd.user_grant_role("root", "root").await.unwrap();
    etcd.role_add("app").await.unwrap();
    let range = Permission::read_write("tenure/").with_prefix();
    etcd.role_grant_permission("app", range).await.unwrap();
    etcd.user_add("app", "s3cret", None).await.unwrap();
    etcd.user_grant_role("app", "app").await.unwrap();
    etcd.auth_enable().await.unwrap();
    let at =
        |user: &str, query: &str| format!("{}/{query}", cluster.url()).replace("etcd://", &format!("etcd://{user}"));
    let client = Client::new(EtcdDriver::connect(&at("app:s3cret@", "")).await.unwrap());
    let held = client.lock("x").acquire().await.unwrap();
    let waiting = client.lock("x");
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    until("it waits", async || client.lock("x").inspect().await.unwrap().waiters == 1).await;
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    for url in [at("app:wrong@", ""), at("nobody:x@", ""), at("", ""), at("app:s3cret@", "?prefix=other")] {
        let error = EtcdDriver::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

/// A free lock needs its own keys alone. Whoever waits watches all of them.
#[tokio::test]
async fn waiting_without_the_right_to_read_the_prefix_is_denied() {
    let cluster = server();
    let mut etcd = raw(&cluster).await;
    etcd.user_add("root", "rootpw", None).await.unwrap();
    etcd.user_grant_role("root", "root").await.unwrap();
    etcd.role_add("app").await.unwrap();
    for part in ["tenure/x/", "tenure/%/"] {
        etcd.role_grant_permission("app", Permission::read_write(part).with_prefix()).await.unwrap();
    }
    etcd.user_add("app", "s3cret", None).await.unwrap();
    etcd.user_grant_role("app", "app").await.unwrap();
    etcd.auth_enable().await.unwrap();
    let url = cluster.url().replace("etcd://", "etcd://app:s3cret@");
    let client = Client::new(EtcdDriver::new(url.parse().unwrap()));
    let held = client.lock("x").acquire().await.unwrap();
    let error = client.lock("x").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("needs to read the prefix"), "{error}");
    held.release().await.unwrap();
}

#[test]
fn a_driver_outlives_the_runtime_that_it_was_first_used_on() {
    let cluster = server();
    let client = client(&cluster);
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let held = client.lock("x").acquire().await.unwrap();
            let waiting = client.lock("x");
            let waiter = tokio::spawn(async move { waiting.acquire().await });
            until("it waits", async || client.lock("x").inspect().await.unwrap().waiters == 1).await;
            held.release().await.unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        });
    }
}
