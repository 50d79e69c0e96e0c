//! The health check of the cluster: the state of its members, and its consequences for locks.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{AlarmAction, AlarmType, GetOptions, ResponseHeader, StatusResponse};
use futures_util::future::join_all;
use tenure_core::driver::{Checkup, Concern, Doctor, Finding, Topic, one_line};
use tenure_core::{ErrorKind, Result};

use crate::config::SignsIn;
use crate::driver::EtcdDriver;

/// How much of the history may stay before it is worth a word: etcd's default quota is 2 GiB.
const LARGE: i64 = 1 << 30;

/// The known faults of the patches of a line of versions, from one on and before another; the worst first.
const FAULTY: [(Line, Range<u32>, Concern, &str); 5] = [
    // https://github.com/etcd-io/etcd/issues/13766, mended in 3.5.3
    (
        (3, 5),
        0..3,
        Concern::Danger,
        "members may differ after one was killed under load, so that two clients hold a lock: use 3.5.13 or later",
    ),
    // https://github.com/etcd-io/etcd/issues/14685, mended in 3.5.6
    (
        (3, 5),
        0..6,
        Concern::Danger,
        "members may differ after one was killed while it was defragmented: use 3.5.13 or later",
    ),
    // https://groups.google.com/a/kubernetes.io/g/dev/c/sEVopPxKPDo: 3.4.20, 3.4.21 and 3.5.5
    (
        (3, 4),
        20..22,
        Concern::Danger,
        "members may differ after one was added while users sign in: use 3.4.31 or later",
    ),
    // https://github.com/etcd-io/etcd/issues/15247, eased in 3.4.31 (pull 17465) and 3.5.13 (pull 17425)
    ((3, 4), 0..31, Concern::Note, DEPOSED),
    ((3, 5), 0..13, Concern::Note, DEPOSED),
];

/// Major and minor number.
type Line = (u32, u32);

const DEPOSED: &str = "a leader that stalls and is deposed may end leases that were kept alive: a hold may be lost early, and \
                       its holder is notified; renewals move holds to leases that this leader does not know; it is rarer from 3.4.31 and \
                       3.5.13 on";

/// How many revisions of which none was ever compacted are worth a word.
const MANY: i64 = 100_000;

/// Asks each member for its status; and one of them for alarms, for the users, and for the past, to learn whether it is
/// compacted. Members report neither their clocks nor their configuration.
#[async_trait]
impl Doctor for EtcdDriver {
    async fn examine(&self) -> Result<Checkup> {
        let link = &self.inner.link;
        self.ping().await?; // as a user of locks, before anybody looks around
        let limit = self.inner.config.connect_timeout.max(Duration::from_millis(500));
        let members = link.places();
        let asked = (0..members.len()).map(|at| {
            tokio::time::timeout(limit, link.of_member(at, |stubs| async move { stubs.maintenance().status().await }))
        });
        let mut checkup = Checkup::default();
        for (server, answer) in members.iter().zip(join_all(asked).await) {
            match answer {
                Ok(Ok(status)) => look(&mut checkup, server, &status),
                Ok(Err(error)) if error.kind() == ErrorKind::Denied => checkup.add(finding(
                    server,
                    Topic::Rights,
                    Concern::Note,
                    "the user may not read the status",
                    "version and size are unknown",
                )),
                Ok(Err(error)) => checkup.add(away(server, &error.reason())),
                Err(_) => checkup.add(away(server, &format!("no answer within {limit:?}"))),
            }
        }
        self.alarms(&mut checkup).await;
        checkup.add(self.past().await);
        checkup.add(self.users().await);
        checkup.add(self.clock());
        Ok(checkup)
    }
}

impl EtcdDriver {
    async fn alarms(&self, checkup: &mut Checkup) {
        let ask = |stubs: crate::link::Stubs| async move {
            stubs.maintenance().alarm(AlarmAction::Get, AlarmType::None, None).await
        };
        let (concern, seen, meaning) = match self.inner.link.call(ask).await {
            Ok(answer) if answer.alarms().is_empty() => {
                (Concern::Fine, "no alarm is raised".to_owned(), "the cluster accepts writes")
            }
            Ok(answer) => {
                let raised = answer.alarms().iter().map(|alarm| format!("{:?}", alarm.alarm())).collect::<Vec<_>>();
                let meaning = "no new lock is granted until the cause is repaired and the alarm disarmed";
                (Concern::Danger, format!("alarms are raised: {}", raised.join(", ")), meaning)
            }
            Err(error) => (Concern::Note, error.reason(), "it is unknown whether an alarm is raised"),
        };
        checkup.add(finding("the cluster", Topic::Alarms, concern, seen, meaning));
    }

    /// Checks whether overwritten revisions are ever compacted, by a read of the first revision.
    async fn past(&self) -> Finding {
        let root = self.inner.keyspace.root();
        let first = || GetOptions::new().with_revision(1).with_count_only();
        let read = self.inner.link.call(|stubs| async move { stubs.kv().get(root, Some(first())).await });
        let (concern, seen, meaning) = match read.await {
            Ok(answer) => uncompacted(answer.header().map_or(0, ResponseHeader::revision)),
            Err(error) if error.message().contains("has been compacted") => {
                (Concern::Fine, "old revisions are compacted".to_owned(), "overwritten values are removed")
            }
            Err(error) => (Concern::Note, error.reason(), "it is unknown whether old revisions are compacted"),
        };
        finding("the cluster", Topic::Storage, concern, seen, meaning)
    }

    /// Checks whether users have to sign in. A cluster that does not ask for it lists its users to every client.
    async fn users(&self) -> Finding {
        let listed = self.inner.link.call(|stubs| async move { stubs.auth().user_list().await }).await;
        let listed = listed.map(|answer| answer.users().len());
        let (concern, seen, meaning) = match (listed, self.inner.config.signs_in()) {
            (Ok(users), SignsIn::Yes) => (
                Concern::Note,
                format!("authentication is on, and this user may administer all {users} users"),
                "locks need only the right to read and write under their prefix: use a user with that right alone",
            ),
            (Ok(users), SignsIn::No) => (
                Concern::Note,
                format!("authentication is off; {users} users exist"),
                "any client that reaches a member, with a certificate if it asks for one, can free and take every lock",
            ),
            (Ok(users), SignsIn::Unknown) => (
                Concern::Note,
                format!("this client may administer all {users} users, or authentication is off"),
                "in the latter case any client that reaches a member can free and take every lock",
            ),
            (Err(error), _) if error.kind() == ErrorKind::Denied => (
                Concern::Fine,
                "authentication is on, and this user may not administer others".to_owned(),
                "only clients with the right to write under the prefix can free and take its locks",
            ),
            (Err(error), _) => (Concern::Note, error.reason(), "it is unknown whether authentication is on"),
        };
        finding("the cluster", Topic::Rights, concern, seen, meaning)
    }

    /// Members report no time. Leases are counted by the leader alone, and delay queues go by the clients' clocks.
    fn clock(&self) -> Finding {
        let seen = format!("clients' clocks may be {:?} apart (clock_error_ms)", self.inner.config.clock_error);
        let meaning = "members report no time; leases do not depend on it, due times of delay queues do";
        finding("the cluster", Topic::Clock, Concern::Fine, seen, meaning)
    }
}

fn look(checkup: &mut Checkup, server: &str, status: &StatusResponse) {
    let mut add =
        |topic, concern, seen: String, meaning: &str| checkup.add(finding(server, topic, concern, seen, meaning));
    match status.leader() {
        0 => add(Topic::Reach, Concern::Danger, "it knows no leader".into(), "it can grant no lock"),
        _ => add(Topic::Reach, Concern::Fine, "it answers and knows a leader".into(), "locks are served"),
    }
    let (concern, meaning) = fault_of(status.version());
    add(Topic::Version, concern, format!("version {}", status.version()), meaning);
    for error in status.errors() {
        add(Topic::Alarms, Concern::Danger, error.clone(), "the member reports a fault");
    }
    let (size, used) = (status.db_size(), status.raft_used_db_size());
    let (concern, meaning) = match size >= LARGE {
        true => (
            Concern::Note,
            "old revisions pile up: turn automatic compaction on (--auto-compaction-retention) and defragment",
        ),
        false => (Concern::Fine, "far from the default quota of 2 GiB"),
    };
    add(Topic::Storage, concern, format!("{size} bytes on disk, {used} in use"), meaning);
}

/// A cluster of which the first of so many revisions is still known.
fn uncompacted(revisions: i64) -> (Concern, String, &'static str) {
    let seen = format!("none of {revisions} revisions was ever compacted");
    match revisions >= MANY {
        true => (
            Concern::Note,
            seen,
            "when they fill the quota, no lock is granted: turn automatic compaction on (--auto-compaction-retention)",
        ),
        false => (Concern::Fine, seen, "there are few; automatic compaction (--auto-compaction-retention) bounds them"),
    }
}

/// The known fault of a version.
fn fault_of(version: &str) -> (Concern, &'static str) {
    let mut numbers = version.split('.').map_while(|part| part.split('-').next()?.parse::<u32>().ok());
    let (line, patch) = ((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)), numbers.next().unwrap_or(0));
    let known = FAULTY.iter().find(|(faulty, patches, ..)| *faulty == line && patches.contains(&patch));
    match known {
        Some((_, _, concern, fault)) => (*concern, fault),
        None if line < (3, 4) => (Concern::Note, "3.4 and later are supported"),
        None => (Concern::Fine, "no known fault of this version concerns locks"),
    }
}

fn away(server: &str, seen: &str) -> Finding {
    let meaning = "the other members grant locks as long as they are a majority";
    finding(server, Topic::Reach, Concern::Note, seen, meaning)
}

fn finding(server: &str, topic: Topic, concern: Concern, seen: impl Into<String>, meaning: &str) -> Finding {
    let seen = one_line(seen.into().into(), 500).into_owned();
    Finding::new(server.to_owned(), topic, concern, seen, meaning.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_revisions_of_which_none_was_compacted_are_noted() {
        assert_eq!(uncompacted(MANY - 1).0, Concern::Fine);
        assert_eq!(uncompacted(MANY).0, Concern::Note);
    }

    #[test]
    fn versions_with_known_faults_are_reported() {
        for (version, concern) in [
            ("3.5.2", Concern::Danger),
            ("3.5.5", Concern::Danger),
            ("3.5.6", Concern::Note),
            ("3.5.12", Concern::Note),
            ("3.5.13", Concern::Fine),
            ("3.4.19", Concern::Note),
            ("3.4.20", Concern::Danger),
            ("3.4.21", Concern::Danger),
            ("3.4.22", Concern::Note),
            ("3.4.31", Concern::Fine),
            ("3.6.0-rc.1", Concern::Fine),
            ("3.3.10", Concern::Note),
        ] {
            assert_eq!(fault_of(version).0, concern, "{version}");
        }
    }
}
