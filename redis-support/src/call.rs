//! Typed calls: which keys and arguments each script takes, in which order. The scripts' headers say the same.

#[cfg(test)]
pub(crate) mod tests;

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use tenure_core::driver::{
    AcquireRequest, Ballot, Electorate, Handing, Hold, Queueing, ReentrantEntry, ReentrantHold, Ttl,
};
use tenure_core::{FenceFloor, FencingToken, LockName, OwnerId, OwnerToken, TokenText};

use crate::keyspace::Keyspace;
use crate::script::{self, ArgList, Script, ScriptCall};
use crate::settings::{FenceScope, Fences, RedisSettings};

/// How long a woken head of the queue has before others are served, in ms.
const CLAIM_MS: u64 = 2000;
/// The longest presence that is kept, in ms: a day.
const MAX_PRESENCE_MS: u64 = 86_400_000;
/// The deepest re-entry.
pub(crate) const MAX_DEPTH: u32 = 65_535;

/// How many consecutive fences a grant of a plain lock carries, unless many follow one another too fast: the number that
/// stands in `part/fence.lua`.
pub(crate) const FENCES: u32 = 8;

/// Builds calls from requests.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    pub(crate) keys: Keyspace,
    pub(crate) settings: RedisSettings,
    channel_prefix: String,
    /// How fences grow, and how long the counter is kept, in ms; 0 for ever.
    fencing: (&'static str, u64),
    /// What giving the turn to the next waiter takes, as the scripts want it.
    turn: String,
    /// What waiting takes, by whether somebody waits: written once, for the presence that the client has.
    waits: [OnceLock<(u64, [String; 2])>; 2],
}

impl Calls {
    pub(crate) fn new(keys: Keyspace, settings: RedisSettings) -> Self {
        let channel_prefix = keys.wake_channel_prefix();
        let fencing = match (settings.fences, settings.fence_scope) {
            (Fences::ClockSeeded, FenceScope::Name) => ("clock", settings.counter_life_ms()),
            (Fences::ClockSeeded, FenceScope::Node) => ("clock", 0),
            (Fences::Counter, _) => ("counter", 0), // a counter that is forgotten would start again
        };
        let turn = format!("{};{};{};{CLAIM_MS};{channel_prefix}", fencing.0, fencing.1, settings.fence_floor);
        Self { keys, settings, channel_prefix, fencing, turn, waits: Default::default() }
    }

    /// What the clients' channels begin with.
    pub(crate) fn channel_prefix(&self) -> &str {
        &self.channel_prefix
    }

    pub(crate) fn acquire(&self, request: &AcquireRequest) -> ScriptCall {
        // A cluster passes on to its other nodes what a script took for unheard: there, a waiter is woken and asks.
        let mut call = self.take(&script::ACQUIRE, request, direct(request) && !self.keys.is_over_slots());
        self.push_unusual(&mut call.args, request);
        call
    }

    pub(crate) fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> ScriptCall {
        let mut call = self.take(&script::ENTER, request, false);
        call.args.push(owner.to_string());
        call.args.push_number(MAX_DEPTH.into());
        self.push_unusual(&mut call.args, request);
        call
    }

    pub(crate) fn vote(&self, ballot: &Ballot) -> ScriptCall {
        let request = &ballot.request;
        let token = request.token.expose();
        let mut keys = ArgList::with_capacity(7);
        self.keys.push_lock(&mut keys, &request.name);
        self.keys.push_own_fence(&mut keys, &request.name);
        self.keys.push_tombstone(&mut keys, &request.name, &token);
        self.keys.push_queue(&mut keys, &request.name);
        self.keys.push_electorate(&mut keys);
        let mut args = ArgList::with_capacity(8);
        args.push(token);
        args.push_number(request.ttl.as_millis());
        self.push_wait(&mut args, request, false);
        args.push_number(ballot.proposal.map_or(0, FencingToken::get));
        args.push_number(self.settings.counter_life_ms());
        args.push(ballot.electorate.to_string());
        args.push_number(u64::try_from(ballot.seniority.as_millis()).unwrap_or(u64::MAX));
        if let Some(label) = &request.label {
            args.push(label.as_str());
        }
        ScriptCall { script: &script::VOTE, keys, args }
    }

    pub(crate) fn raise(&self, hold: &Hold, fence: FencingToken) -> ScriptCall {
        let mut keys = ArgList::with_capacity(2);
        self.keys.push_lock(&mut keys, &hold.name);
        self.keys.push_own_fence(&mut keys, &hold.name);
        let mut args = ArgList::with_capacity(3);
        args.push(hold.token.expose());
        args.push_number(fence.get());
        args.push_number(self.settings.counter_life_ms());
        ScriptCall { script: &script::RAISE, keys, args }
    }

    pub(crate) fn enroll(&self, electorate: &Electorate) -> ScriptCall {
        let mut keys = ArgList::with_capacity(1);
        self.keys.push_electorate(&mut keys);
        let mut args = ArgList::with_capacity(1);
        args.push(electorate.to_string());
        ScriptCall { script: &script::ENROLL, keys, args }
    }

    fn take(&self, script: &'static Script, request: &AcquireRequest, direct: bool) -> ScriptCall {
        let token = request.token.expose();
        let mut keys = ArgList::with_capacity(6);
        self.keys.push_lock(&mut keys, &request.name);
        self.keys.push_fence(&mut keys, &request.name);
        self.keys.push_tombstone(&mut keys, &request.name, &token);
        self.keys.push_queue(&mut keys, &request.name);
        let mut args = ArgList::with_capacity(4);
        args.push(token);
        args.push_number(request.ttl.as_millis());
        self.push_wait(&mut args, request, direct);
        ScriptCall { script, keys, args }
    }

    /// The arguments that the scripts take for usual, if one of them is not: each costs the server a tenth of a
    /// microsecond.
    fn push_unusual(&self, args: &mut ArgList, request: &AcquireRequest) {
        let label = request.label.as_ref().map_or("", |label| label.as_str());
        let floor = self.settings.fence_floor;
        let usual_fences = self.fencing == ("clock", 0) && floor == FenceFloor::NONE;
        if !(usual_fences && label.is_empty()) {
            args.push(label);
        }
        if !usual_fences {
            args.push(self.fencing.0);
            args.push_number(self.fencing.1);
            args.push_number(floor.get());
        }
    }

    /// In one string what only a busy lock needs: it costs no more than a string.
    fn push_wait(&self, args: &mut ArgList, request: &AcquireRequest, direct: bool) {
        let presence = match request.queue {
            Queueing::None => 0,
            Queueing::Join { presence, .. } => {
                u64::try_from(presence.as_millis()).unwrap_or(MAX_PRESENCE_MS).clamp(1, MAX_PRESENCE_MS)
            }
        };
        let (known, texts) = self.waits[usize::from(presence > 0)]
            .get_or_init(|| (presence, [false, true].map(|direct| self.wait(presence, direct))));
        if *known == presence {
            args.push(&texts[usize::from(direct)]);
        } else {
            args.push(self.wait(presence, direct));
        }
    }

    fn wait(&self, presence: u64, direct: bool) -> String {
        let (most, direct) = (self.settings.max_waiters, u8::from(direct));
        let (client, channel) = (self.keys.client(), &self.channel_prefix);
        format!("{presence};{most};{direct};{CLAIM_MS};{client};{channel}")
    }

    pub(crate) fn release(&self, hold: &Hold) -> ScriptCall {
        let mut args = ArgList::with_capacity(2);
        args.push(hold.token.expose());
        args.push(&self.turn);
        ScriptCall { script: &script::RELEASE, keys: self.turn_keys(&hold.name, None), args }
    }

    pub(crate) fn exit(&self, hold: &ReentrantEntry) -> ScriptCall {
        let mut args = ArgList::with_capacity(3);
        args.push(hold.token.expose());
        args.push(hold.owner.to_string());
        args.push(&self.turn);
        ScriptCall { script: &script::EXIT, keys: self.turn_keys(&hold.name, None), args }
    }

    pub(crate) fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> ScriptCall {
        let mut call = self.turn(&script::FORCE_RELEASE, name);
        if let Some(fence) = expected {
            call.args.push_number(fence.get());
        }
        call
    }

    pub(crate) fn pass(&self, name: &LockName) -> ScriptCall {
        self.turn(&script::PASS, name)
    }

    fn turn(&self, script: &'static Script, name: &LockName) -> ScriptCall {
        let mut args = ArgList::with_capacity(1);
        args.push(&self.turn);
        ScriptCall { script, keys: self.turn_keys(name, None), args }
    }

    pub(crate) fn abandon(&self, hold: &Hold) -> ScriptCall {
        self.undo(&script::ABANDON, &hold.name, &hold.token)
    }

    pub(crate) fn abandon_entry(&self, hold: &ReentrantEntry) -> ScriptCall {
        let mut call = self.undo(&script::ABANDON_ENTRY, &hold.name, &hold.token);
        call.args.push(hold.owner.to_string());
        call
    }

    fn undo(&self, script: &'static Script, name: &LockName, token: &OwnerToken) -> ScriptCall {
        let token = token.expose();
        let mut args = ArgList::with_capacity(5);
        args.push(token);
        self.keys.push_member(&mut args, &token);
        args.push_number(self.settings.tombstone.as_millis() as u64); // at most an hour
        args.push(&self.turn);
        ScriptCall { script, keys: self.turn_keys(name, Some(&token)), args }
    }

    pub(crate) fn renew(&self, ttl: Ttl, holds: &[&Hold]) -> ScriptCall {
        let mut keys = ArgList::with_capacity(holds.len());
        let mut args = ArgList::with_capacity(1 + holds.len());
        args.push_number(ttl.as_millis());
        for hold in holds {
            self.keys.push_lock(&mut keys, &hold.name);
            args.push(hold.token.expose());
        }
        ScriptCall { script: &script::RENEW, keys, args }
    }

    pub(crate) fn renew_hold(&self, ttl: Ttl, holds: &[&ReentrantHold]) -> ScriptCall {
        let mut keys = ArgList::with_capacity(holds.len());
        let mut args = ArgList::with_capacity(1 + 2 * holds.len());
        args.push_number(ttl.as_millis());
        for hold in holds {
            self.keys.push_lock(&mut keys, &hold.name);
            args.push(hold.owner.to_string());
            args.push_number(hold.fence.get());
        }
        ScriptCall { script: &script::RENEW_HOLD, keys, args }
    }

    pub(crate) fn inspect(&self, name: &LockName) -> ScriptCall {
        let mut keys = ArgList::with_capacity(2);
        self.keys.push_lock(&mut keys, name);
        self.keys.push_presence(&mut keys, name);
        ScriptCall { script: &script::INSPECT, keys, args: ArgList::default() }
    }

    /// Of locks that share a slot, in a cluster.
    pub(crate) fn census(&self, names: &[&LockName]) -> ScriptCall {
        let mut keys = ArgList::with_capacity(2 * names.len());
        for name in names {
            self.keys.push_lock(&mut keys, name);
            self.keys.push_presence(&mut keys, name);
        }
        ScriptCall { script: &script::CENSUS, keys, args: ArgList::default() }
    }

    /// At a server that serves these slots.
    pub(crate) fn rights(&self, slots: &RangeInclusive<u16>) -> ScriptCall {
        let mut keys = ArgList::with_capacity(2);
        self.keys.push_probes(&mut keys, slots);
        let mut args = ArgList::with_capacity(1);
        args.push(&self.channel_prefix);
        ScriptCall { script: &script::RIGHTS, keys, args }
    }

    /// The keys of a script that may give the turn to the next waiter; with the tombstone of a token, if it undoes one.
    fn turn_keys(&self, name: &LockName, undone: Option<&TokenText>) -> ArgList {
        let mut keys = ArgList::with_capacity(6);
        self.keys.push_lock(&mut keys, name);
        if let Some(token) = undone {
            self.keys.push_tombstone(&mut keys, name, token);
        }
        self.keys.push_queue(&mut keys, name);
        self.keys.push_fence(&mut keys, name);
        keys
    }
}

/// Whether the lock may be given to this waiter without being asked.
fn direct(request: &AcquireRequest) -> bool {
    matches!(request.queue, Queueing::Join { accepts: Handing::Direct, .. })
}
