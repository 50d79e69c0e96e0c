//! `tenure queue run`: a process for each message.

use std::rc::Rc;
use std::time::Duration;

use tenure::queue::{Delivery, Reason, RetryPolicy, Settled};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use super::args::Run;
use super::children::Children;
use super::desk::Desk;
use super::id;
use super::program::{Ended, run_program};
use super::workshop::{Phase, Workshop};
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::run::{ChildEnd, Signals, signal_name};
use crate::speak::Format;

const FAREWELL: Duration = Duration::from_secs(2);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

pub(super) async fn run(desk: Desk, run: Run) -> Result<u8, Failure> {
    let term_before = run.term_before.unwrap_or(run.lease / 4);
    if term_before > run.lease / 2 {
        return Err(Failure::usage("--term-before is more than half of the lease: it is extended later than that"));
    }
    let done = LocalSet::new().run_until(work(&desk, run, term_before)).await;
    let _ = desk.client.close(FAREWELL).await;
    done
}

async fn work(desk: &Desk, run: Run, term_before: Duration) -> Result<u8, Failure> {
    let system = |error: std::io::Error| Failure::system(&error);
    let mut signals = Signals::hear().map_err(system)?;
    let mut ended = unix::signal(SignalKind::child()).map_err(system)?;
    let (tell, phase) = watch::channel(Phase::Working);
    let queue = desk.queue.clone().lease(run.lease);
    let (most, drain) = (usize::from(run.concurrency), run.drain);
    let (name, children) = (desk.queue.name().as_bytes().to_vec(), Children::default());
    let shop = Rc::new(Workshop { queue: name, run, term_before, voice: desk.voice, children, phase });
    let mut working = JoinSet::new();
    loop {
        let wanted = *tell.borrow() == Phase::Working && working.len() < most;
        if *tell.borrow() != Phase::Working && working.is_empty() {
            return Ok(0);
        }
        tokio::select! {
            biased;
            _ = ended.recv() => shop.children.reap(),
            signal = signals.end() => {
                let next = if *tell.borrow() == Phase::Working { Phase::Finishing } else { Phase::Ending };
                tell.send_replace(next);
                let said = match next {
                    Phase::Ending => "the programs are ended",
                    _ => "no more messages; the programs finish",
                };
                shop.voice.note(&format!("{}: {said}", signal_name(signal.as_raw())));
            }
            Some(_) = working.join_next(), if !working.is_empty() => {}
            received = receive(&queue, drain), if wanted => match received {
                Ok(Some(delivery)) => drop(working.spawn_local(handle(Rc::clone(&shop), delivery))),
                Ok(None) if working.is_empty() => return Ok(0),
                Ok(None) => tokio::select! { // somebody may still give a message back
                    _ = ended.recv() => shop.children.reap(),
                    _ = working.join_next() => {}
                },
                Err(error) if error.is_transient() => {
                    shop.voice.warn(&format!("no message can be received at the moment: {error:#}"));
                    sleep(AFTER_FAILURE).await;
                }
                Err(error) => return Err(error.into()),
            },
        }
    }
}

async fn receive(queue: &tenure::queue::Queue<Vec<u8>>, drain: bool) -> tenure::Result<Option<Delivery<Vec<u8>>>> {
    if drain { queue.try_receive().await } else { queue.receive().await.map(Some) }
}

/// What becomes of a message.
enum Verdict {
    Done,
    Retry(Duration),
    Dead,
    Back,
}

async fn handle(shop: Rc<Workshop>, delivery: Delivery<Vec<u8>>) {
    let (id, attempt) = (id::show(delivery.id()), delivery.attempt());
    let ended = run_program(&shop, &delivery).await;
    let (ended, text) = match ended {
        Ok(ended) => {
            let text = ended.describe();
            (Some(ended), text)
        }
        Err(error) => (None, format!("no process can be started: {error}")),
    };
    if ended.as_ref().is_some_and(|ended| ended.lost) {
        shop.voice.warn(&format!("message {id}, attempt {attempt}: the lease was lost; {text}"));
        return report(&shop, &id, attempt, ended.as_ref(), "lost");
    }
    let verdict = verdict(&shop, ended.as_ref(), attempt);
    let reason = Some(Reason::beginning_of(&text));
    let (word, settled) = match verdict {
        Verdict::Done => ("done", delivery.ack().await),
        Verdict::Dead => ("dead", delivery.bury(reason).await),
        Verdict::Back => ("back", delivery.give_back().await),
        Verdict::Retry(wait) => ("retry", delivery.nack_because(wait, reason).await),
    };
    let word = match settled {
        Ok(Settled::Dead) => "dead",
        Ok(Settled::Stale) => "lost",
        Ok(_) => word,
        Err(error) => {
            shop.voice.warn(&format!("message {id}, attempt {attempt}: its settlement is unknown: {error:#}"));
            "unknown"
        }
    };
    match (word, verdict) {
        ("done", _) => {}
        ("retry", Verdict::Retry(wait)) => {
            shop.voice.note(&format!("message {id}, attempt {attempt}: {text}; again in {}", show(wait)));
        }
        ("dead", _) => shop.voice.warn(&format!("message {id}, attempt {attempt}: {text}; it is a dead letter now")),
        _ => shop.voice.note(&format!("message {id}, attempt {attempt}: {text} ({word})")),
    }
    report(&shop, &id, attempt, ended.as_ref(), word);
}

fn verdict(shop: &Workshop, ended: Option<&Ended>, attempt: u32) -> Verdict {
    let retry = || {
        let policy = RetryPolicy::exponential(shop.run.retry, shop.run.retry_most);
        Verdict::Retry(policy.wait(attempt, fastrand::f64()))
    };
    match ended {
        Some(Ended { end: ChildEnd::Exited(0), .. }) => Verdict::Done,
        Some(Ended { end: ChildEnd::Exited(code), .. }) if *code == i32::from(exit::DATA) => Verdict::Dead,
        Some(ended) if ended.told => Verdict::Back,
        _ => retry(),
    }
}

#[derive(Debug, serde::Serialize)]
struct MessageResult<'a> {
    message: &'a str,
    attempt: u32,
    outcome: &'static str,
    exit: Option<i32>,
    signal: Option<i32>,
}

fn report(shop: &Workshop, id: &str, attempt: u32, ended: Option<&Ended>, outcome: &'static str) {
    if shop.voice.format == Format::Json {
        let (exit, signal) = match ended.map(|ended| ended.end) {
            Some(ChildEnd::Exited(code)) => (Some(code), None),
            Some(ChildEnd::Signaled(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        shop.voice.json(&MessageResult { message: id, attempt, outcome, exit, signal });
    }
}
