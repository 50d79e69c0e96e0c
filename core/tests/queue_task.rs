//! The requests of a queue and its task: in which order they leave, which answers count, what closing waits for, and when the
//! task ends.

mod queue_stage;

use queue_stage::{ms, staged};
use tenure_memory::Operation;
use tokio::time::timeout;

#[test]
fn closing_waits_for_no_receive_that_ended_with_its_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (_, memory, client, queue) = staged();
    memory.faults().hang_next(Operation::Receive);
    runtime().block_on(async { assert!(timeout(ms(10), queue.receive()).await.is_err(), "it is on its way") });
    runtime().block_on(client.close(ms(1_000))).unwrap();
}
