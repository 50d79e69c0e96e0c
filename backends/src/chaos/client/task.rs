//! A task of a client process: which lock it asks for, and how.

use std::time::Duration;

use tenure::{Client, ErrorKind, OwnerId};
use tenure_conformance::{BoxError, Rng, poll, worker::monotonic};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::books::{Books, Entry};
use super::holding::Holding;
use super::orders::Orders;
use super::recorder::{Recorder, failed};
use super::turn::{Turn, View};
use crate::chaos::event::What;
use crate::chaos::options::{Subject, hot_name};

/// What a task does all the time.
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// Takes one of so many names that all clients want, mostly for a moment.
    Hot { names: u32 },
    /// Takes one name, for several ttls.
    Steady { name: String },
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug)]
enum How {
    Try,
    Within(Duration),
    Unlimited,
    /// Given up after so long.
    CancelledAfter(Duration),
    /// Given up at this poll.
    CancelledAt(usize),
    Fixed(Duration),
    Entered(Duration),
    /// The last one, after the faults.
    Last,
}

impl How {
    const fn word(self) -> &'static str {
        match self {
            Self::Try => "try",
            Self::Within(_) => "within",
            Self::Unlimited => "acquire",
            Self::CancelledAfter(_) | Self::CancelledAt(_) => "cancelled",
            Self::Fixed(_) => "fixed",
            Self::Entered(_) => "enter",
            Self::Last => "last",
        }
    }
}

pub(super) struct Task {
    client: Client,
    recorder: Recorder,
    calm: watch::Receiver<bool>,
    rng: Rng,
    number: u32,
    role: Role,
    ttl: Duration,
    op: u64,
    /// For guarded transactions, if there are any.
    books: Option<Books>,
    writing: Option<JoinHandle<()>>,
}

/// What came of asking.
enum Answer {
    Taken(Holding),
    Busy,
    GaveUp,
}

fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

impl Task {
    pub(super) fn new(
        client: &Client,
        recorder: Recorder,
        calm: watch::Receiver<bool>,
        orders: &Orders,
        number: u32,
        role: Role,
    ) -> Self {
        let rng = orders.rng(number);
        // A steady task holds a name for long: hot names meet more transactions.
        let guarded = orders.subject == Subject::Guards && matches!(role, Role::Hot { .. });
        let (client, ttl, books) = (client.clone(), orders.ttl, guarded.then(|| Books::at(&orders.url)));
        Self { client, recorder, calm, rng, number, role, ttl, op: 0, books, writing: None }
    }

    /// Takes locks until the faults have ended, and then one more, however long that takes.
    pub(super) async fn run(mut self) -> Result<(), BoxError> {
        while !*self.calm.borrow() {
            let how = self.how();
            if !self.turn(how).await? {
                tokio::time::sleep(millis(5 + self.rng.below(60))).await; // it failed: no storm of attempts
            }
            tokio::time::sleep(millis(self.rng.below(8))).await;
        }
        while !self.turn(How::Last).await? {
            tokio::time::sleep(millis(20)).await;
        }
        if let Some(writing) = self.writing.take() {
            writing.await?;
        }
        self.recorder.note(monotonic(), self.recorder.of(self.number, 0), "-", What::Finished)
    }

    fn how(&mut self) -> How {
        let patience = millis(200 + self.rng.below(5_000));
        if let Role::Steady { .. } = self.role {
            return if self.rng.below(4) == 0 { How::Unlimited } else { How::Within(patience) };
        }
        match self.rng.below(100) {
            0..=14 => How::Try,
            15..=44 => How::Within(patience),
            45..=64 => How::Unlimited,
            65..=74 => How::CancelledAfter(millis(self.rng.below(150))),
            75..=79 => How::CancelledAt(1 + self.rng.below(6) as usize),
            80..=87 => How::Fixed(patience),
            _ => How::Entered(patience),
        }
    }

    fn name(&mut self) -> String {
        match &self.role {
            Role::Hot { names } => hot_name(self.rng.below(u64::from(*names)) as u32),
            Role::Steady { name } => name.clone(),
        }
    }

    /// For how long it will be held, and how often that is looked at.
    fn span(&mut self, how: How) -> (Duration, Duration) {
        let few = |millis| Duration::from_millis(millis);
        match (&self.role, how) {
            (_, How::Last) => (few(1), few(1)),
            (Role::Steady { .. }, _) => (self.ttl.mul_f64(0.5 + self.rng.below(35) as f64 / 10.0), few(40)),
            (Role::Hot { .. }, How::Fixed(_)) if self.rng.below(3) == 0 => (self.ttl.mul_f64(1.2), few(5)),
            (Role::Hot { .. }, _) => match self.rng.below(100) {
                0..=84 => (few(self.rng.below(15)), few(4)),
                85..=96 => (few(40 + self.rng.below(160)), few(5)),
                _ => (self.ttl.mul_f64(1.5), few(10)),
            },
        }
    }

    /// Asks once; holds what it gets. `false` if something failed.
    async fn turn(&mut self, how: How) -> Result<bool, BoxError> {
        self.op += 1;
        let (name, by) = (self.name(), self.recorder.of(self.number, self.op));
        let owner = OwnerId::new();
        self.recorder.note(monotonic(), by, &name, What::Asked { how: how.word(), inside: None })?;
        let answer = self.ask(&name, how, &owner).await;
        let returned = monotonic();
        match answer {
            Ok(Answer::Taken(holding)) => {
                let (span, look) = self.span(how);
                let view = match self.rng.below(3) {
                    0 => View::Looked,
                    1 => View::Worked,
                    _ => View::Listened,
                };
                let turn = Turn {
                    recorder: &self.recorder,
                    calm: self.calm.clone(),
                    by,
                    name: &name,
                    span,
                    look,
                    // The last turn must end.
                    until_calm: !matches!(how, How::Last),
                };
                let holding = turn.granted(holding)?;
                if let Some(books) = &self.books
                    && self.writing.as_ref().is_none_or(JoinHandle::is_finished)
                {
                    let pause = match self.rng.below(10) {
                        0 => self.ttl.mul_f64(1.3),
                        _ => millis(self.rng.below(30)),
                    };
                    let limit = if self.rng.below(3) == 0 { millis(self.rng.below(60)) } else { self.ttl * 6 };
                    let entry = Entry { name: name.clone(), fence: holding.fence(), pause, limit };
                    self.writing = Some(books.begin(entry));
                }
                if let (How::Entered(_), 0) = (how, self.rng.below(2)) {
                    self.op += 1;
                    let again = self.client.reentrant(&name, &owner).ttl(self.ttl);
                    let by = self.recorder.of(self.number, self.op);
                    turn.nested(&holding, &again, by, millis(self.rng.below(10))).await?;
                }
                turn.hold(&holding, view).await?;
                turn.leave(holding, &mut self.rng).await?;
                Ok(true)
            }
            Ok(Answer::Busy) => self.recorder.note(returned, by, &name, What::Busy).map(|()| true),
            Ok(Answer::GaveUp) => self.recorder.note(returned, by, &name, What::GaveUp).map(|()| true),
            Err(error) => {
                self.recorder.note(returned, by, &name, failed(&error))?;
                Ok(error.kind() == ErrorKind::TimedOut && !matches!(how, How::Last))
            }
        }
    }

    async fn ask(&self, name: &str, how: How, owner: &OwnerId) -> tenure::Result<Answer> {
        let lock = self.client.lock(name).ttl(self.ttl);
        let plain = |guard| Answer::Taken(Holding::Plain(guard));
        Ok(match how {
            How::Try => lock.try_acquire().await?.map_or(Answer::Busy, plain),
            How::Within(most) => plain(lock.acquire_within(most).await?),
            How::Unlimited | How::Last => plain(lock.acquire().await?),
            How::CancelledAfter(most) => match tokio::time::timeout(most, lock.acquire()).await {
                Ok(taken) => plain(taken?),
                Err(_) => Answer::GaveUp,
            },
            How::CancelledAt(count) => match poll::at_most(count, lock.acquire()).await {
                Some(taken) => plain(taken?),
                None => Answer::GaveUp,
            },
            How::Fixed(most) => plain(lock.fixed_ttl(self.ttl).acquire_within(most).await?),
            How::Entered(most) => {
                let entered = self.client.reentrant(name, owner).ttl(self.ttl).acquire_within(most).await?;
                Answer::Taken(Holding::Entry(entered))
            }
        })
    }
}
