//! What an operator should know about the servers behind a driver, and what it means for locks.

use std::fmt::{self, Debug};

use async_trait::async_trait;

use crate::value::error::Result;

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
        let checkup: Checkup = [Concern::Note, Concern::Danger, Concern::Fine].map(finding).into_iter().collect();
        assert_eq!(checkup.concern(), Concern::Danger);
        assert_eq!(checkup.to_string().lines().nth(1), Some("Danger: a:1, Clock: 60 s apart: nothing"));
    }
}
