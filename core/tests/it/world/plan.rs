//! What happens in a schedule, as far as it is decided before it is played: a list that can be shortened.

use std::fmt;

use crate::world::rng::Rng;

/// The names that are locked.
pub(crate) const NAMES: [&str; 2] = ["a", "b"];
/// The owners of re-entrant locks: the same ones for all clients.
pub(crate) const OWNERS: usize = 2;
/// When faults end.
pub(crate) const STORM: u64 = 4_000;

/// One schedule. Times are milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// For what is drawn while it is played: delays, and the faults of single frames.
    pub(crate) seed: u64,
    pub(crate) weather: Weather,
    /// How many frames in a thousand meet each of the link's faults.
    pub(crate) trouble: u64,
    /// By how much in a thousand the store's clock is faster than the clients'.
    pub(crate) fast: i32,
    pub(crate) ttl: u64,
    pub(crate) presence: u64,
    pub(crate) clients: Vec<ClientPlan>,
    pub(crate) blows: Vec<Blow>,
    pub(crate) ends: Vec<RuntimeEnd>,
}

/// What can go wrong at all, and so how much may be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Frames are late by some milliseconds at most: waiters are served at once, and what is given back is free at once.
    Calm,
    /// Frames may also be refused: clients have to try again.
    Breeze,
    /// Everything.
    Storm,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientPlan {
    pub(crate) holders_per_grant: u32,
    /// Whether a lease that was handed over is confirmed behind its grant.
    pub(crate) confirms_behind: bool,
    /// What each of its tasks does.
    pub(crate) tasks: Vec<Vec<Step>>,
}

/// What a task does: it takes something, works, and gives it back; before it, a pause.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) pause: u64,
    pub(crate) what: What,
    pub(crate) patience: Patience,
    /// When the future that takes it is dropped.
    pub(crate) taking: Until,
    pub(crate) work: Work,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Plain(usize, Terms),
    /// A re-entrant lock, entered once more within: so many times in all.
    Entry(usize, usize, u32),
    All,
    /// Takes the lock away, as an operator does.
    Force(usize),
}

/// What a plain lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    Renewed,
    Fixed(u64),
    MaxHold(u64),
    AtLeast(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Try,
    Within(u64),
    Unlimited,
}

/// How long a future lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Done,
    Polls(u64),
    Millis(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    For(u64),
    /// Extends the lease after half of the time.
    Extending(u64, u64),
    /// Until the lock is lost, at most so long.
    UntilLost(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Release(Until),
    Drop,
    /// Hands the hold over to this client, which gives it back.
    Detach(usize),
}

/// What goes wrong, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blow {
    pub(crate) at: u64,
    pub(crate) what: Fault,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The client's link loses everything for so long.
    Silence(usize, u64),
    /// It loses wake-ups only, and nobody notices.
    Deaf(usize, u64),
    /// The client is not scheduled for so long, while its clock runs on.
    Paused(usize, u64),
    /// Nobody is scheduled for so long.
    Stall(u64),
    /// The client's process is killed.
    Killed(usize),
    /// The store ends the lease before its time.
    Forgets(usize),
    /// The store loses everything; its fences begin at a clock, and so go on beyond those that were.
    Flushed,
    /// The client is closed.
    Closed(usize),
}

/// A runtime ends with all that it carries: tasks that hold, wait and give back, what the clients do in the background, and
/// frames on their way. The clients go on in another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeEnd {
    pub(crate) at: u64,
    /// How long it takes until the next runtime begins.
    pub(crate) pause: u64,
}

impl Plan {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let (weather, trouble) = match rng.below(12) {
            0..=2 => (Weather::Calm, 0),
            3 => (Weather::Breeze, rng.pick(&[20, 100])),
            _ => (Weather::Storm, rng.pick(&[5, 20, 60, 120])),
        };
        let clients = 2 + rng.index(3);
        let ttl = if weather == Weather::Breeze { 5_000 } else { rng.pick(&[200, 300, 600, 1_000]) };
        let presence = if weather == Weather::Storm { rng.pick(&[600, 1_500]) } else { 15_000 };
        let fast = rng.pick(&[-10, 0, 0, 9]);
        let names = 1 + rng.index(2);
        let most = rng.pick(&[2, 4, 6]);
        let mut plan = Self {
            seed,
            weather,
            trouble,
            fast,
            ttl,
            presence,
            clients: Vec::new(),
            blows: Vec::new(),
            ends: Vec::new(),
        };
        for _ in 0..clients {
            let tasks = (0..1 + rng.index(3))
                .map(|_| (0..1 + rng.index(most)).map(|_| Step::draw(&mut rng, &plan, clients, names)).collect())
                .collect();
            let holders_per_grant = rng.pick(&[0, 1, 4]);
            plan.clients.push(ClientPlan { holders_per_grant, confirms_behind: rng.below(3) == 0, tasks });
        }
        if weather == Weather::Storm {
            plan.blows = (0..rng.below(5)).map(|_| Blow::draw(&mut rng, clients, names, ttl)).collect();
            plan.blows.sort_by_key(|blow| blow.at);
            plan.ends = RuntimeEnd::draw(&mut rng, ttl);
        }
        plan
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.weather == Weather::Calm
    }

    /// The same with one thing less, for each thing.
    pub(crate) fn shorter(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        for (c, client) in self.clients.iter().enumerate() {
            let changed = |change: &dyn Fn(&mut ClientPlan)| {
                let mut plan = self.clone();
                change(&mut plan.clients[c]);
                plan
            };
            for (t, task) in client.tasks.iter().enumerate() {
                if !task.is_empty() {
                    plans.push(changed(&|client| client.tasks[t].clear()));
                }
                for (s, step) in task.iter().enumerate() {
                    plans.push(changed(&|client| {
                        client.tasks[t].remove(s);
                    }));
                    plans.extend(step.simpler().map(|step| changed(&|client| client.tasks[t][s] = step.clone())));
                }
            }
            if client.holders_per_grant > 0 {
                plans.push(changed(&|client| client.holders_per_grant = 0));
            }
        }
        for b in 0..self.blows.len() {
            let mut plan = self.clone();
            plan.blows.remove(b);
            plans.push(plan);
        }
        for e in 0..self.ends.len() {
            let mut plan = self.clone();
            plan.ends.remove(e);
            plans.push(plan);
        }
        if self.fast != 0 {
            plans.push(Self { fast: 0, ..self.clone() });
        }
        if self.trouble > 1 {
            plans.push(Self { trouble: 1, ..self.clone() });
            plans.push(Self { trouble: self.trouble / 2, ..self.clone() });
        }
        plans
    }
}

impl Step {
    fn draw(rng: &mut Rng, plan: &Plan, clients: usize, names: usize) -> Self {
        let (calm, ttl) = (plan.is_calm(), plan.ttl);
        let name = rng.index(names);
        let what = match rng.below(20) {
            0..=4 => What::Entry(name, rng.index(OWNERS), 1 + u32::try_from(rng.below(3)).expect("small")),
            5 if names > 1 => What::All,
            6 if !calm => What::Force(name),
            _ => What::Plain(name, Terms::draw(rng, ttl)),
        };
        let patience = match rng.below(6) {
            0 => Patience::Try,
            1 | 2 => Patience::Within(rng.below(2_000)),
            _ => Patience::Unlimited,
        };
        let taking = if rng.below(5) == 0 { Until::draw(rng, 60) } else { Until::Done };
        let long = if rng.below(6) == 0 { ttl * 2 } else { 40 };
        let work = match rng.below(8) {
            0 => Work::Extending(rng.below(long), ttl + rng.below(ttl)),
            1 if !calm => Work::UntilLost(rng.below(ttl * 3)),
            _ => Work::For(rng.below(long)),
        };
        let end = match rng.below(8) {
            0 | 1 => End::Drop,
            2 => End::Release(Until::draw(rng, 10)),
            3 if matches!(what, What::Plain(..)) && plan.weather != Weather::Breeze => End::Detach(rng.index(clients)),
            _ => End::Release(Until::Done),
        };
        let pause = if rng.below(3) == 0 { 0 } else { rng.below(if calm { 30 } else { 300 }) };
        Self { pause, what, patience, taking, work, end }
    }

    /// The same with one complication less.
    fn simpler(&self) -> impl Iterator<Item = Self> {
        let end = Self { end: End::Release(Until::Done), ..self.clone() };
        let taking = Self { taking: Until::Done, ..self.clone() };
        let work = Self { work: Work::For(5), ..self.clone() };
        let pause = Self { pause: 0, ..self.clone() };
        let what = match self.what {
            What::Plain(name, _) => What::Plain(name, Terms::Renewed),
            What::Entry(name, owner, depth) if depth > 1 => What::Entry(name, owner, depth - 1),
            What::Entry(name, ..) | What::Force(name) => What::Plain(name, Terms::Renewed),
            What::All => What::Plain(0, Terms::Renewed),
        };
        let what = Self { what, ..self.clone() };
        [
            (end, self.end != End::Release(Until::Done)),
            (taking, self.taking != Until::Done),
            (work, !matches!(self.work, Work::For(0..=5))),
            (pause, self.pause > 0),
            (what.clone(), what.what != self.what),
        ]
        .into_iter()
        .filter_map(|(step, differs)| differs.then_some(step))
    }
}

impl Terms {
    fn draw(rng: &mut Rng, ttl: u64) -> Self {
        match rng.below(8) {
            0 => Self::Fixed(ttl / 2 + rng.below(ttl)),
            1 => Self::MaxHold(20 + rng.below(ttl)), // more than an answer takes in calm weather
            2 => Self::AtLeast(1 + rng.below(ttl * 2)),
            _ => Self::Renewed,
        }
    }
}

impl Until {
    pub(crate) fn draw(rng: &mut Rng, millis: u64) -> Self {
        if rng.below(2) == 0 { Self::Polls(rng.below(7)) } else { Self::Millis(rng.below(millis)) }
    }
}

impl RuntimeEnd {
    /// In one schedule of four, once or twice.
    pub(crate) fn draw(rng: &mut Rng, ttl: u64) -> Vec<Self> {
        let count = if rng.below(4) == 0 { 1 + rng.below(2) } else { 0 };
        let mut ends: Vec<_> =
            (0..count).map(|_| Self { at: 50 + rng.below(1_500), pause: 200 + rng.below(ttl) }).collect();
        ends.sort_by_key(|end| end.at);
        ends
    }
}

impl Blow {
    pub(crate) fn draw(rng: &mut Rng, clients: usize, names: usize, ttl: u64) -> Self {
        let (client, span) = (rng.index(clients), rng.below(ttl * 2));
        let what = match rng.below(16) {
            0..=3 => Fault::Silence(client, span),
            4 | 5 => Fault::Deaf(client, span * 2),
            6..=8 => Fault::Paused(client, span),
            9 | 10 => Fault::Stall(span),
            11 | 12 => Fault::Killed(client),
            13 => Fault::Forgets(rng.index(names)),
            14 => Fault::Flushed,
            _ => Fault::Closed(client),
        };
        Self { at: rng.below(2_000), what }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, weather, trouble, fast, ttl, presence, .. } = self;
        writeln!(
            f,
            "seed {seed}, {weather:?}, trouble {trouble}, clock {fast} in 1000 fast, ttl {ttl}, presence {presence}"
        )?;
        for (c, client) in self.clients.iter().enumerate() {
            let (holders, behind) = (client.holders_per_grant, client.confirms_behind);
            let tasks = || client.tasks.iter().enumerate().filter(|(_, steps)| !steps.is_empty());
            if tasks().next().is_some() {
                writeln!(f, "client {c}: holders_per_grant {holders}, confirms behind: {behind}")?;
            }
            for (t, steps) in tasks() {
                steps.iter().try_for_each(|step| writeln!(f, "  task {c}.{t}: {step:?}"))?;
            }
        }
        self.blows.iter().try_for_each(|blow| writeln!(f, "  at {}: {:?}", blow.at, blow.what))?;
        self.ends.iter().try_for_each(|end| writeln!(f, "  {end:?}"))
    }
}
