//! One hold: what its task sees of it from the grant to its end.

use std::time::Duration;

use tenure::Reentrant;
use tenure_conformance::{BoxError, Rng, poll, worker::monotonic};
use tokio::sync::watch;

use super::holding::Holding;
use super::recorder::{Recorder, failed};
use crate::chaos::event::{Origin, What};

/// How long an entry that is made once more may be waited for.
const NESTED: Duration = Duration::from_secs(2);

/// How the holder learns of a loss.
#[derive(Clone, Copy, Debug)]
pub(super) enum View {
    /// It looks every now and then.
    Looked,
    /// Its work runs under the guard.
    Worked,
    /// It waits for the notification.
    Listened,
}

pub(super) struct Turn<'a> {
    pub(super) recorder: &'a Recorder,
    pub(super) calm: watch::Receiver<bool>,
    pub(super) by: Origin,
    pub(super) name: &'a str,
    pub(super) span: Duration,
    pub(super) look: Duration,
    /// Whether the end of the faults ends it.
    pub(super) until_calm: bool,
}

impl Turn<'_> {
    fn note(&self, at: Duration, what: What) -> Result<(), BoxError> {
        self.recorder.note(at, self.by, self.name, what)
    }

    /// The clock is read before the guard: what the guard then says was true at that instant as well, since a loss is
    /// final, and its view ends no earlier than is written down.
    pub(super) fn granted(&self, holding: Holding) -> Result<Holding, BoxError> {
        let now = monotonic();
        self.note(now, What::Granted { fence: holding.fence(), until: now + holding.remaining() })?;
        Ok(holding)
    }

    /// Whether it is still held, as of the instant that is written down.
    fn looks(&self, holding: &Holding) -> Result<bool, BoxError> {
        let now = monotonic();
        let until = now + holding.remaining();
        if !holding.is_held() {
            return Ok(false);
        }
        self.note(now, What::Held { until })?;
        Ok(true)
    }

    /// Enters once more, and leaves at once. Gives up when the held entry is lost: this task is notified, and
    /// has to write that down.
    pub(super) async fn nested(
        &self,
        held: &Holding,
        lock: &Reentrant,
        by: Origin,
        span: Duration,
    ) -> Result<(), BoxError> {
        let inner = Turn { recorder: self.recorder, calm: self.calm.clone(), by, ..*self };
        inner.note(monotonic(), What::Asked { how: "nested", inside: Some(self.by.op) })?;
        let answer = tokio::select! {
            biased;
            answer = lock.acquire_within(NESTED) => answer,
            _ = held.lost() => return inner.note(monotonic(), What::GaveUp),
        };
        match answer {
            Ok(guard) => {
                let holding = inner.granted(Holding::Entry(guard))?;
                tokio::time::sleep(span).await;
                inner.looks(&holding)?;
                inner.leaving("release", &holding)?;
                let outcome = holding.release().await;
                inner.left(outcome)
            }
            Err(error) => inner.note(monotonic(), failed(&error)),
        }
    }

    /// Holds it for its span, or until it is lost, or until the faults have ended.
    pub(super) async fn hold(&self, holding: &Holding, view: View) -> Result<(), BoxError> {
        let is_kept = match view {
            View::Looked => self.hold_and_look(holding).await?,
            View::Worked => match holding.run(self.work(holding)).await {
                Ok(worked) => worked?,
                Err(_) => false,
            },
            View::Listened => tokio::select! {
                _ = holding.lost() => false,
                () = self.ends(self.span) => true,
            },
        };
        if is_kept { Ok(()) } else { self.note(monotonic(), What::Lost { expired: holding.is_expired() }) }
    }

    async fn ends(&self, span: Duration) {
        let mut calm = self.calm.clone();
        let _either = tokio::time::timeout(span, async {
            if !self.until_calm || calm.wait_for(|calm| *calm).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
        .await;
    }

    fn is_over(&self, began: Duration) -> bool {
        monotonic() >= began + self.span || (self.until_calm && *self.calm.borrow())
    }

    async fn hold_and_look(&self, holding: &Holding) -> Result<bool, BoxError> {
        let began = monotonic();
        while !self.is_over(began) {
            tokio::select! {
                _ = holding.lost() => {}
                () = tokio::time::sleep(self.look) => {}
            }
            if !self.looks(holding)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Work that notes that it still runs. The guard drops it when the lease ends.
    async fn work(&self, holding: &Holding) -> Result<bool, BoxError> {
        let began = monotonic();
        while !self.is_over(began) {
            tokio::time::sleep(self.look).await;
            if !self.looks(holding)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leaving(&self, how: &'static str, holding: &Holding) -> Result<(), BoxError> {
        let now = monotonic();
        self.note(now, What::Leaving { how, held: holding.is_held() })
    }

    fn left(&self, outcome: tenure::Result<String>) -> Result<(), BoxError> {
        let now = monotonic();
        match outcome {
            Ok(answer) => self.note(now, What::Left { answer }),
            Err(error) => self.note(now, failed(&error)),
        }
    }

    /// Gives it back in one of the three ways.
    pub(super) async fn leave(&self, holding: Holding, rng: &mut Rng) -> Result<(), BoxError> {
        match rng.below(100) {
            0..=69 => {
                self.leaving("release", &holding)?;
                let outcome = holding.release().await;
                self.left(outcome)
            }
            70..=84 => {
                self.leaving("drop", &holding)?;
                drop(holding);
                Ok(())
            }
            _ => {
                self.leaving("abort", &holding)?;
                let count = 1 + rng.below(3) as usize;
                match poll::at_most(count, holding.release()).await {
                    Some(outcome) => self.left(outcome),
                    None => Ok(()),
                }
            }
        }
    }
}
