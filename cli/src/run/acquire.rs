//! Until the lock is there: waiting, with an eye on signals, and a word about who stands in the way.

use std::time::Duration;

use rustix::process::Signal;
use tenure::{Holder, Inspection, Lock, LockGuard};
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
    /// Somebody else has it.
    Busy(String),
    /// A signal came first.
    Interrupted(Signal),
}

/// A lock that comes sooner needs no word about the wait.
const WORTH_A_WORD: Duration = Duration::from_millis(200);
const REWRITTEN: Duration = Duration::from_secs(1);

/// Takes the lock. Whatever was asked for and is not granted is undone in the background.
pub(super) async fn acquire(
    lock: &Lock,
    patience: Patience,
    signals: &mut Signals,
    voice: Voice,
) -> Result<Acquired, Failure> {
    let asked = async {
        match patience {
            Patience::Unlimited => lock.acquire().await.map(Some),
            Patience::Within(most) => lock.acquire_within(most).await.map(Some),
            Patience::None => lock.try_acquire().await,
        }
    };
    let answer = tokio::select! {
        biased;
        signal = signals.end() => return Ok(Acquired::Interrupted(signal)),
        answer = asked => answer,
        () = tell(lock, voice) => unreachable!("it is told until the answer comes"),
    };
    match answer {
        Ok(Some(guard)) => Ok(Acquired::Granted(guard)),
        Ok(None) => Ok(Acquired::Busy(look(lock).await)),
        Err(error) if error.is_timed_out() => Ok(Acquired::Busy(look(lock).await)),
        Err(error) => Err(error.into()),
    }
}

/// Who has the lock, in words.
async fn look(lock: &Lock) -> String {
    lock.inspect().await.map_or_else(|_| String::from("it is not known who holds it"), |seen| describe(&seen))
}

/// Never returns. On a terminal the line is rewritten each second, elsewhere it is one.
async fn tell(lock: &Lock, voice: Voice) {
    sleep(WORTH_A_WORD).await;
    let Some(mut line) = voice.progress() else {
        voice.note(&format!("waiting: {}", look(lock).await));
        return std::future::pending().await;
    };
    loop {
        line.show(&format!("tenure: waiting: {}", look(lock).await));
        sleep(REWRITTEN).await;
    }
}

/// A lock, in words.
pub(crate) fn describe(seen: &Inspection) -> String {
    let holder = seen.holder.as_ref().map_or_else(|| String::from("nobody holds it"), describe_holder);
    match seen.waiters {
        0 => holder,
        waiters => format!("{holder}; {waiters} in line"),
    }
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
