//! Plain locks: the options of every kind of lock, one lock or several at once, and the list of held locks.

mod all;
mod plain;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::client::Client;
use crate::driver::{CensusPlace, HeldLock};
use crate::engine::local_handover::LocalQueues;
use crate::runtime::bounded;
use crate::value::error::{Error, ErrorKind, LockName, Result};

pub(crate) use crate::engine::ask::Options;
pub use all::{LockAll, LockAllGuard};
pub use plain::{Detached, Lock, LockGuard};
pub(crate) use plain::{guard_methods, unless_lost};

/// The setters over [`Options`], for a type with a field `options`.
macro_rules! option_setters {
    () => {
        /// Sets the lease length; the client renews the lease at a third of it for as long as the guard lives. Default:
        /// the client's ttl.
        ///
        /// When the process dies, the lock is free after at most `ttl`. Checked when the lock is requested:
        /// [`Ttl::MIN`](crate::driver::Ttl::MIN) to [`Ttl::MAX`](crate::driver::Ttl::MAX), whole milliseconds, and the
        /// driver's range.
        #[must_use]
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = Some((ttl, $crate::engine::lease::Upkeep::Renewed));
            self
        }

        /// Sets a lease of this length that is not renewed: it ends by itself.
        #[must_use]
        pub fn fixed_ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = Some((ttl, $crate::engine::lease::Upkeep::Fixed));
            self
        }

        /// Sets the longest time to hold the lock, renewed or not. After that the lock is lost
        /// ([`LostReason::MaxHold`](crate::LostReason::MaxHold)) and released. Default: none.
        ///
        /// Without it, a task that hangs (or a guard that is forgotten) holds the lock as long as the process lives.
        #[must_use]
        pub fn max_hold(mut self, most: std::time::Duration) -> Self {
            self.options.max_hold = Some(most);
            self
        }

        /// Sets a note for operators. Every client that can inspect the lock sees it; at most
        /// [`Label::MAX_LEN`](crate::Label::MAX_LEN) bytes. Default: none.
        #[must_use]
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.options.label = Some(label.into());
            self
        }
    };
}
pub(crate) use option_setters;

// The list of the locks that are held, a page at a time.

/// The held locks under a prefix, read from the backend page by page. Made by
/// [`Client::held_locks`](crate::Client::held_locks).
///
/// The list is a snapshot and promises nothing: a lock on it may be free by now, and pages belong to different moments.
/// A lock that is held from the first request to the last one is on it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure_core::Result<()> {
/// # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
/// let lock = client.lock("orders/42").label("worker 7");
/// let _guard = lock.acquire().await?;
/// let mut held = client.held_locks("orders/");
/// while let Some(lock) = held.next().await? {
///     println!("{}: {:?}", lock.name, lock.holder.label);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is asked for until `next` or `next_page`"]
pub struct HeldLocks {
    local_queues: Arc<LocalQueues>,
    prefix: Vec<u8>,
    /// Locks that were received and not read yet.
    read: VecDeque<HeldLock>,
    progress: Progress,
}

/// The progress of the list.
#[derive(Debug)]
enum Progress {
    Start,
    At(CensusPlace),
    End,
}

/// The number of locks that one request asks for, if the driver lists as many at once.
const PAGE: usize = 500;

impl Client {
    /// Lists the held locks whose names begin with exactly these bytes; all of them for an empty prefix. Cheap; does no
    /// I/O before it is read. For operators: the list is a snapshot that promises nothing, see [`HeldLocks`].
    ///
    /// With a driver that cannot list locks, reading fails with [`ErrorKind::Unsupported`];
    /// [`census_capabilities`](Self::census_capabilities) shows this beforehand.
    pub fn held_locks(&self, prefix: impl AsRef<[u8]>) -> HeldLocks {
        let (local_queues, prefix) = (Arc::clone(&self.local_queues), prefix.as_ref().to_vec());
        HeldLocks { local_queues, prefix, read: VecDeque::new(), progress: Progress::Start }
    }
}

impl HeldLocks {
    /// Returns the next lock; `None` after the last one. Asks the backend when a page is used up: one request for up to
    /// 500 locks, each within the client's `op_timeout`.
    ///
    /// After an error, the next call requests the same page again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] when the driver cannot list locks; [`ErrorKind::InvalidArgument`] when the prefix is
    /// longer than [`LockName::MAX_LEN`] bytes; [`ErrorKind::Closed`] when the client was closed; otherwise the
    /// driver's error, such as [`ErrorKind::Denied`] where listing needs a separate permission.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed and no lock is left out.
    pub async fn next(&mut self) -> Result<Option<HeldLock>> {
        while self.read.is_empty() && self.more().await? {}
        Ok(self.read.pop_front())
    }

    /// Returns the locks of one more request, or those that were received and not read yet; `None` after the last page.
    /// A page may be empty.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    ///
    /// # Cancel safety
    ///
    /// As for [`next`](Self::next).
    pub async fn next_page(&mut self) -> Result<Option<Vec<HeldLock>>> {
        if self.read.is_empty() && !self.more().await? {
            return Ok(None);
        }
        Ok(Some(self.read.drain(..).collect()))
    }

    /// Requests one more page, if there is one.
    async fn more(&mut self) -> Result<bool> {
        let from = match &self.progress {
            Progress::Start => None,
            Progress::At(progress) => Some(progress),
            Progress::End => return Ok(false),
        };
        let shared = self.local_queues.shared();
        let answered = async {
            shared.ensure_open()?;
            let census = shared.backend.census().ok_or_else(unsupported)?;
            check(&self.prefix)?;
            let max = PAGE.min(census.capabilities().max_page);
            bounded(shared.config.op_timeout, census.held(&self.prefix, from, max)).await
        };
        let page = answered.await.map_err(|error| self.during(error))?;
        if page.next.as_ref() == from && from.is_some() {
            let text = "the driver returned the same page token twice";
            return Err(self.during(Error::new(ErrorKind::Protocol, text)));
        }
        self.read.extend(page.locks);
        self.progress = page.next.map_or(Progress::End, Progress::At);
        Ok(true)
    }

    fn during(&self, error: Error) -> Error {
        let driver = self.local_queues.shared().driver();
        match LockName::new(&self.prefix) {
            Ok(prefix) => error.during(driver, "held_locks", &prefix),
            Err(_) => error.at(format_args!("{driver}: held_locks")),
        }
    }
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "this driver does not support `held_locks`")
}

fn check(prefix: &[u8]) -> Result<()> {
    if prefix.len() > LockName::MAX_LEN {
        let text = format!("the prefix has {} bytes, the most is {}", prefix.len(), LockName::MAX_LEN);
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(())
}
