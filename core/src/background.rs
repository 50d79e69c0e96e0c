//! Background tasks that belong to no runtime: whichever living one uses the client carries them.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::value::error::{Error, ErrorKind, Result};

/// The pause before a task that panicked begins anew.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The background tasks of one client, and the runtimes that use it. When the runtime ends that carries a task, the task
/// begins anew on another one; without another one, on the next that uses the client.
#[derive(Default)]
pub(crate) struct Background(Arc<Carriers>);

#[derive(Default)]
struct Carriers(Mutex<State>);

#[derive(Default)]
struct State {
    runtimes: Vec<Runtime>,
    /// Tasks that no runtime carries.
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
    /// Notes that the current runtime uses the client, which may then carry its tasks.
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

    /// Runs what `begin` returns, and once more from its beginning on another runtime when its own one ends before it does.
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

/// A task on its runtime. Dropped before it is over, since the runtime ends, it begins on another one.
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

/// Notices that a runtime ends which carries nothing.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// A task that counts how often it began, and how many of it run.
    fn counting(background: &Background) -> (Arc<AtomicUsize>, Arc<()>) {
        let (begun, running) = (Arc::<AtomicUsize>::default(), Arc::new(()));
        let (count, runs) = (Arc::clone(&begun), Arc::downgrade(&running));
        background.run(move || {
            count.fetch_add(1, Ordering::Relaxed);
            let alive = runs.upgrade();
            async move {
                std::future::pending::<()>().await;
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
    fn a_task_goes_on_wherever_the_client_is_used() {
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
}
