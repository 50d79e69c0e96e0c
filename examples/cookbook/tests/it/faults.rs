//! Faults on demand, under a clock that does not wait.

use std::time::Duration;

use tenure::memory::{MemoryDriver, Operation};
use tenure::{Client, ErrorKind, Result};
use tokio::time::sleep;

/// The code under test: it takes a client, and knows no backend.
async fn report(client: &Client) -> Result<&'static str> {
    let Some(guard) = client.lock("report").try_acquire().await? else {
        return Ok("another client writes it");
    };
    // Work of ten minutes.
    guard.run(sleep(Duration::from_secs(600))).await?;
    guard.release().await?;
    Ok("written")
}

// The clock is paused: no test waits for ten minutes.
#[tokio::test(start_paused = true)]
async fn the_backend_goes_away_in_the_middle() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    assert_eq!(report(&client).await.unwrap(), "written");

    let cut = async {
        sleep(Duration::from_secs(60)).await;
        driver.faults().outage();
    };
    let (report, ()) = tokio::join!(report(&client), cut);
    // The work was dropped when its lease ended.
    assert_eq!(report.unwrap_err().kind(), ErrorKind::Lost);
    driver.faults().heal();
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_lost_and_nothing_stays_behind() {
    let driver = MemoryDriver::new();
    let (client, other) =
        (Client::new(driver.clone()), Client::new(driver.another_client()));
    // The lock is granted, and the reply is lost.
    driver.faults().lose_reply_next(Operation::Acquire);
    let unknown = report(&client).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Indeterminate);
    // Waits until everything is released.
    client.close(Duration::from_secs(5)).await.unwrap();
    assert_eq!(report(&other).await.unwrap(), "written");
}
