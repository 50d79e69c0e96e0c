//! Queues in a file: over a restart of the machine, with rows that somebody damaged, and with watchers that died.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::Client;
use tenure_core::driver::{
    Backend, DeadCause, Delay, DelayQueue as _, DelayQueueExt as _, Due, Lease, Listed, MessageState, NamedId,
    NewMessage, Next, Payload, Pushed, QueueAdmin as _, ReceiveRequest, Rest, Settle, Settled, Settlement,
};
use tenure_core::queue::{MessageId, QueueName};
use tenure_sqlite::{SqliteConfig, SqliteDriver};

struct Lab {
    folder: TempDir,
    queue: QueueName,
}

impl Lab {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap(), queue: QueueName::new("jobs").unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    async fn open(&self) -> SqliteDriver {
        SqliteDriver::connect_with(SqliteConfig::new(self.file()).unwrap()).await.unwrap()
    }

    /// Returns when the driver's thread has closed the file.
    async fn ended(&self, driver: SqliteDriver) {
        drop(driver);
        let bells = self.folder.path().join("locks.db-bells");
        while std::fs::read_dir(&bells).unwrap().count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn raw(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }

    async fn push(&self, driver: &SqliteDriver, name: &str, delay: Duration) -> MessageId {
        let id = NamedId::new(MessageId::named(name).unwrap(), Delay::new(Duration::from_secs(600)).unwrap());
        let due = Due::After(Delay::new(delay).unwrap());
        let message = NewMessage::new(Payload::new(name.as_bytes()).unwrap()).with_id(Some(id)).with_due(due);
        match driver.push(&self.queue, &[message]).await.unwrap().remove(0) {
            Pushed::Stored(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn request(&self) -> ReceiveRequest {
        let lease = Lease::new(Duration::from_secs(60)).unwrap();
        ReceiveRequest::new(self.queue.clone(), 10, lease)
    }
}

const HOUR: i64 = 3_600_000_000;

/// The clock of the machine begins anew; between its runs messages go by the wall clock.
#[tokio::test]
async fn messages_outlive_a_restart_of_the_machine_and_come_when_they_are_due() {
    let lab = Lab::new();
    let driver = lab.open().await;
    let soon = lab.push(&driver, "soon", Duration::from_secs(1_800)).await;
    let late = lab.push(&driver, "late", Duration::from_secs(7_200)).await;
    let done = lab.push(&driver, "done", Duration::ZERO).await;
    let received = driver.receive(&lab.request()).await.unwrap();
    let settle = Settle::new(received.deliveries[0].receipt, Settlement::Ack);
    assert_eq!(driver.settle(&lab.queue, &[settle]).await.unwrap(), [Settled::Done]);
    // The last run of the machine began ten hours later than this one, and ended an hour ago: seen by its clock, the same
    // instants were ten hours earlier.
    let shift = 10 * HOUR;
    lab.ended(driver).await;
    let db = lab.raw();
    db.execute("UPDATE machine SET boot = 'another', wall_ahead = wall_ahead + ?1", [shift]).unwrap();
    let moved = "UPDATE message SET at = at - ?1, pushed = pushed - ?1";
    db.execute(moved, [shift + HOUR]).unwrap();
    db.execute("UPDATE settled SET until = until - ?1", [shift]).unwrap();
    let next = lab.open().await;
    let info = next.get(&lab.queue, &late).await.unwrap().unwrap();
    let (about, age) = (info.due_in.as_secs(), info.age.as_secs());
    assert!((3_500..=3_600).contains(&about) && (3_600..3_700).contains(&age), "{about} {age}");
    let deliveries = next.receive(&lab.request()).await.unwrap().deliveries;
    assert_eq!(deliveries.iter().map(|delivery| &delivery.id).collect::<Vec<_>>(), [&soon]);
    let again = NamedId::new(done, Delay::ZERO);
    let again = NewMessage::new(Payload::new(*b"").unwrap()).with_id(Some(again));
    let pushed = next.push(&lab.queue, &[again]).await.unwrap();
    assert_eq!(pushed, [Pushed::Duplicate(MessageState::Settled)], "its name is still known");
}

#[tokio::test]
async fn a_message_that_cannot_be_read_dies_and_harms_no_other() {
    for damage in [
        "attempts = 0",
        "cause = 99",
        "doomed = 99",
        "key = zeroblob(1000)",
        "name = zeroblob(1000)",
        "payload = zeroblob(2000000)",
        "window = -1",
        "turn_lock = x'00', turn_token = 'none', turn_fence = 0",
    ] {
        let lab = Lab::new();
        let driver = lab.open().await;
        lab.push(&driver, "damaged", Duration::ZERO).await;
        let whole = lab.push(&driver, "whole", Duration::ZERO).await;
        lab.raw().execute(&format!("UPDATE message SET {damage} WHERE payload = x'64616d61676564'"), []).unwrap();
        let received = driver.receive(&lab.request()).await.unwrap();
        assert_eq!(received.deliveries.iter().map(|one| &one.id).collect::<Vec<_>>(), [&whole], "{damage}");
        assert_eq!(received.healed.dead, 1, "{damage}");
        let letters = driver.dead_list(&lab.queue, None, 10).await.unwrap().letters;
        assert_eq!(letters[0].cause, DeadCause::Damaged, "{damage}");
        assert!(letters[0].reason.as_ref().unwrap().as_str().starts_with("damaged: "), "{letters:?}");
        let purged = driver.dead_purge(&lab.queue, &tenure_core::driver::DeadSelection::Oldest(10)).await.unwrap();
        assert_eq!(purged.removed, 1, "{damage}");
    }
}

/// Ten messages of a MiB each: every answer ends after four, and says that there are more.
#[tokio::test]
async fn an_answer_is_bounded_in_bytes() {
    let lab = Lab::new();
    let driver = lab.open().await;
    let large = NewMessage::new(Payload::new(vec![7; Payload::MAX_LEN]).unwrap());
    for _ in 0..10 {
        driver.push(&lab.queue, std::slice::from_ref(&large)).await.unwrap();
    }
    let (mut pages, mut place) = (Vec::new(), None);
    loop {
        let page = driver.list(&lab.queue, Listed::Waiting, place, 256).await.unwrap();
        pages.push(page.messages.len());
        place = page.next;
        if place.is_none() {
            break;
        }
    }
    let mut received = Vec::new();
    loop {
        let more = driver.receive(&lab.request()).await.unwrap();
        let settles: Vec<_> =
            more.deliveries.iter().map(|one| Settle::new(one.receipt, Settlement::Dead { reason: None })).collect();
        assert!(driver.settle(&lab.queue, &settles).await.unwrap().iter().all(|settled| *settled == Settled::Dead));
        received.push(more.deliveries.len());
        if more.next != Next::Now {
            break;
        }
    }
    let (mut letters, mut after) = (Vec::new(), None);
    loop {
        let page = driver.dead_list(&lab.queue, after, 256).await.unwrap();
        letters.push(page.letters.len());
        after = page.letters.last().map(|letter| letter.place);
        if page.rest == Rest::None {
            break;
        }
    }
    assert_eq!([pages, received, letters], [(); 3].map(|()| vec![4, 4, 2]), "listed, received, dead");
}

/// A watcher whose process died is passed over, and others are woken.
#[tokio::test]
async fn a_push_wakes_those_who_live() {
    let lab = Lab::new();
    let (one, other, dead) = (lab.open().await, lab.open().await, lab.open().await);
    let gone = dead.watch(&lab.queue).await.unwrap();
    Client::new(Backend::from(dead)).close(Duration::from_secs(5)).await.unwrap();
    let mut watch = other.watch(&lab.queue).await.unwrap();
    assert_eq!(other.receive(&lab.request()).await.unwrap().next, Next::Never);
    lab.push(&one, "a", Duration::from_secs(60)).await;
    tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("it was woken");
    let watchers: i64 = lab.raw().query_row("SELECT count(*) FROM watcher", [], |row| row.get(0)).unwrap();
    assert_eq!(watchers, 1, "the dead one is forgotten");
    drop(gone);
}

#[tokio::test]
async fn a_doctor_looks_at_the_file_and_finds_what_is_damaged() {
    use tenure_core::driver::Concern;

    let lab = Lab::new();
    let driver = lab.open().await;
    let client = Client::new(driver.clone());
    client.ping().await.unwrap();
    let checkup = client.doctor().await.unwrap();
    assert_eq!(checkup.concern(), Concern::Note, "{checkup}");
    assert!(checkup.findings().len() >= 6 && checkup.to_string().contains("locks.db"), "{checkup}");
    lab.push(&driver, "a", Duration::ZERO).await;
    // An index that misses what its table has.
    let db = lab.raw();
    db.execute_batch(
        "PRAGMA writable_schema = 1; DELETE FROM sqlite_schema WHERE name = 'waiter_turn'; PRAGMA user_version = 2",
    )
    .unwrap();
    drop(db);
    let checkup = Client::new(lab.open().await).doctor().await.unwrap();
    assert_eq!(checkup.concern(), Concern::Danger, "{checkup}");
}
