//! Abandoned tokens, for drivers that remember them in the process.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::value::clock::LeaseInstant;
use crate::value::token::OwnerToken;

/// The tokens that were abandoned a short while ago, each for [`Tombstones::LIFE`]: a request of theirs that arrives
/// later is to be refused.
#[derive(Debug, Default)]
pub struct Tombstones {
    until: HashMap<OwnerToken, LeaseInstant>,
    order: VecDeque<(LeaseInstant, OwnerToken)>,
}

impl Tombstones {
    /// How long a token is remembered.
    pub const LIFE: Duration = Duration::from_secs(60);

    /// Remembers a token from now on.
    pub fn bury(&mut self, token: OwnerToken) {
        self.sweep();
        let until = LeaseInstant::now().after(Self::LIFE);
        if self.until.insert(token, until).is_none() {
            self.order.push_back((until, token));
        }
    }

    /// Whether the token was abandoned a short while ago.
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

#[cfg(test)]
mod tests {
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
}
