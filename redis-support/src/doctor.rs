//! What an operator should know about the servers, and what it means for locks.

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tenure_core::Result;
use tenure_core::driver::{Checkup, Concern, Doctor, Finding, Topic, one_line};

use crate::call::Calls;
use crate::check;
use crate::lock::RedisLocks;
use crate::remote::{Placement, RedisExecutor};
use crate::script::Reply;

/// How far a server's clock may be from ours before it is worth a word.
const CLOCK_NOTED: Duration = Duration::from_secs(1);

/// The most bytes of what a server says that are repeated.
const LONGEST_SEEN: usize = 500;

/// Two commands to each server, and two scripts, one after the other.
#[async_trait]
impl<E: RedisExecutor> Doctor for RedisLocks<E> {
    async fn examine(&self) -> Result<Checkup> {
        examine(self.executor(), self.calls()).await
    }
}

fn finding(server: &str, topic: Topic, concern: Concern, seen: impl Into<String>, meaning: &str) -> Finding {
    let seen = one_line(seen.into().into(), LONGEST_SEEN).into_owned();
    Finding::new(server.to_owned(), topic, concern, seen, meaning.to_owned())
}

/// Looks at every server that keeps locks.
async fn examine<E: RedisExecutor + ?Sized>(executor: &E, calls: &Calls) -> Result<Checkup> {
    let mut checkup = Checkup::default();
    let mut silence = None;
    let infos = check::infos(executor).await;
    for (server, answer) in &infos {
        match answer {
            Ok(reply) => look(&mut checkup, server, &String::from_utf8_lossy(reply.bytes()?), executor.placement()),
            Err(error) if error.is_withheld() => checkup.add(finding(
                server,
                Topic::Rights,
                Concern::Note,
                "info is denied or unknown",
                "version, eviction, persistence and replicas are unknown; a managed service documents them",
            )),
            Err(error) => {
                let meaning = "its locks are not served";
                checkup.add(finding(server, Topic::Reach, Concern::Danger, error.to_string(), meaning));
                silence = Some(error.clone());
            }
        }
    }
    match silence {
        Some(error) if checkup.findings().iter().all(|finding| finding.topic == Topic::Reach) => {
            Err(error.into_error(&calls.keys, None))
        }
        _ => {
            clocks(executor, &mut checkup).await;
            checkup.add(rights(executor, calls, infos).await);
            Ok(checkup)
        }
    }
}

/// Does what the check at the start does.
async fn rights<E: RedisExecutor + ?Sized>(executor: &E, calls: &Calls, infos: check::Infos) -> Finding {
    let server = match executor.placement() {
        Placement::OneServer => "the server",
        Placement::OnePrimary => "the primary",
        Placement::Slots => "the nodes",
    };
    let (concern, seen, meaning) = match check::server(executor, calls, infos).await {
        Ok(notes) if notes.remarks().iter().any(|remark| remark == check::NO_DELIFEQ) => {
            let meaning =
                "all operations can be served; a release that nobody waits for costs less with the rule +delifeq";
            (Concern::Note, check::NO_DELIFEQ.into(), meaning)
        }
        Ok(_) => (Concern::Fine, "every right was tried".into(), "all operations can be served"),
        Err(error) => (Concern::Danger, error.reason(), "a client that connects now is refused"),
    };
    finding(server, Topic::Rights, concern, seen, meaning)
}

pub(crate) fn look(checkup: &mut Checkup, server: &str, info: &str, placement: Placement) {
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().split_once(':').filter(|(key, _)| *key == name)).map(|(_, v)| v)
    };
    let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let mut add = |topic, concern, seen: String, meaning| checkup.add(finding(server, topic, concern, seen, meaning));
    if let Some(version) = field("redis_version") {
        let seen = match field("valkey_version") {
            Some(valkey) => format!("Valkey {valkey}, which is like version {version} of Redis"),
            None => format!("version {version}"),
        };
        add(Topic::Version, Concern::Fine, seen, "6.2 and later are supported, and Valkey");
    }
    let policy = field("maxmemory_policy").unwrap_or("unknown");
    let (concern, meaning) = match (policy, number("maxmemory")) {
        ("noeviction", 0) => (Concern::Fine, "no lock is dropped to make room"),
        ("noeviction", _) => (
            Concern::Note,
            "no lock is dropped; when the memory is full nothing new is granted, and releases still work",
        ),
        _ => {
            (Concern::Danger, "a full memory may drop a lock that is held; its holder learns of it at its next renewal")
        }
    };
    add(Topic::Eviction, concern, format!("maxmemory {}, policy {policy}", number("maxmemory")), meaning);
    let (seen, concern, meaning) = match field("aof_enabled") {
        Some("1") => (
            "append-only file on",
            Concern::Fine,
            "a restart keeps locks, but for those of the last second unless appendfsync is always",
        ),
        _ => (
            "append-only file off",
            Concern::Note,
            "a restart may forget locks that are held; fences keep growing, being seeded by the clock",
        ),
    };
    add(Topic::Persistence, concern, seen.into(), meaning);
    let replicas = number("connected_slaves");
    let (concern, meaning) = match (placement, replicas) {
        (Placement::OneServer, 0) => (Concern::Fine, "nothing takes the place of this server"),
        (Placement::OneServer, _) => (
            Concern::Note,
            "if a replica takes over, the locks that it has not seen are granted twice; their fences differ",
        ),
        (_, 0) => (Concern::Danger, "no replica can take over: while this server is away its locks are not served"),
        _ => (Concern::Note, "a failover may grant the latest locks twice; their fences differ"),
    };
    add(Topic::Replicas, concern, format!("{replicas} replicas attached"), meaning);
}

/// Compares the servers' clocks with ours. Leases do not depend on it: they are counted on each side by itself.
async fn clocks<E: RedisExecutor + ?Sized>(executor: &E, checkup: &mut Checkup) {
    let asked = SystemTime::now();
    let answers = executor.command(&["TIME"]).await;
    let answered = SystemTime::now();
    for (server, answer) in answers {
        let Ok(reply) = answer else { continue }; // what keeps it from answering is told elsewhere
        let Some(time) = time(&reply) else {
            let meaning = "this is no time; clocks were not compared";
            checkup.add(finding(&server, Topic::Clock, Concern::Note, format!("{reply:?}"), meaning));
            continue;
        };
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
        checkup.add(finding(&server, Topic::Clock, concern, seen, meaning));
    }
}

/// The answer to `TIME`.
pub(crate) fn time(reply: &Reply) -> Option<SystemTime> {
    let [seconds, micros] = reply.items().ok()? else { return None };
    let part = |part: &Reply| u64::try_from(part.int().ok()?).ok();
    let (seconds, micros) = (Duration::from_secs(part(seconds)?), Duration::from_micros(part(micros)?));
    UNIX_EPOCH.checked_add(seconds)?.checked_add(micros)
}
