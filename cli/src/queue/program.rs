//! One program, for one message: under the message's lease from its start to its end.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use tenure::queue::Delivery;
use tenure::{HoldState, LostReason};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{sleep, timeout};

use super::id;
use super::shared::Shared;
use crate::child::{Kin, Lease, Order, Orders, Prepared, Report, Supervised, Supervisor, Watchdog};
use crate::exit::{self, Failure};
use crate::{messages, name};

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) report: Report,
    /// The last line that it wrote to standard error.
    last_line: String,
}

impl Ended {
    /// In words.
    pub(super) fn describe(&self) -> String {
        let end = self.report.child.describe();
        if self.last_line.is_empty() { end } else { format!("{end}: {}", self.last_line) }
    }
}

/// How long after the end of a program its standard error is read, which others may have inherited.
const REST: Duration = Duration::from_millis(200);

impl Orders for broadcast::Receiver<Order> {
    async fn next(&mut self) -> Order {
        loop {
            match self.recv().await {
                Ok(order) => return order,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// The lease of a message, which is lost by the clock alone.
impl Lease for Delivery<Vec<u8>> {
    fn state(&self) -> HoldState {
        match (self.is_lost(), Delivery::remaining(self).is_zero()) {
            (false, _) => HoldState::Held,
            (true, true) => HoldState::Lost(LostReason::Expired),
            (true, false) => HoldState::Lost(LostReason::Gone),
        }
    }

    fn remaining(&self) -> Duration {
        Delivery::remaining(self)
    }

    async fn lost(&self) {
        std::future::pending().await
    }
}

/// # Errors
///
/// The program cannot be run.
pub(super) async fn run_program(shop: &Shared, delivery: &Delivery<Vec<u8>>) -> Result<Ended, Failure> {
    let cannot = |error: io::Error| Failure::new(exit::CANNOT_RUN, format!("cannot start a process: {error}"));
    let input = memory(delivery.payload().as_bytes()).map_err(cannot)?;
    let fence = delivery.fence().to_string();
    let mark = format!("TENURE_FENCE={fence}").into_bytes();
    let variables = [
        ("TENURE_QUEUE", name::os(&shop.queue)),
        ("TENURE_MESSAGE", id::show(delivery.id()).into()),
        ("TENURE_ATTEMPT", delivery.attempt().to_string().into()),
        ("TENURE_FENCE", fence.into()),
    ];
    let mut orders = shop.orders.subscribe();
    let mut prepared = Prepared::start(&shop.run.program, &variables, Stdio::piped()).map_err(cannot)?;
    let leader = prepared.leader();
    shop.children.expect(leader);
    let errors = prepared.take_errors().map(OwnedFd::from).map(pipe::Receiver::from_owned_fd).transpose();
    let ready = match errors {
        Ok(errors) => prepared.ready().await.map(|()| errors),
        Err(error) => Err(error),
    };
    let errors = match ready {
        Ok(errors) => errors,
        Err(error) => {
            prepared.give_up();
            shop.children.forget(leader);
            return Err(cannot(error));
        }
    };
    let launch = prepared.go(input.as_fd()).map_err(cannot)?;
    let under = Supervised {
        lease: delivery,
        what: format!("the lease of message {}", id::show(delivery.id())),
        watchdog: Watchdog::new(shop.run.lease, shop.term_before),
        term_before: shop.term_before,
        ends_at: None,
        on_exit: shop.run.on_exit,
    };
    let program = (leader, Kin::of(leader, mark), launch);
    let supervisor = Supervisor::new(shop.printer, under, &mut orders, &shop.children, None, program);
    let mut last_line = LastLine::default();
    let mut report = {
        let mut copying = std::pin::pin!(last_line.copy(errors));
        let mut copied = false;
        let mut supervised = std::pin::pin!(supervisor.run());
        let mut extending = std::pin::pin!(extend(delivery, shop.run.lease));
        let report = loop {
            tokio::select! {
                biased;
                report = &mut supervised => break report,
                () = &mut extending => unreachable!("it is extended until the program has ended"),
                () = &mut copying, if !copied => copied = true,
            }
        };
        if !copied {
            let _ = timeout(REST, &mut copying).await;
        }
        report
    };
    let Some(error) = report.not_run.take() else { return Ok(Ended { report, last_line: last_line.text() }) };
    let exit = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::CANNOT_RUN };
    let program = shop.run.program.first().map(|program| program.display().to_string()).unwrap_or_default();
    Err(Failure::new(exit, format!("{program} cannot be run: {error}")))
}

/// The message as an anonymous file, to be read from its beginning.
fn memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("message", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
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
            self.add(&bytes[..count]);
            messages::pass_on(bytes[..count].to_vec()).await;
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
