//! What the command line can say.

use clap::{Parser, Subcommand};

use crate::operate::{ForceRelease, Inspect, Watch};
use crate::queue::Queue;
use crate::run::Run;
use crate::speak::{Format, Voice, Volume};

/// Distributed locks and delay queues, from a shell
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 80, disable_help_subcommand = true)]
#[command(after_help = "Durations are 10s, 1m30s, 250ms. More of a command: tenure COMMAND --help")]
pub(crate) struct Args {
    /// The backend: sqlite:PATH, redis://…, postgres://… [default: $TENURE_URL, or the SQLite file of this user]
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    pub(crate) url: Option<String>,
    /// How results are printed: text or json
    #[arg(
        long,
        global = true,
        value_name = "HOW",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Everywhere"
    )]
    format: Format,
    /// Say only what went wrong
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Inspect(Inspect),
    Watch(Watch),
    ForceRelease(ForceRelease),
    /// Look at the servers; exit 0 if all is fine, 1 if there are notes, 2 for danger
    Doctor,
    Queue(Queue),
}

impl Args {
    pub(crate) fn voice(&self) -> Voice {
        Voice { format: self.format, volume: if self.quiet { Volume::Quiet } else { Volume::Normal } }
    }
}
