//! Which command about a queue is meant.

use std::time::Duration;

use tenure::queue::Flow;

use super::args::{Command, Queue};
use super::desk::Desk;
use super::{dead, lines, push, show, work};
use crate::backend::Backend;
use crate::exit::Failure;
use crate::name::Spelling;
use crate::speak::Voice;

/// The most time for undoing abandoned requests.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) async fn obey(queue: Queue, backend: &Backend, voice: Voice) -> Result<u8, Failure> {
    let spelling = Spelling::of(queue.name_hex);
    let client = backend.client().await?;
    if let Command::Stats(stats) = &queue.command
        && stats.queue.is_none()
    {
        return show::all(&client, voice).await;
    }
    let name = spelling.read(queue.command.queue())?;
    let desk = Desk { queue: client.queue_of_bytes(name)?, client, ids: Spelling::of(queue.id_hex), voice };
    let done = match queue.command {
        Command::Push(push) if push.lines => lines::push_lines(&desk, &push).await,
        Command::Push(push) => push::push(&desk, &push).await,
        Command::Stats(_) => show::stats(&desk).await,
        Command::Peek(peek) => show::peek(&desk, &peek).await,
        Command::List(list) => show::list(&desk, &list).await,
        Command::Pause(_) => show::set_flow(&desk, Flow::Paused).await,
        Command::Resume(_) => show::set_flow(&desk, Flow::Running).await,
        Command::Cancel(cancel) => show::cancel(&desk, &cancel).await,
        Command::Purge(purge) => show::purge(&desk, &purge).await,
        Command::Dead(dead) => dead::list(&desk, &dead).await,
        Command::Requeue(requeue) => dead::requeue(&desk, &requeue).await,
        Command::DeadPurge(purge) => dead::purge(&desk, &purge).await,
        Command::Run(run) => return work::run(desk, run).await,
    };
    let _ = desk.client.close(FAREWELL).await;
    done
}
