//! The calls of the scripts of permits and their answers. The scripts' headers give the same information.

use std::time::Duration;

use tenure_core::driver::{
    Acquisition, Begun, Busy, Family, Grant, PermitChange, PermitHold, PermitHolder, PermitInspection, PermitRequest,
    Share, Ttl,
};
use tenure_core::rules::permits::Refusal;
use tenure_core::{Error, FencingToken, LockName, OwnerToken, Result};

use crate::call::{self, Calls, micros, presence_ms, unexpected};
use crate::script::{self, ArgList, Reply, Script, ScriptCall};
use crate::settings::{Fences, RedisSettings};

impl Calls {
    pub(super) fn permit_acquire(&self, request: &PermitRequest) -> ScriptCall {
        let PermitRequest { family, share, lock, .. } = request;
        let token = lock.token.expose();
        let mut call = self.on_permits(&script::PERMIT_ACQUIRE, *family, &lock.name, Some(&lock.token));
        let args = &mut call.args;
        args.push(token);
        args.push_number(lock.ttl.as_millis());
        args.push_number(share.weight.into());
        args.push_number(share.capacity.into());
        self.push_wait(args, lock, call::direct(lock) && self.hands_over());
        args.push(self.permits.fences);
        args.push_number(self.permits.keep);
        args.push_number(self.settings.fence_floor.get());
        if let Some(label) = &lock.label {
            args.push(label.as_str());
        }
        call
    }

    pub(super) fn permit_resize(&self, change: &PermitChange) -> ScriptCall {
        let PermitChange { hold, to, step, presence, .. } = change;
        let mut call = self.of_hold(&script::PERMIT_RESIZE, hold, None);
        self.keys.push_member(&mut call.args, &hold.token.expose());
        call.args.push_number(to.weight.into());
        call.args.push_number(to.capacity.into());
        call.args.push_number((*step).into());
        call.args.push_number(presence.map_or(0, presence_ms));
        call
    }

    pub(super) fn permit_release(&self, hold: &PermitHold) -> ScriptCall {
        self.of_hold(&script::PERMIT_RELEASE, hold, None)
    }

    pub(super) fn permit_abandon(&self, hold: &PermitHold) -> ScriptCall {
        let mut call = self.of_hold(&script::PERMIT_ABANDON, hold, Some(&hold.token));
        self.keys.push_member(&mut call.args, &hold.token.expose());
        call.args.push_number(self.settings.tombstone.as_millis() as u64); // at most an hour
        call
    }

    pub(super) fn permit_evict(&self, family: Family, name: &LockName, fence: FencingToken) -> ScriptCall {
        let mut call = self.on_permits(&script::PERMIT_EVICT, family, name, None);
        call.args.push_number(fence.get());
        call.args.push(&self.permits.text);
        call
    }

    pub(super) fn permit_pass(&self, family: Family, name: &LockName) -> ScriptCall {
        let mut call = self.on_permits(&script::PERMIT_PASS, family, name, None);
        call.args.push(&self.permits.text);
        call
    }

    pub(super) fn permit_renew(&self, ttl: Ttl, holds: &[&PermitHold]) -> ScriptCall {
        let mut keys = ArgList::with_capacity(3 * holds.len());
        let mut args = ArgList::with_capacity(1 + holds.len());
        args.push_number(ttl.as_millis());
        for hold in holds {
            self.keys.push_permit_holds(&mut keys, hold.family, &hold.name);
            args.push(hold.token.expose());
        }
        ScriptCall { script: &script::PERMIT_RENEW, keys, args }
    }

    pub(super) fn permit_inspect(&self, family: Family, name: &LockName, most: usize) -> ScriptCall {
        let mut keys = ArgList::with_capacity(4);
        self.keys.push_permit_holds(&mut keys, family, name);
        self.keys.push_permit_presence(&mut keys, family, name);
        let mut args = ArgList::with_capacity(1);
        args.push_number(most as u64);
        ScriptCall { script: &script::PERMIT_INSPECT, keys, args }
    }

    /// A script that changes a hold and may notify waiters: its first arguments are the token, and the turn.
    fn of_hold(&self, script: &'static Script, hold: &PermitHold, undone: Option<&OwnerToken>) -> ScriptCall {
        let mut call = self.on_permits(script, hold.family, &hold.name, undone);
        call.args.push(hold.token.expose());
        call.args.push(&self.permits.text);
        call
    }

    /// A script on all keys of a name; with the tombstone of a token, if it reads or writes that.
    fn on_permits(
        &self,
        script: &'static Script,
        family: Family,
        name: &LockName,
        tombstone: Option<&OwnerToken>,
    ) -> ScriptCall {
        let mut keys = ArgList::with_capacity(8);
        self.keys.push_permits(&mut keys, family, name);
        match self.settings.fences {
            Fences::ClockSeeded => self.keys.push_permit_fence(&mut keys, family, name),
            // Such a counter is never forgotten: where there is one for all names, no name leaves a key behind.
            Fences::Counter if self.keys.has_one_counter() => self.keys.push_fence(&mut keys, name),
            Fences::Counter => self.keys.push_permit_fence(&mut keys, family, name),
        }
        if let Some(token) = tombstone {
            self.keys.push_permit_tombstone(&mut keys, family, name, &token.expose());
        }
        ScriptCall { script, keys, args: ArgList::with_capacity(9) }
    }
}

/// The answer of a script that has decided.
#[derive(Debug)]
pub(super) struct Decided(Reply);

/// The answer of a script that removed as much as one run may, and has to run again.
const UNDECIDED: i64 = -9;

impl Decided {
    /// `None` if the script has to run again.
    pub(super) fn of(reply: Reply) -> Option<Self> {
        let undecided = matches!(&reply, Reply::Array(items) if matches!(items[..], [Reply::Int(UNDECIDED)]));
        (!undecided).then_some(Self(reply))
    }

    /// Whether there are waiters that fit now and were not notified.
    pub(super) fn leaves_waiters(&self) -> bool {
        matches!(&self.0, Reply::Array(items) if items.get(1) == Some(&Reply::Int(1)))
    }

    /// Whether a hold was ended.
    pub(super) fn is_done(&self) -> Result<bool> {
        let code = match &self.0 {
            Reply::Array(items) => items.first().ok_or_else(too_short)?.int()?,
            code => code.int()?,
        };
        Ok(code == 1)
    }

    /// The answer of acquire and resize; `ttl` is that of a grant which names none.
    pub(super) fn acquisition(&self, ttl: Duration, share: Share, settings: &RedisSettings) -> Result<Acquisition> {
        let Reply::Array(items) = &self.0 else {
            return Ok(Acquisition::Granted(Grant::new(self.0.fence()?, ttl)));
        };
        let at = |i: usize| items.get(i).ok_or_else(too_short);
        let span = |i: usize| Ok::<_, Error>(micros(at(i)?.int()?));
        let refusal = match at(0)?.int()? {
            code @ (1 | 2) => {
                let begun = if code == 1 { Begun::Now } else { Begun::Earlier };
                let grant = Grant::new(at(2)?.fence()?, span(3)?.unwrap_or_default());
                return Ok(Acquisition::Granted(grant.with_begun(begun)));
            }
            0 => {
                let busy = Busy::default()
                    .with_position(u32::try_from(at(2)?.int()?).ok())
                    .with_recheck_after(span(3)?)
                    .with_answered_at(span(4)?);
                return Ok(Acquisition::Busy(busy));
            }
            -1 => Refusal::Abandoned,
            -2 => Refusal::QueueFull(settings.max_waiters),
            -3 => Refusal::NotHeld,
            -4 => Refusal::Impossible(share),
            -5 => Refusal::Superseded,
            -6 => return Err(call::no_fence(at(2)?, at(3)?, settings.fence_floor)),
            -7 => Refusal::AnotherGrows,
            _ => return Err(unexpected("an unknown answer")),
        };
        Err(refusal.into())
    }
}

fn too_short() -> Error {
    unexpected("the answer is too short")
}

/// The answer of inspect.
pub(super) fn inspection(reply: &Reply) -> Result<PermitInspection> {
    let [used, waiters, now, holds @ ..] = reply.items()? else { return Err(too_short()) };
    let now = now.int()?;
    let mut holders = Vec::with_capacity(holds.len() / 2);
    for one in holds.chunks(2) {
        let [ends, hold] = one else { return Err(too_short()) };
        holders.extend(holder(hold.bytes()?, now, ends.int()?));
    }
    Ok(PermitInspection::default()
        .with_used(u64::try_from(used.int()?).unwrap_or_default())
        .with_waiters(u32::try_from(waiters.int()?).unwrap_or(u32::MAX))
        .with_holders(holders))
}

/// The holder from its hold as `scripts/permit/part/record.lua` writes it; `None` for a foreign one.
fn holder(hold: &[u8], now: i64, ends: i64) -> Option<PermitHolder> {
    let mut parts = std::str::from_utf8(hold).ok()?.splitn(8, ';');
    let mut next = || parts.next();
    let (fence, weight, capacity) = (next()?, next()?.parse().ok()?, next()?.parse().ok()?);
    let since: i64 = next()?.parse().ok()?;
    let (_ttl, _handed, _step, label) = (next()?, next()?, next()?, next()?);
    let holder = call::holder(fence, label, micros(now.saturating_sub(since).max(0)), micros(ends - now))?;
    Some(PermitHolder::new(Share { weight, capacity }, holder))
}
