//! What a lease knows of itself, and when something is due. Reads no clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::entry::{Entries, Upkeep};
use super::undoing::Undoing;
use crate::value::clock::LeaseInstant;
use crate::value::hold_state::{HoldState, LostReason};
use crate::value::ttl::Ttl;

/// What an answered renewal means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// Confirmed; the lease lasts this believable span from before the renewal was sent.
    Confirmed { sent_at: LeaseInstant, believable: Duration },
    /// Not known.
    Unknown,
    /// The backend proved the loss.
    Lost,
}

/// How soon a lease that was handed over, and is short, is made to last. Work that is done by then costs no renewal, and
/// its release waits for none. Counted from when the grant is learned of: in doubt, the lease is taken to have begun before.
const HANDED: Duration = Duration::from_millis(2);

pub(super) struct State {
    pub(super) phase: HoldState,
    pub(super) deadline: LeaseInstant,
    pub(super) renew_at: LeaseInstant,
    pub(super) entries: Entries,
    /// Until when a renewal is on its way, or was.
    pub(super) renewing: Option<LeaseInstant>,
    /// Until when a renewal that left may have made it last.
    pub(super) possible_end: LeaseInstant,
    pub(super) undoing: Undoing,
    /// Told when the lease ends, one way or the other, and when a renewal is answered. Made by the first who waits.
    pub(super) changed: Option<Arc<Notify>>,
}

impl State {
    /// Wakes those who wait for a change.
    pub(super) fn tell(&self) {
        if let Some(changed) = &self.changed {
            changed.notify_waiters();
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.phase, HoldState::Held | HoldState::Suspect)
    }

    pub(super) fn cap(&self) -> Option<LeaseInstant> {
        self.entries.iter().filter_map(|entry| entry.cap).min()
    }

    pub(super) fn end_of_view(&self) -> LeaseInstant {
        self.cap().map_or(self.deadline, |cap| cap.min(self.deadline))
    }

    pub(super) fn overdue(&self, now: LeaseInstant) -> Option<LostReason> {
        match self.cap() {
            Some(cap) if cap <= now => Some(LostReason::MaxHold),
            _ if self.deadline <= now => Some(LostReason::Expired),
            _ => None,
        }
    }

    /// The ttl to renew with: the longest that a renewed entry asked for.
    pub(super) fn renewal_ttl(&self) -> Option<Ttl> {
        self.entries.iter().filter(|entry| entry.upkeep == Upkeep::Renewed).map(|entry| entry.ttl).max()
    }

    pub(super) fn plan_renewal(&mut self, from: LeaseInstant, now: LeaseInstant) {
        if let Some(ttl) = self.renewal_ttl() {
            let third = ttl.get() / 3;
            // Up to a tenth earlier, so that leases taken together are not renewed together for ever.
            let usual = from.after(third - third.mul_f64(0.1 * self.spread()));
            // One that lasts for less than was asked for was handed over, and is made to last soon.
            let handed = self.deadline < from.after(2 * third);
            self.renew_at = if handed { usual.min(now.after(HANDED)) } else { usual };
        }
    }

    pub(super) fn plan_retry(&mut self, now: LeaseInstant) {
        if let Some(ttl) = self.renewal_ttl() {
            // Sooner as the end comes nearer.
            let pause = (ttl.get() / 12).min(self.end_of_view().since(now) / 4);
            let pause = pause.clamp(Duration::from_millis(5), Duration::from_secs(1));
            self.renew_at = now.after(pause.mul_f64(0.75 + 0.25 * self.spread()));
        }
    }

    /// A number in 0..1 that differs between leases.
    pub(super) fn spread(&self) -> f64 {
        self.entries.iter().next().map_or(0.0, |entry| entry.token.spread())
    }

    /// Until when a renewal is on its way. One that is not answered by then is given up, whoever sent it.
    pub(super) fn on_its_way(&self, now: LeaseInstant) -> Option<LeaseInstant> {
        self.renewing.filter(|until| *until > now)
    }

    /// Counts a renewal to `ttl` as on its way until then.
    pub(super) fn begin_renewal(&mut self, until: LeaseInstant, ttl: Duration) {
        self.renewing = Some(until);
        self.possible_end = self.possible_end.max(until.after(ttl));
    }

    /// Ends the renewal that was on its way until then; `false` if it was given up, and another one took its place.
    pub(super) fn end_renewal(&mut self, until: LeaseInstant) -> bool {
        let ended = self.renewing.take_if(|own| *own == until).is_some();
        if ended {
            self.tell();
        }
        ended
    }

    pub(super) fn next_look(&self) -> LeaseInstant {
        let end = self.end_of_view();
        match self.renewal_ttl() {
            Some(_) => self.renewing.map_or(self.renew_at, |until| until.max(self.renew_at)).min(end),
            None => end,
        }
    }
}
