//! One connection to a store, with all of its fault hooks.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::driver::{Handed, QueueRouter, WakeRouter, Watch};
use tenure_core::queue::QueueName;
use tenure_core::rules::locks::Heard;
use tenure_core::{Error, ErrorKind, OwnerToken};
use tokio::sync::{oneshot, watch};
use tokio::task::coop::consume_budget;
use tokio::time::sleep;

/// What separates a client from the store.
pub(crate) struct Link {
    router: WakeRouter,
    queues: QueueRouter,
    condition: Mutex<Condition>,
    /// Counts the heals: a call that hangs waits for the next one.
    heals: watch::Sender<u64>,
}

/// The state of the link.
#[derive(Default)]
struct Condition {
    traffic: Traffic,
    wakeups: Wakeups,
    scripts: HashMap<Operation, Script>,
    /// How many there were of each operation, the last of which is `Operate`.
    calls: [u64; Operation::Operate as usize + 1],
    /// Requests that hang, in the order in which they came.
    backlog: Vec<Box<dyn FnOnce() + Send>>,
}

/// What becomes of every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Traffic {
    #[default]
    Flows,
    Refused,
    Hangs,
}

/// What becomes of the calls of one operation.
#[derive(Default)]
struct Script {
    next: VecDeque<Fault>,
    request_takes: Duration,
    reply_takes: Duration,
}

/// What one call will meet on its way.
struct Journey {
    fault: Option<Fault>,
    request_takes: Duration,
    reply_takes: Duration,
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Fail(ErrorKind),
    LoseReply,
    Hang,
}

/// The calls that a fault affects. Plain and re-entrant locks count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Taking a lock or permits, and asking again while waiting; also the entry of a re-entrant lock, and a vote in a quorum.
    Acquire,
    /// Changing the weight of a hold of permits.
    Resize,
    /// Renewing leases. One call may carry many; a fault meets all of them.
    Renew,
    /// Releasing a plain lock or permits, or exiting a re-entrant lock.
    Release,
    /// Undoing an attempt whose outcome is unknown.
    Abandon,
    /// Beginning to listen for wake-ups.
    Watch,
    /// Inspecting a lock or permits, and listing held locks.
    Inspect,
    /// Taking a lock or permits away as an operator.
    ForceRelease,
    /// Writing a fence back, as a node of a quorum.
    Raise,
    /// Enrolling in a quorum.
    Enroll,
    /// Storing messages in a delay queue.
    Push,
    /// Receiving from a delay queue, also together with settlements.
    Receive,
    /// Settling deliveries.
    Settle,
    /// Extending the leases of deliveries.
    Extend,
    /// All operators' operations on a delay queue, including cancelling and rescheduling.
    Operate,
}

/// The delivery of wake-ups to the waiters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wakeups {
    /// They are delivered.
    #[default]
    Delivered,
    /// They are lost on the way. Waiters then rely on their fallback: they ask at every heartbeat.
    Lost,
    /// The store knows that they have no listener, as Redis does of a client whose subscription has ended: its waiters
    /// leave the queue when their turn comes. A wake-up that is sent all the same has no value.
    Unheard,
}

impl Operation {
    /// The operation's name in errors.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Resize => "resize",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Abandon => "abandon",
            Self::Watch => "watch",
            Self::Inspect => "inspect",
            Self::ForceRelease => "force_release",
            Self::Raise => "raise",
            Self::Enroll => "enroll",
            Self::Push => "push",
            Self::Receive => "receive",
            Self::Settle => "settle",
            Self::Extend => "extend",
            Self::Operate => "operate",
        }
    }
}

/// What became of a request.
enum Arrival<T> {
    Done(T),
    Refused,
    Hangs(oneshot::Receiver<T>),
}

/// A call that did not come through, to be returned as an error once or many times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure(ErrorKind, &'static str);

impl Failure {
    pub(crate) const CLOSED: Self = Self(ErrorKind::Closed, "this connection to the store was closed");
    const REFUSED: Self = Self(ErrorKind::Unavailable, "an injected outage refused the request");
    const REPLY_LOST: Self = Self(ErrorKind::Indeterminate, "the reply was lost by an injected fault");

    pub(crate) fn error(self) -> Error {
        Error::new(self.0, self.1)
    }
}

impl Default for Link {
    fn default() -> Self {
        Self {
            router: WakeRouter::default(),
            queues: QueueRouter::default(),
            condition: Mutex::default(),
            heals: watch::Sender::new(0),
        }
    }
}

impl Link {
    /// Carries one call: the request, what it does at the store, and the reply. Without faults it never waits.
    pub(crate) async fn carry<T: Send + 'static>(
        &self,
        operation: Operation,
        apply: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        consume_budget().await; // a loop of calls on the memory store still lets other tasks run
        let Journey { fault, request_takes, reply_takes } = self.depart(operation);
        if let Some(Fault::Fail(kind)) = fault {
            return Err(Failure(kind, "an injected fault refused the request"));
        }
        pass(request_takes).await;
        let answer = match self.arrive(fault, apply) {
            Arrival::Done(answer) => answer,
            Arrival::Refused => return Err(Failure::REFUSED),
            Arrival::Hangs(answer) => answer.await.map_err(|_| Failure::REPLY_LOST)?,
        };
        pass(reply_takes).await;
        self.let_reply_through().await?;
        match fault {
            Some(Fault::LoseReply) => Err(Failure::REPLY_LOST),
            _ => Ok(answer),
        }
    }

    fn depart(&self, operation: Operation) -> Journey {
        let mut condition = self.condition();
        condition.calls[operation as usize] += 1;
        match condition.scripts.get_mut(&operation) {
            Some(Script { next, request_takes, reply_takes }) => {
                Journey { fault: next.pop_front(), request_takes: *request_takes, reply_takes: *reply_takes }
            }
            None => Journey { fault: None, request_takes: Duration::ZERO, reply_takes: Duration::ZERO },
        }
    }

    fn arrive<T: Send + 'static>(
        &self,
        fault: Option<Fault>,
        apply: impl FnOnce() -> T + Send + 'static,
    ) -> Arrival<T> {
        let mut condition = self.condition();
        match (fault, condition.traffic) {
            (_, Traffic::Refused) => Arrival::Refused,
            (Some(Fault::Hang), _) | (_, Traffic::Hangs) => {
                let (reply, answer) = oneshot::channel();
                condition.backlog.push(Box::new(move || drop(reply.send(apply()))));
                Arrival::Hangs(answer)
            }
            (_, Traffic::Flows) => {
                drop(condition);
                Arrival::Done(apply())
            }
        }
    }

    async fn let_reply_through(&self) -> Result<(), Failure> {
        loop {
            let healed = {
                let condition = self.condition();
                match condition.traffic {
                    Traffic::Flows => return Ok(()),
                    Traffic::Refused => return Err(Failure::REPLY_LOST),
                    Traffic::Hangs => self.next_heal(), // while the condition cannot change
                }
            };
            healed.await;
        }
    }

    /// The next heal after this call, even if it comes before the future is polled.
    fn next_heal(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut heals = self.heals.subscribe();
        async move {
            // The sender lives as long as the link, and the link as long as this call.
            let _ = heals.changed().await;
        }
    }

    pub(crate) fn set_traffic(&self, traffic: Traffic) {
        self.condition().traffic = traffic;
    }

    pub(crate) fn set_wakeups(&self, wakeups: Wakeups) {
        self.condition().wakeups = wakeups;
    }

    pub(crate) fn script(&self, operation: Operation, fault: Fault) {
        self.condition().scripts.entry(operation).or_default().next.push_back(fault);
    }

    pub(crate) fn slow_request(&self, operation: Operation, takes: Duration) {
        self.condition().scripts.entry(operation).or_default().request_takes = takes;
    }

    pub(crate) fn slow_reply(&self, operation: Operation, takes: Duration) {
        self.condition().scripts.entry(operation).or_default().reply_takes = takes;
    }

    /// Ends every fault, does what hangs, and wakes all watchers: wake-ups may have been lost.
    pub(crate) fn heal(&self) {
        let backlog = {
            let mut condition = self.condition();
            condition.traffic = Traffic::Flows;
            condition.wakeups = Wakeups::Delivered;
            condition.scripts.clear();
            std::mem::take(&mut condition.backlog)
        };
        backlog.into_iter().for_each(|request| request());
        self.heals.send_modify(|heals| *heals += 1);
        self.router.wake_all();
        self.queues.wake_all();
    }

    pub(crate) fn calls(&self, operation: Operation) -> u64 {
        self.condition().calls[operation as usize]
    }

    pub(crate) fn watch(&self, token: OwnerToken) -> Watch {
        self.router.register(token)
    }

    pub(crate) fn watches(&self) -> usize {
        self.router.len() + self.queues.len()
    }

    /// Wakes every waiter that can hear.
    pub(crate) fn wake_all(&self) {
        if !self.is_deaf() {
            self.router.wake_all();
        }
    }

    /// Wakes the waiter if it listens on this link. A link that is deaf may have swallowed the wake-up.
    pub(crate) fn wake(&self, token: &OwnerToken) -> Heard {
        self.signal(|router| router.wake(token))
    }

    /// The same for a lease that was handed over.
    pub(crate) fn hand(&self, token: &OwnerToken, handed: Handed) -> Heard {
        self.signal(|router| router.hand(token, handed))
    }

    fn signal(&self, signal: impl FnOnce(&WakeRouter) -> bool) -> Heard {
        let unheard = self.condition().wakeups == Wakeups::Unheard;
        match self.is_deaf() {
            true => Heard::Perhaps,
            false if signal(&self.router) => {
                if unheard {
                    Heard::Never
                } else {
                    Heard::Yes
                }
            }
            false => Heard::ByNobody,
        }
    }

    pub(crate) fn watch_queue(&self, queue: &QueueName) -> Watch {
        self.queues.register(queue)
    }

    /// Wakes the watchers of the queue that listen on this link, if they can hear.
    pub(crate) fn wake_queue(&self, queue: &QueueName) {
        if !self.is_deaf() {
            self.queues.wake(queue);
        }
    }

    fn is_deaf(&self) -> bool {
        let condition = self.condition();
        condition.wakeups == Wakeups::Lost || condition.traffic != Traffic::Flows
    }

    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { traffic, wakeups, .. } = &*self.condition();
        f.debug_struct("Link").field("traffic", traffic).field("wakeups", wakeups).finish_non_exhaustive()
    }
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
