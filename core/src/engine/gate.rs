//! How many requests of one client are on their way at once.
//!
//! A thousand tasks that begin together would queue up at the backend or in the connection to it, and those at the end
//! would take the time that they stood there for an outage. So they wait here, before anything is sent and before the
//! time for an answer begins to run.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};

/// The most requests of a kind on their way at once.
pub(crate) const IN_FLIGHT: usize = 128;

#[derive(Debug)]
pub(crate) struct Gate {
    places: Semaphore,
    /// How many requests were answered.
    answered: AtomicU64,
}

/// A place for one request; given back when dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    _place: SemaphorePermit<'a>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { places: Semaphore::new(IN_FLIGHT), answered: AtomicU64::new(0) }
    }
}

impl Gate {
    /// Waits for a place, until `deadline`, or until a whole `limit` has passed in which no request was answered.
    ///
    /// Dropping the future leaves the line.
    pub(crate) async fn enter(&self, limit: Duration, deadline: Option<LeaseInstant>) -> Result<Pass<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(Pass { gate: self, _place: place });
        }
        let place = self.places.acquire();
        tokio::pin!(place);
        let mut seen = self.answered.load(Ordering::Acquire);
        loop {
            let left = deadline.map_or(Duration::MAX, LeaseInstant::remaining);
            match timeout(limit.min(left), &mut place).await {
                Ok(Ok(place)) => return Ok(Pass { gate: self, _place: place }),
                Ok(Err(_closed)) => return Err(Error::new(ErrorKind::Closed, "the client was closed")),
                Err(_) => {}
            }
            let before = std::mem::replace(&mut seen, self.answered.load(Ordering::Acquire));
            if seen == before || deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                let text = format!("{IN_FLIGHT} requests of this client are without an answer; this one was not sent");
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
    }
}

impl Pass<'_> {
    /// Waits at most `limit` for the answer to a request that leaves now; `None` when it does not come.
    pub(crate) async fn answer<T>(self, limit: Duration, request: impl Future<Output = T>) -> Option<T> {
        let answer = timeout(limit, request).await.ok();
        if answer.is_some() {
            self.gate.answered.fetch_add(1, Ordering::AcqRel);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use tokio::time::{Instant, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    async fn request(gate: Arc<Gate>, takes: Duration) -> Result<Option<()>> {
        let pass = gate.enter(LIMIT, None).await?;
        Ok(pass.answer(LIMIT, sleep(takes)).await)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_takes_as_long_as_it_takes() {
        let (gate, start) = (Arc::<Gate>::default(), Instant::now());
        let takes = Duration::from_millis(300);
        let all: Vec<_> = (0..10 * IN_FLIGHT).map(|_| tokio::spawn(request(Arc::clone(&gate), takes))).collect();
        for one in all {
            assert_eq!(one.await.unwrap().unwrap(), Some(()));
        }
        assert_eq!(start.elapsed().as_millis() / 300, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn behind_a_silent_backend_nobody_waits_longer_than_for_an_answer() {
        let gate = Arc::<Gate>::default();
        let mut silent = Vec::new();
        for _ in 0..IN_FLIGHT {
            silent.push(gate.enter(LIMIT, None).await.unwrap());
        }
        let start = Instant::now();
        let error = gate.enter(LIMIT, None).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed().as_secs()), (ErrorKind::Unavailable, 1));
        let deadline = LeaseInstant::now().after(LIMIT / 10);
        let error = gate.enter(LIMIT, Some(deadline)).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed().as_millis() / 100), (ErrorKind::Unavailable, 11));
    }

    #[tokio::test(start_paused = true)]
    async fn places_of_requests_that_were_given_up_are_free() {
        let gate = Gate::default();
        for _ in 0..3 * IN_FLIGHT {
            let pass = gate.enter(LIMIT, None).await.unwrap();
            assert!(timeout(Duration::from_millis(1), pass.answer(LIMIT, pending::<()>())).await.is_err());
        }
        let given_up = gate.enter(LIMIT, None);
        drop(given_up);
        assert_eq!(gate.places.available_permits(), IN_FLIGHT);
    }
}
