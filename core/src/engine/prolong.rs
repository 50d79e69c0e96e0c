//! One renewal of a lease by itself, and the wait for one that is on its way.

use crate::driver::{Backend, Renewed};
use crate::engine::lease::{Lease, LeaseKey, Verdict};
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::time::{DriftBound, LeaseInstant, Ttl};

/// Waits until no renewal is on its way, so that none can arrive behind the release that follows.
pub(super) async fn quiet(lease: &Lease) {
    if lease.lock().renewing.is_none() {
        return; // nearly always
    }
    loop {
        let changes = lease.changes();
        let changed = changes.notified(); // before looking
        let Some(until) = lease.lock().on_its_way(LeaseInstant::now()) else { return };
        tokio::select! {
            () = changed => {}
            () = until.reached() => return,
        }
    }
}

// A lease that outlasts its guard: the holder is done, and nobody else may have the lock before the rest of a span is over.
//
// The lease is renewed once, to that rest. Whoever is still there when the rest is over gives it back; if nobody is, it ends by
// itself.

/// Sees to it that the lease lasts until then without anybody's doing; `false` when it has ended. One that lasts as long anyway
/// is renewed as well: nothing else would tell that it was taken away.
pub(crate) async fn outlast(backend: &Backend, drift: DriftBound, lease: &Lease, until: LeaseInstant) -> Result<bool> {
    let sent_at = LeaseInstant::before_send();
    let wanted = drift.covering(until.since(sent_at));
    let Some(ttl) = backend.locks().capabilities().ttl.at_least(wanted) else {
        let text = format!("this backend keeps no lease of {wanted:?}");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    };
    match renew(backend, lease, ttl).await? {
        Renewed::Extended { ttl } => {
            lease.lengthen(sent_at.after(drift.believable(ttl).unwrap_or_default()));
            Ok(true)
        }
        Renewed::Lost => Ok(false),
    }
}

/// What a renewal to this ttl, by itself, says of the lease. No other may be on its way.
pub(super) async fn prolong(backend: &Backend, drift: DriftBound, lease: &Lease, ttl: Ttl) -> Result<Verdict> {
    let sent_at = LeaseInstant::before_send();
    Ok(match renew(backend, lease, ttl).await? {
        Renewed::Extended { ttl } => {
            Verdict::Confirmed { sent_at, believable: drift.believable(ttl).unwrap_or_default() }
        }
        Renewed::Lost => Verdict::Lost,
    })
}

/// One renewal by itself. No other may be on its way.
async fn renew(backend: &Backend, lease: &Lease, ttl: Ttl) -> Result<Renewed> {
    let answers = match (&lease.key, backend.reentrant()) {
        (LeaseKey::Plain(hold), _) => backend.locks().renew(ttl, std::slice::from_ref(hold)).await,
        (LeaseKey::Reentrant(hold), Some(driver)) => driver.renew(ttl, std::slice::from_ref(&**hold)).await,
        (LeaseKey::Reentrant(_), None) => Vec::new(),
    };
    match answers.into_iter().next() {
        Some(Err(error)) if error.kind() == ErrorKind::NotHeld => Ok(Renewed::Lost),
        Some(answer) => answer,
        None => Err(Error::new(ErrorKind::Protocol, "the driver did not answer a renewal")),
    }
}
