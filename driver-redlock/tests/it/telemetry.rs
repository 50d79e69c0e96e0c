//! With the feature `tracing`, the driver tells of nodes that somebody has to mend.

#![cfg(feature = "tracing")]

use crate::common::{Nodes, attempt, grant, quiet};
use tenure_core::ErrorKind;
use tenure_memory::Operation;
use tenure_testkit::Recorder;

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_until_it_is_mended_is_asked_once() {
    let recorder = Recorder::of("tenure_redlock");
    let _reporting = tracing::subscriber::set_default(recorder.clone());
    let reported = || recorder.lines();
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let take = async || {
        grant(&driver, &attempt(&format!("lock {:?}", tokio::time::Instant::now()))).await;
        quiet(&driver).await;
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
    };
    links[1].faults().fail_next(Operation::Acquire, ErrorKind::Unavailable);
    take().await;
    assert!(reported().is_empty(), "an outage passes: {:?}", reported());
    for _ in 0..2 {
        links[1].faults().fail_next(Operation::Acquire, ErrorKind::Misconfigured);
        take().await;
    }
    assert_eq!(reported().len(), 1, "{:?}", reported());
    assert!(reported()[0].starts_with("tenure.node_unfit WARN node=\"n1\" error="), "{:?}", reported());
    take().await;
    links[1].faults().fail_next(Operation::Acquire, ErrorKind::Denied);
    take().await;
    assert_eq!(reported().len(), 2, "it had voted in between");
}
