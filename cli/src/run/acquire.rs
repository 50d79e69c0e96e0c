//! The wait for the lock, which watches for signals and reports the holder.

use std::time::Duration;

use rustix::process::Signal;
use tenure::{Client, Error, ErrorKind, WaitProgress};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::describe::{Seen, describe_from, describe_place_first};
use super::target::{Held, Target};
use crate::backend::Backend;
use crate::child::Signals;
use crate::exit::{self, Failure};
use crate::printer::Printer;

/// How long the lock is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Unlimited,
    /// For the backend as well.
    Until(Instant),
    /// One attempt.
    None,
}

/// What came of it.
pub(super) enum Acquired {
    Granted(Held),
    /// Another holder has it; and the place that was reached in line.
    Busy(String, Option<u64>),
    /// A signal came first; and the place that was reached in line.
    Interrupted(Signal, Option<u64>),
}

/// A lock that comes sooner needs no word about the wait.
const WORTH_A_WORD: Duration = Duration::from_millis(200);

/// Where only one line is printed, it is delayed by at most this much until the place in line is known.
const A_PLACE: Duration = Duration::from_secs(1);
const REWRITTEN: Duration = Duration::from_secs(1);
/// Where lines are not rewritten, the backend is asked this often whether it is still there.
const STILL_THERE: Duration = Duration::from_secs(3);
/// How often a backend that cannot be reached is tried.
const AGAIN: Duration = Duration::from_millis(250);
/// However short the wait, the backend has this long to answer.
const LEAST: Duration = Duration::from_secs(1);
/// How long, after the wait, the backend may take to hear of its end, and then how long the look at the holder may take.
const LEAVE: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_millis(200);
/// The message about a backend that acknowledges nothing.
const SILENT: &str = "the backend does not answer";

/// A client that is connected. If the end of the wait was said, an outage is waited out until then.
pub(super) async fn connect(backend: &Backend, patience: Patience, printer: Printer) -> Result<Client, Failure> {
    let Patience::Until(end) = patience else { return backend.client().await };
    let most = end.max(Instant::now() + LEAST);
    let mut last: Option<Failure> = None;
    loop {
        match timeout_at(most, backend.client()).await {
            Ok(Err(failure)) if failure.exit == exit::UNAVAILABLE && Instant::now() + AGAIN < end => {
                if last.is_none() {
                    printer.warn(&format!("waiting for the backend: {failure}"));
                }
                last = Some(failure);
                sleep(AGAIN).await;
            }
            Ok(connected) => {
                if let (Some(_), Ok(_)) = (last, &connected) {
                    printer.note("the backend answers");
                }
                return connected;
            }
            Err(_) => return Err(last.unwrap_or_else(|| Failure::new(exit::UNAVAILABLE, SILENT))),
        }
    }
}

/// Takes the lock. A request that is not granted is undone in the background.
pub(super) async fn acquire(
    lock: &Target,
    patience: Patience,
    signals: &mut Signals,
    printer: Printer,
) -> Result<Acquired, Failure> {
    let progress = WaitProgress::new();
    let lock = &lock.clone().progress(&progress);
    let asked = async {
        match patience {
            Patience::Unlimited => Some(lock.acquire(None).await.map(Some)),
            Patience::Until(end) => {
                let waited = lock.acquire(Some(end.duration_since(Instant::now())));
                // The library sees to it that the backend knows of the end. Here that happens in the background.
                let most = end.max(Instant::now() + LEAST) + LEAVE;
                timeout_at(most, waited).await.ok().map(|waited| waited.map(Some))
            }
            Patience::None => Some(lock.try_acquire().await),
        }
    };
    let answer = tokio::select! {
        biased;
        signal = signals.end() => return Ok(Acquired::Interrupted(signal, place(&progress))),
        answer = asked => answer,
        () = show_wait(lock, &progress, printer) => unreachable!("it ends with the answer"),
    };
    match answer {
        Some(Ok(Some(guard))) => Ok(Acquired::Granted(guard)),
        Some(Ok(None)) => Ok(Acquired::Busy(look(lock, true).await?, None)),
        // If the backend was away at the end, it is not known that the lock is taken.
        Some(Err(error)) if error.is_timed_out() && ends_in_an_outage(&error) => {
            Err(Failure::new(exit::UNAVAILABLE, format!("{error:#}")))
        }
        Some(Err(error)) if error.is_timed_out() => Ok(Acquired::Busy(look(lock, true).await?, place(&progress))),
        Some(Err(error)) => Err(error.into()),
        None => Ok(Acquired::Busy(look(lock, false).await?, place(&progress))),
    }
}

fn ends_in_an_outage(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    source.is_some_and(|source| matches!(source.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate))
}

/// Who has the lock, in words. `answered` says that the backend answered the wait: if not, and if it does not answer now, that is an
/// outage.
async fn look(lock: &Target, answered: bool) -> Result<String, Failure> {
    match timeout(LAST_LOOK, lock.inspect()).await {
        Ok(Ok(seen)) => Ok(describe_from(&seen, None)),
        Ok(Err(error)) if error.is_transient() => Err(error.into()),
        Err(_) if !answered => Err(Failure::new(exit::UNAVAILABLE, SILENT)),
        Ok(Err(_)) | Err(_) => Ok(String::from("the holder is unknown")),
    }
}

/// Who has the lock, and the own place, in words; and whether the backend answers.
async fn look_from(lock: &Target, place: Option<u64>, shown: fn(&Seen, Option<u64>) -> String) -> (String, bool) {
    match lock.inspect().await {
        Ok(seen) => (shown(&seen, place), true),
        Err(error) if error.is_transient() => (format!("the backend does not answer: {error}"), false),
        Err(_) => (String::from("the holder is unknown"), true),
    }
}

/// The place in line, counted from one.
fn place(progress: &WaitProgress) -> Option<u64> {
    progress.ahead().map(|ahead| u64::from(ahead) + 1)
}

/// Never returns. On a terminal the line is rewritten each second; elsewhere there is one, and one whenever the backend goes away or
/// comes back.
async fn show_wait(lock: &Target, progress: &WaitProgress, printer: Printer) {
    sleep(WORTH_A_WORD).await;
    let own = lock.name().ok().map(|name| crate::name::variable(name.as_bytes()));
    if own.is_some_and(|(variable, value)| std::env::var_os(variable) == Some(value)) {
        printer.warn("this command runs under a lock of this name: on the same backend it waits for itself");
    }
    if let Some(mut line) = printer.progress() {
        loop {
            let (text, _) = look_from(lock, place(progress), describe_place_first).await;
            line.show(&format!("tenure: waiting: {text}"));
            sleep(REWRITTEN).await;
        }
    }
    let _known_or_not = timeout(A_PLACE, progress.clone().changed()).await;
    let mut known = place(progress);
    let (text, mut answers) = look_from(lock, known, describe_from).await;
    printer.note(&format!("waiting: {text}"));
    loop {
        sleep(STILL_THERE).await;
        let place = place(progress);
        let (text, answered) = look_from(lock, place, describe_from).await;
        match (answers, answered) {
            (true, false) => printer.warn(&format!("still waiting: {text}")),
            (false, true) => printer.note(&format!("the backend answers again; waiting: {text}")),
            // The first line said nothing of the place.
            (true, true) if known.is_none() && place.is_some() => printer.note(&format!("waiting: {text}")),
            _ => {}
        }
        (answers, known) = (answered, known.or(place));
    }
}
