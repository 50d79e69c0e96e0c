//! The leader is cut off, and continues to work as far as it can.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cookbook_example::leader::{follow, lead};
use tenure::memory::MemoryDriver;
use tenure::{Client, FenceGate, FencingToken};
use tokio::time::{Instant, sleep};

/// When the work of a term began and was dropped.
#[derive(Clone, Debug)]
struct Term {
    who: usize,
    fence: FencingToken,
    from: Instant,
    until: Instant,
}

struct Noting(Arc<Mutex<Vec<Term>>>, Term);

impl Drop for Noting {
    fn drop(&mut self) {
        self.1.until = Instant::now();
        self.0.lock().unwrap().push(self.1.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_the_next_begins_and_its_late_write_is_refused()
 {
    let (driver, terms, gate) = (
        MemoryDriver::new(),
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(FenceGate::new()),
    );
    let mut links = Vec::new();
    for who in 0..2 {
        let (link, terms, gate) =
            (driver.another_client(), Arc::clone(&terms), Arc::clone(&gate));
        let client = Client::new(link.clone());
        links.push(link);
        tokio::spawn(async move {
            lead(&client, &format!("node-{who}"), |fence| {
                let now = Instant::now();
                let noting = Noting(
                    Arc::clone(&terms),
                    Term { who, fence, from: now, until: now },
                );
                let gate = Arc::clone(&gate);
                async move {
                    let _noting = noting;
                    loop {
                        gate.admit(fence).expect(
                            "the work stops before somebody else leads",
                        );
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            })
            .await
        });
    }
    let reported = Arc::new(Mutex::new(Vec::new()));
    let watching = {
        let (client, reported) =
            (Client::new(driver.another_client()), Arc::clone(&reported));
        tokio::spawn(async move {
            follow(&client, |address| reported.lock().unwrap().push(address))
                .await
        })
    };
    let other = |who: usize| 1 - who;
    let first = loop {
        sleep(Duration::from_secs(1)).await;
        if let Some(fence) = gate.seen() {
            break fence;
        }
    };
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        gate.seen(),
        Some(first),
        "a term lasts as long as nothing happens"
    );
    links.iter().for_each(|link| link.faults().outage()); // who leads is not known here: first both, then the one that stands by
    sleep(Duration::from_secs(20)).await;
    let lost = terms.lock().unwrap()[0].clone();
    links[other(lost.who)].faults().heal();
    sleep(Duration::from_secs(20)).await;
    let second = gate.seen().unwrap();
    assert!(second > first, "the other one leads");
    // The worst place: the first leader was paused just before a write, and makes it now.
    assert!(gate.admit(first).is_err());
    links[lost.who].faults().heal();
    links[other(lost.who)].faults().outage();
    sleep(Duration::from_secs(40)).await;
    let terms = terms.lock().unwrap().clone();
    assert_eq!(
        terms.iter().map(|term| term.who).collect::<Vec<_>>(),
        [lost.who, other(lost.who)]
    );
    assert!(
        terms[0].until <= terms[1].from && terms[0].fence < terms[1].fence,
        "{terms:?}"
    );
    assert!(gate.seen().unwrap() > second, "and the first one again");
    assert!(!watching.is_finished());
    let reported: Vec<String> =
        reported.lock().unwrap().iter().flatten().cloned().collect();
    let [here, there] =
        [lost.who, other(lost.who)].map(|who| format!("node-{who}"));
    assert_eq!(
        reported,
        [here.clone(), there, here],
        "whoever asks is sent to each leader in turn"
    );
}
