//! The service is asked to stop while requests and messages are in hand. The program gets a real SIGTERM.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use rustix::process::{Pid, Signal, kill_process};
use tenure::queue::{Job, Queue};
use tenure::{Client, OwnerId};
use tenure_testkit::{RedisOptions, RedisServer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};
use web_example::stopping::{Grace, run};

use crate::http::ask;

const LONG: Duration = Duration::from_secs(60);

/// The program, ended when dropped.
struct Program(Child, SocketAddr);

impl Program {
    fn start(url: &str) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_web-example"));
        program
            .env("TENURE_URL", url)
            .env("LISTEN", "127.0.0.1:0")
            .stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let line = lines.next().expect("it tells where it listens");
        let at = line
            .strip_prefix("listening on ")
            .and_then(|rest| rest.split(';').next());
        let at = at
            .and_then(|at| at.parse().ok())
            .unwrap_or_else(|| panic!("an address in {line:?}"));
        std::thread::spawn(move || lines.for_each(drop));
        Self(child, at)
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until this is so.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !so().await {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_program_that_is_terminated_answers_its_requests_and_gives_all_back()
{
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let other = tenure::connect(&server.url()).await.unwrap();
    let mut program = Program::start(&server.url());
    let at = program.1;
    let order = other.lock("orders/42");
    let guard = order.acquire().await.unwrap();
    let shipment = tokio::spawn(async move {
        ask(at, "POST", "/orders/42/shipment", "").await.0
    });
    until("the shipment waits for its order", async || {
        order.inspect().await.unwrap().waiters > 0
    })
    .await;

    program.terminate();
    until("no new connection is taken", async || {
        TcpStream::connect(at).await.is_err()
    })
    .await;
    guard.release().await.unwrap();
    assert_eq!(
        shipment.await.unwrap(),
        200,
        "a request that had arrived is answered"
    );
    until("the program ends", async || program.0.try_wait().unwrap().is_some())
        .await;
    assert!(program.0.wait().unwrap().success());
    assert!(
        order.try_acquire().await.unwrap().is_some(),
        "it does not end by its ttl"
    );
    assert_eq!(
        other
            .queue::<String>("labels")
            .unwrap()
            .admin()
            .stats()
            .await
            .unwrap()
            .in_flight,
        0
    );
}

/// Two clients of a store, a queue of the first with a message in it, and the service's address.
struct World {
    client: Client,
    other: Client,
    queue: Queue<String>,
    listener: TcpListener,
}

impl World {
    async fn new() -> Self {
        let url = format!("memory:{}", OwnerId::new());
        let (client, other) = (
            tenure::connect(&url).await.unwrap(),
            tenure::connect(&url).await.unwrap(),
        );
        let queue = client.queue("labels").unwrap();
        queue.push(&String::from("42")).await.unwrap();
        Self {
            client,
            other,
            queue,
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        }
    }

    /// A route that answers under a lock, once it may.
    fn route(&self, begun: &Arc<Notify>, end: &Arc<Notify>) -> Router {
        let (client, begun, end) =
            (self.client.clone(), Arc::clone(begun), Arc::clone(end));
        Router::new().route(
            "/",
            get(async move || {
                let guard = client.lock("report").acquire().await.unwrap();
                begun.notify_one();
                end.notified().await;
                guard.release().await.unwrap();
            }),
        )
    }
}

#[tokio::test]
async fn requests_and_messages_in_hand_end_before_the_locks() {
    let world = World::new().await;
    let [request_begun, request_end, message_begun, message_end] =
        [(); 4].map(|()| Arc::new(Notify::new()));
    let (begun, end) = (Arc::clone(&message_begun), Arc::clone(&message_end));
    let worker = world.queue.worker().start(move |job: Job<String>| {
        let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
        async move {
            begun.notify_one();
            job.shutting_down().await; // so the server has stopped
            end.notified().await;
        }
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let routes = world.route(&request_begun, &request_end);
    let at = world.listener.local_addr().unwrap();
    let grace = Grace { requests: LONG, messages: LONG, releases: LONG };
    let stopped = async { drop(stopped.await) };
    let service = tokio::spawn(run(
        world.listener,
        routes,
        worker.unwrap(),
        world.client,
        grace,
        stopped,
    ));
    let request = tokio::spawn(async move { ask(at, "GET", "/", "").await.0 });
    request_begun.notified().await;
    message_begun.notified().await;

    drop(stop);
    until("no new connection is taken", async || {
        TcpStream::connect(at).await.is_err()
    })
    .await;
    request_end.notify_one();
    assert_eq!(request.await.unwrap(), 200);
    message_end.notify_one();
    timeout(LONG, service).await.unwrap().unwrap().unwrap();
    assert!(world.other.lock("report").try_acquire().await.unwrap().is_some());
    let stats =
        world.other.queue::<String>("labels").unwrap().admin().stats().await;
    let stats = stats.unwrap();
    assert_eq!(
        (stats.ready, stats.in_flight, stats.dead),
        (0, 0, 0),
        "the message was handled"
    );
}

#[tokio::test]
async fn what_does_not_end_in_time_loses_its_lock_and_its_message() {
    let world = World::new().await;
    let [request_begun, message_begun] =
        [(); 2].map(|()| Arc::new(Notify::new()));
    let begun = Arc::clone(&message_begun);
    let worker = world.queue.worker().start(move |_: Job<String>| {
        begun.notify_one();
        std::future::pending::<()>()
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let routes = world.route(&request_begun, &Arc::default());
    let at = world.listener.local_addr().unwrap();
    let short = Duration::from_millis(100);
    let grace = Grace { requests: short, messages: short, releases: LONG };
    let stopped = async { drop(stopped.await) };
    let service = tokio::spawn(run(
        world.listener,
        routes,
        worker.unwrap(),
        world.client,
        grace,
        stopped,
    ));
    let _request = tokio::spawn(async move { ask(at, "GET", "/", "").await });
    request_begun.notified().await;
    message_begun.notified().await;

    drop(stop);
    timeout(LONG, service).await.unwrap().unwrap().unwrap();
    assert!(
        world.other.lock("report").try_acquire().await.unwrap().is_some(),
        "not after its ttl"
    );
    let message = world
        .other
        .queue::<String>("labels")
        .unwrap()
        .try_receive()
        .await
        .unwrap();
    assert_eq!(
        message.expect("it is returned, not after its lease").attempt(),
        1,
        "and that was no attempt"
    );
}
