//! Anna is paused past her lease while the bank is asked, or her process ends there. Real SQL: SQLite.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use cookbook_example::payment::{ATTEMPTS, Failed, Payment, TABLES, pay};
use rusqlite::Connection;
use tenure::Client;
use tenure::memory::MemoryDriver;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// A bank that charges once for each key. It remembers all calls.
#[derive(Debug, Default)]
pub(crate) struct Bank(Mutex<(Vec<String>, BTreeMap<String, i64>)>);

impl Bank {
    pub(crate) fn charge(&self, payment: &Payment) -> Result<(), Failed> {
        let (calls, charged) = &mut *self.0.lock().unwrap();
        calls.push(payment.id.clone());
        charged.entry(payment.id.clone()).or_insert(payment.amount);
        Ok(())
    }

    pub(crate) fn calls(&self, id: &str) -> usize {
        self.0.lock().unwrap().0.iter().filter(|key| *key == id).count()
    }

    pub(crate) fn charged(&self) -> i64 {
        self.0.lock().unwrap().1.values().sum()
    }
}

pub(crate) fn payment(id: &str, amount: i64) -> Payment {
    Payment { id: id.into(), account: "7".into(), amount }
}

fn books() -> Mutex<Connection> {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(&format!(
        "{TABLES} INSERT INTO account (id, balance) VALUES ('7', 100)"
    ))
    .unwrap();
    Mutex::new(db)
}

/// The balance, and how many payments are booked.
fn state(db: &Mutex<Connection>) -> (i64, i64) {
    let sql = "SELECT balance, (SELECT count(*) FROM payment) FROM account";
    db.lock()
        .unwrap()
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_payment_that_is_overtaken_begins_again_and_charges_once() {
    let (driver, db, bank) = (MemoryDriver::new(), books(), Bank::default());
    let (anna, bert) = (
        Client::new(driver.another_client()),
        Client::new(driver.another_client()),
    );
    let (hers, his) = (payment("hers", 10), payment("his", 5));
    let paused = async |payment: &Payment| {
        bank.charge(payment)?;
        if bank.calls("hers") == 1 {
            driver.faults().expire("account/7")?;
            pay(&bert, &db, &his, async |payment| bank.charge(payment)).await?;
        }
        Ok(())
    };
    pay(&anna, &db, &hers, paused).await.unwrap();
    assert_eq!(
        (bank.calls("hers"), bank.calls("his")),
        (2, 1),
        "she began again, with the same key"
    );
    assert_eq!(bank.charged(), 15, "and was charged once");
    assert_eq!(state(&db), (115, 2));
    pay(&anna, &db, &hers, async |payment| bank.charge(payment)).await.unwrap();
    assert_eq!(
        (bank.calls("hers"), state(&db)),
        (2, (115, 2)),
        "what is booked is not paid again"
    );
}

/// The order that a check of the write alone lets through: Anna reads, Bert reads, Anna writes, Bert writes.
#[tokio::test(start_paused = true)]
async fn who_writes_after_the_next_holder_read_is_refused_and_begins_again() {
    let (driver, db, bank) = (MemoryDriver::new(), books(), Bank::default());
    let (anna, bert) = (
        Client::new(driver.another_client()),
        Client::new(driver.another_client()),
    );
    let bert_read = Notify::new();
    let paused = async |payment: &Payment| {
        bank.charge(payment)?;
        if bank.calls("hers") == 1 {
            driver.faults().expire("account/7")?;
            bert_read.notified().await;
        }
        Ok(())
    };
    let slow = async |payment: &Payment| {
        bank.charge(payment)?;
        bert_read.notify_one();
        while anna.stats().waiters == 0 {
            sleep(Duration::from_millis(1)).await; // until her write was refused, and she waits for the lock
        }
        Ok(())
    };
    let (hers, his) = (payment("hers", 10), payment("his", 5));
    let both = async {
        tokio::join!(
            pay(&anna, &db, &hers, paused),
            pay(&bert, &db, &his, slow)
        )
    };
    let (first, second) = timeout(Duration::from_secs(60), both)
        .await
        .expect("nobody waits for ever");
    first.and(second).unwrap();
    assert_eq!((bank.calls("hers"), bank.charged()), (2, 15));
    assert_eq!(state(&db), (115, 2), "no update is lost");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_between_the_bank_and_the_books_charges_once() {
    let (driver, db, bank) = (MemoryDriver::new(), books(), Bank::default());
    let (anna, hers) = (Client::new(driver), payment("hers", 10));
    let dies = async |payment: &Payment| {
        bank.charge(payment)?;
        std::future::pending().await
    };
    timeout(Duration::from_secs(1), pay(&anna, &db, &hers, dies))
        .await
        .unwrap_err();
    assert_eq!(state(&db), (100, 0));
    pay(&anna, &db, &hers, async |payment| bank.charge(payment)).await.unwrap();
    assert_eq!(
        (bank.calls("hers"), bank.charged(), state(&db)),
        (2, 10, (110, 1))
    );
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_not_there_is_an_error_and_the_bank_is_not_asked() {
    let (db, bank) = (books(), Bank::default());
    let nobodys = Payment { account: "8".into(), ..payment("hers", 10) };
    let failed = pay(
        &Client::new(MemoryDriver::new()),
        &db,
        &nobodys,
        async |payment| bank.charge(payment),
    )
    .await;
    let text = failed.unwrap_err().to_string();
    assert!(
        text.contains("account 8") && text.contains(&ATTEMPTS.to_string()),
        "{text}"
    );
    assert_eq!(bank.charged(), 0);
}
