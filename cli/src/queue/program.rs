//! One program, for one message: under the message's lease from its start to its end.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, kill_process_group};
use tenure::queue::Delivery;
use tenure::{HoldState, LostReason};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep, timeout};

use super::id;
use super::workshop::{Phase, Workshop};
use crate::name;
use crate::run::{Act, ChildEnd, Prepared, Watchdog};

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) end: ChildEnd,
    /// Whether the lease was about to end before it did.
    pub(super) lost: bool,
    /// Whether it was told to end, since this command is to.
    pub(super) told: bool,
    /// The last line that it wrote to standard error.
    last_line: String,
}

impl Ended {
    /// In words.
    pub(super) fn describe(&self) -> String {
        match self.last_line.as_str() {
            "" => self.end.describe(),
            line => format!("{}: {line}", self.end.describe()),
        }
    }
}

/// How long after the end of a program its standard error is read, which others may have inherited.
const REST: Duration = Duration::from_millis(200);

pub(super) async fn run_program(shop: &Workshop, delivery: &Delivery<Vec<u8>>) -> io::Result<Ended> {
    let input = memory(delivery.payload().as_bytes())?;
    let variables = [
        ("TENURE_QUEUE", name::os(&shop.queue)),
        ("TENURE_MESSAGE", id::show(delivery.id()).into()),
        ("TENURE_ATTEMPT", delivery.attempt().to_string().into()),
        ("TENURE_FENCE", delivery.fence().to_string().into()),
    ];
    let mut prepared = Prepared::start(&shop.run.program, &variables, Stdio::piped())?;
    let errors = prepared.take_errors().map(OwnedFd::from).map(pipe::Receiver::from_owned_fd).transpose()?;
    let (leader, mut last_line) = (prepared.leader(), LastLine::default());
    let mut ended = shop.children.expect(leader);
    if let Err(error) = prepared.ready().await {
        prepared.give_up();
        return Err(error);
    }
    let mut launch = prepared.go(input.as_fd())?;
    let mut phase = shop.phase.clone();
    let mut watchdog = Watchdog::new(shop.run.lease, shop.term_before);
    let (mut told, mut not_run) = (false, None);
    let mut extending = std::pin::pin!(extend(delivery, shop.run.lease));
    let end = {
        let mut copying = std::pin::pin!(last_line.copy(errors));
        let mut copied = false;
        let end = loop {
            let pause = match watchdog.act(Instant::now(), delivery.remaining(), state(delivery)) {
                Act::Wait(pause) => pause,
                Act::Term(_) | Act::TermLate(_) => {
                    let _ = kill_process_group(leader, Signal::TERM);
                    Duration::ZERO
                }
                Act::Kill => {
                    let _ = kill_process_group(leader, Signal::KILL);
                    Duration::ZERO
                }
            };
            tokio::select! {
                biased;
                end = &mut ended => break end.map_err(io::Error::other)?,
                () = &mut extending => unreachable!("it is extended until the program has ended"),
                failure = launch.failure(), if launch.is_pending() => not_run = failure,
                Ok(_) = phase.wait_for(|phase| *phase == Phase::Ending), if !told => {
                    told = true;
                    let _ = kill_process_group(leader, Signal::TERM);
                }
                () = &mut copying, if !copied => copied = true,
                () = sleep(pause.max(Duration::from_millis(1))) => {}
            }
        };
        if !copied {
            let _ = timeout(REST, &mut copying).await;
        }
        end
    };
    if launch.is_pending() {
        not_run = launch.failure().await;
    }
    match not_run {
        Some(error) => Err(error),
        None => Ok(Ended { end, lost: watchdog.has_acted(), told, last_line: last_line.text() }),
    }
}

/// The message as a file that nobody else sees, to be read from its beginning.
fn memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("message", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

fn state(delivery: &Delivery<Vec<u8>>) -> HoldState {
    match (delivery.is_lost(), delivery.remaining().is_zero()) {
        (false, _) => HoldState::Held,
        (true, true) => HoldState::Lost(LostReason::Expired),
        (true, false) => HoldState::Lost(LostReason::Gone),
    }
}

/// Extends the lease at a third of it. Never returns.
async fn extend(delivery: &Delivery<Vec<u8>>, lease: Duration) {
    let mut pause = lease / 3;
    loop {
        sleep(pause).await;
        pause = if delivery.extend(lease).await.is_ok() { lease / 3 } else { lease / 20 };
    }
}

/// What a program says on standard error, passed on as it comes.
#[derive(Debug, Default)]
struct LastLine {
    line: Vec<u8>,
    before: Vec<u8>,
}

/// No reason is longer than this.
const LONGEST: usize = 1024;

impl LastLine {
    async fn copy(&mut self, errors: Option<pipe::Receiver>) {
        let Some(mut errors) = errors else { return };
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = errors.read(&mut bytes).await {
            let _ = io::stderr().write_all(&bytes[..count]);
            self.add(&bytes[..count]);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' if self.line.iter().all(u8::is_ascii_whitespace) => self.line.clear(),
                b'\n' => self.before = std::mem::take(&mut self.line),
                byte if self.line.len() < LONGEST => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn text(&self) -> String {
        let empty = self.line.iter().all(u8::is_ascii_whitespace);
        String::from_utf8_lossy(if empty { &self.before } else { &self.line }).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_kept() {
        let mut lines = LastLine::default();
        assert_eq!(lines.text(), "");
        lines.add(b"first\nsec");
        assert_eq!(lines.text(), "sec");
        lines.add(b"ond\n\n  \n");
        assert_eq!(lines.text(), "second");
        lines.add(&[b'x'; 5000]);
        assert_eq!(lines.text().len(), LONGEST);
    }
}
