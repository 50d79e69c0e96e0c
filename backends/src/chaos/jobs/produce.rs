//! A task that pushes.

use std::time::Duration;

use tenure::queue::{Message, Queue};
use tenure_conformance::{BoxError, Rng, worker::monotonic};
use tenure_core::driver::Pushed;
use tokio::sync::watch;

use super::entries::Entry;
use super::plan::{Plan, payload};
use crate::chaos::client::Recorder;
use crate::chaos::event::{Origin, What};

/// Above it, producers wait: the messages that are there when the faults end have to be handled while all clients wait.
const BACKLOG: u64 = 300;
/// How many keys and callers' names there are.
const KEYS: u64 = 6;
const NAMES: u64 = 40;

pub(crate) struct Producer {
    pub(crate) queue: Queue<Vec<u8>>,
    pub(crate) recorder: Recorder,
    pub(crate) calm: watch::Receiver<bool>,
    pub(crate) rng: Rng,
    pub(crate) number: u32,
    pub(crate) op: u64,
}

/// A message that is to be pushed.
struct Draft {
    message: String,
    plan: Plan,
    delay: Duration,
    key: Option<u64>,
    name: Option<u64>,
    window: Duration,
}

impl Producer {
    /// Pushes until the faults have ended.
    pub(crate) async fn run(mut self) -> Result<(), BoxError> {
        while !*self.calm.borrow() {
            self.op += 1;
            if self.op.is_multiple_of(10) {
                self.brake().await;
            }
            if self.rng.below(4) == 0 {
                self.push_many().await?
            } else {
                self.push_one().await?
            }
            tokio::time::sleep(Duration::from_millis(5 + self.rng.below(45))).await;
        }
        self.recorder.note(monotonic(), self.recorder.of(self.number, 0), "-", What::Finished)
    }

    async fn brake(&self) {
        while !*self.calm.borrow() {
            match self.queue.admin().stats().await {
                Ok(stats) if stats.scheduled + stats.ready < BACKLOG => return,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn delay(&mut self) -> Duration {
        let most = if self.rng.below(10) == 0 { 2_000 } else { 200 };
        Duration::from_millis(if self.rng.below(2) == 0 { 0 } else { self.rng.below(most) })
    }

    fn draft(&mut self, index: usize) -> Draft {
        let Origin { process, life, task, op } = self.recorder.of(self.number, self.op);
        Draft {
            message: format!("{process}.{life}.{task}.{op}.{index}"),
            plan: Plan::random(&mut self.rng),
            delay: self.delay(),
            key: None,
            name: None,
            window: Duration::ZERO,
        }
    }

    fn note(&self, message: &str, entry: Entry) -> Result<(), BoxError> {
        self.recorder.note(monotonic(), self.recorder.of(self.number, self.op), message, What::Job(entry))
    }

    fn announce(&self, draft: &Draft) -> Result<(), BoxError> {
        let Draft { plan, delay, key, name, window, ref message } = *draft;
        self.note(message, Entry::Pushing { plan, delay, key, name, window })
    }

    async fn push_one(&mut self) -> Result<(), BoxError> {
        let mut draft = self.draft(0);
        draft.key = (self.rng.below(5) == 0).then(|| self.rng.below(KEYS));
        if self.rng.below(5) == 0 {
            draft.name = Some(self.rng.below(NAMES));
            draft.window = Duration::from_millis(self.rng.below(4) * 400);
        }
        self.announce(&draft)?;
        let mut push = self.queue.push_bytes(payload(&draft.message, draft.plan));
        push = push.delay(draft.delay).max_attempts(draft.plan.attempts());
        if let Some(key) = draft.key {
            push = push.concurrency_key(format!("key-{key}"));
        }
        if let Some(name) = draft.name {
            push = push.id(format!("name-{name}")).dedup_window(draft.window);
        }
        let answer = push.await.map(|pushed| vec![pushed]);
        self.pushed(&[draft], answer)
    }

    /// As many at once as one of a small shop would push, all of one delay, key and plan.
    async fn push_many(&mut self) -> Result<(), BoxError> {
        let first = self.draft(0);
        let key = (self.rng.below(4) == 0).then(|| self.rng.below(KEYS));
        let count = 2 + self.rng.below(11) as usize;
        let drafts: Vec<Draft> =
            (0..count).map(|index| Draft { plan: first.plan, delay: first.delay, key, ..self.draft(index) }).collect();
        drafts.iter().try_for_each(|draft| self.announce(draft))?;
        let payloads: Vec<Vec<u8>> = drafts.iter().map(|draft| payload(&draft.message, draft.plan)).collect();
        let messages = payloads.iter().map(|payload| {
            let message = Message::new(payload).delay(first.delay).max_attempts(first.plan.attempts());
            key.into_iter().fold(message, |message, key| message.concurrency_key(format!("key-{key}")))
        });
        let answer = self.queue.push_many(messages).await.map_err(tenure::Error::from);
        self.pushed(&drafts, answer)
    }

    fn pushed(&self, drafts: &[Draft], answer: tenure::Result<Vec<Pushed>>) -> Result<(), BoxError> {
        let kind = match &answer {
            Ok(_) => String::new(),
            Err(error) => format!("{:?}", error.kind()),
        };
        for (index, draft) in drafts.iter().enumerate() {
            let answer = match answer.as_ref().map(|answers| &answers[index]) {
                Ok(Pushed::Stored(_) | Pushed::Replaced(_)) => "stored".into(),
                Ok(Pushed::Duplicate(_)) => "duplicate".into(),
                Err(_) => kind.clone(),
            };
            self.note(&draft.message, Entry::Pushed { answer })?;
        }
        match answer {
            Ok(_) => Ok(()),
            Err(error) => {
                let by = self.recorder.of(self.number, self.op);
                self.recorder.note(monotonic(), by, "-", crate::chaos::client::failed(&error))
            }
        }
    }
}
