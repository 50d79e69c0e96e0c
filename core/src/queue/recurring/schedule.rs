//! When a recurring message comes.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "cron")]
use crate::queue::recurring::cron::Cron;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::limits::Attempts;
use crate::value::queue_name::Recurrence;

/// The shortest interval.
const SHORTEST: Duration = Duration::from_secs(1);

/// Times are milliseconds since 1970, by the wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// Milliseconds apart.
    Every(u64),
    #[cfg(feature = "cron")]
    Cron(Box<Cron>),
}

impl Schedule {
    pub(super) fn every(interval: Duration) -> Result<Self> {
        let is_whole = interval >= SHORTEST && interval.subsec_nanos().is_multiple_of(1_000_000);
        let millis = u64::try_from(interval.as_millis()).ok().filter(|_| is_whole);
        let refused = || {
            format!(
                "an interval of {interval:?} is shorter than {SHORTEST:?}, not in whole milliseconds, or beyond all times"
            )
        };
        millis.map(Self::Every).ok_or_else(|| Error::new(ErrorKind::InvalidArgument, refused()))
    }

    /// What `Display` has written.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let unknown = || Error::new(ErrorKind::Unsupported, format!("no schedule is known that is called \"{text}\""));
        match text.split_once(' ') {
            Some(("every", millis)) => {
                millis.parse().ok().filter(|millis| *millis > 0).map(Self::Every).ok_or_else(unknown)
            }
            #[cfg(feature = "cron")]
            Some(("cron", text)) => {
                let (zone, pattern) = text.split_once(' ').ok_or_else(unknown)?;
                Cron::new(pattern, zone).map(|cron| Self::Cron(Box::new(cron)))
            }
            _ => Err(unknown()),
        }
    }

    /// The first time after both, if there is one. An interval counts from the `nominal` time of an occurrence.
    pub(super) fn next(&self, nominal: u64, after: u64) -> Option<u64> {
        match self {
            Self::Every(millis) => {
                let times = (after.saturating_sub(nominal) / millis).checked_add(1)?;
                times.checked_mul(*millis).and_then(|span| nominal.checked_add(span))
            }
            #[cfg(feature = "cron")]
            Self::Cron(cron) => cron.next(nominal.max(after)),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(millis) => write!(f, "every {millis}"),
            #[cfg(feature = "cron")]
            Self::Cron(cron) => write!(f, "cron {} {}", cron.zone(), cron.pattern()),
        }
    }
}

// What a recurring message carries of its schedule.

/// What becomes of occurrences whose time has passed without anybody to handle them, or while the one before was handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missed {
    /// They are left out: an occurrence that is first delivered when the time of the next one has come is not handled.
    #[default]
    Skip,
    /// However many were missed, one is handled, late.
    RunOnce,
}

/// How a message recurs: the same for all its occurrences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) schedule: Schedule,
    /// How often each occurrence may be tried.
    pub(super) attempts: Attempts,
    pub(super) missed: Missed,
}

/// The first word of the text: another one is of another version.
const VERSION: &str = "1";

impl Plan {
    /// The text that is stored with the message, until its next occurrence, which is at this time.
    ///
    /// The time is in it since clients' clocks differ: the occurrence after it is never sooner, whatever the clock says.
    pub(super) fn recurrence(&self, nominal: u64) -> Result<Recurrence> {
        let missed = match self.missed {
            Missed::Skip => "skip",
            Missed::RunOnce => "once",
        };
        Recurrence::new(format!("{VERSION} {nominal} {} {missed} {}", self.attempts.get(), self.schedule))
    }

    /// The plan and the time of an occurrence.
    pub(super) fn read(recurrence: &Recurrence) -> Result<(Self, u64)> {
        let text = recurrence.as_str();
        let unreadable = || {
            let text = format!("the recurrence \"{}\" is not understood by this client", text.escape_debug());
            Error::new(ErrorKind::Unsupported, text)
        };
        let mut words = text.splitn(5, ' ');
        let mut word = || words.next().ok_or_else(unreadable);
        let (version, nominal, attempts, missed, schedule) = (word()?, word()?, word()?, word()?, word()?);
        let nominal = nominal.parse().ok().filter(|_| version == VERSION).ok_or_else(unreadable)?;
        let attempts = attempts.parse().ok().and_then(|count| Attempts::new(count).ok()).ok_or_else(unreadable)?;
        let missed = match missed {
            "skip" => Missed::Skip,
            "once" => Missed::RunOnce,
            _ => return Err(unreadable()),
        };
        let schedule = Schedule::parse(schedule).map_err(|cause| unreadable().with_source(cause))?;
        Ok((Self { schedule, attempts, missed }, nominal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_from_the_nominal_time() {
        let every = Schedule::every(Duration::from_secs(10)).unwrap();
        assert_eq!(every.next(5_000, 5_000), Some(15_000));
        assert_eq!(every.next(5_000, 0), Some(15_000), "also by a clock that is behind");
        assert_eq!(every.next(5_000, 14_999), Some(15_000));
        assert_eq!(every.next(5_000, 15_000), Some(25_000));
        assert_eq!(every.next(5_000, 99_000), Some(105_000));
        assert_eq!(every.next(u64::MAX, 0), None);
        assert_eq!(Schedule::Every(1).next(0, u64::MAX), None);
    }

    #[test]
    fn what_is_written_is_read_again_and_the_rest_refused() {
        let every = Schedule::every(Duration::from_millis(1_500)).unwrap();
        assert_eq!(Schedule::parse(&every.to_string()).unwrap(), every);
        for text in ["", "every", "every 0", "every x", "yearly 5", "cron", "cron Europe/Berlin"] {
            assert_eq!(Schedule::parse(text).unwrap_err().kind(), ErrorKind::Unsupported, "{text}");
        }
        for refused in [Duration::from_millis(999), Duration::from_micros(1_000_500), Duration::MAX] {
            assert_eq!(Schedule::every(refused).unwrap_err().kind(), ErrorKind::InvalidArgument, "{refused:?}");
        }
    }
}

#[cfg(test)]
mod plan_tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_the_rest_refused() {
        let schedule = Schedule::every(Duration::from_secs(60)).unwrap();
        let plan = Plan { schedule, attempts: Attempts::new(3).unwrap(), missed: Missed::RunOnce };
        let text = plan.recurrence(1_700_000_000_000).unwrap();
        assert_eq!(text.as_str(), "1 1700000000000 3 once every 60000");
        assert_eq!(Plan::read(&text).unwrap(), (plan, 1_700_000_000_000));
        for other in
            ["2 5 3 once every 60000", "1 x 3 once every 60000", "1 5 0 once every 6", "1 5 3 twice every 6", "1"]
        {
            let other = Recurrence::new(other).unwrap();
            assert_eq!(Plan::read(&other).unwrap_err().kind(), ErrorKind::Unsupported, "{other:?}");
        }
    }
}
