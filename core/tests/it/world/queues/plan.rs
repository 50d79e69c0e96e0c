//! What happens in a schedule of queues, as far as it is decided before it is played.

use std::fmt;

use crate::world::plan::{Blow, Fault, RuntimeEnd, Until, Weather};
use crate::world::rng::Rng;

/// One schedule. Times are milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct QueuePlan {
    pub(crate) seed: u64,
    pub(crate) weather: Weather,
    /// How many frames in a thousand meet each of the link's faults.
    pub(crate) trouble: u64,
    /// By how much in a thousand the store counts leases faster than the clients do.
    pub(crate) fast: i32,
    pub(crate) lease: u64,
    /// What the tasks of each client do.
    pub(crate) clients: Vec<Vec<Vec<Step>>>,
    pub(crate) blows: Vec<Blow>,
    pub(crate) ends: Vec<RuntimeEnd>,
    pub(crate) limits: Limits,
}

/// How much of the queue may be handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) in_flight: Option<u32>,
    /// So many deliveries in each so many milliseconds.
    pub(crate) rate: Option<(u32, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) pause: u64,
    pub(crate) what: What,
    /// When the future is dropped.
    pub(crate) until: Until,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Pushes several messages in one request.
    Push(Vec<New>),
    Receive {
        patience: Patience,
        max: usize,
        work: u64,
        extends: bool,
        how: How,
        settling: Until,
    },
    /// Starts a worker for so long; its handlers work for so long.
    Worker {
        concurrency: usize,
        span: u64,
        work: u64,
        how: How,
        stop: Stop,
    },
    /// Does work under the lock, or parks a message behind it: for at most so long.
    Park {
        work: u64,
        at_most: u64,
    },
    /// Makes sure that a message recurs in so many seconds.
    Recur(u8, u64),
    Cancel(u8),
    Reschedule(u8, u64),
}

#[derive(Clone, Debug)]
pub(crate) struct New {
    pub(crate) delay: u64,
    pub(crate) id: Option<u8>,
    pub(crate) key: Option<u8>,
    pub(crate) attempts: u32,
    pub(crate) ttl: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Try,
    Within(u64),
}

/// How a delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Ack,
    Nack(u64),
    Bury,
    GiveBack,
    PutOff(u64),
    /// Only where its lock is taken.
    Park(u64),
    Drop,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    Shutdown(u64),
    Abort,
    Drop,
}

impl QueuePlan {
    pub(crate) fn is_calm(&self) -> bool {
        self.weather == Weather::Calm
    }

    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x9e0e);
        let (weather, trouble) = match rng.below(4) {
            0 => (Weather::Calm, 0),
            _ => (Weather::Storm, rng.pick(&[5, 20, 60, 120])),
        };
        let lease = if weather == Weather::Calm { 5_000 } else { rng.pick(&[200, 400, 1_000]) };
        let fast = rng.pick(&[-10, 0, 0, 9]);
        let (clients, most) = (2 + rng.index(3), rng.pick(&[2, 4, 6]));
        let mut task = || (0..1 + rng.index(most)).map(|_| Step::draw(&mut rng, weather, lease)).collect();
        let clients: Vec<Vec<Vec<Step>>> = (0..clients).map(|_| (0..2).map(|_| task()).collect()).collect();
        let mut blows: Vec<_> = match weather {
            Weather::Storm => (0..rng.below(5)).map(|_| Blow::draw(&mut rng, clients.len(), 1, lease)).collect(),
            _ => Vec::new(),
        };
        blows.retain(|blow| !matches!(blow.what, Fault::Forgets(_) | Fault::Flushed));
        blows.sort_by_key(|blow| blow.at);
        let ends = if weather == Weather::Storm { RuntimeEnd::draw(&mut rng, lease) } else { Vec::new() };
        Self { seed, weather, trouble, fast, lease, clients, blows, ends, limits: Limits::draw(&mut rng) }
    }

    /// The same with one thing less, for each thing.
    pub(crate) fn shorter(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        for (c, client) in self.clients.iter().enumerate() {
            for (t, task) in client.iter().enumerate() {
                let changed = |change: &dyn Fn(&mut Vec<Step>)| {
                    let mut plan = self.clone();
                    change(&mut plan.clients[c][t]);
                    plan
                };
                if !task.is_empty() {
                    plans.push(changed(&|task| task.clear()));
                }
                for (s, step) in task.iter().enumerate() {
                    plans.push(changed(&|task| {
                        task.remove(s);
                    }));
                    plans.extend(step.simpler().into_iter().map(|step| changed(&|task| task[s] = step.clone())));
                }
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
        if self.limits != Limits::default() {
            plans.push(Self { limits: Limits::default(), ..self.clone() });
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
    fn draw(rng: &mut Rng, weather: Weather, lease: u64) -> Self {
        let calm = weather == Weather::Calm;
        let long = if rng.below(5) == 0 && !calm { lease * 2 } else { 40 };
        let what = match rng.below(23) {
            0..=6 => What::Push((0..1 + rng.index(3)).map(|_| New::draw(rng)).collect()),
            7..=15 => What::Receive {
                patience: if rng.below(4) == 0 { Patience::Try } else { Patience::Within(rng.below(1_500)) },
                max: rng.pick(&[1, 1, 3]),
                work: rng.below(long),
                extends: rng.below(4) == 0,
                how: How::draw(rng),
                settling: if rng.below(5) == 0 { Until::draw(rng, 10) } else { Until::Done },
            },
            16 | 17 => What::Worker {
                concurrency: 1 + rng.index(3),
                span: rng.below(1_000),
                work: rng.below(long),
                how: How::draw(rng),
                stop: rng.pick(&[Stop::Shutdown(0), Stop::Shutdown(300), Stop::Abort, Stop::Drop]),
            },
            18 => What::Cancel(drawn_id(rng)),
            19 | 20 => What::Park { work: rng.below(40), at_most: 50 + rng.below(600) },
            21 => What::Recur(rng.pick(&[0, 1]), rng.pick(&[1, 2])),
            _ => What::Reschedule(drawn_id(rng), rng.below(500)),
        };
        let until = if rng.below(5) == 0 { Until::draw(rng, 60) } else { Until::Done };
        let pause = if rng.below(3) == 0 { 0 } else { rng.below(if calm { 30 } else { 300 }) };
        Self { pause, what, until }
    }

    /// The same with one complication less.
    fn simpler(&self) -> Vec<Self> {
        let mut steps = Vec::new();
        if self.until != Until::Done {
            steps.push(Self { until: Until::Done, ..self.clone() });
        }
        if self.pause > 0 {
            steps.push(Self { pause: 0, ..self.clone() });
        }
        let mut add = |what| steps.push(Self { what, ..self.clone() });
        match self.what.clone() {
            What::Push(messages) if messages.len() > 1 => {
                for m in 0..messages.len() {
                    let mut fewer = messages.clone();
                    fewer.remove(m);
                    add(What::Push(fewer));
                }
            }
            What::Receive { patience, max, work, extends, how, settling } => {
                if extends {
                    add(What::Receive { patience, max, work, extends: false, how, settling });
                }
                if how != How::Ack {
                    add(What::Receive { patience, max, work, extends, how: How::Ack, settling });
                }
                if settling != Until::Done {
                    add(What::Receive { patience, max, work, extends, how, settling: Until::Done });
                }
            }
            _ => {}
        }
        steps
    }
}

impl Limits {
    /// In one schedule of three.
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(9) {
            0 => Self { in_flight: Some(rng.pick(&[1, 2])), rate: None },
            1 => Self { in_flight: None, rate: Some(rng.pick(&[(1, 20), (3, 200)])) },
            2 => Self { in_flight: Some(2), rate: Some((2, 50)) },
            _ => Self::default(),
        }
    }
}

impl New {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            delay: rng.pick(&[0, 0, 1]) * rng.below(1_000),
            id: (rng.below(3) == 0).then(|| drawn_id(rng)),
            key: (rng.below(3) == 0).then(|| rng.pick(&[0, 1])),
            attempts: rng.pick(&[1, 3, 20]),
            ttl: (rng.below(6) == 0).then(|| 1 + rng.below(1_000)),
        }
    }
}

impl How {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(10) {
            0 | 1 => Self::Nack(rng.below(300)),
            2 => Self::Bury,
            3 => Self::GiveBack,
            4 => Self::PutOff(rng.below(300)),
            5 => Self::Drop,
            _ => Self::Ack,
        }
    }
}

fn drawn_id(rng: &mut Rng) -> u8 {
    rng.pick(&[0, 1, 2])
}

impl fmt::Display for QueuePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, weather, trouble, fast, lease, limits, .. } = self;
        writeln!(
            f,
            "seed {seed}, {weather:?}, trouble {trouble}, leases {fast} in 1000 fast, lease {lease}, {limits:?}"
        )?;
        for (c, client) in self.clients.iter().enumerate() {
            for (t, task) in client.iter().enumerate() {
                task.iter().try_for_each(|step| writeln!(f, "  task {c}.{t}: {step:?}"))?;
            }
        }
        self.blows.iter().try_for_each(|blow| writeln!(f, "  at {}: {:?}", blow.at, blow.what))?;
        self.ends.iter().try_for_each(|end| writeln!(f, "  {end:?}"))
    }
}
