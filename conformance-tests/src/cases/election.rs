//! Elections: the leader, and the reports to observers.

use std::time::Duration;

use tenure_core::ErrorKind;
use tenure_core::election::{Observer, View};

use super::support::{clean, take_raw};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::harness::{Fault, FaultKind};

pub(super) const CASES: &[Case] = &[
    case!(
        "election/observers-follow-the-terms",
        "An observer sees each leader with its label and the leader's own term, also when one candidate follows another; \
         and no leader after a resignation and after the end of a lease that was not renewed.",
        ["P4", "P21"],
        [Need::Introspection],
        observers_follow_the_terms
    ),
    case!(
        "election/an-outage-is-no-vacancy",
        "An observer whose server does not answer reports that the leader is unknown, not that there is none, and sees \
         the same term afterwards.",
        ["P26"],
        [Need::Introspection, Need::Fault(FaultKind::PauseServer)],
        an_outage_is_no_vacancy
    ),
];

/// The label and the term of the next reported leader, with or without `View::Nobody` before it.
async fn next_leader(observer: &mut Observer) -> CaseResult<(String, u64)> {
    loop {
        match observer.next().await {
            Some(View::Leader(leader)) => {
                let label = leader.label.map_or_else(String::new, |label| label.as_str().to_owned());
                return Ok((label, leader.term.get()));
            }
            Some(View::Nobody) => {}
            other => return Err(Failure::new(format!("{other:?} instead of a leader"))),
        }
    }
}

async fn nobody(observer: &mut Observer) -> CaseResult {
    match observer.next().await {
        Some(View::Nobody) => Ok(()),
        other => Err(Failure::new(format!("{other:?} instead of no leader"))),
    }
}

async fn observers_follow_the_terms(context: &mut Context) -> CaseResult {
    let (one, two, aside) = (context.client().await?, context.client().await?, context.client().await?);
    let (backend, name, ttl) = (context.backend().await?, context.name("seat"), context.ttl(20_000));
    let seat = |client: &tenure_core::Client| client.election(name.as_bytes()).ttl(ttl);
    let mut observer = seat(&aside).observe()?.every(Duration::from_millis(20));
    let soon = context.soon();
    context.within(soon, "there is no leader at first", nobody(&mut observer)).await??;
    let first = seat(&one).candidate("node 1").campaign().await?;
    let reported = context.within(soon, "the first leader is seen", next_leader(&mut observer)).await??;
    assert_eq!(reported, ("node 1".to_owned(), first.term().get()));
    assert_eq!(seat(&two).leader().await?.map(|leader| leader.term), Some(first.term()));
    let follower = seat(&two).candidate("node 2");
    let waiting = tokio::spawn(async move { follower.campaign().await });
    context.eventually(soon, "the follower waits", async || two.stats().waiters == 1).await?;
    let before = first.term();
    first.resign().await?;
    let second = context.within(soon, "the follower leads", waiting).await???;
    assert!(second.term() > before, "term {} after term {before}", second.term());
    let reported = context.within(soon, "the next leader is seen", next_leader(&mut observer)).await??;
    assert_eq!(reported, ("node 2".to_owned(), second.term().get()));
    second.resign().await?;
    context.within(soon, "there is no leader after a resignation", nobody(&mut observer)).await??;
    let ttl = context.ttl(300);
    let (_, fence) = take_raw(&**backend.locks(), &name, ttl).await?;
    let reported = context.within(soon, "a third leader is seen", next_leader(&mut observer)).await??;
    assert_eq!(reported, (String::new(), fence.get()));
    context.within(ttl + soon, "there is no leader when its lease has ended", nobody(&mut observer)).await??;
    clean(context, &aside, &name, &[&one, &two, &aside]).await
}

async fn an_outage_is_no_vacancy(context: &mut Context) -> CaseResult {
    let (client, aside, name) = (context.client().await?, context.client().await?, context.name("seat"));
    let seat = client.election(name.as_bytes()).ttl(context.ttl(60_000));
    let leads = seat.candidate("node 1").campaign().await?;
    let mut observer = aside.election(name.as_bytes()).observe()?.every(Duration::from_millis(20));
    let reported = context.within(context.soon(), "the leader is seen", next_leader(&mut observer)).await??;
    assert_eq!(reported, ("node 1".to_owned(), leads.term().get()));
    let healer = context.inject(Fault::PauseServer).await?;
    match context.within(context.soon(), "the outage is reported", observer.next()).await? {
        Some(View::Unknown(error)) => {
            let kind = error.kind();
            assert!(matches!(kind, ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
        }
        other => return Err(Failure::new(format!("{other:?} while the server does not answer"))),
    }
    healer.heal().await?;
    let back = async {
        loop {
            match observer.next().await {
                Some(View::Leader(leader)) => return Ok(leader.term),
                Some(View::Unknown(_)) => {} // of another kind
                other => return Err(Failure::new(format!("{other:?} when the server is back"))),
            }
        }
    };
    assert_eq!(context.within(context.soon(), "the same leader is seen again", back).await??, leads.term());
    leads.resign().await?;
    clean(context, &aside, &name, &[&client, &aside]).await
}
