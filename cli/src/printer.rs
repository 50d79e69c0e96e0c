//! What the program says on standard error: lines for people, and a line that is rewritten while a lock is waited for.

use std::ffi::OsString;
use std::io::IsTerminal as _;

use anstyle::{AnsiColor, Style};
use rustix::termios::tcgetwinsize;

use crate::exit::Failure;
use crate::messages::{pass, say};

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl Format {
    /// What the words of a command line that could not be read ask for.
    pub(crate) fn asked_for(words: impl Iterator<Item = OsString>) -> Self {
        let words: Vec<OsString> = words.take_while(|word| word != "--").collect();
        let is_json = words.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
        if is_json || words.iter().any(|word| word == "--format=json") { Self::Json } else { Self::Text }
    }
}

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volume {
    Normal,
    /// Errors and results only.
    Quiet,
}

/// The program's output. Colours are left out where they would not be seen, and where `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    pub(crate) format: Format,
    pub(crate) volume: Volume,
}

pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const FAINT: Style = Style::new().dimmed();
const CLEAR_LINE: &str = "\r\x1b[K";

impl Printer {
    /// Says why nothing comes of it.
    pub(crate) fn error(self, text: &str) {
        if !text.is_empty() {
            say(format!("tenure: {ERROR}error:{ERROR:#} {text}\n"));
        }
    }

    /// Prints a warning that calls for action.
    pub(crate) fn warn(self, text: &str) {
        if self.volume == Volume::Normal {
            say(format!("tenure: {WARNING}{text}{WARNING:#}\n"));
        }
    }

    /// Says something that is good to know.
    pub(crate) fn note(self, text: &str) {
        if self.volume == Volume::Normal {
            say(format!("tenure: {text}\n"));
        }
    }

    /// Prints a line of a result, over a line that is rewritten if there is one.
    pub(crate) fn print_over(self, rewritten: bool, line: &str) -> Result<(), Failure> {
        if rewritten {
            pass(CLEAR_LINE);
        }
        self.print(line)
    }

    /// A line that is rewritten; none where it would not be seen.
    pub(crate) fn progress(self) -> Option<Progress> {
        let moves = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let watched = self.volume == Volume::Normal && std::io::stderr().is_terminal() && moves;
        watched.then_some(Progress { shown: false })
    }
}

/// A line on the terminal that is rewritten until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn show(&mut self, text: &str) {
        let width = match tcgetwinsize(std::io::stderr()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col.max(20)),
            _ => 80, // some terminals do not say
        };
        let short: String = text.chars().take(width - 1).collect();
        pass(CLEAR_LINE); // not a colour: it stays where NO_COLOR is set
        say(format!("{FAINT}{short}{FAINT:#}"));
        self.shown = true;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            pass(CLEAR_LINE);
        }
    }
}
