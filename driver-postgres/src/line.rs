//! The unanswered requests of a connection. A server answers the requests of a connection in their order. So a request
//! that waits for a row that another transaction keeps locked holds up all requests behind it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// For how long the first request may be without an answer before requests of other names take another connection.
const HELD_UP: Duration = Duration::from_millis(500);
/// For how long a name whose request took that long is expected to take long again.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How many such names are remembered.
const NAMES: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    next: u64,
    waiting: VecDeque<Request>,
    /// Since when the server is at the first one.
    first_since: Option<Instant>,
    /// Names whose requests held up the others, and when they last did.
    slow: VecDeque<(u64, Instant)>,
}

impl Requests {
    /// The first one was answered.
    fn leave(&mut self, now: Instant) {
        let since = self.first_since.replace(now);
        if let Some(first) = self.waiting.pop_front() {
            self.slow.retain(|(subject, _)| *subject != first.subject);
            if since.is_some_and(|since| now.duration_since(since) >= HELD_UP) {
                self.slow.push_back((first.subject, now));
                if self.slow.len() > NAMES {
                    self.slow.pop_front();
                }
            }
        }
    }
}

#[derive(Debug)]
struct Request {
    number: u64,
    /// A digest of the name that it is about.
    subject: u64,
    since: Instant,
    /// Set when the caller no longer waits for the answer.
    given_up: Option<GivenUp>,
}

/// Keeps the turn of its request, if it had to take one, until the server has answered.
#[derive(Debug)]
struct GivenUp {
    _turn: Option<Turn>,
}

/// The permission to send a request. The next one is sent when it is dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

impl Line {
    /// A request leaves. Its number.
    pub(crate) fn enter(&self, subject: u64) -> u64 {
        let mut requests = self.requests();
        let number = requests.next;
        requests.next += 1;
        let since = Instant::now();
        if requests.waiting.is_empty() {
            requests.first_since = Some(since);
        }
        requests.waiting.push_back(Request { number, subject, since, given_up: None });
        number
    }

    /// A request was answered, and so were all before it.
    pub(crate) fn answered(&self, number: u64) {
        let mut requests = self.requests();
        let now = Instant::now();
        while requests.waiting.front().is_some_and(|first| first.number <= number) {
            requests.leave(now);
        }
    }

    /// Records that the caller no longer waits for the answer. The request holds up the others until the server has answered it.
    /// Keeps `turn` as long.
    pub(crate) fn give_up(&self, number: u64, turn: Option<Turn>) {
        if let Some(request) = self.requests().waiting.iter_mut().find(|request| request.number == number) {
            request.given_up = Some(GivenUp { _turn: turn });
        }
    }

    /// Whether a request that was given up may not be answered yet.
    pub(crate) fn has_given_up(&self) -> bool {
        self.requests().waiting.iter().any(|request| request.given_up.is_some())
    }

    /// Whether a request of this name would wait behind one of another name that takes long, or whose last request did.
    pub(crate) fn holds_up(&self, subject: u64, now: Instant) -> bool {
        let requests = self.requests();
        let Some(first) = requests.waiting.front().filter(|first| first.subject != subject) else { return false };
        let known = |(slow, at): &(u64, Instant)| *slow == first.subject && now.duration_since(*at) < REMEMBERED;
        now.duration_since(first.since) >= HELD_UP || requests.slow.iter().any(known)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_holds_up_other_names_until_it_is_answered() {
        let line = Line::default();
        let (first, second) = (line.enter(1), line.enter(2));
        let (now, later) = (Instant::now(), Instant::now() + HELD_UP);
        assert!(!line.holds_up(2, now) && line.holds_up(2, later) && !line.holds_up(1, later));
        line.give_up(first, None);
        assert!(line.holds_up(2, later) && line.has_given_up(), "the server has not answered it yet");
        line.answered(second);
        assert!(!line.holds_up(2, later) && !line.has_given_up());
    }

    /// A request that is retried at the same moment as the one that held it up would be behind it again.
    #[tokio::test(start_paused = true)]
    async fn a_name_that_held_up_the_others_does_so_at_once_the_next_time() {
        let line = Line::default();
        let first = line.enter(1);
        tokio::time::advance(HELD_UP).await;
        line.answered(first);
        let again = line.enter(1);
        assert!(line.holds_up(2, Instant::now()) && !line.holds_up(1, Instant::now()));
        line.answered(again);
        line.enter(1);
        assert!(!line.holds_up(2, Instant::now()), "the last one was quick");
    }
}
