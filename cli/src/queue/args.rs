//! The command line of commands about queues.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use clap::builder::TypedValueParser as _;

use crate::child::OnExit;
use crate::duration::parse;
use crate::results::Target;

/// Push messages, look at queues, run a program for each message
#[derive(Debug, clap::Args)]
pub(crate) struct Queue {
    /// Names of queues are written in hexadecimal digits
    #[arg(long, global = true)]
    pub(super) name_hex: bool,
    /// Ids of messages are written in hexadecimal digits
    #[arg(long, global = true)]
    pub(super) id_hex: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Push(Push),
    Stats(Stats),
    Peek(Peek),
    List(List),
    /// Deliver no more messages until resume
    Pause(Named),
    /// Deliver messages again
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
    /// An id: a message that is known by it is not stored again
    #[arg(long)]
    pub(super) id: Option<OsString>,
    /// Replace the waiting message with this id
    #[arg(long, requires = "id")]
    pub(super) replace: bool,
    /// Deliver it no later than this after it is due
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(super) ttl: Option<Duration>,
    /// Deliver no two messages of this key at the same time
    #[arg(long)]
    pub(super) key: Option<OsString>,
    /// Number of deliveries after which it is a dead letter
    #[arg(long, value_name = "N")]
    pub(super) attempts: Option<u32>,
    /// Read it from a file; - is standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "message")]
    pub(super) file: Option<PathBuf>,
    /// Store each line of the input as a message, and print how many
    #[arg(long, conflicts_with_all = ["message", "id"])]
    pub(super) lines: bool,
    /// The queue
    pub(super) queue: OsString,
    /// The message [default: read from standard input]
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
    /// List messages in flight instead of waiting ones
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

/// Remove a waiting message; exit 1 if there is none
#[derive(Debug, clap::Args)]
pub(super) struct Cancel {
    /// The queue
    pub(super) queue: OsString,
    /// The message
    pub(super) id: OsString,
}

/// Remove all waiting messages
#[derive(Debug, clap::Args)]
pub(super) struct Purge {
    /// Do not ask
    #[arg(long)]
    pub(super) yes: bool,
    /// The queue
    pub(super) queue: OsString,
}

/// List dead letters, in the order in which they died
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
    /// All dead letters
    #[arg(long)]
    pub(super) all: bool,
    /// Only this many, in the order in which they died
    #[arg(long, value_name = "N")]
    pub(super) oldest: Option<u64>,
    /// The dead letters with these ids
    #[arg(value_name = "ID")]
    pub(super) ids: Vec<OsString>,
}

/// Turn dead letters into messages again; prints how many
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
TENURE_FENCE hold the rest. Exit 0 acknowledges it, 65 makes it a dead letter,
anything else has it tried again, later each time; the last line of standard
error is kept as the reason. TERM or INT: no more messages, programs finish; a
second one asks them to end (TERM), a third kills them, and their messages come
again. A program that cannot be run ends the command with 126 or 127.";

/// Run a program for each message
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_RUN)]
pub(super) struct Run {
    /// How many programs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) concurrency: u16,
    /// Length of a message's lease, extended while its program runs
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse)]
    pub(super) lease: Duration,
    /// Send TERM this long before the lease ends [default: a quarter of it]
    #[arg(long, value_name = "TIME", value_parser = parse)]
    pub(super) term_before: Option<Duration>,
    /// First wait before a message is retried; doubled each time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse)]
    pub(super) retry: Duration,
    /// Longest wait before a message is retried
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse)]
    pub(super) retry_most: Duration,
    /// Stop when no message is due
    #[arg(long)]
    pub(super) drain: bool,
    /// What happens to processes that a program leaves behind
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "kill",
        hide_possible_values = true,
        help = "Processes that a program leaves behind: kill, wait, leave"
    )]
    pub(super) on_exit: OnExit,
    /// Append results, an object of JSON each, to a file or to an open descriptor
    #[arg(long, value_name = "FILE|FD", value_parser = clap::builder::OsStringValueParser::new().map(|word| Target::parse(&word)))]
    pub(super) report: Option<Target>,
    /// The queue
    pub(super) queue: OsString,
    /// The program and its arguments; no shell reads them
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    #[arg(value_hint = clap::ValueHint::CommandWithArguments)]
    pub(super) program: Vec<OsString>,
}
