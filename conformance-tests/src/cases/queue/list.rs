//! Listing messages.

use std::time::Duration;

use tenure_core::driver::{Listed, MessageInfo, MessageState, NewMessage};

use super::support::{Raw, after, keyed, lease, message, named, raw, texts};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/list-waiting",
        "Waiting messages are listed in the order of due times, each once whatever the size of a page, one whose lease has ended \
         too; listing changes nothing.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        waiting
    ),
    case!(
        "queue/list-in-flight",
        "Messages in flight are listed apart from waiting ones, in the order in which their leases end.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        in_flight
    ),
    case!(
        "queue/list-held",
        "Messages whose key is in flight are listed among those that wait, whether a receive has found them or not.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin, Need::QueueKeys],
        held
    ),
];

const HOUR: Duration = Duration::from_secs(3_600);

/// All pages of so many messages.
async fn pages(raw: &Raw, which: Listed, max: usize) -> CaseResult<Vec<MessageInfo>> {
    let (mut all, mut from) = (Vec::new(), None);
    for _ in 0..100 {
        let page = raw.admin().list(&raw.name, which, from, max).await?;
        assert!(page.messages.len() <= max, "more than were asked for");
        all.extend(page.messages);
        from = page.next;
        if from.is_none() {
            return Ok(all);
        }
    }
    Err(Failure::new(format!("a listing of {} messages does not end", all.len())))
}

fn payloads(messages: &[MessageInfo]) -> Vec<String> {
    messages.iter().map(|info| String::from_utf8_lossy(info.payload.as_bytes()).into_owned()).collect()
}

async fn waiting(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    assert!(pages(&raw, Listed::Waiting, 5).await?.is_empty());
    raw.push(&[message("flying"), message("ended")]).await?;
    raw.one(lease(context, 60_000)).await?;
    // Long enough for one request: "ready" is due before it ends.
    let short = lease(context, 300);
    raw.one(short).await?;
    let ready = raw.store(named("ready", "ready", HOUR)).await?;
    // Not in the order of their due times.
    raw.push(&[5, 1, 4, 2, 3].map(|hours| after(message(format!("in {hours} h")), HOUR * hours))).await?;
    context.pass(short.get() * 2 + raw.driver.capabilities().clock_error).await;
    let before = raw.counts().await?;
    assert_eq!(before, (5, 2, 1, 0));
    for max in [1, 2, 3, 7, 20] {
        let seen = pages(&raw, Listed::Waiting, max).await?;
        let expected = ["ready", "ended", "in 1 h", "in 2 h", "in 3 h", "in 4 h", "in 5 h"];
        assert_eq!(payloads(&seen), expected, "in pages of {max}");
        assert_eq!((&seen[0].id, seen[0].state, seen[0].attempt), (&ready, MessageState::Ready, 0));
        assert_eq!((seen[1].state, seen[1].attempt), (MessageState::Ready, 1));
        for (hours, info) in (1..).zip(&seen[2..]) {
            let due = HOUR * hours;
            assert_eq!((info.state, info.attempt), (MessageState::Scheduled, 0));
            assert!(info.due_in <= due && info.due_in > due - HOUR / 2, "{:?} of {due:?}", info.due_in);
        }
    }
    assert_eq!(raw.counts().await?, before, "listing changed something");
    assert_eq!(texts(&raw.take(5, lease(context, 60_000)).await?), ["ready", "ended"]);
    Ok(())
}

async fn in_flight(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let short = lease(context, 100);
    raw.push(&["ended", "c", "a", "d", "b"].map(message)).await?;
    for millis in [100, 300_000, 100_000, 400_000, 200_000] {
        raw.one(lease(context, millis)).await?;
    }
    raw.push(&[message("ready"), after(message("far"), HOUR)]).await?;
    context.pass(short.get() * 2 + raw.driver.capabilities().clock_error).await;
    for max in [1, 2, 3, 20] {
        let seen = pages(&raw, Listed::InFlight, max).await?;
        assert_eq!(payloads(&seen), ["a", "b", "c", "d"], "in pages of {max}");
        for (place, info) in (1..).zip(&seen) {
            let end = lease(context, 100_000).get() * place;
            assert_eq!((info.state, info.attempt), (MessageState::InFlight, 1));
            assert!(info.due_in <= end && info.due_in > end / 2, "{:?} of {end:?}", info.due_in);
        }
    }
    assert_eq!(raw.counts().await?, (1, 2, 4, 0), "listing changed something");
    Ok(())
}

async fn held(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let of_key = |text: &str| keyed(text, "k");
    raw.store(of_key("flying")).await?;
    raw.one(lease(context, 60_000)).await?;
    raw.push(&[of_key("a"), of_key("b")]).await?;
    raw.nothing("the key is busy").await?;
    let more: [NewMessage; 3] = [of_key("c"), message("d"), after(of_key("e"), HOUR)];
    raw.push(&more).await?;
    for max in [1, 2, 20] {
        let mut seen = payloads(&pages(&raw, Listed::Waiting, max).await?);
        seen.sort();
        assert_eq!(seen, ["a", "b", "c", "d", "e"], "in pages of {max}");
        assert_eq!(payloads(&pages(&raw, Listed::InFlight, max).await?), ["flying"]);
    }
    assert_eq!(raw.counts().await?, (1, 4, 1, 0), "listing changed something");
    Ok(())
}
