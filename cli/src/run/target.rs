//! What a program runs under: a lock, permits of a semaphore, or a read-write lock.

use std::str::FromStr;
use std::time::Duration;

use tenure::{
    Client, Error, HoldState, Lock, LockGuard, LockName, Permit, ReadGuard, Result, RwLock, Semaphore, WaitProgress,
    WriteGuard,
};

use super::describe::Seen;
use crate::child::Lease;

/// `K/N`: this many of so many permits; `N` is one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) weight: u32,
    pub(crate) capacity: u32,
}

impl FromStr for Permits {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (weight, capacity) = text.split_once('/').unwrap_or(("1", text));
        let read = |number: &str| number.parse::<u32>().ok();
        match (read(weight), read(capacity)) {
            (Some(weight), Some(capacity)) if (1..=capacity).contains(&weight) => Ok(Self { weight, capacity }),
            _ => Err(String::from("expected K/N, K of N permits with K at least 1 and at most N, or N")),
        }
    }
}

/// A kind of hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lock,
    Permits(Permits),
    Read,
    Write,
}

impl Kind {
    /// What sentences call it.
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Lock | Self::Read | Self::Write => "the lock",
            Self::Permits(Permits { weight: 1, .. }) => "the permit",
            Self::Permits(_) => "the permits",
        }
    }
}

/// A handle on what is wanted.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Lock(Lock),
    Permits(Semaphore),
    Read(RwLock),
    Write(RwLock),
}

/// What is held.
#[derive(Debug)]
pub(super) enum Held {
    Lock(LockGuard),
    Permits(Permit),
    Read(ReadGuard),
    Write(WriteGuard),
}

/// The options of a request.
pub(super) struct Options {
    pub(super) ttl: Duration,
    pub(super) label: String,
    pub(super) max_hold: Option<Duration>,
    pub(super) at_least: Option<Duration>,
}

/// Calls a method of whatever is wanted or held.
macro_rules! each {
    ($self:expr, $kind:ident, $one:ident => $call:expr) => {
        match $self {
            $kind::Lock($one) => $call,
            $kind::Permits($one) => $call,
            $kind::Read($one) => $call,
            $kind::Write($one) => $call,
        }
    };
}

impl Target {
    pub(super) fn of(kind: Kind, client: &Client, name: &[u8], options: Options) -> Self {
        let Options { ttl, label, max_hold, at_least } = options;
        macro_rules! with_options {
            ($handle:expr, $type:ident) => {
                max_hold.into_iter().fold($handle.ttl(ttl).label(label), $type::max_hold)
            };
        }
        match kind {
            Kind::Lock => {
                let lock = with_options!(client.lock(name), Lock);
                Self::Lock(at_least.into_iter().fold(lock, Lock::at_least))
            }
            Kind::Permits(Permits { weight, capacity }) => {
                Self::Permits(with_options!(client.semaphore(name, capacity).weight(weight), Semaphore))
            }
            Kind::Read => Self::Read(with_options!(client.rw_lock(name), RwLock)),
            Kind::Write => Self::Write(with_options!(client.rw_lock(name), RwLock)),
        }
    }

    pub(super) fn progress(self, progress: &WaitProgress) -> Self {
        match self {
            Self::Lock(lock) => Self::Lock(lock.progress(progress)),
            Self::Permits(semaphore) => Self::Permits(semaphore.progress(progress)),
            Self::Read(lock) => Self::Read(lock.progress(progress)),
            Self::Write(lock) => Self::Write(lock.progress(progress)),
        }
    }

    pub(super) fn name(&self) -> Result<&LockName> {
        each!(self, Self, handle => handle.name())
    }

    pub(super) async fn try_acquire(&self) -> Result<Option<Held>> {
        Ok(match self {
            Self::Lock(lock) => lock.try_acquire().await?.map(Held::Lock),
            Self::Permits(semaphore) => semaphore.try_acquire().await?.map(Held::Permits),
            Self::Read(lock) => lock.try_read().await?.map(Held::Read),
            Self::Write(lock) => lock.try_write().await?.map(Held::Write),
        })
    }

    /// Waits for at most so long, or without a limit.
    pub(super) async fn acquire(&self, most: Option<Duration>) -> Result<Held> {
        Ok(match (self, most) {
            (Self::Lock(lock), None) => Held::Lock(lock.acquire().await?),
            (Self::Lock(lock), Some(most)) => Held::Lock(lock.acquire_within(most).await?),
            (Self::Permits(semaphore), None) => Held::Permits(semaphore.acquire().await?),
            (Self::Permits(semaphore), Some(most)) => Held::Permits(semaphore.acquire_within(most).await?),
            (Self::Read(lock), None) => Held::Read(lock.read().await?),
            (Self::Read(lock), Some(most)) => Held::Read(lock.read_within(most).await?),
            (Self::Write(lock), None) => Held::Write(lock.write().await?),
            (Self::Write(lock), Some(most)) => Held::Write(lock.write_within(most).await?),
        })
    }

    pub(super) async fn inspect(&self) -> Result<Seen> {
        match self {
            Self::Lock(lock) => lock.inspect().await.map(|seen| Seen::from(&seen)),
            Self::Permits(semaphore) => {
                let seen = semaphore.inspect().await?;
                let holder = format!("{} of {} permits are held", seen.used, semaphore.capacity());
                Ok(Seen { holder, waiters: seen.waiters })
            }
            Self::Read(lock) | Self::Write(lock) => lock.inspect().await.map(|seen| Seen::from(&seen)),
        }
    }
}

impl Held {
    pub(super) fn fence(&self) -> u64 {
        each!(self, Self, held => held.fence().get())
    }

    pub(super) fn is_held(&self) -> bool {
        each!(self, Self, held => held.is_held())
    }

    pub(super) async fn release(self) -> Result<(), Error> {
        each!(self, Self, held => held.release().await)
    }
}

impl Lease for Held {
    fn state(&self) -> HoldState {
        each!(self, Self, held => held.state())
    }

    fn remaining(&self) -> Duration {
        each!(self, Self, held => held.remaining())
    }

    async fn lost(&self) {
        each!(self, Self, held => drop(held.lost().await));
    }
}

#[cfg(test)]
mod tests {
    use super::Permits;

    #[test]
    fn permits_are_a_number_of_a_number() {
        let read = |text: &str| text.parse::<Permits>().ok().map(|permits| (permits.weight, permits.capacity));
        assert_eq!(["3", "1/3", "2/3", "3/3"].map(read), [Some((1, 3)), Some((1, 3)), Some((2, 3)), Some((3, 3))]);
        assert_eq!(["", "0", "0/3", "4/3", "1/", "/3", "1/2/3", "a", "-1/3"].map(read), [None; 9]);
    }
}
