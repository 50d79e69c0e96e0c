//! A renewal on its way: before it is answered nothing else leaves for its lease, so that it cannot arrive behind a release. Its
//! time is bounded by the clock, since whoever sent it may not be polled any more.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::entry::{Entry, Past};
use super::lease::Lease;
use super::lease_state::Verdict;
use crate::alarm;
use crate::value::clock::LeaseInstant;
use crate::value::hold_state::{HoldState, LostReason};

/// Dropped, nothing is known of it.
#[derive(Debug)]
pub(super) struct Renewing {
    lease: Arc<Lease>,
    until: LeaseInstant,
}

impl Renewing {
    /// One that the lease [found to be due](Lease::due).
    pub(super) fn due(lease: Arc<Lease>, until: LeaseInstant) -> Self {
        Self { lease, until }
    }

    /// One that takes at most `limit` and may make the lease last for `ttl`, once no other is on its way.
    pub(super) async fn begin(lease: &Arc<Lease>, ttl: Duration, limit: Duration) -> Self {
        loop {
            quiet(lease).await;
            let (mut state, now) = (lease.lock(), LeaseInstant::now());
            if state.on_its_way(now).is_none() {
                let until = now.after(limit);
                state.begin_renewal(until, ttl);
                return Self { lease: Arc::clone(lease), until };
            }
        }
    }

    pub(super) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(super) fn until(&self) -> LeaseInstant {
        self.until
    }

    /// Takes in the answer. Tells the loss that it proved, with the entries that a request may still be on its way for: those
    /// are to be undone all the same.
    pub(super) fn answered(self, verdict: Verdict) -> Option<(LostReason, Vec<Entry>)> {
        let (mut state, now) = (self.lease.lock(), LeaseInstant::now());
        let in_time = state.end_renewal(self.until);
        if !matches!(self.lease.observe_at(&mut state, now), HoldState::Held | HoldState::Suspect) {
            return None;
        }
        match verdict {
            Verdict::Confirmed { sent_at, believable } => {
                state.deadline = state.deadline.max(sent_at.after(believable));
                if in_time {
                    state.phase = HoldState::Held;
                    state.plan_renewal(sent_at, now);
                }
            }
            Verdict::Unknown if in_time => {
                state.phase = HoldState::Suspect;
                state.plan_retry(now);
            }
            Verdict::Unknown => {} // the next one is on its way, or was answered
            Verdict::Lost => {
                let mut entries = state.entries.take();
                entries.retain(|entry| entry.past == Past::Unanswered);
                self.lease.end(&mut state, HoldState::Lost(LostReason::Gone));
                return Some((LostReason::Gone, entries));
            }
        }
        None
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.lease.lock().end_renewal(self.until);
    }
}

/// Waits for the answer to a renewal until its time is over, and does not poll it afterwards: it could leave behind a release.
pub(super) async fn in_time<T>(until: LeaseInstant, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    let polled = poll_fn(|cx| {
        if until.remaining().is_zero() {
            return Poll::Ready(None);
        }
        call.as_mut().poll(cx).map(Some)
    });
    alarm::timeout(until.remaining(), polled).await.flatten()
}

/// Waits until no renewal is on its way, so that none can arrive behind the release that follows.
pub(super) async fn quiet(lease: &Lease) {
    loop {
        let changes = lease.changes();
        let changed = changes.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let Some(until) = lease.lock().on_its_way(LeaseInstant::now()) else { return };
        tokio::select! {
            () = changed => {}
            () = until.reached() => return,
        }
    }
}
