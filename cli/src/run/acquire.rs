//! Until the lock is there: waiting, with an eye on signals, and a word about who stands in the way.

use std::time::Duration;

use rustix::process::Signal;
use tenure::{Holder, Inspection, Lock, LockGuard, WaitProgress};
use tokio::time::sleep;

use super::signals::Signals;
use crate::duration::show;
use crate::exit::Failure;
use crate::speak::Voice;

/// How long somebody waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Unlimited,
    Within(Duration),
    /// One attempt.
    None,
}

/// What came of it.
pub(super) enum Acquired {
    Granted(LockGuard),
    /// Somebody else has it; and the place that was reached in line.
    Busy(String, Option<u64>),
    /// A signal came first; and the place that was reached in line.
    Interrupted(Signal, Option<u64>),
}

/// A lock that comes sooner needs no word about the wait.
const WORTH_A_WORD: Duration = Duration::from_millis(200);

/// Where only one line is printed, it is delayed by at most this much until the place in line is known.
const A_PLACE: Duration = Duration::from_secs(1);
const REWRITTEN: Duration = Duration::from_secs(1);

/// Takes the lock. Whatever was asked for and is not granted is undone in the background.
pub(super) async fn acquire(
    lock: &Lock,
    patience: Patience,
    signals: &mut Signals,
    voice: Voice,
) -> Result<Acquired, Failure> {
    let progress = WaitProgress::new();
    let lock = &lock.clone().progress(&progress);
    let asked = async {
        match patience {
            Patience::Unlimited => lock.acquire().await.map(Some),
            Patience::Within(most) => lock.acquire_within(most).await.map(Some),
            Patience::None => lock.try_acquire().await,
        }
    };
    let answer = tokio::select! {
        biased;
        signal = signals.end() => return Ok(Acquired::Interrupted(signal, place(&progress))),
        answer = asked => answer,
        () = tell(lock, &progress, voice) => unreachable!("it is told until the answer comes"),
    };
    match answer {
        Ok(Some(guard)) => Ok(Acquired::Granted(guard)),
        Ok(None) => Ok(Acquired::Busy(look(lock).await, None)),
        Err(error) if error.is_timed_out() => Ok(Acquired::Busy(look(lock).await, place(&progress))),
        Err(error) => Err(error.into()),
    }
}

/// Who has the lock, in words.
async fn look(lock: &Lock) -> String {
    look_from(lock, None).await
}

/// Who has the lock, and the place of whoever looks, in words.
async fn look_from(lock: &Lock, place: Option<u64>) -> String {
    match lock.inspect().await {
        Ok(seen) => describe_from(&seen, place),
        Err(_) => String::from("it is not known who holds it"),
    }
}

/// The place in line, counted from one.
fn place(progress: &WaitProgress) -> Option<u64> {
    progress.ahead().map(|ahead| u64::from(ahead) + 1)
}

/// Never returns. On a terminal the line is rewritten each second, elsewhere it is one.
async fn tell(lock: &Lock, progress: &WaitProgress, voice: Voice) {
    sleep(WORTH_A_WORD).await;
    let Some(mut line) = voice.progress() else {
        let _known_or_not = tokio::time::timeout(A_PLACE, progress.clone().changed()).await;
        voice.note(&format!("waiting: {}", look_from(lock, place(progress)).await));
        return std::future::pending().await;
    };
    loop {
        line.show(&format!("tenure: waiting: {}", look_from(lock, place(progress)).await));
        sleep(REWRITTEN).await;
    }
}

/// A lock, in words.
pub(crate) fn describe(seen: &Inspection) -> String {
    describe_from(seen, None)
}

fn describe_from(seen: &Inspection, place: Option<u64>) -> String {
    let holder = seen.holder.as_ref().map_or_else(|| String::from("nobody holds it"), describe_holder);
    match (place, seen.waiters) {
        (None, 0) => holder,
        (None, waiters) => format!("{holder}; {waiters} in line"),
        (Some(place), waiters) if u64::from(waiters) < place => format!("{holder}; {} in line", ordinal(place)),
        (Some(place), waiters) => format!("{holder}; {} of {waiters} in line", ordinal(place)),
    }
}

fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

fn describe_holder(holder: &Holder) -> String {
    let mut text = match &holder.label {
        Some(label) => format!("held by {}", label.as_str().escape_debug()),
        None => String::from("held"),
    };
    if let Some(span) = holder.held_for {
        text.push_str(&format!(" for {}", show(span)));
    }
    match holder.remaining {
        Some(rest) => text.push_str(&format!(", its lease lasts another {}", show(rest))),
        None => text.push_str(", its lease has no end"),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::ordinal;

    #[test]
    fn places_are_counted_as_people_do() {
        let spoken = [1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111, 112, 123].map(ordinal);
        assert_eq!(spoken.join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 101st 111th 112th 123rd");
    }
}
