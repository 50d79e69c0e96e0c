//! Typed calls: which keys and arguments each script takes, in which order. The scripts' headers say the same.

use tenure_core::driver::{
    AcquireRequest, Ballot, Electorate, Hold, Queueing, ReentrantHold, ReentrantRenewal, Renewal,
};
use tenure_core::{FencingToken, LockName, OwnerId, OwnerToken};

use crate::args::ArgList;
use crate::executor::ScriptCall;
use crate::keyspace::{FenceScope, Keyspace};
use crate::script::{self, Script};
use crate::settings::{Fences, RedisSettings};

/// How long a woken head of the queue has before others are served, in ms.
const CLAIM_MS: u64 = 2000;
/// The longest presence that is kept, in ms: a day.
const MAX_PRESENCE_MS: u64 = 86_400_000;
/// How long a fence counter of one name outlives its last grant, in ms: longer than any lease.
const FENCE_KEEP_MS: u64 = 30 * 86_400_000;
/// The deepest re-entry.
pub(crate) const MAX_DEPTH: u32 = 65_535;

/// Builds calls from requests.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    pub(crate) keys: Keyspace,
    pub(crate) settings: RedisSettings,
    channel_prefix: String,
}

impl Calls {
    pub(crate) fn new(keys: Keyspace, settings: RedisSettings) -> Self {
        let channel_prefix = keys.wake_channel_prefix();
        Self { keys, settings, channel_prefix }
    }

    /// What the clients' channels begin with.
    pub(crate) fn channel_prefix(&self) -> &str {
        &self.channel_prefix
    }

    pub(crate) fn acquire(&self, request: &AcquireRequest) -> ScriptCall {
        self.take(&script::ACQUIRE, request)
    }

    pub(crate) fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> ScriptCall {
        let mut call = self.take(&script::ENTER, request);
        call.args.push(owner.to_string());
        call.args.push_number(MAX_DEPTH.into());
        call
    }

    pub(crate) fn vote(&self, ballot: &Ballot) -> ScriptCall {
        let request = &ballot.request;
        let mut keys = ArgList::with_capacity(6);
        self.keys.push_lock(&mut keys, &request.name);
        self.keys.push_own_fence(&mut keys, &request.name);
        self.keys.push_tombstone(&mut keys, &request.name, &request.token);
        self.keys.push_queue(&mut keys, &request.name);
        self.keys.push_electorate(&mut keys);
        let mut args = ArgList::with_capacity(12);
        args.push(request.token.expose());
        args.push_number(request.ttl.as_millis());
        args.push_number(ballot.proposal.map_or(0, FencingToken::get));
        args.push_number(FENCE_KEEP_MS);
        self.push_claim(&mut args, request);
        args.push(ballot.electorate.to_string());
        args.push_number(u64::try_from(ballot.seniority.as_millis()).unwrap_or(u64::MAX));
        ScriptCall { script: &script::VOTE, keys, args }
    }

    pub(crate) fn raise(&self, hold: &Hold, fence: FencingToken) -> ScriptCall {
        let mut keys = ArgList::with_capacity(2);
        self.keys.push_lock(&mut keys, &hold.name);
        self.keys.push_own_fence(&mut keys, &hold.name);
        let mut args = ArgList::with_capacity(3);
        args.push(hold.token.expose());
        args.push_number(fence.get());
        args.push_number(FENCE_KEEP_MS);
        ScriptCall { script: &script::RAISE, keys, args }
    }

    pub(crate) fn enroll(&self, electorate: &Electorate) -> ScriptCall {
        let mut keys = ArgList::with_capacity(1);
        self.keys.push_electorate(&mut keys);
        let mut args = ArgList::with_capacity(1);
        args.push(electorate.to_string());
        ScriptCall { script: &script::ENROLL, keys, args }
    }

    fn take(&self, script: &'static Script, request: &AcquireRequest) -> ScriptCall {
        let mut keys = ArgList::with_capacity(5);
        self.keys.push_lock(&mut keys, &request.name);
        self.keys.push_fence(&mut keys, &request.name);
        self.keys.push_tombstone(&mut keys, &request.name, &request.token);
        self.keys.push_queue(&mut keys, &request.name);
        let mut args = ArgList::with_capacity(12);
        args.push(request.token.expose());
        args.push_number(request.ttl.as_millis());
        let (fences, keep) = match (self.settings.fences, self.settings.fence_scope) {
            (Fences::ClockSeeded, FenceScope::Name) => ("clock", FENCE_KEEP_MS),
            (Fences::ClockSeeded, FenceScope::Node) => ("clock", 0),
            (Fences::Counter, _) => ("counter", 0), // a counter that is forgotten would start again
        };
        args.push(fences);
        args.push_number(keep);
        self.push_claim(&mut args, request);
        ScriptCall { script, keys, args }
    }

    /// The holder's note and the waiter's place.
    fn push_claim(&self, args: &mut ArgList, request: &AcquireRequest) {
        args.push(request.label.as_ref().map_or("", |label| label.as_str()));
        self.keys.push_member(args, &request.token);
        args.push_number(match request.queue {
            Queueing::None => 0,
            Queueing::Join { presence } => {
                u64::try_from(presence.as_millis()).unwrap_or(MAX_PRESENCE_MS).clamp(1, MAX_PRESENCE_MS)
            }
        });
        args.push_number(self.settings.max_waiters.into());
        self.push_wake(args);
    }

    pub(crate) fn release(&self, hold: &Hold) -> ScriptCall {
        let mut args = ArgList::with_capacity(3);
        args.push(hold.token.expose());
        self.push_wake(&mut args);
        ScriptCall { script: &script::RELEASE, keys: self.lock_and_queue(&hold.name), args }
    }

    pub(crate) fn exit(&self, hold: &ReentrantHold) -> ScriptCall {
        let mut args = ArgList::with_capacity(4);
        args.push(hold.token.expose());
        args.push(hold.owner.to_string());
        self.push_wake(&mut args);
        ScriptCall { script: &script::EXIT, keys: self.lock_and_queue(&hold.name), args }
    }

    pub(crate) fn force_release(&self, name: &LockName) -> ScriptCall {
        let mut args = ArgList::with_capacity(2);
        self.push_wake(&mut args);
        ScriptCall { script: &script::FORCE_RELEASE, keys: self.lock_and_queue(name), args }
    }

    pub(crate) fn abandon(&self, hold: &Hold) -> ScriptCall {
        self.undo(&script::ABANDON, &hold.name, &hold.token)
    }

    pub(crate) fn abandon_entry(&self, hold: &ReentrantHold) -> ScriptCall {
        let mut call = self.undo(&script::ABANDON_ENTRY, &hold.name, &hold.token);
        call.args.push(hold.owner.to_string());
        call
    }

    fn undo(&self, script: &'static Script, name: &LockName, token: &OwnerToken) -> ScriptCall {
        let mut keys = ArgList::with_capacity(4);
        self.keys.push_lock(&mut keys, name);
        self.keys.push_tombstone(&mut keys, name, token);
        self.keys.push_queue(&mut keys, name);
        let mut args = ArgList::with_capacity(6);
        args.push(token.expose());
        self.keys.push_member(&mut args, token);
        args.push_number(self.settings.tombstone.as_millis() as u64); // at most an hour
        self.push_wake(&mut args);
        ScriptCall { script, keys, args }
    }

    pub(crate) fn renew(&self, renewals: &[&Renewal]) -> ScriptCall {
        let mut keys = ArgList::with_capacity(renewals.len());
        let mut args = ArgList::with_capacity(2 * renewals.len());
        for renewal in renewals {
            self.keys.push_lock(&mut keys, &renewal.hold.name);
            args.push(renewal.hold.token.expose());
            args.push_number(renewal.ttl.as_millis());
        }
        ScriptCall { script: &script::RENEW, keys, args }
    }

    pub(crate) fn renew_hold(&self, renewals: &[&ReentrantRenewal]) -> ScriptCall {
        let mut keys = ArgList::with_capacity(renewals.len());
        let mut args = ArgList::with_capacity(3 * renewals.len());
        for renewal in renewals {
            self.keys.push_lock(&mut keys, &renewal.name);
            args.push(renewal.owner.to_string());
            args.push_number(renewal.fence.get());
            args.push_number(renewal.ttl.as_millis());
        }
        ScriptCall { script: &script::RENEW_HOLD, keys, args }
    }

    pub(crate) fn inspect(&self, name: &LockName) -> ScriptCall {
        let mut keys = ArgList::with_capacity(2);
        self.keys.push_lock(&mut keys, name);
        self.keys.push_presence(&mut keys, name);
        ScriptCall { script: &script::INSPECT, keys, args: ArgList::default() }
    }

    pub(crate) fn rights(&self) -> ScriptCall {
        let mut keys = ArgList::with_capacity(2);
        self.keys.push_probes(&mut keys);
        let mut args = ArgList::with_capacity(1);
        args.push(&self.channel_prefix);
        ScriptCall { script: &script::RIGHTS, keys, args }
    }

    fn lock_and_queue(&self, name: &LockName) -> ArgList {
        let mut keys = ArgList::with_capacity(3);
        self.keys.push_lock(&mut keys, name);
        self.keys.push_queue(&mut keys, name);
        keys
    }

    fn push_wake(&self, args: &mut ArgList) {
        args.push_number(CLAIM_MS);
        args.push(&self.channel_prefix);
    }
}
