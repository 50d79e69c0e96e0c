//! Semaphores and read-write locks: a random script against the procedures and against the rule of core, and what it cannot see.
//!
//! `TENURE_MODEL_STEPS` is the number of steps to take, 4,000 unless set; `TENURE_MODEL_SEED` is the first seed.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{DATABASE, backend, session};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, Family, ForceReleased, Grant, Handing, PermitChange, PermitHold,
    PermitRequest, Permits, Queueing, Released, Renewed, Share, Ttl,
};
use tenure_core::rules::locks::{Given, Heard};
use tenure_core::rules::permits::{Caps, Outside, PermitState, Refusal, Rule};
use tenure_core::{ErrorKind, FencingToken, LockName, OwnerToken, Result};
use tenure_models::{Rng, number};
use tenure_mysql::{MysqlDriver, install_sql};
use tenure_testkit::{MariaDbOptions, MariaDbServer};

const CAPS: Caps = Caps { waiters: 1, holders: 4 };
const CLIENTS: u64 = 6;
const BURIED: i64 = 5_000_000;
const FLOOR: i64 = 7;
/// The clock of the procedures.
const NOW: &str =
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) - TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), NOW(6)))";

#[derive(Debug, Default)]
struct World {
    now: i64,
    fence: i64,
    buried: HashMap<OwnerToken, i64>,
}

impl Outside for &mut World {
    type Error = Infallible;

    fn fence(&mut self) -> Result<FencingToken, Infallible> {
        self.fence = (self.fence + 1).max(self.now).max(FLOOR + 1);
        Ok(FencingToken::new(self.fence.cast_unsigned()).unwrap())
    }

    fn signal(&mut self, _: &OwnerToken, _: u64, _: Option<Given>) -> Result<Heard, Infallible> {
        Ok(Heard::Perhaps)
    }

    fn bury(&mut self, token: &OwnerToken) -> Result<(), Infallible> {
        self.buried.insert(*token, self.now + BURIED);
        Ok(())
    }

    fn is_buried(&self, token: &OwnerToken) -> Result<bool, Infallible> {
        Ok(self.buried.get(token).is_some_and(|until| *until > self.now))
    }
}

fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap())
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap()
}

fn said_by_rule(answer: Result<Acquisition, Refusal>) -> String {
    match answer {
        Ok(Acquisition::Granted(grant)) => format!("{:?}: {} for {}", grant.begun, grant.fence, micros(grant.ttl)),
        Ok(Acquisition::Busy(busy)) => {
            format!("busy at {:?}, again after {:?}", busy.position, busy.recheck_after.map(micros))
        }
        Err(refusal) => format!("refused: {refusal:?}"),
    }
}

fn said_by_row(row: &Row, share: Share) -> String {
    let number = |at: usize| row.get::<Option<i64>, _>(at).unwrap();
    let refusal = match number(0).unwrap() {
        code @ (1 | 2) => {
            let begun = if code == 1 { Begun::Now } else { Begun::Earlier };
            return format!("{begun:?}: {} for {}", number(1).unwrap(), number(2).unwrap());
        }
        3 => return format!("busy at {:?}, again after {:?}", number(3), number(4)),
        -1 => Refusal::Abandoned,
        -5 => Refusal::Impossible(share),
        -6 => Refusal::NotHeld,
        -7 => Refusal::Superseded,
        code => [Refusal::AnotherGrows].into_iter().find(|_| code == -8).expect("a known code"),
    };
    format!("refused: {refusal:?}")
}

/// One name, at the server and by the rule.
struct Run {
    key: String,
    name: LockName,
    state: PermitState,
    world: World,
    tokens: Vec<(OwnerToken, u32)>,
}

impl Run {
    fn rule(&mut self) -> Rule<'_, &mut World> {
        Rule::new(&mut self.state, span(self.world.now), CAPS, &mut self.world)
    }

    /// Makes one random request; returns it, and both answers.
    async fn step(&mut self, conn: &mut Conn, rng: &mut Rng, kind: u64) -> (String, String, String) {
        self.world.now += rng.one_of(&[0, 0, 0, 0, 500_000, 1_000_000, 2_000_000]);
        conn.query_drop(format!("SET @model_now = {}", self.world.now)).await.unwrap();
        let who = rng.below(CLIENTS) as usize;
        let ((token, last), key) = (self.tokens[who], self.key.clone());
        let text = token.expose();
        let text = text.as_str();
        let (to, ttl) = (share(rng, kind), rng.one_of(&[1_000_000, 2_000_000, 5_000_000, 8_000_000]));
        let mut ask = async |call: String| -> (String, Vec<Row>) {
            let rows = conn.query(&call).await.unwrap_or_else(|error| panic!("{call}: {error}"));
            (call, rows)
        };
        match rng.below(100) {
            0..45 => {
                let numbers = format!("{}, {}, {ttl}, 'x', NULL, {}, {FLOOR}", to.weight, to.capacity, CAPS.holders);
                let (call, rows) = ask(format!("CALL tenure_permit_acquire({key}, '{text}', {numbers})")).await;
                let request = AcquireRequest::new(self.name.clone(), token, Ttl::new(span(ttl)).unwrap());
                let Ok(answer) = self.rule().acquire(to, &request);
                (call, said_by_row(&rows[0], to), said_by_rule(answer))
            }
            45..65 => {
                let step = (last + 1).saturating_sub(rng.one_of(&[0, 0, 0, 1, 2]));
                self.tokens[who].1 = last.max(step);
                let presence = (rng.below(3) > 0).then_some(ttl);
                let shown = presence.map_or("NULL".to_owned(), |presence| presence.to_string());
                let numbers = format!("{}, {}, {step}, {shown}, {FLOOR}", to.weight, to.capacity);
                let (call, rows) = ask(format!("CALL tenure_permit_resize({key}, '{text}', {numbers})")).await;
                let Ok(answer) = self.rule().resize(&token, to, step, presence.map(span));
                (call, said_by_row(&rows[0], to), said_by_rule(answer))
            }
            65..75 => {
                let other = self.tokens[(who + 1) % self.tokens.len()].0;
                let name = key.trim_start_matches("X'").trim_end_matches('\'');
                let holds = format!("[[\"{name}\", \"{text}\"], [\"{name}\", \"{}\"]]", other.expose().as_str());
                let (call, rows) = ask(format!("CALL tenure_permit_renew('{holds}', {ttl})")).await;
                let now = span(self.world.now);
                let model = [token, other].map(|token| match self.state.renew(now, &token, span(ttl)) {
                    Renewed::Extended { ttl } => format!("{},", micros(ttl)),
                    Renewed::Lost => "-1,".to_owned(),
                });
                (call, rows[0].get::<String, _>(0).unwrap(), model.concat())
            }
            75..87 => {
                let (call, rows) = ask(format!("CALL tenure_permit_end({key}, '{text}', NULL)")).await;
                let Ok(released) = self.rule().release(&token);
                if released == Released::Released {
                    self.tokens[who] = (OwnerToken::random(), 0);
                }
                (
                    call,
                    rows[0].get::<i64, _>(0).unwrap().to_string(),
                    u8::from(released == Released::Released).to_string(),
                )
            }
            87..93 => {
                let (call, _) = ask(format!("CALL tenure_permit_abandon({key}, '{text}', {BURIED})")).await;
                let Ok(()) = self.rule().abandon(&token);
                if rng.below(2) == 0 {
                    self.tokens[who] = (OwnerToken::random(), 0);
                }
                (call, String::new(), String::new())
            }
            _ => {
                let held = self.state.inspect(span(self.world.now), 100).holders;
                let fence = held.first().and_then(|one| one.holder.fence).unwrap_or(FencingToken::new(5).unwrap());
                let (call, rows) = ask(format!("CALL tenure_permit_end({key}, NULL, {fence})")).await;
                let Ok(released) = self.rule().evict(fence);
                let is_released = u8::from(released == ForceReleased::Released);
                (call, rows[0].get::<i64, _>(0).unwrap().to_string(), is_released.to_string())
            }
        }
    }

    /// The weight, and of each holder its share, its fence, its times and its label: as the server and as the rule have them.
    async fn seen(&self, conn: &mut Conn) -> (String, String) {
        let rows: Vec<Row> = conn.query(format!("CALL tenure_permit_inspect({}, 100)", self.key)).await.unwrap();
        let numbers = |row: &Row| [1, 2, 3, 4, 5].map(|at: usize| row.get::<Option<i64>, _>(at).unwrap());
        let real: Vec<_> = rows.iter().map(numbers).filter(|row| row[2].is_some()).collect();
        let seen = self.state.inspect(span(self.world.now), 100);
        let model = seen.holders.iter().map(|one| {
            let (share, held) = (one.share, &one.holder);
            let fence = held.fence.unwrap().get().cast_signed();
            let spans = [held.held_for, held.remaining].map(|span| micros(span.unwrap()));
            [i64::from(share.weight), i64::from(share.capacity), fence, spans[0], spans[1]].map(Some)
        });
        let model: Vec<_> = model.collect();
        (format!("{} {real:?}", rows[0].get::<i64, _>(0).unwrap()), format!("{} {model:?}", seen.used))
    }
}

fn share(rng: &mut Rng, kind: u64) -> Share {
    let weight = rng.below(5) as u32;
    match kind {
        0 => Share { weight: 1, capacity: 1 },
        1 => Share { weight, capacity: 5 },
        2 => Share { weight, capacity: rng.one_of(&[3, 6]) },
        _ => rng.one_of(&[Share::READER, Share::UPGRADABLE, Share::WRITER]),
    }
}

/// Runs scripts until so many steps agree; otherwise returns the calls of the first one that does not.
async fn search(conn: &mut Conn, now: &mut i64, steps: u64) -> Result<u64, String> {
    let mut done = 0;
    for seed in number("TENURE_MODEL_SEED", 0).. {
        let mut rng = Rng::new(seed);
        let (kind, name) = (rng.below(4), format!("name {now}"));
        let digits = name.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let tokens = (0..CLIENTS).map(|_| (OwnerToken::random(), 0)).collect();
        let world = World { now: *now, ..World::default() };
        let (key, name) = (format!("X'73{digits}'"), LockName::new(&name).unwrap());
        let mut run = Run { key, name, state: PermitState::default(), world, tokens };
        let mut calls = String::new();
        for _ in 0..50 {
            let (call, real, model) = run.step(conn, &mut rng, kind).await;
            calls += &format!("{} {call}\n", run.world.now);
            *now = run.world.now + 100_000_000;
            if real != model {
                return Err(format!("seed {seed}\n{calls}the answer is {real}, by the rule {model}"));
            }
            let (real, model) = run.seen(conn).await;
            if real != model {
                return Err(format!("seed {seed}\n{calls}the holds are {real}\nby the rule {model}"));
            }
            done += 1;
        }
        if done >= steps {
            break;
        }
    }
    Ok(done)
}

/// A server whose procedures go by a clock that a session sets.
fn with_a_clock() -> MariaDbServer {
    let options = std::env::var_os("TENURE_MYSQL").into_iter().fold(MariaDbOptions::new(), MariaDbOptions::mysql);
    let server = MariaDbServer::start(options).unwrap();
    server.create_database(DATABASE).unwrap();
    let script = install_sql();
    assert!(script.contains(NOW), "the clock of the procedures");
    server.script(DATABASE, &script.replace(NOW, "CAST(@model_now AS SIGNED)")).unwrap();
    server
}

#[tokio::test]
async fn without_waiters_the_procedures_answer_as_the_rule_does() {
    let server = with_a_clock();
    let mut conn = session(&server).await;
    let mut now = 1_800_000_000_000_000;
    match search(&mut conn, &mut now, number("TENURE_MODEL_STEPS", 4_000)).await {
        Ok(steps) => println!("{steps} steps agree"),
        Err(wrong) => panic!("{wrong}"),
    }
}

/// A name, a part of the procedures, and the faulty part.
const FAULTS: [(&str, &str, &str); 5] = [
    ("a grant ignores the number of holders", " AND l_holders + l_before < p_max_holders THEN", " THEN"),
    ("an upgrade keeps no other out", "IF l_grow IS NULL AND l_used + p_weight", "IF l_used + p_weight"),
    ("a late change takes effect", "ELSEIF p_step < l_step THEN", "ELSEIF FALSE THEN"),
    ("an upgrade keeps its fence", "step = p_step, fence = l_first", "step = p_step"),
    (
        "a renewal shortens",
        "SET until = GREATEST(l_until, t + p_ttl) WHERE name = l_name AND token",
        "SET until = t + p_ttl WHERE name = l_name AND token",
    ),
];

#[tokio::test]
async fn faults_in_the_procedures_of_permits_are_noticed() {
    let server = with_a_clock();
    let mut now = 1_800_000_000_000_000;
    for (fault, is, becomes) in FAULTS {
        let script = install_sql().replace(NOW, "CAST(@model_now AS SIGNED)");
        assert!(script.contains(is), "the procedures have no {is:?}");
        server.script(DATABASE, &script.replace(is, becomes)).unwrap();
        let mut conn = session(&server).await;
        let found = search(&mut conn, &mut now, 4_000).await;
        assert!(found.is_err(), "not noticed: {fault}");
    }
}

fn granted(answer: Result<Acquisition>) -> Grant {
    match answer.unwrap() {
        Acquisition::Granted(grant) => grant,
        Acquisition::Busy(busy) => panic!("not granted: {busy:?}"),
    }
}

fn busy(answer: Result<Acquisition>) -> Busy {
    match answer.unwrap() {
        Acquisition::Busy(busy) => busy,
        Acquisition::Granted(grant) => panic!("not busy: {grant:?}"),
    }
}

const MINUTE: Duration = Duration::from_secs(60);

fn request(token: OwnerToken, weight: u32, queue: Queueing) -> PermitRequest {
    let name = LockName::new("a").unwrap();
    let lock = AcquireRequest::new(name, token, Ttl::new(MINUTE).unwrap()).with_queue(queue);
    PermitRequest::new(Family::Semaphore, Share { weight, capacity: 3 }, lock)
}

fn hold(token: OwnerToken) -> PermitHold {
    PermitHold::new(Family::Semaphore, LockName::new("a").unwrap(), token)
}

async fn permits(server: &MariaDbServer) -> Arc<dyn Permits> {
    Arc::clone(backend(server).await.permits().unwrap())
}

const fn joining(presence: Duration) -> Queueing {
    Queueing::Join { presence, accepts: Handing::Direct }
}

/// One heavy waiter keeps lighter ones out until it is served, stops asking, or is abandoned.
#[tokio::test]
async fn a_heavy_waiter_is_served_before_lighter_requests_that_would_delay_it() {
    let server = crate::common::start(MariaDbOptions::new());
    let (one, other) = (permits(&server).await, permits(&server).await);
    let [first, second, heavy, light, another] = [(); 5].map(|()| OwnerToken::random());
    granted(one.acquire(&request(first, 1, Queueing::None)).await);
    // One attempt leaves no mark.
    busy(other.acquire(&request(heavy, 3, Queueing::None)).await);
    granted(one.acquire(&request(second, 1, Queueing::None)).await);
    let answer = busy(other.acquire(&request(heavy, 3, joining(MINUTE))).await);
    assert_eq!(answer.position, None);
    // One would fit beside the holds, and not beside the heavy one.
    let answer = busy(one.acquire(&request(light, 1, joining(MINUTE))).await);
    assert!(answer.recheck_after.is_some_and(|after| after <= MINUTE), "{answer:?}");
    // The name has one mark.
    busy(one.acquire(&request(another, 2, joining(MINUTE))).await);
    assert_eq!(one.release(&hold(first)).await.unwrap(), Released::Released);
    busy(one.acquire(&request(light, 1, Queueing::None)).await);
    assert_eq!(one.release(&hold(second)).await.unwrap(), Released::Released);
    busy(one.acquire(&request(light, 1, Queueing::None)).await);
    granted(other.acquire(&request(heavy, 3, joining(MINUTE))).await);
    other.release(&hold(heavy)).await.unwrap();
    // It was granted: its mark is gone.
    granted(one.acquire(&request(light, 1, Queueing::None)).await);
    // A mark ends with its presence.
    let short = Duration::from_millis(300);
    busy(other.acquire(&request(another, 3, joining(short))).await);
    busy(one.acquire(&request(first, 2, Queueing::None)).await).recheck_after.unwrap();
    tokio::time::sleep(short * 2).await;
    assert_eq!(granted(one.acquire(&request(OwnerToken::random(), 1, Queueing::None)).await).begun, Begun::Now);
    // And with its token.
    busy(other.acquire(&request(another, 3, joining(MINUTE))).await);
    busy(one.acquire(&request(OwnerToken::random(), 1, Queueing::None)).await);
    other.abandon(&hold(another)).await.unwrap();
    granted(one.acquire(&request(OwnerToken::random(), 1, Queueing::None)).await);
    assert_eq!(other.acquire(&request(another, 1, Queueing::None)).await.unwrap_err().kind(), ErrorKind::NotHeld);
}

#[tokio::test]
async fn every_method_answers_through_the_driver() {
    let server = crate::common::start(MariaDbOptions::new());
    let permits = permits(&server).await;
    let [first, other] = [(); 2].map(|()| OwnerToken::random());
    let name = LockName::new("a").unwrap();
    let grant = granted(permits.acquire(&request(first, 2, Queueing::None)).await);
    assert_eq!((grant.begun, grant.ttl), (Begun::Now, MINUTE));
    assert_eq!(granted(permits.acquire(&request(first, 2, Queueing::None)).await).begun, Begun::Earlier);
    let light = granted(permits.acquire(&request(other, 1, Queueing::None)).await);
    let more = PermitChange::new(hold(first), Share { weight: 3, capacity: 3 }, 1).with_presence(Some(MINUTE));
    assert_eq!(busy(permits.resize(&more).await).position, Some(0));
    let another = PermitChange::new(hold(other), Share { weight: 2, capacity: 3 }, 1);
    assert_eq!(permits.resize(&another).await.unwrap_err().kind(), ErrorKind::LimitReached);
    let seen = permits.inspect(Family::Semaphore, &name, 1).await.unwrap();
    assert_eq!((seen.used, seen.holders.len(), seen.holders[0].holder.fence), (3, 1, Some(grant.fence)));
    assert_eq!(permits.inspect(Family::RwLock, &name, 1).await.unwrap().used, 0);
    let evicted = permits.evict(Family::Semaphore, &name, light.fence).await.unwrap();
    assert_eq!(evicted, ForceReleased::Released);
    assert!(granted(permits.resize(&more).await).fence > light.fence);
    let renewed = permits.renew(Ttl::new(MINUTE).unwrap(), &[hold(first), hold(other)]).await;
    assert!(matches!(renewed[..], [Ok(Renewed::Extended { .. }), Ok(Renewed::Lost)]), "{renewed:?}");
    let late = PermitChange::new(hold(first), Share { weight: 1, capacity: 3 }, 0);
    assert_eq!(permits.resize(&late).await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert_eq!(permits.watch(&hold(first)).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(
        permits.acquire(&request(other, 4, Queueing::None)).await.unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(permits.release(&hold(first)).await.unwrap(), Released::Released);
    assert_eq!(permits.release(&hold(first)).await.unwrap(), Released::NotHeld);
}

/// Requests of many clients at once never exceed the capacity, and none fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_at_once_do_not_deadlock() {
    let server = crate::common::start(MariaDbOptions::new());
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let permits = permits(&server).await;
        clients.spawn(async move {
            for number in 0..40 {
                let token = OwnerToken::random();
                let answer =
                    permits.acquire(&request(token, 1 + number % 3, joining(MINUTE))).await.expect("no deadlock");
                let seen = permits.inspect(Family::Semaphore, &hold(token).name, 10).await.unwrap();
                assert!(seen.used <= 3, "{seen:?}");
                permits.renew(Ttl::new(MINUTE).unwrap(), &[hold(token)]).await.pop().unwrap().expect("no deadlock");
                match answer {
                    Acquisition::Granted(_) => drop(permits.release(&hold(token)).await.expect("no deadlock")),
                    Acquisition::Busy(_) => permits.abandon(&hold(token)).await.expect("no deadlock"),
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
}

/// A database that an earlier release installed: permits alone are refused, and migrating adds them.
#[tokio::test]
async fn a_database_without_permits_works_and_gets_them_by_migrating() {
    let server = crate::common::start(MariaDbOptions::new());
    let procedures = ["take", "room_at", "sweep", "acquire", "resize", "renew", "end", "abandon", "inspect"];
    let dropped = procedures.map(|part| format!("DROP PROCEDURE tenure_permit_{part}; ")).concat();
    let tables = "DROP TABLE tenure_permit, tenure_permit_hold, tenure_permit_tombstone";
    server.sql(DATABASE, &(dropped + tables)).unwrap();
    server.create_user("worker", "secret").unwrap();
    server.sql("", "GRANT EXECUTE ON app.* TO worker").unwrap();
    let url = format!("{}?migrate=true", server.url_for("worker", "secret", DATABASE));
    // A user without the right to add them connects all the same.
    let backend = tenure_core::driver::Backend::from(MysqlDriver::connect(&url).await.unwrap());
    let lock = AcquireRequest::new(LockName::new("a").unwrap(), OwnerToken::random(), Ttl::new(MINUTE).unwrap());
    assert!(matches!(backend.locks().acquire(&lock).await, Ok(Acquisition::Granted(_))));
    let (permits, token) = (backend.permits().unwrap(), OwnerToken::random());
    let error = permits.acquire(&request(token, 1, Queueing::None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("migrate=true"), "{error}");
    drop(MysqlDriver::connect(&format!("{}?migrate=true", server.url(DATABASE))).await.unwrap());
    granted(permits.acquire(&request(token, 1, Queueing::None)).await);
}
