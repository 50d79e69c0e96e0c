//! Standing in the lines of the locks that messages are parked behind: the client that parked a message takes a place in
//! the lock's line, and gives the message its turn.
//!
//! The hold that the client is granted goes along with the message, which becomes due: whoever receives the message
//! adopts the hold. Nobody else can come in between, so a message waits no longer than a task that stands in the line
//! itself. A client that has messages in hand and no receiver that waits does not stand in line: a lock is not kept for a
//! message that nobody handles.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::pump::Pump;
use super::{Delay, MessageId};
use crate::driver::{Parking, TurnGiven};
use crate::engine::loose::LooseHold;
use crate::lock::{Lock, LockGuard};
use crate::value::clock::LeaseInstant;
use crate::value::error::{ErrorKind, Result};
use crate::value::name::LockName;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a lock that was granted is kept for receivers that are just between two messages.
const BETWEEN: Duration = Duration::from_millis(50);

/// How much longer than a message is parked its place in the line is kept: if its lock is still taken, it is parked again,
/// and goes on waiting there.
const RETURNING: Duration = Duration::from_millis(500);

/// The lines in which a client stands.
#[derive(Debug, Default)]
pub(super) struct Attended {
    /// By lock, where the next parked message is announced.
    lines: Mutex<HashMap<LockName, UnboundedSender<Parked>>>,
    /// Told when somebody waits for messages, or is done with one.
    pub(super) room: Notify,
}

/// A message that is parked, and until when it may be.
#[derive(Debug)]
struct Parked {
    pump: Arc<Pump>,
    id: MessageId,
    until: LeaseInstant,
}

impl Parked {
    /// Whether there is somebody to handle it.
    fn has_room(&self) -> bool {
        self.pump.has_room()
    }
}

impl Pump {
    /// The message was parked behind the lock at this time, for at most this long.
    pub(super) fn attend(self: &Arc<Self>, lock: &LockName, id: MessageId, since: LeaseInstant, at_most: Delay) {
        if self.caps.parking != Parking::Attended {
            return;
        }
        let mut parked = Parked { pump: Arc::clone(self), id, until: since.after(at_most.get() + RETURNING) };
        let mut lines = self.shared.pumps.attended.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(lock) {
            match line.send(parked) {
                Ok(()) => return,
                Err(unsent) => parked = unsent.0,
            }
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        lines.retain(|_, line| !line.is_closed());
        let (announce, arriving) = unbounded_channel();
        lines.insert(lock.clone(), announce);
        let lock = Lock::new(Arc::clone(&self.shared), lock.clone()).fixed_ttl(self.shared.config.parked_turn);
        runtime.spawn(attend(Arc::clone(self), lock, Line { parked: VecDeque::from([parked]), arriving }));
    }
}

/// The parked messages of one lock, in the order in which they were parked.
struct Line {
    parked: VecDeque<Parked>,
    arriving: UnboundedReceiver<Parked>,
}

impl Line {
    /// Until when there is somebody in it, as far as is known; `None` when there is nobody.
    fn until(&mut self) -> Option<LeaseInstant> {
        self.parked.extend(std::iter::from_fn(|| self.arriving.try_recv().ok()));
        self.parked.retain(|parked| !parked.until.remaining().is_zero());
        self.parked.iter().map(|parked| parked.until).max()
    }

    /// Takes out the first whose message somebody can handle.
    fn next(&mut self) -> Option<Parked> {
        self.until()?;
        let at = self.parked.iter().position(Parked::has_room)?;
        self.parked.remove(at)
    }

    /// Waits until there is somebody to handle one of the messages.
    async fn has_room(&self, room: &Notify) {
        loop {
            let told = room.notified();
            tokio::pin!(told);
            told.as_mut().enable(); // before looking
            if self.parked.iter().any(Parked::has_room) {
                return;
            }
            told.await;
        }
    }
}

/// Stands in the line of a lock for as long as messages of the client are parked behind it.
async fn attend(client: Arc<Pump>, lock: Lock, mut line: Line) {
    let room = &client.shared.pumps.attended.room;
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
            () = client.shared.closed() => return,
        }
        match granted(&lock, &mut line, until).await {
            None => {}
            Some(Ok(guard)) => give(guard, &mut line, room).await,
            Some(Err(error)) if error.kind() == ErrorKind::Closed => return,
            Some(Err(_)) => tokio::time::sleep(PAUSE.min(until.remaining())).await,
        }
    }
}

/// Waits for the lock as long as there is somebody in the line; `None` when that has come to its end.
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

/// Gives the hold to the first message that waits for it and that somebody can handle; back to the lock if there is none.
async fn give(guard: LockGuard, line: &mut Line, room: &Notify) {
    line.until();
    let _ = tokio::time::timeout(BETWEEN, line.has_room(room)).await;
    let Some(hold) = guard.let_loose() else { return };
    let shared = Arc::clone(hold.shared());
    // From here on the hold is the message's, which may have it although its request is not answered.
    let Some(turn) = hold.into_turn() else { return };
    while let Some(Parked { pump, id, .. }) = line.next() {
        match super::bounded(shared.config.op_timeout, pump.driver.give_turn(&pump.name, &id, &turn)).await {
            Ok(TurnGiven::Due) => return,
            Ok(TurnGiven::NotParked) => {}
            // Those that are parked in a paused queue come back by the clock.
            Ok(TurnGiven::Paused) => line.parked.retain(|parked| !Arc::ptr_eq(&parked.pump, &pump)),
            Err(error) if error.was_not_applied() => break,
            Err(_) => return, // it ends by its lease
        }
    }
    drop(LooseHold::new(&shared, turn));
}
