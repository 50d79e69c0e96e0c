//! The line of readers and writers: neither starves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::driver::Family;

use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::permits::support::{LONG, clean, must, rw_lock, waiting};
use crate::layer::Op;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "rw/readers-behind-a-waiting-writer-wait",
        "A reader that arrives behind a waiting writer is granted after it, though it would fit beside the readers.",
        ["P65", "P71"],
        [Need::PermitsFifo, Need::ReadWrite],
        readers_behind_a_waiting_writer_wait
    ),
    case!(
        "rw/writer-is-not-starved",
        "A writer is granted the lock though readers of several clients overlap without a pause, and asks seldom.",
        ["P30", "P71"],
        [Need::PermitsFifo, Need::ReadWrite],
        writer_is_not_starved
    ),
    case!(
        "rw/readers-are-not-starved",
        "Readers are granted the lock though writers of several clients follow each other without a pause.",
        ["P71"],
        [Need::PermitsFifo, Need::ReadWrite],
        readers_are_not_starved
    ),
    case!(
        "rw/readers-enter-together",
        "A writer's release admits every reader before the next writer at once, and no reader behind it.",
        ["P67", "P71"],
        [Need::PermitsFifo, Need::ReadWrite],
        readers_enter_together
    ),
    case!(
        "rw/waiting-writer-is-woken",
        "The release of the last reader wakes the waiting writer, and one whose wake-up is lost is granted within its presence.",
        ["P18", "P67"],
        [Need::PermitWakeups, Need::ReadWrite],
        waiting_writer_is_woken
    ),
];

async fn readers_behind_a_waiting_writer_wait(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("behind"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let first = must(rw_lock(&holder, &name).ttl(LONG).try_read().await?)?;
    let (writer, reader) = (rw_lock(&client, &name).ttl(LONG), rw_lock(&client, &name).ttl(LONG));
    let writer = waiting(context, &layer, &name, async move { writer.write().await }).await?;
    assert!(rw_lock(&holder, &name).try_read().await?.is_none(), "a reader got past the waiting writer");
    let reader = waiting(context, &layer, &name, async move { reader.read().await }).await?;
    first.release().await?;
    let writer = context.within(context.soon(), "the writer is granted", writer).await???;
    assert!(!reader.is_finished());
    let fence = writer.fence();
    writer.release().await?;
    let reader = context.within(context.soon(), "the reader is granted", reader).await???;
    assert!(reader.fence() > fence);
    reader.release().await?;
    clean(context, &holder, Family::RwLock, &name, &[&holder, &client]).await
}

async fn writer_is_not_starved(context: &mut Context) -> CaseResult {
    let (name, stop) = (context.name("starved"), Arc::<AtomicBool>::default());
    let mut readers = Vec::new();
    for _ in 0..3 {
        let (lock, stop) = (rw_lock(&context.client().await?, &name).ttl(LONG), Arc::clone(&stop));
        readers.push(tokio::spawn(async move {
            // The next hold begins before the last one ends.
            let mut last = lock.read().await?;
            while !stop.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let Some(next) = lock.try_read().await? else {
                    last.release().await?;
                    last = lock.read().await?;
                    continue;
                };
                last.release().await?;
                last = next;
            }
            last.release().await
        }));
    }
    let (client, layer) = context.layered().await?;
    let lock = rw_lock(&client, &name).ttl(LONG);
    for _ in 0..3 {
        context.pass(context.ms(20)).await;
        let guard = context.within(context.soon(), "the writer is granted", lock.write()).await??;
        guard.release().await?;
    }
    stop.store(true, Ordering::Release);
    for reader in readers {
        context.within(context.soon(), "the reader ends", reader).await???;
    }
    let asked = layer.frames_of(Op::Acquire, &name).len();
    assert!(asked <= 30, "{asked} requests for three turns of the writer");
    clean(context, &client, Family::RwLock, &name, &[&client]).await
}

async fn readers_are_not_starved(context: &mut Context) -> CaseResult {
    let (name, stop) = (context.name("starved"), Arc::<AtomicBool>::default());
    let mut writers = Vec::new();
    for _ in 0..3 {
        let (lock, stop) = (rw_lock(&context.client().await?, &name).ttl(LONG), Arc::clone(&stop));
        writers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Acquire) {
                let guard = lock.write().await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
                guard.release().await?;
            }
            tenure_core::Result::<()>::Ok(())
        }));
    }
    let client = context.client().await?;
    let lock = rw_lock(&client, &name).ttl(LONG);
    for _ in 0..5 {
        context.pass(context.ms(20)).await;
        // Each leaves by itself: one that waited for the other would wait for a writer between them, which waits for it.
        let read = async || lock.read().await?.release().await;
        let both = async { tokio::try_join!(read(), read()) };
        context.within(context.soon(), "the readers are granted", both).await??;
    }
    stop.store(true, Ordering::Release);
    for writer in writers {
        context.within(context.soon(), "the writer ends", writer).await???;
    }
    clean(context, &client, Family::RwLock, &name, &[&client]).await
}

async fn readers_enter_together(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("enter"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let (other, other_layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let first = must(rw_lock(&holder, &name).ttl(LONG).try_write().await?)?;
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for (client, layer) in [(&client, &layer), (&other, &other_layer), (&client, &layer)] {
        let lock = rw_lock(client, &name).ttl(LONG);
        before.push(waiting(context, layer, &name, async move { lock.read().await }).await?);
    }
    let lock = rw_lock(&other, &name).ttl(LONG);
    let writer = waiting(context, &other_layer, &name, async move { lock.write().await }).await?;
    for (client, layer) in [(&client, &layer), (&other, &other_layer)] {
        let lock = rw_lock(client, &name).ttl(LONG);
        behind.push(waiting(context, layer, &name, async move { lock.read().await }).await?);
    }
    first.release().await?;
    let mut readers = Vec::new();
    for reader in before {
        readers.push(context.within(context.soon(), "each reader before the writer is admitted", reader).await???);
    }
    assert!(!writer.is_finished() && behind.iter().all(|reader| !reader.is_finished()));
    assert!(readers.iter().all(tenure_core::ReadGuard::is_held));
    for reader in readers {
        reader.release().await?;
    }
    let writer = context.within(context.soon(), "the writer is granted", writer).await???;
    assert!(behind.iter().all(|reader| !reader.is_finished()), "a reader beside the writer");
    writer.release().await?;
    for reader in behind {
        context.within(context.soon(), "each reader behind the writer is admitted", reader).await???.release().await?;
    }
    clean(context, &holder, Family::RwLock, &name, &[&holder, &client, &other]).await
}

async fn waiting_writer_is_woken(context: &mut Context) -> CaseResult {
    let (holder, name, short) = (context.client().await?, context.name("woken"), context.ttl(900));
    for (presence, muted) in [(LONG, false), (short, true)] {
        let (client, layer) = context.layered_with(|builder| builder.presence(presence)).await?;
        if muted {
            layer.mute();
        }
        let lock = rw_lock(&holder, &name).ttl(LONG);
        let (one, last) = (must(lock.try_read().await?)?, must(lock.try_read().await?)?);
        let writer = rw_lock(&client, &name).ttl(LONG);
        let writer = waiting(context, &layer, &name, async move { writer.write().await }).await?;
        one.release().await?;
        assert!(!writer.is_finished(), "granted beside a reader");
        last.release().await?;
        let limit = if muted { presence + context.ms(1_500) } else { context.soon() };
        context.within(limit, "the writer is granted", writer).await???.release().await?;
        clean(context, &holder, Family::RwLock, &name, &[&holder, &client]).await?;
    }
    Ok(())
}
