//! All queues of one store, behind one mutex.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure_core::FenceFloor;
use tenure_core::driver::{QueuePage, Rest};
use tenure_core::queue::QueueName;
use tenure_core::rules::queues::{Caps, Clock, Rule};
use tokio::time::Instant;

use super::state::{Counters, MemoryRows, QueueCaps, QueueState};

/// How many messages one receive looks at beyond those that it hands out.
const LOOKS: usize = 1000;
/// The unit of the queues' clock.
const TICK: Duration = Duration::from_nanos(1);

/// The rule of one request.
pub(crate) type QueueRule<'a, 'b> = Rule<'a, MemoryRows<'b>>;

/// Locked after the locks of the store, never before them.
#[derive(Debug)]
pub(crate) struct Queues {
    inner: Mutex<Inner>,
    start: OnceLock<Instant>,
}

#[derive(Debug)]
struct Inner {
    states: BTreeMap<QueueName, QueueState>,
    counters: Counters,
}

impl Queues {
    /// None yet; the fences of their deliveries are beyond this floor.
    pub(crate) fn beyond(floor: FenceFloor) -> Self {
        let counters = Counters { fence: floor.get(), ..Counters::default() };
        Self { inner: Mutex::new(Inner { states: BTreeMap::new(), counters }), start: OnceLock::new() }
    }

    /// Makes all fences from now on greater than the floor.
    pub(crate) fn raise_fences(&self, floor: FenceFloor) {
        let last = &mut self.locked().counters.fence;
        *last = floor.get().max(*last);
    }

    /// Forgets all queues; fences begin beyond this floor again.
    pub(crate) fn forget(&self, floor: FenceFloor) {
        let counters = Counters { fence: floor.get(), ..Counters::default() };
        *self.locked() = Inner { states: BTreeMap::new(), counters };
    }

    /// Decides on one queue. Also returns whether a message of it is due sooner than before.
    pub(crate) fn decide<T>(
        &self,
        queue: &QueueName,
        caps: QueueCaps,
        decision: impl FnOnce(&mut QueueRule<'_, '_>) -> Result<T, Infallible>,
    ) -> (T, bool) {
        let mut inner = self.locked();
        let clock = self.clock();
        let Inner { states, counters } = &mut *inner;
        let state = match states.get_mut(queue) {
            Some(state) => state,
            None => states.entry(queue.clone()).or_default(),
        };
        state.forget_settled(clock.now());
        let mut rows = MemoryRows { state, counters };
        let caps = Caps { dead_letters: caps.dead_letters, looks: LOOKS, answer_bytes: usize::MAX };
        let mut rule = Rule::new(&mut rows, clock, caps);
        let Ok(before) = rule.soonest();
        let Ok(answer) = decision(&mut rule);
        let Ok(after) = rule.soonest();
        if rows.state.is_idle() {
            states.remove(queue);
        }
        (answer, after.is_some_and(|at| before.is_none_or(|before| at < before)))
    }

    pub(crate) fn list(&self, after: Option<&QueueName>, max: usize) -> QueuePage {
        let inner = self.locked();
        let listed = |(name, state): (&QueueName, &QueueState)| state.is_listed().then(|| name.clone());
        let mut names = inner.states.iter().filter_map(listed).filter(|name| after.is_none_or(|after| name > after));
        let queues: Vec<_> = names.by_ref().take(max).collect();
        let rest = if names.next().is_some() { Rest::More } else { Rest::None };
        QueuePage::new(queues, rest)
    }

    fn clock(&self) -> Clock {
        let now = Instant::now();
        let passed = now.saturating_duration_since(*self.start.get_or_init(|| now));
        Clock::new(u64::try_from(passed.as_nanos()).expect("a process lives less than five centuries"), TICK)
    }

    /// A panic inside a decision would be a bug of this crate; the other queues are still good.
    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::driver::{
        Delay, Lease, MessageState, NamedId, NewMessage, Payload, Pushed, ReceiveRequest, Settle, Settlement,
    };
    use tenure_core::queue::MessageId;
    use tokio::time::advance;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    struct Lab {
        queues: Queues,
        queue: QueueName,
    }

    impl Lab {
        fn push(&self, id: &str) -> Pushed {
            let id = NamedId::new(MessageId::named(id).unwrap(), Delay::new(WINDOW).unwrap());
            let message = NewMessage::new(Payload::new(*b"").unwrap()).with_id(Some(id));
            self.queues.decide(&self.queue, QueueCaps::DEFAULT, |rule| rule.push(&[message])).0.remove(0)
        }

        fn handle_all(&self) {
            let lease = Lease::new(Duration::from_secs(10)).unwrap();
            let request = ReceiveRequest::new(self.queue.clone(), 100, lease);
            self.queues.decide(&self.queue, QueueCaps::DEFAULT, |rule| {
                let received = rule.receive(&request)?;
                let settle = |receipt| Settle::new(receipt, Settlement::Ack);
                rule.settle(&received.deliveries.iter().map(|delivery| settle(delivery.receipt)).collect::<Vec<_>>())
            });
        }

        fn is_kept(&self) -> bool {
            self.queues.locked().states.contains_key(&self.queue)
        }
    }

    /// A few names are dropped with each request, the one whose window ended first before the others.
    #[tokio::test(start_paused = true)]
    async fn a_name_is_forgotten_after_its_window_and_not_taken_from_who_has_it_next() {
        let lab = Lab { queues: Queues::beyond(FenceFloor::NONE), queue: QueueName::new("jobs").unwrap() };
        let ids: Vec<String> = (0..10).map(|number| format!("id-{number}")).collect();
        for id in &ids {
            assert!(matches!(lab.push(id), Pushed::Stored(_)));
        }
        lab.handle_all();
        advance(WINDOW - Duration::from_nanos(1)).await;
        assert_eq!(lab.push("id-9"), Pushed::Duplicate(MessageState::Settled));
        advance(Duration::from_nanos(1)).await;
        assert!(matches!(lab.push("id-9"), Pushed::Stored(_)), "its window has ended, and others were forgotten first");
        for _ in 0..5 {
            assert_eq!(lab.push("id-9"), Pushed::Duplicate(MessageState::Ready));
        }
        lab.handle_all();
        assert!(lab.is_kept(), "for the window of the second one");
        advance(WINDOW).await;
        lab.handle_all();
        assert!(!lab.is_kept(), "nothing is left to remember");
    }
}
