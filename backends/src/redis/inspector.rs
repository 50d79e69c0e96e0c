//! A raw look at a Redis server.

use async_trait::async_trait;
use tenure_conformance::{BoxError, Inspector, Residue};
use tenure_core::LockName;
use tenure_redis::RedisSettings;
use tenure_testkit::{RedisServer, Reply};

use super::servers::{Shared, lock};

/// Looks at every server that keeps a name, past the driver.
pub(crate) struct RedisInspector(pub(crate) Shared);

#[async_trait]
impl Inspector for RedisInspector {
    /// What any of the servers has left.
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let key = RedisSettings::default().lock_key(name);
        let servers = lock(&self.0);
        let mut most = Residue::default();
        for server in servers.keepers(&key)? {
            let left = left_at(server, &key)?;
            most.leases = most.leases.max(left.leases);
            most.waiters = most.waiters.max(left.waiters);
            most.tombstones = most.tombstones.max(left.tombstones);
            most.endless = most.endless.max(left.endless);
        }
        Ok(most)
    }

    async fn names(&self) -> Result<usize, BoxError> {
        let mut most = 0;
        for server in lock(&self.0).all() {
            // Unlike `DBSIZE`, this leaves out keys that have expired.
            if let Reply::Array(keys) = server.cli(&["KEYS", "*"])? {
                most = most.max(keys.len());
            }
        }
        Ok(most)
    }
}

fn left_at(server: &RedisServer, key: &[u8]) -> Result<Residue, BoxError> {
    let mut client = server.connect()?;
    let mut call = |args: &[&[u8]]| -> Result<Reply, BoxError> { Ok(client.call(args)?) };
    let now = match call(&[b"TIME"])? {
        Reply::Array(parts) => parts.first().and_then(text).and_then(|s| s.parse::<u64>().ok()).unwrap_or(0),
        _ => 0,
    };
    let side = [b"{".as_slice(), key, b"}:"].concat();
    let presence = [side.as_slice(), b"w"].concat();
    let since = format!("({}", now.saturating_mul(1000));
    let waiters = number(&call(&[b"ZCOUNT", &presence, since.as_bytes(), b"+inf"])?);
    let mut keys = vec![key.to_vec()];
    let pattern = [escaped(&side), b"*".to_vec()].concat();
    if let Reply::Array(found) = call(&[b"KEYS", &pattern])? {
        keys.extend(found.into_iter().filter_map(|reply| match reply {
            Reply::Bulk(bytes) => Some(bytes),
            _ => None,
        }));
    }
    let mut residue = Residue { waiters, ..Residue::default() };
    for found in &keys {
        let ttl = match call(&[b"PTTL", found])? {
            Reply::Int(ttl) => ttl,
            _ => -2,
        };
        residue.endless += usize::from(ttl == -1);
        residue.leases += usize::from(found == key && ttl != -2);
        residue.tombstones += usize::from(ttl != -2 && found.starts_with(&[side.as_slice(), b"x:"].concat()));
    }
    Ok(residue)
}

fn number(reply: &Reply) -> usize {
    match reply {
        Reply::Int(number) => usize::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

/// A pattern that matches these bytes only.
fn escaped(literal: &[u8]) -> Vec<u8> {
    literal.iter().flat_map(|byte| if b"*?[]\\^-".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] }).collect()
}
