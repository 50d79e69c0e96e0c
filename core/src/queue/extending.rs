//! Extends the leases of messages in hand: a task beside the fetcher, whose requests for messages may take long.
//!
//! Extensions that are wanted soon leave together with the first that is wanted now, in as few requests as they fit into. So
//! the messages of a client fall into step, however they came. Each request is on its own: a slow one holds up no other.

use crate::call::bounded;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::alarm::sleep_until;
use crate::call::caught_in;
use crate::driver::{Extended, Extension};
use crate::queue::fetcher::{DRIVER, Fetcher, ended};
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};

/// The extensions of one queue that have not left yet.
#[derive(Default)]
pub(super) struct Extensions {
    waiting: Mutex<Waiting>,
    /// Told when there is another first one.
    sooner: Notify,
}

#[derive(Default)]
struct Waiting {
    wanted: BTreeMap<Place, Wanted>,
    last: u64,
    /// Whether there is a task, on whichever runtime.
    running: bool,
}

/// The latest time to leave, then the order in which they came.
type Place = (Instant, u64);

struct Wanted {
    extension: Extension,
    reply: oneshot::Sender<Result<Confirmed>>,
}

/// What was answered to an extension, and before when it left.
pub(super) struct Confirmed {
    pub(super) sent_at: LeaseInstant,
    pub(super) answer: Extended,
}

/// Takes an extension back whose caller goes away.
struct Leaving<'a>(&'a Extensions, Place);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.waiting().wanted.remove(&self.1);
    }
}

impl Fetcher {
    /// Extends a lease, in a request that leaves at any time from now on and at `latest`.
    pub(super) async fn extend(self: &Arc<Self>, extension: Extension, latest: Instant) -> Result<Confirmed> {
        self.shared.start()?;
        let (reply, answer) = oneshot::channel();
        let (place, begins) = self.extensions.want(Wanted { extension, reply }, latest);
        let _leaving = Leaving(&self.extensions, place);
        if begins {
            let fetcher = Arc::downgrade(self);
            self.shared.background.run(move || {
                let fetcher = fetcher.upgrade();
                async move {
                    if let Some(fetcher) = fetcher {
                        fetcher.extend_in_time().await;
                    }
                }
            });
        }
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Runs until nothing is left to extend.
    async fn extend_in_time(&self) {
        let mut on_their_way = FuturesUnordered::new();
        loop {
            let due = self.extensions.take_due(Instant::now());
            on_their_way.extend(batches(due, self.caps.batch).into_iter().map(|batch| self.send_extensions(batch)));
            let next = self.extensions.first();
            if next.is_none() && on_their_way.is_empty() && self.extensions.may_end() {
                return;
            }
            tokio::select! {
                Some(()) = on_their_way.next() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = self.extensions.sooner.notified() => {}
            }
        }
    }

    async fn send_extensions(&self, batch: Vec<Wanted>) {
        let extensions: Vec<Extension> = batch.iter().map(|wanted| wanted.extension).collect();
        let sent_at = LeaseInstant::before_send();
        let call = bounded(self.shared.config.op_timeout, self.driver.extend(&self.name, &extensions));
        let mut answers = caught_in(DRIVER, call).await.map(Vec::into_iter);
        for Wanted { reply, .. } in batch {
            let unanswered = || Error::new(ErrorKind::Protocol, "an extension was not answered");
            let answer = match &mut answers {
                Ok(answers) => answers.next().ok_or_else(unanswered),
                Err(error) => Err(error.clone()),
            };
            let _ = reply.send(answer.map(|answer| Confirmed { sent_at, answer }));
        }
    }
}

impl Extensions {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an extension; tells whether a task has to begin.
    fn want(&self, wanted: Wanted, latest: Instant) -> (Place, bool) {
        let mut waiting = self.waiting();
        waiting.last += 1;
        let place = (latest, waiting.last);
        waiting.wanted.insert(place, wanted);
        if waiting.wanted.first_key_value().is_some_and(|(first, _)| *first == place) {
            self.sooner.notify_one();
        }
        (place, !std::mem::replace(&mut waiting.running, true))
    }

    fn first(&self) -> Option<Instant> {
        self.waiting().wanted.first_key_value().map(|((latest, _), _)| *latest)
    }

    /// All, if one has to leave now.
    fn take_due(&self, now: Instant) -> Vec<Wanted> {
        match self.first() {
            Some(latest) if latest <= now => std::mem::take(&mut self.waiting().wanted).into_values().collect(),
            _ => Vec::new(),
        }
    }

    /// Lets the task end if there is nothing to extend; decided while nothing can come.
    fn may_end(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.running = !waiting.wanted.is_empty();
        !waiting.running
    }
}

fn batches(mut wanted: Vec<Wanted>, most: usize) -> Vec<Vec<Wanted>> {
    let mut batches = Vec::new();
    while !wanted.is_empty() {
        let rest = wanted.split_off(wanted.len().min(most));
        batches.push(std::mem::replace(&mut wanted, rest));
    }
    batches
}
