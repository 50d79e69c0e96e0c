//! A guard of either kind of lock.

use std::time::Duration;

use tenure::{HoldState, LockGuard, LostReason, ReentrantGuard, Result};

/// The held guard.
#[derive(Debug)]
pub(super) enum Holding {
    Plain(LockGuard),
    Entry(ReentrantGuard),
}

/// Calls the same method of either guard.
macro_rules! either {
    ($held:expr, $guard:ident => $call:expr) => {
        match $held {
            Self::Plain($guard) => $call,
            Self::Entry($guard) => $call,
        }
    };
}

impl Holding {
    pub(super) fn fence(&self) -> u64 {
        either!(self, guard => guard.fence().get())
    }

    pub(super) fn remaining(&self) -> Duration {
        either!(self, guard => guard.remaining())
    }

    pub(super) fn is_held(&self) -> bool {
        either!(self, guard => guard.is_held())
    }

    pub(super) async fn lost(&self) -> LostReason {
        either!(self, guard => guard.lost().await)
    }

    pub(super) async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        either!(self, guard => guard.run(work).await)
    }

    /// Whether the reported loss is one by the clock.
    pub(super) fn is_expired(&self) -> bool {
        either!(self, guard => matches!(guard.state(), HoldState::Lost(LostReason::Expired | LostReason::MaxHold)))
    }

    pub(super) async fn release(self) -> Result<String> {
        Ok(match self {
            Self::Plain(guard) => format!("{:?}", guard.release().await?),
            Self::Entry(guard) => format!("{:?}", guard.release().await?),
        })
    }
}
