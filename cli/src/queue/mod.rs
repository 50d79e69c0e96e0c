//! `tenure queue`: what producers, workers and operators do with delay queues.

mod args;
mod children;
mod dead;
mod id;
mod program;
mod push;
mod show;
mod view;
mod work;

pub(crate) use args::Queue;

use crate::backend::Backend;
use crate::exit::Failure;
use crate::name::Spelling;
use crate::speak::Voice;
use args::Command;
use tenure::Client;
use tenure::queue::Queue as QueueOf;

/// A queue of bytes, and what is said about it.
struct Desk {
    client: Client,
    queue: QueueOf<Vec<u8>>,
    voice: Voice,
}

pub(crate) async fn obey(queue: Queue, backend: &Backend, voice: Voice) -> Result<u8, Failure> {
    let spelling = Spelling::of(queue.name_hex);
    let client = backend.client().await?;
    let limit = std::time::Duration::from_secs(2);
    if let Command::Stats(stats) = &queue.command
        && stats.queue.is_none()
    {
        return show::all(&client, voice).await;
    }
    let name = spelling.read(queue.command.queue())?;
    let desk = Desk { queue: client.queue_of_bytes(name)?, client, voice };
    let done = match queue.command {
        Command::Push(push) => push::push(&desk, &push).await,
        Command::Stats(_) => show::stats(&desk).await,
        Command::Peek(peek) => show::peek(&desk, &peek).await,
        Command::List(list) => show::list(&desk, &list).await,
        Command::Pause(_) => Ok(desk.queue.pause().await.map(|()| 0)?),
        Command::Resume(_) => Ok(desk.queue.resume().await.map(|()| 0)?),
        Command::Cancel(cancel) => show::cancel(&desk, &cancel).await,
        Command::Purge(purge) => show::purge(&desk, &purge).await,
        Command::Dead(dead) => dead::list(&desk, &dead).await,
        Command::Requeue(requeue) => dead::requeue(&desk, &requeue).await,
        Command::DeadPurge(purge) => dead::purge(&desk, &purge).await,
        Command::Run(run) => return work::run(desk, run).await,
    };
    let _ = desk.client.close(limit).await;
    done
}
