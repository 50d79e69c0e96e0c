//! With the feature `tracing`, the engine reports under the names that `tenure_core::telemetry` documents.

#![cfg(feature = "tracing")]

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::Client;
use tenure_memory::{MemoryDriver, Operation};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the name and the fields of everything reported.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Recorder {
    fn keep(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        let mut line = Line(metadata.name().to_owned());
        record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.split(' ').next() == Some(name)).cloned().collect()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.keep(span.metadata(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        self.keep(event.metadata(), |line| event.record(line));
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn everything_documented_is_reported_and_no_token_is() {
    let recorder = Recorder::default();
    let _reporting = tracing::subscriber::set_default(recorder.clone());
    let driver = MemoryDriver::new();
    let (faults, client) = (driver.faults(), Client::new(driver));
    let lock = client.lock("orders/42").unwrap().ttl(Duration::from_secs(30));

    // A wait that is disturbed and then granted.
    let first = lock.acquire().await.unwrap();
    let mut tokens = vec![*first.token()];
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.fail_next(Operation::Acquire, tenure_core::ErrorKind::Unavailable);
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    tokens.push(*second.token());

    // Renewals fail until the lease is lost; its release is not acknowledged until it cannot matter any more.
    faults.outage();
    second.lost().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    faults.heal();
    client.close(Duration::from_secs(600)).await.unwrap();

    for name in [
        "tenure.acquire",
        "tenure.granted",
        "tenure.lost",
        "tenure.renewal_failed",
        "tenure.wait_disturbed",
        "tenure.cleanup_retried",
        "tenure.cleanup_given_up",
    ] {
        let lines = recorder.lines(name);
        assert!(!lines.is_empty(), "{name} was not reported");
        assert!(lines.iter().all(|line| line.contains("orders/42")), "{lines:?}");
    }
    assert!(recorder.lines("tenure.lost")[0].contains("reason=Expired"));
    let all = recorder.0.lock().unwrap().join("\n");
    assert!(tokens.iter().all(|token| !all.contains(token.expose().as_str())));
}
