//! One supervisor for `run` and `queue run`: a program's signals, its stops, its end, what it leaves behind; and the lease that all of
//! it is under.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, kill_process, kill_process_group};
use tenure::{HoldState, LockGuard};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::children::{ChildEnd, Children};
use super::family::{Kin, companions, has_job_control};
use super::signals::{Heard, Signals, stop_here};
use super::start::Launch;
use super::terminal::Terminal;
use super::watchdog::{Act, Watchdog};
use crate::duration::show;
use crate::printer::Printer;

/// What becomes of the processes that the program leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnExit {
    /// Send them TERM, and kill them after --term-before
    Kill,
    /// Keep the lease until all of them have ended
    Wait,
    /// Release the lease at once; they continue without it
    Leave,
}

/// The report after the end of the program.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) child: ChildEnd,
    /// Why it did not begin.
    pub(crate) not_run: Option<io::Error>,
    /// Whether it was asked to end because its lease was about to end, or had ended.
    pub(crate) lost: bool,
    /// Whether it was asked to end.
    pub(crate) asked: bool,
}

/// The lease that a program runs under.
pub(crate) trait Lease {
    fn state(&self) -> HoldState;
    /// The rest of the lease by this machine's clock.
    fn remaining(&self) -> Duration;
    /// Returns when a loss is noticed, which `state` may report as well. Safe to drop.
    fn lost(&self) -> impl Future<Output = ()>;
}

impl Lease for LockGuard {
    fn state(&self) -> HoldState {
        LockGuard::state(self)
    }

    fn remaining(&self) -> Duration {
        LockGuard::remaining(self)
    }

    async fn lost(&self) {
        let _ = LockGuard::lost(self).await;
    }
}

/// A request to a supervisor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Heard(Heard),
    /// The program is killed.
    Kill,
    /// The program, which was stopped together with this one, continues if it still has its lease.
    Resume,
}

/// Where orders come from.
pub(crate) trait Orders {
    /// The next one. Safe to drop.
    fn next(&mut self) -> impl Future<Output = Order>;
}

impl Orders for Signals {
    async fn next(&mut self) -> Order {
        Order::Heard(Signals::next(self).await)
    }
}

/// How often those are counted that were killed.
const RECOUNT: Duration = Duration::from_millis(20);

/// What a program runs under, and by which rules.
pub(crate) struct Supervised<'a, L> {
    pub(crate) lease: &'a L,
    /// What sentences call the lease.
    pub(crate) what: String,
    pub(crate) watchdog: Watchdog,
    pub(crate) term_before: Duration,
    /// When the lease ends because of `--max-hold`.
    pub(crate) ends_at: Option<Instant>,
    pub(crate) on_exit: OnExit,
}

pub(crate) struct Supervisor<'a, L, O> {
    printer: Printer,
    under: Supervised<'a, L>,
    orders: &'a mut O,
    children: &'a Children,
    changes: watch::Receiver<()>,
    /// The terminal, of which the program is in the foreground.
    terminal: Option<&'a Terminal>,
    leader: rustix::process::Pid,
    kin: Kin,
    launch: Launch,
    state: Progress,
}

/// How far it has come.
#[derive(Debug, Default)]
struct Progress {
    child: Option<ChildEnd>,
    not_run: Option<io::Error>,
    /// When an end was last asked for.
    asked: Option<Instant>,
    suspect: bool,
    parting: Parting,
}

/// How those are ended that outlive the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Parting {
    #[default]
    Not,
    /// The lease is kept as long as they are there.
    Held,
    Terminated {
        kill_at: Instant,
    },
    Killed,
}

impl<'a, L: Lease, O: Orders> Supervisor<'a, L, O> {
    /// Of a program whose leader the children expect.
    pub(crate) fn new(
        printer: Printer,
        under: Supervised<'a, L>,
        orders: &'a mut O,
        children: &'a Children,
        terminal: Option<&'a Terminal>,
        (leader, kin, launch): (rustix::process::Pid, Kin, Launch),
    ) -> Self {
        let changes = children.changes();
        Self { printer, under, orders, children, changes, terminal, leader, kin, launch, state: Progress::default() }
    }

    /// Returns when the program has ended, and those that it left behind, as far as that is asked for.
    pub(crate) async fn run(mut self) -> Report {
        loop {
            self.look();
            let mut pause = self.watch_lease();
            if let Some(child) = self.state.child {
                pause = pause.min(self.part());
                if self.is_over() {
                    self.children.forget(self.leader);
                    let not_run = match self.state.not_run.take() {
                        None => self.launch.failure().await, // the launcher has ended: it is there, or never comes
                        known => known,
                    };
                    let (lost, asked) = (self.under.watchdog.has_acted(), self.state.asked.is_some());
                    return Report { child, not_run, lost, asked };
                }
            }
            self.wait(pause).await;
        }
    }

    async fn wait(&mut self, pause: Duration) {
        let known = matches!(self.under.lease.state(), HoldState::Lost(_));
        tokio::select! {
            biased;
            _ = self.changes.changed() => {}
            order = self.orders.next() => self.obey(order),
            failure = self.launch.failure(), if self.launch.is_pending() => self.state.not_run = failure,
            () = self.under.lease.lost(), if !known => {}
            () = sleep(pause.max(Duration::from_millis(1))) => {}
        }
    }

    fn kill_all(&self) {
        self.signal_all(Signal::KILL);
    }

    fn signal_all(&self, signal: Signal) {
        self.children.family().signal(signal, &self.kin);
    }

    /// Takes note of the program's end or stop.
    fn look(&mut self) {
        if self.state.child.is_some() {
            return;
        }
        let seen = self.children.look(self.leader);
        self.state.child = seen.end;
        if seen.end.is_some() {
            self.kin.leader_has_ended();
        } else if let Some(signal) = seen.stopped {
            self.stopped(signal);
        }
    }

    /// The program stopped. If a shell is to continue it, this one stops as well; the lease is not renewed then, and is looked at before
    /// the program continues.
    fn stopped(&mut self, signal: i32) {
        let for_the_shell = [Signal::TSTP, Signal::TTIN, Signal::TTOU].iter().any(|stop| stop.as_raw() == signal);
        if !for_the_shell || self.kin.has_neighbours() || !has_job_control() {
            self.printer.note(&format!("the program is stopped; {} is still held and renewed", self.under.what));
            return;
        }
        let rest = show(self.under.lease.remaining());
        self.printer.note(&format!("stopped; {} expires in {rest} unless the program is continued", self.under.what));
        for pid in companions() {
            let _ = kill_process(pid, Signal::TSTP);
        }
        stop_here();
        self.resume();
    }

    /// After a stop of this program: the lease decides.
    fn resume(&mut self) {
        let held = matches!(self.under.lease.state(), HoldState::Held | HoldState::Suspect)
            && !self.under.lease.remaining().is_zero();
        if held {
            if let Some(terminal) = self.terminal {
                terminal.give_to(self.leader);
            }
            self.signal_all(Signal::CONT);
        } else {
            self.printer.warn(&format!("{} ended while the program was stopped; sending KILL", self.under.what));
            self.under.watchdog.end();
            self.kill_all();
        }
    }

    fn obey(&mut self, order: Order) {
        let to_group = |signal| self.kin.group().map_or(Ok(()), |group| kill_process_group(group, signal));
        // A group that has ended meanwhile hears nothing.
        match order {
            Order::Heard(Heard::End(signal)) => self.pass_on_end(signal),
            Order::Heard(Heard::Stop) => drop(to_group(Signal::TSTP)),
            // What the lease asks for comes first.
            Order::Heard(Heard::Other(Signal::CONT)) if self.under.lease.remaining().is_zero() => {}
            Order::Heard(Heard::Other(signal)) => drop(to_group(signal)),
            Order::Kill => {
                self.state.asked = Some(Instant::now());
                self.kill_all();
            }
            Order::Resume => self.resume(),
        }
    }

    fn pass_on_end(&mut self, signal: Signal) {
        let now = Instant::now();
        let asked = self.state.asked.replace(now);
        let pressing = matches!(signal, Signal::TERM | Signal::INT);
        if pressing && asked.is_some_and(|before| now.duration_since(before) <= self.under.term_before) {
            self.printer.warn("second signal to end; sending KILL to the program");
            return self.kill_all();
        }
        match self.kin.group() {
            Some(group) => {
                let _ = kill_process_group(group, signal);
                let _ = kill_process_group(group, Signal::CONT);
            }
            None => self.signal_all(signal),
        }
    }

    /// Does what the lease asks for, and returns how long to wait before the next look.
    fn watch_lease(&mut self) -> Duration {
        let (state, rest) = (self.under.lease.state(), self.under.lease.remaining());
        let what = &self.under.what;
        let suspect = state == HoldState::Suspect;
        if !self.under.watchdog.has_acted() {
            match (self.state.suspect, suspect) {
                (false, true) => {
                    let text = format!("{what} cannot be renewed at the moment; it expires in {}", show(rest));
                    self.printer.warn(&text);
                }
                (true, false) if state == HoldState::Held => self.printer.note(&format!("{what} is renewed again")),
                _ => {}
            }
        }
        self.state.suspect = suspect;
        match self.under.watchdog.act(Instant::now(), rest, state) {
            Act::Wait(pause) if self.under.watchdog.has_killed() => {
                self.kill_all(); // what was forked meanwhile
                return pause.min(RECOUNT);
            }
            Act::Wait(pause) => return pause,
            Act::Term(rest) => {
                let soon = self.under.ends_at.is_some_and(|end| end <= Instant::now() + rest + RECOUNT);
                let why = if soon { "because of --max-hold" } else { "and could not be renewed" };
                let text = format!("{what} ends in {} {why}; sending TERM to the program", show(rest));
                self.printer.warn(&text);
                self.signal_all(Signal::TERM);
            }
            Act::TermLate(reason) => {
                let text = format!("{what} is lost ({reason}); sending TERM to the program, and KILL in 1s");
                self.printer.warn(&text);
                self.signal_all(Signal::TERM);
            }
            Act::Kill => {
                self.printer.warn(&format!("{what} ends; sending KILL to the program"));
                self.kill_all();
            }
        }
        Duration::ZERO
    }

    /// How many are left, the leader not counted.
    fn left(&self) -> usize {
        if self.children.are_gone() { 0 } else { self.children.family().members(&self.kin).len() }
    }

    /// Ends those that outlive the program, as far as that is asked for.
    fn part(&mut self) -> Duration {
        let now = Instant::now();
        match self.state.parting {
            Parting::Not => {
                let left = self.left();
                self.state.parting = match self.under.on_exit {
                    OnExit::Kill => Parting::Terminated { kill_at: now + self.under.term_before },
                    OnExit::Wait | OnExit::Leave => Parting::Held,
                };
                match (self.under.on_exit, left) {
                    (OnExit::Leave, _) | (_, 0) => {}
                    (OnExit::Wait, _) => {
                        let (what, left) = (&self.under.what, processes(left));
                        self.printer.note(&format!("the program has ended; {what} is held for the {left} left behind"));
                    }
                    (OnExit::Kill, _) => {
                        self.printer.note(&format!("the program left {} behind; sending TERM", processes(left)));
                        self.signal_all(Signal::TERM);
                    }
                }
                self.under.term_before
            }
            Parting::Held => Duration::MAX,
            Parting::Terminated { kill_at } if now < kill_at => kill_at - now,
            Parting::Terminated { .. } | Parting::Killed => {
                self.state.parting = Parting::Killed;
                self.kill_all();
                RECOUNT
            }
        }
    }

    /// Whether the lease is needed no more.
    fn is_over(&self) -> bool {
        let family = self.children.family();
        let counts = self.kin.has_neighbours() || family.has_strangers();
        let alone = || self.children.are_gone() || (counts && family.members(&self.kin).is_empty());
        (self.under.on_exit == OnExit::Leave && !self.under.watchdog.has_acted()) || alone()
    }
}

fn processes(count: usize) -> String {
    match count {
        1 => String::from("1 process"),
        count => format!("{count} processes"),
    }
}
