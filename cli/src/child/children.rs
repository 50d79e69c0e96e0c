//! The processes that this program started: which have ended or stopped.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;

use super::family::{Family, Kin};
use super::signals::{name, stop_here};

static FAMILY: OnceLock<Family> = OnceLock::new();

/// Kills everything that descends from this process. For panics: waits for nothing and writes nothing.
pub(crate) fn kill_everything() {
    if let Some(family) = FAMILY.get() {
        family.signal(Signal::KILL, &Kin::all());
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    Exited(i32),
    Signaled(i32),
}

impl ChildEnd {
    /// `None` while the process lives.
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        let exited = status.exit_status().map(Self::Exited);
        exited.or_else(|| status.terminating_signal().map(Self::Signaled))
    }

    /// In words.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Exited(code) => format!("it ended with exit code {code}"),
            Self::Signaled(signal) => format!("it was ended by {}", name(signal)),
        }
    }
}

/// The state of one child, as far as this process has seen it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) end: Option<ChildEnd>,
    /// The signal that stopped it, reported once.
    pub(crate) stopped: Option<i32>,
}

/// All children, and those whom this process inherits as their subreaper.
#[derive(Debug)]
pub(crate) struct Children {
    family: &'static Family,
    seen: RefCell<HashMap<Pid, Seen>>,
    childless: Cell<bool>,
    changed: watch::Sender<()>,
}

/// Hears of ends and stops.
#[derive(Debug)]
pub(crate) struct Attendance(unix::Signal);

impl Children {
    /// To be called before the first child is started.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub(crate) fn before_any() -> io::Result<(Self, Attendance)> {
        let heard = unix::signal(SignalKind::child())?;
        set_child_subreaper(Some(getpid()))?;
        let family = FAMILY.get_or_init(Family::before_any);
        let (seen, childless, changed) = (RefCell::default(), Cell::new(true), watch::Sender::new(()));
        Ok((Self { family, seen, childless, changed }, Attendance(heard)))
    }

    pub(crate) fn family(&self) -> &Family {
        self.family
    }

    /// To be called before anything is awaited after its start.
    pub(crate) fn expect(&self, child: Pid) {
        self.seen.borrow_mut().insert(child, Seen::default());
        self.childless.set(false);
    }

    pub(crate) fn forget(&self, child: Pid) {
        self.seen.borrow_mut().remove(&child);
    }

    /// Returns whether the child has ended or stopped.
    pub(crate) fn look(&self, child: Pid) -> Seen {
        let mut all = self.seen.borrow_mut();
        let Some(seen) = all.get_mut(&child) else { return Seen::default() };
        Seen { stopped: seen.stopped.take(), ..*seen }
    }

    /// Whether none is left, not even an orphan of one.
    pub(crate) fn are_gone(&self) -> bool {
        self.childless.get()
    }

    /// Notifies of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Never returns, and may be dropped at any time.
    pub(crate) async fn attend(&self, attendance: &mut Attendance) -> io::Error {
        loop {
            if attendance.0.recv().await.is_none() {
                return io::Error::other("signals can no longer be received");
            }
            if let Err(error) = self.reap() {
                return error;
            }
        }
    }

    /// Takes note of every child that has ended or stopped. Orphans are children, too: none stays a zombie.
    pub(crate) fn reap(&self) -> io::Result<()> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(None) => break self.childless.set(false),
                Err(rustix::io::Errno::CHILD) => break self.childless.set(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(Some((pid, status))) => {
                    if let Some(seen) = self.seen.borrow_mut().get_mut(&pid) {
                        seen.end = seen.end.or(ChildEnd::of(status));
                        seen.stopped = status.stopping_signal();
                    }
                }
            }
        }
        self.changed.send_replace(());
        Ok(())
    }

    /// Stops everything, and then this process. When it continues, the others are still stopped, and their stops are not reported.
    pub(crate) fn stop_all_and_this(&self) {
        self.family.signal(Signal::STOP, &Kin::all());
        stop_here();
        let _ = self.reap();
        self.seen.borrow_mut().values_mut().for_each(|seen| seen.stopped = None);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    fn a_panic_kills_what_runs() {
        super::FAMILY.get_or_init(super::Family::before_any);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        crate::kill_on_panic();
        assert!(std::panic::catch_unwind(|| panic!("a fault of this program")).is_err());
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let _ = std::panic::take_hook();
    }
}
