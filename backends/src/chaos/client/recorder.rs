//! The log of a client process.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_conformance::{BoxError, worker::monotonic};

use crate::chaos::event::{Event, Origin, What};

/// Writes each event as soon as it is noted, whole: a kill loses no event that was noted before.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    file: Arc<Mutex<File>>,
    process: usize,
    life: u32,
}

impl Recorder {
    pub(super) fn create(path: &Path, process: usize, life: u32) -> Result<Self, BoxError> {
        Ok(Self { file: Arc::new(Mutex::new(File::create(path)?)), process, life })
    }

    /// The events of one operation of a task.
    pub(crate) fn of(&self, task: u32, op: u64) -> Origin {
        Origin { process: self.process, life: self.life, task, op }
    }

    pub(super) fn of_process(&self, what: What) -> Result<(), BoxError> {
        self.note(monotonic(), self.of(0, 0), "-", what)
    }

    pub(crate) fn note(&self, at: Duration, by: Origin, name: &str, what: What) -> Result<(), BoxError> {
        let line = format!("{}\n", Event { at, by, name: name.into(), what });
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.write_all(line.as_bytes())?)
    }
}

pub(crate) fn failed(error: &tenure::Error) -> What {
    What::Failed { kind: format!("{:?}", error.kind()), text: error.to_string() }
}
