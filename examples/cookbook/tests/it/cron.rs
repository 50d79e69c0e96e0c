//! An instance does the work and is cut off before it can say so.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cookbook_example::cron::nightly;
use tenure::Client;
use tenure::memory::MemoryDriver;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_cut_off_after_its_work_leaves_one_set_of_invoices()
{
    let driver = MemoryDriver::new();
    let (calls, invoices) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(BTreeSet::new())),
    );
    let mut instances = Vec::new();
    for number in 0..3 {
        let link = driver.another_client();
        let client = Client::new(link.clone());
        let (calls, invoices) = (Arc::clone(&calls), Arc::clone(&invoices));
        let write = move |occurrence| {
            invoices.lock().unwrap().insert(occurrence);
            let mut calls = calls.lock().unwrap();
            if calls.is_empty() {
                link.faults().outage(); // the worst place: the work is done, and nobody knows
            }
            calls.push((number, occurrence));
            async {}
        };
        let worker = nightly(&client, write).await.unwrap();
        instances.push((client, worker));
    }
    while calls.lock().unwrap().len() < 2 {
        sleep(Duration::from_secs(60)).await;
    }
    sleep(Duration::from_secs(3600)).await;
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.len(), 2, "delivered again, and then no more: {calls:?}");
    assert!(
        calls[0].0 != calls[1].0 && calls[0].1 == calls[1].1,
        "by another instance: {calls:?}"
    );
    assert_eq!(invoices.lock().unwrap().len(), 1);
}
