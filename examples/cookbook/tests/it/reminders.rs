//! Reminders are stored once, sent when they are due, and sent again after a failure.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cookbook_example::reminders::{remind, serve};
use tenure::Client;
use tenure::memory::MemoryDriver;
use tenure::queue::Queue;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_reminder_is_sent_once_when_it_is_due_although_it_was_pushed_twice_and_failed_once()
 {
    let client = Client::new(MemoryDriver::new());
    let queue: Queue<String> = client.queue("reminders").unwrap();
    let (start, sent, calls) = (
        Instant::now(),
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(AtomicU32::new(0)),
    );
    let worker = serve(&client, {
        let (sent, calls) = (Arc::clone(&sent), Arc::clone(&calls));
        move |text| {
            let failed = calls.fetch_add(1, Ordering::Relaxed) == 0;
            if !failed {
                sent.lock().unwrap().push((text, start.elapsed()));
            }
            std::future::ready(if failed {
                Err("the gateway is away".to_owned())
            } else {
                Ok(())
            })
        }
    })
    .unwrap();
    remind(&queue, 7, "pay the bill").await.unwrap();
    remind(&queue, 7, "pay the bill").await.unwrap();
    loop {
        let stats = queue.admin().stats().await.unwrap();
        if stats.scheduled + stats.ready + stats.in_flight == 0 {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    worker.shutdown(Duration::from_secs(1)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "once more after the failure");
    let sent = sent.lock().unwrap().clone();
    let [(text, after)] = &sent[..] else { panic!("sent once: {sent:?}") };
    assert!(
        text == "pay the bill" && *after >= Duration::from_secs(3600),
        "{after:?}"
    );
}
