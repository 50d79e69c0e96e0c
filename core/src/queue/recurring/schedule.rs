//! The schedule of a recurring message: an interval or a cron expression.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::driver::{Cause, RawDelivery, Settlement};
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::{Attempts, Delay, Reason, Recurrence};
use crate::value::time::wall_clock;
#[cfg(feature = "cron")]
pub(super) use cron::Cron;

/// The shortest interval.
const SHORTEST: Duration = Duration::from_secs(1);

/// Times are milliseconds since 1970, by the wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// An interval in milliseconds.
    Every(u64),
    #[cfg(feature = "cron")]
    Cron(Box<Cron>),
}

impl Schedule {
    pub(super) fn every(interval: Duration) -> Result<Self> {
        let is_whole = interval >= SHORTEST && interval.subsec_nanos().is_multiple_of(1_000_000);
        let millis = u64::try_from(interval.as_millis()).ok().filter(|_| is_whole);
        let refused = || {
            format!("an interval of {interval:?} is shorter than {SHORTEST:?}, not in whole milliseconds, or too long")
        };
        millis.map(Self::Every).ok_or_else(|| Error::new(ErrorKind::InvalidArgument, refused()))
    }

    /// Parses the output of `Display`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let unknown = || Error::new(ErrorKind::Unsupported, format!("unknown schedule \"{text}\""));
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

    /// Returns the first time of this schedule when it replaces that one, whose next time is given: an interval counts
    /// from the time before it, and is due if it has passed by now.
    pub(super) fn first(&self, now: u64, before: Option<&(Self, u64)>) -> Option<u64> {
        match (self, before) {
            (Self::Every(millis), Some((Self::Every(old), nominal))) => {
                let last = nominal.saturating_sub(*old);
                let intervals = (now.saturating_sub(last) / millis).max(1);
                intervals.checked_mul(*millis).and_then(|span| last.checked_add(span))
            }
            _ => self.next(now, now),
        }
    }

    /// Returns the first time after both, if there is one. An interval counts from the `nominal` time of an occurrence.
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

/// The handling of occurrences whose time passed while there was no handler, or while the one before was handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missed {
    /// They are left out: an occurrence that is first delivered at or after the time of the next one is not handled.
    #[default]
    Skip,
    /// One is handled, late, however many were missed.
    RunOnce,
}

/// The plan of a recurring message: the same for all its occurrences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) schedule: Schedule,
    /// The most attempts of each occurrence.
    pub(super) attempts: Attempts,
    pub(super) missed: Missed,
}

/// The first word of the text: another one is of another version.
const VERSION: &str = "1";

impl Plan {
    /// Returns the text that is stored with the message, until its next occurrence, which is at this time.
    ///
    /// The text includes the time because clients' clocks differ: the occurrence after it is never sooner, whatever a
    /// clock shows.
    pub(super) fn recurrence(&self, nominal: u64) -> Result<Recurrence> {
        let missed = match self.missed {
            Missed::Skip => "skip",
            Missed::RunOnce => "once",
        };
        Recurrence::new(format!("{VERSION} {nominal} {} {missed} {}", self.attempts.get(), self.schedule))
    }

    /// Returns the plan and the time of an occurrence.
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

// One coming of a recurring message.

/// The delay of a message whose recurrence this client does not understand: another client may understand it.
const NOT_OURS: Duration = Duration::from_secs(10);

/// The end of an occurrence of a recurring message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OccurrenceEnd {
    /// It was handled.
    Done,
    /// Its last attempt failed, or it was rejected. It is no dead letter: its reason stays with the message until the
    /// next occurrence has ended.
    Failed,
    /// It was not handled: the time of the next one had come when it was received, and the schedule then
    /// [skips](Missed::Skip) it.
    Missed,
}

/// The occurrence of a delivery.
#[derive(Debug)]
pub(in crate::queue) struct Occurrence {
    plan: Plan,
    /// Its time by the schedule.
    nominal: u64,
    /// The time at which this delivery of it was received.
    received: u64,
    /// The driver's longest delay.
    longest: Duration,
}

impl Occurrence {
    pub(in crate::queue) fn read(recurrence: &Recurrence, longest: Duration) -> Result<Self> {
        let (plan, nominal) = Plan::read(recurrence)?;
        Ok(Self { plan, nominal, received: millis(wall_clock()), longest })
    }

    /// Returns its time by the schedule.
    pub(in crate::queue) fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.nominal)
    }

    /// Returns its most attempts.
    pub(in crate::queue) fn attempts(&self) -> Attempts {
        self.plan.attempts
    }

    /// Returns the end of the occurrence by this settlement of a delivery, if it ends.
    pub(in crate::queue) fn end(&self, attempt: u32, how: &Settlement) -> Option<OccurrenceEnd> {
        match how {
            Settlement::Ack => Some(OccurrenceEnd::Done),
            Settlement::Dead { .. } => Some(OccurrenceEnd::Failed),
            Settlement::Retry { .. } if attempt >= self.attempts().get() => Some(OccurrenceEnd::Failed),
            _ => None,
        }
    }

    /// Translates the settlement of a delivery for the message: the end of an occurrence schedules the next one. If
    /// there is none, the message ends with its last occurrence as any other.
    pub(in crate::queue) fn translated(&self, attempt: u32, how: Settlement) -> Settlement {
        let failed = match self.end(attempt, &how) {
            None => return how,
            Some(OccurrenceEnd::Done) => None,
            Some(OccurrenceEnd::Failed | OccurrenceEnd::Missed) => Some(reason_of(&how)),
        };
        match (self.recur(failed.clone().flatten()), failed) {
            (Some(recur), _) => recur,
            (None, None) => how,
            (None, Some(reason)) => Settlement::Dead { reason },
        }
    }

    /// Returns the settlement of a delivery that must not be handled, and the end of its occurrence; `None` for all
    /// others.
    pub(in crate::queue) fn passed_over(&self, raw: &RawDelivery) -> Option<(Settlement, OccurrenceEnd)> {
        if raw.attempt > self.attempts().get() {
            let crashed = (raw.cause == Cause::LeaseExpired).then(Reason::lease_ended);
            let dead = Settlement::Dead { reason: crashed.or(raw.reason.clone()) };
            return Some((self.translated(raw.attempt, dead), OccurrenceEnd::Failed));
        }
        let next_has_come =
            || self.plan.schedule.next(self.nominal, self.nominal).is_some_and(|next| next <= self.received);
        // Not what was put off or parked since: it came in time, and somebody wanted it later.
        if self.plan.missed == Missed::Skip && raw.cause == Cause::First && next_has_come() {
            return self.recur(Some(Reason::beginning_of("missed"))).map(|recur| (recur, OccurrenceEnd::Missed));
        }
        None
    }

    /// Returns the settlement after which the next occurrence comes.
    ///
    /// Occurrences missed until now are skipped; or run once: those missed until this delivery, by this one, and those
    /// missed since then by the next, which is then due at once.
    fn recur(&self, reason: Option<Reason>) -> Option<Settlement> {
        let now = millis(wall_clock());
        let seen = match self.plan.missed {
            Missed::Skip => now,
            Missed::RunOnce => self.received,
        };
        let next = self.plan.schedule.next(self.nominal, seen)?;
        let recurrence = self.plan.recurrence(next).ok()?;
        let span = Duration::from_millis(next.saturating_sub(now)).min(self.longest);
        Some(Settlement::Recur { after: Delay::new(span).ok()?, recurrence, reason })
    }
}

/// Returns the settlement of a delivery whose recurrence is not understood.
pub(in crate::queue) fn left_to_others(longest: Duration) -> Settlement {
    Settlement::Return { after: Delay::new(NOT_OURS.min(longest)).unwrap_or_default() }
}

fn reason_of(how: &Settlement) -> Option<Reason> {
    match how {
        Settlement::Retry { reason, .. } | Settlement::Dead { reason } => reason.clone(),
        _ => None,
    }
}

pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(feature = "cron")]
mod cron {
    //! Schedules as cron writes them, in a time zone.

    use crate::value::error::{Error, ErrorKind, Result};
    use jiff::tz::TimeZone;
    use jiff::{Timestamp, Zoned};

    #[derive(Clone, Debug)]
    pub(in crate::queue) struct Cron {
        pattern: String,
        times: croner::Cron,
        zone: TimeZone,
    }

    impl Cron {
        pub(in crate::queue) fn new(pattern: &str, zone: &str) -> Result<Self> {
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

        pub(in crate::queue) fn pattern(&self) -> &str {
            &self.pattern
        }

        pub(in crate::queue) fn zone(&self) -> &str {
            self.zone.iana_name().unwrap_or("UTC")
        }

        /// Returns the first time after this one, if there is one.
        pub(in crate::queue) fn next(&self, after: u64) -> Option<u64> {
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

        /// Returns the next times after this one.
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
            for (pattern, zone) in [("", "UTC"), ("61 * * * *", "UTC"), ("0 3 * * *", "Europe/Atlantis"), ("x", "UTC")]
            {
                assert_eq!(
                    Cron::new(pattern, zone).unwrap_err().kind(),
                    ErrorKind::InvalidArgument,
                    "{pattern} {zone}"
                );
            }
            assert_eq!(Cron::new("0 0 30 2 *", "UTC").unwrap().next(0), None);
        }

        #[test]
        fn the_next_time_is_later_than_the_last_one_also_by_a_clock_that_is_behind() {
            let (hour, minutely) = (3_600_000, Cron::new("* * * * *", "UTC").unwrap());
            let schedule = super::super::Schedule::Cron(Box::new(minutely));
            assert_eq!(schedule.next(hour, hour - 60_000), Some(hour + 60_000));
            assert_eq!(schedule.next(hour - 60_000, hour), Some(hour + 60_000));
        }

        #[test]
        fn schedules_are_the_same_by_pattern_and_zone() {
            let cron = |pattern, zone| Cron::new(pattern, zone).unwrap();
            let one = cron("0 3 * * *", "UTC");
            assert!(one == cron("0 3 * * *", "UTC"));
            assert!(one != cron("1 3 * * *", "UTC") && one != cron("0 3 * * *", "Europe/Berlin"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_left_to_others_for_a_while_that_the_backend_keeps() {
        for (longest, after) in [(3_600, 10), (4, 4)] {
            let after = Delay::new(Duration::from_secs(after)).unwrap();
            assert_eq!(left_to_others(Duration::from_secs(longest)), Settlement::Return { after });
        }
    }

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
    use crate::driver::Receipt;
    use crate::value::queue::{MessageId, Payload};
    use crate::value::token::FencingToken;

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

    /// The next occurrence replaces a missed one; without a next one, there is no replacement.
    #[test]
    fn the_last_occurrence_of_a_schedule_is_not_skipped() {
        let day = Duration::from_secs(86_400);
        let plan = Plan {
            schedule: Schedule::every(Duration::from_secs(60)).unwrap(),
            attempts: Attempts::DEFAULT,
            missed: Missed::Skip,
        };
        let (payload, fence) = (Payload::new(Vec::new()).unwrap(), FencingToken::new(1).unwrap());
        let raw = RawDelivery::new(MessageId::named("a").unwrap(), payload, fence, Receipt::new([1, 1, 0]));
        for (nominal, passed_over) in [(0, true), (u64::MAX, false)] {
            let occurrence = Occurrence::read(&plan.recurrence(nominal).unwrap(), day).unwrap();
            assert_eq!(occurrence.passed_over(&raw).is_some(), passed_over, "{nominal}");
        }
        // Missed it is from the moment on at which the next one should have come.
        for (received, passed_over) in [(60_000, true), (59_999, false)] {
            let occurrence = Occurrence { plan: plan.clone(), nominal: 0, received, longest: day };
            assert_eq!(occurrence.passed_over(&raw).is_some(), passed_over, "{received}");
        }
    }

    #[test]
    fn one_that_has_no_attempts_left_keeps_the_reason_of_its_last_failure_unless_it_crashed() {
        let schedule = Schedule::every(Duration::from_secs(60)).unwrap();
        let plan = Plan { schedule, attempts: Attempts::new(1).unwrap(), missed: Missed::RunOnce };
        let occurrence = Occurrence { plan, nominal: 0, received: 0, longest: Duration::from_secs(86_400) };
        let (payload, fence) = (Payload::new(Vec::new()).unwrap(), FencingToken::new(1).unwrap());
        let failed = Reason::new("no disk").unwrap();
        let raw = RawDelivery::new(MessageId::named("a").unwrap(), payload, fence, Receipt::new([1, 1, 0]))
            .with_attempt(2)
            .with_reason(Some(failed.clone()));
        for (cause, expected) in [(Cause::Retried, failed), (Cause::LeaseExpired, Reason::lease_ended())] {
            let passed_over = occurrence.passed_over(&raw.clone().with_cause(cause));
            let Some((Settlement::Recur { reason, .. }, OccurrenceEnd::Failed)) = passed_over else {
                panic!("it is to be passed over as failed");
            };
            assert_eq!(reason, Some(expected));
        }
    }
}

#[cfg(test)]
mod properties {
    //! Stored schedules are read with unexpected inputs.

    use crate::queue::recurring::schedule::Plan;
    use crate::value::queue::Recurrence;
    use proptest::prelude::*;
    use tenure_testkit::inputs::{self, assert_sound};

    const WORDS: &[&str] = &[
        "1 ",
        "2 ",
        "1700000000000 ",
        "18446744073709551615 ",
        "3 ",
        "0 ",
        "skip ",
        "once ",
        "every ",
        "cron ",
        "UTC ",
        "Europe/Berlin ",
        "* ",
        "*/5 ",
        "30 ",
        "2 ",
        "MON-FRI ",
        "L ",
        "15W ",
        "5#3 ",
        "60000",
        "1",
        " ",
        "-",
        ",",
        "/",
    ];

    /// Generates texts that are mostly plans: the common words, and then any.
    fn texts() -> impl Strategy<Value = String> {
        let heads = ["", "1 5 3 skip every ", "1 1700000000000 3 once cron UTC ", "1 0 10000 skip cron Europe/Berlin "];
        (0..heads.len(), inputs::text(WORDS, 0..8)).prop_map(move |(head, rest)| format!("{}{rest}", heads[head]))
    }

    proptest! {
        #![proptest_config(inputs::config())]

        #[test]
        fn any_schedule_is_read_or_refused_and_has_a_next_time_or_none(text in texts(), after in any::<u64>()) {
            let Ok(recurrence) = Recurrence::new(&text) else { return Ok(()) };
            match Plan::read(&recurrence) {
                Err(error) => assert_sound(&error, &[]),
                Ok((plan, nominal)) => {
                    for after in [after, after % 4_000_000_000_000] {
                        let next = plan.schedule.next(nominal, after);
                        assert!(next.is_none_or(|next| next > nominal && next > after), "{next:?}");
                    }
                    let again = plan.recurrence(nominal).unwrap();
                    assert_eq!(Plan::read(&again).unwrap(), (plan, nominal));
                }
            }
        }
    }
}
