//! The work is done and its process has ended before the timer of the next instance fires.

use std::cell::Cell;
use std::time::Duration;

use cookbook_example::once::once;
use tenure::memory::MemoryDriver;
use tenure::{Client, ErrorKind};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn instances_that_come_late_find_the_lock_taken_though_the_work_is_done()
{
    let (driver, done) = (MemoryDriver::new(), Cell::new(0));
    for hour in 1..=3 {
        for _ in 0..3 {
            let client = Client::new(driver.another_client());
            once(&client, async || done.set(done.get() + 1)).await.unwrap();
            client.close(Duration::from_secs(5)).await.unwrap(); // the worst place: the process is gone, the work was short
            sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(done.get(), hour, "once each hour");
        sleep(Duration::from_secs(3600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_worker_is_notified_and_its_message_is_delivered_again() {
    let driver = MemoryDriver::new();
    let (link, other) =
        (driver.another_client(), Client::new(driver.another_client()));
    let cut_off = async || {
        link.faults().outage();
        sleep(Duration::from_secs(3600)).await;
    };
    let reported = once(&Client::new(link.clone()), cut_off).await.unwrap_err();
    assert_eq!(reported.kind(), ErrorKind::Lost);
    sleep(Duration::from_secs(300)).await;
    assert!(
        once(&other, async || ()).await.unwrap(),
        "no lock stands for ever"
    );
}
