//! What a lock is asked for.

use crate::engine::lease::Upkeep;
use crate::engine::shared::Shared;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::name::{Label, LockName};
use crate::value::token::OwnerId;
use crate::value::ttl::Ttl;
use std::time::Duration;

/// What is wanted: checked, and not yet asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: LockName,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) ttl: Ttl,
    pub(crate) upkeep: Upkeep,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Option<Label>,
}

impl Ask {
    /// Refuses what the backend cannot keep, and what a closed client is asked for.
    pub(crate) fn check(&self, shared: &Shared) -> Result<()> {
        shared.ensure_open()?;
        shared.check_ttl(self.ttl)?;
        if let Some(least) = self.at_least {
            self.check_least(shared, least)?;
        }
        shared.start()
    }

    /// Whether one renewal can leave the lease standing for as long as `least`.
    fn check_least(&self, shared: &Shared, least: Duration) -> Result<()> {
        let range = shared.backend.locks().capabilities().ttl;
        let wanted = if least > Ttl::MAX { least } else { shared.config.drift.covering(least) };
        if range.at_least(wanted).is_none() {
            let text = format!(
                "at_least of {least:?} needs a lease of {wanted:?}, and this backend keeps none above {:?}",
                range.max
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }
}
