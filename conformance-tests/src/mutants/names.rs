//! Mutants of names, and of connections to one store.

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, ForceReleased, Hold, Released, Renewed, Ttl, Watch};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist, flaw};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("name/case-folded", "names are compared without their case",
        Names(fold), ["name/case-and-prefixes-are-apart"]),
    mutant!("name/truncated", "names are cut at 64 bytes",
        Names(|n| n[..n.len().min(64)].to_vec()), ["name/longest-is-a-name"]),
    mutant!("name/c-string", "names end at a NUL",
        Names(c_string), ["name/case-and-prefixes-are-apart"]),
    mutant!("name/lossy-text", "names are turned into text and lose bytes",
        Names(lossy), ["name/case-and-prefixes-are-apart"]),
    mutant!("name/trimmed", "white space at the end of a name is lost",
        Names(trimmed), ["name/case-and-prefixes-are-apart"]),
    mutant!("name/hash-tagged", "only the bytes between braces count",
        Names(tagged), ["name/odd-names-are-apart"]),
    mutant!("name/decoded", "names are percent-decoded",
        Names(decoded), ["name/odd-names-are-apart"]),
    mutant!("name/one-for-all", "all names are one lock",
        Names(|_| b"one".to_vec()),
        ["all/dropped-frees-each", "all/sorted-and-once-each", "lock/names-are-independent"]),
    mutant!("client/apart", "every connection has a store of its own",
        flaw!(
            acquire(inner, request) => {
                inner.locks().acquire(&request.clone().with_name(own(inner, &request.name))).await
            },
            release(inner, hold) => inner.locks().release(&Hold::new(own(inner, &hold.name), hold.token)).await,
            abandon(inner, hold) => inner.locks().abandon(&Hold::new(own(inner, &hold.name), hold.token)).await,
        ), ["fence/grows-after-force", "lock/no-renewal-after-release"]),
];

/// Names as a careless driver stores them.
struct Names(fn(&[u8]) -> Vec<u8>);

impl Names {
    fn name(&self, name: &LockName) -> LockName {
        LockName::new((self.0)(name.as_bytes())).unwrap_or_else(|_| name.clone())
    }

    fn hold(&self, hold: &Hold) -> Hold {
        Hold::new(self.name(&hold.name), hold.token)
    }
}

fn fold(name: &[u8]) -> Vec<u8> {
    name.to_ascii_lowercase()
}

fn c_string(name: &[u8]) -> Vec<u8> {
    name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

fn lossy(name: &[u8]) -> Vec<u8> {
    name.iter().map(|byte| if byte.is_ascii() { *byte } else { b'?' }).collect()
}

fn trimmed(name: &[u8]) -> Vec<u8> {
    name.trim_ascii_end().to_vec()
}

fn tagged(name: &[u8]) -> Vec<u8> {
    let open = name.iter().position(|byte| *byte == b'{');
    let close = name.iter().position(|byte| *byte == b'}');
    match (open, close) {
        (Some(open), Some(close)) if open + 1 < close => [b"tag/", &name[open + 1..close]].concat(),
        _ => name.to_vec(),
    }
}

fn decoded(name: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(name).replace("%25", "%").replace("%7B", "{").into_bytes()
}

#[async_trait]
impl Twist for Names {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&request.clone().with_name(self.name(&request.name))).await
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let all: Vec<Hold> = holds.iter().map(|hold| self.hold(hold)).collect();
        inner.locks().renew(ttl, &all).await
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        inner.locks().release(&self.hold(hold)).await
    }

    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        inner.locks().abandon(&self.hold(hold)).await
    }

    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        inner.locks().watch(&self.name(name), token).await
    }

    async fn force_release(
        &self,
        inner: &Inner,
        name: &LockName,
        expected: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        inner.locks().force_release(&self.name(name), expected).await
    }
}

fn own(inner: &Inner, name: &LockName) -> LockName {
    let mut bytes = name.as_bytes().to_vec();
    bytes.extend_from_slice(format!("@{:x}", inner.client()).as_bytes());
    LockName::new(bytes).unwrap_or_else(|_| name.clone())
}
