//! What a recurring message carries of its schedule.

use super::schedule::Schedule;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::limits::Attempts;
use crate::value::queue_name::Recurrence;

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
