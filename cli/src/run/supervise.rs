//! While the program runs: its signals, its stops, its end, what it leaves behind; and the lease that all of it is under.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait};
use tenure::{HoldState, LockGuard};
use tokio::signal::unix;
use tokio::time::{Instant, sleep};

use super::family::{Family, companions, has_job_control};
use super::signals::{Heard, Signals, name, stop_here};
use super::start::Launch;
use super::terminal::Terminal;
use super::watchdog::{Act, Watchdog};
use crate::duration::show;
use crate::speak::Voice;

/// What becomes of the processes that the program leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnExit {
    /// They are asked to end (TERM), and killed after --term-before
    Kill,
    /// The lock is held until all of them have ended
    Wait,
    /// The lock is given back at once, and they go on without it
    Leave,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    Exited(i32),
    Signaled(i32),
}

/// What there is to tell after the end.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) child: ChildEnd,
    /// Why it did not begin.
    pub(super) not_run: Option<io::Error>,
    /// Whether it was told to end, since its lock was about to, or had.
    pub(super) lost: bool,
}

/// How often those are counted that were killed.
const RECOUNT: Duration = Duration::from_millis(20);

pub(super) struct Supervisor<'a> {
    pub(super) voice: Voice,
    pub(super) guard: &'a LockGuard,
    pub(super) signals: &'a mut Signals,
    pub(super) children: &'a mut unix::Signal,
    pub(super) family: &'a Family,
    pub(super) terminal: Option<&'a Terminal>,
    pub(super) leader: Pid,
    pub(super) launch: Launch,
    pub(super) watchdog: Watchdog,
    pub(super) term_before: Duration,
    pub(super) on_exit: OnExit,
    pub(super) state: Progress,
}

/// How far it has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    child: Option<ChildEnd>,
    not_run: Option<io::Error>,
    childless: bool,
    /// When somebody last asked for an end.
    asked: Option<Instant>,
    suspect: bool,
    parting: Parting,
}

/// How those are parted from who outlive the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Parting {
    #[default]
    Not,
    /// The lock is held as long as they are there.
    Held,
    Told {
        kill_at: Instant,
    },
    Killed,
}

impl Supervisor<'_> {
    /// Returns when the program has ended, and those whom it left behind, as far as that is asked for.
    pub(super) async fn run(mut self) -> io::Result<Report> {
        loop {
            self.reap()?;
            let pause = self.watch_lease();
            if let Some(child) = self.state.child {
                let pause = pause.min(self.part());
                if self.is_over() {
                    let not_run = match self.state.not_run.take() {
                        None => self.launch.failure().await, // the launcher has ended: it is there, or never comes
                        known => known,
                    };
                    return Ok(Report { child, not_run, lost: self.watchdog.has_acted() });
                }
                self.wait(pause).await;
            } else {
                self.wait(pause).await;
            }
        }
    }

    async fn wait(&mut self, pause: Duration) {
        let known = matches!(self.guard.state(), HoldState::Lost(_));
        tokio::select! {
            biased;
            _ = self.children.recv() => {}
            heard = self.signals.next() => self.pass_on(heard),
            failure = self.launch.failure(), if self.launch.is_pending() => self.state.not_run = failure,
            _ = self.guard.lost(), if !known => {}
            () = sleep(pause.max(Duration::from_millis(1))) => {}
        }
    }

    /// The group, as long as its number cannot be another's.
    fn group(&self) -> Option<Pid> {
        self.state.child.is_none().then_some(self.leader)
    }

    fn kill_all(&self) {
        self.family.signal(Signal::KILL, self.group());
    }

    /// Takes note of every child that has ended or stopped. Orphans are children, too: none stays a zombie.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(None) => break self.state.childless = false,
                Err(rustix::io::Errno::CHILD) => break self.state.childless = true,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(Some((pid, status))) if pid == self.leader => {
                    self.state.child = self.state.child.or(ChildEnd::of(status));
                    if let Some(signal) = status.stopping_signal() {
                        self.stopped(signal);
                    }
                }
                Ok(Some(_)) => {}
            }
        }
        Ok(())
    }

    /// The program stopped. If that was for the sake of a shell, this one stops as well, so that the shell can go on; the lease is
    /// not renewed then, and is looked at before the program goes on.
    fn stopped(&mut self, signal: i32) {
        let for_the_shell = [Signal::TSTP, Signal::TTIN, Signal::TTOU].iter().any(|stop| stop.as_raw() == signal);
        if !for_the_shell || !has_job_control() {
            self.voice.note("the program is stopped; its lock stays held, and is renewed");
            return;
        }
        let rest = self.guard.remaining();
        self.voice.note(&format!("stopped; unless it goes on, the lock ends in {}", show(rest)));
        for pid in companions() {
            let _ = kill_process(pid, Signal::TSTP);
        }
        stop_here();
        if self.guard.is_held() {
            if let Some(terminal) = self.terminal {
                terminal.give_to(self.leader);
            }
            let _ = kill_process_group(self.leader, Signal::CONT);
        } else {
            self.voice.warn("the lock ended while the program was stopped: it is killed");
            self.watchdog.end();
            self.kill_all();
        }
    }

    fn pass_on(&mut self, heard: Heard) {
        match heard {
            Heard::End(signal) => self.pass_on_end(signal),
            Heard::Stop => drop(self.group().map(|group| kill_process_group(group, Signal::TSTP))),
            Heard::Other(Signal::CONT) if !self.guard.is_held() => {} // what the lease asks for comes first
            Heard::Other(signal) => drop(self.group().map(|group| kill_process_group(group, signal))),
        }
    }

    fn pass_on_end(&mut self, signal: Signal) {
        let now = Instant::now();
        let asked = self.state.asked.replace(now);
        let pressing = matches!(signal, Signal::TERM | Signal::INT);
        if pressing && asked.is_some_and(|before| now.duration_since(before) <= self.term_before) {
            self.voice.warn("asked to end a second time: the program is killed");
            return self.kill_all();
        }
        match self.group() {
            Some(group) => {
                let _ = kill_process_group(group, signal);
                let _ = kill_process_group(group, Signal::CONT);
            }
            None => self.family.signal(signal, None),
        }
    }

    /// Does what the lease asks for, and tells how long nothing else is to be done.
    fn watch_lease(&mut self) -> Duration {
        let (state, rest) = (self.guard.state(), self.guard.remaining());
        let suspect = state == HoldState::Suspect;
        if suspect && !self.state.suspect && !self.watchdog.has_acted() {
            self.voice
                .warn(&format!("the lock cannot be renewed at the moment; it is held for another {}", show(rest)));
        }
        self.state.suspect = suspect;
        match self.watchdog.act(Instant::now(), rest, state) {
            Act::Wait(pause) if self.watchdog.has_killed() => {
                self.kill_all(); // whoever was forked meanwhile
                return pause.min(RECOUNT);
            }
            Act::Wait(pause) => return pause,
            Act::Term(rest) => {
                self.voice
                    .warn(&format!("the lock ends in {} and was not renewed: the program is asked to end", show(rest)));
                self.family.signal(Signal::TERM, self.group());
            }
            Act::TermLate(reason) => {
                let text = format!("the lock is lost ({reason}): the program is asked to end, and killed in 1s");
                self.voice.warn(&text);
                self.family.signal(Signal::TERM, self.group());
            }
            Act::Kill => {
                self.voice.warn("the lock ends: the program is killed");
                self.kill_all();
            }
        }
        Duration::ZERO
    }

    /// Sees to those who outlive the program.
    fn part(&mut self) -> Duration {
        let now = Instant::now();
        match self.state.parting {
            Parting::Not => {
                let left = if self.state.childless { 0 } else { self.family.members().len() };
                self.state.parting = match self.on_exit {
                    OnExit::Kill => Parting::Told { kill_at: now + self.term_before },
                    OnExit::Wait | OnExit::Leave => Parting::Held,
                };
                match (self.on_exit, left) {
                    (OnExit::Leave, _) | (_, 0) => {}
                    (OnExit::Wait, _) => {
                        self.voice.note(&format!("the program has ended; the lock is held for {}", processes(left)));
                    }
                    (OnExit::Kill, _) => {
                        self.voice.note(&format!("the program left {} behind, asked to end now", processes(left)));
                        self.family.signal(Signal::TERM, None);
                    }
                }
                self.term_before
            }
            Parting::Held => Duration::MAX,
            Parting::Told { kill_at } if now < kill_at => kill_at - now,
            Parting::Told { .. } | Parting::Killed => {
                self.state.parting = Parting::Killed;
                self.kill_all();
                RECOUNT
            }
        }
    }

    /// Whether the lock is needed no more.
    fn is_over(&self) -> bool {
        let alone = || self.state.childless || (self.family.has_strangers() && self.family.members().is_empty());
        (self.on_exit == OnExit::Leave && !self.watchdog.has_acted()) || alone()
    }
}

fn processes(count: usize) -> String {
    match count {
        1 => String::from("1 process"),
        count => format!("{count} processes"),
    }
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
