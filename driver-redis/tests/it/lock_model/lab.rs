//! The server and the store side by side, with clocks that only the script moves.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_memory::{MemoryDriver, Wakeups};
use tenure_redis_support::{Driver, Heard, Listen};
use tenure_testkit::{RedisServer, RespClient};
use tokio::runtime::{Builder, Runtime};

use super::script::{CLIENTS, Cast, DEAF, LOCK, MOST_WAITERS, Script, Setup, Step, Then};
use super::side::{Client, Said, Side};
use super::state::State;
use crate::common::name;
use crate::common::wire::{Delifeq, Edit, Wire};
use tenure_models::Grow;

/// What every second is longer by, so that nothing ends at the very moment at which somebody looks.
const LONGER: Duration = Duration::from_millis(5);

struct Lab<'a> {
    server: &'a RedisServer,
    control: RespClient,
    /// Those of each setup.
    clients: Vec<(Setup, Vec<Known>)>,
    edit: Option<Edit>,
    /// How many releases were one command.
    by_value: u64,
    /// Hears for all clients but one.
    ear: RespClient,
    wakes: Vec<Listen>,
    /// The server's clock, in microseconds since 1970.
    now: i64,
}

/// A client as its server knows it.
struct Known {
    delifeq: Delifeq,
    wire: Wire,
    locks: Driver<Wire>,
}

/// What went wrong, and at which move.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// The laboratory, and what time passes in.
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

    /// How many releases were one command.
    pub(crate) fn by_value(&self) -> u64 {
        self.lab.by_value
    }

    pub(crate) fn run(&mut self, script: &Script) -> Result<u64, Wrong> {
        self.runtime.block_on(self.lab.run(script))
    }
}

impl<'a> Lab<'a> {
    async fn at(server: &'a RedisServer, edit: Option<&Edit>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
        let (mut clients, mut wakes, mut ear) = (Vec::new(), Vec::new(), server.connect().unwrap());
        for setup in Setup::ALL {
            let mut alike = Vec::new();
            for client in 0..CLIENTS {
                // Every other one releases by one command what nobody waits for, whatever the server is.
                let delifeq = if client % 2 == 0 { Delifeq::Emulated } else { Delifeq::AsItIs };
                let wire = Wire::with_delifeq(server, edit.cloned(), delifeq);
                let locks = wire.driver(setup.settings()).await;
                if client != DEAF {
                    ear.call(&["SUBSCRIBE", &wire.listen().channel]).unwrap();
                }
                wakes.push(wire.listen());
                alike.push(Known { delifeq, wire, locks });
            }
            clients.push((setup, alike));
        }
        let (control, edit) = (server.connect().unwrap(), edit.cloned());
        let lab = Self { server, control, clients, edit, by_value: 0, ear, wakes, now };
        server.stop_clock_at(lab.now).unwrap();
        lab
    }

    async fn pass(&mut self, span: Duration) {
        self.now += span.as_micros() as i64;
        self.server.stop_clock_at(self.now).unwrap();
        tokio::time::advance(span).await;
    }

    /// What the server has told the clients by now reaches them.
    fn hear(&mut self) {
        let mut reply = self.ear.call(&["PING"]).unwrap();
        while let [kind, channel, payload] = reply.items()
            && kind.text() == "message"
        {
            let (channel, payload) = (channel.text(), payload.text());
            let known = self.wakes.iter().find(|known| known.channel == channel).expect("a client's channel");
            (known.sink)(Heard::Message(payload.as_bytes()));
            reply = self.ear.read().unwrap();
        }
    }

    /// Runs the script on both sides. Tells how many steps were compared.
    async fn run(&mut self, script: &Script) -> Result<u64, Wrong> {
        self.control.call(&["FLUSHALL"]).unwrap();
        self.pass(Duration::from_secs(1)).await;
        let mut cast = Cast::of(script);
        let store = MemoryDriver::builder().max_waiters(MOST_WAITERS).build().unwrap();
        let known = self.clients.iter_mut().find(|(setup, _)| *setup == script.setup);
        let (setup, known) = known.expect("every setup has clients");
        // One that has heard of a waiter is wary for a while, longer than a script: it begins anew.
        for one in known.iter_mut().filter(|one| matches!(one.delifeq, Delifeq::Emulated)) {
            let before = one.wire.listen().channel;
            one.wire = Wire::with_delifeq(self.server, self.edit.clone(), one.delifeq);
            one.locks = one.wire.driver(setup.settings()).await;
            let now = one.wire.listen();
            self.ear.call(&["UNSUBSCRIBE", &before]).unwrap();
            self.ear.call(&["SUBSCRIBE", &now.channel]).unwrap();
            *self.wakes.iter_mut().find(|known| known.channel == before).expect("a client's channel") = now;
        }
        let real = known.iter().map(|one| Client::of(one.locks.clone())).collect();
        let wires: Vec<Wire> = known.iter().map(|one| one.wire.clone()).collect();
        let stores: Vec<_> = (0..CLIENTS).map(|_| store.another_client()).collect();
        stores[DEAF].faults().set_wakeups(Wakeups::Unheard);
        let model = stores.into_iter().map(Client::of).collect();
        let mut run = Run {
            setup: script.setup,
            real: Side::of(real, &cast, script.setup.floor()).await,
            model: Side::of(model, &cast, 0).await,
            store,
            reported: BTreeSet::new(),
            holders: BTreeSet::new(),
            counter: 0,
        };
        for (at, one) in script.moves.iter().enumerate() {
            self.pass(Duration::from_micros(one.after)).await;
            run.step(self, one.step, &mut cast).await.map_err(|what| Wrong { at, what })?;
        }
        self.by_value += wires.iter().map(Wire::by_value).sum::<u64>();
        Ok(script.moves.len() as u64)
    }
}

struct Run {
    setup: Setup,
    real: Side,
    model: Side,
    store: MemoryDriver,
    /// Who was told that it is its turn, and has not asked since.
    reported: BTreeSet<String>,
    holders: BTreeSet<String>,
    counter: i64,
}

impl Run {
    async fn step(&mut self, lab: &mut Lab<'_>, step: Step, cast: &mut Cast) -> Result<(), String> {
        let step = match step {
            Step::LeaveAny => match self.holders.first().and_then(|token| cast.who(token)) {
                Some(who) => Step::Leave(who),
                None => return Ok(()),
            },
            step => step,
        };
        match step {
            Step::Pass(seconds) => lab.pass(Duration::from_secs(seconds) + LONGER).await,
            Step::Expire => {
                lab.control.call(&["DEL", "tenure:m"]).unwrap();
                let _ = self.store.faults().expire(LOCK).unwrap();
            }
            Step::Flush => {
                // Long enough for the clock to be ahead of all fences: what grew with the counter alone is lost.
                lab.pass(LONGER).await;
                lab.control.call(&["FLUSHALL"]).unwrap();
                self.store.faults().restart_empty();
                self.model.forget_fences(Grow::Anew);
                self.real.forget_fences(if self.setup == Setup::Counter { Grow::Anew } else { Grow::On });
                self.counter = 0;
                self.reported.clear();
                self.model.signals(); // as after a reconnect, all are woken
            }
            _ => {}
        }
        let (real, model) = (self.real.apply(step, cast).await, self.model.apply(step, cast).await);
        agree("the answer", &real, &model)?;
        lab.hear();
        let (heard, reported) = (self.real.signals(), self.model.signals());
        agree("what was reported", &heard, &reported)?;
        self.remember(step, &heard.words, cast);
        let (seen, expected) = (self.real.look(cast).await, self.model.look(cast).await);
        agree("what is seen", &seen, &expected)?;
        self.compare(lab, cast)?;
        let anew = match step {
            Step::Leave(who) if real.left => Some(who),
            Step::Abandon(who, Then::Anew) => Some(who),
            _ => None,
        };
        if let Some(who) = anew {
            cast.tokens[who] = tenure_core::OwnerToken::random();
            self.real.listen(who, cast).await;
            self.model.listen(who, cast).await;
        }
        Ok(())
    }

    /// Who was told, and who has asked since.
    fn remember(&mut self, step: Step, heard: &str, cast: &Cast) {
        let token = |who: usize| cast.tokens[who].expose().as_str().to_owned();
        if let Step::Ask(who) | Step::Try(who) | Step::Abandon(who, _) = step {
            self.reported.remove(&token(who));
        }
        for news in heard.split("; ") {
            if let Some((who, "woken")) = news.split_once(' ') {
                self.reported.insert(token(who.parse().expect("a number")));
            }
        }
    }

    fn compare(&mut self, lab: &mut Lab<'_>, cast: &Cast) -> Result<(), String> {
        let (state, now_ms) = (State::read(&mut lab.control, self.setup.counter()), lab.now / 1000);
        let line = self.store.waiters(&name(LOCK));
        let line: Vec<_> = line.into_iter().map(|(token, left)| (token.expose().as_str().to_owned(), left)).collect();
        let wrong = state.wrong(cast, now_ms, &mut self.counter);
        let wrong = wrong.or_else(|| state.differs(&line, now_ms)).or_else(|| state.reserved(&self.reported, now_ms));
        self.holders = state.held_by();
        wrong.map_or(Ok(()), Err)
    }
}

fn agree(what: &str, real: &Said, model: &Said) -> Result<(), String> {
    if real.agrees(model) { Ok(()) } else { Err(format!("{what} is {real:?}, in memory {model:?}")) }
}
