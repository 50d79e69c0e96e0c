//! Traits for operators: the list of held locks, and the health of a backend's servers.

use std::fmt::{self, Debug};

use async_trait::async_trait;

use crate::driver::Holder;
use crate::value::error::{LockName, Result};

/// Lists the held locks under a prefix. A driver offers it if the backend can list names
/// ([`Backend::with_census`](super::Backend::with_census)); users call
/// [`Client::held_locks`](crate::Client::held_locks).
///
/// A list is for operators, and decides nothing: each lock on a page was held at some moment while the page was made, and
/// may be free by the time it arrives. Pages of one list belong to different moments. A lock that is held from before the
/// first request of a list until after the last one is on it; one that is taken or released meanwhile is or is not.
#[async_trait]
pub trait Census: Debug + Send + Sync + 'static {
    /// Returns the capabilities of a list. Constant; does no I/O.
    fn capabilities(&self) -> CensusCapabilities;

    /// Returns a page of the locks that are held now and whose names begin with exactly the bytes of `prefix`: all
    /// locks if it is empty. Continues at `from`, the [`next`](HeldPage::next) of the page before, or begins if there
    /// is none.
    ///
    /// At most `max` locks, which is 1 to [`max_page`](CensusCapabilities::max_page). A page may hold fewer, or none,
    /// and not be the last one: the work for one page is bounded by `max`, however many keys the backend has. Only a
    /// page without `next` is the last. Changes nothing.
    ///
    /// Free locks, locks whose lease has ended, and names that have only waiters are not on it.
    ///
    /// May be called concurrently, and the future may be dropped half-way. A place that this driver did not give, or
    /// that it gave for another prefix, is refused with
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) or begins anywhere. A missing permission is
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied), and the error names the permission.
    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage>;
}

/// The capabilities of a driver's list of held locks. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusCapabilities {
    /// The order of the names.
    pub order: CensusOrder,
    /// The support of counting waiters.
    pub waiters: WaitersCounted,
    /// The most locks of one page.
    pub max_page: usize,
}

impl CensusCapabilities {
    /// Declares a list in this order, with pages of up to 500 locks and the number of waiters.
    #[must_use]
    pub const fn new(order: CensusOrder) -> Self {
        Self { order, waiters: WaitersCounted::Yes, max_page: 500 }
    }
}

setters!(const CensusCapabilities {
    with_order => order: CensusOrder,
    with_waiters => waiters: WaitersCounted,
    with_max_page => max_page: usize,
});

/// The order of names in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CensusOrder {
    /// In the order of their bytes, each once.
    Sorted,
    /// No order. A name may occur twice, on different pages, while the backend moves its keys.
    None,
}

/// The support of counting waiters in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitersCounted {
    /// Counted, in the request that lists.
    Yes,
    /// Not counted: [`HeldLock::waiters`] is `None`. [`inspect`](super::DistributedLock::inspect) counts those of one
    /// lock.
    No,
}

/// A position in a list of held locks. Opaque: valid for the driver that gave it, and for the requested prefix.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CensusPlace(Vec<u8>);

impl CensusPlace {
    /// Makes a place of these bytes; their meaning is up to the driver.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, as the driver gave them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Debug for CensusPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CensusPlace(\"{}\")", self.0.escape_ascii())
    }
}

/// A page of held locks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldPage {
    /// The locks, in the order of [`CensusCapabilities::order`].
    pub locks: Vec<HeldLock>,
    /// The position of the next page; `None` after the last one.
    pub next: Option<CensusPlace>,
}

impl HeldPage {
    /// Makes a page of these locks, after which the list continues at `next`.
    #[must_use]
    pub const fn new(locks: Vec<HeldLock>, next: Option<CensusPlace>) -> Self {
        Self { locks, next }
    }
}

setters!(HeldPage {
    with_locks => locks: Vec<HeldLock>,
    with_next => next: Option<CensusPlace>,
});

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// The name of the lock.
    pub name: LockName,
    /// The holder, as [`inspect`](super::DistributedLock::inspect) returns it. A re-entrant hold has an
    /// [`owner`](Holder::owner), and its number of entries is [`depth`](Holder::depth).
    pub holder: Holder,
    /// The number of places in its queue; `None` where they are [not counted](WaitersCounted::No).
    pub waiters: Option<u32>,
}

impl HeldLock {
    /// Makes a lock with this holder and an unknown number of waiters.
    #[must_use]
    pub const fn new(name: LockName, holder: Holder) -> Self {
        Self { name, holder, waiters: None }
    }
}

setters!(HeldLock {
    with_name => name: LockName,
    with_holder => holder: Holder,
    with_waiters => waiters: Option<u32>,
});

// What there is to know about the servers.

/// A health check of a backend's servers. A driver offers it if there is something to report
/// ([`Backend::with_doctor`](super::Backend::with_doctor)); users call [`Client::doctor`](crate::Client::doctor).
#[async_trait]
pub trait Doctor: Debug + Send + Sync + 'static {
    /// Checks every server that keeps locks, in a few requests to each. Changes nothing.
    ///
    /// A problem of a server is a [`Finding`], and so is a check that cannot be made; an error means that no check was
    /// possible. May be called at any time, also concurrently; the future may be dropped half-way.
    async fn examine(&self) -> Result<Checkup>;
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Concern {
    /// As it should be.
    Fine,
    /// Worth knowing; the contract of the locks holds as declared.
    Note,
    /// Locks can be lost, or are not served.
    Danger,
}

impl Concern {
    /// Returns this concern if there is reason for it, otherwise [`Fine`](Self::Fine).
    #[must_use]
    pub fn when(self, reason: bool) -> Self {
        if reason { self } else { Self::Fine }
    }
}

/// The subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topic {
    /// The reachability of the server.
    Reach,
    /// The version of the server.
    Version,
    /// The server's behaviour when its memory is full.
    Eviction,
    /// The data that survives a restart.
    Persistence,
    /// The amount of stored data, and the removal of old data.
    Storage,
    /// The server's own alarms.
    Alarms,
    /// The servers that could replace it.
    Replicas,
    /// The difference between its clock and ours.
    Clock,
    /// The permissions of the user.
    Rights,
}

/// The result of one check, on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The server: its address, or its name in the configuration.
    pub server: String,
    /// The subject of the check.
    pub topic: Topic,
    /// The severity.
    pub concern: Concern,
    /// The observed state.
    pub seen: String,
    /// The consequence for locks.
    pub meaning: String,
}

impl Finding {
    /// Makes a finding of the observed state and its consequence.
    #[must_use]
    pub const fn new(server: String, topic: Topic, concern: Concern, seen: String, meaning: String) -> Self {
        Self { server, topic, concern, seen, meaning }
    }

    /// Makes a finding, of a server to be named by `with_server`, whose consequence depends on the concern: `well` if it is
    /// [`Fine`](Concern::Fine), `otherwise` if not.
    #[must_use]
    pub fn judged(topic: Topic, seen: String, concern: Concern, well: &str, otherwise: &str) -> Self {
        let meaning = if concern == Concern::Fine { well } else { otherwise };
        Self::new(String::new(), topic, concern, seen, meaning.to_owned())
    }
}

setters!(Finding {
    with_server => server: String,
    with_topic => topic: Topic,
    with_concern => concern: Concern,
    with_seen => seen: String,
    with_meaning => meaning: String,
});

/// The report of a health check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkup {
    findings: Vec<Finding>,
}

impl Checkup {
    /// Returns all findings, server by server as far as the driver can.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the greatest concern of all.
    #[must_use]
    pub fn concern(&self) -> Concern {
        self.findings.iter().map(|finding| finding.concern).max().unwrap_or(Concern::Fine)
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }
}

impl FromIterator<Finding> for Checkup {
    fn from_iter<I: IntoIterator<Item = Finding>>(findings: I) -> Self {
        Self { findings: findings.into_iter().collect() }
    }
}

impl IntoIterator for Checkup {
    type Item = Finding;
    type IntoIter = std::vec::IntoIter<Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.findings.into_iter()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, topic, concern, seen, meaning } = self;
        write!(f, "{concern:?}: {server}, {topic:?}: {seen}: {meaning}")
    }
}

impl fmt::Display for Checkup {
    /// Prints one line for each finding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_concern_is_that_of_all() {
        let finding = |concern| Finding {
            server: "a:1".into(),
            topic: Topic::Clock,
            concern,
            seen: "60 s apart".into(),
            meaning: "nothing".into(),
        };
        assert_eq!(Checkup::default().concern(), Concern::Fine);
        let mut grows = Checkup::default();
        [Concern::Note, Concern::Fine].map(finding).into_iter().for_each(|finding| grows.add(finding));
        assert_eq!(grows.concern(), Concern::Note);
        let checkup: Checkup = [Concern::Note, Concern::Danger, Concern::Fine].map(finding).into_iter().collect();
        assert_eq!(checkup.concern(), Concern::Danger);
        assert_eq!(checkup.to_string().lines().nth(1), Some("Danger: a:1, Clock: 60 s apart: nothing"));
    }
}
