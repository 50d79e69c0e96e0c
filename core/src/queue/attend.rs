//! Watching the locks of parked messages, where the queue itself cannot: the client that parked a message takes a place
//! in the lock's line, and makes the message due when its turn comes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::pump::Pump;
use super::{Delay, MessageId};
use crate::clock::LeaseInstant;
use crate::driver::{Parking, Rescheduled};
use crate::error::ErrorKind;
use crate::lock::Lock;
use crate::name::LockName;

/// How long a lock is left alone after a message was made due: its handler needs it.
const BETWEEN: Duration = Duration::from_millis(25);

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The lease of the moment for which the lock is held: as long as it stays taken if the process dies just then.
const MOMENT: Duration = Duration::from_secs(2);

/// By lock, where the next parked message is announced.
#[derive(Debug, Default)]
pub(super) struct Attended(Mutex<HashMap<LockName, UnboundedSender<Parked>>>);

/// A message that is parked, and when it comes back by itself.
#[derive(Debug)]
struct Parked {
    pump: Arc<Pump>,
    id: MessageId,
    until: LeaseInstant,
}

impl Pump {
    /// The message was parked behind the lock at this time, for at most this long.
    pub(super) fn attend(self: &Arc<Self>, lock: &LockName, id: MessageId, since: LeaseInstant, at_most: Delay) {
        if self.caps.parking != Parking::Attended {
            return;
        }
        let mut parked = Parked { pump: Arc::clone(self), id, until: since.after(at_most.get()) };
        let mut lines = self.shared.pumps.attended.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(lock) {
            match line.send(parked) {
                Ok(()) => return,
                Err(unsent) => parked = unsent.0,
            }
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        lines.retain(|_, line| !line.is_closed());
        let (line, arriving) = unbounded_channel();
        lines.insert(lock.clone(), line);
        let range = self.shared.backend.locks().capabilities().ttl;
        let moment = MOMENT.max(range.min).min(range.max);
        let lock = Lock::new(Arc::clone(&self.shared), lock.clone()).fixed_ttl(moment);
        runtime.spawn(attend(lock, VecDeque::from([parked]), arriving));
    }
}

/// One message each time the lock becomes free, the one that was parked first, until all have come back.
async fn attend(lock: Lock, mut line: VecDeque<Parked>, mut arriving: UnboundedReceiver<Parked>) {
    loop {
        line.extend(std::iter::from_fn(|| arriving.try_recv().ok()));
        line.retain(|parked| !parked.until.remaining().is_zero());
        let Some(longest) = line.iter().map(|parked| parked.until.remaining()).max() else {
            if arriving.is_closed() {
                return;
            }
            arriving.close(); // who comes later begins anew
            continue;
        };
        match lock.acquire_within(longest).await {
            Ok(guard) => {
                let _ = guard.release().await; // what fails here goes on in the background
                line.extend(std::iter::from_fn(|| arriving.try_recv().ok()));
                wake_first(&mut line).await;
                tokio::time::sleep(BETWEEN).await;
            }
            Err(error) if error.kind() == ErrorKind::Closed => return,
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(_) => tokio::time::sleep(PAUSE.min(longest)).await,
        }
    }
}

/// Makes the first message due that is still parked. One whose backend fails comes back by the clock.
async fn wake_first(line: &mut VecDeque<Parked>) {
    while let Some(Parked { pump, id, until }) = line.pop_front() {
        let limit = pump.shared.config.op_timeout;
        if !until.remaining().is_zero() {
            match super::bounded(limit, pump.driver.reschedule(&pump.name, &id, Delay::ZERO)).await {
                Ok(Rescheduled::Moved) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}
