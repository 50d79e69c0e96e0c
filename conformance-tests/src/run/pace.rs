//! The load of the machine and the server, measured by pairs of requests while cases run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tenure_core::{Client, Lock};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Options;
use crate::harness::{BoxError, CaseContext, HarnessMaker, Isolation, Time, words};

/// A pair may take this much longer than the fastest one before waits are stretched once more.
const QUIET: Duration = Duration::from_millis(100);

/// For how long a pair counts.
const WINDOW: Duration = Duration::from_secs(10);

/// The pause between two pairs.
const PAUSE: Duration = Duration::from_millis(200);

/// How many pairs are measured before the first case begins.
const FIRST: usize = 3;

/// Waits are not stretched by more: a backend that answers this slowly is broken.
const MOST: f64 = 10.0;

/// A task that takes and releases a lock of its own over and over, for as long as this value lives.
pub(super) struct Pace {
    maker: Arc<dyn HarnessMaker>,
    least: f64,
    seed: u64,
    probe: OnceLock<Option<Probe>>,
}

struct Probe {
    pairs: Arc<Mutex<Pairs>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The measured pairs.
#[derive(Debug, Default)]
struct Pairs {
    fastest: Option<Duration>,
    recent: VecDeque<(Instant, Duration)>,
    /// When the pair that is under way began.
    began: Option<Instant>,
}

impl Pace {
    pub(super) fn new(maker: &Arc<dyn HarnessMaker>, options: &Options) -> Self {
        Self { maker: Arc::clone(maker), least: options.slack, seed: options.seed, probe: OnceLock::new() }
    }

    /// By how much a case that begins now stretches its waits. The first call starts the measurement.
    pub(super) fn slack(&self) -> f64 {
        let probe = self.probe.get_or_init(|| {
            let measured = self.maker.declared().time == Time::Real && self.maker.configured().is_ok();
            measured.then(|| Probe::start(Arc::clone(&self.maker), self.seed))
        });
        let late = probe.as_ref().map(|probe| guarded(&probe.pairs).late(Instant::now())).unwrap_or_default();
        stretched(self.least, late)
    }
}

fn stretched(least: f64, late: Duration) -> f64 {
    (1.0 + late.as_secs_f64() / QUIET.as_secs_f64()).min(MOST).max(least)
}

impl Pairs {
    fn begin(&mut self, now: Instant) {
        self.began = Some(now);
    }

    fn end(&mut self, now: Instant) {
        let Some(began) = self.began.take() else { return };
        let took = now - began;
        self.fastest = Some(self.fastest.map_or(took, |fastest| fastest.min(took)));
        self.recent.push_back((now, took));
    }

    /// How much longer than the fastest pair the slowest recent one took, or the one under way has taken so far.
    fn late(&mut self, now: Instant) -> Duration {
        while self.recent.front().is_some_and(|(ended, _)| now - *ended > WINDOW) {
            self.recent.pop_front();
        }
        let under_way = self.began.map(|began| now - began);
        let slowest = self.recent.iter().map(|(_, took)| *took).chain(under_way).max().unwrap_or_default();
        slowest.saturating_sub(self.fastest.unwrap_or(slowest))
    }
}

impl Probe {
    /// Returns once the first pairs are measured, or cannot be: then the cases report the failure.
    fn start(maker: Arc<dyn HarnessMaker>, seed: u64) -> Self {
        let pairs = Arc::<Mutex<Pairs>>::default();
        let (stop, stopped) = oneshot::channel();
        let (begun, begins) = mpsc::channel();
        let measured = Arc::clone(&pairs);
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let ended = runtime
                .map_err(BoxError::from)
                .and_then(|runtime| runtime.block_on(measure(&*maker, seed, &measured, begun, stopped)));
            if let Err(error) = ended {
                eprintln!("{}: cannot measure the round trip, and stretches no wait: {}", maker.id(), words(&error));
            }
        });
        begins.recv().unwrap_or_default();
        Self { pairs, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join).transpose().unwrap_or_default();
    }
}

/// Measures pairs until `stopped`; drops `begun` after the first ones.
async fn measure(
    maker: &dyn HarnessMaker,
    seed: u64,
    pairs: &Mutex<Pairs>,
    begun: mpsc::Sender<()>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<(), BoxError> {
    let prefix = format!("tc-pace-{:x}-{:x}/", std::process::id(), seed & 0xffff_ffff);
    let context = CaseContext { case: "pace", prefix: prefix.clone(), seed, isolation: Isolation::Shared, slack: MOST };
    let mut harness = maker.make(context).await?;
    let client = Client::builder(harness.backend().await?).op_timeout(Duration::from_secs(30)).build()?;
    let lock = client.lock(prefix.as_bytes());
    for _ in 0..FIRST {
        pair(&lock, pairs).await;
    }
    drop(begun);
    while timeout(PAUSE, &mut stopped).await.is_err() {
        pair(&lock, pairs).await;
    }
    client.close(Duration::from_secs(5)).await.unwrap_or_default();
    harness.teardown().await
}

/// Takes the lock and releases it. A pair that fails counts with the time it took.
async fn pair(lock: &Lock, pairs: &Mutex<Pairs>) {
    guarded(pairs).begin(Instant::now());
    if let Ok(guard) = lock.acquire().await {
        guard.release().await.unwrap_or_default();
    }
    guarded(pairs).end(Instant::now());
}

fn guarded(pairs: &Mutex<Pairs>) -> MutexGuard<'_, Pairs> {
    pairs.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_recent_pair_counts_and_the_one_under_way() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pairs = Pairs::default();
        assert_eq!(pairs.late(at(0)), Duration::ZERO);
        for (began, ended) in [(0, 5), (100, 125), (200, 205)] {
            pairs.begin(at(began));
            assert_eq!(pairs.late(at(began)), if began == 200 { Duration::from_millis(20) } else { Duration::ZERO });
            pairs.end(at(ended));
        }
        pairs.begin(at(300));
        assert_eq!(pairs.late(at(350)), Duration::from_millis(45));
        pairs.end(at(300));
        assert_eq!(pairs.late(at(20_000)), Duration::ZERO, "too long ago");
    }

    #[test]
    fn waits_are_stretched_by_what_is_measured_and_at_least_as_asked() {
        assert_eq!(stretched(1.0, Duration::ZERO), 1.0);
        assert_eq!(stretched(1.0, QUIET * 2), 3.0);
        assert_eq!(stretched(5.0, QUIET * 2), 5.0);
        assert_eq!(stretched(1.0, QUIET * 1_000), MOST);
        assert_eq!(stretched(20.0, Duration::ZERO), 20.0);
    }
}
