//! `tenure queue run`: a process for each message.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;
use tenure::queue::{Delivery, Queue, Reason, RetryPolicy, Settled};
use tokio::sync::broadcast;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until};

use super::args::Run;
use super::context::QueueContext;
use super::id;
use super::program::{Ended, run_program};
use super::shared::Shared;
use crate::child::{
    Attendance, ChildEnd, Children, Heard, OnExit, Order, Signals, has_job_control, kill_everything, signal_name,
};
use crate::duration::show;
use crate::exit::{self, Failure};
use crate::name;
use crate::results::Results;

const FAREWELL: Duration = Duration::from_secs(2);
/// How often an idle worker asks anew for a message.
const AGAIN: Duration = Duration::from_secs(10);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long programs that were killed are waited for.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How many orders may be under way.
const ORDERS: usize = 64;

pub(super) async fn run(context: QueueContext, run: Run) -> Result<u8, Failure> {
    let term_before = run.term_before.unwrap_or(run.lease / 4);
    if term_before > run.lease / 2 {
        return Err(Failure::usage("--term-before is more than half of the lease; choose at most half"));
    }
    let system = |error: std::io::Error| Failure::system(&error);
    let results = Results::to(run.report.as_ref(), context.printer.format)?;
    let signals = Signals::hear().map_err(system)?;
    let (children, attendance) = Children::before_any().map_err(system)?;
    let (name, leaves) = (context.queue.name().as_bytes().to_vec(), run.on_exit == OnExit::Leave);
    let (printer, orders) = (context.printer, broadcast::Sender::new(ORDERS));
    let shop = Rc::new(Shared { queue: name, run, term_before, printer, results, children, orders });
    let worker = Worker {
        queue: context.queue.clone().lease(shop.run.lease),
        shop,
        signals,
        phase: Phase::Working,
        end: Ok(0),
        away: None,
    };
    let done = LocalSet::new().run_until(worker.work(attendance)).await;
    if !leaves {
        kill_everything(); // what hid from the end of its program
    }
    let _ = context.client.close(FAREWELL).await;
    done
}

/// The phase of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    /// No more messages; the programs finish.
    Finishing,
    /// The programs are asked to end.
    Ending,
    /// They were killed, and are not waited for after this.
    Killed(Instant),
}

struct Worker {
    queue: Queue<Vec<u8>>,
    shop: Rc<Shared>,
    signals: Signals,
    phase: Phase,
    /// How the command ends.
    end: Result<u8, Failure>,
    /// While nothing can be received: when it is tried again.
    away: Option<Instant>,
}

impl Worker {
    async fn work(mut self, mut attendance: Attendance) -> Result<u8, Failure> {
        let shop = Rc::clone(&self.shop);
        let most = usize::from(shop.run.concurrency);
        let mut working: JoinSet<Result<(), Failure>> = JoinSet::new();
        let mut attending = std::pin::pin!(shop.children.attend(&mut attendance));
        let mut receiving: Option<Receiving> = None;
        loop {
            if self.phase != Phase::Working && working.is_empty() {
                return self.end;
            }
            let wanted = self.phase == Phase::Working && working.len() < most;
            // A message may come, or come back, while programs run.
            let drained = shop.run.drain && working.is_empty();
            // The end of a program interrupts no request: what was received for it would have to go back.
            receiving = receiving.take().filter(|current| wanted && current.drained == drained);
            if wanted && receiving.is_none() {
                let next = Box::pin(receive(self.queue.clone(), drained, self.away));
                receiving = Some(Receiving { drained, next });
            }
            tokio::select! {
                biased;
                error = &mut attending => return Err(Failure::system(&error)),
                () = over(self.phase) => return self.end,
                heard = self.signals.next() => self.obey(heard),
                Some(handled) = working.join_next(), if !working.is_empty() => match handled {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) => self.fail(failure),
                    // What it ran was killed when it panicked.
                    Err(_) => self.fail(Failure::new(exit::SOFTWARE, "")),
                },
                Some(received) = async { Some(receiving.as_mut()?.next.as_mut().await) } => {
                    receiving = None;
                    if received.is_ok() && self.away.take().is_some() {
                        shop.printer.note("messages can be received again");
                    }
                    match received {
                        Ok(Some(delivery)) => drop(working.spawn_local(handle(Rc::clone(&shop), delivery))),
                        Ok(None) => return self.end,
                        Err(error) if error.is_transient() => self.outage(&error),
                        Err(error) => self.fail(error.into()),
                    }
                }
            }
        }
    }

    /// The programs finish, and then the command ends with this.
    fn fail(&mut self, failure: Failure) {
        if self.phase == Phase::Working {
            self.phase = Phase::Finishing;
        }
        if self.end.is_ok() {
            self.end = Err(failure);
        }
    }

    fn obey(&mut self, heard: Heard) {
        let tell = |order| drop(self.shop.orders.send(order)); // no program may run
        match heard {
            Heard::End(signal) => {
                let (next, said) = match self.phase {
                    Phase::Working => (Phase::Finishing, "receiving no more messages; the programs finish"),
                    Phase::Finishing => (Phase::Ending, "sending TERM to the programs"),
                    Phase::Ending | Phase::Killed(_) => {
                        (Phase::Killed(Instant::now() + AFTER_KILL), "sending KILL to the programs")
                    }
                };
                self.phase = next;
                self.shop.printer.note(&format!("{}: {said}", signal_name(signal.as_raw())));
                match next {
                    Phase::Ending => tell(Order::Heard(Heard::End(Signal::TERM))),
                    Phase::Killed(_) => tell(Order::Kill),
                    Phase::Working | Phase::Finishing => {}
                }
            }
            // A message whose lease ends meanwhile is not worked on by two programs: each looks at its lease before it continues.
            Heard::Stop if has_job_control() => {
                self.shop
                    .printer
                    .note("stopped, with the programs; a program whose lease ends meanwhile is then killed");
                self.shop.children.stop_all_and_this();
                tell(Order::Resume);
            }
            Heard::Stop => {}
            Heard::Other(signal) if signal == Signal::CONT => {}
            Heard::Other(_) => tell(Order::Heard(heard)),
        }
    }

    fn outage(&mut self, error: &tenure::Error) {
        if self.away.replace(Instant::now() + AFTER_FAILURE).is_none() {
            self.shop.printer.warn(&format!("no message can be received at the moment: {error:#}"));
        }
    }
}

async fn over(phase: Phase) {
    match phase {
        Phase::Killed(until) => sleep_until(until).await,
        Phase::Working | Phase::Finishing | Phase::Ending => std::future::pending().await,
    }
}

type Received = tenure::Result<Option<Delivery<Vec<u8>>>>;

/// A request for the next message.
struct Receiving {
    drained: bool,
    next: Pin<Box<dyn Future<Output = Received>>>,
}

/// The next message; `None` when the queue is to be drained and has none. Safe to drop.
async fn receive(queue: Queue<Vec<u8>>, drained: bool, not_before: Option<Instant>) -> Received {
    if let Some(not_before) = not_before {
        sleep_until(not_before).await;
    }
    if drained {
        return queue.try_receive().await;
    }
    loop {
        // One that has begun waits through an outage: a new one fails, and the outage is reported.
        let received = queue.receive_within(AGAIN).await;
        if !matches!(received, Ok(None)) {
            return received;
        }
    }
}

/// What becomes of a message.
enum Verdict {
    Done,
    Retry(Duration),
    Dead,
    Back,
}

/// # Errors
///
/// What ends the command: the program cannot be run, or a result cannot be written.
async fn handle(shop: Rc<Shared>, delivery: Delivery<Vec<u8>>) -> Result<(), Failure> {
    let (id, attempt) = (id::show(delivery.id()), delivery.attempt());
    let message_hex = delivery.id().as_name().and_then(name::digits);
    let ended = match run_program(&shop, &delivery).await {
        Ok(ended) => ended,
        Err(failure) => {
            let _ = delivery.give_back().await; // that costs the message no attempt
            return Err(failure);
        }
    };
    let text = ended.describe();
    if ended.report.lost {
        shop.printer.warn(&format!("message {id}, attempt {attempt}: the lease was lost; {text}"));
        return report(&shop, &ended, MessageResult { message_hex, ..MessageResult::of(&id, attempt, "lost") }).await;
    }
    let verdict = verdict(&shop, &ended, attempt);
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
            shop.printer.warn(&format!("message {id}, attempt {attempt}: its settlement is unknown: {error:#}"));
            "unknown"
        }
    };
    match (word, verdict) {
        ("done", _) => {}
        ("retry", Verdict::Retry(wait)) => {
            shop.printer.note(&format!("message {id}, attempt {attempt}: {text}; again in {}", show(wait)));
        }
        ("dead", _) => shop.printer.warn(&format!("message {id}, attempt {attempt}: {text}; it is a dead letter now")),
        _ => shop.printer.note(&format!("message {id}, attempt {attempt}: {text} ({word})")),
    }
    report(&shop, &ended, MessageResult { message_hex, ..MessageResult::of(&id, attempt, word) }).await
}

fn verdict(shop: &Shared, ended: &Ended, attempt: u32) -> Verdict {
    match ended.report.child {
        ChildEnd::Exited(0) => Verdict::Done,
        ChildEnd::Exited(code) if code == i32::from(exit::DATA) => Verdict::Dead,
        _ if ended.report.asked => Verdict::Back,
        _ => {
            let policy = RetryPolicy::exponential(shop.run.retry, shop.run.retry_most);
            Verdict::Retry(policy.wait(attempt, fastrand::f64()))
        }
    }
}

#[derive(Debug, serde::Serialize)]
struct MessageResult<'a> {
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_hex: Option<String>,
    attempt: u32,
    outcome: &'static str,
    exit: Option<i32>,
    signal: Option<i32>,
}

impl<'a> MessageResult<'a> {
    fn of(message: &'a str, attempt: u32, outcome: &'static str) -> Self {
        Self { message, message_hex: None, attempt, outcome, exit: None, signal: None }
    }
}

async fn report(shop: &Shared, ended: &Ended, mut result: MessageResult<'_>) -> Result<(), Failure> {
    (result.exit, result.signal) = match ended.report.child {
        ChildEnd::Exited(code) => (Some(code), None),
        ChildEnd::Signaled(signal) => (None, Some(signal)),
    };
    shop.results.line(&result).await
}
