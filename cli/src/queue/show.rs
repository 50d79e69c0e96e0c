//! Commands that show the contents of a queue, or remove messages from it.

use tenure::Client;
use tenure::queue::{Cancelled, Flow, Listed};

use super::args::{Cancel, List, Peek, Purge};
use super::desk::Desk;
use super::id::{self, IdView};
use super::view::{CancelView, Count, CountView, FlowView, MessageView, QueueView, StatsView, line};
use crate::exit::Failure;
use crate::name;
use crate::operate::{Consent, consent};
use crate::speak::{Format, Voice};

fn print_stats(views: &[StatsView], voice: Voice) -> Result<(), Failure> {
    match voice.format {
        Format::Json => views.iter().try_for_each(|view| voice.json(view)),
        Format::Text => {
            voice.print(StatsView::HEADER)?;
            views.iter().try_for_each(|view| voice.print(&view.row()))
        }
    }
}

pub(super) async fn all(client: &Client, voice: Voice) -> Result<u8, Failure> {
    let mut views = Vec::new();
    for name in client.list_queues().await? {
        let stats = client.queue_of_bytes(name.as_bytes())?.admin().stats().await?;
        views.push(StatsView::of(name.as_bytes(), &stats));
    }
    print_stats(&views, voice)?;
    Ok(0)
}

pub(super) async fn stats(desk: &Desk) -> Result<u8, Failure> {
    let stats = desk.queue.admin().stats().await?;
    print_stats(&[StatsView::of(desk.queue.name().as_bytes(), &stats)], desk.voice)?;
    Ok(0)
}

pub(super) async fn peek(desk: &Desk, peek: &Peek) -> Result<u8, Failure> {
    let found = match &peek.id {
        Some(id) => desk.queue.admin().get(&id::read(id, desk.ids)?).await?,
        None => desk.queue.admin().peek().await?,
    };
    let Some(message) = found else {
        desk.voice.note("there is no such message");
        if desk.voice.format == Format::Json {
            desk.voice.json(&())?;
        }
        return Ok(1);
    };
    match desk.voice.format {
        Format::Json => desk.voice.json(&MessageView::from(&message))?,
        Format::Text => {
            desk.voice.note(&line(&message));
            desk.voice.bytes(message.payload.as_bytes())?;
        }
    }
    Ok(0)
}

pub(super) async fn list(desk: &Desk, list: &List) -> Result<u8, Failure> {
    let which = if list.in_flight { Listed::InFlight } else { Listed::Waiting };
    let (mut left, mut from) = (list.most, None);
    while left > 0 {
        let page = desk.queue.admin().list_page(which, from, left.min(100)).await?;
        for message in page.messages.iter().take(left) {
            match desk.voice.format {
                Format::Json => desk.voice.json(&MessageView::from(message))?,
                Format::Text => desk.voice.print(&line(message))?,
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

pub(super) async fn cancel(desk: &Desk, cancel: &Cancel) -> Result<u8, Failure> {
    let id = id::read(&cancel.id, desk.ids)?;
    let (word, text, exit) = match desk.queue.cancel(&id).await? {
        Cancelled::Removed => ("removed", "removed", 0),
        Cancelled::InFlight => ("in_flight", "it is being worked on; nothing was done", 1),
        Cancelled::Dead => ("dead", "it is a dead letter; nothing was done", 1),
        Cancelled::NotFound => ("not_found", "there is no such message", 1),
    };
    desk.voice.note(text);
    if desk.voice.format == Format::Json {
        desk.voice.json(&CancelView {
            queue: QueueView::of(desk.queue.name().as_bytes()),
            id: IdView::of(&id),
            outcome: word,
        })?;
    }
    Ok(exit)
}

pub(super) async fn purge(desk: &Desk, purge: &Purge) -> Result<u8, Failure> {
    let stats = desk.queue.admin().stats().await?;
    let (queue, waiting) = (name::text(desk.queue.name().as_bytes()), stats.scheduled + stats.ready);
    let (removed, exit) = match consent(purge.yes, &format!("{queue} has {waiting} waiting messages. Remove them?"))? {
        Consent::Given => (desk.queue.admin().purge().await?, 0),
        Consent::Refused => (0, 1),
    };
    print_count(desk, Count::Removed(removed))?;
    Ok(exit)
}

/// Pauses the queue, or resumes it.
pub(super) async fn set_flow(desk: &Desk, flow: Flow) -> Result<u8, Failure> {
    let paused = flow == Flow::Paused;
    if paused {
        desk.queue.admin().pause().await?
    } else {
        desk.queue.admin().resume().await?
    }
    if desk.voice.format == Format::Json {
        desk.voice.json(&FlowView { queue: QueueView::of(desk.queue.name().as_bytes()), paused })?;
    }
    Ok(0)
}

/// Prints to how many messages something happened.
pub(super) fn print_count(desk: &Desk, count: Count) -> Result<(), Failure> {
    match desk.voice.format {
        Format::Json => desk.voice.json(&CountView { queue: QueueView::of(desk.queue.name().as_bytes()), count }),
        Format::Text => desk.voice.print(&count.number().to_string()),
    }
}
