//! The backend goes away in the middle of the work.

use std::cell::OnceCell;
use std::time::Duration;

use cookbook_example::lease::rebuild;
use tenure::memory::MemoryDriver;
use tenure::{Client, ErrorKind, FenceGate};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_before_the_next_holder_begins_and_its_late_write_is_refused()
 {
    let driver = MemoryDriver::new();
    let (anna, bert) =
        (Client::new(driver.clone()), Client::new(driver.another_client()));
    let (gate, start) = (FenceGate::new(), Instant::now());

    let cut = async {
        sleep(Duration::from_secs(60)).await;
        driver.faults().outage();
    };
    let fence = OnceCell::new();
    let work = |of_anna| {
        fence.set(of_anna).unwrap();
        sleep(Duration::from_secs(3600))
    };
    let (reported, ()) = tokio::join!(rebuild(&anna, work), cut);
    assert_eq!(reported.unwrap_err().kind(), ErrorKind::Lost);
    assert!(
        start.elapsed() < Duration::from_secs(90),
        "within a ttl of the cut"
    );

    rebuild(&bert, async |fence| gate.admit(fence).unwrap()).await.unwrap();
    assert!(
        gate.admit(*fence.get().unwrap()).is_err(),
        "Anna was paused just before a write, and makes it now"
    );
}
