//! Timers finer than those of the runtime, which round up to whole milliseconds: a thread that sleeps, one for the
//! process, as long as somebody needs it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// For how long before the instant the thread is asked. Before that the runtime's timers will do.
const NEAR: Duration = Duration::from_millis(5);

/// How long the thread stays without work.
const LINGER: Duration = Duration::from_secs(10);

static THREAD: Alarms = Alarms { state: Mutex::new(State::new()), changed: Condvar::new() };

struct Alarms {
    state: Mutex<State>,
    /// Told when the first alarm is another one.
    changed: Condvar,
}

struct State {
    /// By instant, then in the order in which they were set.
    set: BTreeMap<(Instant, u64), Arc<Notify>>,
    last: u64,
    running: bool,
}

/// An alarm that is set, until it is dropped.
struct Alarm {
    at: (Instant, u64),
    bell: Arc<Notify>,
}

/// Sleeps until the instant: within a tenth of a millisecond of it where the machine is idle.
///
/// # Cancel safety
///
/// Safe.
pub(super) async fn sleep_until(until: tokio::time::Instant) {
    if let Some(near) = until.checked_sub(NEAR) {
        tokio::time::sleep_until(near).await;
    }
    let alarm = Alarm::set(until.into_std());
    let timer = tokio::time::sleep_until(until);
    tokio::pin!(timer);
    tokio::select! {
        () = alarm.bell.notified() => {}
        () = &mut timer => return, // there is no thread
    }
    if tokio::time::Instant::now() < until {
        timer.await; // the runtime's clock is paused
    }
}

impl Alarm {
    fn set(at: Instant) -> Self {
        let bell = Arc::new(Notify::new());
        let mut state = THREAD.state();
        state.last += 1;
        let at = (at, state.last);
        state.set.insert(at, Arc::clone(&bell));
        if !state.running {
            state.running = std::thread::Builder::new().name("tenure-alarm".into()).spawn(|| THREAD.ring()).is_ok();
        } else if state.set.first_key_value().is_some_and(|(first, _)| *first == at) {
            THREAD.changed.notify_one();
        }
        Self { at, bell }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        THREAD.state().set.remove(&self.at);
    }
}

impl State {
    const fn new() -> Self {
        Self { set: BTreeMap::new(), last: 0, running: false }
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
            while let Some(first) = state.set.first_entry().filter(|first| first.key().0 <= now) {
                first.remove().notify_one();
            }
            let wait = state.set.first_key_value().map_or(LINGER, |((at, _), _)| *at - now);
            let idle = state.set.is_empty();
            let waited = self.changed.wait_timeout(state, wait);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if idle && timeout.timed_out() && state.set.is_empty() {
                state.running = false;
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
        let dropped = Alarm::set(later);
        let at = dropped.at;
        drop(dropped);
        assert!(!THREAD.state().set.contains_key(&at));
        for micros in [0, 300, 7_000] {
            let until = Instant::now() + Duration::from_micros(micros);
            tokio::time::timeout(Duration::from_secs(30), sleep_until(until.into())).await.expect("it rings");
            assert!(Instant::now() >= until, "early");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn on_a_paused_clock_the_runtimes_timers_ring() {
        sleep_until(tokio::time::Instant::now() + Duration::from_secs(3_600)).await;
    }
}
