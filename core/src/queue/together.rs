//! Pushes that leave at the same moment share a request.
//!
//! A push alone goes straight to the driver. While one of a queue is on its way, the next ones gather until every task that is
//! ready has run, and leave together: a request costs the backend much more than a message in it does. Nothing waits for an
//! answer to something else before it leaves, and nothing for another runtime, which may not run any more.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::future::join_all;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use super::bounded;
use super::pump::{DRIVER, Pump, ended};
use crate::driver::{NewMessage, Pushed, QueueCapabilities};
use crate::panicked::caught_in;
use crate::value::error::{Error, ErrorKind, Result};

/// The pushes of one queue.
#[derive(Default)]
pub(super) struct Pushes {
    on_their_way: AtomicUsize,
    /// By the runtime of the callers. As long as there is an entry, there is a task that sends what it holds.
    gathered: Mutex<HashMap<Id, Vec<Waiting>>>,
}

/// The messages of one caller, stored all or none.
struct Waiting {
    messages: Vec<NewMessage>,
    reply: oneshot::Sender<Result<Vec<Pushed>>>,
}

/// What leaves together.
#[derive(Default)]
struct Request {
    messages: Vec<NewMessage>,
    bytes: usize,
    /// How many of the messages are whose, in order.
    callers: Vec<(usize, oneshot::Sender<Result<Vec<Pushed>>>)>,
}

/// A caller whose push is on its way, until it is answered or dropped.
struct OnItsWay<'a>(&'a AtomicUsize);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pump {
    /// Stores messages, all or none: as many answers as messages.
    pub(super) async fn push(self: &Arc<Self>, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        self.shared.ensure_open()?;
        let others = self.pushes.on_their_way.fetch_add(1, Ordering::Relaxed);
        let _on_its_way = OnItsWay(&self.pushes.on_their_way);
        if others == 0 {
            return self.push_now(messages).await;
        }
        self.shared.start()?;
        let (reply, answer) = oneshot::channel();
        let runtime = Handle::current().id();
        if self.pushes.gather(runtime, Waiting { messages: messages.to_vec(), reply }) {
            let pump = Arc::downgrade(self);
            self.shared.background.run(move || {
                let pump = pump.upgrade();
                async move {
                    if let Some(pump) = pump {
                        pump.push_gathered(runtime).await;
                    }
                }
            });
        }
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// One request.
    async fn push_now(&self, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let answers = bounded(self.shared.config.op_timeout, self.driver.push(&self.name, messages)).await?;
        if answers.len() == messages.len() {
            return Ok(answers);
        }
        let text = format!("a push of {} messages was answered with {}", messages.len(), answers.len());
        Err(Error::new(ErrorKind::Protocol, text))
    }

    async fn push_gathered(&self, runtime: Id) {
        ready_tasks_have_run().await;
        let requests = packed(self.pushes.take(runtime), &self.caps);
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
}

impl Pushes {
    fn gathered(&self) -> MutexGuard<'_, HashMap<Id, Vec<Waiting>>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a push; tells whether a task has to begin.
    fn gather(&self, runtime: Id, waiting: Waiting) -> bool {
        let mut gathered = self.gathered();
        let known = gathered.contains_key(&runtime);
        gathered.entry(runtime).or_default().push(waiting);
        !known
    }

    /// What has gathered and is still wanted. Whoever comes now begins a task again.
    fn take(&self, runtime: Id) -> Vec<Waiting> {
        let mut waiting = self.gathered().remove(&runtime).unwrap_or_default();
        waiting.retain(|one| !one.reply.is_closed());
        waiting
    }
}

fn is_of_the_messages(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::LimitReached | ErrorKind::InvalidArgument)
}

/// In as few requests as they fit into, those of a caller together.
fn packed(all: Vec<Waiting>, caps: &QueueCapabilities) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for Waiting { messages, reply } in all {
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

/// Returns when the tasks of this worker that were ready have been run. Unlike a yield to the scheduler it waits in the queue
/// of ready tasks, where another worker finds it if this one goes on to something long.
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
