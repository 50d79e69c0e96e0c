//! Random scripts of six clients, of which one hears nothing, against the functions of permits and against the rule of core. After every
//! step the answer, the notifications, and the whole record of the name have to be the same.
//!
//! The clock is a setting of the session, which the script alone moves: a failing seed fails again, and is shown shortened.
//!
//! | variable | meaning |
//! |---|---|
//! | `TENURE_MODEL_STEPS` | how many steps to take, 6,000 unless told |
//! | `TENURE_MODEL_SEED` | the first seed, 0 unless told |

#![allow(clippy::print_stdout, reason = "figures, and the script that fails, are for people")]

mod record;
mod script;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tenure_core::driver::{AcquireRequest, Acquisition, ForceReleased, Handing, Queueing, Released, Renewed, Ttl};
use tenure_core::rules::locks::{Given, Heard};
use tenure_core::rules::permits::{Caps, Outside, PermitState, Refusal, Rule};
use tenure_core::{FencingToken, Label, LockName, OwnerToken};
use tenure_models::{number, shortened};
use tenure_postgres::permits_sql;
use tenure_testkit::{PostgresOptions, PostgresServer};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::{AsyncMessage, Client, NoTls, Row};

use crate::sql::{Tables, install, micros, session_at};
use script::{CLIENTS, DEAF, Move, Op, Script};

const CAPS: Caps = Caps { waiters: 3, holders: 4 };
/// The life of a tombstone here.
const BURIED: i64 = 5_000_000;
/// A floor below the clock, as usual.
const FLOOR: i64 = 7;

/// The data that outlives a record, and the listeners.
#[derive(Debug, Default)]
struct World {
    now: i64,
    fence: i64,
    before: i64,
    signalled: Vec<String>,
    deaf: Vec<OwnerToken>,
    buried: HashMap<OwnerToken, i64>,
}

impl Outside for &mut World {
    type Error = std::convert::Infallible;

    fn fence(&mut self) -> Result<FencingToken, Self::Error> {
        self.before = self.fence;
        self.fence = (self.fence + 1).max(self.now).max(FLOOR + 1);
        Ok(fence(self.fence))
    }

    fn signal(&mut self, waiter: &OwnerToken, _client: u64, given: Option<Given>) -> Result<Heard, Self::Error> {
        if self.deaf.contains(waiter) {
            // The functions look at the listener first.
            self.fence = if given.is_some() { self.before } else { self.fence };
            return Ok(Heard::Never);
        }
        let token = waiter.expose();
        self.signalled.push(match given {
            None => format!("w {}", token.as_str()),
            Some(Given { fence, ttl, .. }) => format!("h {} {fence} {} {} 1", token.as_str(), micros(ttl), self.now),
        });
        Ok(Heard::Perhaps)
    }

    fn bury(&mut self, token: &OwnerToken) -> Result<(), Self::Error> {
        self.buried.insert(*token, self.now + BURIED);
        Ok(())
    }

    fn is_buried(&self, token: &OwnerToken) -> Result<bool, Self::Error> {
        Ok(self.buried.get(token).is_some_and(|until| *until > self.now))
    }
}

fn fence(number: i64) -> FencingToken {
    FencingToken::new(number.cast_unsigned()).unwrap()
}

fn said_by_rule(answer: Result<Acquisition, Refusal>) -> String {
    match answer {
        Ok(Acquisition::Granted(grant)) => format!("{:?}: {} for {}", grant.begun, grant.fence, micros(grant.ttl)),
        Ok(Acquisition::Busy(busy)) => {
            format!("busy at {:?}, again after {:?}", busy.position, busy.recheck_after.map(micros))
        }
        Err(refusal) => format!("refused: {}", code_of(refusal)),
    }
}

fn code_of(refusal: Refusal) -> i32 {
    match refusal {
        Refusal::Abandoned => -1,
        Refusal::QueueFull(_) => -2,
        Refusal::Impossible(_) => -5,
        Refusal::NotHeld => -6,
        Refusal::Superseded => -7,
        Refusal::AnotherGrows => -8,
    }
}

fn said_by_row(row: &Row) -> String {
    match row.get::<_, i32>("code") {
        code @ (1 | 2) => {
            let begun = if code == 1 { "Now" } else { "Earlier" };
            format!("{begun}: {} for {}", row.get::<_, i64>("fence"), row.get::<_, i64>("ttl"))
        }
        3 => {
            let place = u32::try_from(row.get::<_, i32>("n")).ok();
            format!("busy at {place:?}, again after {:?}", row.get::<_, Option<i64>>("recheck"))
        }
        code => format!("refused: {code}"),
    }
}

/// The server, with a clock that only scripts move.
struct Lab {
    _server: PostgresServer,
    asks: Client,
    ears: Client,
    heard: UnboundedReceiver<String>,
    now: i64,
    runs: u64,
}

/// A broken promise, and the move that broke it.
#[derive(Clone, Debug)]
struct Wrong {
    at: usize,
    what: String,
}

impl Lab {
    /// With a change of the functions, if there is one.
    async fn start(edit: Option<(&str, &str)>) -> Self {
        let server = PostgresServer::start(PostgresOptions::new()).unwrap();
        install(&server, "postgres", Tables::Unlogged);
        let clock = "CREATE OR REPLACE FUNCTION tenure.us() RETURNS bigint LANGUAGE sql VOLATILE AS
            $$ SELECT current_setting('model.now')::bigint $$";
        server.sql("postgres", clock).unwrap();
        let asks = session_at(&server.url("postgres")).await;
        let (ears, mut connection) = tokio_postgres::connect(&server.url("postgres"), NoTls).await.unwrap();
        let (sender, heard) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(note) = message {
                    drop(sender.send(note.payload().to_owned()));
                }
            }
        });
        for client in (0..CLIENTS).filter(|client| *client != DEAF) {
            ears.batch_execute(&format!("LISTEN tenure_{client:x}; SELECT pg_advisory_lock({client})")).await.unwrap();
        }
        let lab = Self { _server: server, asks, ears, heard, now: 1_800_000_000_000_000, runs: 0 };
        lab.change(edit).await;
        lab
    }

    async fn change(&self, edit: Option<(&str, &str)>) {
        if let Some((is, becomes)) = edit {
            assert!(permits_sql().contains(is), "the functions have no {is:?}");
            self.asks.batch_execute(&permits_sql().replace(is, becomes)).await.unwrap();
        }
    }

    /// The notifications that have arrived. The server sends all of a committed request before it answers another one.
    async fn heard(&mut self) -> Vec<String> {
        self.ears.simple_query("SELECT 1").await.unwrap();
        std::iter::from_fn(|| self.heard.try_recv().ok()).collect()
    }

    async fn run(&mut self, script: &Script) -> Result<u64, Wrong> {
        self.runs += 1;
        self.heard().await; // what a script before has left that failed
        let mut run = Run::new(self.runs, self.now);
        for (at, one) in script.moves.iter().enumerate() {
            self.now += one.after * 1_000;
            run.world.now = self.now;
            run.step(self, one).await.map_err(|what| Wrong { at, what })?;
        }
        self.now += 100_000_000;
        Ok(script.moves.len() as u64)
    }
}

/// One name, on both sides.
struct Run {
    number: u64,
    key: Vec<u8>,
    name: LockName,
    state: PermitState,
    world: World,
    /// The token of each client, and the number of its last change.
    tokens: Vec<(OwnerToken, u32)>,
    made: u64,
    bits: HashMap<String, [u8; 16]>,
}

impl Run {
    fn new(number: u64, now: i64) -> Self {
        let name = format!("name {number}");
        let mut run = Self {
            number,
            key: format!("s{name}").into_bytes(),
            name: LockName::new(&name).unwrap(),
            state: PermitState::default(),
            world: World { now, ..World::default() },
            tokens: Vec::new(),
            made: 0,
            bits: HashMap::new(),
        };
        run.tokens = (0..CLIENTS).map(|client| (run.token(client), 0)).collect();
        run
    }

    fn token(&mut self, client: usize) -> OwnerToken {
        self.made += 1;
        let mut bits = [0; 16];
        bits[..8].copy_from_slice(&self.number.to_be_bytes());
        bits[8..].copy_from_slice(&self.made.to_be_bytes());
        let text = script::text_of(bits);
        let token = OwnerToken::parse(&text).unwrap();
        self.bits.insert(text, bits);
        if client == DEAF {
            self.world.deaf.push(token);
        }
        token
    }

    fn anew(&mut self, client: usize) {
        self.tokens[client] = (self.token(client), 0);
    }

    fn rule(&mut self) -> Rule<'_, &mut World> {
        Rule::new(&mut self.state, span(self.world.now), CAPS, &mut self.world)
    }

    async fn step(&mut self, lab: &mut Lab, one: &Move) -> Result<(), String> {
        lab.asks.execute("SELECT set_config('model.now', $1, false)", &[&lab.now.to_string()]).await.unwrap();
        let (real, model) = self.answers(lab, one.op).await;
        agree("the answer", &real, &model)?;
        let heard = lab.heard().await;
        let signalled = std::mem::take(&mut self.world.signalled);
        agree("the notifications are", &format!("{heard:?}"), &format!("{signalled:?}"))?;
        let (state, fence) = record::read(&lab.asks, &self.key, &self.bits).await?;
        agree("the record is", &format!("{state:#?}"), &format!("{:#?}", self.state))?;
        match fence == self.world.fence || fence == 0 && self.world.fence < lab.now - 86_400_000_000 {
            true => Ok(()),
            false => Err(format!("the last fence is {fence}, in the rule {}", self.world.fence)),
        }
    }

    /// The answers of the server and of the rule.
    async fn answers(&mut self, lab: &Lab, op: Op) -> (String, String) {
        let (asks, most) = (&lab.asks, i32::try_from(CAPS.holders).unwrap());
        match op {
            Op::Ask { who, share, ttl, join, label } => {
                let token = self.tokens[who].0;
                let label = label.then(|| Label::new(format!("client {who}")).unwrap());
                let (presence, accepts) =
                    join.map_or((None, false), |(presence, accepts)| (Some(presence * 1_000), accepts));
                let row = asks
                    .query_one(
                        "SELECT * FROM tenure.permit_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
                        &[
                            &self.key,
                            &token.expose().as_str(),
                            &i64::from(share.weight),
                            &i64::from(share.capacity),
                            &(ttl * 1_000),
                            &label.as_ref().map(|label| label.as_str().as_bytes()),
                            &presence,
                            &accepts,
                            &(who as i64),
                            &CAPS.waiters.cast_signed(),
                            &most,
                            &FLOOR,
                        ],
                    )
                    .await
                    .unwrap();
                let accepts = if accepts { Handing::Direct } else { Handing::Asked };
                let queue =
                    presence.map_or(Queueing::None, |presence| Queueing::Join { presence: span(presence), accepts });
                let ttl = Ttl::new(span(ttl * 1_000)).unwrap();
                let request = AcquireRequest::new(self.name.clone(), token, ttl).with_queue(queue).with_label(label);
                let Ok(answer) = self.rule().acquire(share, &request);
                (said_by_row(&row), said_by_rule(answer))
            }
            Op::Resize { who, to, back, presence } => {
                let (token, last) = self.tokens[who];
                let step = (last + 1).saturating_sub(back);
                self.tokens[who].1 = last.max(step);
                let presence = presence.map(|presence| presence * 1_000);
                let row = asks
                    .query_one(
                        "SELECT * FROM tenure.permit_resize($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                        &[
                            &self.key,
                            &token.expose().as_str(),
                            &i64::from(to.weight),
                            &i64::from(to.capacity),
                            &i64::from(step),
                            &presence,
                            &(who as i64),
                            &most,
                            &FLOOR,
                        ],
                    )
                    .await
                    .unwrap();
                let Ok(answer) = self.rule().resize(&token, to, step, presence.map(span));
                (said_by_row(&row), said_by_rule(answer))
            }
            Op::Renew { who, ttl, waits } => {
                let tokens = [self.tokens[who].0, self.tokens[(who + 1) % CLIENTS].0];
                let texts = tokens.map(|token| token.expose());
                let texts: Vec<_> = texts.iter().map(|text| text.as_str()).collect();
                let rows = asks
                    .query(
                        "SELECT * FROM tenure.permit_renew(ARRAY[$1, $1]::bytea[], $2, $3, $4)",
                        &[&self.key, &texts, &(ttl * 1_000), &waits],
                    )
                    .await
                    .unwrap();
                let real: Vec<Option<i64>> = rows.iter().map(|row| row.get(0)).collect();
                let now = span(self.world.now);
                let model = tokens.map(|token| match self.state.renew(now, &token, span(ttl * 1_000)) {
                    Renewed::Extended { ttl } => Some(micros(ttl)),
                    Renewed::Lost => None,
                });
                (format!("{real:?}"), format!("{model:?}"))
            }
            Op::Release(who) => {
                let token = self.tokens[who].0;
                let ended = end(asks, &self.key, Some(&token), None).await;
                let Ok(released) = self.rule().release(&token);
                if released == Released::Released {
                    self.anew(who);
                }
                (format!("{ended}"), format!("{}", i32::from(released == Released::Released)))
            }
            Op::Abandon { who, anew } => {
                let token = self.tokens[who].0;
                let statement = "SELECT tenure.permit_abandon($1, $2, $3, $4, $5)";
                let text = token.expose();
                asks.execute(statement, &[&self.key, &text.as_str(), &BURIED, &most, &FLOOR]).await.unwrap();
                let Ok(()) = self.rule().abandon(&token);
                if anew {
                    self.anew(who);
                }
                (String::new(), String::new())
            }
            Op::Evict(number) => {
                let holders = self.state.inspect(span(self.world.now), 100).holders;
                let fences = holders.iter().filter_map(|holder| holder.holder.fence);
                let fences: Vec<_> = fences.chain([fence(self.world.fence.max(1))]).collect();
                let chosen = fences[number % fences.len()];
                let ended = end(asks, &self.key, None, Some(chosen.get().cast_signed())).await;
                let Ok(released) = self.rule().evict(chosen);
                (format!("{ended}"), format!("{}", i32::from(released == ForceReleased::Released)))
            }
            Op::Inspect(most) => {
                let rows =
                    asks.query("SELECT * FROM tenure.permit_inspect($1, $2)", &[&self.key, &most]).await.unwrap();
                let seen = self.state.inspect(span(self.world.now), usize::try_from(most).unwrap());
                let held = |row: &Row| {
                    let fence: Option<i64> = row.get("fence");
                    let label: Option<&[u8]> = row.get("label");
                    fence.map(|fence| {
                        let numbers =
                            ["weight", "capacity", "held_for", "remaining"].map(|name| row.get::<_, i64>(name));
                        (fence, numbers, label.map(|label| String::from_utf8(label.to_vec()).unwrap()))
                    })
                };
                let real: Vec<_> = rows.iter().filter_map(held).collect();
                let sums = (rows[0].get::<_, i64>("used"), rows[0].get::<_, i64>("waiters"));
                let model = seen.holders.iter().map(|one| {
                    let holder = &one.holder;
                    let spans = [holder.held_for.unwrap(), holder.remaining.unwrap()].map(micros);
                    let numbers = [one.share.weight.into(), one.share.capacity.into(), spans[0], spans[1]];
                    let label = holder.label.as_ref().map(|label| label.as_str().to_owned());
                    (holder.fence.unwrap().get().cast_signed(), numbers, label)
                });
                let model: Vec<(i64, [i64; 4], Option<String>)> = model.collect();
                let expected = (seen.used.cast_signed(), i64::from(seen.waiters));
                (format!("{sums:?} {real:?}"), format!("{expected:?} {model:?}"))
            }
        }
    }
}

async fn end(asks: &Client, key: &[u8], token: Option<&OwnerToken>, fence: Option<i64>) -> i32 {
    let text = token.map(OwnerToken::expose);
    let text = text.as_ref().map(|text| text.as_str());
    let most = CAPS.holders.cast_signed();
    let statement = "SELECT tenure.permit_end($1, $2, $3, $4, $5)";
    asks.query_one(statement, &[&key, &text, &fence, &most, &FLOOR]).await.unwrap().get(0)
}

fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap())
}

fn agree(what: &str, real: &str, model: &str) -> Result<(), String> {
    if real == model { Ok(()) } else { Err(format!("{what} {real}\nby the rule {model}")) }
}

/// Runs scripts until so many steps were compared, or returns the first one that fails.
async fn search(lab: &mut Lab, first: u64, steps: u64) -> Result<u64, (u64, Script, Wrong)> {
    let mut done = 0;
    for seed in first.. {
        let script = Script::draw(seed);
        match lab.run(&script).await {
            Ok(compared) => done += compared,
            Err(wrong) => return Err((seed, script, wrong)),
        }
        if done >= steps {
            break;
        }
    }
    Ok(done)
}

/// The shortest part of a script that fails, and how.
fn shown(runtime: &tokio::runtime::Runtime, lab: &mut Lab, script: &Script, wrong: &Wrong) -> String {
    let mut run = |moves: &[Move]| runtime.block_on(lab.run(&Script { moves: moves.to_vec() })).err();
    let moves = shortened(&script.moves[..=wrong.at], |moves| run(moves).is_some());
    let what = run(&moves).map_or_else(|| wrong.what.clone(), |wrong| wrong.what);
    moves.iter().fold(format!("{what}\n"), |text, one| text + &format!("  {one:?}\n"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn the_functions_of_permits_answer_as_the_rule_does() {
    let runtime = runtime();
    let mut lab = runtime.block_on(Lab::start(None));
    let started = Instant::now();
    let (seed, steps) = (number("TENURE_MODEL_SEED", 0), number("TENURE_MODEL_STEPS", 6_000));
    match runtime.block_on(search(&mut lab, seed, steps)) {
        Ok(steps) => println!("{steps} steps agree, compared in {:.1?}", started.elapsed()),
        Err((seed, script, wrong)) => panic!("seed {seed}: {}", shown(&runtime, &mut lab, &script, &wrong)),
    }
}

/// The number of steps in which a fault has to be noticed.
const SOON: u64 = 10_000;

/// A name, a part of the functions, and the faulty part.
const FAULTS: [(&str, &str, &str); 10] = [
    (
        "a waiter behind one that does not fit is served",
        "waits := true;\n      EXIT;",
        "waits := true;\n      CONTINUE;",
    ),
    ("the room of notified waiters is not reserved", "reserved := reserved + w.weight;", ""),
    ("a request ignores the line", "IF fits AND p.lapse IS NOT NULL THEN", "IF false THEN"),
    ("the smaller capacity before is ignored", "smallest := least(smallest, w.capacity); before", "before"),
    ("an upgrade keeps its fence", "fence = permit_resize.fence", "fence = x.fence"),
    ("an upgrade keeps no other out", "fits := p.grow_token IS NULL AND", "fits :="),
    ("a late change takes effect", "ELSIF p_step < h.step THEN code := -7;", ""),
    (
        "an end serves none",
        "IF p.lapse IS NOT NULL OR p.grow_token IS NOT NULL THEN p := tenure.permit_serve(p, at, NULL, p_max_holders, p_floor); END IF;\n  IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;\n  RETURN",
        "IF p IS DISTINCT FROM old THEN PERFORM tenure.permit_keep(p); END IF;\n  RETURN",
    ),
    ("a renewal shortens", "until = greatest(h.until, t + p_ttl)", "until = t + p_ttl"),
    (
        "a name has more holders than its limit",
        " AND total <= smallest AND p.holders < p_max_holders;",
        " AND total <= smallest;",
    ),
];

#[test]
fn faults_in_the_functions_of_permits_are_noticed() {
    let runtime = runtime();
    let mut lab = runtime.block_on(Lab::start(None));
    let mut missed = Vec::new();
    for (name, is, becomes) in FAULTS {
        runtime.block_on(lab.change(Some((is, becomes))));
        match runtime.block_on(search(&mut lab, 0, SOON)) {
            Err((seed, _, wrong)) => println!("| {name} | seed {seed}, step {} |", wrong.at),
            Ok(_) => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}
