//! The record in the key of a hold.
//!
//! It is a few lines of text that `etcdctl get` shows unchanged. The label is last and may hold any bytes:
//!
//! ```text
//! tenure/1
//! lease=30
//! base=1795340360187114
//! term=4
//! owner=AAAAAAAAAAAAAAAAAAAAAQ
//! entry=AAAAAAAAAAAAAAAAAAAAAg
//! label=worker 7
//! ```
//!
//! A hold of permits also has `share=2/3` (weight and capacity), `step=1` and, if it became heavier, `grown=9`.

use tenure_core::driver::{Share, Ttl};
use tenure_core::{Label, OwnerId, OwnerToken};

use crate::grants::Lease;

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// `None` for a plain lock.
    pub(crate) owner: Option<OwnerId>,
    /// One for a plain lock; one for each entry of a re-entrant one, in order.
    pub(crate) entries: Vec<OwnerToken>,
    /// The ttl of the lease that the key is on, in seconds, as etcd answered it.
    pub(crate) lease_secs: i64,
    /// The raft term that the lease was granted in, or an earlier one: the hold belongs to it. `None` if that is not known.
    pub(crate) term: Option<u64>,
    /// What the revision of the grant is added to, for the fence.
    pub(crate) base: u64,
    /// The share, for a hold of permits.
    pub(crate) permit: Option<Part>,
    pub(crate) label: Option<Label>,
}

/// The part of a capacity that a hold of permits has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) share: Share,
    /// The number of the last change of its weight.
    pub(crate) step: u32,
    /// The revision in which it last became heavier; 0 if that is the revision of the value itself.
    pub(crate) grown: Option<i64>,
}

/// A share as values have it.
pub(crate) fn share_text(share: Share) -> String {
    format!("share={}/{}\n", share.weight, share.capacity)
}

/// Reads a share in this form, without its name.
pub(crate) fn share_of(text: &str) -> Option<Share> {
    let (weight, capacity) = text.split_once('/')?;
    let share = Share { weight: weight.parse().ok()?, capacity: capacity.parse().ok()? };
    share.is_possible().then_some(share)
}

const HEADER: &str = "tenure/1";

impl Record {
    pub(crate) fn depth(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn has(&self, owner: Option<OwnerId>, token: &OwnerToken) -> bool {
        self.owner == owner && self.entries.contains(token)
    }

    /// The same hold with one entry less.
    pub(crate) fn without(&self, token: &OwnerToken) -> Self {
        let entries = self.entries.iter().copied().filter(|entry| entry != token).collect();
        Self { entries, ..self.clone() }
    }

    /// The same hold on another lease.
    pub(crate) fn on(&self, lease: &Lease) -> Self {
        Self { lease_secs: lease.secs, term: lease.term, ..self.clone() }
    }

    /// The same hold with one entry more, on another lease.
    pub(crate) fn with(&self, token: OwnerToken, lease: &Lease) -> Self {
        let mut deeper = self.on(lease);
        deeper.entries.push(token);
        deeper
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{HEADER}\nlease={}\nbase={}\n", self.lease_secs, self.base);
        if let Some(term) = &self.term {
            text.push_str(&format!("term={term}\n"));
        }
        if let Some(owner) = &self.owner {
            text.push_str(&format!("owner={owner}\n"));
        }
        for entry in &self.entries {
            text.push_str(&format!("entry={}\n", entry.expose().as_str()));
        }
        if let Some(Part { share, step, grown }) = self.permit {
            text.push_str(&share_text(share));
            text.push_str(&format!("step={step}\n"));
            if let Some(grown) = grown {
                text.push_str(&format!("grown={grown}\n"));
            }
        }
        if let Some(label) = &self.label {
            text.push_str("label=");
            text.push_str(label.as_str());
        }
        text.into_bytes()
    }

    /// `None` if the value was not written by tenure.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut rest = std::str::from_utf8(value).ok()?.strip_prefix(HEADER)?.strip_prefix('\n')?;
        let mut record =
            Self { owner: None, entries: Vec::new(), lease_secs: 0, term: None, base: 0, permit: None, label: None };
        let (mut step, mut grown) = (0, None);
        loop {
            if let Some(label) = rest.strip_prefix("label=") {
                record.label = Some(Label::new(label).ok()?);
                break;
            }
            let Some((line, after)) = rest.split_once('\n') else { break };
            rest = after;
            match line.split_once('=')? {
                ("lease", secs) => record.lease_secs = secs.parse().ok()?,
                ("term", term) => record.term = Some(term.parse().ok()?),
                ("base", base) => record.base = base.parse().ok()?,
                ("owner", owner) => record.owner = Some(owner.parse().ok()?),
                ("entry", token) => record.entries.push(OwnerToken::parse(token).ok()?),
                ("share", share) => record.permit = Some(Part { share: share_of(share)?, step: 0, grown: None }),
                ("step", number) => step = number.parse().ok()?,
                ("grown", revision) => grown = Some(revision.parse().ok().filter(|revision| *revision >= 0)?),
                _ => {} // a later version's
            }
        }
        record.permit = record.permit.map(|part| Part { step, grown, ..part });
        // No client wrote a longer lease, or a base from the year 2255 on.
        let longest = i64::try_from(Ttl::MAX.as_secs()).unwrap_or(i64::MAX);
        let sound = (1..=longest).contains(&record.lease_secs) && record.base < 1 << 53;
        (sound && !record.entries.is_empty()).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::driver::LeaseInstant;

    use super::*;

    #[test]
    fn records_are_read_back() {
        let (first, second) = (OwnerToken::random(), OwnerToken::random());
        let label = Some(Label::new("a\nentry=b\nlabel=c").unwrap());
        let lease = |term| Lease { id: 1, secs: 60, since: LeaseInstant::now(), term };
        for (owner, term) in [(None, None), (Some(OwnerId::new()), Some(4))] {
            for label in [None, label.clone(), Some(Label::new("").unwrap())] {
                let record = Record { owner, entries: vec![first], lease_secs: 30, term, base: 7, permit: None, label };
                let deeper = record.with(second, &lease(term.map(|term| term + 1)));
                assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
                assert_eq!(Record::decode(&deeper.encode()), Some(deeper.clone()));
                assert_eq!((deeper.depth(), deeper.lease_secs, deeper.term), (2, 60, term.map(|_| 5)));
                assert_eq!(deeper.without(&second).entries, record.entries);
                assert!(deeper.has(owner, &second) && !record.has(owner, &second));
                assert!(!record.has(Some(OwnerId::new()), &first), "that is somebody else");
            }
        }
    }

    #[test]
    fn foreign_values_are_not_ours() {
        for foreign in [
            "",
            "x",
            "tenure/1",
            "tenure/1\n",
            "tenure/1\nentry=short\n",
            "tenure/2\nlease=3\n",
            "tenure/1\nlease=3\nbase=7\n",
        ] {
            assert_eq!(Record::decode(foreign.as_bytes()), None, "{foreign}");
        }
        let token = OwnerToken::random().expose().as_str().to_owned();
        let long = (Ttl::MAX.as_secs() + 1).to_string();
        for (lease, base) in [("0", "7"), ("-9", "7"), (long.as_str(), "7"), ("30", "9007199254740992")] {
            let absurd = format!("tenure/1\nlease={lease}\nbase={base}\nentry={token}\n");
            assert_eq!(Record::decode(absurd.as_bytes()), None, "{absurd}");
        }
        assert_eq!(Record::decode(&[0xff, 0xfe]), None);
    }
}
