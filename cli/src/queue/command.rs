//! Which command about a queue is meant.

use std::time::Duration;

use tenure::queue::Flow;

use super::args::{Command, Queue};
use super::context::QueueContext;
use super::{dead, lines, push, show, work};
use crate::backend::Backend;
use crate::exit::Failure;
use crate::name::Spelling;
use crate::printer::Printer;

/// The most time for undoing abandoned requests.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) async fn obey(queue: Queue, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let spelling = Spelling::of(queue.name_hex);
    let client = backend.client().await?;
    if let Command::Stats(stats) = &queue.command
        && stats.queue.is_none()
    {
        return show::all(&client, printer).await;
    }
    let name = spelling.read(queue.command.queue())?;
    let context =
        QueueContext { queue: client.queue_of_bytes(name)?, client, ids: Spelling::of(queue.id_hex), printer };
    let done = match queue.command {
        Command::Push(push) if push.lines => lines::push_lines(&context, &push).await,
        Command::Push(push) => push::push(&context, &push).await,
        Command::Stats(_) => show::stats(&context).await,
        Command::Peek(peek) => show::peek(&context, &peek).await,
        Command::List(list) => show::list(&context, &list).await,
        Command::Pause(_) => show::set_flow(&context, Flow::Paused).await,
        Command::Resume(_) => show::set_flow(&context, Flow::Running).await,
        Command::Cancel(cancel) => show::cancel(&context, &cancel).await,
        Command::Purge(purge) => show::purge(&context, &purge).await,
        Command::Dead(dead) => dead::list(&context, &dead).await,
        Command::Requeue(requeue) => dead::requeue(&context, &requeue).await,
        Command::DeadPurge(purge) => dead::purge(&context, &purge).await,
        Command::Run(run) => return work::run(context, run).await,
    };
    let _ = context.client.close(FAREWELL).await;
    done
}
