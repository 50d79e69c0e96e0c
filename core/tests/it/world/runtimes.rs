//! The runtimes that carry a world, one after the other, on one virtual clock.

use std::mem;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance};

/// The runtime of this moment.
#[derive(Debug)]
pub(crate) struct Runtimes {
    current: Runtime,
    /// A mistake: runtimes that have ended keep what they carry, and run it no more.
    freezes: bool,
}

impl Runtimes {
    /// Plays the same for each seed.
    pub(crate) fn new(seed: u64, freezes: bool) -> Self {
        fastrand::seed(seed);
        Self { current: runtime(), freezes }
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.current.block_on(future)
    }

    /// Ends the runtime with all that it carries. After a pause another one begins, where the clock of the last one was.
    pub(crate) fn end(&mut self, pause: Duration) {
        let ended_at = self.current.block_on(async { Instant::now() });
        let ended = mem::replace(&mut self.current, runtime());
        if self.freezes {
            mem::forget(ended);
        } else {
            drop(ended);
        }
        self.current.block_on(async {
            let begins_at = ended_at + pause;
            advance(begins_at.saturating_duration_since(Instant::now())).await;
        });
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}
