//! The backend goes away and comes back.

use std::time::Duration;

use cookbook_example::health::{Health, health};
use tenure::Client;
use tenure::memory::MemoryDriver;

#[tokio::test(start_paused = true)]
async fn an_outage_is_distinguished_from_what_somebody_has_to_mend() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    assert_eq!(health(&client).await, Health::Good);
    driver.faults().silence(); // the worst place: connected, and nobody answers
    assert_eq!(health(&client).await, Health::Waiting);
    driver.faults().heal();
    assert_eq!(health(&client).await, Health::Good);
    client.close(Duration::from_secs(1)).await.unwrap();
    assert_eq!(health(&client).await, Health::Broken);
}
