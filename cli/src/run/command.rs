//! The command: takes the lock, runs the program, gives the lock back.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::process::Stdio;
use std::time::Duration;

use clap::builder::TypedValueParser as _;
use rustix::process::Signal;
use tenure::{Client, Error, ErrorKind, HoldState, LostReason};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::acquire::{Acquired, Patience, acquire, connect};
use super::result::{Outcome, RunResult};
use super::target::{Held, Kind, Options, Permits, Target as Wanted};
use crate::backend::Backend;
use crate::child::{
    ChildEnd, Children, Kin, Lease as _, OnExit, Prepared, Report, Signals, Supervised, Supervisor, Terminal, Watchdog,
    signal_name,
};
use crate::duration::show;
use crate::exit::{self, Failure, by_signal};
use crate::name;
use crate::printer::Printer;
use crate::results::{Results, Target};

/// What `--help` says below the options.
const AFTER_HELP: &str = "\
Exit codes: the program's own, 128 + n for the death by signal n; 75 the lock is
taken; 79 it was lost while the program ran; 69, 77 the backend cannot be
reached, refuses; 64, 78 wrong usage, wrong URL; 126, 127 as of a shell.";

/// Run a program under a lock, and never longer than the lock
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Run {
    /// Wait no longer than this, for the backend as well; then exit 75, or 69
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse, conflicts_with = "no_wait")]
    wait: Option<Duration>,
    /// Do not wait: exit 75 if the lock is taken
    #[arg(long)]
    no_wait: bool,
    /// Take K of the N permits of a semaphore instead of a lock; N alone: one
    #[arg(long, value_name = "K/N", conflicts_with_all = ["read", "write", "at_least"])]
    permits: Option<Permits>,
    /// Take a read-write lock for reading, beside other readers
    #[arg(long, conflicts_with_all = ["write", "at_least"])]
    read: bool,
    /// Take a read-write lock for writing, alone
    #[arg(long, conflicts_with = "at_least")]
    write: bool,
    /// Length of the lease, renewed while the program runs [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    ttl: Option<Duration>,
    /// Hold the lock no longer than this
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    max_hold: Option<Duration>,
    /// Hold the lock at least this long, also after a short program
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    at_least: Option<Duration>,
    /// Send TERM this long before the lease ends [default: a quarter of it]
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    term_before: Option<Duration>,
    /// What happens to processes that the program leaves behind
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "kill",
        hide_possible_values = true,
        help = "Processes that the program leaves behind: kill, wait, leave"
    )]
    on_exit: OnExit,
    /// Retry the release for this long at most; then the lease expires by itself
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    release_within: Option<Duration>,
    /// Append the result, as JSON, to a file or to an open descriptor
    #[arg(long, value_name = "FILE|FD", value_parser = clap::builder::OsStringValueParser::new().map(|word| Target::parse(&word)))]
    report: Option<Target>,
    /// The holder's name as others see it [default: host and process]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Exit code when the lock is taken
    #[arg(long, value_name = "N", default_value_t = exit::BUSY)]
    busy_exit: u8,
    /// NAME is written in hexadecimal digits
    #[arg(long)]
    name_hex: bool,
    /// The lock
    name: OsString,
    /// The program and its arguments; no shell reads them
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    #[arg(value_hint = clap::ValueHint::CommandWithArguments)]
    program: Vec<OsString>,
}

/// The course of a run, before it is reported.
struct Course {
    name: Vec<u8>,
    asked: Instant,
    granted: Option<Instant>,
    fence: Option<u64>,
    /// Where the wait was in line when it ended without the lock.
    place: Option<u64>,
}

/// How a run ended.
enum End {
    Busy(String),
    Interrupted(Signal),
    /// The lock was lost before the program began.
    TooLate,
    Ended(Report),
}

/// The most time for undoing abandoned requests.
const FAREWELL: Duration = Duration::from_secs(2);
/// The same, after a wait whose end was said.
const BRIEF: Duration = Duration::from_millis(50);
/// A lock that is given back sooner needs no word about it.
const WORTH_A_WORD: Duration = Duration::from_secs(1);
/// How much longer a backend may take to be closed.
const GRACE: Duration = Duration::from_millis(500);

pub(crate) async fn run(run: Run, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    let results = Results::to(run.report.as_ref(), printer.format)?;
    let mut signals = Signals::hear().map_err(|error| Failure::system(&error))?;
    let mut course = Course { name: Vec::new(), asked: Instant::now(), granted: None, fence: None, place: None };
    let result = match course.take(&run, backend, &mut signals, printer).await {
        Ok(end) => course.tell(&run, printer, end),
        Err(failure) => {
            printer.error(&failure.text);
            course.nothing(Outcome::Failed, failure.exit, Some(failure.text))
        }
    };
    tokio::select! {
        biased;
        written = results.line(&result) => written?,
        // A result that is not read does not hold up the end.
        signal = signals.end() => printer.warn(&format!("{}: the result was not written", signal_name(signal.as_raw()))),
    }
    Ok(result.exit)
}

impl Run {
    fn kind(&self) -> Kind {
        match (self.permits, self.read, self.write) {
            (Some(permits), ..) => Kind::Permits(permits),
            (None, true, _) => Kind::Read,
            (None, false, true) => Kind::Write,
            (None, false, false) => Kind::Lock,
        }
    }
}

impl Course {
    fn waited(&self) -> Duration {
        self.granted.unwrap_or_else(Instant::now).duration_since(self.asked)
    }

    async fn take(
        &mut self,
        run: &Run,
        backend: &Backend,
        signals: &mut Signals,
        printer: Printer,
    ) -> Result<End, Failure> {
        self.name = name::Spelling::of(run.name_hex).read(&run.name)?;
        let ttl = run.ttl.unwrap_or(backend.ttl());
        if run.term_before.is_some_and(|before| before > ttl / 2) {
            return Err(Failure::usage("--term-before is more than half of the ttl; choose at most half"));
        }
        let patience = match (run.no_wait, run.wait) {
            (true, _) => Patience::None,
            (false, Some(most)) => Patience::Until(self.asked + most),
            (false, None) => Patience::Unlimited,
        };
        let client = tokio::select! {
            biased;
            signal = signals.end() => return Ok(End::Interrupted(signal)),
            client = connect(backend, patience, printer) => client?,
        };
        let lock = self.wanted(run, &client, ttl);
        let acquired = acquire(&lock, patience, signals, printer).await;
        let end = match acquired {
            Ok(Acquired::Granted(guard)) => return self.hold(run, guard, ttl, &client, signals, printer).await,
            Ok(Acquired::Busy(seen, place)) => {
                self.place = place;
                Ok(End::Busy(seen))
            }
            Ok(Acquired::Interrupted(signal, place)) => {
                self.place = place;
                Ok(End::Interrupted(signal))
            }
            Err(failure) => Err(failure),
        };
        let farewell = if run.wait.is_some() { BRIEF } else { FAREWELL };
        let _ = client.close(farewell).await; // the place in line is given up
        end
    }

    fn wanted(&self, run: &Run, client: &Client, ttl: Duration) -> Wanted {
        let label = run.label.clone().unwrap_or_else(|| {
            let system = rustix::system::uname();
            format!("{} pid {}", system.nodename().to_string_lossy(), std::process::id())
        });
        let options = Options { ttl, label, max_hold: run.max_hold, at_least: run.at_least };
        Wanted::of(run.kind(), client, &self.name, options)
    }

    async fn hold(
        &mut self,
        run: &Run,
        guard: Held,
        ttl: Duration,
        client: &Client,
        signals: &mut Signals,
        printer: Printer,
    ) -> Result<End, Failure> {
        let granted = Instant::now();
        self.granted = Some(granted);
        self.fence = Some(guard.fence());
        let term_before = run.term_before.unwrap_or(ttl / 4);
        let ran = self.work(run, &guard, ttl, term_before, signals, printer).await;
        let mut ended = ran.map_err(|error| Failure::new(exit::CANNOT_RUN, format!("cannot start a process: {error}")));
        let interrupted = |signal: Signal, rest: &str| {
            printer.note(&format!("{}: {rest}; its lease expires by itself", signal_name(signal.as_raw())));
        };
        if let (Some(at_least), true) = (run.at_least, guard.is_held()) {
            let end = granted + at_least;
            if end > Instant::now() {
                printer.note(&format!("the lock is held for another {}: --at-least", show(end - Instant::now())));
            }
            tokio::select! {
                () = sleep_until(end) => {}
                _ = guard.lost() => {}
                signal = signals.end() => {
                    interrupted(signal, "the lock is held");
                    return ended;
                }
            }
        }
        let limit = match guard.state() {
            // What ended by itself, or was taken, needs no undoing. What could not be renewed ends by itself soon, and is tried
            // for no longer than that.
            HoldState::Suspect | HoldState::Lost(LostReason::Expired | LostReason::Gone) => guard.remaining(),
            _ => guard.remaining().max(FAREWELL),
        };
        let limit = run.release_within.map_or(limit, |most| limit.min(most));
        let returned = async {
            let end = Instant::now() + limit;
            let released = timeout_at(end, guard.release()).await;
            let closed = timeout_at(end + GRACE, client.close(end.duration_since(Instant::now()))).await;
            let undone = matches!(closed, Ok(Ok(())));
            match released {
                Ok(Err(error)) if error.is_lost() || !undone => Some(error),
                Err(_) if !undone => Some(Error::new(ErrorKind::TimedOut, "the backend does not answer")),
                _ => None,
            }
        };
        let patient = async {
            sleep(WORTH_A_WORD).await;
            printer.warn(&format!(
                "the lock cannot be released at the moment; retrying for another {}",
                show(limit.saturating_sub(WORTH_A_WORD))
            ));
            std::future::pending().await
        };
        let failed = tokio::select! {
            failed = returned => failed,
            () = patient => None,
            signal = signals.end() => {
                interrupted(signal, "the lock may not have been released");
                None
            }
        };
        match (failed, &mut ended) {
            (Some(error), Ok(End::Ended(report))) if error.is_lost() && !report.lost => {
                printer.warn("the lock was lost before its release: another client may have held it meanwhile");
                report.lost = true;
            }
            (Some(error), _) if !error.is_lost() => {
                printer.warn(&format!("the lock could not be released; its lease expires by itself: {error:#}"));
            }
            _ => {}
        }
        ended
    }

    /// The program, from before it begins until nothing of it is left.
    async fn work(
        &self,
        run: &Run,
        guard: &Held,
        ttl: Duration,
        term_before: Duration,
        signals: &mut Signals,
        printer: Printer,
    ) -> std::io::Result<End> {
        let (children, mut attendance) = Children::before_any()?;
        let terminal = Terminal::of_input();
        let (variable, value) = name::variable(&self.name);
        let variables = [(variable, value), ("TENURE_FENCE", guard.fence().to_string().into())];
        let mut prepared = Prepared::start(&run.program, &variables, Stdio::inherit())?;
        let leader = prepared.leader();
        children.expect(leader);
        let ready = tokio::select! {
            biased;
            signal = signals.end() => Err(End::Interrupted(signal)),
            ready = prepared.ready() => Ok(ready),
        };
        match ready {
            Err(end) => {
                prepared.give_up();
                return Ok(end);
            }
            Ok(ready) if ready.is_err() || !guard.is_held() => {
                prepared.give_up();
                return ready.map(|()| End::TooLate);
            }
            Ok(_) => {}
        }
        if let Some(terminal) = &terminal {
            terminal.give_to(leader);
        }
        let launch = prepared.go(std::io::stdin().as_fd())?;
        let under = Supervised {
            lease: guard,
            what: String::from(run.kind().what()),
            watchdog: Watchdog::new(ttl, term_before),
            term_before,
            ends_at: run.max_hold.and_then(|most| Some(self.granted? + most)),
            on_exit: run.on_exit,
        };
        let program = (leader, Kin::of_only(leader), launch);
        let supervisor = Supervisor::new(printer, under, signals, &children, terminal.as_ref(), program);
        let report = tokio::select! {
            biased;
            error = children.attend(&mut attendance) => Err(error),
            report = supervisor.run() => Ok(report),
        };
        if report.is_err() {
            crate::child::kill_everything(); // its end would not be noticed
        }
        if let Some(terminal) = &terminal {
            terminal.take_back_from(leader);
            if report.as_ref().is_ok_and(|report| matches!(report.child, ChildEnd::Signaled(_))) {
                terminal.restore_modes();
            }
        }
        report.map(End::Ended)
    }

    /// Says what there is to say, and returns the result.
    fn tell(&self, run: &Run, printer: Printer, end: End) -> RunResult {
        let mut result = match &end {
            End::Busy(seen) => {
                printer.note(&format!("{} is busy: {seen}", name::text(&self.name)));
                self.nothing(Outcome::Busy, run.busy_exit, Some(seen.clone()))
            }
            End::Interrupted(signal) => {
                let reason = Some(signal_name(signal.as_raw()));
                self.nothing(Outcome::Interrupted, by_signal(signal.as_raw()), reason)
            }
            End::TooLate => {
                printer.error("the lock was lost before the program began; nothing was run");
                self.nothing(Outcome::Lost, exit::LOST, Some(String::from("nothing was run")))
            }
            End::Ended(report) => self.ended(run, printer, report),
        };
        (result.fence, result.place) = (self.fence, self.place);
        result.held_ms = self.granted.map(|granted| granted.elapsed().as_millis());
        result
    }

    fn nothing(&self, outcome: Outcome, exit: u8, reason: Option<String>) -> RunResult {
        RunResult::nothing(&self.name, outcome, exit, self.waited(), reason)
    }

    fn ended(&self, run: &Run, printer: Printer, report: &Report) -> RunResult {
        let code = match report.child {
            ChildEnd::Exited(code) => u8::try_from(code).unwrap_or(u8::MAX),
            ChildEnd::Signaled(signal) => by_signal(signal),
        };
        let (outcome, exit, reason) = match (&report.not_run, report.lost) {
            (Some(error), _) => {
                let program = run.program.first().map(|program| program.display().to_string()).unwrap_or_default();
                let text = format!("{program} cannot be run: {error}");
                printer.error(&text);
                (Outcome::NotRunnable, code, Some(text))
            }
            (None, true) => {
                let text = format!("the lock was lost while the program ran; {}", report.child.describe());
                printer.error(&text);
                (Outcome::Lost, exit::LOST, Some(text))
            }
            (None, false) => (Outcome::Ran, code, None),
        };
        let child = report.not_run.is_none().then(|| report.child.into());
        RunResult { child, ..self.nothing(outcome, exit, reason) }
    }
}
