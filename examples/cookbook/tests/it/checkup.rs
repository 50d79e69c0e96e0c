//! A program that starts looks at its servers.

use std::sync::atomic::{AtomicU32, Ordering};

use cookbook_example::checkup::check_up;
use tenure::Client;
use tenure::memory::MemoryDriver;

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_well_is_not_talked_of_and_one_that_is_away_is_an_error()
 {
    let driver = MemoryDriver::new();
    let (client, reported) = (Client::new(driver.clone()), AtomicU32::new(0));
    let log = |_: &_| {
        reported.fetch_add(1, Ordering::Relaxed);
    };
    assert_eq!(check_up(&client, log).await, Ok(()));
    driver.faults().outage();
    assert!(check_up(&client, log).await.is_err());
    assert_eq!(reported.load(Ordering::Relaxed), 0);
}
