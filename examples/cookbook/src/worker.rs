//! A worker that holds a lock for each message.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tenure::queue::{Job, MessageId, Queue, Worker};
use tenure::{FenceGate, FencingToken, Result, StaleFence};

/// A message.
#[derive(Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// The account.
    pub account: String,
    /// The amount.
    pub amount: i64,
}

/// The accounts. In a database: the statements of the payment's recipe, and a
/// table of the messages that were booked.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<HashMap<String, Account>>>);

#[derive(Debug, Default)]
struct Account {
    gate: FenceGate,
    balance: i64,
    booked: HashSet<MessageId>,
}

impl Ledger {
    fn with<T>(&self, name: &str, step: impl FnOnce(&mut Account) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        step(all.entry(name.to_owned()).or_default())
    }

    /// Claims an account for a holder of its lock, and reads it.
    pub fn claim(
        &self,
        account: &str,
        fence: FencingToken,
    ) -> std::result::Result<i64, StaleFence> {
        self.with(account, |account| {
            account.gate.admit(fence).map(|()| account.balance)
        })
    }

    /// Writes a balance, once for each message.
    pub fn book(
        &self,
        account: &str,
        fence: FencingToken,
        message: &MessageId,
        balance: i64,
    ) -> std::result::Result<(), StaleFence> {
        self.with(account, |account| {
            account.gate.admit(fence)?;
            if account.booked.insert(message.clone()) {
                account.balance = balance;
            }
            Ok(())
        })
    }
}

/// Books transfers, those of one account one at a time, also when other code
/// takes that lock. `rate` is the slow part of the work.
pub fn transfers<F>(
    queue: &Queue<Transfer>,
    ledger: Ledger,
    rate: impl Fn(u32) -> F + Clone + Send + Sync + 'static,
) -> Result<Worker>
where
    F: Future<Output = i64> + Send + 'static,
{
    let worker = queue
        .worker()
        .concurrency(8)
        .lock_by(|transfer| Some(format!("account/{}", transfer.account)));
    worker.start(move |job: Job<Transfer>| {
        let (ledger, rate) = (ledger.clone(), rate.clone());
        async move {
            let fence = job.lock_fence.expect("each message has a lock");
            let balance = ledger.claim(&job.value.account, fence)?;
            // If this process is paused here, `book` refuses the fence, and the
            // message is tried again.
            let amount = job.value.amount * rate(job.attempt).await;
            ledger.book(&job.value.account, fence, &job.id, balance + amount)
        }
    })
}
