//! `tenure bench`: how fast a backend is, seen from here.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use tenure::driver::{Introspection, Waiting};
use tenure::{Client, Lock};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::Backend;
use crate::child::Signals;
use crate::exit::{Failure, by_signal};
use crate::printer::{Format, Printer};

/// What `--help` says below the options.
const AFTER_HELP: &str = "\
free pair   an uncontended lock is taken and released
hand-over   from one client's release of a lock to another client's grant
message     a message is pushed, received and acknowledged
One request at a time, from one thread. The names are temporary.";

/// Measure the cost of locks and messages on this backend
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Bench {
    /// How long each step is measured
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = crate::duration::parse)]
    span: Duration,
}

/// A step, for programs.
#[derive(Debug, Serialize)]
struct Measured {
    step: &'static str,
    count: usize,
    median_us: f64,
    p99_us: f64,
    per_second: f64,
}

/// No step is measured more often: the memory for it is bounded.
const MOST: usize = 4_000_000;
/// How many times each step is done before it is measured: connections and scripts are there then.
const WARM_UP: usize = 3;
/// How long the holder waits where the backend cannot show that the other one waits.
const BLIND: Duration = Duration::from_millis(20);
/// How often a holder looks for the other one before it continues without it.
const LOOKS: usize = 1000;
/// The most time for undoing abandoned requests.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) async fn bench(command: &Bench, backend: &Backend, printer: Printer) -> Result<u8, Failure> {
    if command.span.is_zero() {
        return Err(Failure::usage("--for 0s measures nothing"));
    }
    let mut signals = Signals::hear().map_err(|error| Failure::system(&error))?;
    let meeting = backend.meeting();
    let (one, other) = (meeting.client().await?, meeting.client().await?);
    let prefix = format!("tenure-bench/{}-{:08x}", std::process::id(), fastrand::u32(..));
    let course = Course { prefix, span: command.span, stopped: Cell::new(false), printer };
    let ended = {
        let mut work = std::pin::pin!(course.run(&one, &other));
        tokio::select! {
            ended = &mut work => ended.map(|()| 0),
            signal = signals.end() => {
                course.stopped.set(true);
                let _ = timeout(FAREWELL, work).await; // the step that runs ends in good order
                Ok(by_signal(signal.as_raw()))
            }
        }
    };
    for client in [one, other] {
        let _ = client.close(FAREWELL).await;
    }
    ended
}

struct Course {
    prefix: String,
    span: Duration,
    stopped: Cell<bool>,
    printer: Printer,
}

impl Course {
    async fn run(&self, one: &Client, other: &Client) -> Result<(), Failure> {
        let Self { prefix, span, printer, .. } = self;
        let driver = one.driver();
        let span = crate::duration::show(*span);
        printer.note(&format!("measuring {driver}, {span} for each step, under names that begin with {prefix}/"));
        if printer.format == Format::Text {
            printer.print(&format!("{:<12}{:>12}{:>12}{:>14}", "", "MEDIAN", "P99", "PER SECOND"))?;
        }
        self.tell("free pair", self.pairs(one).await?)?;
        if !self.stopped.get() {
            self.tell("hand-over", self.hand_overs(one, other).await?)?;
        }
        if !self.stopped.get() && one.queue_capabilities().is_some() {
            self.tell("message", self.messages(one).await?)?;
        }
        Ok(())
    }

    /// Repeats `once`, one call after the other, until the time for the step has passed.
    async fn again<F: Future<Output = tenure::Result<()>>>(
        &self,
        once: impl Fn() -> F,
    ) -> tenure::Result<Vec<Duration>> {
        for _ in 0..WARM_UP {
            once().await?;
        }
        let (begun, mut took) = (Instant::now(), Vec::new());
        while self.goes_on(begun, took.len()) {
            let asked = Instant::now();
            once().await?;
            took.push(asked.elapsed());
        }
        Ok(took)
    }

    fn goes_on(&self, begun: Instant, count: usize) -> bool {
        begun.elapsed() < self.span && count < MOST && !self.stopped.get()
    }

    async fn pairs(&self, client: &Client) -> tenure::Result<Vec<Duration>> {
        let lock = client.lock(format!("{}/pair", self.prefix));
        self.again(|| async { lock.acquire().await?.release().await }).await
    }

    async fn messages(&self, client: &Client) -> tenure::Result<Vec<Duration>> {
        let queue = client.queue_of_bytes(format!("{}/messages", self.prefix))?;
        let measured = self.again(|| async {
            queue.push_bytes("a message of the bench").await?;
            queue.receive().await?.ack().await.map(drop)
        });
        let measured = measured.await;
        let _ = queue.purge().await; // what a step that failed has left
        measured
    }

    /// Two clients take turns at one lock.
    async fn hand_overs(&self, one: &Client, other: &Client) -> tenure::Result<Vec<Duration>> {
        let turns = Turns::of(self);
        turns.reported[0].notify_one();
        tokio::try_join!(turns.take(one, 0), turns.take(other, 1))?;
        Ok(turns.gaps.into_inner())
    }

    fn tell(&self, step: &'static str, mut took: Vec<Duration>) -> Result<(), Failure> {
        took.sort_unstable();
        let (Some(median), Some(p99)) = (quantile(&took, 0.5), quantile(&took, 0.99)) else {
            self.printer.warn(&format!("{step}: no measurement was completed in that time"));
            return Ok(());
        };
        let per_second = took.len() as f64 / took.iter().sum::<Duration>().as_secs_f64().max(f64::MIN_POSITIVE);
        match self.printer.format {
            Format::Json => self.printer.json(&Measured {
                step,
                count: took.len(),
                median_us: median.as_nanos() as f64 / 1e3,
                p99_us: p99.as_nanos() as f64 / 1e3,
                per_second: per_second.round(),
            }),
            Format::Text => {
                self.printer.print(&format!("{step:<12}{:>12}{:>12}{per_second:>14.0}", short(median), short(p99)))
            }
        }
    }
}

/// Two clients that take turns. A holder gives the lock back when the other one waits for it, so that each gap is that of a
/// hand-over, and asks again when the other one has it.
struct Turns<'a> {
    course: &'a Course,
    /// Which of the two is to ask.
    reported: [Notify; 2],
    begun: Cell<Instant>,
    released: Cell<Option<Instant>>,
    warm_up: Cell<usize>,
    gaps: RefCell<Vec<Duration>>,
}

impl<'a> Turns<'a> {
    fn of(course: &'a Course) -> Self {
        Self {
            course,
            reported: [Notify::new(), Notify::new()],
            begun: Cell::new(Instant::now()),
            released: Cell::new(None),
            warm_up: Cell::new(WARM_UP),
            gaps: RefCell::default(),
        }
    }

    async fn take(&self, client: &Client, me: usize) -> tenure::Result<()> {
        let lock = client.lock(format!("{}/hand-over", self.course.prefix));
        let seen = can_see_waiters(client);
        loop {
            self.reported[me].notified().await;
            let guard = lock.acquire().await?;
            self.note_gap();
            self.reported[1 - me].notify_one();
            if !self.course.goes_on(self.begun.get(), self.gaps.borrow().len()) {
                return guard.release().await;
            }
            wait_for_the_other(&lock, seen).await?;
            self.released.set(Some(Instant::now()));
            guard.release().await?;
        }
    }

    fn note_gap(&self) {
        let released = self.released.take();
        match self.warm_up.get() {
            0 => self.gaps.borrow_mut().extend(released.map(|since| since.elapsed())),
            left => {
                self.warm_up.set(left - 1);
                self.begun.set(Instant::now());
            }
        }
    }
}

/// Whether a holder can see that another client waits for its lock.
fn can_see_waiters(client: &Client) -> bool {
    let capabilities = client.capabilities();
    capabilities.waiting != Waiting::Poll && capabilities.introspection != Introspection::None
}

async fn wait_for_the_other(lock: &Lock, seen: bool) -> tenure::Result<()> {
    if !seen {
        sleep(BLIND).await;
        return Ok(());
    }
    for _ in 0..LOOKS {
        if lock.inspect().await?.waiters > 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The least of the sorted spans that is not exceeded by so large a part of them.
fn quantile(sorted: &[Duration], part: f64) -> Option<Duration> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// With three digits.
fn short(span: Duration) -> String {
    let micros = span.as_nanos() as f64 / 1e3;
    match micros {
        ..10.0 => format!("{micros:.2} µs"),
        ..100.0 => format!("{micros:.1} µs"),
        ..1000.0 => format!("{micros:.0} µs"),
        ..10e3 => format!("{:.2} ms", micros / 1e3),
        ..100e3 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.0} ms", micros / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!(quantile(&sorted, 0.5), Some(Duration::from_micros(100)));
        assert_eq!(quantile(&sorted, 0.99), Some(Duration::from_micros(198)));
        assert_eq!(quantile(&sorted[..1], 0.99), Some(Duration::from_micros(1)));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn spans_have_three_digits() {
        for (nanos, text) in [
            (1_234, "1.23 µs"),
            (56_780, "56.8 µs"),
            (999_000, "999 µs"),
            (1_500_000, "1.50 ms"),
            (250_000_000, "250 ms"),
        ] {
            assert_eq!(short(Duration::from_nanos(nanos)), text);
        }
    }
}
