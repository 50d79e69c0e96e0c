//! Who holds one name: a row of the table `hold`.

use rusqlite::{OptionalExtension as _, Row};
use tenure_core::driver::Holder;
use tenure_core::{FencingToken, Label, LockName, OwnerId, OwnerToken};

use crate::error::{Done, damaged};
use crate::span::{micros, of_micros};
use crate::store::Turn;

/// An entry is the text of its token, and the ttl that it was told.
const TOKEN: usize = 22;
const ENTRY: usize = TOKEN + 8;

/// One unbroken hold of a name: from its grant to its end, re-entries included.
#[derive(Debug)]
pub(crate) struct Held {
    /// Whose re-entrant lock it is; a plain one has no owner, and one entry.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) entries: Vec<(OwnerToken, i64)>,
    pub(crate) fence: FencingToken,
    pub(crate) since: i64,
    pub(crate) until: i64,
    pub(crate) label: Option<Label>,
    /// How many fences came with it, if it was handed over and lasts for a short while only; else zero.
    pub(crate) handed: u32,
}

impl Held {
    /// The ttl that this very entry was told, if it exists.
    pub(crate) fn entry(&self, owner: Option<OwnerId>, token: &OwnerToken) -> Option<i64> {
        let entry = || self.entries.iter().find(|(known, _)| known == token).map(|(_, ttl)| *ttl);
        if self.owner == owner { entry() } else { None }
    }

    pub(crate) fn depth(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Makes the lease last at least `ttl` from now, never less than it did; tells how long it lasts.
    pub(crate) fn extend(&mut self, at: i64, ttl: i64) -> i64 {
        self.until = self.until.max(at + ttl);
        self.until - at
    }

    pub(crate) fn seen_from_outside(&self, at: i64) -> Holder {
        Holder::default()
            .with_label(self.label.clone())
            .with_fence(Some(self.fence))
            .with_held_for(Some(of_micros(at - self.since)))
            .with_remaining(Some(of_micros(self.until - at)))
            .with_depth(self.depth())
            .with_owner(self.owner)
    }
}

impl Turn<'_> {
    /// Who holds the name now.
    pub(crate) fn held(&self, name: &LockName) -> Done<Option<Held>> {
        let look = "SELECT owner, entries, fence, since, until, label, handed FROM hold WHERE name = ?1 AND until > ?2";
        let mut look = self.db.prepare_cached(look)?;
        let found = look.query_row((name.as_bytes(), self.at), |row| Ok(read(row)));
        let broken = || damaged(format!("the hold of \"{name}\" cannot be read"));
        match found.optional()? {
            None => Ok(None),
            Some(read) => Ok(Some(read?.ok_or_else(broken)?)),
        }
    }

    /// Keeps a hold, in place of the one before.
    pub(crate) fn keep(&self, name: &LockName, held: &Held) -> Done<()> {
        let mut entries = Vec::with_capacity(held.entries.len() * ENTRY);
        for (token, ttl) in &held.entries {
            entries.extend_from_slice(token.expose().as_ref());
            entries.extend_from_slice(&ttl.to_le_bytes());
        }
        let keep = "INSERT OR REPLACE INTO hold VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        self.db.prepare_cached(keep)?.execute((
            name.as_bytes(),
            held.owner.map(|owner| owner.to_string()),
            entries,
            held.fence.get().cast_signed(),
            held.since,
            held.until,
            held.label.as_ref().map(Label::as_str),
            held.handed,
        ))?;
        Ok(())
    }

    /// Forgets the name: a free one has no row.
    pub(crate) fn free(&self, name: &LockName) -> Done<()> {
        self.db.prepare_cached("DELETE FROM hold WHERE name = ?1")?.execute([name.as_bytes()])?;
        Ok(())
    }

    /// Remembers that the token was abandoned.
    pub(crate) fn bury(&self, name: &LockName, token: &OwnerToken) -> Done<()> {
        let until = self.at + micros(tenure_core::driver::Tombstones::LIFE);
        let bury = "INSERT OR REPLACE INTO grave (name, token, until) VALUES (?1, ?2, ?3)";
        self.db.prepare_cached(bury)?.execute((name.as_bytes(), token.expose().as_str(), until))?;
        Ok(())
    }

    /// Whether the token was abandoned a short while ago.
    pub(crate) fn is_buried(&self, name: &LockName, token: &OwnerToken) -> Done<bool> {
        let look = "SELECT 1 FROM grave WHERE name = ?1 AND token = ?2 AND until > ?3";
        Ok(self.db.prepare_cached(look)?.exists((name.as_bytes(), token.expose().as_str(), self.at))?)
    }
}

/// `None` for a row that this library does not write.
fn read(row: &Row<'_>) -> Done<Option<Held>> {
    let (owner, entries): (Option<String>, Vec<u8>) = (row.get(0)?, row.get(1)?);
    let (fence, since, until, label): (i64, _, _, Option<String>) =
        (row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
    let handed = row.get(6)?;
    Ok((|| {
        let owner = owner.map(|text| text.parse()).transpose().ok()?;
        let label = label.map(Label::new).transpose().ok()?;
        let fence = FencingToken::new(u64::try_from(fence).ok()?)?;
        let (entries, []) = entries.as_chunks::<ENTRY>() else { return None };
        let entries = entries.iter().map(read_entry).collect::<Option<Vec<_>>>()?;
        Some(Held { owner, entries, fence, since, until, label, handed })
    })()
    .filter(|held| !held.entries.is_empty()))
}

fn read_entry(bytes: &[u8; ENTRY]) -> Option<(OwnerToken, i64)> {
    let (token, ttl) = bytes.split_at(TOKEN);
    let token = OwnerToken::parse(std::str::from_utf8(token).ok()?).ok()?;
    Some((token, i64::from_le_bytes(ttl.try_into().ok()?)))
}
