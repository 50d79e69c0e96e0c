//! What an operator should know about the servers, and what it means for locks.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::Result;

use crate::call::Calls;
use crate::check;
use crate::executor::{Placement, RedisExecutor, Reply};

/// How far a server's clock may be from ours before it is worth a word.
const CLOCK_NOTED: Duration = Duration::from_secs(1);

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
    /// The version of the server.
    Version,
    /// What happens when its memory is full.
    Eviction,
    /// What a restart keeps.
    Persistence,
    /// Who could take its place.
    Replicas,
    /// How far its clock is from ours.
    Clock,
    /// What the user may do.
    Rights,
}

/// One thing that was looked at, on one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which server, counted from 0, in no particular order; always 0 where there is one.
    pub server: usize,
    /// What was looked at.
    pub topic: Topic,
    /// How much it matters.
    pub concern: Concern,
    /// What was seen.
    pub seen: String,
    /// What that means for locks.
    pub meaning: &'static str,
}

/// The report of a check-up.
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    findings: Vec<Finding>,
}

impl Checkup {
    /// Everything that was looked at.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The greatest concern of all.
    #[must_use]
    pub fn concern(&self) -> Concern {
        self.findings.iter().map(|finding| finding.concern).max().unwrap_or(Concern::Fine)
    }

    fn add(&mut self, server: usize, topic: Topic, concern: Concern, seen: impl Into<String>, meaning: &'static str) {
        self.findings.push(Finding { server, topic, concern, seen: seen.into(), meaning });
    }
}

impl fmt::Display for Checkup {
    /// One line for each finding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let Finding { server, topic, concern, seen, meaning } = finding;
            writeln!(f, "server {server}, {topic:?}: {concern:?}: {seen}: {meaning}")?;
        }
        Ok(())
    }
}

/// Looks at every server that keeps locks: three commands each, and two scripts on one of them.
pub(crate) async fn examine<E: RedisExecutor + ?Sized>(executor: &E, calls: &Calls) -> Result<Checkup> {
    let mut checkup = Checkup::default();
    for (server, answer) in executor.command(&["INFO"]).await.into_iter().enumerate() {
        match answer {
            Ok(reply) => look(&mut checkup, server, &String::from_utf8_lossy(reply.bytes()?), executor.placement()),
            Err(error) if error.is_withheld() => checkup.add(
                server,
                Topic::Rights,
                Concern::Note,
                "info is denied or unknown",
                "version, eviction, persistence and replicas cannot be told; a managed service documents them",
            ),
            Err(error) => return Err(error.into_error(&calls.keys, None)),
        }
    }
    clocks(executor, calls, &mut checkup).await?;
    match check::server(executor, calls).await {
        Ok(_) => checkup.add(0, Topic::Rights, Concern::Fine, "every right was tried", "all operations can be served"),
        Err(error) => {
            let seen = error.message().to_owned();
            checkup.add(0, Topic::Rights, Concern::Danger, seen, "a driver that connects now is refused");
        }
    }
    Ok(checkup)
}

fn look(checkup: &mut Checkup, server: usize, info: &str, placement: Placement) {
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().split_once(':').filter(|(key, _)| *key == name)).map(|(_, v)| v)
    };
    let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    if let Some(version) = field("redis_version") {
        checkup.add(server, Topic::Version, Concern::Fine, format!("version {version}"), "6.2 and later are supported");
    }
    let policy = field("maxmemory_policy").unwrap_or("unknown");
    let seen = format!("maxmemory {}, policy {policy}", number("maxmemory"));
    match (policy, number("maxmemory")) {
        ("noeviction", 0) => {
            checkup.add(server, Topic::Eviction, Concern::Fine, seen, "no lock is dropped to make room");
        }
        ("noeviction", _) => checkup.add(
            server,
            Topic::Eviction,
            Concern::Note,
            seen,
            "no lock is dropped; when the memory is full nothing new is granted, and releases still work",
        ),
        _ => checkup.add(
            server,
            Topic::Eviction,
            Concern::Danger,
            seen,
            "a full memory may drop a lock that is held; its holder learns of it at its next renewal",
        ),
    }
    let seen = match (field("aof_enabled"), field("rdb_last_save_time")) {
        (Some("1"), _) => "append-only file on",
        _ => "append-only file off",
    };
    let (concern, meaning) = if seen.ends_with("on") {
        (Concern::Fine, "a restart keeps locks, but for those of the last second unless appendfsync is always")
    } else {
        (Concern::Note, "a restart may forget locks that are held; fences keep growing, being seeded by the clock")
    };
    checkup.add(server, Topic::Persistence, concern, seen, meaning);
    let replicas = number("connected_slaves");
    let (concern, meaning) = match (placement, replicas) {
        (Placement::OneServer, 0) => (Concern::Fine, "nothing takes the place of this server"),
        (Placement::OneServer, _) => (
            Concern::Note,
            "should one take over, the locks that it has not seen are granted twice; fences tell them apart",
        ),
        (_, 0) => (Concern::Danger, "nobody can take over: while this server is away its locks are not served"),
        _ => (Concern::Note, "a failover may grant the latest locks twice; fences tell them apart"),
    };
    checkup.add(server, Topic::Replicas, concern, format!("{replicas} replicas attached"), meaning);
}

/// Compares the servers' clocks with ours. Leases do not depend on it: they are counted on each side by itself.
async fn clocks<E: RedisExecutor + ?Sized>(executor: &E, calls: &Calls, checkup: &mut Checkup) -> Result<()> {
    let asked = SystemTime::now();
    let answers = executor.command(&["TIME"]).await;
    let answered = SystemTime::now();
    for (server, answer) in answers.into_iter().enumerate() {
        let reply = match answer {
            Ok(reply) => reply,
            Err(error) => return Err(error.into_error(&calls.keys, None)),
        };
        let part = |at: usize| reply.items().ok().and_then(|items| items.get(at)).map_or(Ok(0), Reply::int);
        let (seconds, micros) = (part(0)?, part(1)?);
        let time =
            UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs()) + Duration::from_micros(micros.unsigned_abs());
        let (ahead, behind) = (time.duration_since(answered), asked.duration_since(time));
        let difference = ahead.or(behind).unwrap_or_default();
        let seen = format!("{} ms apart", difference.as_millis());
        let (concern, meaning) = if difference < CLOCK_NOTED {
            (Concern::Fine, "leases do not depend on it")
        } else {
            (
                Concern::Note,
                "leases do not depend on it; but a successor whose clock is behind may grant smaller fences after a loss of data",
            )
        };
        checkup.add(server, Topic::Clock, concern, seen, meaning);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(info: &str, placement: Placement) -> Checkup {
        let mut checkup = Checkup::default();
        look(&mut checkup, 0, info, placement);
        checkup
    }

    fn concern(checkup: &Checkup, topic: Topic) -> Concern {
        checkup.findings().iter().find(|finding| finding.topic == topic).unwrap().concern
    }

    #[test]
    fn each_finding_has_its_concern() {
        let good = "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        let checkup = looked(good, Placement::OneServer);
        assert_eq!(checkup.concern(), Concern::Fine, "{checkup}");
        let bad = "maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nconnected_slaves:1\r\n";
        let checkup = looked(bad, Placement::OneServer);
        assert_eq!(concern(&checkup, Topic::Eviction), Concern::Danger);
        assert_eq!(concern(&checkup, Topic::Persistence), Concern::Note);
        assert_eq!(concern(&checkup, Topic::Replicas), Concern::Note);
        assert_eq!(concern(&looked(good, Placement::Slots), Topic::Replicas), Concern::Danger);
    }
}
