//! Where `run` and `queue run` report to: standard output with `--format json`, or what `--report` names. Lines are written by a
//! thread of their own, since a lease is renewed meanwhile.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::exit::Failure;
use crate::printer::Format;

/// What `--report` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    File(PathBuf),
    /// A descriptor that is open when this program starts.
    Descriptor(i32),
}

impl Target {
    /// A number is a descriptor; `./3` is the file of that name.
    pub(crate) fn parse(word: &OsStr) -> Self {
        match word.to_str().and_then(|word| word.parse().ok()) {
            Some(number @ 0..) => Self::Descriptor(number),
            _ => Self::File(word.into()),
        }
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        match self {
            Self::File(path) => options.append(true).create(true).open(path),
            // Opened anew, so that the program that runs does not inherit it.
            Self::Descriptor(number) => {
                let file = options.append(true).open(format!("/proc/self/fd/{number}"))?;
                if *number > 2 {
                    nix::unistd::close(*number)?;
                }
                Ok(file)
            }
        }
    }
}

struct Line {
    text: String,
    written: oneshot::Sender<io::Result<()>>,
}

/// Takes one JSON object a line.
#[derive(Debug)]
pub(crate) struct Results {
    lines: Option<mpsc::Sender<Line>>,
    place: String,
}

impl Results {
    /// # Errors
    ///
    /// The report cannot be opened.
    pub(crate) fn to(report: Option<&Target>, format: Format) -> Result<Self, Failure> {
        let (place, writer): (_, Box<dyn Write + Send>) = match (report, format) {
            (Some(target), _) => {
                let place = match target {
                    Target::File(path) => path.display().to_string(),
                    Target::Descriptor(number) => format!("descriptor {number}"),
                };
                let opened = target.open();
                let file =
                    opened.map_err(|error| Failure::usage(format!("--report: {place} cannot be opened: {error}")))?;
                (place, Box::new(file))
            }
            (None, Format::Json) => (String::from("standard output"), Box::new(io::stdout())),
            (None, Format::Text) => return Ok(Self { lines: None, place: String::new() }),
        };
        let (sender, receiver) = mpsc::channel(1);
        let thread = thread::Builder::new().name("results".into()).spawn(move || write(receiver, writer));
        thread.map_err(|error| Failure::system(&error))?;
        Ok(Self { lines: Some(sender), place })
    }

    /// Returns when it is written; at once if no results were requested.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) async fn line(&self, result: &impl Serialize) -> Result<(), Failure> {
        let Some(lines) = &self.lines else { return Ok(()) };
        let text = serde_json::to_string(result).map_err(|error| Failure::unwritten(&self.place, &error.into()))?;
        let (written, reply) = oneshot::channel();
        let ended = || Err(io::Error::other("the thread that writes has ended"));
        let written = match lines.send(Line { text: text + "\n", written }).await {
            Ok(()) => reply.await.unwrap_or_else(|_| ended()),
            Err(_) => ended(),
        };
        written.map_err(|error| Failure::unwritten(&self.place, &error))
    }
}

fn write(mut lines: mpsc::Receiver<Line>, mut writer: Box<dyn Write + Send>) {
    while let Some(line) = lines.blocking_recv() {
        let result = writer.write_all(line.text.as_bytes()).and_then(|()| writer.flush());
        let _ = line.written.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_descriptor_and_the_rest_is_a_file() {
        assert_eq!(Target::parse(OsStr::new("3")), Target::Descriptor(3));
        for file in ["./3", "-3", "report.json", ""] {
            assert_eq!(Target::parse(OsStr::new(file)), Target::File(file.into()), "{file}");
        }
    }
}
