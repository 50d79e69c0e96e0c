//! The layer that serves each request under a lock.

#![cfg(all(feature = "tower", feature = "memory"))]

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use tenure::memory::MemoryDriver;
use tenure::tower::{LockLayer, Refused};
use tenure::{Client, ErrorKind, FencingToken};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService as Boxed;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

type Served = Result<&'static str, BoxError>;
type Layer = LockLayer<Request<()>, &'static str, BoxError>;

/// Locks by the path; a path of `free` has none.
fn layer(client: &Client) -> Layer {
    let client = client.clone();
    let lock = move |request: &Request<()>| {
        let name = request.uri().path().trim_start_matches('/');
        (name != "free").then(|| client.lock(name))
    };
    LockLayer::new(lock, |refused| Err(refused.into()))
}

fn get(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

async fn ask<S>(service: &S, path: &str) -> Served
where
    S: Service<Request<()>, Response = &'static str, Error = BoxError> + Clone,
{
    service.clone().ready().await?.call(get(path)).await
}

fn refused(served: Served) -> Refused {
    *served.unwrap_err().downcast::<Refused>().expect("refused")
}

/// Works for a second.
fn one_second(layer: Layer) -> Boxed<Request<()>, &'static str, BoxError> {
    let work = service_fn(async |_| {
        sleep(Duration::from_secs(1)).await;
        Served::Ok("done")
    });
    Boxed::new(ServiceBuilder::new().layer(layer).service(work))
}

#[tokio::test(start_paused = true)]
async fn a_second_request_of_one_name_is_refused_at_once_and_served_after_the_first() {
    let client = Client::new(MemoryDriver::new());
    let service = one_second(layer(&client));
    let start = Instant::now();
    let (first, second, other, free) = tokio::join!(
        ask(&service, "/a"),
        async {
            let served = ask(&service, "/a").await;
            assert_eq!(start.elapsed(), Duration::ZERO);
            served
        },
        ask(&service, "/b"),
        async {
            let (one, two) = tokio::join!(ask(&service, "/free"), ask(&service, "/free"));
            one.and(two)
        },
    );
    assert_eq!((first.unwrap(), other.unwrap(), free.unwrap()), ("done", "done", "done"));
    let refused = refused(second);
    assert!(matches!(&refused, Refused::Busy(name) if name.as_bytes() == b"a"), "{refused:?}");
    assert_eq!(refused.to_string(), "the lock a is taken");
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert!(client.lock("a").try_acquire().await.unwrap().is_some(), "it was given back before the answer");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_as_long_as_the_layer_does() {
    let client = Client::new(MemoryDriver::new());
    let service = one_second(layer(&client).wait(Duration::from_millis(1500)));
    let start = Instant::now();
    let (first, second, third) = tokio::join!(ask(&service, "/a"), ask(&service, "/a"), async {
        let served = ask(&service, "/a").await;
        (served, start.elapsed())
    });
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(start.elapsed(), Duration::from_secs(2), "one after the other");
    let (third, told_after) = third;
    assert!(matches!(refused(third), Refused::TimedOut(error) if error.is_timed_out()));
    assert!(told_after >= Duration::from_millis(1500) && told_after < Duration::from_secs(2), "{told_after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_fence_and_more_are_in_the_request() {
    let client = Client::new(MemoryDriver::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&seen);
    let work = service_fn(move |request: Request<()>| {
        let fence = request.extensions().get::<FencingToken>().copied();
        reported.lock().unwrap().push((fence, request.extensions().get::<bool>().copied()));
        std::future::ready(Served::Ok("done"))
    });
    let held = |request: &mut Request<()>, guard: &tenure::LockGuard| {
        request.extensions_mut().insert(guard.is_held());
    };
    let service = ServiceBuilder::new().layer(layer(&client).insert_fence().insert(held)).service(work);
    for path in ["/a", "/a", "/free"] {
        ask(&service, path).await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert!(seen[0].0.is_some() && seen[1].0 > seen[0].0, "{seen:?}");
    assert_eq!((seen[1].1, seen[2]), (Some(true), (None, None)));
}

/// Counts what is alive.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Works until it is dropped.
fn endless(layer: Layer, alive: &Arc<AtomicUsize>) -> Boxed<Request<()>, &'static str, BoxError> {
    let alive = Arc::clone(alive);
    let work = service_fn(move |_| {
        let alive = Alive::new(&alive);
        async move {
            let _alive = alive;
            pending::<Served>().await
        }
    });
    Boxed::new(ServiceBuilder::new().layer(layer).service(work))
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_its_lease_ends() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    let alive = Arc::new(AtomicUsize::new(0));
    let service = endless(layer(&client), &alive);
    let start = Instant::now();
    let cut = async {
        sleep(Duration::from_secs(60)).await;
        assert_eq!(alive.load(Ordering::SeqCst), 1, "it is renewed meanwhile");
        driver.faults().outage();
    };
    let (served, ()) = tokio::join!(ask(&service, "/a"), cut);
    assert!(matches!(refused(served), Refused::Lost(error) if error.is_lost()));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(start.elapsed() < Duration::from_secs(92), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_the_release_finds_is_reported() {
    let driver = MemoryDriver::new();
    let (client, operator) = (Client::new(driver.clone()), Client::new(driver.another_client()));
    let service = one_second(layer(&client));
    let force = async {
        sleep(Duration::from_millis(500)).await;
        operator.lock("a").force_release().await.unwrap();
    };
    let (served, ()) = tokio::join!(ask(&service, "/a"), force);
    assert!(matches!(refused(served), Refused::Lost(error) if error.is_lost()));
}

#[tokio::test(start_paused = true)]
async fn what_fails_before_the_service_is_distinguished() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    let service = one_second(layer(&client));
    let failed = |served| match refused(served) {
        Refused::Failed(error) => error.kind(),
        other => panic!("{other:?}"),
    };
    assert_eq!(failed(ask(&service, "/").await), ErrorKind::InvalidArgument, "an empty name");
    driver.faults().outage();
    assert_eq!(failed(ask(&service, "/a").await), ErrorKind::Unavailable);
    driver.faults().heal();
    assert!(ask(&service, "/a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_leaves_neither_lock_nor_waiter_nor_work() {
    let driver = MemoryDriver::new();
    let alive = Arc::new(AtomicUsize::new(0));
    for polls in 1..12_u64 {
        let client = Client::new(driver.another_client());
        let service = endless(layer(&client).wait(Duration::from_secs(60)), &alive);
        let holder = (polls % 2 == 0).then(|| Client::new(driver.another_client()));
        let held = match &holder {
            Some(holder) => Some(holder.lock("a").acquire().await.unwrap()),
            None => None,
        };
        let request = tokio::spawn({
            let service = service.clone();
            async move { ask(&service, "/a").await }
        });
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        drop(held);
        let next = Client::new(driver.another_client());
        let guard = next.lock("a").acquire_within(Duration::from_secs(1)).await.expect("it is free");
        guard.release().await.unwrap();
        assert_eq!(alive.load(Ordering::SeqCst), 0, "after {polls} polls");
        client.close(Duration::from_secs(1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn errors_and_readiness_of_the_inner_service_pass_through() {
    let client = Client::new(MemoryDriver::new());
    let work = service_fn(async |_| {
        sleep(Duration::from_secs(1)).await;
        Served::Err("broken".into())
    });
    // A service that panics when it is called without a place.
    let service = ServiceBuilder::new().layer(layer(&client)).concurrency_limit(1).service(work);
    let start = Instant::now();
    let (one, other) = tokio::join!(ask(&service, "/a"), ask(&service, "/b"));
    for served in [one, other] {
        assert_eq!(served.unwrap_err().to_string(), "broken");
    }
    assert_eq!(start.elapsed(), Duration::from_secs(2), "the second one waited for its place");
    assert_eq!(client.stats().holds, 0);
}
