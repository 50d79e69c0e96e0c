//! The lock of a message ends between its reading and its writing.

use std::time::Duration;

use cookbook_example::worker::{Ledger, Transfer, transfers};
use tenure::memory::MemoryDriver;
use tenure::queue::{MessageId, Queue};
use tenure::{Client, FencingToken};
use tokio::time::sleep;

/// Other code that takes the same lock.
async fn deposit(
    client: &Client,
    ledger: &Ledger,
    amount: i64,
) -> FencingToken {
    let guard = client.lock("account/anna").acquire().await.unwrap();
    let balance = ledger.claim("anna", guard.fence()).unwrap();
    ledger
        .book(
            "anna",
            guard.fence(),
            &MessageId::named("a deposit").unwrap(),
            balance + amount,
        )
        .unwrap();
    guard.fence()
}

#[tokio::test(start_paused = true)]
async fn a_transfer_whose_lock_ended_is_made_again_and_once() {
    let (driver, ledger) = (MemoryDriver::new(), Ledger::default());
    let (client, other) = (
        Client::new(driver.another_client()),
        Client::new(driver.another_client()),
    );
    let queue: Queue<Transfer> = client.queue("transfers").unwrap();
    let books = ledger.clone();
    let paused = move |attempt| {
        let (driver, other, books) =
            (driver.clone(), other.clone(), books.clone());
        async move {
            if attempt == 1 {
                driver.faults().expire("account/anna").unwrap();
                deposit(&other, &books, 5).await;
            }
            1
        }
    };
    let worker = transfers(&queue, ledger.clone(), paused).unwrap();
    queue
        .push(&Transfer { account: String::from("anna"), amount: 10 })
        .await
        .unwrap();
    while worker.stats().handled < 1 {
        sleep(Duration::from_secs(1)).await;
    }
    let last = client.lock("account/anna").acquire().await.unwrap();
    assert_eq!(
        ledger.claim("anna", last.fence()),
        Ok(15),
        "neither the deposit nor the transfer is lost"
    );
}
