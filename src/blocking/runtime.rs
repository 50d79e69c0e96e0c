//! The background thread, and how a call waits for a future without being a part of a runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};

use tokio::runtime::{Builder, Handle};

use crate::{Error, ErrorKind, Result};

/// One for the process: guards outlive clients, and what they held is given back after both are gone.
static BACKGROUND: Mutex<Option<Background>> = Mutex::new(None);

/// A runtime with a thread that does nothing but drive it.
#[derive(Clone)]
struct Background {
    runtime: Handle,
    thread: ThreadId,
}

impl Background {
    /// The one of this process, started if need be.
    fn get() -> Result<Self> {
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
