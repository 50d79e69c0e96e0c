//! A hold of permits that changes its weight.
//!
//! A part that is given back counts as given back from the moment that its request leaves; the reaper repeats the
//! request until the backend has acknowledged it. More is asked for until it fits, as a waiter asks for a lock; the hold
//! is renewed meanwhile. The changes of a hold are numbered, so that a request that arrives late has no effect.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::driver::{Acquisition, Busy, ErrorExt as _, PermitChange, PermitHold, Permits, Share, Waiting, Watch};
use crate::engine::hold::HeldEntry;
use crate::engine::lease::LeaseKey;
use crate::engine::reaper::Cleanup;
use crate::engine::shared::Counted;
use crate::engine::wait::{Patience, Pause};
use crate::telemetry;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::time::{LeaseInstant, LostReason};

/// A part that is given back, without an acknowledgement yet; dropped, the reaper takes it over.
struct Unacknowledged<'a> {
    hold: &'a HeldEntry,
    to: Share,
    step: u32,
    is_known: bool,
}

impl Drop for Unacknowledged<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            self.hold.give_back_part(self.to, self.step);
        }
    }
}

impl HeldEntry {
    fn permits(&self) -> Result<(&dyn Permits, PermitHold)> {
        let permits = self.shared().backend.required_permits()?;
        match &self.lease().key {
            LeaseKey::Permits(hold) => Ok((&**permits, (**hold).clone())),
            LeaseKey::Plain(_) | LeaseKey::Reentrant(_) => {
                Err(Error::new(ErrorKind::Protocol, "a lock has no weight to change"))
            }
        }
    }

    /// Leaves a part to the reaper, which gives it back.
    fn give_back_part(&self, to: Share, step: u32) {
        self.shared().reaper.push(Cleanup::of_part(self.lease(), *self.token(), to, step));
    }

    /// Gives back all but this share. Fails only if the hold is lost.
    pub(crate) async fn shrink(&self, to: Share, step: u32, operation: &'static str) -> Result<()> {
        self.check()?;
        let (permits, hold) = self.permits()?;
        // Before the first await: dropped from here on, the request becomes the reaper's.
        let mut unacknowledged = Unacknowledged { hold: self, to, step, is_known: false };
        let limit = self.shared().config.op_timeout;
        let Ok(pass) = self.shared().giving.enter(limit, None).await else { return Ok(()) };
        let change = PermitChange::new(hold, to, step);
        match pass.answer(limit, permits.resize(&change)).await {
            Some(Ok(_)) => unacknowledged.is_known = true,
            Some(Err(error)) if error.kind() == ErrorKind::NotHeld => {
                unacknowledged.is_known = true;
                return Err(self.is_gone(operation));
            }
            Some(Err(_)) | None => {}
        }
        Ok(())
    }

    /// Takes more, as long as `patience` lasts: a share that replaces the present one, with a new fence. Without it
    /// nothing has changed, and the backend forgets the request under the number after `step`.
    pub(crate) async fn grow(&self, from: Share, to: Share, step: u32, patience: Patience) -> Result<()> {
        let started = LeaseInstant::now();
        let grown = Growth::new(self, to, step, patience)?.run().await;
        match &grown {
            Ok(()) => telemetry::granted(self.lease().name(), self.fence(), started),
            Err(error) if error.is_lost() => {}
            Err(_) => self.give_back_part(from, step + 1),
        }
        grown.map_err(|error| error.during(self.driver(), "upgrade", self.lease().name()))
    }

    /// The backend has proved that the hold is lost.
    fn is_gone(&self, operation: &'static str) -> Error {
        if self.lease().lose(LostReason::Gone) {
            telemetry::lost(self.lease().name(), self.fence(), LostReason::Gone);
            self.shared().meters.lost(self.lease().name(), LostReason::Gone);
        }
        self.lost_during(operation, self.lease().state())
    }
}

/// A hold that asks for more.
struct Growth<'a> {
    hold: &'a HeldEntry,
    permits: &'a dyn Permits,
    change: PermitChange,
    started: LeaseInstant,
    deadline: Option<LeaseInstant>,
    watch: Option<Watch>,
    pause: Pause,
    last_error: Option<Error>,
}

impl<'a> Growth<'a> {
    fn new(hold: &'a HeldEntry, to: Share, step: u32, patience: Patience) -> Result<Self> {
        hold.check()?;
        let ((permits, held), started) = (hold.permits()?, LeaseInstant::now());
        let deadline = match patience {
            Patience::None | Patience::Within(Duration::ZERO) => Some(started),
            Patience::Within(most) => Some(started.after(most)),
            Patience::Unlimited => None,
        };
        let waits = deadline != Some(started);
        let presence = hold.shared().config.presence;
        let change = PermitChange::new(held, to, step).with_presence(waits.then_some(presence));
        let (watch, pause) = (None, Pause::default());
        Ok(Self { hold, permits, change, started, deadline, watch, pause, last_error: None })
    }

    async fn run(mut self) -> Result<()> {
        let _counted = Counted::new(&self.hold.shared().waiters);
        if self.change.presence.is_some() && self.permits.capabilities().waiting != Waiting::Poll {
            // Before the first request: a wake-up between a busy answer and a later subscription would be missed.
            self.watch = Some(self.listen().await?);
        }
        loop {
            let pause = match self.ask().await {
                Ok(Acquisition::Granted(grant)) => {
                    self.hold.lease().raise_fence(grant.fence);
                    return self.hold.check();
                }
                Ok(Acquisition::Busy(busy)) => {
                    self.last_error = None;
                    self.after_busy(&busy)
                }
                Err(error) if error.kind() == ErrorKind::NotHeld => return Err(self.hold.is_gone("upgrade")),
                Err(error) if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
                    return Err(error);
                }
                Err(error) => {
                    telemetry::wait_disturbed(self.hold.lease().name(), &error);
                    self.last_error = Some(error);
                    self.pause.outage()
                }
            };
            self.sleep(pause).await?;
        }
    }

    async fn listen(&mut self) -> Result<Watch> {
        let limit = self.hold.shared().config.op_timeout;
        match tokio::time::timeout(limit, self.permits.watch(&self.change.hold)).await {
            Ok(watch) => watch,
            Err(_) => {
                let text = format!("subscribing to wake-ups timed out after {limit:?}; no request was sent");
                Err(Error::new(ErrorKind::Unavailable, text))
            }
        }
    }

    async fn ask(&mut self) -> Result<Acquisition> {
        let shared = self.hold.shared();
        let limit = shared.config.op_timeout;
        let pass = shared.taking.enter(limit, self.deadline.filter(|_| self.change.presence.is_some())).await?;
        let answer = pass.answer(limit, self.permits.resize(&self.change)).await;
        let unanswered = || Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}")));
        let answer = answer.unwrap_or_else(unanswered)?;
        shared.answers.fetch_add(1, Ordering::Relaxed);
        Ok(answer)
    }

    fn after_busy(&mut self, busy: &Busy) -> Duration {
        let fallback = match (self.change.presence, &self.watch) {
            (Some(presence), Some(_)) => presence / 3,
            _ => self.pause.polling(),
        };
        // A millisecond on top: expiry is noticed after it, not before.
        busy.recheck_after.map_or(fallback, |after| fallback.min(after + Duration::from_millis(1)))
    }

    /// Sleeps until there is a reason to ask again.
    async fn sleep(&mut self, pause: Duration) -> Result<()> {
        let left = self.deadline.map_or(Duration::MAX, LeaseInstant::remaining);
        if left.is_zero() {
            return Err(self.timed_out());
        }
        let signal = async {
            match &mut self.watch {
                Some(watch) => drop(watch.next().await),
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.hold.lease().lost() => {}
            () = signal => {}
            () = tokio::time::sleep(pause.min(left)) => {}
        }
        self.hold.check()?;
        if self.deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
            return Err(self.timed_out());
        }
        Ok(())
    }

    fn timed_out(&mut self) -> Error {
        let error = Error::new(ErrorKind::TimedOut, format!("waited {:?}", LeaseInstant::now().since(self.started)));
        match self.last_error.take() {
            Some(last) if self.change.presence.is_none() => last,
            Some(last) => error.with_source(last),
            None => error,
        }
    }
}
