//! Schedules as cron writes them, in a time zone.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::value::error::{Error, ErrorKind, Result};

#[derive(Clone, Debug)]
pub(super) struct Cron {
    pattern: String,
    times: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    pub(super) fn new(pattern: &str, zone: &str) -> Result<Self> {
        let pattern = pattern.split_whitespace().collect::<Vec<_>>().join(" ");
        let refused = |what: &str, text: &str| format!("\"{}\" is no {what}", text.escape_debug());
        let times = croner::parser::CronParser::new().parse(&pattern).map_err(|cause| {
            Error::new(ErrorKind::InvalidArgument, refused("cron expression", &pattern)).with_source(cause)
        })?;
        let zone = TimeZone::get(zone).map_err(|cause| {
            Error::new(ErrorKind::InvalidArgument, refused("known time zone", zone)).with_source(cause)
        })?;
        Ok(Self { pattern, times, zone })
    }

    pub(super) fn pattern(&self) -> &str {
        &self.pattern
    }

    pub(super) fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The first time after this one, if there is one.
    pub(super) fn next(&self, after: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(after).ok()?).ok()?;
        let next: Zoned = self.times.find_next_occurrence(&after.to_zoned(self.zone.clone()), false).ok()?;
        u64::try_from(next.timestamp().as_millisecond()).ok()
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.zone() == other.zone()
    }
}

impl Eq for Cron {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next times after this one.
    fn times(pattern: &str, after: &str, count: usize) -> Vec<String> {
        let cron = Cron::new(pattern, "Europe/Berlin").unwrap();
        let mut at = after.parse::<Timestamp>().unwrap().as_millisecond() as u64;
        let next = |_| {
            at = cron.next(at).unwrap();
            Timestamp::from_millisecond(at as i64).unwrap().to_string()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn times_are_of_the_zone_and_one_time_a_day_comes_once_also_when_clocks_are_changed() {
        let nightly = times("0 3 * * *", "2026-03-27T12:00:00Z", 3);
        assert_eq!(nightly, ["2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"]);
        let in_the_gap = times("30 2 * * *", "2026-03-27T12:00:00Z", 3);
        assert_eq!(in_the_gap, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        let twice_on_the_clock = times("30 2 * * *", "2026-10-24T12:00:00Z", 2);
        assert_eq!(twice_on_the_clock, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let weekdays = times(" 0  9 * *   MON-FRI", "2026-01-02T12:00:00Z", 1);
        assert_eq!(weekdays, ["2026-01-05T08:00:00Z"]);
    }

    #[test]
    fn several_times_a_day_follow_the_clock_on_the_wall() {
        let in_the_gap = times("30 2,14 * * *", "2026-03-28T20:00:00Z", 2);
        assert_eq!(in_the_gap, ["2026-03-29T12:30:00Z", "2026-03-30T00:30:00Z"]);
        let twice_on_the_clock = times("30 2,14 * * *", "2026-10-24T20:00:00Z", 3);
        assert_eq!(twice_on_the_clock, ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T13:30:00Z"]);
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for (pattern, zone) in [("", "UTC"), ("61 * * * *", "UTC"), ("0 3 * * *", "Europe/Atlantis"), ("x", "UTC")] {
            assert_eq!(Cron::new(pattern, zone).unwrap_err().kind(), ErrorKind::InvalidArgument, "{pattern} {zone}");
        }
        assert_eq!(Cron::new("0 0 30 2 *", "UTC").unwrap().next(0), None);
    }
}
