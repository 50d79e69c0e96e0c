//! A subscriber of `tracing` that keeps all reports.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps spans and events of the targets that begin with a word, each as a line: name, level, and ` field=value` for each
/// field. Clones share the lines.
#[derive(Clone, Debug)]
pub struct Recorder {
    target: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// Keeps the reports of targets that begin with `target`.
    #[must_use]
    pub fn of(target: &'static str) -> Self {
        Self { target, lines: Arc::default() }
    }

    /// Everything that was reported, in order.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The reports under this name.
    #[must_use]
    pub fn lines_of(&self, name: &str) -> Vec<String> {
        self.lines().into_iter().filter(|line| line.split(' ').next() == Some(name)).collect()
    }

    fn keep(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        let mut line = Line(format!("{} {}", metadata.name(), metadata.level()));
        record(&mut line);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(self.target)
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
