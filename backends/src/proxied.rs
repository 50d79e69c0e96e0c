//! Faults of the proxies between clients and a server.

use std::sync::Arc;
use std::time::Duration;

use tenure_conformance::{BoxError, Fault, Healer};
use tenure_testkit::{Link, TcpProxy};

/// What [`Fault::PassDays`] moves a clock by: more than two days.
pub(crate) const DAYS: Duration = Duration::from_secs(50 * 3_600);

/// How many connections a server with few of them admits.
const FEW: usize = 2;

/// Injects a fault of connections into these proxies, which lead to the same server.
pub(crate) fn inject(proxies: Vec<Arc<TcpProxy>>, fault: &Fault) -> Result<Healer, BoxError> {
    match fault {
        Fault::CutConnections => proxies.iter().for_each(|proxy| proxy.cut()),
        Fault::SilenceConnections => proxies.iter().for_each(|proxy| proxy.set_present(Link::Silent)),
        Fault::FewConnections => {
            proxies.iter().for_each(|proxy| proxy.admit(FEW));
            return Ok(Healer::new(async move {
                proxies.iter().for_each(|proxy| proxy.admit(usize::MAX));
                Ok(())
            }));
        }
        other => return Err(format!("this harness cannot {other:?}").into()),
    }
    Ok(Healer::nothing())
}
