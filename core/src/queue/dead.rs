//! Messages that are delivered no more.

use std::time::Duration;

use super::codec::decode;
use super::handle::Queue;
use super::{Delay, MessageId};
use crate::driver::{DeadLetter, DeadPage, DeadPlace, DeadSelection, Purged, Redriven, Rest};
use crate::value::error::{Error, Result};

/// How many letters one step moves or removes.
const STEP: usize = 500;

/// The dead letters of a queue: messages whose attempts are used up, or that a handler rejected. Made by
/// [`Queue::dead_letters`]. They stay until somebody decides.
#[derive(Clone, Debug)]
pub struct DeadLetters<T> {
    queue: Queue<T>,
}

impl<T: 'static> DeadLetters<T> {
    pub(super) fn new(queue: Queue<T>) -> Self {
        Self { queue }
    }

    /// Up to `max` letters, those that died first in front, behind the given place.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when `max` is zero or more than the driver's
    /// batch; whatever the driver reports.
    pub async fn list(&self, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        let queue = &self.queue;
        queue.pump.caps.check_batch(max).map_err(|error| queue.told(error, "dead_list"))?;
        queue.call("dead_list", queue.driver().dead_list(queue.name(), after, max)).await
    }

    /// What a letter says.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) when its payload cannot be decoded, or the codec panicked
    /// over it.
    pub fn value(&self, letter: &DeadLetter) -> Result<T, Error> {
        decode(&*self.queue.codec, letter.payload.as_bytes())
    }

    /// Makes these letters due at once, with all attempts before them again; tells how many were there.
    ///
    /// # Errors
    ///
    /// As [`DeadLetters::list`].
    pub async fn redrive(&self, ids: impl IntoIterator<Item = MessageId>) -> Result<u64> {
        let which = self.ids(ids, "dead_redrive")?;
        Ok(self.redrive_step(&which, Delay::ZERO).await?.moved)
    }

    /// Makes all letters due `delay` from now, with all attempts before them again; tells how many. Done in steps: a
    /// failure may leave some moved.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn redrive_all(&self, delay: Duration) -> Result<u64> {
        let delay = self.queue.checked_delay(delay, "dead_redrive")?;
        let most = self.queue.stats_dead().await?; // letters that die again meanwhile wait for the next time
        let mut moved = 0;
        while moved < most {
            let count = STEP.min(self.queue.pump.caps.batch).min((most - moved) as usize);
            let step = self.redrive_step(&DeadSelection::Oldest(count), delay).await?;
            moved += step.moved;
            if step.rest == Rest::None || step.moved == 0 {
                break;
            }
        }
        Ok(moved)
    }

    /// Makes the letters due `delay` from now for which `which` says so, with all attempts before them again; tells how many.
    /// Asked once for each letter that is there at the beginning, those that died first in front.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::driver::{DeadCause, DeadLetter};
    /// # async fn example(queue: tenure_core::Queue<String>) -> tenure_core::Result<()> {
    /// let of_the_outage = |letter: &DeadLetter| letter.died < Duration::from_secs(3600) && letter.cause == DeadCause::Exhausted;
    /// queue.dead_letters().redrive_where(Duration::ZERO, of_the_outage).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Every letter is read by this client, and moved in steps: a failure may leave some moved.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn redrive_where(&self, delay: Duration, which: impl FnMut(&DeadLetter) -> bool) -> Result<u64> {
        let delay = self.queue.checked_delay(delay, "dead_redrive")?;
        let step = async |chosen: &DeadSelection| Ok(self.redrive_step(chosen, delay).await?.moved);
        self.each_page(which, step).await
    }

    /// Removes these letters; tells how many were there.
    ///
    /// # Errors
    ///
    /// As [`DeadLetters::list`].
    pub async fn purge(&self, ids: impl IntoIterator<Item = MessageId>) -> Result<u64> {
        let which = self.ids(ids, "dead_purge")?;
        Ok(self.purge_step(&which).await?.removed)
    }

    /// Removes all letters; tells how many. Done in steps: a failure may leave some removed.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn purge_all(&self) -> Result<u64> {
        let mut removed = 0;
        loop {
            let step = self.purge_step(&DeadSelection::Oldest(STEP.min(self.queue.pump.caps.batch))).await?;
            removed += step.removed;
            if step.rest == Rest::None || step.removed == 0 {
                return Ok(removed);
            }
        }
    }

    /// Removes the letters for which `which` says so; tells how many. As [`DeadLetters::redrive_where`].
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn purge_where(&self, which: impl FnMut(&DeadLetter) -> bool) -> Result<u64> {
        let step = async |chosen: &DeadSelection| Ok(self.purge_step(chosen).await?.removed);
        self.each_page(which, step).await
    }

    /// Does something to the letters that are chosen of those that are there now; tells to how many it was done.
    async fn each_page(
        &self,
        mut which: impl FnMut(&DeadLetter) -> bool,
        step: impl AsyncFn(&DeadSelection) -> Result<u64>,
    ) -> Result<u64> {
        let mut left = self.queue.stats_dead().await?; // a letter that dies again is behind all these
        let (mut after, mut done) = (None, 0);
        while left > 0 {
            let count = STEP.min(self.queue.pump.caps.batch).min(usize::try_from(left).unwrap_or(usize::MAX));
            let page = self.list(after, count).await?;
            let Some(last) = page.letters.last() else { break };
            after = Some(last.place);
            left = left.saturating_sub(page.letters.len() as u64);
            let chosen: Vec<_> = page.letters.iter().filter(|letter| which(letter)).map(|l| l.id.clone()).collect();
            if !chosen.is_empty() {
                done += step(&DeadSelection::Ids(chosen)).await?;
            }
            if page.rest == Rest::None {
                break;
            }
        }
        Ok(done)
    }

    fn ids(&self, ids: impl IntoIterator<Item = MessageId>, what: &'static str) -> Result<DeadSelection> {
        let ids: Vec<_> = ids.into_iter().collect();
        self.queue.pump.caps.check_batch(ids.len()).map_err(|error| self.queue.told(error, what))?;
        Ok(DeadSelection::Ids(ids))
    }

    async fn redrive_step(&self, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        let queue = &self.queue;
        queue.call("dead_redrive", queue.driver().dead_redrive(queue.name(), which, delay)).await
    }

    async fn purge_step(&self, which: &DeadSelection) -> Result<Purged> {
        let queue = &self.queue;
        queue.call("dead_purge", queue.driver().dead_purge(queue.name(), which)).await
    }
}

impl<T: 'static> Queue<T> {
    async fn stats_dead(&self) -> Result<u64> {
        Ok(self.stats().await?.dead)
    }
}
