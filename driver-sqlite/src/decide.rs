//! The decisions about one name, inside a transaction.

use tenure_core::LockName;
use tenure_core::rules::locks::Rule;

use crate::error::Done;
use crate::hold;
use crate::line::Waiters;
use crate::span::of_micros;
use crate::store::Turn;

/// The rule of one request.
pub(crate) type LockRule<'a, 'b> = Rule<'a, Waiters<'a, 'b>>;

/// Reads the hold of a name, decides on it, and writes what changed.
pub(crate) fn decide<T>(
    turn: &mut Turn<'_>,
    name: &LockName,
    decision: impl FnOnce(&mut LockRule<'_, '_>) -> Done<T>,
) -> Done<T> {
    let mut held = hold::read(turn, name)?;
    let now = of_micros(turn.at);
    let mut rule = Rule::new(&mut held, Waiters { turn: &mut *turn, name }, now);
    let answer = decision(&mut rule)?;
    let change = rule.change();
    hold::write(turn, name, held.as_ref(), change)?;
    Ok(answer)
}
