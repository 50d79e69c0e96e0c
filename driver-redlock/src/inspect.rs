//! Inspecting a lock: the state that a majority of nodes agrees on.

use std::sync::Arc;

use futures_util::future::join_all;
use tenure_core::driver::{Holder, Inspection};
use tenure_core::{LockName, Result};

use crate::quorum::at_majority;
use crate::shared::Shared;

/// Asks all nodes. Owner and depth are known in the holder's process only; elsewhere every hold looks like a
/// plain one.
///
/// A holder is one that a majority names, by fence and label, or by label alone; of its lease the majority's part counts.
pub(crate) async fn inspect(shared: &Arc<Shared>, name: &LockName) -> Result<Inspection> {
    shared.ensure_open()?;
    let looks = shared.nodes.iter().map(|node| node.bounded(node.api.inspect(name)));
    let (mut seen, mut faults) = (Vec::new(), Vec::new());
    for (node, look) in join_all(looks).await.into_iter().enumerate() {
        match look {
            Ok(inspection) => seen.push(inspection),
            Err(error) => faults.push((node, error)),
        }
    }
    // A minority can show a hold that no longer exists, or miss one that does.
    if seen.len() < shared.needed() {
        return Err(shared.failure("no quorum of the nodes could be inspected", &faults));
    }
    let waiters = seen.iter().map(|inspection| inspection.waiters).max().unwrap_or_default();
    let holders: Vec<Holder> = seen.into_iter().filter_map(|inspection| inspection.holder).collect();
    let holder = agreed(&holders, shared.needed()).map(|holder| {
        match holder.fence.and_then(|fence| shared.owners.inside(name, fence)) {
            Some((owner, depth)) => holder.with_owner(Some(owner)).with_depth(depth),
            None => holder,
        }
    });
    Ok(Inspection::default().with_holder(holder).with_waiters(waiters))
}

/// The holder that more than half of the nodes with one agree on, if they are a majority.
fn agreed(holders: &[Holder], needed: usize) -> Option<Holder> {
    if holders.len() < needed {
        return None;
    }
    let same_hold = |one: &Holder, other: &Holder| one.fence == other.fence && one.label == other.label;
    // A node that voted late or was taken back knows the hold by a greater fence. When most did, the label alone shows that
    // it is the same, and the least of their fences is closest to its own.
    let group = most(holders, same_hold).or_else(|| most(holders, |one, other| one.label == other.label))?;
    let held_for = group.iter().filter_map(|holder| holder.held_for).max();
    let remaining: Vec<_> = holders.iter().filter_map(|holder| holder.remaining).collect();
    let remaining = at_majority(&remaining, needed);
    let least = group.into_iter().min_by_key(|holder| holder.fence)?;
    Some(least.with_held_for(held_for).with_remaining(remaining).with_depth(1).with_owner(None))
}

/// Those that are the same as one of them, if they are more than half.
fn most(holders: &[Holder], same: impl Fn(&Holder, &Holder) -> bool) -> Option<Vec<Holder>> {
    let group_of = |holder: &Holder| holders.iter().filter(|other| same(holder, other)).cloned().collect::<Vec<_>>();
    holders.iter().map(group_of).max_by_key(Vec::len).filter(|group| group.len() * 2 > holders.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{FencingToken, Label};

    use super::*;

    fn holder(fence: u64, label: &str) -> Holder {
        Holder::default()
            .with_fence(FencingToken::new(fence))
            .with_label(Some(Label::new(label).unwrap()))
            .with_held_for(Some(Duration::from_secs(fence)))
            .with_remaining(Some(Duration::from_secs(10 - fence)))
    }

    #[test]
    fn a_holder_is_one_that_more_than_half_name() {
        let seen = |holders: &[(u64, &str)], needed| {
            let holders: Vec<Holder> = holders.iter().map(|(fence, label)| holder(*fence, label)).collect();
            agreed(&holders, needed).map(|holder| {
                let label = holder.label.unwrap();
                (holder.fence.unwrap().get(), label.as_str().to_owned(), holder.held_for, holder.remaining)
            })
        };
        let reported = |fence, label: &str, held, left| {
            Some((fence, label.to_owned(), Some(Duration::from_secs(held)), Some(Duration::from_secs(left))))
        };
        assert_eq!(seen(&[(3, "me"), (3, "me")], 2), reported(3, "me", 3, 7));
        assert_eq!(seen(&[(3, "me")], 2), None, "a minority");
        assert_eq!(seen(&[(3, "me"), (3, "me"), (4, "you")], 2), reported(3, "me", 3, 7));
        assert_eq!(seen(&[(5, "me"), (4, "me"), (2, "me")], 2), reported(2, "me", 5, 6), "by the label alone");
        assert_eq!(seen(&[(3, "me"), (3, "me"), (3, "you"), (3, "you")], 3), None, "half");
        assert_eq!(seen(&[(1, "me"), (2, "you"), (3, "them")], 2), None);
    }
}
