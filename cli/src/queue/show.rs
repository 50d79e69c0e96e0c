//! What is in a queue, and what is removed from it.

use tenure::Client;
use tenure::queue::{Cancelled, Listed};

use super::args::{Cancel, List, Peek, Purge};
use super::desk::Desk;
use super::id;
use super::view::{MessageView, StatsView, line};
use crate::exit::Failure;
use crate::name;
use crate::operate::{Consent, consent};
use crate::speak::{Format, Voice};

fn print_stats(views: &[StatsView], voice: Voice) {
    match voice.format {
        Format::Json => views.iter().for_each(|view| voice.json(view)),
        Format::Text => {
            voice.print(StatsView::HEADER);
            views.iter().for_each(|view| voice.print(&view.row()));
        }
    }
}

pub(super) async fn all(client: &Client, voice: Voice) -> Result<u8, Failure> {
    let mut views = Vec::new();
    for name in client.list_queues().await? {
        let stats = client.queue_of_bytes(name.as_bytes())?.stats().await?;
        views.push(StatsView::of(name.as_bytes(), &stats));
    }
    print_stats(&views, voice);
    Ok(0)
}

pub(super) async fn stats(desk: &Desk) -> Result<u8, Failure> {
    let stats = desk.queue.stats().await?;
    print_stats(&[StatsView::of(desk.queue.name().as_bytes(), &stats)], desk.voice);
    Ok(0)
}

pub(super) async fn peek(desk: &Desk, peek: &Peek) -> Result<u8, Failure> {
    let found = match &peek.id {
        Some(id) => desk.queue.get(&id::read(id)?).await?,
        None => desk.queue.peek().await?,
    };
    let Some(message) = found else {
        desk.voice.note("there is no such message");
        return Ok(1);
    };
    match desk.voice.format {
        Format::Json => desk.voice.json(&MessageView::from(&message)),
        Format::Text => {
            desk.voice.note(&line(&message));
            desk.voice.bytes(message.payload.as_bytes());
        }
    }
    Ok(0)
}

pub(super) async fn list(desk: &Desk, list: &List) -> Result<u8, Failure> {
    let which = if list.in_flight { Listed::InFlight } else { Listed::Waiting };
    let (mut left, mut from) = (list.most, None);
    while left > 0 {
        let page = desk.queue.list_page(which, from, left.min(100)).await?;
        for message in page.messages.iter().take(left) {
            match desk.voice.format {
                Format::Json => desk.voice.json(&MessageView::from(message)),
                Format::Text => desk.voice.print(&line(message)),
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
    let (text, exit) = match desk.queue.cancel(&id::read(&cancel.id)?).await? {
        Cancelled::Removed => ("removed", 0),
        Cancelled::InFlight => ("it is being worked on; nothing was done", 1),
        Cancelled::Dead => ("it is a dead letter; nothing was done", 1),
        Cancelled::NotFound => ("there is no such message", 1),
    };
    desk.voice.note(text);
    Ok(exit)
}

pub(super) async fn purge(desk: &Desk, purge: &Purge) -> Result<u8, Failure> {
    let stats = desk.queue.stats().await?;
    let (queue, waiting) = (name::text(desk.queue.name().as_bytes()), stats.scheduled + stats.ready);
    if consent(purge.yes, &format!("{queue} has {waiting} messages that wait. Remove them?"))? == Consent::Refused {
        return Ok(1);
    }
    desk.voice.print(&desk.queue.purge().await?.to_string());
    Ok(0)
}
