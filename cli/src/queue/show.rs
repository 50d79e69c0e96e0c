//! Commands that show the contents of a queue, or remove messages from it.

use tenure::Client;
use tenure::queue::{Cancelled, Flow, Listed};

use super::args::{Cancel, List, Peek, Purge};
use super::context::QueueContext;
use super::id::{self, IdView};
use super::view::{CancelView, Count, CountView, FlowView, MessageView, QueueView, StatsView, line};
use crate::exit::Failure;
use crate::name;
use crate::operate::{Consent, consent};
use crate::printer::{Format, Printer};

fn print_stats(views: &[StatsView], printer: Printer) -> Result<(), Failure> {
    match printer.format {
        Format::Json => views.iter().try_for_each(|view| printer.json(view)),
        Format::Text => {
            printer.print(StatsView::HEADER)?;
            views.iter().try_for_each(|view| printer.print(&view.row()))
        }
    }
}

pub(super) async fn all(client: &Client, printer: Printer) -> Result<u8, Failure> {
    let mut views = Vec::new();
    for name in client.list_queues().await? {
        let stats = client.queue_of_bytes(name.as_bytes())?.stats().await?;
        views.push(StatsView::of(name.as_bytes(), &stats));
    }
    print_stats(&views, printer)?;
    Ok(0)
}

pub(super) async fn stats(context: &QueueContext) -> Result<u8, Failure> {
    let stats = context.queue.stats().await?;
    print_stats(&[StatsView::of(context.queue.name().as_bytes(), &stats)], context.printer)?;
    Ok(0)
}

pub(super) async fn peek(context: &QueueContext, peek: &Peek) -> Result<u8, Failure> {
    let found = match &peek.id {
        Some(id) => context.queue.get(&id::read(id, context.ids)?).await?,
        None => context.queue.peek().await?,
    };
    let Some(message) = found else {
        context.printer.note("there is no such message");
        if context.printer.format == Format::Json {
            context.printer.json(&())?;
        }
        return Ok(1);
    };
    match context.printer.format {
        Format::Json => context.printer.json(&MessageView::from(&message))?,
        Format::Text => {
            context.printer.note(&line(&message));
            context.printer.bytes(message.payload.as_bytes())?;
        }
    }
    Ok(0)
}

pub(super) async fn list(context: &QueueContext, list: &List) -> Result<u8, Failure> {
    let which = if list.in_flight { Listed::InFlight } else { Listed::Waiting };
    let (mut left, mut from) = (list.most, None);
    while left > 0 {
        let page = context.queue.list_page(which, from, left.min(100)).await?;
        for message in page.messages.iter().take(left) {
            match context.printer.format {
                Format::Json => context.printer.json(&MessageView::from(message))?,
                Format::Text => context.printer.print(&line(message))?,
            }
        }
        left = left.saturating_sub(page.messages.len());
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    Ok(0)
}

pub(super) async fn cancel(context: &QueueContext, cancel: &Cancel) -> Result<u8, Failure> {
    let id = id::read(&cancel.id, context.ids)?;
    let (word, text, exit) = match context.queue.cancel(&id).await? {
        Cancelled::Removed => ("removed", "removed", 0),
        Cancelled::InFlight => ("in_flight", "it is being worked on; nothing was done", 1),
        Cancelled::Dead => ("dead", "it is a dead letter; nothing was done", 1),
        Cancelled::NotFound => ("not_found", "there is no such message", 1),
    };
    context.printer.note(text);
    if context.printer.format == Format::Json {
        context.printer.json(&CancelView {
            queue: QueueView::of(context.queue.name().as_bytes()),
            id: IdView::of(&id),
            outcome: word,
        })?;
    }
    Ok(exit)
}

pub(super) async fn purge(context: &QueueContext, purge: &Purge) -> Result<u8, Failure> {
    let stats = context.queue.stats().await?;
    let (queue, waiting) = (name::text(context.queue.name().as_bytes()), stats.scheduled + stats.ready);
    let (removed, exit) = match consent(purge.yes, &format!("{queue} has {waiting} waiting messages. Remove them?"))? {
        Consent::Given => (context.queue.purge().await?, 0),
        Consent::Refused => (0, 1),
    };
    print_count(context, Count::Removed(removed))?;
    Ok(exit)
}

/// Pauses the queue, or resumes it.
pub(super) async fn set_flow(context: &QueueContext, flow: Flow) -> Result<u8, Failure> {
    let paused = flow == Flow::Paused;
    if paused {
        context.queue.pause().await?
    } else {
        context.queue.resume().await?
    }
    if context.printer.format == Format::Json {
        context.printer.json(&FlowView { queue: QueueView::of(context.queue.name().as_bytes()), paused })?;
    }
    Ok(0)
}

/// Prints to how many messages something happened.
pub(super) fn print_count(context: &QueueContext, count: Count) -> Result<(), Failure> {
    match context.printer.format {
        Format::Json => {
            context.printer.json(&CountView { queue: QueueView::of(context.queue.name().as_bytes()), count })
        }
        Format::Text => context.printer.print(&count.number().to_string()),
    }
}
