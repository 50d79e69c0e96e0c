//! Who looks at the queue from outside: a ledger of what the store did with each message, and what clients believe.

mod believed;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tenure_core::LockGuard;
use tenure_core::driver::{
    Cancelled, Due, Extended, Extension, NewMessage, Pushed, RawDelivery, Receipt, Rescheduled, Settle, Settled,
    Settlement, TurnGiven,
};
use tenure_core::queue::{ConcurrencyKey, Delivery, MessageId, QueueName};
use tenure_memory::MemoryDriver;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::plan::{Limits, QueuePlan};
use crate::world::judge::Tally;
use crate::world::link::Observer;
use crate::world::plan::STORM;

/// A receiver asks of its own accord after this span at the latest; the rest is for leases and answers on their way.
const IDLE: Duration = Duration::from_secs(25);
const IDLE_IN_CALM: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Ledger {
    memory: MemoryDriver,
    queue: QueueName,
    started: Instant,
    storm_until: Instant,
    /// The longest that a message may wait though it is due and somebody receives.
    idle: Duration,
    limits: Limits,
    traces: bool,
    state: Mutex<State>,
    wronged: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: HashMap<MessageId, Message>,
    /// Which message each receipt delivered, and with which fence.
    receipts: HashMap<Receipt, (MessageId, u64)>,
    /// How the deliveries of these fences ended.
    ended: HashMap<u64, Ended>,
    /// Serial numbers of what was stored.
    stored: HashSet<u64>,
    /// The greatest fence of the queue.
    greatest: u64,
    /// The greatest fence that clients saw of a message.
    seen: HashMap<MessageId, u64>,
    deliveries: Vec<(usize, Weak<Delivery<Vec<u8>>>)>,
    handlers: Vec<(MessageId, u64)>,
    /// Who does something under the lock.
    holders: Vec<Weak<LockGuard>>,
    /// How many deliveries the rate allows at this moment.
    allowance: f64,
    counted_at: Option<Instant>,
    receiving: usize,
    idle_since: Option<Instant>,
    wrong: Option<String>,
    trace: Vec<String>,
    tally: Tally,
}

#[derive(Debug)]
struct Message {
    serial: u64,
    due: Instant,
    key: Option<ConcurrencyKey>,
    locked: bool,
    recurs: bool,
    attempt: u32,
    attempts: u32,
    /// When it may not be delivered any more.
    expires: Option<Instant>,
    /// For how long its name stays known after an acknowledgement.
    window: Duration,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waits,
    InFlight { receipt: Receipt, until: Instant },
    Dead,
    Settled { known_until: Instant },
    Cancelled,
}

/// How a delivery ended at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Acked,
    Again,
    Dead,
    /// It comes again on its schedule, however this occurrence ended.
    Recurs,
}

impl Message {
    fn is_in_flight(&self, now: Instant) -> bool {
        matches!(self.place, Place::InFlight { until, .. } if until > now)
    }

    /// Since when it could be delivered, if it can.
    fn ready_since(&self, now: Instant) -> Option<Instant> {
        let due = match self.place {
            Place::Waits => self.due,
            Place::InFlight { until, .. } => until,
            _ => return None,
        };
        (due <= now).then_some(due)
    }
}

/// The number that a payload carries.
pub(crate) fn serial(payload: &[u8]) -> u64 {
    payload.try_into().map(u64::from_be_bytes).unwrap_or(0)
}

impl Ledger {
    pub(crate) fn new(plan: &QueuePlan, memory: &MemoryDriver, queue: &QueueName, traces: bool) -> Arc<Self> {
        let started = Instant::now();
        Arc::new(Self {
            memory: memory.clone(),
            queue: queue.clone(),
            started,
            storm_until: started + Duration::from_millis(if plan.is_calm() { 0 } else { STORM }),
            idle: if plan.is_calm() { IDLE_IN_CALM } else { IDLE },
            limits: plan.limits,
            traces,
            state: Mutex::default(),
            wronged: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn storm_until(&self) -> Instant {
        self.storm_until
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.traces {
            let line = format!("{:>6} ms  {}", self.started.elapsed().as_millis(), what());
            self.state().trace.push(line);
        }
    }

    pub(crate) fn wrong(&self, what: String) {
        self.note(|| format!("WRONG: {what}"));
        self.state().wrong.get_or_insert(what);
        self.wronged.notify_one();
    }

    fn all_wrong(&self, wrong: Vec<String>) {
        wrong.into_iter().for_each(|what| self.wrong(what));
    }

    /// Resolves when something is wrong.
    pub(crate) async fn wronged(&self) {
        self.wronged.notified().await;
    }

    pub(crate) fn outcome(&self) -> (Tally, Option<String>, Vec<String>) {
        let mut state = self.state();
        (state.tally, state.wrong.take(), std::mem::take(&mut state.trace))
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.state().tally);
    }
}

/// What the store did.
impl Ledger {
    pub(crate) fn pushed(&self, asked: &[NewMessage], answers: &[Pushed]) {
        let now = Instant::now();
        let mut wrong = Vec::new();
        let mut state = self.state();
        for (message, answer) in std::iter::zip(asked, answers) {
            let name = message.id.as_ref().map(|named| named.id.clone());
            let known = name.as_ref().and_then(|name| state.messages.get(name));
            let known = known.is_some_and(|known| match known.place {
                Place::Settled { known_until } => known_until > now,
                Place::Cancelled => false,
                _ => true,
            });
            match answer {
                Pushed::Stored(_) if known => wrong.push(format!("{name:?} was stored twice")),
                Pushed::Stored(id) | Pushed::Replaced(id) => {
                    if let (Pushed::Replaced(_), Some(old)) = (answer, state.messages.get(id))
                        && old.is_in_flight(now)
                    {
                        wrong.push(format!("{id} was replaced in flight"));
                    }
                    if name.is_some_and(|name| name != *id) {
                        wrong.push(format!("a message with a name was stored as {id}"));
                    }
                    let entry = Message::new(message, now);
                    state.stored.insert(entry.serial);
                    state.messages.insert(id.clone(), entry);
                }
                Pushed::Duplicate(_) if !known => wrong.push(format!("{name:?} was refused as known, and is not")),
                _ => {}
            }
        }
        drop(state);
        self.all_wrong(wrong);
    }

    pub(crate) fn delivered(&self, deliveries: &[RawDelivery], lease: Duration) {
        let now = Instant::now();
        for delivery in deliveries {
            let (id, fence) = (&delivery.id, delivery.fence);
            self.note(|| format!("the store delivers {id} with …{}", fence.get() % 10_000));
        }
        let mut wrong = Vec::new();
        let mut state = self.state();
        for delivery in deliveries {
            let (id, fence) = (&delivery.id, delivery.fence.get());
            if fence <= state.greatest {
                wrong.push(format!("{id} was delivered with {fence}, after {}", state.greatest));
            }
            state.greatest = state.greatest.max(fence);
            let key = state.messages.get(id).and_then(|message| message.key.clone());
            let mut others = state.messages.iter().filter(|(other, _)| *other != id);
            if key.is_some() && others.any(|(_, other)| other.key == key && other.is_in_flight(now)) {
                wrong.push(format!("two messages of one key are in flight, one of them {id}"));
            }
            let Some(message) = state.messages.get_mut(id) else {
                wrong.push(format!("{id} was delivered, and nobody pushed it"));
                continue;
            };
            if message.serial != serial(delivery.payload.as_bytes()) {
                wrong.push(format!("{id} was delivered with the payload of another"));
            }
            if message.ready_since(now).is_none() {
                wrong.push(format!("{id} was delivered, and it is {:?}, due {:?}", message.place, message.due - now));
            }
            if delivery.attempt != message.attempt + 1 || delivery.attempt > message.attempts {
                let (last, most) = (message.attempt, message.attempts);
                wrong.push(format!("{id} was delivered as attempt {}, after {last} of {most}", delivery.attempt));
            }
            message.attempt = delivery.attempt;
            message.place = Place::InFlight { receipt: delivery.receipt, until: now + lease };
            state.receipts.insert(delivery.receipt, (id.clone(), fence));
        }
        wrong.extend(state.beyond(&self.limits, deliveries.len(), now));
        drop(state);
        self.all_wrong(wrong);
    }

    /// The store answered this to a settlement.
    pub(crate) fn settled(&self, Settle { receipt, how, .. }: &Settle, answer: Settled) {
        let now = Instant::now();
        let of = self.state().receipts.get(receipt).cloned();
        self.note(|| format!("the store settles {of:?} by {how:?}: {answer:?}"));
        let mut guard = self.state();
        let state = &mut *guard;
        let Some((id, fence)) = state.receipts.get(receipt) else { return };
        let Some(message) = state.messages.get_mut(id) else { return };
        let current = matches!(message.place, Place::InFlight { receipt: valid, .. } if valid == *receipt);
        let wrong = match answer {
            Settled::Stale => {
                let refused = current && message.is_in_flight(now);
                refused.then(|| format!("a valid receipt of {id} was refused"))
            }
            _ if !current => Some(format!("{id} was settled with a receipt that is not valid")),
            Settled::Postponed => Some(format!("{id} was postponed, and there is room")),
            _ => {
                let ended;
                (message.place, ended) = match (answer, how) {
                    (Settled::Dead, _) => (Place::Dead, Ended::Dead),
                    (_, Settlement::Ack) => (Place::Settled { known_until: now + message.window }, Ended::Acked),
                    (_, Settlement::Retry { after, .. }) => {
                        message.due = now + after.get();
                        (Place::Waits, Ended::Again)
                    }
                    (_, Settlement::Recur { after, .. }) => {
                        (message.due, message.attempt, message.expires) = (now + after.get(), 0, None);
                        (Place::Waits, Ended::Recurs)
                    }
                    (_, Settlement::Return { after } | Settlement::Park { at_most: after, .. }) => {
                        message.due = now + after.get();
                        message.attempt -= 1;
                        (Place::Waits, Ended::Again)
                    }
                    _ => (Place::Dead, Ended::Dead),
                };
                state.ended.insert(*fence, ended);
                None
            }
        };
        drop(guard);
        self.all_wrong(wrong.into_iter().collect());
    }

    pub(crate) fn extended(&self, extension: Extension, lease: Duration, answer: Extended) {
        let now = Instant::now();
        let mut guard = self.state();
        let state = &mut *guard;
        let Some((id, _)) = state.receipts.get(&extension.receipt) else { return };
        let Some(message) = state.messages.get_mut(id) else { return };
        let wrong = match &mut message.place {
            Place::InFlight { receipt, until } if *receipt == extension.receipt && *until > now => {
                if answer == Extended::Extended {
                    *until = (*until).max(now + lease);
                }
                answer == Extended::Stale
            }
            _ => answer == Extended::Extended,
        };
        let wrong = wrong.then(|| format!("an extension of {id} was answered with {answer:?}"));
        drop(guard);
        self.all_wrong(wrong.into_iter().collect());
    }

    pub(crate) fn cancelled(&self, id: &MessageId, answer: Cancelled) {
        let now = Instant::now();
        let mut state = self.state();
        let Some(message) = state.messages.get_mut(id) else { return };
        let wrong = message.is_in_flight(now) && answer == Cancelled::Removed;
        if answer == Cancelled::Removed {
            message.place = Place::Cancelled;
        }
        drop(state);
        if wrong {
            self.wrong(format!("{id} was cancelled in flight"));
        }
    }

    pub(crate) fn rescheduled(&self, id: &MessageId, delay: Duration, answer: Rescheduled) {
        let now = Instant::now();
        let mut state = self.state();
        let Some(message) = state.messages.get_mut(id) else { return };
        let wrong = message.is_in_flight(now) && answer == Rescheduled::Moved;
        if answer == Rescheduled::Moved {
            (message.place, message.due) = (Place::Waits, now + delay);
        }
        drop(state);
        if wrong {
            self.wrong(format!("{id} was rescheduled in flight"));
        }
    }

    /// A parked message was given its turn.
    pub(crate) fn turned(&self, id: &MessageId, answer: TurnGiven) {
        let now = Instant::now();
        self.note(|| format!("the turn of {id}: {answer:?}"));
        let mut state = self.state();
        let Some(message) = state.messages.get_mut(id).filter(|_| answer == TurnGiven::Due) else { return };
        let wrong = message.place != Place::Waits;
        message.due = message.due.min(now);
        drop(state);
        if wrong {
            self.wrong(format!("{id} was given a turn, and was not parked"));
        }
    }

    /// The valid receipt of the message that this one once delivered.
    pub(crate) fn valid_instead(&self, receipt: &Receipt) -> Option<Receipt> {
        let state = self.state();
        let (id, _) = state.receipts.get(receipt)?;
        match state.messages.get(id)?.place {
            Place::InFlight { receipt, .. } => Some(receipt),
            _ => None,
        }
    }
}

impl Message {
    fn new(message: &NewMessage, now: Instant) -> Self {
        let (Due::After(delay) | Due::Parked { at_most: delay }) = message.due;
        let due = now + delay.get();
        Self {
            serial: serial(message.payload.as_bytes()),
            due,
            key: message.key.clone(),
            locked: message.lock.is_some(),
            recurs: message.recurrence.is_some(),
            attempt: 0,
            attempts: message.attempts.get(),
            expires: message.ttl.map(|ttl| due + ttl.get()),
            window: message.id.as_ref().map_or(Duration::ZERO, |named| named.window.get()),
            place: Place::Waits,
        }
    }
}

impl State {
    /// In which way so many deliveries more are more than the limits allow.
    fn beyond(&mut self, limits: &Limits, deliveries: usize, now: Instant) -> Option<String> {
        let in_flight = self.messages.values().filter(|message| message.is_in_flight(now)).count();
        if let Some(most) = limits.in_flight.filter(|most| deliveries > 0 && in_flight > *most as usize) {
            return Some(format!("{in_flight} are in flight, and the limit is {most}"));
        }
        let allowance = self.allowed(limits, now)?;
        self.allowance = allowance - deliveries as f64;
        (self.allowance < -0.01).then(|| format!("{deliveries} were delivered, and the rate allowed {allowance}"))
    }

    /// How many deliveries the rate allows now: what is left of a bucket that is refilled evenly.
    fn allowed(&mut self, limits: &Limits, now: Instant) -> Option<f64> {
        let (most, per) = limits.rate?;
        let most = f64::from(most);
        let refilled = self.counted_at.map_or(most, |at| (now - at).as_secs_f64() * 1000.0 / per as f64 * most);
        self.counted_at = Some(now);
        self.allowance = (self.allowance + refilled).min(most);
        Some(self.allowance)
    }

    /// Whether the limits let something go.
    fn has_room(&mut self, limits: &Limits, now: Instant) -> bool {
        let in_flight = self.messages.values().filter(|message| message.is_in_flight(now)).count();
        limits.in_flight.is_none_or(|most| in_flight < most as usize)
            && self.allowed(limits, now).is_none_or(|allowed| allowed >= 1.0)
    }
}

impl Observer for Ledger {
    fn note(&self, what: &dyn Fn() -> String) {
        Self::note(self, what);
    }

    fn look(&self) {
        Self::look(self);
    }
}
