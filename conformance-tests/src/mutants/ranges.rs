//! Mutants of the fences that a grant reserves.

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Begun, Watch};
use tenure_core::{LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::turns::reported;
use super::twist::{Inner, Twist};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("range/reported-but-not-reserved",
        "a grant says that it carries all the fences that were asked for, and reserves one",
        Wrong::NotReserved, ["relay/reserved-fences-are-exclusive", "relay/fences-grow"]),
    mutant!("range/none", "a grant carries one fence, however many were asked for",
        Wrong::None, ["relay/reserved-fences-are-exclusive", "relay/costs-no-request"]),
    mutant!("range/repeated-as-new", "a repeated request returns more fences than were reserved",
        Wrong::MoreAgain, ["relay/reserved-fences-are-exclusive"]),
    mutant!("range/turn-returns-more", "a lease that is handed over returns more fences than were reserved",
        Wrong::TurnTellsMore, ["relay/turn-reserves-them-too"]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    NotReserved,
    None,
    MoreAgain,
    TurnTellsMore,
}

#[async_trait]
impl Twist for Wrong {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let reserved = matches!(self, Self::MoreAgain | Self::TurnTellsMore);
        let fences = if reserved { request.fences } else { 1 };
        let answer = inner.locks().acquire(&request.clone().with_fences(fences)).await?;
        let Acquisition::Granted(grant) = answer else { return Ok(answer) };
        let fences = match (self, grant.begun) {
            (Self::NotReserved, _) => request.fences,
            (Self::MoreAgain, Begun::Earlier) => request.fences + 1,
            _ => grant.fences,
        };
        Ok(Acquisition::Granted(grant.with_fences(fences)))
    }

    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let watch = inner.locks().watch(name, token).await?;
        Ok(match self {
            Self::TurnTellsMore => reported(watch, |handed| handed.with_fences(handed.fences + 1)),
            Self::NotReserved | Self::None | Self::MoreAgain => watch,
        })
    }
}
