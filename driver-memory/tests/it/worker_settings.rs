//! What a worker is told, and how it ends, over the memory driver, on a paused clock.

use std::time::Duration;

use tenure_core::queue::{Job, Queue, Worker, WorkerBuilder};
use tenure_core::{Client, ErrorKind};
use tenure_memory::MemoryDriver;
use tokio::sync::mpsc;

fn queue() -> (Client, Queue<String>) {
    let client = Client::new(MemoryDriver::new());
    let queue = client.queue_with("jobs", tenure_core::queue::Text).unwrap();
    (client, queue)
}

fn refused(worker: WorkerBuilder<String>) -> ErrorKind {
    worker.start(|_: Job<String>| async {}).map(|_| ()).unwrap_err().kind()
}

/// A worker whose handlers tell that they began, and never end.
fn stuck(queue: &Queue<String>) -> (Worker, mpsc::UnboundedReceiver<String>) {
    let (tell, begun) = mpsc::unbounded_channel();
    let worker = queue.worker().start(move |job: Job<String>| {
        let _sent = tell.send(job.value);
        std::future::pending::<()>()
    });
    (worker.unwrap(), begun)
}

#[tokio::test(start_paused = true)]
async fn settings_are_checked_at_the_start() {
    let (client, queue) = queue();
    let century = Duration::from_secs(100 * 366 * 86_400);
    assert_eq!(refused(queue.worker().concurrency(0)), ErrorKind::InvalidArgument);
    assert_eq!(refused(queue.worker().lock_back_off(century)), ErrorKind::InvalidArgument);
    assert_eq!(refused(queue.worker().lock_ttl(Duration::from_millis(1))), ErrorKind::InvalidArgument);
    assert_eq!(refused(queue.clone().lease(Duration::ZERO).worker()), ErrorKind::InvalidArgument);
    client.close(Duration::ZERO).await.unwrap();
    assert_eq!(refused(queue.worker()), ErrorKind::Closed);
}

#[test]
fn a_worker_needs_a_runtime() {
    let (_, queue) = queue();
    assert_eq!(refused(queue.worker()), ErrorKind::InvalidArgument);
}

#[test]
fn a_builder_says_what_it_was_given() {
    let text = format!("{:?}", queue().1.worker().concurrency(7).lock_by(|_| Some("account")));
    assert!(text.contains("jobs") && text.contains('7'), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_abort_returns_what_is_in_hand_and_counts_no_attempt() {
    let (_, queue) = queue();
    queue.push(&"x".into()).await.unwrap();
    let (worker, mut begun) = stuck(&queue);
    begun.recv().await.unwrap();
    assert_eq!((worker.stats().returned, worker.stats().handled), (0, 0));
    assert_eq!(worker.abort().await.returned, 1);
    assert_eq!(queue.try_receive().await.unwrap().unwrap().attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_ends_with_its_client() {
    let (client, queue) = queue();
    let (mut worker, _begun) = stuck(&queue);
    let still = tokio::time::timeout(Duration::from_secs(60), worker.join()).await;
    assert!(still.is_err(), "it ended by itself");
    client.close(Duration::from_secs(1)).await.unwrap();
    worker.join().await.unwrap();
    worker.join().await.unwrap(); // may be asked again
}
