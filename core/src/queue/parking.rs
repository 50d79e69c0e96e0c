//! Parking: messages in a queue that wait for a lock.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::driver::{Pushed, TurnGiven};
use crate::engine::hold::LooseHold;
use crate::lock::{Lock, LockGuard};
use crate::queue::delivery::Delivery;
use crate::queue::fetcher::{Attend, Fetcher};
use crate::queue::handle::Queue;
use crate::queue::{Message, MessageId};
use crate::runtime::bounded;
use crate::value::error::{ErrorKind, LockName, Result};
use crate::value::queue::Delay;
use crate::value::time::LeaseInstant;

/// The result of a request that needed a lock.
#[derive(Debug)]
pub enum OrPark {
    /// The lock was free: do the work now.
    Acquired(LockGuard),
    /// The lock was taken: the message waits in the queue, and a worker will handle it under the lock.
    Parked(Pushed),
}

/// The default for the longest wait of a parked message.
pub(crate) const PARKED_AT_MOST: Duration = Duration::from_secs(5);

impl Lock {
    /// Takes the lock if it is free; otherwise stores the message, to be handled under this lock later: when its turn
    /// comes (as the driver declares by its [`Parking`](crate::driver::Parking)), and 5 s from now at the latest, or
    /// after the time set by [`Message::parked_at_most`]. For request handlers, which should not wait.
    ///
    /// A [`Message`] with an id is parked once, however often the request is made; it is refused when it is due at a
    /// time, or carries another lock.
    ///
    /// The message waits in the line of the lock as any other waiter, as long as this client lives. When its turn
    /// comes, the lock is reserved for it for 2 s ([`ClientBuilder::parked_turn`](crate::ClientBuilder::parked_turn)),
    /// and a worker of the queue handles it under that hold. A message that is delivered without a turn takes the lock
    /// if it is free; if not, it is parked once more, without using up an attempt.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`], and as a [`push`](Queue::push).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind; the message may or may not be stored.
    pub async fn or_park<'v, T: 'static>(
        &self,
        queue: &Queue<T>,
        message: impl Into<Message<'v, T>>,
    ) -> Result<OrPark> {
        let parked = message.into().encoded(&*queue.codec).parked_behind(self.name()?, PARKED_AT_MOST);
        let parked = parked
            .and_then(|message| message.checked(&queue.fetcher.remote.caps, queue.attempts))
            .map_err(|error| queue.during(error, "push"))?;
        if let Some(guard) = self.try_acquire().await? {
            return Ok(OrPark::Acquired(guard));
        }
        queue.store(parked).await.map(OrPark::Parked)
    }

    /// Takes the lock for a message: with the hold that came with the message if it was parked behind this lock and its
    /// turn has come, or as [`try_acquire`](Lock::try_acquire) does. For receivers without a
    /// [`Worker`](crate::queue::Worker), which does the same.
    ///
    /// A hold that came with the message keeps its fence and its label, and is renewed to the ttl of this handle from
    /// now on. It can be taken up once, from a delivery and a lock of the same client; it is released if the delivery
    /// ends before that.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind, including the one that came with the message.
    pub async fn try_acquire_for<T: 'static>(&self, delivery: &Delivery<T>) -> Result<Option<LockGuard>> {
        if let Some(turn) = delivery.claim().take_turn(self.shared(), self.name()?)
            && let Some(guard) = self.take_up(turn).await?
        {
            return Ok(Some(guard));
        }
        self.try_acquire().await
    }
}

// LeaseState in the lines of the locks that messages are parked behind: the client that parked a message takes a place in
// the lock's line, and gives the message its turn.
//
// The hold that the client is granted goes along with the message, which becomes due: whoever receives the message
// adopts the hold. Nobody else can come in between, so a message waits no longer than a task that stands in the line
// itself. A client that has messages in hand and no receiver that waits does not stand in line: a lock is not kept for a
// message that nobody handles.

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The time that a granted lock is kept for receivers between two messages.
const BETWEEN: Duration = Duration::from_millis(50);

/// The extra time for which the place in the line of a parked message is kept: if its lock is still taken, it is parked
/// again, and continues to wait there.
const RETURNING: Duration = Duration::from_millis(500);

/// The lines in which a client waits.
#[derive(Debug, Default)]
pub(crate) struct ParkedWatcher {
    lines: Mutex<Lines<Parked>>,
    /// Notified when a receiver begins to wait for messages, or settles one.
    room: Notify,
}

/// The announcement channel for the next parked message of each lock.
#[derive(Debug)]
struct Lines<T>(HashMap<LockName, UnboundedSender<T>>);

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Lines<T> {
    /// Announces a message to the waiter in the line of this lock. If there is none, the line begins with it, and ended
    /// lines are removed.
    fn join(&mut self, lock: &LockName, one: T) -> Option<(T, UnboundedReceiver<T>)> {
        let one = match self.0.get(lock) {
            Some(line) => line.send(one).err()?.0,
            None => one,
        };
        self.0.retain(|_, line| !line.is_closed());
        let (announce, arriving) = unbounded_channel();
        self.0.insert(lock.clone(), announce);
        Some((one, arriving))
    }
}

/// A parked message, and the end of its parking.
#[derive(Debug)]
struct Parked {
    fetcher: Arc<Fetcher>,
    id: MessageId,
    until: LeaseInstant,
}

impl Parked {
    /// Returns true if a receiver can handle it.
    fn has_room(&self) -> bool {
        self.fetcher.has_room()
    }
}

impl Attend for ParkedWatcher {
    fn attend(&self, fetcher: &Arc<Fetcher>, lock: &LockName, id: MessageId, since: LeaseInstant, at_most: Delay) {
        let parked = Parked { fetcher: Arc::clone(fetcher), id, until: since.after(at_most.get() + RETURNING) };
        let begun = self.lines.lock().unwrap_or_else(PoisonError::into_inner).join(lock, parked);
        let (Some((parked, arriving)), Ok(runtime)) = (begun, tokio::runtime::Handle::try_current()) else { return };
        let lock = Lock::new(Arc::clone(&fetcher.local_queues), Ok(lock.clone()))
            .fixed_ttl(fetcher.remote.shared.config.parked_turn);
        runtime.spawn(attend(Arc::clone(fetcher), lock, Line { parked: VecDeque::from([parked]), arriving }));
    }

    fn room(&self) -> &Notify {
        &self.room
    }
}

/// The parked messages of one lock, in the order in which they were parked.
struct Line {
    parked: VecDeque<Parked>,
    arriving: UnboundedReceiver<Parked>,
}

impl Line {
    /// Returns the latest end among the line's messages; `None` when the line is empty.
    fn until(&mut self) -> Option<LeaseInstant> {
        self.parked.extend(std::iter::from_fn(|| self.arriving.try_recv().ok()));
        self.parked.retain(|parked| !parked.until.remaining().is_zero());
        self.parked.iter().map(|parked| parked.until).max()
    }

    /// Removes the first message that a receiver can handle.
    fn next(&mut self) -> Option<Parked> {
        self.until()?;
        let at = self.parked.iter().position(Parked::has_room)?;
        self.parked.remove(at)
    }

    /// Waits until a receiver can handle one of the messages, including those that arrive meanwhile.
    async fn has_room(&mut self, room: &Notify) {
        loop {
            let reported = room.notified(); // before looking
            if self.parked.iter().any(Parked::has_room) {
                return;
            }
            tokio::select! {
                () = reported => {}
                Some(parked) = self.arriving.recv() => self.parked.push_back(parked),
            }
        }
    }
}

/// Waits in the line of a lock for as long as messages of the client are parked behind it.
async fn attend(client: Arc<Fetcher>, lock: Lock, mut line: Line) {
    let room = client.room();
    loop {
        let Some(until) = line.until() else {
            if line.arriving.is_closed() {
                return;
            }
            line.arriving.close(); // who comes later begins anew
            continue;
        };
        tokio::select! {
            () = line.has_room(room) => {}
            () = until.reached() => continue,
            () = client.remote.shared.closed() => return,
        }
        match granted(&lock, &mut line, until).await {
            None => {}
            Some(Ok(guard)) => give(guard, &mut line, room).await,
            Some(Err(error)) if error.kind() == ErrorKind::Closed => return,
            Some(Err(_)) => tokio::time::sleep(PAUSE.min(until.remaining())).await,
        }
    }
}

/// Waits for the lock as long as the line has messages; returns `None` when the line ends.
async fn granted(lock: &Lock, line: &mut Line, mut until: LeaseInstant) -> Option<Result<LockGuard>> {
    let granted = lock.acquire();
    tokio::pin!(granted);
    loop {
        tokio::select! {
            biased;
            granted = &mut granted => return Some(granted),
            () = until.reached() => until = line.until()?,
        }
    }
}

/// Gives the hold to the first waiting message that a receiver can handle; releases it if there is none.
async fn give(guard: LockGuard, line: &mut Line, room: &Notify) {
    line.until();
    let _ = tokio::time::timeout(BETWEEN, line.has_room(room)).await;
    let Some(hold) = guard.let_loose() else { return };
    let shared = Arc::clone(hold.shared());
    // From here on the hold is the message's, which may have it although its request is not answered.
    let Some(turn) = hold.into_turn() else { return };
    while let Some(Parked { fetcher, id, .. }) = line.next() {
        match bounded(shared.config.op_timeout, fetcher.remote.driver.give_turn(&fetcher.remote.name, &id, &turn)).await
        {
            Ok(TurnGiven::Due) => return,
            Ok(TurnGiven::NotParked) => {}
            // Those that are parked in a paused queue come back by the clock.
            Ok(TurnGiven::Paused) => line.parked.retain(|parked| !Arc::ptr_eq(&parked.fetcher, &fetcher)),
            Err(error) if error.was_not_applied() => break,
            Err(_) => return, // it ends by its lease
        }
    }
    drop(LooseHold::new(&shared, turn));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_joined_while_somebody_stands_in_it_and_forgotten_afterwards() {
        let (mut lines, [a, b, c]) = (Lines::default(), ["a", "b", "c"].map(|name| LockName::new(name).unwrap()));
        let (first, mut line_of_a) = lines.join(&a, 1).expect("it begins");
        let (_, _line_of_b) = lines.join(&b, 2).expect("each lock has its own");
        assert!(lines.join(&a, 3).is_none());
        assert_eq!((first, line_of_a.try_recv().ok(), line_of_a.try_recv().ok()), (1, Some(3), None));
        line_of_a.close();
        let (again, line_of_a) = lines.join(&a, 4).expect("it begins anew");
        assert_eq!((again, lines.0.len()), (4, 2));
        drop(line_of_a);
        let (_, _line_of_c) = lines.join(&c, 5).expect("it begins");
        assert!(lines.0.len() == 2 && !lines.0.contains_key(&a), "one that ended is not kept");
    }
}
