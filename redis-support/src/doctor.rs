//! The health check of the servers, and the consequences of its findings for locks.

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tenure_core::Result;
use tenure_core::driver::{Checkup, Concern, Doctor, Finding, Topic, one_line};

use crate::call::Calls;
use crate::check;
use crate::link::Dialer;
use crate::lock::Driver;
use crate::script::Reply;
use crate::servers::{Answers, Placement, Servers};

/// How far a server's clock may be from ours before it is worth a word.
const CLOCK_NOTED: Duration = Duration::from_secs(1);

/// The most bytes of what a server says that are repeated.
const LONGEST_SEEN: usize = 500;

/// Two commands to each server, and two scripts, one after the other.
#[async_trait]
impl<D: Dialer> Doctor for Driver<D> {
    async fn examine(&self) -> Result<Checkup> {
        examine(self.servers(), self.calls()).await
    }
}

fn finding(server: &str, topic: Topic, concern: Concern, seen: impl Into<String>, meaning: &str) -> Finding {
    let seen = one_line(seen.into().into(), LONGEST_SEEN).into_owned();
    Finding::new(server.to_owned(), topic, concern, seen, meaning.to_owned())
}

/// Looks at every server that keeps locks.
async fn examine<D: Dialer>(servers: &Servers<D>, calls: &Calls) -> Result<Checkup> {
    let mut checkup = Checkup::default();
    let mut silence = None;
    let infos = check::infos(servers).await;
    for (server, answer) in &infos {
        match answer {
            Ok(reply) => look(&mut checkup, server, &String::from_utf8_lossy(reply.bytes()?), servers.placement()),
            Err(error) if error.is_withheld() => checkup.add(finding(
                server,
                Topic::Rights,
                Concern::Note,
                "info is denied or unknown",
                "version, eviction, persistence and replicas are unknown; a managed service documents them",
            )),
            Err(error) => {
                let meaning = "no lock of this server can be granted";
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
            clocks(servers, &mut checkup).await;
            checkup.add(rights(servers, calls, infos).await);
            Ok(checkup)
        }
    }
}

/// Does what the check at the start does.
async fn rights<D: Dialer>(servers: &Servers<D>, calls: &Calls, infos: Answers) -> Finding {
    let server = match servers.placement() {
        Placement::OneServer => "the server",
        Placement::OnePrimary => "the primary",
        Placement::Slots => "the nodes",
    };
    let (concern, seen, meaning) = match check::server(servers, calls, infos).await {
        Ok(notes) if notes.remarks().iter().any(|remark| remark == check::NO_DELIFEQ) => {
            let meaning = "all operations are permitted; with the rule +delifeq, a release without waiters costs less";
            (Concern::Note, check::NO_DELIFEQ.into(), meaning)
        }
        Ok(_) => (Concern::Fine, "every operation was tried".into(), "all operations are permitted"),
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
            Some(valkey) => format!("Valkey {valkey}, compatible with Redis {version}"),
            None => format!("version {version}"),
        };
        add(Topic::Version, Concern::Fine, seen, "6.2 and later are supported, and Valkey");
    }
    let policy = field("maxmemory_policy").unwrap_or("unknown");
    let (concern, meaning) = match (policy, number("maxmemory")) {
        ("noeviction", 0) => (Concern::Fine, "the server evicts no lock"),
        ("noeviction", _) => (
            Concern::Note,
            "the server evicts no lock; when its memory is full, it grants no new lock, and releases still work",
        ),
        _ => (Concern::Danger, "a full server may evict a held lock; its holder is notified at its next renewal"),
    };
    add(Topic::Eviction, concern, format!("maxmemory {}, policy {policy}", number("maxmemory")), meaning);
    let (seen, concern, meaning) = match field("aof_enabled") {
        Some("1") => (
            "append-only file on",
            Concern::Fine,
            "a restart keeps locks, except those of the last second unless appendfsync is always",
        ),
        _ => (
            "append-only file off",
            Concern::Note,
            "a restart may lose held locks; fences keep growing, because the clock seeds them",
        ),
    };
    add(Topic::Persistence, concern, seen.into(), meaning);
    let replicas = number("connected_slaves");
    let (concern, meaning) = match (placement, replicas) {
        (Placement::OneServer, 0) => (Concern::Fine, "there is no replica that could take over"),
        (Placement::OneServer, _) => (
            Concern::Note,
            "if a replica takes over, it grants the locks that it has not received a second time; their fences differ",
        ),
        (_, 0) => (Concern::Danger, "no replica can take over: while this server is down, its locks cannot be granted"),
        _ => (Concern::Note, "a failover may grant the latest locks twice; their fences differ"),
    };
    add(Topic::Replicas, concern, format!("{replicas} replicas attached"), meaning);
}

/// Compares the servers' clocks with ours. Leases do not depend on it: they are counted on each side by itself.
async fn clocks<D: Dialer>(servers: &Servers<D>, checkup: &mut Checkup) {
    let asked = SystemTime::now();
    let answers = servers.everywhere(&["TIME"]).await;
    let answered = SystemTime::now();
    for (server, answer) in answers {
        let Ok(reply) = answer else { continue }; // what keeps it from answering is reported elsewhere
        let Some(time) = time(&reply) else {
            let meaning = "the reply is not a time; clocks were not compared";
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
