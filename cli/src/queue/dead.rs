//! Dead letters: seen, tried again, or removed.

use std::collections::HashSet;
use std::time::Duration;

use tenure::queue::{DeadLetter, MessageId};

use super::args::{Dead, DeadPurge, Requeue, Which};
use super::context::QueueContext;
use super::id;
use super::show::print_count;
use super::view::{Count, DeadView, dead_line};
use crate::exit::Failure;
use crate::name::{self, Spelling};
use crate::operate::{Consent, consent};
use crate::printer::Format;

const PAGE: usize = 100;

pub(super) async fn list(context: &QueueContext, dead: &Dead) -> Result<u8, Failure> {
    let (letters, mut left, mut after) = (context.queue.dead_letters(), dead.most, None);
    while left > 0 {
        let page = letters.list(after, left.min(PAGE)).await?;
        for letter in &page.letters {
            match context.printer.format {
                Format::Json => context.printer.json(&DeadView::from(letter))?,
                Format::Text => context.printer.print(&dead_line(letter))?,
            }
        }
        left = left.saturating_sub(page.letters.len());
        match page.letters.last() {
            Some(last) => after = Some(last.place),
            None => break,
        }
    }
    Ok(0)
}

/// Chooses letters while they are looked through, oldest first.
fn chooser(which: &Which, spelling: Spelling) -> Result<impl FnMut(&DeadLetter) -> bool, Failure> {
    let ids = which.ids.iter().map(|text| id::read(text, spelling)).collect::<Result<HashSet<MessageId>, Failure>>()?;
    let (all, mut oldest) = (which.all, which.oldest.unwrap_or(0));
    Ok(move |letter: &DeadLetter| {
        let old = oldest > 0;
        oldest = oldest.saturating_sub(1);
        all || old || ids.contains(&letter.id)
    })
}

pub(super) async fn requeue(context: &QueueContext, requeue: &Requeue) -> Result<u8, Failure> {
    let delay = requeue.delay.unwrap_or(Duration::ZERO);
    let letters = context.queue.dead_letters();
    let moved = match requeue.which.all {
        true => letters.redrive_all(delay).await?,
        false => letters.redrive_where(delay, chooser(&requeue.which, context.ids)?).await?,
    };
    print_count(context, Count::Requeued(moved))?;
    Ok(0)
}

pub(super) async fn purge(context: &QueueContext, purge: &DeadPurge) -> Result<u8, Failure> {
    let queue = name::text(context.queue.name().as_bytes());
    let what = match (purge.which.all, purge.which.oldest) {
        (true, _) => format!("all {} dead letters", context.queue.stats().await?.dead),
        (false, Some(oldest)) => format!("the {oldest} oldest dead letters"),
        (false, None) => format!("{} dead letters", purge.which.ids.len()),
    };
    if consent(purge.yes, &format!("Remove {what} of {queue} for good?"))? == Consent::Refused {
        print_count(context, Count::Removed(0))?;
        return Ok(1);
    }
    let letters = context.queue.dead_letters();
    let removed = match purge.which.all {
        true => letters.purge_all().await?,
        false => letters.purge_where(chooser(&purge.which, context.ids)?).await?,
    };
    print_count(context, Count::Removed(removed))?;
    Ok(0)
}
