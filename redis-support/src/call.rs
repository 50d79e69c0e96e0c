//! The calls of the scripts and their answers: the keys and arguments of each script, in their order, and the meaning
//! of its answer. The scripts' headers give the same information.

#[cfg(test)]
pub(crate) mod tests;

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Ballot, Begun, Busy, Electorate, Exited, Grant, Handed, Handing, Hold, Holder,
    Inspection, Queueing, ReentrantEntry, ReentrantHold, Renewed, Ttl,
};
use tenure_core::{
    Error, ErrorKind, FenceFloor, FencingToken, Label, LockName, OwnerId, OwnerToken, Result, TokenText,
};

use crate::damage;
use crate::keyspace::Keyspace;
use crate::script::Reply;
use crate::script::{self, ArgList, Script, ScriptCall};
use crate::settings::{FenceScope, Fences, RedisSettings};

/// How long a woken head of the queue has before others are served, in ms.
const CLAIM_MS: u64 = 2000;
/// The longest presence that is kept, in ms: a day.
const MAX_PRESENCE_MS: u64 = 86_400_000;
/// The deepest re-entry.
pub(crate) const MAX_DEPTH: u32 = 65_535;

/// How many consecutive fences a grant of a plain lock carries, unless many follow one another too fast: the number in
/// `part/fence.lua`.
pub(crate) const FENCES: u32 = 8;

/// Builds calls from requests.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    pub(crate) keys: Keyspace,
    pub(crate) settings: RedisSettings,
    channel_prefix: String,
    /// For permits: how fences grow, how long a counter is kept, and what giving the turn takes.
    pub(crate) permits: PermitTurn,
    /// How fences grow, and how long the counter is kept, in ms; 0 for ever.
    fencing: (&'static str, u64),
    /// Whether the scripts take that for usual.
    usual_fences: bool,
    /// What giving the turn to the next waiter takes, as the scripts want it.
    turn: String,
    /// The arguments for waiting, by whether there are waiters: written once, for the presence that the client has.
    waits: [OnceLock<(u64, [String; 2])>; 2],
}

/// How fences of permits grow, and what giving the turn to their next waiters takes.
#[derive(Clone, Debug)]
pub(crate) struct PermitTurn {
    pub(crate) fences: &'static str,
    /// How long a counter is kept, in ms; 0 for ever.
    pub(crate) keep: u64,
    /// As the scripts want it.
    pub(crate) text: String,
}

impl Calls {
    pub(crate) fn new(keys: Keyspace, settings: RedisSettings) -> Self {
        let channel_prefix = keys.wake_channel_prefix();
        let fencing = match (settings.fences, settings.fence_scope) {
            (Fences::ClockSeeded, FenceScope::Name) => ("clock", settings.counter_life_ms()),
            (Fences::ClockSeeded, FenceScope::Node) => ("clock", 0),
            (Fences::Counter, _) => ("counter", 0), // a counter that is forgotten would start again
        };
        let turn = |keep| format!("{};{keep};{};{CLAIM_MS};{channel_prefix}", fencing.0, settings.fence_floor);
        let keep = if settings.fences == Fences::ClockSeeded { settings.counter_life_ms() } else { 0 };
        let permits = PermitTurn { fences: fencing.0, keep, text: turn(keep) };
        let turn = turn(fencing.1);
        let usual_fences = fencing == ("clock", 0) && settings.fence_floor == FenceFloor::NONE;
        Self { keys, settings, channel_prefix, permits, fencing, usual_fences, turn, waits: Default::default() }
    }

    /// What the clients' channels begin with.
    pub(crate) fn channel_prefix(&self) -> &str {
        &self.channel_prefix
    }

    pub(crate) fn acquire(&self, request: &AcquireRequest) -> ScriptCall {
        let mut call = self.take(&script::ACQUIRE, request, direct(request) && self.hands_over());
        self.push_unusual(&mut call.args, request);
        call
    }

    /// A cluster passes on to its other nodes what a script took for unheard: there, a waiter is woken and asks.
    pub(crate) fn hands_over(&self) -> bool {
        !self.keys.is_over_slots()
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
        if !(self.usual_fences && label.is_empty()) {
            args.push(label);
        }
        if !self.usual_fences {
            args.push(self.fencing.0);
            args.push_number(self.fencing.1);
            args.push_number(self.settings.fence_floor.get());
        }
    }

    /// In one string what only a busy lock needs: it costs no more than a string.
    pub(crate) fn push_wait(&self, args: &mut ArgList, request: &AcquireRequest, direct: bool) {
        let presence = match request.queue {
            Queueing::None => 0,
            Queueing::Join { presence, .. } => presence_ms(presence),
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

/// A presence as the scripts take it: 0 would leave no trace.
pub(crate) fn presence_ms(presence: Duration) -> u64 {
    u64::try_from(presence.as_millis()).unwrap_or(MAX_PRESENCE_MS).clamp(1, MAX_PRESENCE_MS)
}

/// Whether the lock may be given to this waiter without being asked.
pub(crate) fn direct(request: &AcquireRequest) -> bool {
    matches!(request.queue, Queueing::Join { accepts: Handing::Direct, .. })
}

// What the answers mean.

/// The answer of a script that freed a lock and did not get as far as a live waiter.
pub(crate) const GO_ON: i64 = -2;

impl Reply {
    pub(crate) fn int(&self) -> Result<i64> {
        let number = match self {
            Self::Int(number) => Some(*number),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
            _ => None,
        };
        number.ok_or_else(|| unexpected("a number is missing"))
    }

    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(unexpected("a string is missing")),
        }
    }

    pub(crate) fn items(&self) -> Result<&[Self]> {
        match self {
            Self::Array(items) => Ok(items),
            _ => Err(unexpected("an array is missing")),
        }
    }

    pub(crate) fn fence(&self) -> Result<FencingToken> {
        let number = u64::try_from(self.int()?).ok().and_then(FencingToken::new);
        number.ok_or_else(|| unexpected("a fence is not positive"))
    }
}

pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("a script answered in an unexpected form: {what}"))
}

fn millis(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

pub(crate) fn micros(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_micros)
}

/// The news that a waiter was given the lock, `<fence>;<server µs>;<ms>;<fences>`; `None` for anything else.
pub(crate) fn handed(news: &str) -> Option<Handed> {
    let mut parts = news.split(';');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let fence = FencingToken::new(number()?)?;
    let (began_at, ttl) = (Duration::from_micros(number()?), Duration::from_millis(number()?));
    let fences = u32::try_from(number()?).ok()?.max(1);
    Some(Handed::new(fence, ttl, began_at).with_fences(fences))
}

/// The fence of a grant without waiters, and how far it is ahead of the server's clock as the lock's value says, unless fences
/// only count; `None` for any other answer of acquire.
pub(crate) fn free_grant(reply: &Reply) -> Option<(FencingToken, &str)> {
    let ahead = match reply {
        Reply::Int(_) => return Some((reply.fence().ok()?, "")),
        Reply::Array(items) => match items.as_slice() {
            [Reply::Int(3), _, ahead] => ahead,
            _ => return None,
        },
        _ => return None,
    };
    Some((reply.items().ok()?.get(1)?.fence().ok()?, std::str::from_utf8(ahead.bytes().ok()?).ok()?))
}

/// The answer of acquire and enter: `[code, fence, depth, ms, fences]`, cut short where the rest goes without saying.
pub(crate) fn acquisition(reply: &Reply, ttl: Duration, settings: &RedisSettings) -> Result<Acquisition> {
    if let Reply::Int(_) = reply {
        let grant = Grant::new(reply.fence()?, ttl).with_fences(FENCES);
        return Ok(Acquisition::Granted(grant));
    }
    let items = reply.items()?;
    let at = |i: usize| items.get(i).ok_or_else(|| unexpected("the answer is too short"));
    let depth = || -> Result<u32> {
        let depth = items.get(2).map_or(Ok(1), Reply::int)?;
        u32::try_from(depth).map_err(|_| unexpected("a depth is out of range"))
    };
    let fences = || -> Result<u32> {
        let fences = items.get(4).map_or(Ok(1), Reply::int)?;
        u32::try_from(fences).map_err(|_| unexpected("a number of fences is out of range"))
    };
    match at(0)?.int()? {
        code @ (1 | 2) => {
            let begun = if code == 1 { Begun::Now } else { Begun::Earlier };
            let kept = items.get(3).map(Reply::int).transpose()?.and_then(millis).unwrap_or(ttl);
            let grant = Grant::new(at(1)?.fence()?, kept).with_begun(begun).with_depth(depth()?).with_fences(fences()?);
            Ok(Acquisition::Granted(grant))
        }
        3 => Ok(Acquisition::Granted(Grant::new(at(1)?.fence()?, ttl))),
        0 => {
            let position = u32::try_from(at(1)?.int()?).ok();
            let answered_at = items.get(3).map(Reply::int).transpose()?.and_then(micros);
            Ok(Acquisition::Busy(
                Busy::default()
                    .with_position(position)
                    .with_recheck_after(millis(at(2)?.int()?))
                    .with_answered_at(answered_at),
            ))
        }
        -1 => Err(Error::new(ErrorKind::NotHeld, "this attempt was abandoned before its request arrived")),
        -2 => {
            let text = format!("the queue of this lock is full: it has {} waiters", settings.max_waiters);
            Err(Error::new(ErrorKind::LimitReached, text))
        }
        -3 => {
            let text = format!("the owner has entered {MAX_DEPTH} times already, the maximum depth");
            Err(Error::new(ErrorKind::LimitReached, text))
        }
        -8 => Err(stored(at(1)?, at(2)?, "which is not the fence of a hold; force_release ends it")),
        -6 => Err(no_fence(at(1)?, at(2)?, settings.fence_floor)),
        _ => Err(unexpected("an unknown answer")),
    }
}

/// Why a script gave no fence: the answer shows the floor, or what the counter holds.
pub(crate) fn no_fence(key: &Reply, shown: &Reply, floor: FenceFloor) -> Error {
    if !shown.bytes().is_ok_and(|shown| shown == floor.to_string().as_bytes()) {
        return damaged(key, shown);
    }
    floor_ahead(floor.get())
}

pub(crate) fn floor_ahead(floor: u64) -> Error {
    let text = format!("the fence_floor of {floor} is more than a day ahead of the server's clock; no fence was given");
    Error::new(ErrorKind::Misconfigured, text)
}

/// The error for a counter from which a script cannot hand out further fences.
pub(crate) fn damaged(key: &Reply, found: &Reply) -> Error {
    let what = "which is no number, or more than a day ahead of the server's clock; no fence was given. Set it to the greatest \
                fence that was given, or delete it if the clock seeds it";
    stored(key, found, what)
}

fn stored(key: &Reply, found: &Reply, what: &str) -> Error {
    let bytes = |reply| Reply::bytes(reply).unwrap_or_default();
    damage::unreadable(bytes(key), bytes(found), what)
}

/// The answers of the renewals, one for each of `count`; or one for all of them.
pub(crate) fn renewals(reply: &Reply, count: usize) -> Result<Vec<Renewed>> {
    let renewed = |item: &Reply| {
        Ok(match item.int()? {
            0 => Renewed::Lost,
            kept => Renewed::Extended { ttl: millis(kept).ok_or_else(|| unexpected("a lease is negative"))? },
        })
    };
    match reply {
        Reply::Int(_) => Ok(vec![renewed(reply)?; count]),
        Reply::Array(items) if items.len() == count => items.iter().map(renewed).collect(),
        _ => Err(unexpected("the number of answers differs from that of the renewals")),
    }
}

/// The answer of exit.
pub(crate) fn exited(answer: i64) -> Result<Exited> {
    Ok(match answer {
        -1 => Exited::NotHeld,
        0 | GO_ON => Exited::Released,
        depth => Exited::Inside { depth: u32::try_from(depth).map_err(|_| unexpected("a depth is out of range"))? },
    })
}

/// The answer of inspect.
pub(crate) fn inspection(reply: &Reply) -> Result<Inspection> {
    let items = reply.items()?;
    let at = |i: usize| items.get(i).ok_or_else(|| unexpected("the answer is too short"));
    let waiters = u32::try_from(at(0)?.int()?).unwrap_or(u32::MAX);
    let now = at(1)?.int()?;
    let kind = at(2)?.bytes()?;
    if kind == b"none" {
        return Ok(Inspection::default().with_waiters(waiters));
    }
    let remaining = millis(at(3)?.int()?);
    let foreign = Holder::default().with_remaining(remaining);
    let holder = match kind {
        b"string" => plain_holder(at(4)?.bytes()?, now, remaining),
        b"hash" => entered_holder(&items[4..], now, remaining),
        _ => return Err(unexpected("a lock of an unknown type")),
    };
    Ok(Inspection::default().with_holder(Some(holder.unwrap_or(foreign))).with_waiters(waiters))
}

/// The holder from a plain value, `<token>;<flag>;<fence>;<ahead>;<label>`; `None` for a foreign one. The fence was so many
/// microseconds ahead of the clock at the grant, none if `ahead` is empty.
fn plain_holder(value: &[u8], now: i64, remaining: Option<Duration>) -> Option<Holder> {
    let mut parts = std::str::from_utf8(value).ok()?.splitn(5, ';');
    let (token, flag) = (parts.next()?, parts.next()?);
    let (fence, ahead, label) = (parts.next()?, parts.next()?, parts.next()?);
    if token.len() != 22 || flag.len() != 1 {
        return None;
    }
    let ahead = if ahead.is_empty() { 0 } else { ahead.parse::<i64>().ok()? };
    let began = fence.parse::<i64>().ok()?.checked_sub(ahead)? / 1000;
    holder(fence, label, held_for(began, now), remaining)
}

/// The holder from `[fence, since, label, number of fields, owner]`; `None` for a foreign hash.
fn entered_holder(items: &[Reply], now: i64, remaining: Option<Duration>) -> Option<Holder> {
    let [fence, since, label, fields, owner] = items else { return None };
    let text = |item: &Reply| item.bytes().ok().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    let depth = u32::try_from(fields.int().ok()?.checked_sub(4)?).ok()?;
    let owner = text(owner)?.parse().ok()?;
    let began = text(since)?.parse().ok()?;
    let seen = holder(&text(fence)?, &text(label)?, held_for(began, now), remaining)?;
    Some(seen.with_depth(depth).with_owner(Some(owner)))
}

/// What can be seen of a holder.
pub(crate) fn holder(
    fence: &str,
    label: &str,
    held_for: Option<Duration>,
    remaining: Option<Duration>,
) -> Option<Holder> {
    let fence = FencingToken::new(fence.parse().ok()?)?;
    let label = if label.is_empty() { None } else { Label::new(label).ok() };
    Some(Holder::default().with_label(label).with_fence(Some(fence)).with_held_for(held_for).with_remaining(remaining))
}

/// The time from `since` to `now`, in ms; the server's clock may step back.
fn held_for(since: i64, now: i64) -> Option<Duration> {
    millis(now.saturating_sub(since).max(0))
}
