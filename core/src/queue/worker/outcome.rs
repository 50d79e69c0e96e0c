//! How a handler says what became of its message.

use std::fmt::Display;
use std::time::Duration;

use crate::value::queue_name::Reason;

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work is done: the message is removed.
    Done,
    /// The work failed: the message is tried again, when the worker's [`RetryPolicy`](super::RetryPolicy) says.
    Retry(Option<Reason>),
    /// The work failed: the message is tried again after this span.
    RetryAfter(Duration, Option<Reason>),
    /// The work is not to be done now: the message is due again after this span, and the attempt is not counted. Nobody
    /// counts how often.
    Later(Duration),
    /// The work will never succeed: the message moves to the dead letters. Of a [recurring](crate::Recurring) message this
    /// occurrence is over.
    Dead(Option<Reason>),
    /// The work is done, and the message [recurs](crate::Recurring) no more: it is removed.
    End,
}

/// What a handler may return: an [`Outcome`], nothing (done), or a result, whose error is a reason to try again.
pub trait IntoOutcome {
    /// The outcome that this stands for.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl<T: IntoOutcome, E: Display> IntoOutcome for Result<T, E> {
    /// The error's text, as much as fits, becomes the reason that is kept with the message.
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => Outcome::Retry(Some(Reason::beginning_of(&error.to_string()))),
        }
    }
}
