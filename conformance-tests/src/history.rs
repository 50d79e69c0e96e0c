//! Judges a history of grants: the fence is the order, so each rule is one pass over a sorted list.

use std::fmt;
use std::time::Duration;

use tenure_core::driver::Share;

/// One grant as its client saw it. All times are readings of one monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The client.
    pub client: usize,
    /// Its fence.
    pub fence: u64,
    /// The instant before the acquisition was requested.
    pub asked_at: Duration,
    /// When the acquisition returned.
    pub granted_at: Duration,
    /// The end of the lease in the client's view, as it knew when it was granted.
    pub valid_until: Duration,
    /// When the client called release or learned of its loss, whichever came first.
    pub ended_at: Duration,
}

/// A time during which a client relied on a share of a semaphore or of a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The share.
    pub share: Share,
    /// When the client had it.
    pub from: Duration,
    /// When the client gave it back, or changed it to another.
    pub until: Duration,
}

/// The assumptions under which the history was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// The backend kept its data and the clocks ran alike: all rules apply.
    Timed,
    /// Data and clocks may have failed: only the rules about fences and windows apply.
    Asynchronous,
}

/// A rule that a history breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two grants have the same fence (F1, P19).
    SameFence(Grant, Grant),
    /// A grant that returned before the other was requested has the greater fence (F2, P20).
    FenceInversion(Grant, Grant),
    /// Two holds overlap (P1, P4).
    Overlap(Grant, Grant),
    /// Holds that do not overlap are not in the order of their fences (F3, P21).
    HoldOrder(Grant, Grant),
    /// The grant had ended when it was returned (P3).
    Stillborn(Grant),
    /// At the beginning of this window, all shares together weigh this much: more than its capacity (P63, P70).
    TooHeavy(Window, u64),
    /// The window reaches further than the ttl from before the request (P2).
    LongWindow(Grant),
}

/// Checks the history of one name; `ttl` is the lease that every acquisition requested, if none was renewed.
#[must_use]
pub fn check(grants: &[Grant], ttl: Option<Duration>, assumption: Assumption) -> Vec<Violation> {
    let mut found = Vec::new();
    same_fence(grants, &mut found);
    fence_inversion(grants, &mut found);
    windows(grants, ttl, &mut found);
    if assumption == Assumption::Timed {
        overlap(grants, &mut found);
    }
    found
}

/// Checks the history of one semaphore or read-write lock: the grants have unique fences in order, and at no time do the
/// windows weigh more than the capacity that the last of them names.
#[must_use]
pub fn check_shares(grants: &[Grant], windows: &[Window]) -> Vec<Violation> {
    let mut found = Vec::new();
    same_fence(grants, &mut found);
    fence_inversion(grants, &mut found);
    let stillborn = grants.iter().filter(|grant| grant.granted_at >= grant.valid_until);
    found.extend(stillborn.map(|grant| Violation::Stillborn(*grant)));
    for window in windows {
        let at = |other: &&Window| other.from <= window.from && window.from < other.until;
        let sum = windows.iter().filter(at).map(|other| u64::from(other.share.weight)).sum();
        if window.from < window.until && sum > u64::from(window.share.capacity) {
            found.push(Violation::TooHeavy(*window, sum));
        }
    }
    found
}

fn same_fence(grants: &[Grant], found: &mut Vec<Violation>) {
    let mut sorted = grants.to_vec();
    sorted.sort_by_key(|grant| grant.fence);
    let pairs = sorted.windows(2).filter(|pair| pair[0].fence == pair[1].fence);
    found.extend(pairs.map(|pair| Violation::SameFence(pair[0], pair[1])));
}

/// Grants in the order they were asked for, against the greatest fence that had returned before.
fn fence_inversion(grants: &[Grant], found: &mut Vec<Violation>) {
    let (mut asked, mut returned) = (grants.to_vec(), grants.to_vec());
    asked.sort_by_key(|grant| grant.asked_at);
    returned.sort_by_key(|grant| grant.granted_at);
    let mut returned = returned.into_iter().peekable();
    let mut greatest: Option<Grant> = None;
    for grant in asked {
        while let Some(earlier) = returned.next_if(|earlier| earlier.granted_at < grant.asked_at) {
            if greatest.is_none_or(|seen| earlier.fence > seen.fence) {
                greatest = Some(earlier);
            }
        }
        if let Some(earlier) = greatest.filter(|seen| seen.fence > grant.fence) {
            found.push(Violation::FenceInversion(earlier, grant));
        }
    }
}

fn windows(grants: &[Grant], ttl: Option<Duration>, found: &mut Vec<Violation>) {
    for &grant in grants {
        if grant.granted_at >= grant.valid_until {
            found.push(Violation::Stillborn(grant));
        }
        if ttl.is_some_and(|ttl| grant.valid_until >= grant.granted_at + ttl) {
            found.push(Violation::LongWindow(grant));
        }
    }
}

/// Grants in the order they returned: none may begin before all earlier ones have ended.
fn overlap(grants: &[Grant], found: &mut Vec<Violation>) {
    let mut sorted = grants.to_vec();
    sorted.sort_by_key(|grant| grant.granted_at);
    let mut last: Option<Grant> = None;
    for grant in sorted {
        if let Some(before) = last {
            if grant.granted_at < before.ended_at {
                found.push(Violation::Overlap(before, grant));
            } else if grant.fence < before.fence {
                found.push(Violation::HoldOrder(before, grant));
            }
        }
        if last.is_none_or(|before| grant.ended_at > before.ended_at) {
            last = Some(grant);
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameFence(a, b) => write!(f, "two grants with fence {}: {a:?} and {b:?}", a.fence),
            Self::FenceInversion(a, b) => {
                write!(f, "{a:?} returned before {b:?} was asked for, and has a greater fence")
            }
            Self::Overlap(a, b) => write!(f, "{b:?} began before {a:?} had ended"),
            Self::HoldOrder(a, b) => write!(f, "{b:?} came after {a:?} and has a smaller fence"),
            Self::Stillborn(grant) => write!(f, "{grant:?} had ended when it was given"),
            Self::TooHeavy(window, sum) => write!(f, "all shares weigh {sum} when {window:?} begins"),
            Self::LongWindow(grant) => write!(f, "{grant:?} is believed for longer than its ttl"),
        }
    }
}
