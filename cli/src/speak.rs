//! What the program says: lines for people on standard error, results on standard output, and a line that is rewritten
//! while somebody waits.

use std::io::{IsTerminal, Write as _};

use anstyle::{AnsiColor, Style};
use rustix::termios::tcgetwinsize;
use serde::Serialize;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volume {
    Normal,
    /// Errors and results only.
    Quiet,
}

/// The program's voice. Colours are left out where nobody sees them, and where `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voice {
    pub(crate) format: Format,
    pub(crate) volume: Volume,
}

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const FAINT: Style = Style::new().dimmed();
const CLEAR_LINE: &str = "\r\x1b[K";

impl Voice {
    /// Says why nothing comes of it.
    pub(crate) fn error(self, text: &str) {
        anstream::eprintln!("tenure: {ERROR}error:{ERROR:#} {text}");
    }

    /// Says something that somebody should act on.
    pub(crate) fn warn(self, text: &str) {
        if self.volume == Volume::Normal {
            anstream::eprintln!("tenure: {WARNING}{text}{WARNING:#}");
        }
    }

    /// Says something that is good to know.
    pub(crate) fn note(self, text: &str) {
        if self.volume == Volume::Normal {
            anstream::eprintln!("tenure: {text}");
        }
    }

    /// Prints a line of a result. Nobody there to read it is no failure.
    pub(crate) fn print(self, line: &str) {
        let _ = writeln!(anstream::stdout(), "{line}");
    }

    /// Prints bytes as they are.
    pub(crate) fn bytes(self, bytes: &[u8]) {
        let _ = std::io::stdout().write_all(bytes);
    }

    /// Prints a line of a result, over a line that is rewritten if there is one.
    pub(crate) fn print_over(self, rewritten: bool, line: &str) {
        if rewritten {
            eprint!("{CLEAR_LINE}");
        }
        self.print(line);
    }

    /// Prints a line of a result that begins with a word of `doctor`.
    pub(crate) fn print_coloured(self, word: &str, line: &str) {
        let style = match word {
            "fine" => AnsiColor::Green.on_default(),
            "note" => WARNING,
            _ => ERROR,
        };
        let _ = writeln!(anstream::stdout(), "{style}{word:<8}{style:#}{line}");
    }

    /// Prints a result for programs, in one line.
    pub(crate) fn json(self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => drop(writeln!(std::io::stdout(), "{text}")),
            Err(error) => self.error(&format!("the result cannot be written as JSON: {error}")),
        }
    }

    /// A line that is rewritten; none where nobody watches.
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
        eprint!("{CLEAR_LINE}"); // not a colour: it stays where NO_COLOR is set
        anstream::eprint!("{FAINT}{short}{FAINT:#}");
        let _ = std::io::stderr().flush();
        self.shown = true;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            eprint!("{CLEAR_LINE}");
            let _ = std::io::stderr().flush();
        }
    }
}
