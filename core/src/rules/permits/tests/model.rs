//! Random schedules of clients whose requests are delayed, whose answers and wake-ups are lost, and that die. The rule
//! has to keep its promises to what the clients believe; and each wrong rule of [`Flaw`] has to break one.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use super::super::flaw::Flaw;
use super::super::{Caps, PermitState, Refusal, Rule};
use super::{World, join, request, share, token};
use crate::driver::{Acquisition, Begun, Grant, Handing, Released, Renewed, Share};
use crate::rules::locks::{CLAIM_WINDOW, Given};
use crate::{LockName, OwnerToken};

const PRESENCE: u64 = 4_500;
const CLAIM: u64 = CLAIM_WINDOW.as_millis() as u64;
const CLIENTS: usize = 6;
const STEPS: u32 = 40;
const CAPS: Caps = Caps { waiters: 100, holders: 100 };
/// A schedule in which a client waits for longer without any load has failed.
const QUIET: u64 = 60_000;

/// A broken promise, in words.
type Checked = Result<(), String>;

fn ensure(is_kept: bool, promise: &str, facts: impl Debug) -> Checked {
    if is_kept { Ok(()) } else { Err(format!("{promise}: {facts:?}")) }
}

fn span(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).expect("a short span")
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Mutex,
    Semaphore,
    /// A semaphore whose clients name two capacities, as during a deployment that raises it.
    TwoLimits,
    ReadWrite,
    Upgradable,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Mutex, Self::Semaphore, Self::TwoLimits, Self::ReadWrite, Self::Upgradable];

    const fn most(self) -> u32 {
        match self {
            Self::Mutex => 1,
            Self::Semaphore => 5,
            Self::TwoLimits => 6,
            Self::ReadWrite | Self::Upgradable => Share::WRITER.capacity,
        }
    }
}

/// What a client knows from its answers alone. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
enum View {
    Idle,
    Waiting(Waiting),
    Holding(Holding),
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    token: OwnerToken,
    share: Share,
    accepts: Handing,
    ttl: u64,
    ask_at: u64,
    /// When the first request without an answer was sent.
    unanswered: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    token: OwnerToken,
    share: Share,
    until: u64,
    leave_at: u64,
    ttl: u64,
    renews: bool,
    /// The wanted share and the time of the next request for it.
    grows: Option<(Share, u64)>,
    /// The number of its last change.
    step: u32,
    /// True if a request may still arrive: it is abandoned at the end.
    uncertain: bool,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Late {
    client: usize,
    sent: u64,
    arrives: u64,
    waiting: Waiting,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    requests: u64,
    grants: u64,
    handed: u64,
    upgrades: u64,
    ended: u64,
    abandoned: u64,
    late: u64,
}

struct Schedule {
    kind: Kind,
    rng: fastrand::Rng,
    now: u64,
    name: LockName,
    state: PermitState,
    world: World,
    views: [View; CLIENTS],
    late: Vec<Late>,
    /// Changes of weight whose copies may still arrive.
    copies: Vec<(OwnerToken, Share, u32)>,
    /// Percent of answers and wake-ups that are lost.
    lossy: u32,
    next: u64,
    /// The number of arrival of each token in the line.
    arrived: HashMap<OwnerToken, u64>,
    /// Waiters that were notified and have not asked since.
    notified: HashMap<OwnerToken, u64>,
    /// The end of each lease by the answers of the rule, lost or not.
    ends: HashMap<OwnerToken, u64>,
    growing: Option<(OwnerToken, u64)>,
    fence: u64,
    totals: Totals,
}

impl Schedule {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let lossy = if rng.bool() { 0 } else { 15 };
        Self {
            kind,
            rng,
            now: 1_000_000,
            name: LockName::new("name").unwrap(),
            state: PermitState::default(),
            world: World::default(),
            views: [View::Idle; CLIENTS],
            late: Vec::new(),
            copies: Vec::new(),
            lossy,
            next: 1,
            arrived: HashMap::new(),
            notified: HashMap::new(),
            ends: HashMap::new(),
            growing: None,
            fence: 0,
            totals: Totals::default(),
        }
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    /// Decides one request, and checks the promises of the rule about a single step.
    fn decide<T>(&mut self, by: OwnerToken, decide: impl FnOnce(&mut Rule<'_, &mut World>) -> T) -> Result<T, String> {
        let before = self.state.clone();
        self.totals.requests += 1;
        let mut rule = Rule::new(&mut self.state, span(self.now), CAPS, &mut self.world);
        let answer = decide(&mut rule);
        let changed = rule.changed();
        ensure(changed || before == self.state, "a change is reported", (&before, &self.state))?;
        let signalled = std::mem::take(&mut self.world.signalled);
        for (to, given) in &signalled {
            self.notified.insert(*to, self.now);
            if let Some(given) = given {
                self.ends.insert(*to, self.now + millis(given.ttl));
            }
        }
        self.check_grants(by, &before)?;
        self.check_record(&signalled)?;
        self.deliver(&signalled);
        Ok(answer)
    }

    /// New holds have new fences, overtake no waiter, and none appears while an upgrade waits.
    fn check_grants(&mut self, by: OwnerToken, before: &PermitState) -> Checked {
        let now = span(self.now);
        if self
            .growing
            .is_some_and(|(token, until)| until <= self.now || self.ends.get(&token).is_none_or(|end| *end <= self.now))
        {
            self.growing = None;
        }
        let mut fences: Vec<_> = Vec::new();
        for (at, hold) in self.state.holds.iter().enumerate() {
            let earlier = before.holds.iter().find(|other| other.token == hold.token && other.until > now);
            if earlier.is_some_and(|earlier| earlier.fence == hold.fence && earlier.share.weight >= hold.share.weight) {
                continue;
            }
            fences.push(hold.fence.get());
            ensure(!self.world.buried.contains(&hold.token), "an abandoned token gets nothing", hold)?;
            if earlier.is_some() {
                continue; // an upgrade
            }
            let waits = self.growing.filter(|(token, _)| *token != hold.token);
            ensure(waits.is_none(), "an upgrade comes before all others", (waits, hold))?;
            self.check_order(before, at)?;
        }
        for fence in fences {
            ensure(fence > self.fence, "fences grow in the order of grants", (fence, self.fence, by))?;
            self.fence = fence;
        }
        Ok(())
    }

    /// The waiters that arrived before a new hold have a hold now, or still fit, one after the other.
    fn check_order(&self, before: &PermitState, at: usize) -> Checked {
        let hold = &self.state.holds[at];
        let mine = self.arrived.get(&hold.token).copied().filter(|_| before.place(&hold.token).is_some());
        // Grants of the same request, before and behind, count as holds.
        let mut used = self.weight();
        for waiter in &self.state.line {
            if mine.is_some_and(|mine| self.arrived.get(&waiter.token).is_none_or(|theirs| *theirs >= mine)) {
                break;
            }
            used += u64::from(waiter.share.weight);
            ensure(used <= u64::from(waiter.share.capacity), "no one overtakes", (hold, waiter, used))?;
        }
        Ok(())
    }

    fn weight(&self) -> u64 {
        self.state.holds.iter().map(|hold| u64::from(hold.share.weight)).sum()
    }

    /// After a request the waiters at the front that fit were notified and no others, and the record is whole.
    fn check_record(&mut self, signalled: &[(OwnerToken, Option<Given>)]) -> Checked {
        let used = self.weight();
        ensure(used == self.state.used, "the weight is counted", (used, self.state.used))?;
        ensure(used <= u64::from(self.kind.most()), "the holds fit into the capacity", used)?;
        for token in self.state.holds.iter().map(|hold| hold.token).chain(self.state.line.iter().map(|w| w.token)) {
            ensure(!self.world.buried.contains(&token), "an abandoned token keeps nothing", token)?;
        }
        if self.growing.is_none() {
            let (mut used, mut least) = (used, u32::MAX);
            let mut fits = true;
            for waiter in &self.state.line {
                least = least.min(waiter.share.capacity);
                used += u64::from(waiter.share.weight);
                fits &= used <= u64::from(least);
                if fits {
                    let is_notified = self.notified.get(&waiter.token).is_some_and(|at| self.now < at + CLAIM);
                    ensure(is_notified, "a waiter that fits is notified", (waiter, &self.state))?;
                } else {
                    let in_vain = signalled.iter().any(|(token, _)| *token == waiter.token);
                    ensure(!in_vain, "a notified waiter fits", (waiter, &self.state))?;
                }
            }
        }
        if self.rng.u8(0..8) == 0 {
            let read = PermitState::from_bytes(&self.state.to_bytes());
            ensure(read.is_ok_and(|read| read == self.state), "bytes are the record", &self.state)?;
        }
        Ok(())
    }

    /// Wake-ups reach their clients, or are lost.
    fn deliver(&mut self, signalled: &[(OwnerToken, Option<Given>)]) {
        for (to, given) in signalled {
            if self.percent(self.lossy) {
                continue;
            }
            for client in 0..CLIENTS {
                match (&mut self.views[client], given) {
                    (View::Waiting(waiting), None) if waiting.token == *to => waiting.ask_at = self.now,
                    (View::Holding(Holding { token, grows: Some((_, at)), .. }), None) if token == to => *at = self.now,
                    (View::Waiting(waiting), Some(given)) if waiting.token == *to => {
                        let waiting = *waiting;
                        self.totals.handed += 1;
                        self.hold(client, waiting, self.now + millis(given.ttl));
                    }
                    _ => {}
                }
            }
        }
    }

    fn hold(&mut self, client: usize, waiting: Waiting, until: u64) {
        let stays = self.rng.u64(0..1_500) + if self.percent(8) { 8_000 } else { 0 };
        let Waiting { token, share, ttl, .. } = waiting;
        let uncertain = waiting.unanswered.is_some() || self.late.iter().any(|late| late.waiting.token == token);
        let (leave_at, renews) = (self.now + stays, self.percent(80));
        self.views[client] =
            View::Holding(Holding { token, share, until, leave_at, ttl, renews, grows: None, step: 0, uncertain });
    }

    fn arrive(&mut self, client: usize) {
        let number = self.next;
        self.next += 1;
        let capacity = self.kind.most();
        let share = match self.kind {
            Kind::Mutex => share(1, 1),
            Kind::Semaphore => share(self.rng.u32(1..4), capacity),
            Kind::TwoLimits => share(self.rng.u32(1..4), if self.rng.bool() { 3 } else { capacity }),
            Kind::ReadWrite => *self.rng.choice(&[Share::READER, Share::READER, Share::WRITER]).unwrap(),
            Kind::Upgradable => *self.rng.choice(&[Share::READER, Share::UPGRADABLE, Share::WRITER]).unwrap(),
        };
        let accepts = if self.rng.bool() { Handing::Direct } else { Handing::Asked };
        let ttl = self.rng.u64(2..7) * 1_000;
        let waiting = Waiting { token: token(number), share, accepts, ttl, ask_at: self.now, unanswered: None };
        self.views[client] = View::Waiting(waiting);
    }

    /// A waiting client asks: at once, or its request arrives late.
    fn ask(&mut self, client: usize, mut waiting: Waiting) -> Checked {
        let sent = self.now;
        waiting.ask_at = sent + PRESENCE / 3;
        if self.percent(10) {
            let arrives = sent + self.rng.u64(1..6_000);
            waiting.unanswered.get_or_insert(sent);
            self.views[client] = View::Waiting(waiting);
            self.late.push(Late { client, sent, arrives, waiting });
            return Ok(());
        }
        self.views[client] = View::Waiting(waiting);
        self.asked(Late { client, sent, arrives: sent, waiting })
    }

    /// A request arrives, and perhaps its answer.
    fn asked(&mut self, late: Late) -> Checked {
        let Waiting { token, share, accepts, ttl, .. } = late.waiting;
        let request = request(&self.name, token, span(ttl), join(span(PRESENCE), accepts));
        let was_waiting = self.state.line.iter().any(|w| w.token == token && w.present > span(self.now));
        if !was_waiting {
            self.arrived.remove(&token); // it lapsed, and begins again at the end
        }
        self.notified.remove(&token);
        let was_handed = self.state.holds.iter().any(|hold| hold.token == token && hold.handed);
        let answer = self.decide(token, |rule| {
            let Ok(answer) = rule.acquire(share, &request);
            answer
        })?;
        match &answer {
            Ok(Acquisition::Granted(grant)) => {
                self.totals.grants += 1;
                if grant.begun == Begun::Now {
                    let end = self.now + ttl;
                    let kept = self.ends.get(&token).copied().filter(|_| was_handed).unwrap_or(0);
                    self.ends.insert(token, end.max(kept));
                }
            }
            Ok(Acquisition::Busy(busy)) => {
                ensure(busy.position.is_some(), "a waiter has a place", busy)?;
                if !was_waiting {
                    self.next += 1;
                    self.arrived.insert(token, self.next);
                }
            }
            Err(refusal) => {
                let is_buried = self.world.buried.contains(&token);
                ensure(is_buried && *refusal == Refusal::Abandoned, "only an abandoned token is refused", refusal)?;
                self.totals.late += 1;
            }
        }
        if self.percent(self.lossy) {
            if let View::Waiting(waiting) = &mut self.views[late.client]
                && waiting.token == token
            {
                waiting.unanswered.get_or_insert(late.sent);
                waiting.ask_at = self.now + 300;
            }
            return Ok(());
        }
        let View::Waiting(mut waiting) = self.views[late.client] else { return Ok(()) };
        if waiting.token != token {
            return Ok(());
        }
        match answer {
            Ok(Acquisition::Granted(Grant { begun, ttl, .. })) => {
                let from = if begun == Begun::Now { late.sent } else { waiting.unanswered.unwrap_or(late.sent) };
                self.hold(late.client, waiting, from + millis(ttl));
            }
            Ok(Acquisition::Busy(busy)) => {
                let recheck = busy.recheck_after.map_or(u64::MAX, millis);
                waiting.ask_at = self.now + recheck.clamp(1, PRESENCE / 3);
                self.views[late.client] = View::Waiting(waiting);
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn resize(&mut self, client: usize, mut holding: Holding, to: Share) -> Checked {
        let token = holding.token;
        let had = holding.share.weight;
        if to.weight < had {
            holding.share = to; // from the moment that the request leaves
        }
        let other = self.growing.is_some_and(|(growing, until)| growing != token && until > self.now);
        let other =
            other && self.growing.is_some_and(|(token, _)| self.ends.get(&token).is_some_and(|e| *e > self.now));
        let (growing, last) = (self.growing, self.fence);
        if self.growing.is_some_and(|(growing, _)| growing == token) {
            self.growing = None; // set again below
        }
        let state = &self.state;
        let others: u64 = state
            .holds
            .iter()
            .filter(|hold| hold.token != token && hold.until > span(self.now))
            .map(|hold| u64::from(hold.share.weight))
            .sum();
        let weighs = state.find(&token).map(|at| state.holds[at].share.weight);
        if weighs.is_some_and(|weighs| weighs < to.weight)
            && others + u64::from(to.weight) > u64::from(to.capacity)
            && !other
        {
            self.growing = Some((token, self.now + PRESENCE));
        }
        let answer = self.decide(token, |rule| {
            let Ok(answer) = rule.resize(&token, to, holding.step, Some(span(PRESENCE)));
            answer
        })?;
        self.copies.push((token, to, holding.step));
        let was_lost = self.percent(self.lossy);
        match answer {
            Ok(Acquisition::Granted(grant)) => {
                ensure(
                    !other || weighs.is_some_and(|weighs| weighs >= to.weight),
                    "only one hold grows",
                    (growing, token),
                )?;
                if weighs.is_some_and(|weighs| weighs < to.weight) {
                    ensure(grant.fence.get() > last, "an upgrade has a later fence", (grant, last))?;
                    self.totals.upgrades += 1;
                }
                holding.share = if was_lost { holding.share } else { to };
                holding.grows = holding.grows.filter(|_| was_lost).map(|(to, _)| (to, self.now + 200));
            }
            Ok(Acquisition::Busy(_)) => {
                ensure(!other, "only one hold grows", (growing, token))?;
                holding.grows = Some((to, self.now + PRESENCE / 3));
            }
            Err(Refusal::AnotherGrows) => {
                ensure(other, "one hold may grow", (growing, token))?;
                holding.grows = None;
            }
            Err(Refusal::NotHeld) => {
                let is_live = self.ends.get(&token).is_some_and(|end| *end > self.now);
                ensure(!is_live, "a lease lasts", holding)?;
                holding.grows = None;
            }
            Err(refusal) => return Err(format!("{refusal:?}")),
        }
        if let View::Holding(current) = &mut self.views[client]
            && current.token == token
        {
            *current = holding;
        }
        Ok(())
    }

    /// A copy of a change arrives after a later change of the same hold.
    fn arrive_late(&mut self) -> Checked {
        let Some((token, to, step)) = self.rng.choice(&self.copies).copied() else { return Ok(()) };
        let last = self.state.find(&token).map(|at| (self.state.holds[at].step, self.state.holds[at].share));
        let Some((_, share)) = last.filter(|(last, _)| *last > step) else { return Ok(()) };
        let answer = self.decide(token, |rule| {
            let Ok(answer) = rule.resize(&token, to, step, Some(span(PRESENCE)));
            answer
        })?;
        let is = self.state.find(&token).map(|at| self.state.holds[at].share);
        let is_lost = is.is_none() && self.ends.get(&token).is_none_or(|end| *end <= self.now);
        ensure(is_lost || is == Some(share), "a change that arrives late has no effect", (answer, share, is))
    }

    fn renew(&mut self, client: usize, mut holding: Holding) -> Checked {
        let end = self.ends.get(&holding.token).copied().unwrap_or(0);
        let others = |state: &PermitState| -> Vec<_> {
            state.holds.iter().filter(|hold| hold.token != holding.token).cloned().collect()
        };
        let before = others(&self.state);
        let ttl = if self.percent(20) { 500 } else { holding.ttl };
        let renewed = self.state.renew(span(self.now), &holding.token, span(ttl));
        ensure(before == others(&self.state), "a renewal touches one hold", &self.state)?;
        match renewed {
            Renewed::Extended { ttl: kept } => {
                ensure(end > self.now, "a renewal revives no lease", (&holding, end, self.now))?;
                let kept = self.now + millis(kept);
                ensure(kept >= end.max(self.now + ttl), "a renewal shortens no lease", (kept, end))?;
                self.ends.insert(holding.token, kept);
                holding.until = holding.until.max(kept);
            }
            Renewed::Lost => ensure(end <= self.now, "a lease lasts", (&holding, end, self.now))?,
        }
        self.views[client] = View::Holding(holding);
        Ok(())
    }

    fn release(&mut self, client: usize, holding: Holding) -> Checked {
        self.views[client] = View::Idle;
        if holding.uncertain {
            return self.abandon(holding.token);
        }
        let end = self.ends.remove(&holding.token).unwrap_or(0);
        let released = self.decide(holding.token, |rule| {
            let Ok(released) = rule.release(&holding.token);
            released
        })?;
        ensure((released == Released::Released) == (end > self.now), "a release ends a live lease", (holding, end))?;
        let is_held = self.state.find(&holding.token).is_some();
        ensure(!is_held, "a released token holds nothing", holding)
    }

    fn abandon(&mut self, token: OwnerToken) -> Checked {
        self.totals.abandoned += 1;
        self.ends.remove(&token);
        self.decide(token, |rule| {
            let Ok(()) = rule.abandon(&token);
        })
    }

    /// Each client does what its time has come for.
    fn step(&mut self, has_load: bool) -> Checked {
        self.now += self.rng.u64(1..500);
        while let Some(at) = self.late.iter().position(|late| late.arrives <= self.now) {
            let late = self.late.swap_remove(at);
            self.asked(late)?;
        }
        if self.percent(10) {
            self.arrive_late()?;
        }
        for client in 0..CLIENTS {
            let view = self.views[client];
            match view {
                View::Idle if has_load && self.percent(40) => self.arrive(client),
                View::Waiting(waiting) if has_load && self.percent(2) => {
                    self.views[client] = View::Idle; // it dies, or gives up
                    if self.rng.bool() {
                        self.abandon(waiting.token)?;
                    }
                }
                View::Waiting(waiting) if waiting.ask_at <= self.now => self.ask(client, waiting)?,
                View::Holding(holding) => self.used(client, holding)?,
                View::Idle | View::Waiting(_) => {}
            }
            self.check_views()?;
        }
        Ok(())
    }

    fn used(&mut self, client: usize, holding: Holding) -> Checked {
        if holding.until <= self.now {
            // It was paused: it renews in vain, and releases what it has no more, now or later.
            self.totals.ended += 1;
            return if self.rng.bool() { self.renew_late(client, holding) } else { self.release(client, holding) };
        }
        if holding.leave_at <= self.now {
            if self.percent(4) {
                self.views[client] = View::Idle; // it dies
                return Ok(());
            }
            return self.release(client, holding);
        }
        if holding.renews && holding.until - self.now < holding.ttl * 2 / 3 && self.percent(70) {
            return self.renew(client, holding);
        }
        let step = holding.step + 1;
        match (holding.grows, self.kind) {
            (Some((to, at)), _) if at <= self.now => {
                if self.percent(15) {
                    self.views[client] = View::Holding(Holding { grows: None, ..holding }); // it asks no more
                    return Ok(());
                }
                self.resize(client, holding, to)
            }
            (Some(_), _) => Ok(()),
            (None, Kind::Upgradable) if holding.share == Share::UPGRADABLE && self.percent(30) => {
                self.resize(client, Holding { grows: Some((Share::WRITER, 0)), step, ..holding }, Share::WRITER)
            }
            (None, Kind::Semaphore) if holding.share.weight < 3 && self.percent(5) => {
                let to = share(holding.share.weight + 1, holding.share.capacity);
                self.resize(client, Holding { grows: Some((to, 0)), step, ..holding }, to)
            }
            (None, _) if holding.share.weight > 1 && self.percent(10) => {
                let to = share(self.rng.u32(1..holding.share.weight.min(4)), holding.share.capacity);
                self.resize(client, Holding { step, ..holding }, to)
            }
            (None, _) => Ok(()),
        }
    }

    /// A renewal by a client whose view has ended. The lease may last at the store, so the client releases it next.
    fn renew_late(&mut self, client: usize, holding: Holding) -> Checked {
        let until = holding.until;
        self.renew(client, holding)?;
        self.views[client] = View::Holding(Holding { until, ..holding });
        Ok(())
    }

    /// The shares that clients believe to have at the same time fit into the capacity.
    fn check_views(&self) -> Checked {
        let believed: u64 = self
            .views
            .iter()
            .map(|view| match view {
                View::Holding(holding) if holding.until > self.now => u64::from(holding.share.weight),
                _ => 0,
            })
            .sum();
        ensure(believed <= u64::from(self.kind.most()), "views fit into the capacity", (believed, &self.views))
    }

    /// A time of load, then quiet: all that wait are served, and nothing is left.
    fn run(mut self) -> Result<Totals, String> {
        for _ in 0..STEPS {
            self.step(true)?;
        }
        let end = self.now + QUIET;
        let is_idle = |view: &View| matches!(view, View::Idle);
        while !self.views.iter().all(is_idle) || !self.late.is_empty() {
            self.step(false)?;
            ensure(self.now < end, "all waiters are served", (&self.views, &self.state))?;
        }
        // Leases and places of clients that died end by themselves.
        self.now += 8_000;
        ensure(self.state.is_idle(span(self.now)), "nothing is left", &self.state)?;
        self.decide(token(0), |rule| {
            let Ok(_) = rule.release(&token(0));
        })?;
        ensure(self.state == PermitState::default(), "nothing is left", &self.state)?;
        Ok(self.totals)
    }
}

/// Runs schedules of all kinds until one breaks a promise; returns their totals.
fn search(schedules: u64) -> Result<Totals, String> {
    let mut sum = Totals::default();
    for seed in 0..schedules {
        let kind = Kind::ALL[(seed % Kind::ALL.len() as u64) as usize];
        let totals = Schedule::new(kind, seed).run().map_err(|broken| format!("{kind:?}, seed {seed}: {broken}"))?;
        sum.requests += totals.requests;
        sum.grants += totals.grants;
        sum.handed += totals.handed;
        sum.upgrades += totals.upgrades;
        sum.ended += totals.ended;
        sum.abandoned += totals.abandoned;
        sum.late += totals.late;
    }
    Ok(sum)
}

#[test]
fn random_schedules_keep_every_promise() {
    let totals = search(3_000).unwrap();
    let seen = [totals.grants, totals.handed, totals.upgrades, totals.ended, totals.abandoned, totals.late];
    assert!(seen.iter().all(|seen| *seen > 100), "all of it has to happen: {totals:?}");
}

#[test]
fn each_flaw_of_the_rule_breaks_a_promise() {
    let broken = Flaw::ALL.map(|flaw| (flaw, flaw.during(|| search(3_000)).err()));
    let survived: Vec<_> = broken.iter().filter(|(_, broken)| broken.is_none()).map(|(flaw, _)| flaw).collect();
    assert!(survived.is_empty(), "the model does not notice: {survived:?}");
}
