//! Mutants of forced releases.

use std::sync::atomic::{AtomicBool, Ordering};

use super::maker::{Mutant, mutant};
use super::twist::flaw;

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("force/does-nothing", "a forced release is confirmed and not done",
        flaw!(force_release(_, _, _) => Ok(ForceReleased::Released)),
        ["fence/grows-after-force", "force/free-lock-says-not-held"]),
    mutant!("force/says-released", "a forced release says that it freed something",
        flaw!(force_release(inner, name, expected) => {
            inner.locks().force_release(name, expected).await.map(|_| ForceReleased::Released)
        }), ["force/free-lock-says-not-held"]),
    mutant!("force/any-fence", "a forced release does not compare the fence",
        flaw!(force_release(inner, name, _) => inner.locks().force_release(name, None).await),
        ["force/spares-the-next-holder", "reentrant/force-ends-every-entry"]),
    mutant!("force/never-the-fence", "a forced release with a fence finds another hold, always",
        flaw!(force_release(inner, name, fence) => {
            match fence {
                Some(_) => Ok(ForceReleased::Changed),
                None => inner.locks().force_release(name, None).await,
            }
        }), ["force/spares-the-next-holder", "reentrant/force-ends-every-entry"]),
    mutant!("force/spares-the-token", "the old holder may take it back by renewing",
        flaw!(forced: AtomicBool;
            force_release(inner, name, expected) => {
                forced.store(true, Ordering::SeqCst);
                inner.locks().force_release(name, expected).await
            },
            renew(inner, ttl, holds) => {
                let answers = inner.locks().renew(ttl, holds).await;
                let spared = forced.load(Ordering::SeqCst);
                let lie = |answer| match answer {
                    Ok(Renewed::Lost) if spared => Ok(Renewed::Extended { ttl: ttl.get() }),
                    answer => answer,
                };
                answers.into_iter().map(lie).collect()
            },
        ), ["force/frees-and-ends-the-hold", "force/old-token-is-powerless"]),
];
