//! The waiters of one name, in order of arrival: rows of the table `waiter`; and abandoned tokens: rows of the table
//! `grave`.

use std::time::Duration;

use rusqlite::{OptionalExtension as _, Row};
use tenure_core::driver::{Handed, Tombstones};
use tenure_core::rules::locks::{Given, Heard, Left, Rows, Terms, Waiter};
use tenure_core::{FencingToken, Label, LockName, OwnerToken};

use crate::bell::{Ear, Letter};
use crate::error::{Done, Failed, damaged};
use crate::span::{micros, of_micros};
use crate::store::{Turn, fences};

/// The waiters of one name during one request.
pub(crate) struct Waiters<'a, 'b> {
    pub(crate) turn: &'a mut Turn<'b>,
    pub(crate) name: &'a LockName,
}

/// The place of a waiter, and its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    number: i64,
    client: i64,
}

/// Wakes a waiter of a client, or hands it a lease, after the commit.
pub(crate) fn notify(turn: &mut Turn<'_>, client: i64, token: OwnerToken, given: Option<Given>) -> Heard {
    let letter = match given {
        None => Letter::Wake(token),
        Some(Given { fence, ttl, fences }) => {
            Letter::Hand(token, Handed::new(fence, ttl, of_micros(turn.at)).with_fences(fences))
        }
    };
    match turn.ear(client) {
        Ear::Gone => Heard::Never,
        Ear::Unknown => Heard::ByNobody,
        Ear::Open => {
            turn.signal(client, letter);
            Heard::Yes
        }
    }
}

/// How many waiters of a name are present.
pub(crate) fn count(turn: &Turn<'_>, name: &LockName) -> Done<u32> {
    let count = "SELECT count(*) FROM waiter WHERE name = ?1 AND present > ?2";
    Ok(turn.db.prepare_cached(count)?.query_row((name.as_bytes(), turn.at), |row| row.get(0))?)
}

impl Waiters<'_, '_> {
    /// The first present waiter behind a place.
    fn first_behind(&self, place: i64) -> Done<Option<Waiter<Place>>> {
        let look = "SELECT place, token, client, present, ttl, fences, direct, label FROM waiter \
                    WHERE name = ?1 AND place > ?2 AND present > ?3 ORDER BY place LIMIT 1";
        let mut look = self.turn.db.prepare_cached(look)?;
        let found = look.query_row((self.name.as_bytes(), place, self.turn.at), |row| Ok(read(row)));
        let broken = || damaged(format!("a waiter for \"{}\" cannot be read", self.name));
        match found.optional()? {
            None => Ok(None),
            Some(read) => Ok(Some(read?.ok_or_else(broken)?)),
        }
    }

    fn place(&self, token: &OwnerToken) -> Done<Option<i64>> {
        let look = "SELECT place FROM waiter WHERE name = ?1 AND token = ?2 AND present > ?3";
        let by = (self.name.as_bytes(), token.expose().as_str().to_owned(), self.turn.at);
        Ok(self.turn.db.prepare_cached(look)?.query_row(by, |row| row.get(0)).optional()?)
    }

    fn set_presence(&self, place: i64, present: Duration) -> Done<()> {
        let set = "UPDATE waiter SET present = ?2 WHERE place = ?1";
        self.turn.db.prepare_cached(set)?.execute((place, micros(present)))?;
        Ok(())
    }
}

impl Rows for Waiters<'_, '_> {
    type Error = Failed;
    type Place = Place;

    fn fences(&mut self, count: u32) -> Done<FencingToken> {
        fences(self.turn.db, count)
    }

    fn signal(&mut self, waiter: &Waiter<Place>, given: Option<Given>) -> Done<Heard> {
        Ok(notify(self.turn, waiter.place.client, waiter.token, given))
    }

    fn bury(&mut self, token: &OwnerToken) -> Done<()> {
        let until = self.turn.at + micros(Tombstones::LIFE);
        let bury = "INSERT OR REPLACE INTO grave (name, token, until) VALUES (?1, ?2, ?3)";
        self.turn.db.prepare_cached(bury)?.execute((self.name.as_bytes(), token.expose().as_str(), until))?;
        Ok(())
    }

    fn is_buried(&self, token: &OwnerToken) -> Done<bool> {
        let look = "SELECT 1 FROM grave WHERE name = ?1 AND token = ?2 AND until > ?3";
        let by = (self.name.as_bytes(), token.expose().as_str().to_owned(), self.turn.at);
        Ok(self.turn.db.prepare_cached(look)?.exists(by)?)
    }

    fn head(&self) -> Done<Option<Waiter<Place>>> {
        self.first_behind(0)
    }

    fn behind(&self, waiter: &Waiter<Place>) -> Done<Option<Waiter<Place>>> {
        self.first_behind(waiter.place.number)
    }

    fn position(&self, token: &OwnerToken) -> Done<Option<u32>> {
        let Some(place) = self.place(token)? else { return Ok(None) };
        let count = "SELECT count(*) FROM waiter WHERE name = ?1 AND place < ?2 AND present > ?3";
        let by = (self.name.as_bytes(), place, self.turn.at);
        Ok(Some(self.turn.db.prepare_cached(count)?.query_row(by, |row| row.get(0))?))
    }

    fn count(&self) -> Done<u32> {
        count(self.turn, self.name)
    }

    fn join(&mut self, token: &OwnerToken, present: Duration, terms: Option<Terms>) -> Done<()> {
        if let Some(place) = self.place(token)? {
            return self.set_presence(place, present);
        }
        // One that lapsed with this token goes; the place is a new one.
        let join = "INSERT OR REPLACE INTO waiter (name, token, client, present, ttl, fences, direct, label) \
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let terms = terms.as_ref();
        self.turn.db.prepare_cached(join)?.execute((
            self.name.as_bytes(),
            token.expose().as_str(),
            self.turn.client,
            micros(present),
            terms.map_or(0, |terms| micros(terms.ttl)),
            terms.map_or(0, |terms| terms.fences),
            terms.is_some(),
            terms.and_then(|terms| terms.label.as_ref()).map(Label::as_str),
        ))?;
        Ok(())
    }

    fn call(&mut self, head: &Waiter<Place>, present: Duration) -> Done<()> {
        self.set_presence(head.place.number, present)
    }

    fn leave(&mut self, token: &OwnerToken) -> Done<Left> {
        let Some(place) = self.place(token)? else { return Ok(Left::Absent) };
        let head = self.head()?.is_some_and(|head| head.place.number == place);
        self.turn.db.prepare_cached("DELETE FROM waiter WHERE place = ?1")?.execute([place])?;
        Ok(if head { Left::Head } else { Left::Middle })
    }

    /// Its process is gone: all its waiters leave.
    fn drop_deaf(&mut self, waiter: &Waiter<Place>) -> Done<()> {
        let leave = "DELETE FROM waiter WHERE name = ?1 AND client = ?2";
        self.turn.db.prepare_cached(leave)?.execute((self.name.as_bytes(), waiter.place.client))?;
        Ok(())
    }
}

/// `None` for a row that this library does not write.
fn read(row: &Row<'_>) -> Done<Option<Waiter<Place>>> {
    let (number, token, client, present): (i64, String, i64, i64) =
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    let (ttl, fences, direct, label): (i64, u32, bool, Option<String>) =
        (row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?);
    let token = OwnerToken::parse(&token).ok();
    let label = label.map(Label::new).transpose().ok();
    Ok(token.zip(label).map(|(token, label)| Waiter {
        place: Place { number, client },
        token,
        present: of_micros(present),
        terms: direct.then_some(Terms { ttl: of_micros(ttl), label, fences }),
    }))
}
