//! A hold in nobody's hands: known by its token alone, on its way from one client to another.

use std::sync::Arc;

use super::attempt::{Ask, CHASE};
use super::entry::{Entry, LeaseKey, Past};
use super::hold::HeldEntry;
use super::lease::Lease;
use super::reaper::{Cleanup, Undo};
use super::shared::Shared;
use crate::driver::{Hold, LockTurn, Renewal, Renewed};
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::name::LockName;

/// A plain lock that is held, and that nobody renews. Dropped, it is given back in the background.
#[derive(Debug)]
pub(crate) struct LooseHold {
    shared: Arc<Shared>,
    /// `None` once it is somebody else's.
    turn: Option<LockTurn>,
}

impl LooseHold {
    pub(crate) fn new(shared: &Arc<Shared>, turn: LockTurn) -> Self {
        Self { shared: Arc::clone(shared), turn: Some(turn) }
    }

    /// Whether it is a hold on this lock of this client.
    pub(crate) fn is_on(&self, shared: &Arc<Shared>, name: &LockName) -> bool {
        Arc::ptr_eq(&self.shared, shared) && self.turn.as_ref().is_some_and(|turn| turn.lock == *name)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What somebody else needs to adopt it, who also has to give it back from now on.
    pub(crate) fn into_turn(mut self) -> Option<LockTurn> {
        self.turn.take()
    }

    /// Renews the hold, and looks after it from now on. `None` when it has ended.
    ///
    /// Dropped half-way, or failed, the hold is given back.
    pub(crate) async fn adopt(mut self, ask: &Ask) -> Result<Option<HeldEntry>> {
        let Some(turn) = self.turn.clone() else { return Ok(None) };
        let adopted = adopt(&self.shared, turn, ask).await?;
        self.turn = None; // it is held, or there is nothing to give back
        Ok(match adopted {
            Adopted::Held(held) => Some(held),
            Adopted::Over | Adopted::Late => None,
        })
    }
}

/// What became of a hold that was to be adopted.
pub(crate) enum Adopted {
    Held(HeldEntry),
    /// The backend does not know it any more.
    Over,
    /// The answer took too long to be worth anything; the hold is being given back.
    Late,
}

/// Renews a hold that is known by its token, and looks after it from now on. Dropped half-way, or failed, it leaves the hold as it
/// was, but that its lease may be longer.
pub(crate) async fn adopt(shared: &Arc<Shared>, turn: LockTurn, ask: &Ask) -> Result<Adopted> {
    let _under_way = shared.reaper.attempt(); // whoever closes the client waits for what comes of it
    ask.check(shared)?;
    let place = shared.reserve()?;
    let LockTurn { lock: name, token, fence } = turn.clone();
    let hold = Hold { name, token };
    let limit = shared.config.op_timeout.min(ask.ttl.get());
    let pass = shared.taking.enter(shared.config.op_timeout, None).await?;
    let sent_at = LeaseInstant::before_send();
    let renewal = [Renewal { hold: hold.clone(), ttl: ask.ttl }];
    let answers = pass.answer(limit, shared.backend.locks().renew(&renewal)).await;
    let unanswered = || Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}")));
    let kept = match answers.and_then(|mut answers| answers.pop()).unwrap_or_else(unanswered) {
        Ok(Renewed::Extended { ttl }) => ttl,
        Ok(Renewed::Lost) => return Ok(Adopted::Over),
        Err(error) if error.kind() == ErrorKind::NotHeld => return Ok(Adopted::Over),
        Err(error) => return Err(error),
    };
    let deadline = sent_at.after(shared.config.drift.believable(kept).unwrap_or_default());
    let cap = ask.max_hold.map(|most| sent_at.after(most));
    let now = LeaseInstant::now();
    if cap.map_or(deadline, |cap| cap.min(deadline)) <= now {
        drop(LooseHold::new(shared, turn));
        return Ok(Adopted::Late);
    }
    let least = ask.at_least.map(|least| now.after(least));
    let entry = Entry { token, ttl: ask.ttl, upkeep: ask.upkeep, cap, least: None, past: Past::Answered };
    let lease = Arc::new(Lease::new(LeaseKey::Plain(hold), fence, (sent_at, deadline), entry, now));
    shared.keeper.watch_over(&lease);
    Ok(Adopted::Held(HeldEntry::new(place, lease, token, 1).at_least(least)))
}

impl Drop for LooseHold {
    fn drop(&mut self) {
        let Some(LockTurn { lock, token, .. }) = self.turn.take() else { return };
        let until = LeaseInstant::now().after(CHASE);
        self.shared.reaper.push(Cleanup { name: lock, owner: None, token, undo: Undo::Loose, until, done: None });
    }
}
