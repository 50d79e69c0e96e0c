//! Names of any bytes, and very many waiters.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure_core::driver::{AcquireRequest, Acquisition, DistributedLock as _, Handing, Hold, Queueing, Released, Ttl};
use tenure_core::queue::QueueName;
use tenure_core::{Client, ErrorKind, LockName, OwnerToken};
use tenure_sqlite::{SqliteConfig, SqliteDriver};

async fn driver(path: &Path) -> SqliteDriver {
    SqliteDriver::connect_with(SqliteConfig::new(path).unwrap()).await.unwrap()
}

/// Names that would be something else if they were text, a pattern, or part of a statement.
fn names() -> Vec<Vec<u8>> {
    let texts =
        ["a", "A", "\0", "a\0", "a\0b", " ", "a ", "'", "\"", "x'61'", "61", "%", "_", "?1", "NULL", "é", "e\u{301}"];
    let mut names: Vec<Vec<u8>> = texts.iter().map(|name| name.as_bytes().to_vec()).collect();
    names.extend([vec![0xff], vec![0xc3], vec![0x80; 3], (0..=255).collect(), (0..=255).rev().collect()]);
    names.extend([vec![0; 512], vec![0; 511], vec![0xff; 512], vec![b'a'; 512], vec![b'a'; 511]]);
    names
}

#[tokio::test]
async fn names_of_any_bytes_are_names_of_their_own_for_locks_waiters_and_queues() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("locks.db");
    let (one, other) = (Client::new(driver(&file).await), Client::new(driver(&file).await));
    let mut held = Vec::new();
    for name in names() {
        let guard = one.lock(&name).label("a\0b \u{1f512}").try_acquire().await.unwrap();
        held.push((name, guard.expect("no other name is this one")));
    }
    for (name, guard) in held {
        assert!(other.lock(&name).try_acquire().await.unwrap().is_none(), "{name:?}");
        let seen = other.lock(&name).inspect().await.unwrap().holder.unwrap();
        assert_eq!((seen.fence, seen.label.unwrap().as_str()), (Some(guard.fence()), "a\0b \u{1f512}"), "{name:?}");
        let waiting = tokio::spawn({
            let lock = other.lock(&name);
            async move { lock.acquire().await.map(|guard| guard.fence()) }
        });
        while one.lock(&name).inspect().await.unwrap().waiters == 0 {
            tokio::task::yield_now().await;
        }
        let fence = guard.fence();
        guard.release().await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(4), waiting).await.expect("it was woken").unwrap();
        assert!(next.unwrap() > fence, "{name:?}");
        if name.len() > QueueName::MAX_LEN {
            continue;
        }
        let queue = one.queue_of_bytes(&name).unwrap();
        queue.push(&name).await.unwrap();
        let same = other.queue_of_bytes(&name).unwrap().receive().await.unwrap();
        assert_eq!(same.payload().as_bytes(), name);
        same.ack().await.unwrap();
    }
}

/// Ten thousand wait: the next one is refused, and each release serves the first.
#[tokio::test]
async fn ten_thousand_waiters_are_served_in_order() {
    const WAITERS: usize = 10_000;
    const SERVED: usize = 200;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("locks.db");
    let driver = driver(&file).await;
    let (name, ttl) = (LockName::new("a").unwrap(), Ttl::new(Duration::from_secs(600)).unwrap());
    let join = Queueing::Join { presence: Duration::from_secs(600), accepts: Handing::Direct };
    let request = |token| AcquireRequest::new(name.clone(), token, ttl).with_queue(join);
    let hold = |token| Hold::new(name.clone(), token);
    let tokens: Vec<OwnerToken> = std::iter::repeat_with(OwnerToken::random).take(1 + WAITERS).collect();
    let Acquisition::Granted(first) = driver.acquire(&request(tokens[0])).await.unwrap() else { panic!("it is free") };
    let position = async |token| match driver.acquire(&request(token)).await.unwrap() {
        Acquisition::Busy(busy) => busy.position.unwrap(),
        granted => panic!("{granted:?}"),
    };
    // The first and the last by their own requests, the others as they would have written them.
    assert_eq!(position(tokens[1]).await, 0);
    let db = rusqlite::Connection::open(&file).unwrap();
    let others = "INSERT INTO waiter (name, token, client, present, ttl, fences, direct)
      SELECT name, ?1, client, present, ttl, fences, direct FROM waiter WHERE place = 1";
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    for token in &tokens[2..WAITERS] {
        db.execute(others, [token.expose().as_str()]).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
    for _ in 0..2 {
        assert_eq!(position(tokens[WAITERS]).await, 9_999, "asking again keeps the place");
    }
    let error = driver.acquire(&request(OwnerToken::random())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error:#}");
    let (start, mut fence) = (Instant::now(), first.fence);
    for pair in tokens.windows(2).take(SERVED) {
        assert_eq!(driver.release(&hold(pair[0])).await.unwrap(), Released::Released);
        match driver.acquire(&request(pair[1])).await.unwrap() {
            Acquisition::Granted(grant) => assert!(grant.fence > std::mem::replace(&mut fence, grant.fence)),
            busy => panic!("another one was served: {busy:?}"),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{SERVED} hand-overs took {:?}", start.elapsed());
    let waiters = driver.inspect(&name).await.unwrap().waiters;
    assert_eq!(waiters, u32::try_from(WAITERS - SERVED).unwrap());
}
