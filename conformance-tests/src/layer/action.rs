//! The faults that the layer can apply to a request.

use std::time::Duration;

/// A method of the driver traits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// `DistributedLock::acquire`, `Permits::acquire`
    Acquire,
    /// `DistributedLock::renew`, `Permits::renew`
    Renew,
    /// `DistributedLock::release`, `Permits::release`
    Release,
    /// `DistributedLock::abandon`, `Permits::abandon`
    Abandon,
    /// `DistributedLock::watch`, `Permits::watch`
    Watch,
    /// `DistributedLock::inspect`, `Permits::inspect`
    Inspect,
    /// `DistributedLock::force_release`, `Permits::evict`
    ForceRelease,
    /// `Permits::resize`
    Resize,
    /// `ReentrantLock::enter`
    Enter,
    /// `ReentrantLock::renew`
    RenewEntry,
    /// `ReentrantLock::exit`
    Exit,
    /// `ReentrantLock::abandon`
    AbandonEntry,
    /// `DelayQueue::push`
    Push,
    /// `DelayQueue::exchange` that requests messages
    Receive,
    /// `DelayQueue::exchange` that only settles
    Settle,
    /// `DelayQueue::extend`
    Extend,
    /// `DelayQueue::give_turn`
    GiveTurn,
    /// `DelayQueue::watch`
    WatchQueue,
}

/// The treatment of a request, instead of sending and answering it normally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Not sent: `Unavailable`.
    FailBeforeSend,
    /// Applied, then `Indeterminate`.
    LoseReply,
    /// Applied this much later, even if the caller has gone meanwhile.
    DelayRequest(Duration),
    /// Applied at once, answered this much later.
    DelayReply(Duration),
    /// Applied twice, the first answer counts: a duplicated frame.
    Duplicate,
    /// Applied twice, the second answer counts: a client library that sends again when a reply is lost.
    Retry,
    /// Applied only when the layer is healed, even if the caller has gone meanwhile: a stopped server.
    Hang,
    /// Never sent, never answered; `Unavailable` when the layer is healed: a black hole.
    Swallow,
}

/// The condition of an [`Action`]: it applies to the requests of one kind, after some and for some. Without a limit,
/// until healed.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub(super) op: Option<Op>,
    pub(super) skip: u32,
    pub(super) times: u32,
    pub(super) action: Action,
}

impl Rule {
    /// Applies this action to every request of the kind.
    #[must_use]
    pub const fn on(op: Op, action: Action) -> Self {
        Self { op: Some(op), skip: 0, times: u32::MAX, action }
    }

    /// Applies this action to every request of any kind.
    #[must_use]
    pub const fn always(action: Action) -> Self {
        Self { op: None, skip: 0, times: u32::MAX, action }
    }

    /// Lets the first `skip` requests of the kind through.
    #[must_use]
    pub const fn after(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Happens this many times.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// Happens once.
    #[must_use]
    pub const fn once(self) -> Self {
        self.times(1)
    }

    /// Whether the rule fires for this request; counts it.
    pub(super) fn fires(&mut self, op: Op) -> bool {
        if self.op.is_some_and(|wanted| wanted != op) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times == 0 {
            return false;
        }
        if self.times != u32::MAX {
            self.times -= 1;
        }
        true
    }
}

/// Random faults, out of 1,000 requests each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chaos {
    /// [`Action::FailBeforeSend`]
    pub fail: u32,
    /// [`Action::LoseReply`]
    pub lose: u32,
    /// [`Action::DelayRequest`], up to [`Chaos::longest`]
    pub late: u32,
    /// [`Action::DelayReply`], up to [`Chaos::longest`]
    pub slow: u32,
    /// [`Action::Duplicate`]
    pub duplicate: u32,
    /// The longest delay.
    pub longest: Duration,
}
