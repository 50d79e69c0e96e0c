//! With the feature `tracing`, the driver tells of nodes that somebody has to mend.

#![cfg(feature = "tracing")]

mod common;

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use common::{Nodes, attempt, grant, quiet};
use tenure_core::ErrorKind;
use tenure_memory::Operation;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps what the driver reports: level, name and fields.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure_redlock")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} {}", event.metadata().level(), event.metadata().name()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_until_it_is_mended_is_told_of_once() {
    let recorder = Recorder::default();
    let _reporting = tracing::subscriber::set_default(recorder.clone());
    let told = || recorder.0.lock().unwrap().clone();
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let take = async || {
        grant(&driver, &attempt(&format!("lock {:?}", tokio::time::Instant::now()))).await;
        quiet(&driver).await;
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
    };
    links[1].faults().fail_next(Operation::Acquire, ErrorKind::Unavailable);
    take().await;
    assert!(told().is_empty(), "an outage passes: {:?}", told());
    for _ in 0..2 {
        links[1].faults().fail_next(Operation::Acquire, ErrorKind::Misconfigured);
        take().await;
    }
    assert_eq!(told().len(), 1, "{:?}", told());
    assert!(told()[0].starts_with("WARN tenure.node_unfit node=\"n1\" error="), "{:?}", told());
    take().await;
    links[1].faults().fail_next(Operation::Acquire, ErrorKind::Denied);
    take().await;
    assert_eq!(told().len(), 2, "it had voted in between");
}
