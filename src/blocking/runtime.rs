//! The background thread, and a wait for futures outside a runtime.

use std::future::Future;
use std::pin::pin;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};

use tokio::runtime::{Builder, Handle};

use crate::{Error, ErrorKind, Result};

/// The thread of the process: guards outlive clients, and their locks are released after both are gone.
static BACKGROUND: Mutex<Option<Background>> = Mutex::new(None);

/// The id of the process that started it, or that is about to; 0 before. A fork copies this number, and no thread.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Returns true if this process is a fork of the one that started the background thread.
pub(super) fn is_forked() -> bool {
    let process = PROCESS.load(Ordering::Acquire);
    process != 0 && process != process::id()
}

/// A runtime with a thread that only drives it.
#[derive(Clone)]
struct Background {
    runtime: Handle,
    thread: ThreadId,
}

impl Background {
    /// Returns the background thread of this process, started if need be.
    fn get() -> Result<Self> {
        // Before anything is locked: a lock may have been copied while another thread had it.
        let _ = PROCESS.compare_exchange(0, process::id(), Ordering::AcqRel, Ordering::Acquire);
        if is_forked() {
            let text = "this process was forked from one that uses tenure::blocking, and has no thread for it: fork before the \
                        first call, or start another program";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let mut background = BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner);
        match &*background {
            Some(background) => Ok(background.clone()),
            None => Ok(background.insert(Self::start()?).clone()),
        }
    }

    fn start() -> Result<Self> {
        let failed =
            |error| Error::new(ErrorKind::Unavailable, "cannot start the background thread").with_source(error);
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error: std::io::Error| failed(error))?;
        let handle = runtime.handle().clone();
        let drive = move || runtime.block_on(std::future::pending::<()>());
        let thread = std::thread::Builder::new().name("tenure-blocking".into()).spawn(drive).map_err(failed)?;
        Ok(Self { runtime: handle, thread: thread.thread().id() })
    }
}

/// Polls the future on this thread until it is done. The runtime's own `block_on` panics on threads of other runtimes.
pub(super) fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
        let text = "a blocking call from the destructor of a thread-local value, on a thread that is ending";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let background = Background::get()?;
    let this = std::thread::current();
    if this.id() == background.thread {
        let text = "a blocking call on the background thread would wait for itself";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let _context = background.runtime.enter();
    let bell = Arc::new(Bell { thread: this, rung: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&bell));
    // A task of another runtime may have used up its budget, and would not be given a new one before this returns.
    let mut work = pin!(tokio::task::unconstrained(work));
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        bell.wait();
    }
}

/// Wakes a thread. Calls may be nested, and the inner one takes the wake-ups of the outer one: hence the flag.
struct Bell {
    thread: Thread,
    rung: AtomicBool,
}

impl Bell {
    fn wait(&self) {
        while !self.rung.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_inside_another_one_takes_none_of_its_wake_ups() {
        let mut polls = 0;
        let outer = poll_fn(|cx| {
            polls += 1;
            if polls > 1 {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            wait(async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(())
            })?;
            Poll::Pending
        });
        wait(outer).unwrap();
        assert_eq!(polls, 2);
    }
}
