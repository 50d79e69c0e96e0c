//! The settings of locks in Redis, whatever the client library.

use std::time::Duration;

use tenure_core::driver::CLOCKS_APART;
use tenure_core::{Error, ErrorKind, FenceFloor, Result};

/// The source of fencing tokens. A grant carries eight, the first and those that its client may pass on; or one, where
/// grants follow one another faster than the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fences {
    /// The greater of two numbers: the one after the last eight, and the server's time in microseconds. They keep
    /// growing after the data of the server was lost, unless its clock stepped back behind the last grant as well.
    #[default]
    ClockSeeded,
    /// The one after the last eight: small numbers from the [floor](RedisSettings::fence_floor) on, which start again
    /// there after a loss of data. They are not comparable with the fences of any other backend.
    Counter,
}

/// The treatment of a server that may evict locks when its memory is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Eviction {
    /// Refuse it with [`ErrorKind::Misconfigured`]: any `maxmemory-policy` but `noeviction`.
    #[default]
    Refuse,
    /// Use it. An evicted lock is lost as by expiry, but without warning; fences still grow.
    Allow,
}

/// Settings of locks in Redis.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    pub(crate) prefix: Prefix,
    pub(crate) fences: Fences,
    pub(crate) fence_scope: FenceScope,
    pub(crate) fence_floor: FenceFloor,
    pub(crate) counter_life: Duration,
    pub(crate) eviction: Eviction,
    pub(crate) max_waiters: u32,
    pub(crate) tombstone: Duration,
    pub(crate) max_backlog: Option<u64>,
    pub(crate) max_dead_letters: u64,
}

impl Default for RedisSettings {
    /// Prefix `tenure`, clock-seeded fences per node and no floor for them, a day for the counters of names, no eviction, 10 000 waiters, tombstones of 60 s, queues of
    /// any length, 100 000 dead letters.
    fn default() -> Self {
        Self {
            prefix: Prefix::default(),
            fences: Fences::default(),
            fence_scope: FenceScope::default(),
            fence_floor: FenceFloor::NONE,
            counter_life: CLOCKS_APART,
            eviction: Eviction::default(),
            max_waiters: 10_000,
            tombstone: Duration::from_secs(60),
            max_backlog: None,
            max_dead_letters: 100_000,
        }
    }
}

impl RedisSettings {
    /// The beginning of all keys and channels; default `tenure`. Clients exclude each other only under the same prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// The source of fencing tokens; default [`Fences::ClockSeeded`]. Use the same for all clients of a prefix.
    #[must_use]
    pub fn fences(mut self, fences: Fences) -> Self {
        self.fences = fences;
        self
    }

    /// Each name has its own fence counter, as in a cluster, where a script reaches no key outside the slot of its lock.
    /// Connecting sets it; only tests should set it themselves. Clients of one prefix that differ in it would grant from
    /// two counters.
    #[doc(hidden)]
    #[must_use]
    pub fn fence_per_name(mut self) -> Self {
        self.fence_scope = FenceScope::Name;
        self
    }

    /// The lower bound of all fences of locks and of deliveries, whatever their source; default none. Use it for names
    /// that had greater fences before: under another backend or prefix, or before a change to [`Fences::Counter`]. Use
    /// the same for all clients of a prefix; once a counter exceeds it, you may remove it. A node of a quorum uses the
    /// quorum's floor.
    ///
    /// If it is more than a day ahead of the *server's* clock, acquisitions and receives fail and report that.
    #[must_use]
    pub fn fence_floor(mut self, floor: FenceFloor) -> Self {
        self.fence_floor = floor;
        self
    }

    /// The time for which the fence counter of one name outlives its last grant; default a day. It concerns counters
    /// that belong to names and are seeded by a clock: those of a quorum, of a cluster and of permits. The grant after that
    /// time uses the clock alone. So the time has to be longer than the largest difference between the clocks of the
    /// quorum's clients, or of servers that replace one another. For this time, each name costs its servers a key of
    /// some 90 bytes. Use the same for all clients of a prefix.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside 1 min to 365 days.
    pub fn counter_life(mut self, life: Duration) -> Result<Self> {
        if !(Duration::from_secs(60)..=Duration::from_secs(365 * 86_400)).contains(&life) {
            let text = format!("a counter_life of {life:?} is outside 1 min to 365 days");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        self.counter_life = life;
        Ok(self)
    }

    /// In ms; the limit above keeps it in range.
    pub(crate) fn counter_life_ms(&self) -> u64 {
        u64::try_from(self.counter_life.as_millis()).unwrap_or(u64::MAX)
    }

    /// The treatment of a server that may evict locks; default [`Eviction::Refuse`].
    #[must_use]
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.eviction = eviction;
        self
    }

    /// The largest number of waiters of one lock; default 10 000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for zero.
    pub fn max_waiters(mut self, most: u32) -> Result<Self> {
        if most == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_waiters must not be zero"));
        }
        self.max_waiters = most;
        Ok(self)
    }

    /// The time for which an abandoned token is remembered, so that a late request is refused; default 60 s.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside 1 s to 1 h.
    pub fn tombstone(mut self, life: Duration) -> Result<Self> {
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&life) {
            let text = format!("a tombstone of {life:?} is outside 1 s to 1 h");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        self.tombstone = life;
        Ok(self)
    }

    /// The largest number of messages of a delay queue, dead ones not counted; default as many as the server's memory
    /// takes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for zero.
    pub fn max_backlog(mut self, most: u64) -> Result<Self> {
        if most == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_backlog must not be zero"));
        }
        self.max_backlog = Some(most);
        Ok(self)
    }

    /// The largest number of dead letters of a delay queue; default 100 000. Zero keeps none: a message that should die
    /// then waits minute by minute. Use the same for all clients of a prefix.
    #[must_use]
    pub fn max_dead_letters(mut self, most: u64) -> Self {
        self.max_dead_letters = most;
        self
    }
}

/// The beginning of all keys and channels: 1 to 64 of `A-Z a-z 0-9 _ . -`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    /// Checks `prefix`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is empty, longer than 64 bytes, or holds another character.
    pub fn new(prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(fits) {
            let text = format!("the prefix \"{}\" is not 1 to 64 of A-Z a-z 0-9 _ . -", prefix.escape_debug());
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self(prefix))
    }

    /// The prefix as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl Default for Prefix {
    /// `tenure`.
    fn default() -> Self {
        Self("tenure".into())
    }
}

/// The set of locks that share a fence counter. The placement of keys decides it, not the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FenceScope {
    /// All locks of a node: nothing is stored per name.
    #[default]
    Node,
    /// Each name has its own counter, in the slot of the name. A counter that the clock seeds is forgotten [a
    /// while](crate::RedisSettings::counter_life) after the last grant.
    Name,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_kept_and_has_its_bounds() {
        let (new, seconds) = (RedisSettings::default, Duration::from_secs);
        for (life, fits) in [(59, false), (60, true), (365 * 86_400, true), (365 * 86_400 + 1, false)] {
            let set = new().counter_life(seconds(life));
            assert_eq!(set.ok().map(|set| set.counter_life_ms()), fits.then_some(1_000 * life), "{life}");
        }
        for (life, fits) in [(0, false), (1, true), (3_600, true), (3_601, false)] {
            let set = new().tombstone(seconds(life));
            assert_eq!(set.ok().map(|set| set.tombstone), fits.then_some(seconds(life)), "{life}");
        }
        assert_eq!(new().max_waiters(1).unwrap().max_waiters, 1);
        assert_eq!(new().max_backlog(1).unwrap().max_backlog, Some(1));
        assert_eq!(new().max_dead_letters(0).max_dead_letters, 0);
        for error in [
            new().counter_life(seconds(1)).unwrap_err(),
            new().tombstone(Duration::ZERO).unwrap_err(),
            new().max_waiters(0).unwrap_err(),
            new().max_backlog(0).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
        let set = new().fences(Fences::Counter).fence_per_name().eviction(Eviction::Allow);
        assert_eq!((set.fences, set.fence_scope, set.eviction), (Fences::Counter, FenceScope::Name, Eviction::Allow));
        let set = set.fence_floor(FenceFloor::new(9).unwrap()).prefix(Prefix::new("x").unwrap());
        assert_eq!((set.fence_floor.get(), set.prefix.as_str()), (9, "x"));
        assert_eq!(Prefix::new("x".repeat(64)).unwrap().as_str().len(), 64);
    }
}
