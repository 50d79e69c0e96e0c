//! Plain locks: one at a time, or several at once; and what every kind of lock can be asked for.

mod all;
mod guard;
mod handle;

use crate::engine::ask::{Ask, Line};
use crate::engine::lease::Upkeep;
use crate::engine::shared::Config;
use crate::value::error::{Error, ErrorKind, Label, LockName, Result};
use crate::value::token::OwnerId;
use crate::value::ttl::Ttl;
use std::time::Duration;

pub use all::{LockAll, LockAllGuard};
pub use guard::{Detached, LockGuard};
pub(crate) use guard::{guard_methods, unless_lost};
pub use handle::Lock;
/// Options as they were given; checked when the lock is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) ttl: Option<(Duration, Upkeep)>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Option<String>,
    pub(crate) line: Line,
}

impl Options {
    pub(crate) fn ask(&self, name: &LockName, owner: Option<OwnerId>, config: &Config) -> Result<Ask> {
        let (ttl, upkeep) = self.lease(config)?;
        if self.max_hold.is_some_and(|most| most.is_zero()) {
            return Err(Error::new(ErrorKind::InvalidArgument, "a max_hold of zero leaves nothing to hold"));
        }
        let at_least = self.at_least.filter(|least| !least.is_zero());
        for (what, end) in [("max_hold", self.max_hold), ("fixed ttl", self.fixed_ttl())] {
            if let (Some(least), Some(end)) = (at_least, end)
                && least > end
            {
                let text = format!("at_least of {least:?} is longer than the {what} of {end:?}");
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
        }
        let label = self.label.as_deref().map(Label::new).transpose()?;
        Ok(Ask { name: name.clone(), owner, ttl, upkeep, max_hold: self.max_hold, at_least, label, line: self.line })
    }

    pub(crate) fn lease(&self, config: &Config) -> Result<(Ttl, Upkeep)> {
        Ok(match self.ttl {
            Some((ttl, upkeep)) => (Ttl::new(ttl)?, upkeep),
            None => (config.ttl, Upkeep::Renewed),
        })
    }

    fn fixed_ttl(&self) -> Option<Duration> {
        self.ttl.filter(|(_, upkeep)| *upkeep == Upkeep::Fixed).map(|(ttl, _)| ttl)
    }
}

/// The setters over [`Options`], for a type with a field `options`.
macro_rules! option_setters {
    () => {
        /// A lease of this length, renewed at a third of it for as long as the guard lives. Default: the client's ttl.
        ///
        /// When the process dies, the lock is free after at most `ttl`. Checked when the lock is asked for:
        /// [`Ttl::MIN`](crate::driver::Ttl::MIN) to [`Ttl::MAX`](crate::driver::Ttl::MAX), whole milliseconds, and the driver's range.
        #[must_use]
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = Some((ttl, $crate::engine::lease::Upkeep::Renewed));
            self
        }

        /// A lease of this length that is not renewed: it ends by itself.
        #[must_use]
        pub fn fixed_ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = Some((ttl, $crate::engine::lease::Upkeep::Fixed));
            self
        }

        /// The longest time to hold the lock, renewed or not; then it is lost
        /// ([`LostReason::MaxHold`](crate::LostReason::MaxHold)) and given back. Default: none.
        ///
        /// Without it, a task that hangs (or a guard that is forgotten) holds the lock as long as the process lives.
        #[must_use]
        pub fn max_hold(mut self, most: std::time::Duration) -> Self {
            self.options.max_hold = Some(most);
            self
        }

        /// A note for operators, visible to everybody who can inspect the lock; at most
        /// [`Label::MAX_LEN`](crate::Label::MAX_LEN) bytes. Default: none.
        #[must_use]
        pub fn label(mut self, label: impl Into<String>) -> Self {
            self.options.label = Some(label.into());
            self
        }
    };
}
pub(crate) use option_setters;
