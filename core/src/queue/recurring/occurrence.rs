//! One coming of a recurring message.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::plan::{Missed, Plan};
use crate::driver::{Cause, RawDelivery, Settlement};
use crate::queue::wall;
use crate::value::error::Result;
use crate::value::limits::{Attempts, Delay};
use crate::value::queue_name::{Reason, Recurrence};

/// After how long a message comes back whose recurrence this client does not understand: another one may.
const NOT_OURS: Duration = Duration::from_secs(10);

/// How an occurrence of a recurring message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OccurrenceEnd {
    /// It was handled.
    Done,
    /// Its last attempt failed, or it was rejected. It is no dead letter: its reason stays with the message until the
    /// next occurrence has ended.
    Failed,
}

/// The occurrence that a delivery is of.
#[derive(Debug)]
pub(in crate::queue) struct Occurrence {
    plan: Plan,
    /// When it should have come.
    nominal: u64,
    /// When this delivery of it was received.
    received: u64,
    /// The longest delay that the driver keeps.
    longest: Duration,
}

impl Occurrence {
    pub(in crate::queue) fn read(recurrence: &Recurrence, longest: Duration) -> Result<Self> {
        let (plan, nominal) = Plan::read(recurrence)?;
        Ok(Self { plan, nominal, received: millis(wall::now()), longest })
    }

    /// When it should have come.
    pub(in crate::queue) fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.nominal)
    }

    /// How often it may be tried.
    pub(in crate::queue) fn attempts(&self) -> Attempts {
        self.plan.attempts
    }

    /// How this settlement of a delivery ends the occurrence, if it does.
    pub(in crate::queue) fn end(&self, attempt: u32, how: &Settlement) -> Option<OccurrenceEnd> {
        match how {
            Settlement::Ack => Some(OccurrenceEnd::Done),
            Settlement::Dead { .. } => Some(OccurrenceEnd::Failed),
            Settlement::Retry { .. } if attempt >= self.attempts().get() => Some(OccurrenceEnd::Failed),
            _ => None,
        }
    }

    /// What the settlement of a delivery is for the message: the end of an occurrence schedules the next one. If there is
    /// none, the message ends with its last occurrence as any other.
    pub(in crate::queue) fn translated(&self, attempt: u32, how: Settlement) -> Settlement {
        let failed = match self.end(attempt, &how) {
            None => return how,
            Some(OccurrenceEnd::Done) => None,
            Some(OccurrenceEnd::Failed) => Some(reason_of(&how)),
        };
        match (self.recur(failed.clone().flatten()), failed) {
            (Some(recur), _) => recur,
            (None, None) => how,
            (None, Some(reason)) => Settlement::Dead { reason },
        }
    }

    /// What becomes of a delivery that must not be handled; `None` for all others.
    pub(in crate::queue) fn passed_over(&self, raw: &RawDelivery) -> Option<Settlement> {
        if raw.attempt > self.attempts().get() {
            let crashed = (raw.cause == Cause::LeaseExpired).then(Reason::lease_ended);
            return Some(self.translated(raw.attempt, Settlement::Dead { reason: crashed.or(raw.reason.clone()) }));
        }
        let next_has_come =
            || self.plan.schedule.next(self.nominal, self.nominal).is_some_and(|next| next <= self.received);
        // Not what was put off or parked since: it came in time, and somebody wanted it later.
        if self.plan.missed == Missed::Skip && raw.cause == Cause::First && next_has_come() {
            return self.recur(Some(Reason::beginning_of("missed")));
        }
        None
    }

    /// The settlement after which the next occurrence comes.
    ///
    /// Those that were missed until now are skipped; or run once: what was missed until this delivery, by this one, and
    /// what was missed since then by the next, which then comes at once.
    fn recur(&self, reason: Option<Reason>) -> Option<Settlement> {
        let now = millis(wall::now());
        let seen = match self.plan.missed {
            Missed::Skip => now,
            Missed::RunOnce => self.received,
        };
        let next = self.plan.schedule.next(self.nominal, seen)?;
        let recurrence = self.plan.recurrence(next).ok()?;
        let span = Duration::from_millis(next.saturating_sub(now)).min(self.longest);
        Some(Settlement::Recur { after: Delay::new(span).ok()?, recurrence, reason })
    }
}

/// What becomes of a delivery whose recurrence is not understood.
pub(in crate::queue) fn left_to_others(longest: Duration) -> Settlement {
    Settlement::Return { after: Delay::new(NOT_OURS.min(longest)).unwrap_or_default() }
}

fn reason_of(how: &Settlement) -> Option<Reason> {
    match how {
        Settlement::Retry { reason, .. } | Settlement::Dead { reason } => reason.clone(),
        _ => None,
    }
}

pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
