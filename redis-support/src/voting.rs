//! A server as a node of a quorum.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{Ballot, Doctor, Electorate, Hold, QuorumNode, Raised, Vote};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, Result};

use crate::call;
use crate::link::Dialer;
use crate::lock::Driver;
use crate::script::Reply;
use crate::settings::RedisSettings;

/// The name in errors about the whole node.
const WHOLE_NODE: &str = "*";

/// One round trip a method. Needs the right to `INFO` where a ballot asks for seniority.
///
/// Whichever [`Fences`](crate::Fences) the settings choose for plain locks, a vote's fence comes from a counter of the name's own that follows the proposals; it is kept for the settings'
/// [`counter_life`](crate::RedisSettings::counter_life) after its last use.
#[async_trait]
impl<D: Dialer> QuorumNode for Driver<D> {
    async fn vote(&self, ballot: &Ballot) -> Result<Vote> {
        self.check().await?;
        let request = &ballot.request;
        let reply = self.run("vote", &request.name, self.calls().vote(ballot)).await?;
        vote(&reply, request.ttl.get(), &self.calls().settings)
            .map_err(|error| error.during(D::DRIVER, "vote", &request.name))
    }

    async fn raise(&self, hold: &Hold, fence: FencingToken) -> Result<Raised> {
        let reply = self.run("raise", &hold.name, self.calls().raise(hold, fence)).await?;
        raised(&reply, fence).map_err(|error| error.during(D::DRIVER, "raise", &hold.name))
    }

    async fn enroll(&self, electorate: &Electorate) -> Result<()> {
        let name = LockName::new(WHOLE_NODE)?;
        self.run("enroll", &name, self.calls().enroll(electorate)).await.map(drop)
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{} {}", self.0.identity, self.calls().settings.prefix.as_str()))
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        Some(Arc::new(self.clone()))
    }
}

/// The answer of vote.
pub(crate) fn vote(reply: &Reply, ttl: Duration, settings: &RedisSettings) -> Result<Vote> {
    match answer(reply) {
        Some((-4, own)) => {
            own.bytes().map(|own| Vote::Elsewhere { electorate: String::from_utf8_lossy(own).into_owned() })
        }
        Some((-5, left)) => Err(junior(left)),
        _ => call::acquisition(reply, ttl, settings).map(Vote::Cast),
    }
}

/// The answer of raise.
pub(crate) fn raised(reply: &Reply, fence: FencingToken) -> Result<Raised> {
    match reply.items()? {
        [Reply::Int(1)] => Ok(Raised::Acknowledged),
        [Reply::Int(0)] => Ok(Raised::NotOwner),
        [Reply::Int(-1), counter] => counter.fence().map(|counter| Raised::Beyond { counter }),
        [Reply::Int(-6), key, found] => Err(call::damaged(key, found)),
        [Reply::Int(-7), key] => Err(too_far(key, fence)),
        _ => Err(call::unexpected("an unknown answer")),
    }
}

/// The code of an answer and what comes with it.
fn answer(reply: &Reply) -> Option<(i64, &Reply)> {
    match reply {
        Reply::Array(items) => Some((items.first()?.int().ok()?, items.get(1)?)),
        _ => None,
    }
}

fn too_far(key: &Reply, fence: FencingToken) -> Error {
    let key = key.bytes().map(|bytes| bytes.escape_ascii().to_string()).unwrap_or_default();
    let text = format!("the fence {fence} is more than a day ahead of the server's clock; {key} was not raised to it");
    Error::new(ErrorKind::InvalidArgument, text)
}

fn junior(left: &Reply) -> Error {
    let left = Duration::from_millis(left.int().ok().and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default());
    let text = format!("the server started a short while ago and may have forgotten locks; it votes again in {left:?}");
    Error::new(ErrorKind::Unavailable, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Bytes(text.as_bytes().to_vec())
    }

    fn fence(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn a_node_of_another_electorate_or_without_seniority_casts_no_vote() {
        let vote = |reply: &[Reply]| vote(&Reply::Array(reply.to_vec()), Duration::ZERO, &RedisSettings::default());
        let elsewhere = vote(&[Reply::Int(-4), text("3-aa")]).unwrap();
        assert!(matches!(&elsewhere, Vote::Elsewhere { electorate } if electorate == "3-aa"), "{elsewhere:?}");
        let junior = vote(&[Reply::Int(-5), Reply::Int(1500)]).unwrap_err();
        assert!(
            junior.kind() == ErrorKind::Unavailable && junior.message().contains("votes again in 1.5s"),
            "{junior}"
        );
        assert!(vote(&[Reply::Int(-4)]).is_err() && vote(&[]).is_err());
    }

    #[test]
    fn a_raise_says_who_has_the_lock_and_where_its_counter_is() {
        let reported = |reply: &[Reply]| raised(&Reply::Array(reply.to_vec()), fence(5));
        assert_eq!(reported(&[Reply::Int(1)]).unwrap(), Raised::Acknowledged);
        assert_eq!(reported(&[Reply::Int(0)]).unwrap(), Raised::NotOwner);
        assert_eq!(reported(&[Reply::Int(-1), Reply::Int(9)]).unwrap(), Raised::Beyond { counter: fence(9) });
        let far = reported(&[Reply::Int(-7), text("tenure:f:a")]).unwrap_err();
        assert_eq!(far.kind(), ErrorKind::InvalidArgument);
        assert!(far.message().contains("the fence 5 is") && far.message().contains("tenure:f:a was not"), "{far}");
        assert_eq!(reported(&[Reply::Int(-6), text("tenure:f:a"), text("x")]).unwrap_err().kind(), ErrorKind::Damaged);
        assert_eq!(reported(&[Reply::Int(2)]).unwrap_err().kind(), ErrorKind::Protocol);
    }
}
