//! The cases, one theme a file.

mod exclusion;
mod lease;
mod meta;
mod release;
mod support;

use crate::case::Case;

/// Every case there is.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let themes: [&'static [Case]; 4] = [exclusion::CASES, lease::CASES, meta::CASES, release::CASES];
    themes.into_iter().flatten()
}
