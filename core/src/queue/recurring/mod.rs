//! Messages that come again: one message of a constant id, scheduled anew by the settlement of each delivery.
//!
//! It is stored on every start of every instance. When it comes is said by a [`schedule`], which is stored with it as text.

pub(in crate::queue) mod schedule;

use std::fmt;
use std::time::Duration;

use crate::driver::{Due, IfKnown, MessageInfo, MessageState, NamedId, NewMessage, Pushed};
use crate::queue::Queue;
use crate::queue::recurring::schedule::{Plan, Schedule, millis};
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::{Attempts, Delay, MessageId, Payload};
use crate::value::time::wall_clock;

pub use schedule::{Missed, OccurrenceEnd};

/// How long a changed schedule waits before it looks again whether the occurrence of the old one is over.
const AGAIN: Duration = Duration::from_secs(1);

/// A message that comes again and again: a name, a schedule, and what to do about failures. Made by [`Queue::recurring`].
///
/// There is **one** message, of a constant id: the name. When an occurrence of it ends, its settlement schedules the next one
/// in the same step: none is left out and none is scheduled twice, whichever instance handled it and whatever crashes. So a job runs on
/// exactly one of many instances, each of which calls [`ensure`](Self::ensure) when it starts, and has a
/// [`Worker`](crate::queue::Worker) or receives by hand.
///
/// * Occurrences do not overlap: while one is in flight, or is tried again, the next one waits; see [`missed`](Self::missed).
/// * An occurrence that used up its [`max_attempts`](Self::max_attempts), or that is rejected, is **no dead letter**: the next one is
///   scheduled. Workers count it ([`WorkerStats::occurrences_failed`](crate::queue::WorkerStats::occurrences_failed)), and
///   [`Queue::get`] tells the reason until the next one has ended.
/// * At least once, as for all messages: an occurrence that an instance died over is delivered again, and counts an attempt.
///   Occurrences that only crashed are over when there are no attempts left, and not handled once more.
/// * Times are those of the wall clocks of the clients; the backend counts the spans between. The time of the next occurrence is
///   stored, so a clock that is behind does not run one twice. To a clock that is ahead by an interval or more, each occurrence
///   looks missed: with [`Missed::Skip`] it handles none.
/// * [`Queue::cancel`] of the name ends the schedule. While an occurrence is in flight nothing is cancelled; its handler can end
///   the schedule with [`Outcome::End`](crate::queue::Outcome::End) ([`Delivery::end_recurrence`](crate::queue::Delivery::end_recurrence) by
///   hand).
///
/// It is not a calendar: it keeps no list of occurrences past or to come, and one name has one schedule. Thousands of schedules
/// are thousands of messages, which is fine. The rules of a time zone are those that the instance knows that handles an occurrence.
/// An occurrence beyond the longest delay of the driver (ten years) comes too soon.
///
/// ```
/// # use std::time::Duration;
/// # use tenure_core::queue::{Missed, Queue};
/// # async fn example(queue: Queue<String>) -> tenure_core::Result<()> {
/// let report = queue.recurring("report").every(Duration::from_secs(3600)).missed(Missed::RunOnce).max_attempts(3);
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

/// What [`Recurring::ensure`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ensured {
    /// There was no such message: it is stored.
    Created,
    /// It is there, with the same schedule and payload: nothing was changed.
    Unchanged,
    /// It was there with another schedule or payload: it is replaced, and comes at the next time of the new one.
    Replaced,
}

impl<T: 'static> Queue<T> {
    /// A message that comes again and again, under this name: its id.
    pub fn recurring(&self, name: impl AsRef<[u8]>) -> Recurring<'_, T> {
        let name = name.as_ref().to_vec();
        Recurring { queue: self, name, schedule: None, missed: Missed::default(), attempts: None }
    }
}

impl<'a, T: 'static> Recurring<'a, T> {
    /// It comes in this interval, for the first time one interval after it was stored: whole milliseconds, a second at least. Counted from one nominal time to the next, so that it does not drift.
    pub fn every(mut self, interval: Duration) -> Self {
        self.schedule = Some(Schedule::every(interval));
        self
    }

    /// It comes at the times of a cron expression in a time zone (`"0 3 * * *", "Europe/Berlin"`): five fields, or six with
    /// seconds in front; names, ranges, steps, `L`, `W` and `#` are understood.
    ///
    /// When clocks are changed, an expression with a single time of day (`"30 2 * * *"`) comes once: right after the gap if its
    /// time does not exist that day, at the first of the two if it exists twice. An expression with several (`"30 2,14 * * *"`,
    /// `"*/10 * * * *"`) leaves out the times that do not exist, and comes twice at those that exist twice. The zones are those of the machine, or else those that were built in.
    #[cfg(feature = "cron")]
    pub fn cron(mut self, expression: &str, zone: &str) -> Self {
        self.schedule = Some(schedule::Cron::new(expression, zone).map(|cron| Schedule::Cron(Box::new(cron))));
        self
    }

    /// What becomes of occurrences whose time passes while no instance runs, or while the one before is handled. Default:
    /// they are skipped.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// How often each occurrence may be tried. Default: that of the queue's handle. Less than the most that the driver counts.
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.attempts = Some(most);
        self
    }

    /// Makes sure that the message is there, with this schedule and payload. Call it on every start of every instance; what
    /// is there already goes on undisturbed.
    ///
    /// Another schedule or payload replaces a message that waits. If an occurrence of it is in flight, the call
    /// waits until that is over, asking once a second: bound it, or spawn it, if that may take long. When two versions of a
    /// program start side by side, the last one wins.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when a setting is outside its limits, the schedule is missing or never comes, or a
    /// message of that id is known that does not recur; whatever the driver reports. Call it again then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the message stored or not; call it again.
    pub async fn ensure(self, value: &T) -> Result<Ensured> {
        let queue = self.queue;
        let told = |error| queue.told(error, "ensure");
        let (id, plan, payload) = self.checked(value).map_err(told)?;
        loop {
            let if_known = match queue.get(&id).await? {
                None => IfKnown::Keep,
                Some(info) if info.recurrence.is_none() => return Err(told(taken(&id))),
                Some(info) if info.state == MessageState::Dead => {
                    queue.dead_letters().purge([id.clone()]).await?; // it has died in spite of its attempts
                    IfKnown::Keep
                }
                Some(info) if is_that(&plan, &payload, &info) => return Ok(Ensured::Unchanged),
                Some(_) => IfKnown::Replace,
            };
            let first = first(queue, &plan, &payload, &id).map_err(told)?;
            match queue.store(NewMessage { if_known, ..first }).await? {
                Pushed::Stored(_) => return Ok(Ensured::Created),
                Pushed::Replaced(_) => return Ok(Ensured::Replaced),
                Pushed::Duplicate(MessageState::Settled) => return Err(told(taken(&id))),
                Pushed::Duplicate(MessageState::InFlight) => tokio::time::sleep(AGAIN).await,
                Pushed::Duplicate(_) => {} // somebody else was faster: perhaps with the same
            }
        }
    }

    fn checked(self, value: &T) -> Result<(MessageId, Plan, Payload)> {
        let Self { queue, name, schedule, missed, attempts } = self;
        let caps = queue.fetcher.remote.caps;
        let missing = || Error::new(ErrorKind::InvalidArgument, "a recurring message needs a schedule");
        let schedule = schedule.ok_or_else(missing)??;
        let attempts = Attempts::new(attempts.unwrap_or(queue.attempts))?;
        if attempts.get() >= caps.attempts {
            let text = format!("{attempts:?} are not less than the {} that this backend's queues count", caps.attempts);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let bytes = queue.codec.encode(value)?;
        caps.check_payload(bytes.len())?;
        let plan = Plan { schedule, attempts, missed };
        let payload = Payload::new(bytes)?;
        let id = MessageId::named(name)?;
        caps.check_request(first(queue, &plan, &payload, &id)?.bytes())?;
        Ok((id, plan, payload))
    }
}

/// The message of the occurrence that is the first from now on.
///
/// It has all the attempts that the driver counts, more than the plan: a driver takes away a message that has none left.
fn first<T: 'static>(queue: &Queue<T>, plan: &Plan, payload: &Payload, id: &MessageId) -> Result<NewMessage> {
    let (now, caps) = (millis(wall_clock()), queue.fetcher.remote.caps);
    let never = || Error::new(ErrorKind::InvalidArgument, "a schedule has no time that is to come");
    let nominal = plan.schedule.next(now, now).ok_or_else(never)?;
    let after = Delay::new(Duration::from_millis(nominal - now))?;
    caps.check_delay(after)?;
    let most = Attempts::new(caps.attempts.min(Attempts::MAX))?;
    Ok(NewMessage {
        due: Due::After(after),
        id: Some(NamedId { id: id.clone(), window: Delay::ZERO }),
        if_known: IfKnown::Keep,
        attempts: most,
        recurrence: Some(plan.recurrence(nominal)?),
        ..NewMessage::new(payload.clone())
    })
}

/// Whether the stored message is of this plan and payload.
fn is_that(plan: &Plan, payload: &Payload, info: &MessageInfo) -> bool {
    let stored = info.recurrence.as_ref().and_then(|recurrence| Plan::read(recurrence).ok());
    stored.is_some_and(|(stored, _)| stored == *plan) && info.payload == *payload
}

fn taken(id: &MessageId) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("a message is known as {id} that does not recur"))
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
