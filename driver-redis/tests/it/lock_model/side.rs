//! One of the two backends, asked through the driver traits.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tenure_core::driver::{
    Acquisition, Begun, DistributedLock, Exited, ForceReleased, Grant, Hold, ReentrantEntry, ReentrantHold,
    ReentrantLock, Released, Renewed, Signal, Watch,
};
use tenure_core::{FencingToken, Result};

use super::script::{Cast, LOCK, Step, seconds};
use crate::common::name;
use tenure_models::Grow;

/// What a step came to: words that are the same on both sides, and spans that are the same but for a rounding.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) words: String,
    pub(crate) spans: Vec<Duration>,
    /// The lock was given back, wholly or in part.
    pub(crate) left: bool,
}

/// Redis counts whole milliseconds, and adds one where a lease has to be over.
const ROUNDING: Duration = Duration::from_millis(3);

impl Said {
    fn only(words: impl Into<String>) -> Self {
        Self { words: words.into(), ..Self::default() }
    }

    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let close = |(one, two): (&Duration, &Duration)| one.abs_diff(*two) <= ROUNDING;
        self.words == other.words
            && self.spans.len() == other.spans.len()
            && self.spans.iter().zip(&other.spans).all(close)
    }
}

pub(crate) struct Client {
    pub(crate) locks: Arc<dyn DistributedLock>,
    pub(crate) reentrant: Arc<dyn ReentrantLock>,
}

impl Client {
    pub(crate) fn of<L: DistributedLock + ReentrantLock>(driver: L) -> Self {
        let driver = Arc::new(driver);
        Self { locks: Arc::clone(&driver) as _, reentrant: driver }
    }
}

#[derive(Default)]
pub(crate) struct Side {
    pub(crate) clients: Vec<Client>,
    watches: Vec<Option<Watch>>,
    /// Those of the deaf client. What they are told is not looked at.
    unheard: Vec<Watch>,
    /// The fences in the order in which they were given, each with how many belong to it.
    fences: Vec<(FencingToken, u32)>,
    floor: u64,
    /// The last fence that is nobody else's.
    last: u64,
}

impl Side {
    /// Its fences are beyond a floor.
    pub(crate) async fn of(clients: Vec<Client>, cast: &Cast, floor: u64) -> Self {
        let mut side = Self { clients, floor, last: floor, ..Self::default() };
        for who in 0..cast.askers.len() {
            side.watches.push(None);
            side.listen(who, cast).await;
        }
        side
    }

    /// Listens for the asker's present token.
    pub(crate) async fn listen(&mut self, who: usize, cast: &Cast) {
        let locks = &self.clients[cast.askers[who].client].locks;
        let watch = locks.watch(&name(LOCK), &cast.tokens[who]).await.unwrap();
        if cast.hears(who) {
            self.watches[who] = Some(watch);
        } else {
            self.unheard.push(watch);
        }
    }

    /// Everything was lost.
    pub(crate) fn forget_fences(&mut self, grow: Grow) {
        self.fences.clear();
        if grow == Grow::Anew {
            self.last = self.floor;
        }
    }

    /// Which one of the given fences it is. A new one has to be greater than all, and a grant that is told again carries as
    /// many as before; an operator is told of none but the first.
    fn fence(&mut self, fence: FencingToken, count: Option<u32>) -> String {
        let Some(at) = self.fences.iter().position(|(known, _)| *known == fence) else {
            let (falls, count) = (fence.get() <= self.last, count.unwrap_or(1));
            self.last = self.last.max(fence.get() + u64::from(count) - 1);
            self.fences.push((fence, count));
            return format!("fence {}{}", self.fences.len() - 1, if falls { " that falls" } else { "" });
        };
        let known = self.fences[at].1;
        let others = count.filter(|count| *count != known);
        others.map_or(format!("fence {at}"), |count| format!("fence {at} with {count} in place of {known}"))
    }

    pub(crate) async fn apply(&mut self, step: Step, cast: &Cast) -> Said {
        match step {
            Step::Ask(who) => self.ask(who, true, cast).await,
            Step::Try(who) => self.ask(who, false, cast).await,
            Step::Leave(who) => self.leave(who, cast).await,
            Step::Abandon(who, _) => self.abandon(who, cast).await,
            Step::Renew(who, ttl) => self.renew(who, ttl, cast).await,
            Step::Force(which) => {
                let at = which.and_then(|back| self.fences.len().checked_sub(back + 1));
                let expected = at.map(|at| self.fences[at].0);
                said(self.clients[0].locks.force_release(&name(LOCK), expected).await, |answer| match answer {
                    ForceReleased::Released => Said::only("taken away"),
                    ForceReleased::NotHeld => Said::only("not held"),
                    ForceReleased::Changed => Said::only("changed"),
                })
            }
            Step::LeaveAny | Step::Expire | Step::Flush | Step::Pass(_) => Said::default(), // not a client's
        }
    }

    async fn ask(&mut self, who: usize, joins: bool, cast: &Cast) -> Said {
        let asker = &cast.askers[who];
        let (client, request) = (&self.clients[asker.client], asker.request(cast.tokens[who], joins));
        let answer = match cast.owner(who) {
            None => client.locks.acquire(&request).await,
            Some(owner) => client.reentrant.enter(&owner, &request).await,
        };
        said(answer, |answer| match answer {
            Acquisition::Granted(Grant { fence, ttl, begun, depth, fences, .. }) => {
                let words = format!("granted {begun:?} {} depth {depth}", self.fence(fence, Some(fences)));
                // What is left of an earlier grant is not told alike.
                let spans = if begun == Begun::Now { vec![ttl] } else { vec![] };
                Said { words, spans, left: false }
            }
            Acquisition::Busy(busy) => {
                // Behind others, the two tell differently when it is worth asking without being woken.
                let behind = busy.position.is_some_and(|place| place > 0);
                let spans = busy.recheck_after.filter(|_| !behind).into_iter().collect();
                Said { words: format!("busy {:?}", busy.position), spans, left: false }
            }
        })
    }

    async fn leave(&mut self, who: usize, cast: &Cast) -> Said {
        let (client, token) = (&self.clients[cast.askers[who].client], cast.tokens[who]);
        let left = |words: String| Said { words, spans: vec![], left: true };
        match cast.owner(who) {
            None => said(client.locks.release(&Hold::new(name(LOCK), token)).await, |answer| match answer {
                Released::Released => left("free".into()),
                Released::NotHeld => Said::only("not held"),
            }),
            Some(owner) => {
                let entry = ReentrantEntry::new(name(LOCK), owner, token);
                said(client.reentrant.exit(&entry).await, |answer| match answer {
                    Exited::Released => left("free".into()),
                    Exited::Inside { depth } => left(format!("inside {depth}")),
                    Exited::NotHeld => Said::only("not held"),
                })
            }
        }
    }

    async fn abandon(&mut self, who: usize, cast: &Cast) -> Said {
        let (client, token) = (&self.clients[cast.askers[who].client], cast.tokens[who]);
        let answer = match cast.owner(who) {
            None => client.locks.abandon(&Hold::new(name(LOCK), token)).await,
            Some(owner) => client.reentrant.abandon(&ReentrantEntry::new(name(LOCK), owner, token)).await,
        };
        said(answer, |()| Said::only("abandoned"))
    }

    /// All plain leases of its client in one request; or the hold of its owner, by its last fence and the one before.
    async fn renew(&mut self, who: usize, ttl: u64, cast: &Cast) -> Said {
        let (asker, ttl) = (&cast.askers[who], seconds(ttl));
        let client = &self.clients[asker.client];
        let answers = match cast.owner(who) {
            None => {
                let same = (0..cast.askers.len()).filter(|one| cast.askers[*one].client == asker.client);
                let hold = |one| Hold::new(name(LOCK), cast.tokens[one]);
                let holds: Vec<_> = same.map(hold).collect();
                client.locks.renew(ttl, &holds).await
            }
            Some(owner) => {
                let fences = self.fences.iter().rev().take(2);
                let holds: Vec<_> = fences.map(|(fence, _)| ReentrantHold::new(name(LOCK), owner, *fence)).collect();
                client.reentrant.renew(ttl, &holds).await
            }
        };
        let mut all = Said::default();
        for answer in answers {
            let one = said(answer, |answer| match answer {
                Renewed::Extended { ttl } => Said { spans: vec![ttl], ..Said::only("extended ") },
                Renewed::Lost => Said::only("lost "),
            });
            all.words += &one.words;
            all.spans.extend(one.spans);
        }
        all
    }

    /// What everybody was told since the last look.
    pub(crate) fn signals(&mut self) -> Said {
        let mut all = Said::default();
        for who in 0..self.watches.len() {
            while let Some(signal) = self.watches[who].as_mut().and_then(|watch| watch.next().now_or_never()) {
                let news = match signal {
                    Signal::Handed(handed) => {
                        all.spans.push(handed.ttl);
                        format!("handed {}", self.fence(handed.fence, Some(handed.fences)))
                    }
                    Signal::Wake => "woken".into(),
                    other => format!("{other:?}"),
                };
                let _ = write!(all.words, "{who} {news}; ");
            }
        }
        all
    }

    /// What an operator sees.
    pub(crate) async fn look(&mut self, cast: &Cast) -> Said {
        let seen = self.clients[0].locks.inspect(&name(LOCK)).await;
        said(seen, |seen| {
            let Some(holder) = seen.holder else { return Said::only(format!("free, {} wait", seen.waiters)) };
            let fence = holder.fence.map(|fence| self.fence(fence, None));
            let owner = holder.owner.map(|owner| cast.owners.iter().position(|known| *known == owner));
            let words = format!("{fence:?} {} {owner:?} {:?}, {} wait", holder.depth, holder.label, seen.waiters);
            Said { words, spans: [holder.held_for, holder.remaining].into_iter().flatten().collect(), left: false }
        })
    }
}

fn said<T>(answer: Result<T>, tell: impl FnOnce(T) -> Said) -> Said {
    match answer {
        Ok(answer) => tell(answer),
        Err(error) => Said::only(format!("refused: {:?}", error.kind())),
    }
}
