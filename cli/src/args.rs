//! The command line.

use clap::{Parser, Subcommand};

use crate::operate::{Bench, Conformance, Doctor, ForceRelease, Inspect, Ls, Ping, Schema, Watch};
use crate::pages::{Completions, Help, Man};
use crate::printer::{Format, Printer, Volume};
use crate::queue::Queue;
use crate::run::Run;

/// All commands and options on one screen.
const HELP: &str = "\
{about}
{usage-heading} {usage}
Durations are 10s, 1m30s, 250ms. More of a command: tenure help COMMAND
{all-args}{after-help}";

/// Distributed locks and delay queues, from a shell
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 80, disable_help_subcommand = true)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(help_template = HELP)]
pub(crate) struct Args {
    /// sqlite:PATH, redis://… [default: $TENURE_URL or sqlite:]
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
    /// Print errors only
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    quiet: bool,
    /// Print help
    #[arg(short, long, global = true, action = clap::ArgAction::Help, help_heading = "Everywhere")]
    help: Option<bool>,
    /// Print version
    #[arg(short = 'V', long, action = clap::ArgAction::Version, help_heading = "Everywhere")]
    version: Option<bool>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Ls(Ls),
    Inspect(Inspect),
    Watch(Watch),
    ForceRelease(ForceRelease),
    Doctor(Doctor),
    Queue(Queue),
    Ping(Ping),
    Bench(Bench),
    Conformance(Conformance),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
    #[command(hide = true)] // the help of all commands says how it is called, and has no line left
    Help(Help),
}

impl Args {
    pub(crate) fn printer(&self) -> Printer {
        Printer { format: self.format, volume: if self.quiet { Volume::Quiet } else { Volume::Normal } }
    }
}
