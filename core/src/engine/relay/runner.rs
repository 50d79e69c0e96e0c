//! The task that waits at the backend for all waiters of a relay.

use std::sync::Arc;

use tokio::sync::Notify;

use super::super::attempt::Ask;
use super::super::shared::Shared;
use super::super::wait::Wait;
use crate::value::clock::LeaseInstant;
use crate::value::name::LockName;

/// What it does next.
pub(super) enum Next {
    /// Nothing until then, or until told: a lease is being passed on.
    Pause(LeaseInstant, Arc<Notify>),
    /// Waits for the lock; whether the backend has answered before.
    Ask(Ask, bool),
    /// Nobody needs it any more.
    End,
}

/// Dropped before its end, it is noticed.
pub(super) struct Runner {
    shared: Arc<Shared>,
    name: LockName,
    number: u64,
}

impl Runner {
    pub(super) fn new(shared: &Arc<Shared>, name: &LockName, number: u64) -> Self {
        Self { shared: Arc::clone(shared), name: name.clone(), number }
    }

    /// Runs until nobody needs it any more, or until told to `stop`.
    pub(super) async fn run(self, stop: Arc<Notify>) {
        let relays = &self.shared.relays;
        loop {
            match relays.next(&self.shared, &self.name, self.number) {
                Next::End => return,
                Next::Pause(until, over) => tokio::select! {
                    () = until.reached() => {}
                    () = over.notified() => {}
                },
                Next::Ask(ask, heard) => {
                    let mut wait = Wait::for_others(&self.shared, &ask, heard);
                    tokio::select! {
                        biased;
                        () = stop.notified() => return wait.leave().await,
                        ended = wait.outcome() => match ended {
                            Ok(held) => relays.give(held),
                            Err(error) if error.is_transient() && !wait.was_heard() => {
                                relays.scatter(&self.shared, &self.name);
                            }
                            Err(error) => relays.fail(&self.shared, &self.name, &error),
                        },
                    }
                }
            }
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.relays.lose_task(&self.shared, &self.name, self.number);
    }
}
