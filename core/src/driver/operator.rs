//! What operators ask a backend: which locks are held, and how its servers are.

use std::fmt::{self, Debug};

use async_trait::async_trait;

use crate::driver::Holder;
use crate::value::error::{LockName, Result};

/// Lists the locks that are held under a prefix. A driver offers it where the backend can list names
/// ([`Backend::with_census`](super::Backend::with_census)); users call
/// [`Client::held_locks`](crate::Client::held_locks).
///
/// A list is for operators, and decides nothing: each lock on a page was held at some moment while the page was made, and
/// may be free by the time it arrives. Pages of one list belong to different moments. A lock that is held from before the
/// first request of a list until after the last one is on it; one that is taken or released meanwhile is or is not.
#[async_trait]
pub trait Census: Debug + Send + Sync + 'static {
    /// What a list promises. Constant; does no I/O.
    fn capabilities(&self) -> CensusCapabilities;

    /// A page of the locks that are held now and whose names begin with exactly the bytes of `prefix`: all locks if it is
    /// empty. Goes on at `from`, the [`next`](HeldPage::next) of the page before, or begins where there is none.
    ///
    /// At most `max` locks, which is 1 to [`max_page`](CensusCapabilities::max_page). A page may hold fewer, and none, and
    /// not be the last one: the work for one page is bounded by `max`, however many keys the backend has. Only a page
    /// without `next` is the last. Changes nothing.
    ///
    /// Locks that are free, or whose lease has ended, are not on it, and neither are names that are only waited for.
    ///
    /// May be called concurrently, and the future may be dropped half-way. A place that this driver did not give, or that it
    /// gave for another prefix, is refused with [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) or begins
    /// anywhere. A right that is missing is [`ErrorKind::Denied`](crate::ErrorKind::Denied), and names the right.
    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage>;
}

/// What a driver's list of held locks promises. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusCapabilities {
    /// In which order the names come.
    pub order: CensusOrder,
    /// Whether those are counted who wait.
    pub waiters: WaitersCounted,
    /// The most locks of one page.
    pub max_page: usize,
}

impl CensusCapabilities {
    /// A list in this order, with pages of up to 500 locks and the number of those who wait.
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

/// In which order a list tells names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CensusOrder {
    /// In the order of their bytes, each once.
    Sorted,
    /// In no order. A name may come twice, on different pages, while the backend moves its keys.
    None,
}

/// Whether a list counts those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitersCounted {
    /// Yes, in the request that lists.
    Yes,
    /// No: [`HeldLock::waiters`] is `None`. [`inspect`](super::DistributedLock::inspect) counts those of one lock.
    No,
}

/// Where a list of held locks goes on. Opaque: of the driver that gave it, and of the prefix that was asked for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CensusPlace(Vec<u8>);

impl CensusPlace {
    /// A place of these bytes; what they mean is the driver's business.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, as the driver gave them.
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
    /// The locks, in the order that [`CensusCapabilities::order`] tells.
    pub locks: Vec<HeldLock>,
    /// Where the list goes on; `None` behind its end.
    pub next: Option<CensusPlace>,
}

impl HeldPage {
    /// A page of these locks, behind which the list goes on at `next`.
    #[must_use]
    pub const fn new(locks: Vec<HeldLock>, next: Option<CensusPlace>) -> Self {
        Self { locks, next }
    }
}

setters!(HeldPage {
    with_locks => locks: Vec<HeldLock>,
    with_next => next: Option<CensusPlace>,
});

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// Which lock.
    pub name: LockName,
    /// Who holds it, as [`inspect`](super::DistributedLock::inspect) tells. A re-entrant hold has an
    /// [`owner`](Holder::owner), and as many entries as [`depth`](Holder::depth) says.
    pub holder: Holder,
    /// How many places in its queue are taken; `None` where they are [not counted](WaitersCounted::No).
    pub waiters: Option<u32>,
}

impl HeldLock {
    /// A lock that this holder has, with an unknown number of those who wait.
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

/// Looks at the servers of a backend. A driver offers it where there is something to tell
/// ([`Backend::with_doctor`](super::Backend::with_doctor)); users call [`Client::doctor`](crate::Client::doctor).
#[async_trait]
pub trait Doctor: Debug + Send + Sync + 'static {
    /// Looks at every server that keeps locks, in a few requests to each. Changes nothing.
    ///
    /// What is wrong with a server is a [`Finding`], and so is what cannot be looked at; an error means that nothing
    /// could be told. May be called at any time, also concurrently; the future may be dropped half-way.
    async fn examine(&self) -> Result<Checkup>;
}

/// How much a finding matters.
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

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topic {
    /// Whether the server answers.
    Reach,
    /// The version of the server.
    Version,
    /// What happens when its memory is full.
    Eviction,
    /// What a restart keeps.
    Persistence,
    /// How much the server stores, and what it forgets of the past.
    Storage,
    /// What the server itself complains of.
    Alarms,
    /// Who could take its place.
    Replicas,
    /// How far its clock is from ours.
    Clock,
    /// What the user may do.
    Rights,
}

/// One thing that was looked at, on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Which server: its address, or what the configuration calls it.
    pub server: String,
    /// What was looked at.
    pub topic: Topic,
    /// How much it matters.
    pub concern: Concern,
    /// What was seen.
    pub seen: String,
    /// What that means for locks.
    pub meaning: String,
}

impl Finding {
    /// What was seen there, and what it means.
    #[must_use]
    pub const fn new(server: String, topic: Topic, concern: Concern, seen: String, meaning: String) -> Self {
        Self { server, topic, concern, seen, meaning }
    }
}

setters!(Finding {
    with_server => server: String,
    with_topic => topic: Topic,
    with_concern => concern: Concern,
    with_seen => seen: String,
    with_meaning => meaning: String,
});

/// The report of a check-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkup {
    findings: Vec<Finding>,
}

impl Checkup {
    /// Everything that was looked at, server by server as far as the driver can.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The greatest concern of all.
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
    /// One line for each finding.
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
