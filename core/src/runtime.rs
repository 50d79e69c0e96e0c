//! Work on the user's runtimes: calls bounded in time, tasks that any living runtime can run, and alarms from outside,
//! for when a runtime's own timers are late or paused.

use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::try_join;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};
use tokio::task::unconstrained;
use tokio::time::sleep;

use crate::value::error::{Error, ErrorKind, Result};

// One call of what is not ours: a driver's request, bounded in time, or a user's code, which may panic.
//
// These hold what they wait for once. An `async fn` holds a future that it is given twice, as its argument and while it waits for
// it; with a few around each other, what a program spawns for one lock would take kilobytes.

/// Bounds a request, whose outcome is unknown when it takes longer than `limit`.
pub(crate) fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    let unanswered = move || Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}")));
    yielding(within(limit, call).map(move |answer| answer.unwrap_or_else(unanswered)))
}

/// Waits for `work` at most `limit`, counted from when it first has to wait; `None` if it takes longer. Work that is done at once
/// needs no timer.
pub(crate) fn within<T>(limit: Duration, work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    waiting_within(limit, || (), work)
}

/// Waits as [`within`]. The result of `waits` is kept from when `work` first has to wait until it is done or given up;
/// it is not called for work that is done at once.
pub(crate) fn waiting_within<T, W>(
    limit: Duration,
    waits: impl FnOnce() -> W,
    work: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    // Polled behind the work, and never kept waiting by what others have used up of the task's turn.
    let over = async move {
        let _waits = waits();
        unconstrained(sleep(limit)).await;
    };
    let ended = try_join(
        work.map(|done| Err::<Infallible, Option<T>>(Some(done))),
        over.map(|()| Err::<Infallible, Option<T>>(None)),
    );
    ended.map(|ended| match ended {
        Err(done) => done,
        Ok((never, _)) => match never {},
    })
}

/// Yields to other tasks before a failure is returned. Over a broken connection calls fail at once, and a loop on them
/// would keep the only thread of a runtime from the tasks that open the connection again and that run clean-ups.
pub(crate) fn yielding<T>(call: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    call.then(async |answer| {
        if answer.is_err() {
            // A blocking call polls this on a thread whose own runtime it keeps waiting, and that runtime does the waking: hence the end.
            let _ = tokio::time::timeout(Duration::from_millis(1), tokio::task::yield_now()).await;
        }
        answer
    })
}

// What is known of a panic.

/// Returns the text of a panic.
pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    formatted.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no panic message")
}

/// Returns the error for a panic of `whom`.
fn panicked(whom: &str, panic: &(dyn Any + Send)) -> Error {
    Error::new(ErrorKind::Protocol, format!("{whom} panicked: {}", text(panic)))
}

/// Returns the result of foreign `work`; an error if it panics.
pub(crate) fn caught<T>(whom: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(whom, &*panic)))
}

/// Waits as [`caught`], for a future.
pub(crate) fn caught_in<T>(whom: &str, work: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    AssertUnwindSafe(work).catch_unwind().map(|done| done.unwrap_or_else(|panic| Err(panicked(whom, &*panic))))
}

// Background tasks that belong to no runtime: whichever living one uses the client carries them.

/// The pause before a task that panicked begins anew.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The background tasks of one client, and the runtimes that use it. When the runtime of a task ends, the task begins
/// anew on another one; if there is no other, on the next that uses the client.
#[derive(Default)]
pub(crate) struct Background(Arc<Carriers>);

#[derive(Default)]
struct Carriers(Mutex<State>);

#[derive(Default)]
struct State {
    runtimes: Vec<Runtime>,
    /// Tasks without a runtime.
    stranded: Vec<Arc<Task>>,
}

/// A runtime that has used the client, until it ends.
struct Runtime {
    id: Id,
    handle: Handle,
    /// Ends the lookout when the client is gone.
    _lookout: oneshot::Sender<()>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    begin: Box<dyn Fn() -> Work + Send + Sync>,
    over: AtomicBool,
    carriers: Weak<Carriers>,
}

impl Background {
    /// Records that the current runtime uses the client, and may then run its tasks.
    pub(crate) fn visit(&self) -> Result<()> {
        let Ok(handle) = Handle::try_current() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "a client must be used inside a tokio runtime"));
        };
        let id = handle.id();
        let mut state = self.0.state();
        if state.runtimes.iter().any(|runtime| runtime.id == id) {
            return Ok(());
        }
        let (sender, gone) = oneshot::channel();
        let lookout = Lookout { id, carriers: Arc::downgrade(&self.0) };
        state.runtimes.push(Runtime { id, handle: handle.clone(), _lookout: sender });
        let stranded = std::mem::take(&mut state.stranded);
        drop(state);
        handle.spawn(async move {
            let _lookout = lookout;
            let _ = gone.await; // never sent: it returns when the client is gone
        });
        stranded.into_iter().for_each(|task| self.0.start(task));
        Ok(())
    }

    /// Runs the result of `begin`, and once more from its beginning on another runtime when its runtime ends before it
    /// does.
    pub(crate) fn run<F>(&self, begin: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let begin = Box::new(move || Box::pin(begin()) as Work);
        let carriers = Arc::downgrade(&self.0);
        self.0.start(Arc::new(Task { begin, over: AtomicBool::new(false), carriers }));
    }
}

impl Carriers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task here, or on the runtime that used the client first, of those that live.
    fn start(&self, task: Arc<Task>) {
        let here = Handle::try_current().ok().map(|handle| handle.id());
        let mut state = self.state();
        let current = state.runtimes.iter().find(|runtime| Some(runtime.id) == here);
        match current.or(state.runtimes.first()) {
            Some(runtime) => {
                let (id, handle) = (runtime.id, runtime.handle.clone());
                drop(state);
                // A runtime that has ended drops the task at once, which starts it on another one.
                handle.spawn(carry(Carried { task, id }));
            }
            None => state.stranded.push(task),
        }
    }

    fn forget(&self, id: Id) {
        // They are dropped when the lock is free again.
        let _forgotten: Vec<_> = self.state().runtimes.extract_if(.., |runtime| runtime.id == id).collect();
    }
}

async fn carry(carried: Carried) {
    // Its work is dropped before it, and so has ended when it begins elsewhere.
    let carried = carried;
    let begin = || AssertUnwindSafe(async { (carried.task.begin)().await }).catch_unwind();
    while begin().await.is_err() {
        sleep(AFTER_PANIC).await; // the panic was printed
    }
    carried.task.over.store(true, Ordering::Release);
}

/// A task on its runtime. Dropped early, because the runtime ends, it begins on another one.
struct Carried {
    task: Arc<Task>,
    id: Id,
}

impl Drop for Carried {
    fn drop(&mut self) {
        if !self.task.over.load(Ordering::Acquire)
            && let Some(carriers) = self.task.carriers.upgrade()
        {
            carriers.forget(self.id);
            carriers.start(Arc::clone(&self.task));
        }
    }
}

/// Notices the end of a runtime that runs no task.
struct Lookout {
    id: Id,
    carriers: Weak<Carriers>,
}

impl Drop for Lookout {
    fn drop(&mut self) {
        if let Some(carriers) = self.carriers.upgrade() {
            carriers.forget(self.id);
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("runtimes", &self.0.state().runtimes.len()).finish_non_exhaustive()
    }
}

// Timers outside the runtime: a thread that sleeps, one for the process, as long as somebody needs it.
//
// The timers of the runtime round up to whole milliseconds. And they may stand still: one worker looks at them and at the
// connections, and when it turns to a single task, it wakes no other to do so. If that task blocks, nobody does, although
// other workers are free. A task that was woken by this thread is carried by one of these, which afterwards looks after
// timers and connections. (One that was woken by the task that blocks is not: it stays with the blocked worker.)

/// The time that the thread remains without work.
const LINGER: Duration = Duration::from_secs(10);

static THREAD: Alarms = Alarms { state: Mutex::new(Timetable::new()), changed: Condvar::new() };

struct Alarms {
    state: Mutex<Timetable>,
    /// Notified when the thread has to check sooner.
    changed: Condvar,
}

struct Timetable {
    /// The alarms, by instant, then in the order in which they were set.
    set: BTreeMap<(Instant, u64), Arc<Notify>>,
    last: u64,
    /// The time of the thread's next check, with or without an alarm; `None` when there is no thread.
    looks_at: Option<Instant>,
}

/// An alarm that is set, until it is dropped.
#[derive(Debug)]
pub(crate) struct Alarm {
    at: (Instant, u64),
}

/// Sleeps until the instant: within a tenth of a millisecond of it on an idle machine.
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
    let Some(until) = tokio::time::Instant::now().checked_add(limit) else { return Some(work.await) };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = sleep_until(until) => None,
    }
}

impl Alarm {
    /// Rings `bell` at the instant; `None` if no thread can be started for that.
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

impl Timetable {
    const fn new() -> Self {
        Self { set: BTreeMap::new(), last: 0, looks_at: None }
    }
}

impl Alarms {
    fn state(&self) -> MutexGuard<'_, Timetable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the thread.
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
    use std::future::{pending, ready};
    use std::sync::atomic::AtomicUsize;

    use tokio::task::coop::consume_budget;

    use super::*;

    #[test]
    fn what_is_done_at_once_needs_no_timer() {
        // Outside a runtime, a timer would panic.
        assert_eq!(within(Duration::from_secs(1), ready(7)).now_or_never(), Some(Some(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_longer_is_given_up_at_the_limit() {
        let began = tokio::time::Instant::now();
        assert_eq!(within(Duration::from_millis(300), pending::<()>()).await, None);
        assert_eq!(began.elapsed(), Duration::from_millis(300));
        let work = async {
            sleep(Duration::from_millis(200)).await;
            7
        };
        assert_eq!(within(Duration::from_millis(300), work).await, Some(7));
        assert_eq!(within(Duration::ZERO, pending::<()>()).await, None);
    }

    /// Work that is never done and uses up the task's turn each time would block a timer that needs a part of it.
    #[tokio::test]
    async fn the_limit_holds_for_work_that_uses_up_the_turn() {
        let greedy = async {
            loop {
                consume_budget().await;
            }
        };
        let given_up = tokio::spawn(within(Duration::from_millis(10), greedy));
        let ended = tokio::time::timeout(Duration::from_secs(30), given_up).await.expect("it ends");
        assert_eq!(ended.expect("no panic"), None::<Infallible>);
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Starts a task that counts its beginnings, and its running instances.
    fn counting(background: &Background) -> (Arc<AtomicUsize>, Arc<()>) {
        let (begun, running) = (Arc::<AtomicUsize>::default(), Arc::new(()));
        let (count, runs) = (Arc::clone(&begun), Arc::downgrade(&running));
        background.run(move || {
            count.fetch_add(1, Ordering::Relaxed);
            let alive = runs.upgrade();
            async move {
                pending::<()>().await;
                drop(alive);
            }
        });
        (begun, running)
    }

    async fn settled() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_task_continues_wherever_the_client_is_used() {
        let background = Background::default();
        let (one, other, third) = (runtime(), runtime(), runtime());
        one.block_on(async { background.visit() }).unwrap();
        let (begun, running) = counting(&background);
        one.block_on(settled());
        other.block_on(async { background.visit() }).unwrap();
        assert_eq!((begun.load(Ordering::Relaxed), Arc::strong_count(&running)), (1, 2));
        drop(one);
        assert_eq!(Arc::strong_count(&running), 1, "it has ended before it begins elsewhere");
        other.block_on(settled());
        assert_eq!((begun.load(Ordering::Relaxed), Arc::strong_count(&running)), (2, 2));
        drop(other);
        assert_eq!(Arc::strong_count(&running), 1);
        third.block_on(async {
            background.visit().unwrap();
            settled().await;
        });
        assert_eq!((begun.load(Ordering::Relaxed), Arc::strong_count(&running)), (3, 2), "nobody was there meanwhile");
    }

    #[test]
    fn of_those_that_are_left_the_runtime_that_came_first_carries_on() {
        let (background, runtimes) = (Background::default(), [runtime(), runtime(), runtime()]);
        for runtime in &runtimes {
            runtime.block_on(async { background.visit() }).unwrap();
        }
        let (begun, _running) = counting(&background);
        let [first, second, third] = runtimes;
        drop(first); // it came first, and the task has not even begun
        third.block_on(settled());
        assert_eq!(begun.load(Ordering::Relaxed), 0);
        second.block_on(settled());
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_over_does_not_begin_again() {
        let background = Background::default();
        let (one, other) = (runtime(), runtime());
        let count = Arc::<AtomicUsize>::default();
        for runtime in [&one, &other] {
            runtime.block_on(async { background.visit() }).unwrap();
        }
        let counter = Arc::clone(&count);
        background.run(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            async {}
        });
        one.block_on(settled());
        drop(one);
        other.block_on(settled());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panicked_begins_again_after_a_pause() {
        let background = Background::default();
        background.visit().unwrap();
        let count = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&count);
        background.run(move || {
            let first = counter.fetch_add(1, Ordering::Relaxed) == 0;
            async move { assert!(!first, "on purpose") }
        });
        settled().await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        sleep(AFTER_PANIC * 2).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_runtime_that_a_panic_ends_is_left_as_any_other() {
        let (background, one, other) = (Background::default(), runtime(), runtime());
        one.block_on(async { background.visit() }).unwrap();
        let (begun, _running) = counting(&background);
        one.block_on(settled());
        let failed = std::panic::catch_unwind(AssertUnwindSafe(move || {
            let one = one; // dropped while the panic unwinds, as that of a test that fails
            one.block_on(async { panic!("on purpose") })
        }));
        assert!(failed.is_err());
        other.block_on(async {
            background.visit().unwrap();
            settled().await;
        });
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_task_begins_elsewhere_when_the_runtime_that_came_first_has_ended_unnoticed() {
        let (background, one, other) = (Background::default(), runtime(), runtime());
        other.block_on(async { background.visit() }).unwrap();
        let ended = one.handle().clone();
        drop(one);
        let (sender, _gone) = oneshot::channel();
        background.0.state().runtimes.insert(0, Runtime { id: ended.id(), handle: ended, _lookout: sender });
        let (begun, _running) = counting(&background);
        other.block_on(settled());
        assert_eq!((begun.load(Ordering::Relaxed), background.0.state().runtimes.len()), (1, 1));
    }

    #[test]
    fn runtimes_that_have_ended_are_forgotten() {
        let background = Background::default();
        for _ in 0..100 {
            runtime().block_on(async { background.visit() }).unwrap();
        }
        assert!(background.0.state().runtimes.is_empty());
    }

    #[test]
    fn a_client_that_is_gone_leaves_no_task() {
        let runtime = runtime();
        let background = Background::default();
        runtime.block_on(async {
            background.visit().unwrap();
            settled().await;
            assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
            drop(background);
            tokio::time::timeout(Duration::from_secs(5), async {
                while Handle::current().metrics().num_alive_tasks() > 0 {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .unwrap();
        });
    }

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

    #[tokio::test]
    async fn two_alarms_of_one_moment_ring_both() {
        let (at, bells) = (Instant::now() + Duration::from_millis(20), [(); 2].map(|()| Arc::<Notify>::default()));
        let _set = bells.each_ref().map(|bell| Alarm::set(at, bell).expect("there is a thread"));
        for bell in &bells {
            tokio::time::timeout(Duration::from_secs(30), bell.notified()).await.expect("it rings");
        }
    }

    /// A paused clock does not move while a thread works for the runtime; the alarm rings nevertheless.
    #[tokio::test(start_paused = true)]
    async fn an_alarm_that_rings_before_it_is_time_on_a_paused_clock_ends_no_sleep() {
        let until = tokio::time::Instant::now() + Duration::from_millis(5);
        let working = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(100)));
        sleep_until(until).await;
        assert!(tokio::time::Instant::now() >= until, "early");
        working.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn on_a_paused_clock_the_runtimes_timers_ring() {
        sleep_until(tokio::time::Instant::now() + Duration::from_secs(3_600)).await;
        assert_eq!(timeout(Duration::from_secs(3_600), pending::<()>()).await, None);
    }
}
