//! What the command line can say about queues.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use crate::duration::parse;

/// Push messages, look at queues, run a program for each message
#[derive(Debug, clap::Args)]
pub(crate) struct Queue {
    /// Names of queues are written in hexadecimal digits
    #[arg(long, global = true)]
    pub(super) name_hex: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Push(Push),
    Stats(Stats),
    Peek(Peek),
    List(List),
    /// Hand out no more messages, until resumed
    Pause(Named),
    /// Hand out messages again
    Resume(Named),
    Cancel(Cancel),
    Purge(Purge),
    Dead(Dead),
    Requeue(Requeue),
    DeadPurge(DeadPurge),
    Run(Run),
}

impl Command {
    pub(super) fn queue(&self) -> &OsStr {
        match self {
            Self::Push(Push { queue, .. })
            | Self::Peek(Peek { queue, .. })
            | Self::List(List { queue, .. })
            | Self::Pause(Named { queue })
            | Self::Resume(Named { queue })
            | Self::Cancel(Cancel { queue, .. })
            | Self::Purge(Purge { queue, .. })
            | Self::Dead(Dead { queue, .. })
            | Self::Requeue(Requeue { queue, .. })
            | Self::DeadPurge(DeadPurge { queue, .. })
            | Self::Run(Run { queue, .. }) => queue,
            Self::Stats(Stats { queue }) => queue.as_deref().unwrap_or_default(),
        }
    }
}

/// Store a message; prints its id, or that its id is known already
#[derive(Debug, clap::Args)]
pub(super) struct Push {
    /// Deliver it after this time
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(super) delay: Option<Duration>,
    /// A name for it: pushed again, it is not stored a second time
    #[arg(long)]
    pub(super) id: Option<OsString>,
    /// Take the place of a message of this id that waits
    #[arg(long, requires = "id")]
    pub(super) replace: bool,
    /// Deliver it no later than this after it is due
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(super) ttl: Option<Duration>,
    /// No two messages of this key at once
    #[arg(long)]
    pub(super) key: Option<OsString>,
    /// How often it is delivered before it is a dead letter
    #[arg(long, value_name = "N")]
    pub(super) attempts: Option<u32>,
    /// Read it from a file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    pub(super) file: Option<PathBuf>,
    /// The queue
    pub(super) queue: OsString,
    /// What it says [default: what comes from standard input]
    pub(super) message: Option<OsString>,
}

/// Count messages, of one queue or of all
#[derive(Debug, clap::Args)]
pub(super) struct Stats {
    /// The queue [default: all]
    pub(super) queue: Option<OsString>,
}

/// Show a message without receiving it: the next one, or the one with an id; exit 1 if there is none
#[derive(Debug, clap::Args)]
pub(super) struct Peek {
    /// The queue
    pub(super) queue: OsString,
    /// The message [default: the next one]
    pub(super) id: Option<OsString>,
}

/// List messages in the order in which they are due
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Those that are being worked on, in place of those that wait
    #[arg(long)]
    pub(super) in_flight: bool,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(super) most: usize,
    /// The queue
    pub(super) queue: OsString,
}

/// Names a queue.
#[derive(Debug, clap::Args)]
pub(super) struct Named {
    /// The queue
    pub(super) queue: OsString,
}

/// Remove a message that waits; exit 1 if there is none
#[derive(Debug, clap::Args)]
pub(super) struct Cancel {
    /// The queue
    pub(super) queue: OsString,
    /// The message
    pub(super) id: OsString,
}

/// Remove all messages that wait
#[derive(Debug, clap::Args)]
pub(super) struct Purge {
    /// Do not ask
    #[arg(long)]
    pub(super) yes: bool,
    /// The queue
    pub(super) queue: OsString,
}

/// List dead letters, those that died first in front
#[derive(Debug, clap::Args)]
pub(super) struct Dead {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(super) most: usize,
    /// The queue
    pub(super) queue: OsString,
}

/// Which dead letters.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Which {
    /// All of them
    #[arg(long)]
    pub(super) all: bool,
    /// So many, those that died first
    #[arg(long, value_name = "N")]
    pub(super) oldest: Option<u64>,
    /// Those with these ids
    #[arg(value_name = "ID")]
    pub(super) ids: Vec<OsString>,
}

/// Make messages out of dead letters again; prints how many
#[derive(Debug, clap::Args)]
pub(super) struct Requeue {
    /// Deliver them after this time
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(super) delay: Option<Duration>,
    /// The queue
    pub(super) queue: OsString,
    #[command(flatten)]
    pub(super) which: Which,
}

/// Remove dead letters for good; prints how many
#[derive(Debug, clap::Args)]
pub(super) struct DeadPurge {
    /// Do not ask
    #[arg(long)]
    pub(super) yes: bool,
    /// The queue
    pub(super) queue: OsString,
    #[command(flatten)]
    pub(super) which: Which,
}

/// What `--help` says below the options.
const AFTER_RUN: &str = "\
The message is the program's standard input; TENURE_MESSAGE, TENURE_ATTEMPT and
TENURE_FENCE tell the rest. Exit 0 acknowledges it, 65 makes it a dead letter,
anything else has it tried again, later each time; the last line of standard
error is kept as the reason. TERM or INT: no more messages, programs finish; a
second one ends them, and their messages come again.";

/// Run a program for each message
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_RUN)]
pub(super) struct Run {
    /// How many programs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) concurrency: u16,
    /// How long a message outlives this program and its backend
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse)]
    pub(super) lease: Duration,
    /// Send TERM this long before the lease ends [default: a quarter of it]
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(super) term_before: Option<Duration>,
    /// The first wait before a message is tried again, doubled each time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse)]
    pub(super) retry: Duration,
    /// The longest wait before a message is tried again
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse)]
    pub(super) retry_most: Duration,
    /// Stop when no message is due
    #[arg(long)]
    pub(super) drain: bool,
    /// The queue
    pub(super) queue: OsString,
    /// The program and its arguments; no shell reads them
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(super) program: Vec<OsString>,
}
