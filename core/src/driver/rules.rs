//! Rules that drivers share: abandoned tokens, credible fences, token buckets, and the lifecycle of a message.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Cause, DeadCause, Due, NamedId, NewMessage, Settlement};
use crate::value::queue::{Attempts, Delay, Rate, Reason, Recurrence};
use crate::value::time::LeaseInstant;
use crate::value::token::{FencingToken, OwnerToken};

/// The recently abandoned tokens, each remembered for [`Tombstones::LIFE`]: a request of such a token that arrives
/// later must be refused.
#[derive(Debug, Default)]
pub struct Tombstones {
    until: HashMap<OwnerToken, LeaseInstant>,
    order: VecDeque<(LeaseInstant, OwnerToken)>,
}

impl Tombstones {
    /// The time that a token is remembered.
    pub const LIFE: Duration = Duration::from_secs(60);

    /// Remembers a token from now on.
    pub fn bury(&mut self, token: OwnerToken) {
        self.sweep();
        let until = LeaseInstant::now().after(Self::LIFE);
        if self.until.insert(token, until).is_none() {
            self.order.push_back((until, token));
        }
    }

    /// Returns true if the token was abandoned recently.
    pub fn hold(&mut self, token: &OwnerToken) -> bool {
        self.sweep();
        self.until.contains_key(token)
    }

    fn sweep(&mut self) {
        let now = LeaseInstant::now();
        while let Some((until, token)) = self.order.front().copied() {
            if until > now {
                break;
            }
            self.order.pop_front();
            match self.until.get(&token) {
                Some(later) if *later > now => self.order.push_back((*later, token)),
                _ => drop(self.until.remove(&token)),
            }
        }
    }
}

// Which fences are believed in, where the clock seeds them.

/// The maximum difference between the wall clocks of clients and nodes of a quorum, or of successive servers: a day.
///
/// A proposal that is further ahead counts as none, a fence that is further ahead is not credible, and the fence
/// counter of a name that was unused for so long may be forgotten: any clock that seeds the next one is past it.
pub const CLOCKS_APART: Duration = Duration::from_secs(86_400);

/// The number from which on Redis scripts, whose numbers are doubles, cannot count by one.
const UNCOUNTABLE: u64 = 1 << 53;

/// The fences that are credible at one moment: those below 2^53 that are at most [`CLOCKS_APART`] ahead of the clock, in
/// microseconds since 1970.
///
/// A counter beyond them is damaged, or its node is faulty. A node that adopted it would have no number left to count
/// to, or would give out fences that the clock does not reach for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredibleFences {
    most: u64,
}

impl CredibleFences {
    /// Returns those by this machine's wall clock. A clock before 1970 gives no bound, and then only 2^53 is a limit.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        since.map_or(Self { most: UNCOUNTABLE - 1 }, |since| {
            Self::at(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
        })
    }

    /// Returns those by a clock that shows this many microseconds since 1970.
    #[must_use]
    pub fn at(micros: u64) -> Self {
        let ahead = u64::try_from(CLOCKS_APART.as_micros()).unwrap_or(u64::MAX);
        Self { most: micros.saturating_add(ahead).min(UNCOUNTABLE - 1) }
    }

    /// Returns those and the ones by another clock.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { most: self.most.max(other.most) }
    }

    /// Returns the greatest of them.
    #[must_use]
    pub fn greatest(self) -> u64 {
        self.most
    }

    /// Returns true if the fence is one of them.
    #[must_use]
    pub fn contain(self, fence: FencingToken) -> bool {
        fence.get() <= self.most
    }
}

// The rate of a queue, counted in one number.

/// A token bucket whose whole state is the instant at which it is full again, on the backend's clock: an instant in the
/// past, or zero, is a full bucket. A driver that counts deliveries by itself stores that number with its queue.
///
/// (The generic cell rate algorithm: a token is an interval, and the bucket is how far ahead of now its end may be.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// The time from one token to the next.
    interval: u64,
    size: u64,
}

impl TokenBucket {
    /// Makes the bucket of a rate, on a clock that counts units of `unit`: a microsecond or less, as a rate can be one
    /// delivery a microsecond.
    #[must_use]
    pub fn new(rate: Rate, unit: Duration) -> Self {
        let interval = rate.interval().as_nanos().div_ceil(unit.as_nanos().max(1));
        Self { interval: u64::try_from(interval).unwrap_or(u64::MAX), size: u64::from(rate.deliveries().get()) }
    }

    /// Returns the number of deliveries that it allows now.
    #[must_use]
    pub fn tokens(&self, full_at: u64, now: u64) -> u64 {
        self.size.saturating_sub(full_at.saturating_sub(now).div_ceil(self.interval))
    }

    /// Returns the time of the next token; zero if there is one now.
    #[must_use]
    pub fn token_at(&self, full_at: u64, now: u64) -> u64 {
        match self.tokens(full_at, now) {
            0 => full_at.saturating_sub(self.interval.saturating_mul(self.size - 1)),
            _ => 0,
        }
    }

    /// Returns the time at which it is full again after so many deliveries.
    #[must_use]
    pub fn spent(&self, full_at: u64, now: u64, deliveries: usize) -> u64 {
        full_at.max(now).saturating_add(self.interval.saturating_mul(deliveries as u64))
    }

    /// Returns the time at which it is full again if it is empty now. A later time was counted by a clock that is ahead
    /// of this one.
    #[must_use]
    pub fn emptied(&self, now: u64) -> u64 {
        now.saturating_add(self.interval.saturating_mul(self.size))
    }

    /// Returns the time at which it is full again after so many deliveries that were counted, but not made.
    #[must_use]
    pub fn given_back(&self, full_at: u64, deliveries: usize) -> u64 {
        full_at.saturating_sub(self.interval.saturating_mul(deliveries as u64))
    }
}

#[cfg(test)]
mod tombstones_tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_is_remembered_for_a_while_after_it_was_last_buried() {
        let (mut buried, token) = (Tombstones::default(), OwnerToken::random());
        assert!(!buried.hold(&token));
        buried.bury(token);
        tokio::time::advance(Tombstones::LIFE / 2).await;
        buried.bury(token);
        tokio::time::advance(Tombstones::LIFE * 3 / 4).await;
        assert!(buried.hold(&token));
        tokio::time::advance(Tombstones::LIFE / 2).await;
        assert!(!buried.hold(&token) && buried.order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_were_buried_again_do_not_keep_others_from_being_forgotten() {
        let (mut buried, tokens) = (Tombstones::default(), [(); 3].map(|()| OwnerToken::random()));
        let known = |buried: &mut Tombstones| tokens.map(|token| buried.hold(&token));
        for token in tokens {
            buried.bury(token);
            tokio::time::advance(Tombstones::LIFE / 6).await;
        }
        buried.bury(tokens[0]); // now at 3/6, the others at 1/6 and 2/6
        tokio::time::advance(Tombstones::LIFE * 7 / 12).await;
        assert_eq!(known(&mut buried), [true, true, true], "13/12 have passed since the first");
        tokio::time::advance(Tombstones::LIFE / 6).await;
        assert_eq!(known(&mut buried), [true, false, true]);
        assert_eq!(buried.order.len(), 2);
        tokio::time::advance(Tombstones::LIFE / 6).await;
        assert_eq!((known(&mut buried), buried.order.len()), ([true, false, false], 1));
    }
}

#[cfg(test)]
mod credible_tests {
    use super::*;

    #[test]
    fn a_day_ahead_is_credible_and_no_more_and_nothing_from_2_to_the_53_on() {
        let fence = |number| FencingToken::new(number).unwrap();
        let (now, day) = (1_700_000_000_000_000, 86_400_000_000);
        let credible = CredibleFences::at(now);
        for (number, believed) in [(1, true), (now, true), (now + day, true), (now + day + 1, false)] {
            assert_eq!(credible.contain(fence(number)), believed, "{number}");
        }
        for clock in [u64::MAX, 1 << 60, (1 << 53) - 1] {
            let credible = CredibleFences::at(clock);
            assert!(credible.contain(fence((1 << 53) - 1)) && !credible.contain(fence(1 << 53)), "{clock}");
        }
        let both = CredibleFences::at(now).or(CredibleFences::at(5));
        assert_eq!(both, credible);
        assert!(CredibleFences::now().contain(fence(now)) && !CredibleFences::now().contain(fence(u64::MAX)));
        assert_eq!(credible.greatest(), now + day);
    }
}

#[cfg(test)]
mod bucket_tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn bucket(deliveries: u32, millis: u64) -> TokenBucket {
        TokenBucket::new(Rate::new(deliveries, Duration::from_millis(millis)).unwrap(), Duration::from_nanos(1))
    }

    #[test]
    fn it_is_full_at_first_and_after_an_idle_time_and_never_more_than_full() {
        let bucket = bucket(3, 30);
        for now in [0, 7 * MS, 1_000 * MS] {
            assert_eq!(bucket.tokens(0, now), 3);
            let empty = bucket.spent(0, now, 3);
            assert_eq!(bucket.tokens(empty, now), 0);
            assert_eq!(bucket.tokens(empty, now + 1_000 * MS), 3, "an idle time fills it");
        }
    }

    #[test]
    fn tokens_come_back_one_by_one_at_the_told_instants() {
        let bucket = bucket(3, 30);
        let empty = bucket.spent(0, 0, 3);
        for (token, at) in [(1, 10 * MS), (2, 20 * MS), (3, 30 * MS)] {
            assert_eq!((bucket.tokens(empty, at - 1), bucket.tokens(empty, at)), (token - 1, token));
        }
        assert_eq!(bucket.token_at(empty, 0), 10 * MS);
        assert_eq!(bucket.token_at(empty, 10 * MS), 0, "there is one now");
    }

    #[test]
    fn no_spending_that_there_are_tokens_for_goes_beyond_the_empty_bucket() {
        let bucket = bucket(3, 30);
        for tokens in 0..=3 {
            let full_at = bucket.spent(0, 7 * MS, tokens);
            assert!(full_at <= bucket.emptied(7 * MS));
            assert_eq!(full_at == bucket.emptied(7 * MS), bucket.tokens(full_at, 7 * MS) == 0);
        }
    }

    #[test]
    fn a_part_of_an_interval_is_not_lost() {
        let bucket = bucket(3, 30);
        let empty = bucket.spent(bucket.spent(0, 0, 3), 15 * MS, 1);
        assert_eq!((bucket.tokens(empty, 15 * MS), bucket.token_at(empty, 15 * MS)), (0, 20 * MS));
    }

    #[test]
    fn what_is_given_back_is_there_again() {
        let bucket = bucket(3, 30);
        let empty = bucket.spent(0, 5 * MS, 3);
        assert_eq!(bucket.tokens(bucket.given_back(empty, 2), 5 * MS), 2);
    }

    #[test]
    fn the_unit_is_that_of_the_clock() {
        let rate = Rate::new(4, Duration::from_secs(4)).unwrap();
        let bucket = TokenBucket::new(rate, Duration::from_micros(1));
        assert_eq!(bucket.token_at(bucket.spent(0, 5, 4), 5), 5 + 1_000_000);
    }

    #[test]
    fn over_a_long_time_no_more_is_handed_out_than_said() {
        for (deliveries, millis) in [(1, 1), (7, 10), (3, 1_000), (1_000, 1), (999, 7)] {
            let bucket = bucket(deliveries, millis);
            let (mut full_at, mut now, mut handed_out, span) = (0, 0, 0, 20 * millis * MS);
            while now < span {
                let some = bucket.tokens(full_at, now).min(3);
                full_at = bucket.spent(full_at, now, some as usize);
                handed_out += some;
                now = now.max(bucket.token_at(full_at, now));
            }
            let most = u64::from(deliveries) * 21; // a full bucket at the beginning
            assert!(handed_out <= most && handed_out * 100 >= most * 85, "{handed_out} of {most}");
        }
    }
}

// The rule of a message's life.

/// The state of a message that deliveries and settlements change: the number of its deliveries, the cause of the next
/// one, and the reason why it must not be delivered any more.
///
/// The rule of settlements is implemented here once, as a function without a clock and without a store. The driver
/// decides where a message is kept, by which clock it is due, and how much room the dead letters have. `T` is an
/// instant of that clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle<T> {
    /// The number of counted deliveries.
    pub attempt: u32,
    /// The most deliveries.
    pub attempts: Attempts,
    /// The cause of the next delivery, unless the lease of the last one ends.
    pub cause: Cause,
    /// The reason of the last failure.
    pub reason: Option<Reason>,
    /// The schedule of a recurring message.
    pub recurrence: Option<Recurrence>,
    /// The last instant at which it may be delivered.
    pub expires: Option<T>,
    /// Set when it is, or should be, among the dead letters.
    pub doomed: Option<DeadCause>,
}

/// The next state of a settled message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is removed; its id stays known for [`NamedId::known_for`].
    Removed,
    /// It waits, and is due after the delay.
    Waits(Delay),
    /// It moves to the dead letters; if they are full, it waits for [`POSTPONED`].
    Dies(DeadCause),
}

/// The wait of a message that should be dead when the dead letters are full.
pub const POSTPONED: Duration = Duration::from_secs(60);

impl<T: Copy + Ord> Lifecycle<T> {
    /// Makes the state of a message that is pushed, and may be delivered until `expires`.
    #[must_use]
    pub fn new(message: &NewMessage, expires: Option<T>) -> Self {
        let cause = match message.due {
            Due::After(_) => Cause::First,
            Due::Parked { .. } => Cause::Parked,
        };
        let recurrence = message.recurrence.clone();
        Self { attempt: 0, attempts: message.attempts, cause, reason: None, recurrence, expires, doomed: None }
    }

    /// Returns the cause why it must not be delivered again at any time, if there is one.
    #[must_use]
    pub fn doom(&self) -> Option<DeadCause> {
        self.doomed.or((self.attempt >= self.attempts.get()).then_some(DeadCause::Exhausted))
    }

    /// Returns the cause why it must not be delivered now, if there is one.
    #[must_use]
    pub fn doom_at(&self, now: T) -> Option<DeadCause> {
        self.doom().or(self.expires.is_some_and(|until| until < now).then_some(DeadCause::Expired))
    }

    /// Settles a delivery; the caller has checked that the receipt is valid.
    pub fn settle(&mut self, how: &Settlement) -> Fate {
        match how {
            Settlement::Ack => Fate::Removed,
            Settlement::Dead { reason } => {
                self.reason.clone_from(reason);
                Fate::Dies(DeadCause::Rejected)
            }
            Settlement::Retry { after, reason } => {
                self.reason.clone_from(reason);
                self.cause = Cause::Retried;
                self.doom().map_or(Fate::Waits(*after), Fate::Dies)
            }
            Settlement::Return { after } => {
                self.uncount(Cause::Returned);
                Fate::Waits(*after)
            }
            Settlement::Park { at_most, .. } => {
                self.uncount(Cause::Parked);
                Fate::Waits(*at_most)
            }
            Settlement::Recur { after, recurrence, reason } => {
                self.begin_anew(Cause::First);
                self.recurrence = Some(recurrence.clone());
                self.reason.clone_from(reason);
                Fate::Waits(*after)
            }
        }
    }

    /// Returns the message from the dead letters, for an operator.
    pub fn redrive(&mut self) {
        self.begin_anew(Cause::Redriven);
        self.doomed = None;
    }

    fn uncount(&mut self, cause: Cause) {
        self.attempt = self.attempt.saturating_sub(1);
        self.cause = cause;
    }

    fn begin_anew(&mut self, cause: Cause) {
        self.attempt = 0;
        self.expires = None;
        self.cause = cause;
    }
}

impl NamedId {
    /// Returns the time that the name of an acknowledged message stays known; `None` if it is free at once.
    #[must_use]
    pub fn known_for(&self) -> Option<Duration> {
        Some(self.window.get()).filter(|window| !window.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::queue::Payload;

    fn delivered(attempt: u32, attempts: u32) -> Lifecycle<u64> {
        let mut message = NewMessage::new(Payload::new(*b"").unwrap());
        message.attempts = Attempts::new(attempts).unwrap();
        let mut life = Lifecycle::new(&message, Some(100));
        life.attempt = attempt;
        life
    }

    fn after(millis: u64) -> Delay {
        Delay::new(Duration::from_millis(millis)).unwrap()
    }

    fn why() -> Option<Reason> {
        Some(Reason::new("why").unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_remembered_for_a_minute_and_takes_up_no_room_behind_it() {
        let (mut tombs, [one, other]) = (Tombstones::default(), [OwnerToken::random(), OwnerToken::random()]);
        tombs.bury(one);
        tokio::time::advance(Tombstones::LIFE / 2).await;
        tombs.bury(one);
        tokio::time::advance(Tombstones::LIFE * 3 / 4).await;
        assert!(tombs.hold(&one), "it was abandoned once more");
        tokio::time::advance(Tombstones::LIFE / 4).await;
        tombs.bury(other);
        assert_eq!((tombs.until.len(), tombs.order.len()), (1, 1));
        assert!(!tombs.hold(&one) && tombs.hold(&other));
    }

    #[test]
    fn each_settlement_has_its_fate_and_changes_what_it_says() {
        let kept = delivered(2, 3);
        let recurrence = Recurrence::new("every day").unwrap();
        let lock = crate::LockName::new("lock").unwrap();
        let table = [
            (Settlement::Ack, Fate::Removed, kept.clone()),
            (
                Settlement::Dead { reason: why() },
                Fate::Dies(DeadCause::Rejected),
                Lifecycle { reason: why(), ..kept.clone() },
            ),
            (
                Settlement::Retry { after: after(7), reason: why() },
                Fate::Waits(after(7)),
                Lifecycle { reason: why(), cause: Cause::Retried, ..kept.clone() },
            ),
            (
                Settlement::Return { after: after(8) },
                Fate::Waits(after(8)),
                Lifecycle { attempt: 1, cause: Cause::Returned, ..kept.clone() },
            ),
            (
                Settlement::Park { lock, at_most: after(9) },
                Fate::Waits(after(9)),
                Lifecycle { attempt: 1, cause: Cause::Parked, ..kept.clone() },
            ),
            (
                Settlement::Recur { after: after(10), recurrence: recurrence.clone(), reason: why() },
                Fate::Waits(after(10)),
                Lifecycle { attempt: 0, expires: None, reason: why(), recurrence: Some(recurrence), ..kept.clone() },
            ),
        ];
        for (how, fate, then) in table {
            let mut life = kept.clone();
            assert_eq!(life.settle(&how), fate, "{how:?}");
            assert_eq!(life, then, "{how:?}");
        }
    }

    #[test]
    fn the_last_attempt_dies_of_a_retry_and_of_nothing_else_that_waits() {
        let mut last = delivered(3, 3);
        let retry = Settlement::Retry { after: after(7), reason: why() };
        assert_eq!(last.settle(&retry), Fate::Dies(DeadCause::Exhausted));
        assert_eq!((last.reason.clone(), last.cause), (why(), Cause::Retried));
        let mut returned = delivered(3, 3);
        assert_eq!(returned.settle(&Settlement::Return { after: Delay::ZERO }), Fate::Waits(Delay::ZERO));
        assert_eq!((returned.attempt, returned.doom()), (2, None));
    }

    #[test]
    fn what_must_not_be_delivered_and_why() {
        let (fresh, exhausted) = (delivered(0, 1), delivered(1, 1));
        assert_eq!((fresh.doom(), fresh.doom_at(100), fresh.doom_at(101)), (None, None, Some(DeadCause::Expired)));
        assert_eq!(exhausted.doom_at(101), Some(DeadCause::Exhausted), "that came first");
        let mut rejected = Lifecycle { doomed: Some(DeadCause::Rejected), ..exhausted };
        assert_eq!(rejected.doom_at(101), Some(DeadCause::Rejected));
        rejected.reason = why();
        rejected.redrive();
        let redriven = Lifecycle { cause: Cause::Redriven, reason: why(), expires: None, ..fresh };
        assert_eq!(rejected, redriven);
    }

    #[test]
    fn a_parked_push_says_so_and_a_name_without_a_window_is_free_at_once() {
        let mut message = NewMessage::new(Payload::new(*b"").unwrap());
        message.due = Due::Parked { at_most: after(1) };
        assert_eq!(Lifecycle::<u64>::new(&message, None).cause, Cause::Parked);
        let id = crate::queue::MessageId::named("a").unwrap();
        let named = |window| NamedId { id: id.clone(), window };
        assert_eq!(named(Delay::ZERO).known_for(), None);
        assert_eq!(named(after(5)).known_for(), Some(Duration::from_millis(5)));
    }
}
