//! Requests to one queue: their common parts, and the batches of several callers.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::driver::{
    DelayQueue, ErrorExt as _, Extended, Extension, NewMessage, Pushed, QueueAdmin, QueueCapabilities,
};
use crate::engine::shared::Shared;
use crate::meters::queues::QueueMeters;
use crate::runtime::{bounded, caught_in, sleep_until};
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::QueueName;
use crate::value::time::LeaseInstant;

/// The panicking party, in error texts.
pub(super) const DRIVER: &str = "the driver";

/// A queue of the backend, as one client reaches it.
pub(super) struct RemoteQueue {
    pub(super) shared: Arc<Shared>,
    pub(super) driver: Arc<dyn DelayQueue>,
    pub(super) name: QueueName,
    pub(super) caps: QueueCapabilities,
    pub(super) meters: QueueMeters,
}

impl RemoteQueue {
    /// Adds the operation and the queue to an error.
    pub(super) fn during(&self, error: Error, operation: &'static str) -> Error {
        error.during(self.shared.driver(), operation, self.name.for_errors())
    }
}

impl fmt::Debug for RemoteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteQueue").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The queues of the backend.
pub(crate) fn driver(shared: &Shared) -> Result<&Arc<dyn DelayQueue>> {
    shared.backend.queue().ok_or_else(|| {
        let text = format!("the driver \"{}\" has no delay queues", shared.driver());
        Error::new(ErrorKind::Unsupported, text)
    })
}

/// The operations on stored messages of the backend.
pub(crate) fn admin(shared: &Shared) -> Result<&Arc<dyn QueueAdmin>> {
    driver(shared)?;
    shared.backend.queue_admin().ok_or_else(|| {
        let text = format!("the driver \"{}\" has no operations on stored messages", shared.driver());
        Error::new(ErrorKind::Unsupported, text)
    })
}

pub(super) fn ended() -> Error {
    Error::new(ErrorKind::Indeterminate, "the runtime that carried the request has ended")
}

// Extensions of the leases of messages in hand: a task beside the fetcher, whose requests for messages may take long.
//
// Extensions that are wanted soon leave together with the first that is wanted now, in as few requests as they fit into. So
// the messages of a client fall into step, however they came. Each request is on its own: a slow one holds up no other.

/// The extensions of one queue that have not left yet.
pub(super) struct Extensions {
    remote: Arc<RemoteQueue>,
    waiting: Mutex<Wishes>,
    /// Notified when there is another first one.
    sooner: Notify,
}

#[derive(Default)]
struct Wishes {
    wanted: BTreeMap<Place, Wanted>,
    last: u64,
    /// True if there is a task, on any runtime.
    running: bool,
}

/// The latest time to leave, then the order of arrival.
type Place = (Instant, u64);

struct Wanted {
    extension: Extension,
    reply: oneshot::Sender<Result<Confirmed>>,
}

/// The answer to an extension, and the latest time at which it left.
pub(super) struct Confirmed {
    pub(super) sent_at: LeaseInstant,
    pub(super) answer: Extended,
}

/// Takes an extension back when the caller drops its future.
struct Leaving<'a>(&'a Extensions, Place);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.waiting().wanted.remove(&self.1);
    }
}

impl Extensions {
    pub(super) fn new(remote: Arc<RemoteQueue>) -> Self {
        Self { remote, waiting: Mutex::default(), sooner: Notify::new() }
    }

    /// Extends a lease, in a request that leaves at any time from now on and at `latest`.
    pub(super) async fn extend(self: &Arc<Self>, extension: Extension, latest: Instant) -> Result<Confirmed> {
        self.remote.shared.start()?;
        let (reply, answer) = oneshot::channel();
        let (place, begins) = self.want(Wanted { extension, reply }, latest);
        let _leaving = Leaving(self, place);
        if begins {
            let extensions = Arc::downgrade(self);
            self.remote.shared.background.run(move || {
                let extensions = extensions.upgrade();
                async move {
                    if let Some(extensions) = extensions {
                        extensions.extend_in_time().await;
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
            let due = self.take_due(Instant::now());
            on_their_way
                .extend(batches(due, self.remote.caps.batch).into_iter().map(|batch| self.send_extensions(batch)));
            let next = self.first();
            if next.is_none() && on_their_way.is_empty() && self.may_end() {
                return;
            }
            tokio::select! {
                Some(()) = on_their_way.next() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    async fn send_extensions(&self, batch: Vec<Wanted>) {
        let extensions: Vec<Extension> = batch.iter().map(|wanted| wanted.extension).collect();
        let sent_at = LeaseInstant::before_send();
        let call =
            bounded(self.remote.shared.config.op_timeout, self.remote.driver.extend(&self.remote.name, &extensions));
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

    fn waiting(&self) -> MutexGuard<'_, Wishes> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an extension; returns true if a task has to begin.
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

    /// Takes all extensions, if one has to leave now.
    fn take_due(&self, now: Instant) -> Vec<Wanted> {
        match self.first() {
            Some(latest) if latest <= now => std::mem::take(&mut self.waiting().wanted).into_values().collect(),
            _ => Vec::new(),
        }
    }

    /// Lets the task end if there is nothing to extend; decided while nothing can arrive.
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

// Pushes that leave at the same moment share a request.
//
// A push alone goes straight to the driver. While one of a queue is on its way, the next ones gather until every task that is
// ready has run, and leave together: a request costs the backend much more than a message in it does. Nothing waits for an
// answer to something else before it leaves, and nothing for another runtime, which may not run any more.

/// The pushes of one queue.
pub(super) struct Pushes {
    remote: Arc<RemoteQueue>,
    on_their_way: AtomicUsize,
    /// The gathered messages, by the runtime of the callers. As long as there is an entry, there is a task that sends
    /// its messages.
    gathered: Mutex<HashMap<Id, Vec<Gathered>>>,
}

/// The messages of one caller, stored all or none.
struct Gathered {
    messages: Vec<NewMessage>,
    reply: oneshot::Sender<Result<Vec<Pushed>>>,
}

/// The messages that leave together.
#[derive(Default)]
struct Request {
    messages: Vec<NewMessage>,
    bytes: usize,
    /// The number of messages of each caller, in order.
    callers: Vec<(usize, oneshot::Sender<Result<Vec<Pushed>>>)>,
}

/// A caller whose push is on its way, until it is answered or dropped.
struct OnItsWay<'a>(&'a AtomicUsize);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pushes {
    pub(super) fn new(remote: Arc<RemoteQueue>) -> Self {
        Self { remote, on_their_way: AtomicUsize::new(0), gathered: Mutex::default() }
    }

    /// Stores messages, all or none: as many answers as messages.
    pub(super) async fn push(self: &Arc<Self>, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        self.remote.shared.ensure_open()?;
        let others = self.on_their_way.fetch_add(1, Ordering::Relaxed);
        let _on_its_way = OnItsWay(&self.on_their_way);
        if others == 0 {
            return self.push_now(messages).await;
        }
        self.remote.shared.start()?;
        let (reply, answer) = oneshot::channel();
        let runtime = Handle::current().id();
        if self.gather(runtime, Gathered { messages: messages.to_vec(), reply }) {
            let pushes = Arc::downgrade(self);
            self.remote.shared.background.run(move || {
                let pushes = pushes.upgrade();
                async move {
                    if let Some(pushes) = pushes {
                        pushes.push_gathered(runtime).await;
                    }
                }
            });
        }
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Sends one request.
    async fn push_now(&self, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let answers =
            bounded(self.remote.shared.config.op_timeout, self.remote.driver.push(&self.remote.name, messages)).await?;
        if answers.len() == messages.len() {
            return Ok(answers);
        }
        let text = format!("a push of {} messages got {} answers", messages.len(), answers.len());
        Err(Error::new(ErrorKind::Protocol, text))
    }

    async fn push_gathered(&self, runtime: Id) {
        ready_tasks_have_run().await;
        let requests = packed(self.take(runtime), &self.remote.caps);
        join_all(requests.into_iter().map(|request| self.push_together(request))).await;
    }

    async fn push_together(&self, request: Request) {
        let Request { messages, callers, .. } = request;
        let together = caught_in(DRIVER, self.push_now(&messages)).await;
        // What is wrong with the messages of one is not wrong with those of the others.
        let apart = callers.len() > 1 && together.as_ref().is_err_and(|error| is_of_the_messages(error.kind()));
        let mut from = 0;
        for (count, reply) in callers {
            let own = from..from + count;
            from = own.end;
            let answer = match &together {
                Ok(answers) => Ok(answers[own].to_vec()),
                Err(_) if apart => caught_in(DRIVER, self.push_now(&messages[own])).await,
                Err(error) => Err(error.clone()),
            };
            let _ = reply.send(answer); // who has gone does not care
        }
    }

    fn gathered(&self) -> MutexGuard<'_, HashMap<Id, Vec<Gathered>>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a push; returns true if a task has to begin.
    fn gather(&self, runtime: Id, waiting: Gathered) -> bool {
        let mut gathered = self.gathered();
        let known = gathered.contains_key(&runtime);
        gathered.entry(runtime).or_default().push(waiting);
        !known
    }

    /// Takes the gathered messages that are still wanted. A later caller begins a task again.
    fn take(&self, runtime: Id) -> Vec<Gathered> {
        let mut waiting = self.gathered().remove(&runtime).unwrap_or_default();
        waiting.retain(|one| !one.reply.is_closed());
        waiting
    }
}

fn is_of_the_messages(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::LimitReached | ErrorKind::InvalidArgument)
}

/// Packs messages into as few requests as they fit into, those of a caller together.
fn packed(all: Vec<Gathered>, caps: &QueueCapabilities) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for Gathered { messages, reply } in all {
        let (count, bytes) = (messages.len(), messages.iter().map(NewMessage::bytes).sum::<usize>());
        let fits = |request: &Request| {
            request.messages.len() + count <= caps.batch && request.bytes.saturating_add(bytes) <= caps.request_bytes
        };
        if !requests.last().is_some_and(fits) {
            requests.push(Request::default());
        }
        if let Some(request) = requests.last_mut() {
            request.messages.extend(messages);
            request.bytes += bytes;
            request.callers.push((count, reply));
        }
    }
    requests
}

/// Returns when the tasks of this worker that were ready have been run. Unlike a yield to the scheduler it waits in the
/// queue of ready tasks, where another worker finds it if this one begins a long task.
async fn ready_tasks_have_run() {
    let mut was_here = false;
    poll_fn(|context| {
        if std::mem::replace(&mut was_here, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
