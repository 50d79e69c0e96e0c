//! Readers together, a writer alone, and the fences of both.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::driver::{Family, Share};
use tenure_core::{ErrorKind, FenceGate, LostReason};
use tokio::time::Instant;

use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::permits::support::{LONG, clean, is_idle, must, rw_lock};
use crate::cases::support::must_fail;
use crate::history::{Grant, Window, check_shares};
use crate::rng::Rng;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "rw/readers-together",
        "Readers of several clients hold a lock at the same time, each with a lease and a fence of its own.",
        ["P66", "P70"],
        [Need::ReadWrite],
        readers_together
    ),
    case!(
        "rw/writer-alone",
        "Beside a writer no reader, upgradable reader or other writer is granted, and beside a reader no writer.",
        ["P70"],
        [Need::ReadWrite],
        writer_alone
    ),
    case!(
        "rw/one-upgradable-beside-readers",
        "An upgradable reader is granted beside readers, and readers beside it, but no second upgradable one.",
        ["P70"],
        [Need::ReadWrite],
        one_upgradable_beside_readers
    ),
    case!(
        "rw/share-costs-no-request",
        "A shared guard of a reader has the same fence and sends no request.",
        ["P30", "P70"],
        [Need::ReadWrite],
        share_costs_no_request
    ),
    case!(
        "rw/last-share-gives-back",
        "A reader that was shared is given back with its last guard, and is not renewed afterwards.",
        ["P8", "P32", "P70"],
        [Need::ReadWrite],
        last_share_gives_back
    ),
    case!(
        "rw/stale-writer-is-refused",
        "A resource that checks fences refuses a writer whose lease has ended, once a later reader was admitted.",
        ["P21", "P72"],
        [Need::ReadWrite],
        stale_writer_is_refused
    ),
    case!(
        "rw/stale-reader-after-a-writer-is-refused",
        "A resource that checks fences admits readers in any order, and refuses one whose lease has ended after a later writer.",
        ["P21", "P72"],
        [Need::ReadWrite],
        stale_reader_after_a_writer_is_refused
    ),
    case!(
        "rw/history-is-clean",
        "In random schedules of several clients, readers, writers and changes between them never overlap as they must not.",
        ["P19", "P20", "P70"],
        [Need::ReadWrite],
        history_is_clean
    ),
];

async fn readers_together(context: &mut Context) -> CaseResult {
    let (one, other, name, ttl) =
        (context.client().await?, context.client().await?, context.name("together"), context.ttl(600));
    let mut readers = Vec::new();
    for client in [&one, &other, &one] {
        readers.push(must(rw_lock(client, &name).ttl(ttl).try_read().await?)?);
    }
    assert!(readers.is_sorted_by(|one, next| one.fence() < next.fence()), "fences in the order of the grants");
    context.pass(ttl * 2).await;
    assert!(readers.iter().all(tenure_core::ReadGuard::is_held));
    while let Some(reader) = readers.pop() {
        assert!(!is_idle(&other, Family::RwLock, &name).await?, "one release freed all readers");
        reader.release().await?;
    }
    clean(context, &other, Family::RwLock, &name, &[&one, &other]).await
}

async fn writer_alone(context: &mut Context) -> CaseResult {
    let (one, other, name) = (context.client().await?, context.client().await?, context.name("alone"));
    let writer = must(rw_lock(&one, &name).ttl(LONG).try_write().await?)?;
    for client in [&one, &other] {
        let lock = rw_lock(client, &name);
        assert!(lock.try_read().await?.is_none() && lock.try_upgradable().await?.is_none());
        assert!(lock.try_write().await?.is_none());
        must_fail(lock.read_within(context.ms(100)).await, ErrorKind::TimedOut)?;
    }
    assert!(writer.is_held());
    writer.release().await?;
    let reader = must(rw_lock(&other, &name).ttl(LONG).try_read().await?)?;
    assert!(rw_lock(&one, &name).try_write().await?.is_none());
    must_fail(rw_lock(&one, &name).write_within(context.ms(100)).await, ErrorKind::TimedOut)?;
    reader.release().await?;
    clean(context, &other, Family::RwLock, &name, &[&one, &other]).await
}

async fn one_upgradable_beside_readers(context: &mut Context) -> CaseResult {
    let (one, other, name) = (context.client().await?, context.client().await?, context.name("upgradable"));
    let before = must(rw_lock(&other, &name).ttl(LONG).try_read().await?)?;
    let upgradable = must(rw_lock(&one, &name).ttl(LONG).try_upgradable().await?)?;
    for client in [&one, &other] {
        let lock = rw_lock(client, &name);
        assert!(lock.try_upgradable().await?.is_none(), "two upgradable readers");
        assert!(lock.try_write().await?.is_none());
        must(lock.try_read().await?)?.release().await?;
    }
    before.release().await?;
    assert!(rw_lock(&other, &name).try_upgradable().await?.is_none());
    upgradable.release().await?;
    must(rw_lock(&other, &name).try_upgradable().await?)?.release().await?;
    clean(context, &other, Family::RwLock, &name, &[&one, &other]).await
}

async fn share_costs_no_request(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("share"));
    let reader = must(rw_lock(&client, &name).ttl(LONG).try_read().await?)?;
    let before = layer.count();
    let shares: Vec<_> = (0..100).map(|_| reader.share()).collect();
    assert!(shares.iter().all(|share| share.fence() == reader.fence() && share.is_held()));
    for share in shares {
        share.release().await?;
    }
    assert_eq!(layer.count(), before, "sharing sent a request");
    assert!(reader.is_held() && !is_idle(&probe, Family::RwLock, &name).await?);
    reader.release().await?;
    clean(context, &probe, Family::RwLock, &name, &[&client]).await
}

async fn last_share_gives_back(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("last"), context.ttl(600));
    for dropped in [false, true] {
        let reader = must(rw_lock(&client, &name).ttl(ttl).try_read().await?)?;
        let (one, last) = (reader.share(), reader.share());
        reader.release().await?;
        drop(one);
        context.pass(ttl * 2).await;
        assert!(last.is_held() && !is_idle(&probe, Family::RwLock, &name).await?, "a share gave the hold back");
        if dropped {
            drop(last)
        } else {
            last.release().await?
        }
        clean(context, &probe, Family::RwLock, &name, &[&client]).await?;
        let before = layer.count();
        context.pass(ttl * 2).await;
        assert_eq!(layer.count(), before, "requests after the last guard");
    }
    Ok(())
}

async fn stale_writer_is_refused(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl, gate) = (context.name("stale-writer"), context.ttl(600), FenceGate::new());
    let stale = must(rw_lock(&client, &name).fixed_ttl(ttl).try_write().await?)?;
    gate.admit(stale.fence())?;
    assert_eq!(context.within(ttl * 2, "the lease ends", stale.lost()).await?, LostReason::Expired);
    let reader = rw_lock(&other, &name).ttl(LONG).read_within(context.soon()).await?;
    gate.admit_shared(reader.fence())?;
    assert!(gate.admit(stale.fence()).is_err(), "a write after a later reader was admitted");
    must_fail(stale.release().await, ErrorKind::Lost)?;
    assert!(reader.is_held() && !is_idle(&client, Family::RwLock, &name).await?);
    reader.release().await?;
    clean(context, &other, Family::RwLock, &name, &[&client, &other]).await
}

async fn stale_reader_after_a_writer_is_refused(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl, gate) = (context.name("stale-reader"), context.ttl(600), FenceGate::new());
    let lock = rw_lock(&client, &name).fixed_ttl(ttl);
    let (one, two) = (must(lock.try_read().await?)?, must(lock.try_read().await?)?);
    for reader in [&two, &one, &two] {
        gate.admit_shared(reader.fence())?;
    }
    context.within(ttl * 2, "the leases end", async { (one.lost().await, two.lost().await) }).await?;
    let writer = rw_lock(&other, &name).ttl(LONG).write_within(context.soon()).await?;
    gate.admit(writer.fence())?;
    for stale in [one, two] {
        assert!(gate.admit_shared(stale.fence()).is_err(), "a stale reader was admitted after a later writer");
        must_fail(stale.release().await, ErrorKind::Lost)?;
    }
    gate.admit(writer.fence())?;
    writer.release().await?;
    clean(context, &other, Family::RwLock, &name, &[&client, &other]).await
}

/// What one client did.
#[derive(Default)]
struct Story {
    grants: Vec<Grant>,
    windows: Vec<Window>,
}

/// A turn of one client, which writes down what it holds.
struct Turn {
    client: usize,
    start: Instant,
    story: Arc<Mutex<Story>>,
}

impl Turn {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn grant(&self, fence: u64, asked_at: Duration, granted_at: Duration, left: Duration) {
        let valid_until = self.now() + left;
        let grant = Grant { client: self.client, fence, asked_at, granted_at, valid_until, ended_at: granted_at };
        self.story.lock().expect("no panic under it").grants.push(grant);
    }

    fn window(&self, share: Share, from: Duration, held: bool) {
        let until = self.now();
        if held {
            self.story.lock().expect("no panic under it").windows.push(Window { share, from, until });
        }
    }
}

async fn history_is_clean(context: &mut Context) -> CaseResult {
    let (name, start, story) = (context.name("history"), Instant::now(), Arc::<Mutex<Story>>::default());
    let (limit, ttl, mut tasks) = (context.ms(50_000), context.ttl(5_000), Vec::new());
    for client in 0..5 {
        let (lock, mut rng) = (rw_lock(&context.client().await?, &name).ttl(ttl), Rng::new(context.rng().bits()));
        let turn = Turn { client, start, story: Arc::clone(&story) };
        tasks.push(tokio::spawn(async move {
            for _ in 0..8 {
                one_turn(&turn, &lock, &mut rng, limit).await?;
            }
            CaseResult::Ok(())
        }));
    }
    for task in tasks {
        context.within(limit, "every client had its turns", task).await???;
    }
    let Story { grants, windows } = std::mem::take(&mut *story.lock().expect("no panic under it"));
    assert!(grants.len() >= 20, "most requests were granted, not {}", grants.len());
    let found = check_shares(&grants, &windows);
    assert!(found.is_empty(), "{}", found[0]);
    let probe = context.client().await?;
    clean(context, &probe, Family::RwLock, &name, &[]).await
}

/// Reads, writes, or reads and then writes and reads again.
async fn one_turn(turn: &Turn, lock: &tenure_core::RwLock, rng: &mut Rng, limit: Duration) -> CaseResult {
    let (kind, pause) = (rng.below(4), Duration::from_micros(rng.below(5_000)));
    let asked = turn.now();
    match kind {
        0 => {
            let guard = lock.write_within(limit).await?;
            let from = turn.now();
            turn.grant(guard.fence().get(), asked, from, guard.remaining());
            tokio::time::sleep(pause).await;
            turn.window(Share::WRITER, from, guard.is_held());
            guard.release().await?;
        }
        1 => {
            let guard = lock.upgradable_within(limit).await?;
            let from = turn.now();
            turn.grant(guard.fence().get(), asked, from, guard.remaining());
            tokio::time::sleep(pause).await;
            turn.window(Share::UPGRADABLE, from, guard.is_held());
            let asked = turn.now();
            let guard = guard.upgrade_within(limit).await?;
            let from = turn.now();
            turn.grant(guard.fence().get(), asked, from, guard.remaining());
            tokio::time::sleep(pause).await;
            turn.window(Share::WRITER, from, guard.is_held());
            let from = turn.now();
            let guard = guard.downgrade().await?;
            tokio::time::sleep(pause).await;
            turn.window(Share::READER, from, guard.is_held());
            guard.release().await?;
        }
        _ => {
            let guard = lock.read_within(limit).await?;
            let from = turn.now();
            turn.grant(guard.fence().get(), asked, from, guard.remaining());
            tokio::time::sleep(pause).await;
            turn.window(Share::READER, from, guard.is_held());
            guard.release().await?;
        }
    }
    Ok(())
}
