//! Recurring messages: one message of a constant id, scheduled anew by the settlement of each delivery.
//!
//! It is stored on every start of every instance. Its times are set by a [`schedule`], which is stored with it as text.

pub(in crate::queue) mod schedule;

use std::fmt;
use std::time::Duration;

use crate::driver::{Due, IfKnown, MessageInfo, MessageState, NamedId, NewMessage, Pushed, QueueCapabilities};
use crate::queue::Queue;
use crate::queue::fetcher::Change;
use crate::queue::recurring::schedule::{Plan, Schedule, millis};
use crate::telemetry;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::{Attempts, Delay, MessageId, Payload};
use crate::value::time::wall_clock;

pub use schedule::{Missed, OccurrenceEnd};

/// The pause between two checks of an occurrence of the old schedule that has not ended.
const AGAIN: Duration = Duration::from_secs(1);

/// A recurring message: a name, a schedule, and the handling of failures. Made by [`Queue::recurring`].
///
/// There is **one** message, of a constant id: the name. When an occurrence of it ends, its settlement schedules the
/// next one in the same step: none is left out and none is scheduled twice, regardless of crashes and of the instance
/// that handled it. So a job runs on exactly one of many instances, each of which calls [`ensure`](Self::ensure) when
/// it starts, and has a [`Worker`](crate::queue::Worker) or receives by hand.
///
/// * Occurrences do not overlap: while one is in flight, or is tried again, the next one waits; see
///   [`missed`](Self::missed).
/// * An occurrence that used up its [`max_attempts`](Self::max_attempts), or that is rejected, is **no dead letter**:
///   the next one is scheduled. Workers count it
///   ([`WorkerStats::occurrences_failed`](crate::queue::WorkerStats::occurrences_failed)), and [`Admin::get`](crate::queue::Admin::get) returns
///   the reason until the next one has ended.
/// * At least once, as for all messages: an occurrence whose instance died is delivered again, and counts an attempt.
///   Occurrences that only crashed end when there are no attempts left, and are not handled once more.
/// * Times are those of the wall clocks of the clients; the backend counts the spans between. The time of the next
///   occurrence is stored, so a clock that is behind does not run one twice. To a clock that is ahead by an interval or
///   more, each occurrence looks missed: with [`Missed::Skip`] it handles none.
/// * [`Queue::cancel`] of the name ends the schedule. While an occurrence is in flight nothing is cancelled; its
///   handler can end the schedule with [`Outcome::End`](crate::queue::Outcome::End)
///   ([`Delivery::end_recurrence`](crate::queue::Delivery::end_recurrence) by hand).
///
/// It is not a calendar: it keeps no list of past or future occurrences, and one name has one schedule. Thousands of
/// schedules are thousands of messages, which is fine. The time zone rules are those of the instance that handles an
/// occurrence. An occurrence beyond the longest delay of the driver (ten years) comes too soon.
///
/// ```
/// # use std::time::Duration;
/// # use tenure_core::queue::{Missed, Queue};
/// # async fn example(queue: Queue<String>) -> tenure_core::Result<()> {
/// let hour = Duration::from_secs(3600);
/// let report = queue.recurring("report").every(hour).missed(Missed::RunOnce);
/// report.ensure(&"all customers".to_owned()).await?;
/// # Ok(()) }
/// ```
#[must_use = "a schedule is stored by `ensure`"]
pub struct Recurring<'a, T> {
    queue: &'a Queue<T>,
    name: Vec<u8>,
    schedule: Option<Result<Schedule>>,
    missed: Missed,
    attempts: Option<u32>,
}

/// The result of [`Recurring::ensure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ensured {
    /// There was no such message: it was stored.
    Created,
    /// The message exists, with the same schedule and payload: nothing was changed.
    Unchanged,
    /// The message existed with another schedule or payload, and was replaced.
    Replaced,
    /// The message exists with another schedule or payload, and an occurrence of it is in flight: a task replaces it
    /// when that occurrence has ended.
    Pending,
}

impl<T: 'static> Queue<T> {
    /// Returns a recurring message under this name: its id.
    pub fn recurring(&self, name: impl AsRef<[u8]>) -> Recurring<'_, T> {
        let name = name.as_ref().to_vec();
        Recurring { queue: self, name, schedule: None, missed: Missed::default(), attempts: None }
    }
}

impl<'a, T: 'static> Recurring<'a, T> {
    /// Sets an interval; the first occurrence is one interval after the message was stored: whole milliseconds, a
    /// second at least. Counted from one nominal time to the next, so that it does not drift.
    pub fn every(mut self, interval: Duration) -> Self {
        self.schedule = Some(Schedule::every(interval));
        self
    }

    /// Sets a cron expression in a time zone (`"0 3 * * *", "Europe/Berlin"`): five fields, or six with seconds in
    /// front; names, ranges, steps, `L`, `W` and `#` are supported.
    ///
    /// When clocks are changed, an expression with a single time of day (`"30 2 * * *"`) occurs once: right after the
    /// gap if its time does not exist that day, at the first of the two if it exists twice. An expression with several
    /// (`"30 2,14 * * *"`, `"*/10 * * * *"`) leaves out the times that do not exist, and occurs twice at those that
    /// exist twice. The zones are those of the machine, or else the built-in ones.
    #[cfg(feature = "cron")]
    pub fn cron(mut self, expression: &str, zone: &str) -> Self {
        self.schedule = Some(schedule::Cron::new(expression, zone).map(|cron| Schedule::Cron(Box::new(cron))));
        self
    }

    /// Sets the handling of occurrences whose time passes while no instance runs, or while the one before is handled.
    /// Default: they are skipped.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets the most attempts of each occurrence. Default: that of the queue's handle. Less than the greatest count of
    /// the driver.
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.attempts = Some(most);
        self
    }

    /// Stores the message with this schedule and payload, unless it is stored already. Call it on every start of every
    /// instance; an unchanged message continues undisturbed.
    ///
    /// Another schedule or payload replaces a waiting message:
    ///
    /// * With the same schedule the waiting occurrence keeps its time, so that a program that is deployed more often
    ///   than the message occurs leaves none out. The same holds if it was postponed, or failed and is to be tried
    ///   again, with all its attempts.
    /// * With another interval the time counts from that of the occurrence before; if it has passed, the message is due
    ///   at once.
    /// * With a cron expression that is new, or that replaces one, it occurs at the next time from now.
    ///
    /// The call does not wait for an occurrence in flight: it returns [`Ensured::Pending`], and a task of this runtime
    /// replaces the message when the occurrence has ended, checking once a second. The task ends with the client's
    /// [`close`](crate::Client::close) and with another `ensure` of the name by this client; an outage does not end it.
    /// The call itself takes a few requests, each of them bounded by the client's `op_timeout`.
    ///
    /// When two versions of a program start at the same time, the last one wins. An occurrence that another client
    /// receives and settles between two requests of a call that replaces it may be handled once more.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when a setting is outside its limits, the schedule is missing or has no time, or
    /// a message of that id is known that does not recur; [`ErrorKind::Unsupported`] when the driver has no operations
    /// on stored messages; otherwise the driver's error. Call it again then.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may or may not be stored; call it again.
    pub async fn ensure(self, value: &T) -> Result<Ensured> {
        let queue = self.queue;
        let during = |error| queue.during(error, "ensure");
        let wanted = self.checked(value).map_err(during)?;
        queue.fetcher.remote.shared.start().map_err(during)?; // it may have to leave a task behind
        let change = Change::begin(&queue.fetcher, &wanted.id);
        let ensured = wanted.store(queue).await?;
        if ensured == Ensured::Pending {
            let queue = queue.clone();
            tokio::spawn(async move { wanted.store_later(&queue, change).await });
        }
        Ok(ensured)
    }

    fn checked(self, value: &T) -> Result<Wanted> {
        let Self { queue, name, schedule, missed, attempts } = self;
        let caps = queue.fetcher.remote.caps;
        let missing = || Error::new(ErrorKind::InvalidArgument, "a recurring message needs a schedule");
        let schedule = schedule.ok_or_else(missing)??;
        let attempts = Attempts::new(attempts.unwrap_or(queue.attempts))?;
        if attempts.get() >= caps.attempts {
            let text = format!("{attempts:?} are not fewer than {}, the limit of this backend's queues", caps.attempts);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let bytes = queue.codec.encode(value)?;
        caps.check_payload(bytes.len())?;
        let plan = Plan { schedule, attempts, missed };
        let wanted = Wanted { id: MessageId::named(name)?, plan, payload: Payload::new(bytes)? };
        caps.check_request(wanted.message(&caps, None)?.bytes())?;
        Ok(wanted)
    }
}

/// The requested message.
struct Wanted {
    id: MessageId,
    plan: Plan,
    payload: Payload,
}

impl Wanted {
    /// Stores it, unless it is stored already, or an occurrence is in flight.
    async fn store<T: 'static>(&self, queue: &Queue<T>) -> Result<Ensured> {
        let (id, during) = (&self.id, |error| queue.during(error, "ensure"));
        loop {
            let known = queue.admin().get(id).await?;
            let if_known = match &known {
                None => IfKnown::Keep,
                Some(info) if info.recurrence.is_none() => return Err(during(taken(id))),
                Some(info) if info.state == MessageState::Dead => {
                    queue.admin().dead_letters().purge([id.clone()]).await?; // it has died in spite of its attempts
                    IfKnown::Keep
                }
                Some(info) if self.is(info) => return Ok(Ensured::Unchanged),
                // What is read of it may be over by the time of a push.
                Some(info) if info.state == MessageState::InFlight => return Ok(Ensured::Pending),
                Some(_) => IfKnown::Replace,
            };
            let replaced = known.as_ref().filter(|_| if_known == IfKnown::Replace);
            let message = self.message(&queue.fetcher.remote.caps, replaced).map_err(during)?;
            match queue.store(NewMessage { if_known, ..message }).await? {
                Pushed::Stored(_) => return Ok(Ensured::Created),
                Pushed::Replaced(_) => return Ok(Ensured::Replaced),
                Pushed::Duplicate(MessageState::Settled) => return Err(during(taken(id))),
                Pushed::Duplicate(MessageState::InFlight) => return Ok(Ensured::Pending),
                Pushed::Duplicate(_) => {} // another client was faster: perhaps with the same
            }
        }
    }

    /// Stores it when no occurrence is in flight any more, unless this client has begun a newer change.
    async fn store_later<T: 'static>(self, queue: &Queue<T>, change: Change) {
        let shared = &queue.fetcher.remote.shared;
        loop {
            tokio::select! {
                () = shared.closed() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
            if !change.is_current() {
                return;
            }
            match self.store(queue).await {
                Ok(Ensured::Pending) => {}
                Ok(_) => return,
                Err(error) => {
                    telemetry::change_failed(queue.name(), &self.id, &error);
                    if !error.is_transient() {
                        return;
                    }
                }
            }
        }
    }

    /// Makes the message of its first occurrence, or of the one that replaces an occurrence of this message.
    ///
    /// It has all the attempts that the driver counts, more than the plan: a driver removes a message that has none
    /// left.
    fn message(&self, caps: &QueueCapabilities, replaced: Option<&MessageInfo>) -> Result<NewMessage> {
        let (now, plan) = (millis(wall_clock()), &self.plan);
        let before = replaced.and_then(|info| Some((info, Plan::read(info.recurrence.as_ref()?).ok()?)));
        let (nominal, after) = match before {
            Some((info, (before, nominal))) if before.schedule == plan.schedule => (nominal, info.due_in),
            before => {
                let before = before.map(|(_, (before, nominal))| (before.schedule, nominal));
                let never = || Error::new(ErrorKind::InvalidArgument, "a schedule has no occurrence in the future");
                let nominal = plan.schedule.first(now, before.as_ref()).ok_or_else(never)?;
                (nominal, Duration::from_millis(nominal.saturating_sub(now)))
            }
        };
        let after = Delay::new(after)?;
        caps.check_delay(after)?;
        Ok(NewMessage {
            due: Due::After(after),
            id: Some(NamedId { id: self.id.clone(), window: Delay::ZERO }),
            if_known: IfKnown::Keep,
            attempts: Attempts::new(caps.attempts.min(Attempts::MAX))?,
            recurrence: Some(plan.recurrence(nominal)?),
            ..NewMessage::new(self.payload.clone())
        })
    }

    /// Returns true if the stored message is this one.
    fn is(&self, info: &MessageInfo) -> bool {
        let stored = info.recurrence.as_ref().and_then(|recurrence| Plan::read(recurrence).ok());
        stored.is_some_and(|(stored, _)| stored == self.plan) && info.payload == self.payload
    }
}

fn taken(id: &MessageId) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("a message with the id {id} exists and does not recur"))
}

impl<T: 'static> fmt::Debug for Recurring<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recurring")
            .field("queue", self.queue.name())
            .field("name", &String::from_utf8_lossy(&self.name))
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}
