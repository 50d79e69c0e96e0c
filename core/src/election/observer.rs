//! Who leads, as somebody sees it who need not be a candidate.

use std::time::Duration;

use futures_util::Stream;
use tokio::time::{Instant, sleep_until};

use crate::driver::{Holder, Inspection};
use crate::engine::wait::Pause;
use crate::lock::Lock;
use crate::value::error::{Error, ErrorKind, Label, Result};
use crate::value::token::FencingToken;

/// The least time between two looks.
const SHORTEST: Duration = Duration::from_millis(10);

/// What an observer sees of an election.
#[derive(Clone, Debug)]
pub enum View {
    /// This candidate led when the backend was asked.
    Leader(Leader),
    /// Nobody led when the backend was asked: the term before was over, and the next one had not begun.
    Nobody,
    /// Who leads is not known: the backend did not answer; or it told a term that had been over before, which is not repeated; or
    /// the lock is held by a foreign client, whose holds are not numbered.
    Unknown(Error),
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What the candidate is called; `None` for who took the lock without being one, and without a label.
    pub label: Option<Label>,
    /// The number of the term, greater than that of every earlier one.
    pub term: FencingToken,
    /// How long the lease lasted without a renewal, when the backend was asked; `None` if that is not known. A living leader
    /// renews it.
    pub rest: Option<Duration>,
}

impl View {
    /// The leader, if there is one and it is known.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        match self {
            Self::Leader(leader) => Some(leader),
            Self::Nobody | Self::Unknown(_) => None,
        }
    }

    /// Whether an observer is to be told of `self` who was told of `other` last.
    fn differs_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leader(this), Self::Leader(that)) => (this.term, &this.label) != (that.term, &that.label),
            (Self::Nobody, Self::Nobody) => false,
            (Self::Unknown(this), Self::Unknown(that)) => this.kind() != that.kind(),
            _ => true,
        }
    }
}

/// What a look at the lock says of the election.
pub(super) fn seen(looked: Result<Inspection>) -> View {
    match looked.map(|inspection| inspection.holder) {
        Ok(None) => View::Nobody,
        Ok(Some(Holder { fence: Some(term), label, remaining, .. })) => {
            View::Leader(Leader { label, term, rest: remaining })
        }
        Ok(Some(_)) => {
            let text = "the lock of this election is held by a foreign client, whose holds have no fence";
            View::Unknown(Error::new(ErrorKind::Protocol, text))
        }
        Err(error) => View::Unknown(error),
    }
}

/// Observes one election; made by [`Election::observe`](super::Election::observe).
///
/// It looks when it is asked for the [next](Self::next) change: at a third of the ttl, at the end of the lease that was seen if
/// that is sooner, and more often while nobody leads or the backend does not answer (after 50 ms, and at intervals that double).
/// So it hears of a leader that died when its lease ends, and of a resignation within a third of the ttl;
/// [`every`](Self::every) makes that sooner. One look is an [`inspect`](Lock::inspect). There is no background task, and an observer
/// that nobody asks costs nothing.
///
/// A leader is told once for each term, not again when its lease is renewed. Terms that are over between two looks are not told.
#[derive(Debug)]
#[must_use = "an observer does nothing until it is asked for the next view"]
pub struct Observer {
    lock: Lock,
    every: Duration,
    /// When to look again.
    due: Option<Instant>,
    told: Option<View>,
    /// The newest term that was seen.
    newest: Option<FencingToken>,
    pause: Pause,
}

impl Observer {
    pub(super) fn new(lock: Lock, every: Duration) -> Self {
        let observer = Self { lock, every, due: None, told: None, newest: None, pause: Pause::default() };
        observer.every(every)
    }

    /// The longest time between two looks. Default: a third of the election's ttl; at least 10 ms.
    pub fn every(mut self, span: Duration) -> Self {
        self.every = span.max(SHORTEST);
        self
    }

    /// The first view at once, and then the next one that differs; `None` once the client is closed. The term of a leader is never
    /// smaller than that of one before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call goes on where this one was.
    pub async fn next(&mut self) -> Option<View> {
        let shared = std::sync::Arc::clone(self.lock.shared());
        tokio::select! {
            biased;
            () = shared.closed() => None,
            view = self.changed() => view,
        }
    }

    /// The same as a stream, which ends when the client is closed.
    pub fn stream(self) -> impl Stream<Item = View> {
        futures_util::stream::unfold(self, async |mut observer| Some((observer.next().await?, observer)))
    }

    async fn changed(&mut self) -> Option<View> {
        loop {
            if let Some(due) = self.due {
                sleep_until(due).await;
            }
            let view = self.credible(seen(self.lock.inspect().await));
            if matches!(&view, View::Unknown(error) if error.kind() == ErrorKind::Closed) {
                return None;
            }
            let news = self.told.as_ref().is_none_or(|told| view.differs_from(told));
            if news {
                self.pause.reset();
            }
            self.due = Some(Instant::now() + self.until_the_next(&view));
            if news {
                self.told = Some(view.clone());
                return Some(view);
            }
        }
    }

    /// Does not believe in a term that was over before.
    fn credible(&mut self, view: View) -> View {
        let View::Leader(leader) = &view else { return view };
        match self.newest {
            Some(newest) if leader.term < newest => {
                let text = format!("the backend tells of term {}, and term {newest} was seen before", leader.term);
                View::Unknown(Error::new(ErrorKind::Protocol, text))
            }
            _ => {
                self.newest = Some(leader.term);
                view
            }
        }
    }

    fn until_the_next(&mut self, view: &View) -> Duration {
        let pause = match view {
            // A millisecond on top: the end of a lease is noticed after it, not before.
            View::Leader(leader) => {
                leader.rest.map_or(Duration::MAX, |rest| rest.saturating_add(Duration::from_millis(1)))
            }
            View::Nobody => self.pause.up_to(self.every),
            View::Unknown(_) => self.pause.outage(),
        };
        pause.min(self.every).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: Holder) -> Result<Inspection> {
        Ok(Inspection::default().with_holder(Some(holder)))
    }

    fn term(number: u64) -> Holder {
        Holder::default().with_fence(FencingToken::new(number))
    }

    #[test]
    fn what_cannot_be_told_is_unknown() {
        assert!(matches!(seen(Ok(Inspection::default())), View::Nobody));
        let leader = seen(held(term(7).with_remaining(Some(Duration::ZERO))));
        assert_eq!(leader.leader().map(|leader| (leader.term.get(), leader.rest)), Some((7, Some(Duration::ZERO))));
        let foreign = seen(held(Holder::default()));
        assert!(matches!(&foreign, View::Unknown(error) if error.kind() == ErrorKind::Protocol), "{foreign:?}");
        let away = seen(Err(Error::new(ErrorKind::Unavailable, "away")));
        assert!(matches!(&away, View::Unknown(error) if error.kind() == ErrorKind::Unavailable), "{away:?}");
    }

    #[test]
    fn a_renewal_is_no_news_and_another_term_label_or_kind_is() {
        let views = || {
            let label = |text| Label::new(text).ok();
            let error = |kind| View::Unknown(Error::new(kind, "x"));
            [
                seen(held(term(1).with_label(label("a")))),
                seen(held(term(2).with_label(label("a")))),
                seen(held(term(1).with_label(label("b")))),
                View::Nobody,
                error(ErrorKind::Unavailable),
                error(ErrorKind::Denied),
            ]
        };
        for (here, this) in views().iter().enumerate() {
            for (there, that) in views().iter().enumerate() {
                assert_eq!(this.differs_from(that), here != there, "{this:?} after {that:?}");
            }
        }
        let renewed = seen(held(term(1).with_remaining(Some(Duration::from_secs(9)))));
        assert!(!renewed.differs_from(&seen(held(term(1).with_remaining(Some(Duration::from_secs(1)))))));
    }
}
