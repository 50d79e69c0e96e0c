//! The server and the rule side by side, with clocks that only the schedule moves.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::driver::{
    Acquisition, Begun, ForceReleased, PermitChange, PermitInspection, Permits, Released, Renewed,
};
use tenure_core::{FencingToken, OwnerToken, Result};
use tenure_redis_support::Driver;
use tenure_testkit::{RedisServer, RespClient};
use tokio::runtime::{Builder, Runtime};

use super::rule::Model;
use super::schedule::{CLIENTS, Cast, Change, DEAF, Growing, MOST_HOLDERS, NAME, Schedule, Step, Then, seconds};
use super::server;
use crate::common::name;
use crate::common::wire::{Edit, Wire};

/// What every second is longer by, so that no tombstone ends at the very moment of a request.
const LONGER: Duration = Duration::from_millis(5);
/// The most holders that an inspection returns.
const SEEN: usize = 3;

pub(crate) type Answer = Result<Acquisition>;
/// A wake-up: the waiter, and the fence and the ttl of a hold that it was given.
pub(crate) type Signal = (OwnerToken, Option<(FencingToken, Duration)>);

/// What went wrong, and at which move.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// How often which kind of answer was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    granted: u64,
    busy: u64,
    refused: u64,
    handed: u64,
    woken: u64,
    grown: u64,
}

pub(crate) struct Bench<'a> {
    runtime: Runtime,
    lab: Lab<'a>,
}

impl<'a> Bench<'a> {
    pub(crate) fn at(server: &'a RedisServer, edit: Option<&Edit>) -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let lab = runtime.block_on(Lab::at(server, edit));
        Self { runtime, lab }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.lab.totals
    }

    pub(crate) fn run(&mut self, schedule: &Schedule) -> Result<u64, Wrong> {
        self.runtime.block_on(self.lab.run(schedule))
    }
}

struct Lab<'a> {
    server: &'a RedisServer,
    control: RespClient,
    /// Those of each way in which fences grow.
    clients: Vec<(Growing, Vec<Driver<Wire>>)>,
    /// Hears for all clients but one.
    ear: RespClient,
    /// The server's clock, in microseconds since 1970.
    now: i64,
    totals: Totals,
}

impl<'a> Lab<'a> {
    /// The numbers in the scripts that bound the work of one are so small here that every schedule meets them.
    async fn at(server: &'a RedisServer, edit: Option<&Edit>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
        let few = [
            ("local most = 1024", format!("local most = {MOST_HOLDERS}")),
            ("(used < 1024 or", "(false or".into()),
            ("('ZCARD', H) < 1024)", format!("('ZCARD', H) < {MOST_HOLDERS})")),
            ("more, turns = 0, 0, math.huge, true, nil, 0, 8", "more, turns = 0, 0, math.huge, true, nil, 0, 2".into()),
            ("local budget = 256", "local budget = 2".into()),
            ("at >= 8 and", "at >= 1 and".into()),
        ];
        let few = few.map(|(from, to)| Edit { from: from.into(), to });
        let edits: Vec<Edit> = edit.cloned().into_iter().chain(few).collect();
        let (mut clients, mut ear) = (Vec::new(), server.connect().unwrap());
        for growing in Growing::ALL {
            let mut alike = Vec::new();
            for client in 0..CLIENTS {
                let wire = Wire::with(server, edits.clone());
                alike.push(wire.driver(growing.settings()).await);
                if client != DEAF {
                    ear.call(&["SUBSCRIBE", &wire.listen().channel]).unwrap();
                }
            }
            clients.push((growing, alike));
        }
        server.stop_clock_at(now).unwrap();
        Self { server, control: server.connect().unwrap(), clients, ear, now, totals: Totals::default() }
    }

    async fn pass(&mut self, span: Duration) {
        self.now += span.as_micros() as i64;
        self.server.stop_clock_at(self.now).unwrap();
        tokio::time::advance(span).await;
    }

    /// The wake-ups that the server has sent by now.
    fn heard(&mut self) -> Vec<Signal> {
        let mut signals = Vec::new();
        let mut reply = self.ear.call(&["PING"]).unwrap();
        while let [kind, _, payload] = reply.items()
            && kind.text() == "message"
        {
            let payload = payload.text();
            let mut parts = payload.split(';');
            let token = OwnerToken::parse(parts.next().unwrap()).unwrap();
            let mut number = || parts.next().map(|part| part.parse::<u64>().unwrap());
            let given = number().map(|fence| {
                let (at, ttl, count) = (number().unwrap(), number().unwrap(), number().unwrap());
                assert_eq!((at as i64, count), (self.now, 1), "{payload}");
                (FencingToken::new(fence).unwrap(), Duration::from_millis(ttl))
            });
            signals.push((token, given));
            reply = self.ear.read().unwrap();
        }
        signals
    }

    async fn run(&mut self, schedule: &Schedule) -> Result<u64, Wrong> {
        self.control.call(&["FLUSHALL"]).unwrap();
        self.pass(Duration::from_secs(1)).await;
        let drivers = self.clients.iter().find(|(growing, _)| *growing == schedule.fences).unwrap().1.clone();
        let mut run = Run {
            cast: Cast::of(schedule),
            drivers,
            model: Model::default(),
            real: Fences::default(),
            expected: Fences::default(),
        };
        for (at, one) in schedule.moves.iter().enumerate() {
            self.pass(Duration::from_micros(one.after)).await;
            run.step(self, one.step).await.map_err(|what| Wrong { at, what })?;
        }
        Ok(schedule.moves.len() as u64)
    }
}

/// The fences of one side, in the order in which they were given.
#[derive(Default)]
struct Fences(Vec<FencingToken>);

impl Fences {
    /// The number of a fence. A new one has to be greater than all.
    fn number(&mut self, fence: FencingToken) -> String {
        if let Some(at) = self.0.iter().position(|known| *known == fence) {
            return format!("fence {at}");
        }
        let falls = self.0.iter().any(|known| *known > fence);
        self.0.push(fence);
        format!("fence {}{}", self.0.len() - 1, if falls { " that falls" } else { "" })
    }

    fn answer(&mut self, answer: &Answer) -> String {
        match answer {
            Ok(Acquisition::Granted(grant)) => {
                format!("granted {:?} {} {} for {:?}", grant.begun, self.number(grant.fence), grant.fences, grant.ttl)
            }
            Ok(Acquisition::Busy(busy)) => format!("{busy:?}"),
            Err(error) => format!("refused: {:?} {}", error.kind(), error.message()),
        }
    }

    fn signals(&mut self, signals: &[Signal], cast: &Cast) -> String {
        let mut words = String::new();
        for (token, given) in signals {
            let given = given.map(|(fence, ttl)| format!("{} for {ttl:?}", self.number(fence)));
            let _ = write!(words, "{:?} {given:?}; ", cast.who(token));
        }
        words
    }

    fn seen(&mut self, seen: &PermitInspection) -> String {
        let mut words = format!("used {}, {} wait: ", seen.used, seen.waiters);
        for one in &seen.holders {
            let holder = &one.holder;
            let fence = holder.fence.map(|fence| self.number(fence));
            let spans = (holder.held_for, holder.remaining);
            let _ = write!(words, "{:?} {fence:?} {:?} {spans:?}; ", one.share, holder.label);
        }
        words
    }
}

struct Run {
    cast: Cast,
    drivers: Vec<Driver<Wire>>,
    model: Model,
    real: Fences,
    expected: Fences,
}

impl Run {
    async fn step(&mut self, lab: &mut Lab<'_>, step: Step) -> Result<(), String> {
        if let Step::Pass(seconds) = step {
            lab.pass(Duration::from_secs(seconds) + LONGER).await;
        }
        self.model.world.deaf = (0..self.cast.askers.len())
            .filter(|who| self.cast.askers[*who].client == DEAF)
            .map(|who| self.cast.tokens[who])
            .collect();
        let now = Duration::from_micros(lab.now as u64);
        let anew = self.apply(lab, step, now).await?;
        let (heard, signals) = (lab.heard(), std::mem::take(&mut self.model.world.signals));
        lab.totals.handed += heard.iter().filter(|(_, given)| given.is_some()).count() as u64;
        lab.totals.woken += heard.iter().filter(|(_, given)| given.is_none()).count() as u64;
        let (heard, signals) = (self.real.signals(&heard, &self.cast), self.expected.signals(&signals, &self.cast));
        agree("heard", &heard, &signals)?;
        let seen = self.drivers[0].inspect(self.cast.family, &name(NAME), SEEN).await.unwrap();
        let (seen, expected) = (self.real.seen(&seen), self.expected.seen(&self.model.inspect(now, SEEN)));
        agree("seen", &seen, &expected)?;
        if let Some(who) = anew {
            self.cast.begin_anew(who);
        }
        server::wrong(&mut lab.control, self.cast.family, lab.now).map_or(Ok(()), Err)
    }

    /// Does a step on both sides, and returns the asker that begins anew.
    async fn apply(&mut self, lab: &mut Lab<'_>, step: Step, now: Duration) -> Result<Option<usize>, String> {
        match step {
            Step::Pass(_) => {}
            Step::Ask(who) | Step::Try(who) => {
                let asker = self.cast.askers[who];
                let joins = matches!(step, Step::Ask(_));
                let request = asker.request(self.cast.family, self.cast.tokens[who], joins);
                let real = self.drivers[asker.client].acquire(&request).await;
                let expected = self.model.acquire(now, &request);
                self.compare(lab, &real, &expected)?;
            }
            Step::Release(who) => return self.release(who, now).await,
            Step::ReleaseAny(which) => {
                if let Some(who) = self.holder(now, which) {
                    return self.release(who, now).await;
                }
            }
            Step::Abandon(who, then) => {
                let hold = self.cast.hold(who);
                self.drivers[self.cast.askers[who].client].abandon(&hold).await.map_err(|error| error.to_string())?;
                self.model.abandon(now, &hold.token);
                return Ok((then == Then::Anew).then_some(who));
            }
            Step::Renew(ttl) => self.renew(ttl, now).await?,
            Step::Resize(who, change) => self.resize(lab, who, change, now).await?,
            Step::ResizeAny(which, change) => {
                if let Some(who) = self.holder(now, which) {
                    self.resize(lab, who, change, now).await?;
                }
            }
            Step::Evict(back) => {
                let Some(at) = self.real.0.len().checked_sub(back + 1) else { return Ok(None) };
                let real = self.drivers[0].evict(self.cast.family, &name(NAME), self.real.0[at]).await;
                let real: ForceReleased = real.map_err(|error| error.to_string())?;
                agree("evicted", &real, &self.model.evict(now, self.expected.0[at]))?;
            }
        }
        Ok(None)
    }

    /// One of the askers that hold, as the rule has it.
    fn holder(&self, now: Duration, which: u64) -> Option<usize> {
        let holds: Vec<usize> = (0..self.cast.tokens.len())
            .filter(|who| {
                let renewed = self.model.state.clone().renew(now, &self.cast.tokens[*who], Duration::ZERO);
                renewed != Renewed::Lost
            })
            .collect();
        let at = which as usize % holds.len().max(1);
        holds.get(at).copied()
    }

    async fn release(&mut self, who: usize, now: Duration) -> Result<Option<usize>, String> {
        let hold = self.cast.hold(who);
        let real =
            self.drivers[self.cast.askers[who].client].release(&hold).await.map_err(|error| error.to_string())?;
        agree("released", &real, &self.model.release(now, &hold.token))?;
        Ok((real == Released::Released).then_some(who))
    }

    async fn renew(&mut self, ttl: u64, now: Duration) -> Result<(), String> {
        let holds: Vec<_> = (0..self.cast.tokens.len()).map(|who| self.cast.hold(who)).collect();
        let real = self.drivers[0].renew(seconds(ttl), &holds).await;
        let real: Result<Vec<Renewed>> = real.into_iter().collect();
        let mut expected = self.model.renew(now, seconds(ttl), &self.cast.tokens);
        for one in &mut expected {
            if let Renewed::Extended { ttl } = one {
                *ttl = Duration::from_millis(ttl.as_millis() as u64);
            }
        }
        agree("renewed", &real.map_err(|error| error.to_string())?, &expected)
    }

    async fn resize(&mut self, lab: &mut Lab<'_>, who: usize, change: Change, now: Duration) -> Result<(), String> {
        let step = (self.cast.steps[who] + change.step).max(0);
        self.cast.steps[who] = self.cast.steps[who].max(step);
        let (step, presence) = (step as u32, change.presence.map(Duration::from_secs));
        let hold = self.cast.hold(who);
        let request = PermitChange::new(hold.clone(), change.to, step).with_presence(presence);
        let real = self.drivers[self.cast.askers[who].client].resize(&request).await;
        let expected = self.model.resize(now, &hold.token, change.to, step, presence);
        let is_grown = matches!(&real, Ok(Acquisition::Granted(grant)) if grant.begun == Begun::Now);
        lab.totals.grown += u64::from(is_grown);
        self.compare(lab, &real, &expected)
    }

    fn compare(&mut self, lab: &mut Lab<'_>, real: &Answer, expected: &Answer) -> Result<(), String> {
        match real {
            Ok(Acquisition::Granted(_)) => lab.totals.granted += 1,
            Ok(Acquisition::Busy(_)) => lab.totals.busy += 1,
            Err(_) => lab.totals.refused += 1,
        }
        agree("answered", &self.real.answer(real), &self.expected.answer(expected))
    }
}

fn agree<T: PartialEq + std::fmt::Debug>(what: &str, real: &T, expected: &T) -> Result<(), String> {
    if real == expected { Ok(()) } else { Err(format!("{what}: {real:?}, by the rule {expected:?}")) }
}
