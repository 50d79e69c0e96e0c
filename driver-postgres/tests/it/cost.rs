//! What each method costs: statements that are sent, and flushes of the log that are waited for. `README.md` has the table.

use std::time::Duration;

use crate::sql::{LONGEST, Tables, install};
use tenure_core::driver::{
    AcquireRequest, Backend, Census as _, Delay, DelayQueueExt as _, DistributedLock as _, Extension, Family, Handing,
    Hold, Lease, NewMessage, Payload, PermitChange, PermitHold, PermitRequest, Queueing, ReceiveRequest, Settle,
    Settlement, Share, Ttl,
};
use tenure_core::queue::QueueName;
use tenure_core::{LockName, OwnerToken};
use tenure_postgres::PostgresDriver;
use tenure_testkit::{PostgresOptions, PostgresServer};

/// A server that counts statements, and writes its log down only when somebody waits for that.
struct Counting {
    server: PostgresServer,
    /// What each method cost: its name, statements, flushes.
    seen: Vec<(&'static str, u64, bool)>,
}

impl Counting {
    fn start(tables: Tables) -> Self {
        let options = PostgresOptions::new()
            .setting("shared_preload_libraries", "pg_stat_statements")
            .setting("wal_writer_delay", "10s")
            .setting("wal_writer_flush_after", "1GB")
            .setting("autovacuum", "off")
            .setting("checkpoint_timeout", "1h");
        let server = PostgresServer::start(options).unwrap();
        server.sql("postgres", "CREATE EXTENSION pg_stat_statements").unwrap();
        install(&server, "postgres", tables);
        // Else the first looks into its catalogs would clean these up, which is written to the log.
        server.sql("postgres", "VACUUM").unwrap();
        Self { server, seen: Vec::new() }
    }

    fn ask(&self, statement: &str) -> String {
        self.server.sql("postgres", statement).unwrap()
    }

    /// Statements that name the schema, without the ones inside of functions.
    fn statements(&self) -> u64 {
        let statement = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%tenure.%'
          AND query NOT LIKE '%pg_stat_statements%'";
        self.ask(statement).parse().unwrap()
    }

    async fn count<T>(&mut self, method: &'static str, call: impl Future<Output = T>) -> T {
        let (before, written) = (self.statements(), self.ask("SELECT pg_current_wal_flush_lsn()"));
        let answer = call.await;
        let flushed = self.ask("SELECT pg_current_wal_flush_lsn()") != written;
        self.seen.push((method, self.statements() - before, flushed));
        answer
    }
}

fn hold(name: &LockName, token: OwnerToken) -> Hold {
    Hold::new(name.clone(), token)
}

/// Calls every method of locks and queues once, after all have been prepared.
async fn costs(tables: Tables) -> Vec<(&'static str, u64, bool)> {
    let mut counting = Counting::start(tables);
    let url = format!("{}?connections=1", counting.server.url("postgres"));
    let driver = PostgresDriver::connect(&url).await.unwrap();
    let (name, ttl) = (LockName::new("a").unwrap(), Ttl::new(LONGEST).unwrap());
    let request = |token| AcquireRequest::new(name.clone(), token, ttl);
    let join = Queueing::Join { presence: Duration::from_secs(15), accepts: Handing::Direct };
    let [one, two, three] = [(); 3].map(|()| OwnerToken::random());
    // Rows, and a session that listens: what is new, and what the server then tidies up in its catalogs, is written once.
    let _watch = driver.watch(&name, &two).await.unwrap();
    for token in [one, two] {
        driver.acquire(&request(token).with_queue(join)).await.unwrap();
    }
    driver.abandon(&hold(&name, two)).await.unwrap();
    driver.release(&hold(&name, one)).await.unwrap();
    let two = OwnerToken::random();

    counting.count("acquire, free", driver.acquire(&request(one))).await.unwrap();
    counting.count("acquire, a try that finds it held", driver.acquire(&request(two))).await.unwrap();
    counting.count("acquire, join", driver.acquire(&request(two).with_queue(join))).await.unwrap();
    counting.count("acquire, ask again", driver.acquire(&request(two).with_queue(join))).await.unwrap();
    counting.count("renew", driver.renew(ttl, &[hold(&name, one), hold(&name, three)])).await;
    counting.count("inspect", driver.inspect(&name)).await.unwrap();
    counting.count("held", driver.held(b"", None, 500)).await.unwrap();
    counting.count("release, somebody waits", driver.release(&hold(&name, one))).await.unwrap();
    counting.count("acquire, handed over", driver.acquire(&request(two).with_queue(join))).await.unwrap();
    counting.count("release, nobody waits any more", driver.release(&hold(&name, two))).await.unwrap();
    driver.acquire(&request(three)).await.unwrap();
    counting.count("release", driver.release(&hold(&name, three))).await.unwrap();
    counting.count("abandon", driver.abandon(&hold(&name, three))).await.unwrap();
    driver.acquire(&request(one)).await.unwrap();
    counting.count("force_release", driver.force_release(&name, None)).await.unwrap();

    let backend = Backend::from(driver);
    permit_costs(&mut counting, backend.permits().unwrap().as_ref()).await;
    let (queue, jobs) = (backend.queue_admin().unwrap(), QueueName::new("jobs").unwrap());
    let message = || NewMessage::new(Payload::new(&b"x"[..]).unwrap());
    let request = |max| ReceiveRequest::new(jobs.clone(), max, Lease::DEFAULT);
    queue.push(&jobs, &[message()]).await.unwrap();
    let first = queue.receive(&request(1)).await.unwrap().deliveries;
    let settle = |receipt| Settle::new(receipt, Settlement::Ack);
    counting.count("push, 100 messages", queue.push(&jobs, &vec![message(); 100])).await.unwrap();
    let done = vec![settle(first[0].receipt)];
    let got = counting.count("exchange, 1 settled, 99 received", queue.exchange(&done, &request(99))).await.unwrap();
    let extended = got.received.deliveries.iter().map(|one| Extension::new(one.receipt, Lease::DEFAULT));
    let extended: Vec<_> = extended.collect();
    counting.count("extend, 99", queue.extend(&jobs, &extended)).await.unwrap();
    let done: Vec<_> = got.received.deliveries.iter().map(|one| settle(one.receipt)).collect();
    counting.count("settle, 99", queue.settle(&jobs, &done)).await.unwrap();
    let last = queue.receive(&request(1)).await.unwrap().deliveries.remove(0);
    queue.settle(&jobs, &[settle(last.receipt)]).await.unwrap();
    counting.count("receive, nothing due", queue.receive(&request(10))).await.unwrap();
    queue.push(&jobs, &[message()]).await.unwrap();
    let id = queue.receive(&request(1)).await.unwrap().deliveries.remove(0).id;
    counting.count("get", queue.get(&jobs, &id)).await.unwrap();
    counting.count("stats", queue.stats(&jobs)).await.unwrap();
    counting.count("cancel", queue.cancel(&jobs, &id)).await.unwrap();
    counting.count("reschedule", queue.reschedule(&jobs, &id, Delay::ZERO)).await.unwrap();
    counting.seen
}

/// Calls every method of permits once.
async fn permit_costs(counting: &mut Counting, permits: &dyn tenure_core::driver::Permits) {
    let (name, ttl) = (LockName::new("a").unwrap(), Ttl::new(LONGEST).unwrap());
    let hold = |token| PermitHold::new(Family::Semaphore, name.clone(), token);
    let share = |weight| Share { weight, capacity: 2 };
    let request =
        |token| PermitRequest::new(Family::Semaphore, share(2), AcquireRequest::new(name.clone(), token, ttl));
    let join = Queueing::Join { presence: Duration::from_secs(15), accepts: Handing::Direct };
    let joining = |token| {
        let lock = AcquireRequest::new(name.clone(), token, ttl).with_queue(join);
        PermitRequest::new(Family::Semaphore, share(2), lock)
    };
    let [one, two, three] = [(); 3].map(|()| OwnerToken::random());
    let _watch = permits.watch(&hold(two)).await.unwrap();
    permits.acquire(&request(one)).await.unwrap();
    permits.acquire(&joining(two)).await.unwrap();
    permits.abandon(&hold(two)).await.unwrap();
    permits.release(&hold(one)).await.unwrap();
    let two = OwnerToken::random();
    counting.count("permits, acquire", permits.acquire(&request(one))).await.unwrap();
    counting.count("permits, a try that does not fit", permits.acquire(&request(two))).await.unwrap();
    counting.count("permits, join", permits.acquire(&joining(two))).await.unwrap();
    counting.count("permits, ask again", permits.acquire(&joining(two))).await.unwrap();
    counting.count("permits, renew", permits.renew(ttl, &[hold(one), hold(three)])).await;
    counting.count("permits, resize", permits.resize(&PermitChange::new(hold(one), share(1), 1))).await.unwrap();
    counting.count("permits, inspect", permits.inspect(Family::Semaphore, &name, 10)).await.unwrap();
    counting.count("permits, release to a waiter", permits.release(&hold(one))).await.unwrap();
    counting.count("permits, acquire, handed over", permits.acquire(&joining(two))).await.unwrap();
    let seen = permits.inspect(Family::Semaphore, &name, 10).await.unwrap();
    let fence = seen.holders[0].holder.fence.unwrap();
    counting.count("permits, evict", permits.evict(Family::Semaphore, &name, fence)).await.unwrap();
    counting.count("permits, abandon", permits.abandon(&hold(three))).await.unwrap();
}

/// One statement each, whatever is done; where locks are not logged, no step of theirs waits for a flush.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_is_one_statement_and_flushes_once_at_most() {
    let (unlogged, logged) = (costs(Tables::Unlogged).await, costs(Tables::Logged).await);
    let reported: Vec<_> = unlogged
        .iter()
        .zip(&logged)
        .map(|((method, statements, unlogged), (_, again, logged))| {
            assert_eq!((*statements, *again), (1, 1), "{method}");
            (*method, u8::from(*unlogged), u8::from(*logged))
        })
        .collect();
    let expected = [
        ("acquire, free", 0, 1),
        ("acquire, a try that finds it held", 0, 0),
        ("acquire, join", 0, 1),
        ("acquire, ask again", 0, 0),
        ("renew", 0, 1),
        ("inspect", 0, 0),
        ("held", 0, 0),
        ("release, somebody waits", 0, 1),
        ("acquire, handed over", 0, 1),
        ("release, nobody waits any more", 0, 1),
        ("release", 0, 1),
        ("abandon", 0, 0),
        ("force_release", 0, 1),
        ("permits, acquire", 0, 1),
        ("permits, a try that does not fit", 0, 0),
        ("permits, join", 0, 1),
        ("permits, ask again", 0, 0),
        ("permits, renew", 0, 1),
        ("permits, resize", 0, 1),
        ("permits, inspect", 0, 0),
        ("permits, release to a waiter", 0, 1),
        ("permits, acquire, handed over", 0, 1),
        ("permits, evict", 0, 1),
        ("permits, abandon", 0, 0),
        ("push, 100 messages", 1, 1),
        ("exchange, 1 settled, 99 received", 1, 1),
        ("extend, 99", 1, 1),
        ("settle, 99", 1, 1),
        ("receive, nothing due", 0, 0),
        ("get", 0, 0),
        ("stats", 0, 0),
        ("cancel", 1, 1),
        ("reschedule", 1, 1),
    ];
    assert_eq!(reported, expected, "method, whether it flushed in unlogged and in logged tables");
}
