//! Anna is paused past her lease between her two statements. Real SQL: SQLite.

use std::sync::Mutex;

use cookbook_example::payment::{Paid, TABLE, pay};
use rusqlite::Connection;
use tenure::Client;
use tenure::memory::MemoryDriver;
use tokio::sync::oneshot;

fn books() -> Mutex<Connection> {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(&format!("{TABLE}; INSERT INTO account (id, balance) VALUES ('7', 100)")).unwrap();
    Mutex::new(db)
}

fn balance(db: &Mutex<Connection>) -> i64 {
    db.lock().unwrap().query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_writes_after_the_next_holder_wrote_is_refused() {
    let (driver, db) = (MemoryDriver::new(), books());
    let (anna, bert) = (Client::new(driver.another_client()), Client::new(driver.another_client()));
    let paused = async |_| {
        driver.faults().expire("account/7").unwrap();
        assert_eq!(pay(&bert, &db, "7", async |_| 5).await.unwrap(), Paid::Yes);
        10
    };
    assert_eq!(pay(&anna, &db, "7", paused).await.unwrap(), Paid::Overtaken);
    assert_eq!(balance(&db), 105);
    assert_eq!(pay(&anna, &db, "7", async |_| 10).await.unwrap(), Paid::Yes);
    assert_eq!(balance(&db), 115);
}

/// The order that a check of the write alone lets through: Anna reads, Bert reads, Anna writes, Bert writes.
#[tokio::test(start_paused = true)]
async fn who_writes_after_the_next_holder_read_is_refused() {
    let (driver, db) = (MemoryDriver::new(), books());
    let (anna, bert) = (Client::new(driver.another_client()), Client::new(driver.another_client()));
    let (bert_read, has_bert_read) = oneshot::channel::<()>();
    let (anna_wrote, has_anna_written) = oneshot::channel::<()>();
    let first = async {
        let paused = async |_| {
            driver.faults().expire("account/7").unwrap();
            has_bert_read.await.unwrap();
            10
        };
        let paid = pay(&anna, &db, "7", paused).await.unwrap();
        anna_wrote.send(()).unwrap();
        paid
    };
    let second = async {
        let slow = async |_| {
            bert_read.send(()).unwrap();
            has_anna_written.await.unwrap();
            5
        };
        pay(&bert, &db, "7", slow).await.unwrap()
    };
    assert_eq!(tokio::join!(first, second), (Paid::Overtaken, Paid::Yes));
    assert_eq!(balance(&db), 105, "no update is lost: Anna knows that hers was not made");
}
