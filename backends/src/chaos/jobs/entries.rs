//! What a client process writes down of a message, as the words of a line.

use std::fmt;
use std::time::Duration;

use tenure_conformance::BoxError;

use super::plan::Plan;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// About to be pushed.
    Pushing { plan: Plan, delay: Duration, key: Option<u64>, name: Option<u64>, window: Duration },
    /// The push returned this: `stored` or `duplicate`, or the kind of its error.
    Pushed { answer: String },
    /// Received by a call that began at `asked`.
    Got { asked: Duration, fence: u64, attempt: u32, cause: String },
    /// About to settle this delivery; if it is to come again, no sooner than after that span.
    Settling { fence: u64, how: String, after: Duration },
    /// The settlement returned this: the answer, or the kind of its error.
    Settled { fence: u64, answer: String },
}

/// One word: a text with blanks would read as several.
pub(crate) fn word(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.split_whitespace().collect::<Vec<_>>().join("_") }
}

fn optional(number: Option<u64>) -> String {
    number.map_or_else(|| "-".into(), |number| number.to_string())
}

fn number(word: &str) -> Result<Option<u64>, BoxError> {
    if word == "-" { Ok(None) } else { Ok(Some(word.parse()?)) }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pushing { plan, delay, key, name, window } => {
                let (delay, window) = (delay.as_nanos(), window.as_nanos());
                write!(f, "pushing {plan} {delay} {} {} {window}", optional(*key), optional(*name))
            }
            Self::Pushed { answer } => write!(f, "pushed {}", word(answer)),
            Self::Got { asked, fence, attempt, cause } => {
                write!(f, "got {} {fence} {attempt} {}", asked.as_nanos(), word(cause))
            }
            Self::Settling { fence, how, after } => write!(f, "settling {fence} {} {}", word(how), after.as_nanos()),
            Self::Settled { fence, answer } => write!(f, "settled {fence} {}", word(answer)),
        }
    }
}

impl Entry {
    /// `None` if the words are of something else.
    pub(crate) fn parse(words: &[&str]) -> Result<Option<Self>, BoxError> {
        let nanos = |text: &str| text.parse().map(Duration::from_nanos);
        Ok(Some(match words {
            ["pushing", plan, delay, key, name, window] => Self::Pushing {
                plan: plan.parse()?,
                delay: nanos(delay)?,
                key: number(key)?,
                name: number(name)?,
                window: nanos(window)?,
            },
            ["pushed", answer] => Self::Pushed { answer: (*answer).into() },
            ["got", asked, fence, attempt, cause] => Self::Got {
                asked: nanos(asked)?,
                fence: fence.parse()?,
                attempt: attempt.parse()?,
                cause: (*cause).into(),
            },
            ["settling", fence, how, after] => {
                Self::Settling { fence: fence.parse()?, how: (*how).into(), after: nanos(after)? }
            }
            ["settled", fence, answer] => Self::Settled { fence: fence.parse()?, answer: (*answer).into() },
            _ => return Ok(None),
        }))
    }
}
