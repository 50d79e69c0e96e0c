//! The whole state of one name as one record, for a store that keeps it so.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use super::hold::Hold;
use super::rows::{Given, Heard, Left, Rows, Terms, Waiter};
use super::rule::Rule;
use crate::value::token::{FencingToken, OwnerToken};

/// Everything known of one name. An idle record need not be kept: see [`Record::is_idle`].
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The holder, if there is one.
    pub hold: Option<Hold>,
    /// The waiters, in order of arrival.
    pub line: VecDeque<Waiter<()>>,
}

/// What a rule over a [`Record`] takes from outside of it.
pub trait Outside {
    /// Returns the first of so many consecutive fences, greater than all earlier ones.
    fn fences(&mut self, count: u32) -> FencingToken;

    /// Wakes a waiter, or hands it a lease.
    fn signal(&mut self, waiter: &OwnerToken, given: Option<Given>) -> Heard;

    /// Remembers that the token was abandoned.
    fn bury(&mut self, token: &OwnerToken);

    /// Returns true if the token was abandoned a short while ago.
    fn is_buried(&self, token: &OwnerToken) -> bool;
}

impl Record {
    /// Drops an ended hold and absent waiters.
    pub fn settle(&mut self, now: Duration) {
        if self.hold.as_ref().is_some_and(|hold| hold.until <= now) {
            self.hold = None;
        }
        if self.line.iter().any(|waiter| waiter.present <= now) {
            self.line.retain(|waiter| waiter.present > now);
        }
    }

    /// Returns true if it has neither a holder nor waiters.
    pub fn is_idle(&mut self, now: Duration) -> bool {
        self.settle(now);
        self.hold.is_none() && self.line.is_empty()
    }

    /// Returns the rule of a request at one instant.
    pub fn rule<O: Outside>(&mut self, now: Duration, outside: O) -> Rule<'_, InRecord<'_, O>> {
        self.settle(now);
        Rule::new(&mut self.hold, InRecord { line: &mut self.line, outside }, now)
    }
}

/// The waiters of a record during one request.
#[derive(Debug)]
pub struct InRecord<'a, O> {
    line: &'a mut VecDeque<Waiter<()>>,
    outside: O,
}

impl<O> InRecord<'_, O> {
    fn index(&self, token: &OwnerToken) -> Option<usize> {
        self.line.iter().position(|waiter| waiter.token == *token)
    }
}

impl<O: Outside> Rows for InRecord<'_, O> {
    type Error = Infallible;
    type Place = ();

    fn fences(&mut self, count: u32) -> Result<FencingToken, Infallible> {
        Ok(self.outside.fences(count))
    }

    fn signal(&mut self, waiter: &Waiter<()>, given: Option<Given>) -> Result<Heard, Infallible> {
        Ok(self.outside.signal(&waiter.token, given))
    }

    fn bury(&mut self, token: &OwnerToken) -> Result<(), Infallible> {
        self.outside.bury(token);
        Ok(())
    }

    fn is_buried(&self, token: &OwnerToken) -> Result<bool, Infallible> {
        Ok(self.outside.is_buried(token))
    }

    fn head(&self) -> Result<Option<Waiter<()>>, Infallible> {
        Ok(self.line.front().cloned())
    }

    fn behind(&self, waiter: &Waiter<()>) -> Result<Option<Waiter<()>>, Infallible> {
        Ok(self.index(&waiter.token).and_then(|at| self.line.get(at + 1)).cloned())
    }

    fn position(&self, token: &OwnerToken) -> Result<Option<u32>, Infallible> {
        Ok(self.index(token).map(|at| u32::try_from(at).unwrap_or(u32::MAX)))
    }

    fn count(&self) -> Result<u32, Infallible> {
        Ok(u32::try_from(self.line.len()).unwrap_or(u32::MAX))
    }

    fn join(&mut self, token: &OwnerToken, present: Duration, terms: Option<Terms>) -> Result<(), Infallible> {
        match self.line.iter_mut().find(|waiter| waiter.token == *token) {
            Some(waiter) => waiter.present = present,
            None => self.line.push_back(Waiter { place: (), token: *token, present, terms }),
        }
        Ok(())
    }

    fn call(&mut self, _: &Waiter<()>, present: Duration) -> Result<(), Infallible> {
        if let Some(head) = self.line.front_mut() {
            head.present = present;
        }
        Ok(())
    }

    fn leave(&mut self, token: &OwnerToken) -> Result<Left, Infallible> {
        let Some(at) = self.index(token) else { return Ok(Left::Absent) };
        self.line.remove(at);
        Ok(if at == 0 { Left::Head } else { Left::Middle })
    }

    fn drop_deaf(&mut self, waiter: &Waiter<()>) -> Result<(), Infallible> {
        self.leave(&waiter.token).map(drop)
    }
}
