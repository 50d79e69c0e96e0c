//! The check of a server before its first use for locks.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use futures_util::future::join_all;
use tenure_core::driver::one_line;
use tenure_core::{Error, ErrorKind, Result};

use crate::call::Calls;
use crate::error::ExecError;
use crate::link::Dialer;
use crate::script::Request;
use crate::servers::{Answers, Placement, Servers};
use crate::settings::Eviction;

/// The oldest server that is supported.
const OLDEST: (u32, u32) = (6, 2);

/// The most bytes of a remark, and of a version: the server's words are in them.
const LONGEST_REMARK: usize = 500;

/// The remark on a user who may not run the command of a release without waiters.
pub(crate) const NO_DELIFEQ: &str = "delifeq is denied or unknown: each release is a script";

const REPLICA: &str = "the server is a read-only replica";

/// The checks at the start that were not possible, or that the configuration skips.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    server: Option<String>,
    run_id: Option<String>,
    deletes_equal: bool,
    remarks: Vec<String>,
}

impl Notes {
    /// Before anything was looked at.
    pub(crate) const fn none() -> Self {
        Self { server: None, run_id: None, deletes_equal: false, remarks: Vec::new() }
    }

    /// The server's version, if it reports one: `7.0.15`, or `Valkey 9.1.2` where it is not Redis.
    #[must_use]
    pub fn server_version(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The id that distinguishes one run of one server from all others, if the server reports it.
    pub(crate) fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref()
    }

    /// Whether all servers report to have `DELIFEQ`, and the user may run it as far as that was tried.
    pub(crate) fn deletes_equal(&self) -> bool {
        self.deletes_equal
    }

    /// One sentence fragment for each remark to the operator; empty when there is none.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Keeps a remark, once.
    fn remark(&mut self, text: String) {
        let text = one_line(text.into(), LONGEST_REMARK).into_owned();
        if !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }
}

/// What to make of a server that is a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replicas {
    /// Refused: a client that begins with a replica has the wrong address.
    Refused,
    /// Accepted: a server that became a replica reports it in its answer to the request (READONLY), which is an outage.
    /// The driver then connects anew, and the server's name may lead to another server by then.
    TellThemselves,
}

/// The answer of each server to `INFO`.
pub(crate) async fn infos<D: Dialer>(servers: &Servers<D>) -> Answers {
    servers.everywhere(&["INFO"]).await
}

/// Looks at version, mode, role and eviction policy, as the servers report them, and tries the rights that scripts need.
pub(crate) async fn server<D: Dialer>(servers: &Servers<D>, calls: &Calls, infos: Answers) -> Result<Notes> {
    let mut notes = Notes::default();
    reported(infos, servers.placement(), calls, Replicas::Refused, &mut notes)?;
    rights(servers, calls, &mut notes).await?;
    if notes.deletes_equal {
        releases_by_value(servers, calls, &mut notes).await?;
    }
    Ok(notes)
}

/// The properties that the servers report of themselves. One that is away keeps none of the others from being looked at.
pub(crate) fn reported(
    infos: Answers,
    placement: Placement,
    calls: &Calls,
    replicas: Replicas,
    notes: &mut Notes,
) -> Result<()> {
    let mut away = None;
    notes.deletes_equal = !infos.is_empty();
    for (_, answer) in infos {
        notes.deletes_equal &= answer.is_ok();
        match answer {
            Ok(reply) => {
                let info = String::from_utf8_lossy(reply.bytes()?).into_owned();
                notes.deletes_equal &= has_delifeq(&info);
                look(&info, placement, calls.settings.eviction, replicas, notes)?;
            }
            Err(error) if error.is_withheld() => {
                let text = "info is denied or unknown: version, role and eviction policy were not checked";
                notes.remark(text.into());
            }
            // Whatever became of the question, what it was asked for has not left.
            Err(error) => match error.before_request().into_error(&calls.keys, None) {
                error if error.is_transient() => away = Some(error),
                error => return Err(error),
            },
        }
    }
    away.map_or(Ok(()), Err)
}

/// Whether the server has `DELIFEQ`: Valkey has from 9.0 on. (`DELEX … IFEQ`, of Redis 8.4, is another command.)
fn has_delifeq(info: &str) -> bool {
    let version = info.lines().find_map(|line| line.strip_prefix("valkey_version:"));
    version.and_then(|version| version.split('.').next()?.parse::<u32>().ok()).is_some_and(|major| major >= 9)
}

/// Judges what `INFO` says.
pub(crate) fn look(
    info: &str,
    placement: Placement,
    eviction: Eviction,
    replicas: Replicas,
    notes: &mut Notes,
) -> Result<()> {
    let misconfigured = |text: String| Err(Error::new(ErrorKind::Misconfigured, text));
    for (key, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
        match (key, value) {
            ("redis_version", version) => {
                notes.server = Some(one_line(version.to_owned().into(), LONGEST_REMARK).into_owned());
                let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
                if let (Some(major), Some(minor)) = (numbers.next(), numbers.next())
                    && (major, minor) < OLDEST
                {
                    return misconfigured(format!("the server is version {version}, the oldest supported is 6.2"));
                }
            }
            // Valkey also reports the version of Redis that it is like, before this one, and its mode by another name.
            ("valkey_version", version) => {
                notes.server = Some(one_line(format!("Valkey {version}").into(), LONGEST_REMARK).into_owned());
            }
            ("run_id", id) if !id.is_empty() => notes.run_id = Some(id.to_owned()),
            ("redis_mode" | "server_mode", "cluster") if placement != Placement::Slots => {
                return misconfigured("the server is a node of a cluster, and was addressed as a single one".into());
            }
            ("redis_mode" | "server_mode", "sentinel") => {
                return misconfigured(
                    "the server is a sentinel: it knows where the primary is, but keeps no data".into(),
                );
            }
            ("role", "slave") if replicas == Replicas::Refused => {
                return misconfigured(format!("{REPLICA} (role:slave); locks need the primary"));
            }
            ("maxmemory_policy", policy) if policy != "noeviction" => {
                let text = format!("the server may evict locks when its memory is full (maxmemory-policy {policy})");
                match eviction {
                    Eviction::Refuse => return misconfigured(text),
                    Eviction::Allow => notes.remark(text),
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Tries at every server each command that the scripts use, so that a missing right shows now and not in the first release.
async fn rights<D: Dialer>(servers: &Servers<D>, calls: &Calls, notes: &mut Notes) -> Result<()> {
    let tries =
        servers.homes().into_iter().map(async |(server, slots)| (server, rights_at(servers, calls, &slots).await));
    for (server, tried) in join_all(tries).await {
        let one_of_many = servers.placement() == Placement::Slots;
        let remarks = tried.map_err(|error| match one_of_many {
            true => error.at(&server),
            false => error,
        })?;
        for remark in remarks {
            notes.remark(if one_of_many { format!("{server}: {remark}") } else { remark });
        }
    }
    Ok(())
}

/// Tries at every server the command of a release without waiters. Where the user may not run it, releases are scripts, as
/// elsewhere.
async fn releases_by_value<D: Dialer>(servers: &Servers<D>, calls: &Calls, notes: &mut Notes) -> Result<()> {
    let tries = servers.homes().into_iter().map(async |(_, slots)| {
        let keys = calls.rights(&slots).keys;
        let probe = keys.iter().next().map(String::from_utf8_lossy).unwrap_or_default();
        servers.request(servers.slot(probe.as_bytes()), &Request::words(&["DELIFEQ", &probe, ""])).await
    });
    for tried in join_all(tries).await {
        match tried {
            Ok(_) => {}
            Err(error @ ExecError::Server { .. }) => {
                notes.deletes_equal = false;
                if error.is_withheld() {
                    notes.remark(NO_DELIFEQ.to_owned());
                }
            }
            Err(error) => return Err(error.into_error(&calls.keys, None)),
        }
    }
    Ok(())
}

/// Tries them at one server, and returns the other refusals there.
async fn rights_at<D: Dialer>(servers: &Servers<D>, calls: &Calls, slots: &RangeInclusive<u16>) -> Result<Vec<String>> {
    let call = calls.rights(slots);
    let explain = |error: ExecError| match error.is_read_only() {
        true => Error::new(ErrorKind::Misconfigured, format!("{REPLICA}; locks need the primary ({error})")),
        false => error.into_error(&calls.keys, Some(call.script)),
    };
    // Both ways of calling a script need a right of their own.
    let slot = call.keys.iter().next().map_or(0, |key| servers.slot(key));
    let reply = servers.request(slot, &Request::by_source(&call)).await.map_err(explain)?;
    servers.request(slot, &Request::by_digest(&call)).await.map_err(explain)?;
    let (mut lacking, mut remarks) = (Vec::new(), Vec::new());
    for pair in reply.items()?.chunks_exact(2) {
        let command = String::from_utf8_lossy(pair[0].bytes()?).to_lowercase();
        let text = String::from_utf8_lossy(pair[1].bytes()?).into_owned();
        let error = ExecError::refused(&format!("{} [{command}]", text.trim_start_matches('-')));
        if error.is_read_only() {
            return Err(explain(error));
        }
        if error.is_denied() {
            let by_rule = text.contains(" key") || text.contains("channel");
            if by_rule {
                return Err(explain(error));
            }
            if !lacking.contains(&command) {
                lacking.push(command);
            }
        } else {
            remarks.push(format!("{command} was refused when it was tried: {text}"));
        }
    }
    if lacking.is_empty() {
        return Ok(remarks);
    }
    let rules: Vec<String> = lacking.iter().map(|command| format!("+{command}")).collect();
    let text = format!("the user has no right to run {}; the rules needed are {}", lacking.join(", "), rules.join(" "));
    Err(Error::new(ErrorKind::Denied, text))
}
