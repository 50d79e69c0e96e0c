//! The line of clients that wait on a queue, as one of them sees it: pure, so that a test can step it.
//!
//! A waiting client has a place in the line, and counts the places before its own from the events of its watch. All
//! clients learn when the next message is due and how many are due then. As many clients as messages ask at that time,
//! from the front of the line. Each other client would ask a little later than the one before it, because that one may
//! be dead. Usually it need not: a client that takes messages leaves the line and reports the remaining messages in the
//! same step.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::clock::Micros;
use super::keys::Spot;

/// How many events are remembered while a request is on its way.
const MOST_EVENTS: usize = 1_024;

/// How long after it is due a message is left to those in front: enough for a server that is slow for a moment.
pub(super) const BACKUP: Micros = 1_000_000;

/// Within how long after that all others would ask, and how many of them in the first half of it: however many are dead,
/// the delay is bounded, and where few are, few ask.
const SPREAD: Micros = 1_000_000;
const HALF: u64 = 20;

/// An event of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// This many more messages are due then.
    Sooner(Soonest),
    /// The next due time, from a client that looked: it replaces all earlier reports.
    Exactly(Soonest),
    /// A client took this place.
    Came(Vec<u8>),
    /// A client left this place.
    Went(Vec<u8>),
}

/// The earliest due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Soonest {
    /// `Micros::MAX`: nothing is.
    pub(super) due: Micros,
    /// How many clients are to ask then.
    pub(super) wanted: u64,
}

/// The place of a client and the earliest due time, as read in one revision.
#[derive(Clone, Debug)]
pub(super) struct LineState {
    pub(super) place: Place,
    pub(super) soonest: Soonest,
    pub(super) revision: i64,
}

/// A place in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) key: Vec<u8>,
    /// How many are before it.
    pub(super) ahead: u64,
}

/// What one client knows of a queue on which it waits.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    place: Option<Place>,
    /// The client's only place, also if it is not known how things stand: until it is known to be gone.
    spot: Option<Spot>,
    soonest: Soonest,
    /// Up to this revision everything is counted in.
    read_at: i64,
    asks: Asks,
    /// What happened while a request was on its way.
    recent: VecDeque<(i64, News)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asks {
    /// The client sleeps.
    #[default]
    No,
    /// It was woken, and has not asked yet.
    Woken,
    /// A request is on its way.
    Yes,
    /// A request is on its way, and events since then are missing.
    Blindly,
}

impl Default for Soonest {
    fn default() -> Self {
        Self::NEVER
    }
}

impl Soonest {
    pub(super) const NEVER: Self = Self { due: Micros::MAX, wanted: 0 };
    const AT_ONCE: Self = Self { due: 0, wanted: 1 };

    /// Of messages that are due then.
    pub(super) fn of(due: &[Micros], now: Micros) -> Self {
        let Some(first) = due.iter().min() else { return Self::NEVER };
        let wanted = due.iter().filter(|due| **due <= now.max(*first)).count() as u64;
        Self { due: *first, wanted }
    }

    /// As it counts for a client that receives it now: no client asked before for messages that became due without a
    /// signal, and a client whose clock is ahead did not miss it.
    fn heard_of(self, now: Micros) -> Self {
        Self { due: self.due.max(now), ..self }
    }

    /// Its form in the signal's key, with an equals sign before it if it is [exact](News::Exactly).
    pub(super) fn spelled(self) -> String {
        format!("{} {}", self.due, self.wanted)
    }

    fn parse(text: &str) -> Option<Self> {
        let (due, wanted) = text.split_once(' ')?;
        Some(Self { due: due.parse().ok()?, wanted: wanted.parse().ok()? })
    }
}

impl News {
    /// The content of a signal; one that cannot be read makes all clients look that do not wait for less.
    pub(super) fn parse(value: &[u8]) -> Self {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let exact = text.strip_prefix('=').and_then(Soonest::parse).map(Self::Exactly);
        exact.unwrap_or_else(|| Self::Sooner(Soonest::parse(text).unwrap_or(Soonest::AT_ONCE)))
    }
}

impl Sleeper {
    /// A request leaves, unless one is on its way that looks after the place; returns the place that it may have, and
    /// whether it asks since those before it did not.
    pub(super) fn asks(&mut self, now: Micros) -> Option<(Option<Spot>, bool)> {
        if self.is_asking() {
            return None;
        }
        self.asks = Asks::Yes;
        let place = self.place.take();
        let late = self.soonest.due.saturating_add(BACKUP) <= now;
        let instead = late && place.as_ref().is_some_and(|place| place.ahead >= self.soonest.wanted);
        Some((self.spot.clone(), instead))
    }

    /// The request was answered, or failed, and left this place; without knowing how things stand the client does not wait.
    pub(super) fn answered(&mut self, spot: Option<Spot>, line_state: Option<LineState>, now: Micros) {
        self.spot = spot;
        let blindly = std::mem::replace(&mut self.asks, Asks::No) == Asks::Blindly;
        let recent = std::mem::take(&mut self.recent);
        (self.place, self.soonest) = (None, Soonest::NEVER);
        if blindly {
            self.soonest = Soonest::AT_ONCE;
            return;
        }
        if let Some(LineState { place, soonest, revision }) = line_state {
            (self.read_at, self.soonest, self.place) = (revision, soonest.heard_of(now), Some(place));
        }
        for (revision, news) in recent {
            self.count(revision, news, now);
        }
    }

    /// Something happened.
    pub(super) fn take_in(&mut self, revision: i64, news: News, now: Micros) {
        match self.asks {
            Asks::Yes if self.recent.len() < MOST_EVENTS => self.recent.push_back((revision, news)),
            Asks::Yes => self.asks = Asks::Blindly,
            Asks::Blindly => {}
            Asks::No | Asks::Woken => self.count(revision, news, now),
        }
    }

    /// Events are missing: its place is not known any more.
    pub(super) fn gap(&mut self) {
        (self.place, self.soonest) = (None, Soonest::NEVER);
        self.asks = match self.asks {
            Asks::Yes | Asks::Blindly => Asks::Blindly,
            Asks::No | Asks::Woken => Asks::No,
        };
    }

    /// When it is to ask, as far as it is known now.
    pub(super) fn alarm(&self) -> Option<Micros> {
        let Soonest { due, wanted } = self.soonest;
        if self.asks != Asks::No || due == Micros::MAX {
            return None;
        }
        let Some(Place { ahead, .. }) = self.place else { return Some(0) };
        let Some(behind) = ahead.checked_sub(wanted.max(1)) else { return Some(due) };
        Some(due.saturating_add(BACKUP + SPREAD * behind / (behind + HALF)))
    }

    /// Whether it is one of those that ask when the next message is due.
    pub(super) fn is_in_front(&self) -> bool {
        self.place.as_ref().is_none_or(|place| place.ahead < self.soonest.wanted.max(1))
    }

    /// Whether a request is on its way that looks after the place.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.asks, Asks::Yes | Asks::Blindly)
    }

    /// It waits no more; returns the place that it may have.
    pub(super) fn leaves(&mut self) -> Option<Vec<u8>> {
        self.spot.take().map(|spot| spot.key)
    }

    /// It was woken: once, until it asks.
    pub(super) fn woken(&mut self) {
        self.asks = Asks::Woken;
    }

    fn count(&mut self, revision: i64, news: News, now: Micros) {
        if revision <= self.read_at {
            return;
        }
        match news {
            News::Exactly(soonest) if self.place.is_some() => self.soonest = soonest.heard_of(now),
            News::Exactly(_) => {}
            News::Sooner(soonest) => match soonest.heard_of(now) {
                sooner if sooner.due < self.soonest.due => self.soonest = sooner,
                more if more.due <= now => self.soonest.wanted = self.soonest.wanted.saturating_add(more.wanted),
                _ => {}
            },
            News::Came(key) => {
                if let Some(place) = self.place.as_mut().filter(|place| key < place.key) {
                    place.ahead += 1;
                }
            }
            News::Went(key) => self.went(&key),
        }
    }

    fn went(&mut self, key: &[u8]) {
        self.spot.take_if(|spot| spot.key == key);
        let Some(place) = &mut self.place else { return };
        match key.cmp(&place.key) {
            Ordering::Less => place.ahead = place.ahead.saturating_sub(1),
            // Another client took it for dead, or its lease has ended.
            Ordering::Equal => (self.place, self.soonest) = (None, Soonest::AT_ONCE),
            Ordering::Greater => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = 10_000_000;

    fn soonest(due: Micros, wanted: u64) -> Soonest {
        Soonest { due, wanted }
    }

    fn spot(seen: bool) -> Option<Spot> {
        Some(Spot { key: b"m".to_vec(), seen })
    }

    /// One that waits with so many before it, as of revision 10.
    fn waiting(ahead: u64, soonest: Soonest) -> Sleeper {
        let mut sleeper = Sleeper::default();
        assert_eq!(sleeper.asks(NOW), Some((None, false)));
        let place = Place { key: b"m".to_vec(), ahead };
        sleeper.answered(spot(true), Some(LineState { place, soonest, revision: 10 }), NOW);
        sleeper
    }

    #[test]
    fn as_many_ask_as_there_are_messages_and_the_others_later() {
        for (ahead, wanted, asks_at) in
            [(0, 1, NOW), (1, 1, NOW + BACKUP), (1, 2, NOW), (21, 1, NOW + BACKUP + SPREAD / 2)]
        {
            assert_eq!(
                waiting(ahead, soonest(NOW, wanted)).alarm(),
                Some(asks_at),
                "{ahead} before it, {wanted} wanted"
            );
        }
        assert_eq!(waiting(0, Soonest::NEVER).alarm(), None);
        assert!(waiting(999, soonest(NOW, 1)).alarm() < Some(NOW + 2_000_000), "however many are dead");
    }

    /// A concurrency key releases messages that have been due for long, and clocks are batch.
    #[test]
    fn a_message_due_before_the_report_is_left_to_the_clients_in_front() {
        let past = soonest(NOW - 10_000_000, 1);
        for news in [News::Sooner(past), News::Exactly(past), News::Sooner(Soonest::AT_ONCE)] {
            let mut sleeper = waiting(1, Soonest::NEVER);
            sleeper.take_in(11, news, NOW);
            assert_eq!(sleeper.alarm(), Some(NOW + BACKUP));
            assert_eq!(sleeper.asks(NOW), Some((spot(true), false)), "not instead of others");
        }
        assert_eq!(waiting(1, past).alarm(), Some(NOW + BACKUP));
        let mut sleeper = waiting(1, soonest(NOW, 1));
        sleeper.take_in(11, News::Sooner(past), NOW + 5);
        assert_eq!((sleeper.alarm(), sleeper.soonest.wanted), (Some(NOW), 2), "both are due");
    }

    #[test]
    fn events_that_the_answer_knew_of_are_not_counted_again() {
        let mut sleeper = waiting(2, soonest(NOW + 50, 1));
        for revision in [9, 10, 11] {
            sleeper.take_in(revision, News::Went(b"a".to_vec()), NOW);
        }
        sleeper.take_in(12, News::Came(b"z".to_vec()), NOW);
        assert!(!sleeper.is_in_front());
        sleeper.take_in(13, News::Went(b"b".to_vec()), NOW);
        assert_eq!(sleeper.alarm(), Some(NOW + 50));
    }

    #[test]
    fn places_before_its_own_count_and_no_others() {
        let is_in_front = |news: &[News]| {
            let mut sleeper = waiting(1, soonest(NOW, 2));
            (11..).zip(news).for_each(|(revision, news)| sleeper.take_in(revision, news.clone(), NOW));
            sleeper.is_in_front()
        };
        let (came, went) = (|key: &str| News::Came(key.into()), |key: &str| News::Went(key.into()));
        assert!(is_in_front(&[]));
        assert!(!is_in_front(&[came("l")]));
        assert!(is_in_front(&[came("m"), came("n")]), "its own, and one behind it");
        assert!(is_in_front(&[came("l"), went("a")]));
        assert!(!is_in_front(&[came("l"), went("n")]));
        let mut first = waiting(0, soonest(NOW, 1));
        first.take_in(11, went("a"), NOW);
        first.take_in(12, came("a"), NOW);
        assert!(!first.is_in_front(), "one that it had not counted went, and another one came");
        assert_eq!(first.asks(NOW), Some((spot(true), false)), "its own is still there");
        assert!(Sleeper::default().is_in_front(), "it has none");
    }

    #[test]
    fn who_hears_too_much_beside_a_request_asks_again() {
        let alarm = |events: usize| {
            let mut sleeper = waiting(1, Soonest::NEVER);
            sleeper.asks(NOW);
            (0..events).for_each(|_| sleeper.take_in(11, News::Went(b"z".to_vec()), NOW));
            let place = Place { key: b"m".to_vec(), ahead: 1 };
            sleeper.answered(spot(true), Some(LineState { place, soonest: Soonest::NEVER, revision: 10 }), NOW);
            sleeper.alarm()
        };
        assert_eq!([MOST_EVENTS, MOST_EVENTS + 1].map(alarm), [None, Some(0)]);
        let mut sleeper = waiting(1, Soonest::NEVER);
        sleeper.asks(NOW);
        sleeper.gap();
        sleeper.answered(spot(true), None, NOW);
        assert_eq!((sleeper.alarm(), sleeper.asks(NOW)), (Some(0), Some((spot(true), false))), "not instead of others");
    }

    #[test]
    fn what_happened_during_a_request_counts_in_its_order() {
        for (last, alarm) in [(soonest(NOW + 50, 1), Some(NOW + 50)), (Soonest::NEVER, None)] {
            let mut sleeper = waiting(0, soonest(NOW + 50, 1));
            sleeper.asks(NOW);
            sleeper.take_in(11, News::Exactly(soonest(NOW + 10, 1)), NOW);
            sleeper.take_in(12, News::Exactly(last), NOW);
            let place = Place { key: b"m".to_vec(), ahead: 0 };
            sleeper.answered(spot(true), Some(LineState { place, soonest: soonest(NOW, 1), revision: 10 }), NOW);
            assert_eq!(sleeper.alarm(), alarm);
        }
    }

    #[test]
    fn one_that_was_woken_before_events_were_missing_is_woken_again() {
        let mut sleeper = waiting(0, soonest(NOW, 1));
        sleeper.woken();
        sleeper.take_in(11, News::Sooner(soonest(NOW, 1)), NOW);
        assert_eq!(sleeper.alarm(), None, "once");
        sleeper.gap();
        assert_eq!(sleeper.alarm(), None, "nothing is known");
        sleeper.take_in(12, News::Sooner(soonest(NOW, 1)), NOW);
        assert_eq!(sleeper.alarm(), Some(0));
    }

    #[test]
    fn as_many_are_wanted_as_there_are_messages_due_at_the_soonest() {
        for (due, reported) in [
            (&[][..], Soonest::NEVER),
            (&[NOW + 9, NOW + 5], soonest(NOW + 5, 1)),
            (&[NOW + 5, NOW + 5, NOW + 6], soonest(NOW + 5, 2)),
            (&[NOW - 1, NOW, NOW + 1], soonest(NOW - 1, 2)),
        ] {
            assert_eq!(Soonest::of(due, NOW), reported, "{due:?}");
        }
        let mut sleeper = waiting(1, soonest(NOW + 50, 2));
        sleeper.take_in(11, News::Sooner(soonest(NOW + 50, 1)), NOW);
        assert_eq!(sleeper.alarm(), Some(NOW + 50), "not fewer, since one more is due at that time");
        sleeper.take_in(12, News::Sooner(soonest(NOW + 90, 5)), NOW);
        assert_eq!((sleeper.soonest.due, sleeper.soonest.wanted), (NOW + 50, 2), "that is for later");
    }

    #[test]
    fn what_happened_during_a_request_counts_behind_its_answer() {
        let mut sleeper = waiting(1, soonest(NOW + 50, 1));
        sleeper.asks(NOW);
        sleeper.take_in(11, News::Went(b"a".to_vec()), NOW);
        sleeper.take_in(12, News::Sooner(soonest(NOW, 1)), NOW);
        assert_eq!((sleeper.alarm(), sleeper.asks(NOW)), (None, None), "one request at a time");
        let place = Place { key: b"m".to_vec(), ahead: 0 };
        sleeper.answered(spot(true), Some(LineState { place, soonest: soonest(NOW + 50, 1), revision: 11 }), NOW);
        assert_eq!(sleeper.alarm(), Some(NOW));
    }

    #[test]
    fn a_client_that_takes_a_message_tells_what_is_left() {
        let mut sleeper = waiting(1, soonest(NOW, 1));
        sleeper.take_in(11, News::Went(b"a".to_vec()), NOW);
        sleeper.take_in(11, News::Exactly(Soonest::NEVER), NOW);
        assert_eq!(sleeper.alarm(), None);
        sleeper.take_in(12, News::Sooner(soonest(NOW, 1)), NOW);
        sleeper.take_in(13, News::Sooner(soonest(NOW + 1, 2)), NOW + 1);
        assert_eq!((sleeper.alarm(), sleeper.soonest.wanted), (Some(NOW), 3), "both pushes are due");
    }

    #[test]
    fn one_that_was_taken_for_dead_asks_and_so_does_one_that_missed_events() {
        let mut sleeper = waiting(0, Soonest::NEVER);
        sleeper.take_in(11, News::Went(b"m".to_vec()), NOW);
        assert_eq!(sleeper.alarm(), Some(0));
        let mut sleeper = waiting(0, Soonest::NEVER);
        let asked = sleeper.asks(NOW);
        assert_eq!(asked, Some((spot(true), false)));
        sleeper.gap();
        sleeper.answered(spot(true), None, NOW);
        assert_eq!(sleeper.alarm(), Some(0));
    }

    #[test]
    fn without_an_answer_nothing_is_known() {
        let mut sleeper = waiting(0, soonest(NOW + 50, 1));
        sleeper.asks(NOW);
        sleeper.answered(spot(true), None, NOW);
        assert_eq!((sleeper.alarm(), sleeper.soonest), (None, Soonest::NEVER));
    }

    #[test]
    fn a_place_is_forgotten_only_when_it_is_known_to_be_gone() {
        let mut sleeper = Sleeper::default();
        sleeper.asks(NOW);
        sleeper.answered(spot(false), None, NOW);
        assert_eq!(sleeper.asks(NOW), Some((spot(false), false)), "it may have been taken");
        sleeper.answered(spot(false), None, NOW);
        sleeper.take_in(11, News::Went(b"m".to_vec()), NOW);
        assert_eq!(sleeper.asks(NOW), Some((None, false)));
        let mut sleeper = waiting(0, Soonest::NEVER);
        sleeper.asks(NOW);
        sleeper.answered(spot(true), None, NOW);
        sleeper.gap();
        assert_eq!(sleeper.leaves(), Some(b"m".to_vec()), "no answer, and events are missing");
        assert_eq!(sleeper.leaves(), None);
    }

    #[test]
    fn one_that_does_not_wait_is_woken_by_pushes_alone() {
        let mut sleeper = Sleeper::default();
        sleeper.take_in(1, News::Exactly(soonest(NOW, 1)), NOW);
        assert_eq!(sleeper.alarm(), None);
        sleeper.take_in(2, News::Sooner(soonest(NOW + 50, 1)), NOW);
        assert_eq!(sleeper.alarm(), Some(0));
        sleeper.woken();
        assert_eq!(sleeper.alarm(), None, "once");
    }

    #[test]
    fn one_far_behind_that_asks_nevertheless_does_so_instead_of_others() {
        assert_eq!(waiting(1, soonest(NOW, 1)).asks(NOW + BACKUP), Some((spot(true), true)));
        assert_eq!(waiting(0, soonest(NOW, 1)).asks(NOW + BACKUP), Some((spot(true), false)));
        assert_eq!(waiting(1, soonest(NOW, 1)).asks(NOW), Some((spot(true), false)));
    }

    #[test]
    fn numbers_of_a_foreign_hand_are_counted_to_their_end() {
        let mut sleeper = waiting(1, soonest(NOW, 1));
        sleeper.take_in(11, News::parse(b"0 18446744073709551615"), NOW);
        assert_eq!((sleeper.alarm(), sleeper.soonest.wanted), (Some(NOW), u64::MAX));
    }

    #[test]
    fn signals_are_read_back() {
        let reported = soonest(17, 3);
        assert_eq!(News::parse(reported.spelled().as_bytes()), News::Sooner(reported));
        assert_eq!(News::parse(format!("={}", reported.spelled()).as_bytes()), News::Exactly(reported));
        assert_eq!(News::parse(b"?"), News::Sooner(Soonest::AT_ONCE));
    }
}
