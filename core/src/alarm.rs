//! Timers outside the runtime: a thread that sleeps, one for the process, as long as somebody needs it.
//!
//! The timers of the runtime round up to whole milliseconds. And they may stand still: one worker looks at them and at the
//! connections, and when it turns to a single task, it wakes no other to do so. If that task blocks, nobody does, although
//! other workers are free. A task that was woken by this thread is carried by one of these, which afterwards looks after
//! timers and connections. (One that was woken by the task that blocks is not: it stays with the blocked worker.)

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long the thread stays without work.
const LINGER: Duration = Duration::from_secs(10);

static THREAD: Alarms = Alarms { state: Mutex::new(State::new()), changed: Condvar::new() };

struct Alarms {
    state: Mutex<State>,
    /// Told when the thread has to look sooner.
    changed: Condvar,
}

struct State {
    /// By instant, then in the order in which they were set.
    set: BTreeMap<(Instant, u64), Arc<Notify>>,
    last: u64,
    /// When the thread looks next, alarm or not; `None` when there is no thread.
    looks_at: Option<Instant>,
}

/// An alarm that is set, until it is dropped.
#[derive(Debug)]
pub(crate) struct Alarm {
    at: (Instant, u64),
}

/// Sleeps until the instant: within a tenth of a millisecond of it where the machine is idle.
///
/// # Cancel safety
///
/// Safe.
pub(crate) async fn sleep_until(until: tokio::time::Instant) {
    let timer = tokio::time::sleep_until(until);
    let bell = Arc::new(Notify::new());
    let Some(_alarm) = Alarm::set(until.into_std(), &bell) else { return timer.await };
    tokio::pin!(timer);
    tokio::select! {
        () = bell.notified() => {}
        () = &mut timer => return, // its clock is paused and was set forward
    }
    if tokio::time::Instant::now() < until {
        timer.await; // its clock is paused
    }
}

/// Waits for `work` until `limit` has passed; `None` if it is not done by then.
pub(crate) async fn timeout<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    let until = tokio::time::Instant::now() + limit;
    tokio::select! {
        biased;
        done = work => Some(done),
        () = sleep_until(until) => None,
    }
}

impl Alarm {
    /// Rings `bell` at the instant; `None` if no thread can be had for that.
    pub(crate) fn set(at: Instant, bell: &Arc<Notify>) -> Option<Self> {
        let mut state = THREAD.state();
        match state.looks_at {
            Some(looks_at) if looks_at <= at => {}
            Some(_) => {
                state.looks_at = Some(at);
                THREAD.changed.notify_one();
            }
            None => {
                std::thread::Builder::new().name("tenure-alarm".into()).spawn(|| THREAD.ring()).ok()?;
                state.looks_at = Some(at);
            }
        }
        state.last += 1;
        let at = (at, state.last);
        state.set.insert(at, Arc::clone(bell));
        Some(Self { at })
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        THREAD.state().set.remove(&self.at);
    }
}

impl State {
    const fn new() -> Self {
        Self { set: BTreeMap::new(), last: 0, looks_at: None }
    }
}

impl Alarms {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does.
    fn ring(&self) {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if let Some(first) = state.set.first_entry().filter(|first| first.key().0 <= now) {
                let bell = first.remove();
                drop(state); // what is woken may set and drop alarms
                bell.notify_one();
                state = self.state();
                continue;
            }
            let first = state.set.first_key_value().map(|((at, _), _)| *at);
            let looks_at = first.unwrap_or(now + LINGER);
            state.looks_at = Some(looks_at);
            let waited = self.changed.wait_timeout(state, looks_at - now);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if first.is_none() && timeout.timed_out() && state.set.is_empty() {
                state.looks_at = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_when_it_is_time_and_leaves_nothing() {
        let later = Instant::now() + Duration::from_secs(3_600);
        let dropped = Alarm::set(later, &Arc::default()).expect("there is a thread");
        let at = dropped.at;
        drop(dropped);
        assert!(!THREAD.state().set.contains_key(&at));
        for micros in [0, 300, 7_000] {
            let until = Instant::now() + Duration::from_micros(micros);
            tokio::time::timeout(Duration::from_secs(30), sleep_until(until.into())).await.expect("it rings");
            assert!(Instant::now() >= until, "early");
        }
    }

    #[tokio::test]
    async fn the_thread_looks_when_the_first_alarm_is_due_in_whatever_order_they_come() {
        let (now, bells) = (Instant::now(), [(); 4].map(|()| Arc::<Notify>::default()));
        let alarms = [3_600_000, 60, 30, 90].map(|ms| now + Duration::from_millis(ms));
        let set: Vec<_> = std::iter::zip(alarms, &bells).map(|(at, bell)| Alarm::set(at, bell)).collect();
        for index in [2, 1, 3] {
            tokio::time::timeout(Duration::from_secs(30), bells[index].notified()).await.expect("it rings");
            assert!(Instant::now() >= alarms[index], "early");
        }
        assert!(THREAD.state().set.contains_key(&set[0].as_ref().expect("it is set").at), "not yet due");
    }

    #[tokio::test(start_paused = true)]
    async fn on_a_paused_clock_the_runtimes_timers_ring() {
        sleep_until(tokio::time::Instant::now() + Duration::from_secs(3_600)).await;
        assert_eq!(timeout(Duration::from_secs(3_600), std::future::pending::<()>()).await, None);
    }
}
