//! The holder of one name: a row of the table `hold`.

use rusqlite::{OptionalExtension as _, Row};
use tenure_core::rules::locks::{Change, Hold, HoldBy};
use tenure_core::{FencingToken, Label, LockName, OwnerToken};

use crate::error::{Done, damaged};
use crate::span::{micros, of_micros};
use crate::store::Turn;

/// An entry is the text of its token, and the ttl that its grant returned.
const TOKEN: usize = 22;
const ENTRY: usize = TOKEN + 8;

/// The hold of a name, if it lasts.
pub(crate) fn read(turn: &Turn<'_>, name: &LockName) -> Done<Option<Hold>> {
    let look = "SELECT owner, entries, fence, since, until, label, handed FROM hold WHERE name = ?1 AND until > ?2";
    let mut look = turn.db.prepare_cached(look)?;
    let found = look.query_row((name.as_bytes(), turn.at), |row| Ok(read_row(row)));
    let broken = || damaged(format!("the hold of \"{name}\" cannot be read"));
    match found.optional()? {
        None => Ok(None),
        Some(read) => Ok(Some(read?.ok_or_else(broken)?)),
    }
}

/// Writes what changed of a hold. A free name has no row.
pub(crate) fn write(turn: &Turn<'_>, name: &LockName, hold: Option<&Hold>, change: Change) -> Done<()> {
    match (change, hold) {
        (Change::None, _) => {}
        (_, None) => drop(turn.db.prepare_cached("DELETE FROM hold WHERE name = ?1")?.execute([name.as_bytes()])?),
        (Change::End, Some(hold)) => {
            let extend = "UPDATE hold SET until = ?2 WHERE name = ?1";
            turn.db.prepare_cached(extend)?.execute((name.as_bytes(), micros(hold.until)))?;
        }
        (Change::Whole, Some(hold)) => keep(turn, name, hold)?,
    }
    Ok(())
}

fn keep(turn: &Turn<'_>, name: &LockName, hold: &Hold) -> Done<()> {
    let mut entries = Vec::with_capacity(hold.by.depth() as usize * ENTRY);
    let mut add = |token: &OwnerToken, ttl| {
        entries.extend_from_slice(token.expose().as_ref());
        entries.extend_from_slice(&micros(ttl).to_le_bytes());
    };
    match &hold.by {
        HoldBy::Token(token, ttl) => add(token, *ttl),
        HoldBy::Owner(_, entries) => entries.iter().for_each(|(token, ttl)| add(token, *ttl)),
    }
    let keep = "INSERT OR REPLACE INTO hold VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    turn.db.prepare_cached(keep)?.execute((
        name.as_bytes(),
        hold.by.owner().map(|owner| owner.to_string()),
        entries,
        hold.fence.get().cast_signed(),
        micros(hold.since),
        micros(hold.until),
        hold.label.as_ref().map(Label::as_str),
        hold.handed,
    ))?;
    Ok(())
}

/// `None` for a row that this library does not write.
fn read_row(row: &Row<'_>) -> Done<Option<Hold>> {
    let (owner, entries): (Option<String>, Vec<u8>) = (row.get(0)?, row.get(1)?);
    let (fence, since, until, label): (i64, _, _, Option<String>) =
        (row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
    let handed = row.get(6)?;
    Ok((|| {
        let owner = owner.map(|text| text.parse()).transpose().ok()?;
        let label = label.map(Label::new).transpose().ok()?;
        let fence = FencingToken::new(u64::try_from(fence).ok()?)?;
        let (entries, []) = entries.as_chunks::<ENTRY>() else { return None };
        let by = match (owner, entries) {
            (_, []) => return None,
            (Some(owner), entries) => HoldBy::Owner(owner, entries.iter().map(read_entry).collect::<Option<_>>()?),
            (None, [entry, ..]) => {
                let (token, ttl) = read_entry(entry)?;
                HoldBy::Token(token, ttl)
            }
        };
        Some(Hold { by, fence, since: of_micros(since), until: of_micros(until), label, handed })
    })())
}

fn read_entry(bytes: &[u8; ENTRY]) -> Option<(OwnerToken, std::time::Duration)> {
    let (token, ttl) = bytes.split_at(TOKEN);
    let token = OwnerToken::parse(std::str::from_utf8(token).ok()?).ok()?;
    Some((token, of_micros(i64::from_le_bytes(ttl.try_into().ok()?))))
}
