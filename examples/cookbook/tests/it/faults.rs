//! Faults on demand, under a clock that does not wait.

use std::time::Duration;

use tenure::memory::{MemoryDriver, Operation};
use tenure::{Client, ErrorKind, Result};
use tokio::time::sleep;

/// The code under test: it is given a client, and knows no backend.
async fn report(client: &Client) -> Result<&'static str> {
    let Some(guard) = client.lock("report").try_acquire().await? else { return Ok("somebody is at it") };
    guard.run(sleep(Duration::from_secs(600))).await?; // work of ten minutes
    guard.release().await?;
    Ok("written")
}

#[tokio::test(start_paused = true)] // no test waits for ten minutes
async fn the_backend_goes_away_in_the_middle() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    assert_eq!(report(&client).await.unwrap(), "written");

    let cut = async {
        sleep(Duration::from_secs(60)).await;
        driver.faults().outage();
    };
    let (told, ()) = tokio::join!(report(&client), cut);
    assert_eq!(told.unwrap_err().kind(), ErrorKind::Lost, "the work was dropped when its lease ended");
    driver.faults().heal();
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_lost_and_nothing_stays_behind() {
    let driver = MemoryDriver::new();
    let (client, other) = (Client::new(driver.clone()), Client::new(driver.another_client()));
    driver.faults().lose_reply_next(Operation::Acquire); // granted, and nobody was told
    assert_eq!(report(&client).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    client.close(Duration::from_secs(5)).await.unwrap(); // waits until all is given back
    assert_eq!(report(&other).await.unwrap(), "written");
}
