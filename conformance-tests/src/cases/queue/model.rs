//! Random steps, compared with a model that keeps only the place of each message.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::driver::{
    Cancelled, IfKnown, Listed, MessageState, NamedId, Pushed, Receipt, Rescheduled, Settled, Settlement,
};
use tenure_core::queue::{MessageId, Recurrence};

use super::support::{Raw, after, attempts, lease, message, named, raw};
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[case!(
    "queue/random-steps",
    "Through thousands of random steps every answer, every count and every list is the one that a plain model predicts, and every delivery goes to the first that is due.",
    ["P53", "P57", "P58"],
    [Need::Queue, Need::QueueAdmin],
    random_steps
)];

const FAR: Duration = Duration::from_secs(3_600);
const ATTEMPTS: u32 = 3;

/// The state of a message. No message becomes due by itself: it is due at once, or in an hour.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Scheduled,
    Ready,
    InFlight(Receipt),
    Dead,
}

struct Model {
    messages: BTreeMap<MessageId, (At, u32)>,
    stale: Vec<Receipt>,
    pushed: u32,
}

impl Model {
    fn count(&self, wanted: impl Fn(At) -> bool) -> u64 {
        self.messages.values().filter(|(at, _)| wanted(*at)).count() as u64
    }

    fn ids(&self, wanted: impl Fn(At) -> bool) -> Vec<MessageId> {
        self.messages.iter().filter(|(_, (at, _))| wanted(*at)).map(|(id, _)| id.clone()).collect()
    }

    fn move_to(&mut self, id: &MessageId, to: At) {
        if let Some((at, _)) = self.messages.get_mut(id) {
            *at = to;
        }
    }
}

async fn random_steps(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let mut model = Model { messages: BTreeMap::new(), stale: Vec::new(), pushed: 0 };
    for step in 0..3_000 {
        let choice = context.rng().below(100);
        match choice {
            0..24 => push(context, &raw, &mut model).await?,
            24..30 => replace(context, &raw, &mut model).await?,
            30..55 => receive(context, &raw, &mut model).await?,
            55..75 => settle(context, &raw, &mut model).await?,
            75..85 => cancel(context, &raw, &mut model).await?,
            85..93 => reschedule(context, &raw, &mut model).await?,
            93..97 => stale(context, &raw, &model).await?,
            _ => redrive(context, &raw, &mut model).await?,
        }
        if step % 10 == 0 {
            let expected = (
                model.count(|at| at == At::Scheduled),
                model.count(|at| at == At::Ready),
                model.count(|at| matches!(at, At::InFlight(_))),
                model.count(|at| at == At::Dead),
            );
            assert_eq!(raw.counts().await?, expected, "after step {step}");
        }
        if step % 250 == 0 {
            list(&raw, &model).await?;
        }
    }
    Ok(())
}

async fn push(context: &mut Context, raw: &Raw, model: &mut Model) -> CaseResult {
    model.pushed += 1;
    let text = model.pushed.to_string();
    let scheduled = context.rng().below(2) == 0;
    let new = if context.rng().below(2) == 0 { message(&text) } else { named(&text, &text, FAR) };
    let ttl = (context.rng().below(2) == 0).then(|| super::support::delay(FAR));
    let new = attempts(new, ATTEMPTS).with_ttl(ttl);
    let id = raw.store(if scheduled { after(new, FAR) } else { new }).await?;
    assert!(!model.messages.contains_key(&id), "{id} is known already");
    model.messages.insert(id, (if scheduled { At::Scheduled } else { At::Ready }, 0));
    Ok(())
}

async fn replace(context: &mut Context, raw: &Raw, model: &mut Model) -> CaseResult {
    let mut named_ones = model.ids(|_| true);
    named_ones.retain(|id| id.as_name().is_some());
    let Some(id) = pick(context, &named_ones) else { return Ok(()) };
    let (known, to) = (model.messages[&id].0, if context.rng().below(2) == 0 { At::Scheduled } else { At::Ready });
    let new = attempts(message("new"), ATTEMPTS)
        .with_id(Some(NamedId::new(id.clone(), super::support::delay(FAR))))
        .with_if_known(IfKnown::Replace);
    let pushed = raw.push(&[if to == At::Scheduled { after(new, FAR) } else { new }]).await?.remove(0);
    let expected = match known {
        At::Scheduled | At::Ready => Pushed::Replaced(id.clone()),
        At::InFlight(_) => Pushed::Duplicate(MessageState::InFlight),
        At::Dead => Pushed::Duplicate(MessageState::Dead),
    };
    assert_eq!(pushed, expected, "{id}");
    if matches!(pushed, Pushed::Replaced(_)) {
        model.messages.insert(id, (to, 0));
    }
    Ok(())
}

/// Waiting messages and those in flight are listed, each once.
async fn list(raw: &Raw, model: &Model) -> CaseResult {
    let waits = |at| matches!(at, At::Scheduled | At::Ready);
    for (which, wanted) in
        [(Listed::Waiting, model.ids(waits)), (Listed::InFlight, model.ids(|at| matches!(at, At::InFlight(_))))]
    {
        let (mut seen, mut from) = (Vec::new(), None);
        loop {
            let page = raw.admin().list(&raw.name, which, from, 7).await?;
            seen.extend(page.messages.into_iter().map(|info| (info.id, info.attempt)));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        seen.sort();
        let expected: Vec<_> = wanted.into_iter().map(|id| (id.clone(), model.messages[&id].1)).collect();
        assert_eq!(seen, expected, "{which:?}");
    }
    Ok(())
}

async fn receive(context: &mut Context, raw: &Raw, model: &mut Model) -> CaseResult {
    let max = context.rng().below(4) as usize + 1;
    let got = raw.take(max, lease(context, 3_000_000)).await?;
    let ready = model.count(|at| at == At::Ready) as usize;
    assert_eq!(got.len(), ready.min(max), "of {ready} that are due");
    for delivery in got {
        let (at, attempt) = model.messages.get_mut(&delivery.id).expect("only stored messages are delivered");
        assert_eq!(*at, At::Ready, "{}", delivery.id);
        *attempt += 1;
        assert_eq!(delivery.attempt, *attempt, "{}", delivery.id);
        *at = At::InFlight(delivery.receipt);
    }
    Ok(())
}

async fn settle(context: &mut Context, raw: &Raw, model: &mut Model) -> CaseResult {
    if model.count(|at| at == At::Dead) >= 20 {
        let which = tenure_core::driver::DeadSelection::Oldest(100);
        assert_eq!(raw.admin().dead_purge(&raw.name, &which).await?.removed, 20);
        model.messages.retain(|_, (at, _)| *at != At::Dead);
    }
    let in_flight = model.ids(|at| matches!(at, At::InFlight(_)));
    let Some(id) = pick(context, &in_flight) else { return Ok(()) };
    let (At::InFlight(receipt), attempt) = model.messages[&id] else { return Ok(()) };
    model.stale.push(receipt);
    let last = attempt == ATTEMPTS;
    let far = Settlement::Retry { after: super::support::delay(FAR), reason: None };
    let now = Settlement::Retry { after: Default::default(), reason: None };
    let recur = |after| Settlement::Recur { after, recurrence: recurrence(), reason: None };
    let (how, settled, to) = match context.rng().below(7) {
        0 => (Settlement::Ack, Settled::Done, None),
        1 if last => (now, Settled::Dead, Some(At::Dead)),
        1 => (now, Settled::Done, Some(At::Ready)),
        2 if last => (far, Settled::Dead, Some(At::Dead)),
        2 => (far, Settled::Done, Some(At::Scheduled)),
        3 => (recur(Default::default()), Settled::Done, Some(At::Ready)),
        4 => (recur(super::support::delay(FAR)), Settled::Done, Some(At::Scheduled)),
        5 => (Settlement::Return { after: Default::default() }, Settled::Done, Some(At::Ready)),
        _ => (Settlement::Dead { reason: None }, Settled::Dead, Some(At::Dead)),
    };
    match how {
        Settlement::Return { .. } => model.messages.get_mut(&id).expect("it was picked").1 -= 1,
        Settlement::Recur { .. } => model.messages.get_mut(&id).expect("it was picked").1 = 0,
        _ => {}
    }
    assert_eq!(raw.settle(receipt, how.clone()).await?, settled, "{how:?} of {id}");
    match to {
        Some(to) => model.move_to(&id, to),
        None => drop(model.messages.remove(&id)),
    }
    Ok(())
}

async fn cancel(context: &mut Context, raw: &Raw, model: &mut Model) -> CaseResult {
    let Some(id) = pick(context, &model.ids(|_| true)) else { return Ok(()) };
    let expected = match model.messages[&id].0 {
        At::Scheduled | At::Ready => Cancelled::Removed,
        At::InFlight(_) => Cancelled::InFlight,
        At::Dead => Cancelled::Dead,
    };
    assert_eq!(raw.admin().cancel(&raw.name, &id).await?, expected, "{id}");
    if expected == Cancelled::Removed {
        model.messages.remove(&id);
        assert_eq!(raw.state(&id).await?, None);
    }
    Ok(())
}

async fn reschedule(context: &mut Context, raw: &Raw, model: &mut Model) -> CaseResult {
    let Some(id) = pick(context, &model.ids(|_| true)) else { return Ok(()) };
    let sooner = context.rng().below(2) == 0;
    let expected = match model.messages[&id].0 {
        At::Scheduled | At::Ready => Rescheduled::Moved,
        At::InFlight(_) => Rescheduled::InFlight,
        At::Dead => Rescheduled::Dead,
    };
    let wait = super::support::delay(if sooner { Duration::ZERO } else { FAR });
    assert_eq!(raw.admin().reschedule(&raw.name, &id, wait).await?, expected, "{id}");
    if expected == Rescheduled::Moved {
        model.move_to(&id, if sooner { At::Ready } else { At::Scheduled });
    }
    Ok(())
}

async fn stale(context: &mut Context, raw: &Raw, model: &Model) -> CaseResult {
    let Some(receipt) = pick(context, &model.stale) else { return Ok(()) };
    assert_eq!(raw.ack(receipt).await?, Settled::Stale);
    Ok(())
}

async fn redrive(context: &mut Context, raw: &Raw, model: &mut Model) -> CaseResult {
    let Some(id) = pick(context, &model.ids(|at| at == At::Dead)) else { return Ok(()) };
    let which = tenure_core::driver::DeadSelection::Ids(vec![id.clone()]);
    assert_eq!(raw.admin().dead_redrive(&raw.name, &which, Default::default()).await?.moved, 1);
    model.messages.insert(id, (At::Ready, 0));
    Ok(())
}

fn recurrence() -> Recurrence {
    Recurrence::new("now and then").expect("a short recurrence")
}

fn pick<T: Clone>(context: &mut Context, from: &[T]) -> Option<T> {
    let count = from.len() as u64;
    (count > 0).then(|| from[context.rng().below(count) as usize].clone())
}
