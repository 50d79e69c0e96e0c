//! What a client process writes down of each operation, as a line of text each.
//!
//! Instants are nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tenure_conformance::BoxError;

use super::jobs::{Entry, word};

/// Whose operation: a process is started again under the same number, with its next life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin {
    pub(crate) process: usize,
    pub(crate) life: u32,
    pub(crate) task: u32,
    /// The number of the operation in its task; 0 for what concerns the task or the whole process.
    pub(crate) op: u64,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) by: Origin,
    pub(crate) name: String,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// About to ask for the lock. `inside`: the operation whose hold is entered once more.
    Asked { how: &'static str, inside: Option<u64> },
    /// Granted, and believed to be held until then if nothing is renewed.
    Granted { fence: u64, until: Duration },
    /// At this instant the guard said that the lock is held, and believed it until then.
    Held { until: Duration },
    /// The guard reported a loss: by its own clock, or because the backend no longer knows the lease.
    Lost { expired: bool },
    /// About to release or to drop the guard. `held`: what it said just before.
    Leaving { how: &'static str, held: bool },
    /// The release returned this.
    Left { answer: String },
    /// The lock was busy, and the task did not want to wait.
    Busy,
    /// The future was dropped before it was ready.
    GaveUp,
    /// The operation failed: the kind of the error, and its text without blanks.
    Failed { kind: String, text: String },
    /// The task came to its end after the faults.
    Finished,
    /// The process closed its client: the outcome, and what the client had under way afterwards.
    Closed { outcome: String, holds: usize, waiters: usize, cleanups: usize },
    /// What the quorum counted until then: grants, and those that took one round.
    Elections { won: u64, in_one_round: u64 },
    /// Of a message of a queue; its name is the event's.
    Job(Entry),
}

/// The ways of asking and of leaving; a log holds no others.
const WAYS: &[&str] =
    &["try", "within", "acquire", "cancelled", "fixed", "enter", "nested", "last", "release", "drop", "abort"];

fn way(word: &str) -> Result<&'static str, BoxError> {
    Ok(WAYS.iter().find(|way| **way == word).ok_or_else(|| format!("there is no way \"{word}\""))?)
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { process, life, task, op } = self.by;
        write!(f, "{} {process} {life} {task} {op} {} ", self.at.as_nanos(), self.name)?;
        match &self.what {
            What::Asked { how, inside: None } => write!(f, "asked {how}"),
            What::Asked { how, inside: Some(op) } => write!(f, "asked {how} {op}"),
            What::Granted { fence, until } => write!(f, "granted {fence} {}", until.as_nanos()),
            What::Held { until } => write!(f, "held {}", until.as_nanos()),
            What::Lost { expired } => write!(f, "lost {expired}"),
            What::Leaving { how, held } => write!(f, "leaving {how} {held}"),
            What::Left { answer } => write!(f, "left {}", word(answer)),
            What::Busy => f.write_str("busy"),
            What::GaveUp => f.write_str("gave-up"),
            What::Failed { kind, text } => write!(f, "failed {} {}", word(kind), word(text)),
            What::Finished => f.write_str("finished"),
            What::Closed { outcome, holds, waiters, cleanups } => {
                write!(f, "closed {} {holds} {waiters} {cleanups}", word(outcome))
            }
            What::Elections { won, in_one_round } => write!(f, "elections {won} {in_one_round}"),
            What::Job(entry) => entry.fmt(f),
        }
    }
}

impl FromStr for Event {
    type Err = BoxError;

    fn from_str(line: &str) -> Result<Self, BoxError> {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, process, life, task, op, name, what @ ..] = words.as_slice() else {
            return Err(format!("no line of a log: {line:?}").into());
        };
        let nanos = |text: &str| text.parse().map(Duration::from_nanos);
        let what = match what {
            ["asked", how] => What::Asked { how: way(how)?, inside: None },
            ["asked", how, op] => What::Asked { how: way(how)?, inside: Some(op.parse()?) },
            ["granted", fence, until] => What::Granted { fence: fence.parse()?, until: nanos(until)? },
            ["held", until] => What::Held { until: nanos(until)? },
            ["lost", expired] => What::Lost { expired: expired.parse()? },
            ["leaving", how, held] => What::Leaving { how: way(how)?, held: held.parse()? },
            ["left", answer] => What::Left { answer: (*answer).into() },
            ["busy"] => What::Busy,
            ["gave-up"] => What::GaveUp,
            ["failed", kind, text] => What::Failed { kind: (*kind).into(), text: (*text).into() },
            ["finished"] => What::Finished,
            ["closed", outcome, holds, waiters, cleanups] => What::Closed {
                outcome: (*outcome).into(),
                holds: holds.parse()?,
                waiters: waiters.parse()?,
                cleanups: cleanups.parse()?,
            },
            ["elections", won, one] => What::Elections { won: won.parse()?, in_one_round: one.parse()? },
            words => What::Job(Entry::parse(words)?.ok_or_else(|| format!("no line of a log: {line:?}"))?),
        };
        let by = Origin { process: process.parse()?, life: life.parse()?, task: task.parse()?, op: op.parse()? };
        Ok(Self { at: nanos(at)?, by, name: (*name).into(), what })
    }
}

/// The events of a log. A last line without its end was cut off by a kill and does not count.
pub(crate) fn read(text: &str) -> Result<Vec<Event>, BoxError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_a_cut_one_is_left_out() {
        let log = "\
1 0 1 2 3 hot-0 asked nested 7\n2 0 1 2 3 hot-0 granted 9 50\n3 0 1 2 3 hot-0 held 60\n4 0 1 2 3 hot-0 lost true
5 0 1 2 3 hot-0 leaving drop false\n6 0 1 2 3 hot-0 left not-held\n7 0 1 2 3 hot-0 failed Lost lease_lost:_so
8 0 1 0 0 - closed ok 0 0 1\n9 0 1 2 3 0.1.2.3.0 pushing done-2 5 - 7 9\n9 0 1 2 3 0.1.2.3.0 pushed stored
9 0 1 2 3 0.1.2.3.0 got 8 7 1 First\n9 0 1 2 3 0.1.2.3.0 settling 7 ack 0\n9 0 1 2 3 0.1.2.3.0 settled 7 Done
9 0 1 0 0 - elections 5 4\n9 0 1 1 0 - finished\n";
        let events = read(&format!("{log}10 0 1 2 4 hot-0 ask")).unwrap();
        let again: String = events.iter().map(|event| format!("{event}\n")).collect();
        assert_eq!(again, log);
        assert!(read("1 0 1 2 3 hot-0 asked politely\n").is_err());
    }
}
