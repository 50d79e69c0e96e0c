//! A guard of any kind.

use std::time::Duration;

use tenure_core::{FencingToken, LockAllGuard, LockGuard, LockName, OwnerId, ReentrantGuard, Result};

#[derive(Debug)]
pub(crate) enum Guard {
    Plain(LockGuard),
    Entry(ReentrantGuard),
    All(LockAllGuard),
}

/// What a guard says of one lock.
pub(crate) struct Belief<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) fence: FencingToken,
    /// How long it is believed in from now on; zero if it is lost.
    pub(crate) remaining: Duration,
}

impl Guard {
    pub(crate) fn beliefs(&self) -> Vec<Belief<'_>> {
        let plain = |guard| {
            let guard: &LockGuard = guard;
            let remaining = if guard.is_held() { guard.remaining() } else { Duration::ZERO };
            Belief { name: guard.name(), owner: None, fence: guard.fence(), remaining }
        };
        match self {
            Self::Plain(guard) => vec![plain(guard)],
            Self::All(guard) => guard.guards().iter().map(plain).collect(),
            Self::Entry(guard) => {
                let remaining = if guard.is_held() { guard.remaining() } else { Duration::ZERO };
                vec![Belief { name: guard.name(), owner: Some(*guard.owner()), fence: guard.fence(), remaining }]
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Plain(guard) => guard.is_held(),
            Self::Entry(guard) => guard.is_held(),
            Self::All(guard) => guard.is_held(),
        }
    }

    pub(crate) async fn lost(&self) {
        match self {
            Self::Plain(guard) => guard.lost().await,
            Self::Entry(guard) => guard.lost().await,
            Self::All(guard) => guard.lost().await,
        };
    }

    pub(crate) async fn extend(&self, ttl: Duration) -> Result<()> {
        match self {
            Self::Plain(guard) => guard.extend(ttl).await,
            Self::Entry(guard) => guard.extend(ttl).await,
            Self::All(_) => Ok(()),
        }
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Entry(guard) => guard.release().await.map(drop),
            Self::All(guard) => guard.release().await,
        }
    }
}
