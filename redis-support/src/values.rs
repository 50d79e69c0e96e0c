//! The values of locks that their client knows, so that a release may be one command: `DELIFEQ`, where the server has it.
//!
//! A lock that was granted while nobody waited has a value that its client knows whole, and the flag in it changes as soon as
//! somebody waits (`scripts/part/join.lua`). So the command deletes the lock exactly where the script of `release` would delete
//! it and do no more. Where the value is another one by now, the command does nothing, and the script is run. Everything kept
//! here is a guess: a wrong one costs a request.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use tenure_core::driver::{AcquireRequest, Hold};
use tenure_core::{FencingToken, Label, LockName, OwnerToken};

use crate::settings::Fences;

/// How many grants are remembered. When there are as many, all are forgotten: also those that nobody will release.
const MOST_GRANTS: usize = 4096;

/// In how many parts names are counted; those of a part share a count.
const PARTS: usize = 1024;

/// For how many grants a name counts as contended after somebody has waited for it: those are not remembered.
const CONTENDED_GRANTS: u8 = 8;

/// What is remembered of grants whose value is known, and of names that somebody waited for.
#[derive(Debug)]
pub(crate) struct KnownValues {
    /// Whether values can be known at all: where fences only count, the server's clock is in them too.
    known: bool,
    /// Whether the server is thought to have the command, and to let this user run it.
    allowed: AtomicBool,
    grants: Mutex<HashMap<OwnerToken, FreeGrant>>,
    /// For each part of the names, for how many grants still they count as contended.
    contended: Vec<AtomicU8>,
}

/// A grant of a lock that nobody waited for: what its value consists of beside the token.
#[derive(Debug)]
struct FreeGrant {
    fence: FencingToken,
    ahead: String,
    label: Option<Label>,
}

impl KnownValues {
    pub(crate) fn new(fences: Fences) -> Self {
        let contended = std::iter::repeat_with(AtomicU8::default).take(PARTS).collect();
        Self {
            known: fences == Fences::ClockSeeded,
            allowed: AtomicBool::new(false),
            grants: Mutex::default(),
            contended,
        }
    }

    /// Whether the server is thought to have the command, and to let this user run it.
    pub(crate) fn allow(&self, allowed: bool) {
        self.allowed.store(allowed && self.known, Ordering::Relaxed);
    }

    /// The lock was granted while nobody waited, with a fence that is so far ahead of the server's clock as its value says.
    pub(crate) fn granted(&self, request: &AcquireRequest, fence: FencingToken, ahead: &str) {
        if !self.allowed.load(Ordering::Relaxed) {
            return;
        }
        let contended = self.contended(&request.name);
        let left = contended.load(Ordering::Relaxed);
        if left > 0 {
            return contended.store(left - 1, Ordering::Relaxed); // a count that another thread changed is as good
        }
        let grant = FreeGrant { fence, ahead: ahead.to_owned(), label: request.label.clone() };
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        if grants.len() >= MOST_GRANTS {
            grants.clear();
        }
        grants.insert(request.token, grant);
    }

    /// Somebody waits for this lock.
    pub(crate) fn awaited(&self, name: &LockName) {
        if self.allowed.load(Ordering::Relaxed) {
            self.contended(name).store(CONTENDED_GRANTS, Ordering::Relaxed);
        }
    }

    /// The value of the lock if nobody has begun to wait since it was granted; `None` if it is not known, or somebody is thought
    /// to wait. Told once.
    pub(crate) fn take(&self, hold: &Hold) -> Option<String> {
        if !self.allowed.load(Ordering::Relaxed) {
            return None;
        }
        let grant = self.grants.lock().unwrap_or_else(PoisonError::into_inner).remove(&hold.token)?;
        let FreeGrant { fence, ahead, label } = grant;
        let label = label.as_ref().map_or("", Label::as_str);
        let nobody_waits = self.contended(&hold.name).load(Ordering::Relaxed) == 0;
        nobody_waits.then(|| format!("{};-;{fence};{ahead};{label}", hold.token.expose().as_str()))
    }

    fn contended(&self, name: &LockName) -> &AtomicU8 {
        let mut hasher = DefaultHasher::new();
        name.as_bytes().hash(&mut hasher);
        &self.contended[hasher.finish() as usize % PARTS]
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::driver::Ttl;

    use super::*;

    fn request(name: &str) -> AcquireRequest {
        AcquireRequest::new(LockName::new(name).unwrap(), OwnerToken::random(), Ttl::DEFAULT)
    }

    fn hold(request: &AcquireRequest) -> Hold {
        Hold::new(request.name.clone(), request.token)
    }

    fn fence(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn a_value_is_told_once_and_as_the_scripts_write_it() {
        let values = KnownValues::new(Fences::ClockSeeded);
        let one = request("a").with_label(Some(Label::new("with;signs").unwrap()));
        values.granted(&one, fence(7), "");
        assert_eq!(values.take(&hold(&one)), None, "not before the server is known");
        values.allow(true);
        assert_eq!(values.take(&hold(&one)), None, "what was granted then may be of another server");
        values.granted(&one, fence(7), "12");
        let value = values.take(&hold(&one)).unwrap();
        assert_eq!(value, format!("{};-;7;12;with;signs", one.token.expose().as_str()));
        assert_eq!(values.take(&hold(&one)), None);
        values.granted(&one, fence(7), "");
        values.allow(false);
        assert_eq!(values.take(&hold(&one)), None);
    }

    #[test]
    fn values_are_not_known_where_fences_only_count() {
        let values = KnownValues::new(Fences::Counter);
        values.allow(true);
        let one = request("a");
        values.granted(&one, fence(1), "");
        assert_eq!(values.take(&hold(&one)), None);
    }

    #[test]
    fn a_name_that_somebody_waited_for_is_left_alone_for_a_while() {
        let values = KnownValues::new(Fences::ClockSeeded);
        let (one, other) = (request("a"), request("b"));
        values.awaited(&other.name); // at a server without the command, nobody counts
        values.allow(true);
        values.granted(&one, fence(7), "");
        values.granted(&other, fence(8), "");
        values.awaited(&one.name);
        assert_eq!(values.take(&hold(&one)), None);
        assert!(values.take(&hold(&other)).is_some());
        for _ in 0..CONTENDED_GRANTS {
            values.granted(&one, fence(7), "");
            assert_eq!(values.take(&hold(&one)), None);
        }
        values.granted(&one, fence(7), "");
        assert!(values.take(&hold(&one)).is_some());
    }

    #[test]
    fn grants_that_are_never_released_take_no_more_room_than_that() {
        let values = KnownValues::new(Fences::ClockSeeded);
        values.allow(true);
        let first = request("a");
        values.granted(&first, fence(7), "");
        let grant = |one: &AcquireRequest| {
            values.granted(one, fence(7), "");
            assert!(values.grants.lock().unwrap().len() <= MOST_GRANTS);
        };
        let last = (0..3 * MOST_GRANTS).map(|_| request("a")).inspect(grant).last();
        assert!(values.take(&hold(&last.unwrap())).is_some());
        assert!(values.take(&hold(&first)).is_none());
    }
}
