//! The command: takes the lock, runs the program, gives the lock back.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Signal, set_child_subreaper};
use tenure::{Client, Error, ErrorKind, HoldState, Lock, LockGuard, LostReason};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, timeout_at};

use super::acquire::{Acquired, Patience, acquire};
use super::family::Family;
use super::result::{Outcome, RunResult};
use super::signals::{Signals, name as signal_name};
use super::start::Prepared;
use super::supervise::{ChildEnd, OnExit, Report, Supervisor};
use super::terminal::Terminal;
use super::watchdog::Watchdog;
use crate::backend::Backend;
use crate::exit::{self, Failure, by_signal};
use crate::name;
use crate::speak::{Format, Voice};

/// What `--help` says below the options.
const AFTER_HELP: &str = "\
Exit codes: the program's own, 128 + n for the death by signal n; 75 the lock is
taken; 79 it was lost while the program ran; 69, 77 the backend cannot be
reached, refuses; 64, 78 wrong usage, wrong URL; 126, 127 as of a shell.";

/// Run a program under a lock; it is dead before the lock ends
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Run {
    /// Wait no longer than this; then exit 75
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse, conflicts_with = "no_wait")]
    wait: Option<Duration>,
    /// Do not wait: exit 75 if the lock is taken
    #[arg(long)]
    no_wait: bool,
    /// How long the lock outlives this program and its backend [default: 30s]
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
    /// What others see of the holder [default: host and process]
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
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// What happened, before it is told.
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

/// How long what is given up is undone.
const FAREWELL: Duration = Duration::from_secs(2);
/// How much longer a backend may take to be closed.
const GRACE: Duration = Duration::from_millis(500);

pub(crate) async fn run(run: Run, backend: &Backend, voice: Voice) -> u8 {
    let name = match name::Spelling::of(run.name_hex).read(&run.name) {
        Ok(name) => name,
        Err(failure) => return tell_failure(voice, &[], Duration::ZERO, &failure),
    };
    let mut course = Course { name, asked: Instant::now(), granted: None, fence: None, place: None };
    match course.take(&run, backend, voice).await {
        Ok(end) => course.tell(&run, voice, end),
        Err(failure) => tell_failure(voice, &course.name, course.waited(), &failure),
    }
}

fn tell_failure(voice: Voice, name: &[u8], waited: Duration, failure: &Failure) -> u8 {
    if voice.format == Format::Json {
        let reason = Some(failure.text.clone());
        voice.json(&RunResult::nothing(name, Outcome::Failed, failure.exit, waited, reason));
    }
    voice.error(&failure.text);
    failure.exit
}

impl Course {
    fn waited(&self) -> Duration {
        self.granted.unwrap_or_else(Instant::now).duration_since(self.asked)
    }

    async fn take(&mut self, run: &Run, backend: &Backend, voice: Voice) -> Result<End, Failure> {
        let mut signals = Signals::hear().map_err(|error| Failure::system(&error))?;
        let ttl = run.ttl.unwrap_or(backend.ttl());
        if run.term_before.is_some_and(|before| before > ttl / 2) {
            return Err(Failure::usage(
                "--term-before is more than half of the ttl: the lock is renewed later than that",
            ));
        }
        let client = tokio::select! {
            biased;
            signal = signals.end() => return Ok(End::Interrupted(signal)),
            client = backend.client() => client?,
        };
        let lock = self.lock(run, &client, ttl);
        let patience = match (run.no_wait, run.wait) {
            (true, _) => Patience::None,
            (false, Some(most)) => Patience::Within(most),
            (false, None) => Patience::Unlimited,
        };
        self.asked = Instant::now();
        let acquired = acquire(&lock, patience, &mut signals, voice).await;
        let end = match acquired {
            Ok(Acquired::Granted(guard)) => return self.hold(run, guard, ttl, &client, signals, voice).await,
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
        let _ = client.close(FAREWELL).await; // the place in line is given up
        end
    }

    fn lock(&self, run: &Run, client: &Client, ttl: Duration) -> Lock {
        let label = run.label.clone().unwrap_or_else(|| {
            let system = rustix::system::uname();
            format!("{} pid {}", system.nodename().to_string_lossy(), std::process::id())
        });
        let lock = client.lock(&self.name).ttl(ttl).label(label);
        let lock = run.max_hold.into_iter().fold(lock, Lock::max_hold);
        run.at_least.into_iter().fold(lock, Lock::at_least)
    }

    async fn hold(
        &mut self,
        run: &Run,
        guard: LockGuard,
        ttl: Duration,
        client: &Client,
        mut signals: Signals,
        voice: Voice,
    ) -> Result<End, Failure> {
        self.granted = Some(Instant::now());
        self.fence = Some(guard.fence().get());
        let term_before = run.term_before.unwrap_or(ttl / 4);
        let ran = self.work(run, &guard, ttl, term_before, &mut signals, voice).await;
        let mut ended = ran.map_err(|error| Failure::new(exit::CANNOT_RUN, format!("cannot start a process: {error}")));
        let limit = match guard.state() {
            // What ended by itself, or was taken, needs no undoing. What could not be renewed ends by itself soon, and is tried
            // for no longer than that.
            HoldState::Suspect | HoldState::Lost(LostReason::Expired | LostReason::Gone) => guard.remaining(),
            _ => guard.remaining().max(FAREWELL),
        };
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
        let failed = tokio::select! {
            failed = returned => failed,
            signal = signals.end() => {
                voice.note(&format!("{}: the lock was not given back for sure; its lease ends by itself", signal_name(signal.as_raw())));
                None
            }
        };
        match (failed, &mut ended) {
            (Some(error), Ok(End::Ended(report))) if error.is_lost() && !report.lost => {
                voice.warn("the lock was found lost when it was given back: somebody else may have been at work");
                report.lost = true;
            }
            (Some(error), _) if !error.is_lost() => {
                voice.warn(&format!("the lock could not be given back, its lease ends by itself: {error:#}"));
            }
            _ => {}
        }
        ended
    }

    /// The program, from before it begins until nothing of it is left.
    async fn work(
        &self,
        run: &Run,
        guard: &LockGuard,
        ttl: Duration,
        term_before: Duration,
        signals: &mut Signals,
        voice: Voice,
    ) -> std::io::Result<End> {
        let mut children = unix::signal(SignalKind::child())?;
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let (family, terminal) = (Family::before_any(), Terminal::of_input());
        let (variable, value) = name::variable(&self.name);
        let variables = [(variable, value), ("TENURE_FENCE", guard.fence().to_string().into())];
        let mut prepared = Prepared::start(&run.program, &variables, Stdio::inherit())?;
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
        let leader = prepared.leader();
        if let Some(terminal) = &terminal {
            terminal.give_to(leader);
        }
        let launch = prepared.go(std::io::stdin().as_fd())?;
        let supervisor = Supervisor {
            voice,
            guard,
            signals,
            children: &mut children,
            family: &family,
            terminal: terminal.as_ref(),
            leader,
            launch,
            watchdog: Watchdog::new(ttl, term_before),
            term_before,
            on_exit: run.on_exit,
            state: Default::default(),
        };
        let report = supervisor.run().await;
        if let Some(terminal) = &terminal {
            terminal.take_back_from(leader);
            if report.as_ref().is_ok_and(|report| matches!(report.child, ChildEnd::Signaled(_))) {
                terminal.restore_modes();
            }
        }
        report.map(End::Ended)
    }

    /// Says what there is to say, and returns the exit code.
    fn tell(&self, run: &Run, voice: Voice, end: End) -> u8 {
        let mut result = match &end {
            End::Busy(seen) => {
                voice.note(&format!("{} is busy: {seen}", name::text(&self.name)));
                self.nothing(Outcome::Busy, run.busy_exit, Some(seen.clone()))
            }
            End::Interrupted(signal) => {
                let reason = Some(signal_name(signal.as_raw()));
                self.nothing(Outcome::Interrupted, by_signal(signal.as_raw()), reason)
            }
            End::TooLate => {
                voice.error("the lock was lost before the program began; nothing was run");
                self.nothing(Outcome::Lost, exit::LOST, Some(String::from("nothing was run")))
            }
            End::Ended(report) => self.ended(run, voice, report),
        };
        (result.fence, result.place) = (self.fence, self.place);
        result.held_ms = self.granted.map(|granted| granted.elapsed().as_millis());
        if voice.format == Format::Json {
            voice.json(&result);
        }
        result.exit
    }

    fn nothing(&self, outcome: Outcome, exit: u8, reason: Option<String>) -> RunResult {
        RunResult::nothing(&self.name, outcome, exit, self.waited(), reason)
    }

    fn ended(&self, run: &Run, voice: Voice, report: &Report) -> RunResult {
        let code = match report.child {
            ChildEnd::Exited(code) => u8::try_from(code).unwrap_or(u8::MAX),
            ChildEnd::Signaled(signal) => by_signal(signal),
        };
        let (outcome, exit, reason) = match (&report.not_run, report.lost) {
            (Some(error), _) => {
                let program = run.program.first().map(|program| program.display().to_string()).unwrap_or_default();
                let text = format!("{program} cannot be run: {error}");
                voice.error(&text);
                (Outcome::NotRunnable, code, Some(text))
            }
            (None, true) => {
                let text = format!("the lock was lost while the program ran; {}", report.child.describe());
                voice.error(&text);
                (Outcome::Lost, exit::LOST, Some(text))
            }
            (None, false) => (Outcome::Ran, code, None),
        };
        let child = report.not_run.is_none().then(|| report.child.into());
        RunResult { child, ..self.nothing(outcome, exit, reason) }
    }
}
