//! Who waits for one name, in order of arrival: rows of the table `waiter`.

use rusqlite::{OptionalExtension as _, Row};
use tenure_core::driver::{AcquireRequest, Handing};
use tenure_core::{Label, LockName, OwnerToken};

use crate::error::{Done, damaged};
use crate::span::micros;
use crate::store::Turn;

/// How long a waiter that was woken for a free lock keeps others from passing it, in microseconds.
pub(crate) const CLAIM_WINDOW: i64 = 2_000_000;

/// A place in the line.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) place: i64,
    pub(crate) token: OwnerToken,
    pub(crate) client: i64,
    pub(crate) present: i64,
    pub(crate) ttl: i64,
    pub(crate) fences: u32,
    /// Whether it takes the lock without asking.
    pub(crate) direct: bool,
    pub(crate) label: Option<Label>,
}

/// What a waiter that left was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Absent,
    Head,
    Middle,
}

impl Turn<'_> {
    /// The first present waiter.
    pub(crate) fn head(&self, name: &LockName) -> Done<Option<Waiter>> {
        self.behind(name, 0)
    }

    /// The first present waiter behind a place.
    pub(crate) fn behind(&self, name: &LockName, place: i64) -> Done<Option<Waiter>> {
        let look = "SELECT place, token, client, present, ttl, fences, direct, label FROM waiter \
                    WHERE name = ?1 AND place > ?2 AND present > ?3 ORDER BY place LIMIT 1";
        let mut look = self.db.prepare_cached(look)?;
        let found = look.query_row((name.as_bytes(), place, self.at), |row| Ok(read(row)));
        let broken = || damaged(format!("a waiter for \"{name}\" cannot be read"));
        match found.optional()? {
            None => Ok(None),
            Some(read) => Ok(Some(read?.ok_or_else(broken)?)),
        }
    }

    /// How many present waiters are before the one with this token.
    pub(crate) fn position(&self, name: &LockName, token: &OwnerToken) -> Done<Option<u32>> {
        let Some(place) = self.place(name, token)? else { return Ok(None) };
        let count = "SELECT count(*) FROM waiter WHERE name = ?1 AND place < ?2 AND present > ?3";
        let before = self.db.prepare_cached(count)?.query_row((name.as_bytes(), place, self.at), |row| row.get(0))?;
        Ok(Some(before))
    }

    /// How many are present.
    pub(crate) fn waiters(&self, name: &LockName) -> Done<u32> {
        let count = "SELECT count(*) FROM waiter WHERE name = ?1 AND present > ?2";
        Ok(self.db.prepare_cached(count)?.query_row((name.as_bytes(), self.at), |row| row.get(0))?)
    }

    fn place(&self, name: &LockName, token: &OwnerToken) -> Done<Option<i64>> {
        let look = "SELECT place FROM waiter WHERE name = ?1 AND token = ?2 AND present > ?3";
        let by = (name.as_bytes(), token.expose().as_str().to_owned(), self.at);
        Ok(self.db.prepare_cached(look)?.query_row(by, |row| row.get(0)).optional()?)
    }

    /// Adds the waiter at the end, or renews the presence that it has.
    pub(crate) fn join(&self, request: &AcquireRequest, present: i64, handing: Handing) -> Done<()> {
        let AcquireRequest { name, token, ttl, label, fences, .. } = request;
        if let Some(place) = self.place(name, token)? {
            self.db.prepare_cached("UPDATE waiter SET present = ?2 WHERE place = ?1")?.execute((place, present))?;
            return Ok(());
        }
        // One that lapsed with this token goes; the place is a new one.
        let join = "INSERT OR REPLACE INTO waiter (name, token, client, present, ttl, fences, direct, label) \
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        self.db.prepare_cached(join)?.execute((
            name.as_bytes(),
            token.expose().as_str(),
            self.client,
            present,
            micros(ttl.get()),
            fences,
            handing == Handing::Direct,
            label.as_ref().map(Label::as_str),
        ))?;
        Ok(())
    }

    /// Takes the waiter out.
    pub(crate) fn leave(&self, name: &LockName, token: &OwnerToken) -> Done<Left> {
        let Some(place) = self.place(name, token)? else { return Ok(Left::Absent) };
        let head = self.head(name)?.is_some_and(|head| head.place == place);
        self.db.prepare_cached("DELETE FROM waiter WHERE place = ?1")?.execute([place])?;
        Ok(if head { Left::Head } else { Left::Middle })
    }

    /// Takes all waiters of a client out.
    pub(crate) fn leave_all(&self, name: &LockName, client: i64) -> Done<()> {
        let leave = "DELETE FROM waiter WHERE name = ?1 AND client = ?2";
        self.db.prepare_cached(leave)?.execute((name.as_bytes(), client))?;
        Ok(())
    }

    /// From now on the first waiter has the claim window to ask.
    pub(crate) fn call(&self, head: &Waiter) -> Done<()> {
        let until = head.present.min(self.at + CLAIM_WINDOW);
        self.db.prepare_cached("UPDATE waiter SET present = ?2 WHERE place = ?1")?.execute((head.place, until))?;
        Ok(())
    }
}

/// `None` for a row that this library does not write.
fn read(row: &Row<'_>) -> Done<Option<Waiter>> {
    let (place, token, client, present): (i64, String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    let (ttl, fences, direct, label): (i64, u32, bool, Option<String>) =
        (row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?);
    let token = OwnerToken::parse(&token).ok();
    let label = label.map(Label::new).transpose().ok();
    Ok(token.zip(label).map(|(token, label)| Waiter { place, token, client, present, ttl, fences, direct, label }))
}
