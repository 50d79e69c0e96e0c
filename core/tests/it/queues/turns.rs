//! A call that fails at once lets others have a turn: what mends the connection may have but this one thread.

use std::cell::Cell;
use std::iter::repeat_n;

use tenure_core::{Error, ErrorKind, OwnerId, Result};
use tokio::task::yield_now;

use crate::locks::stage::{Stage, Step, TTL, steps};
use crate::queues::stage::{Mishap, plan, staged};

const CALLS: u32 = 20;

fn failing() -> Stage {
    Stage { acquire: steps(repeat_n(Step::Fail(ErrorKind::Unavailable), CALLS as usize)), ..Stage::default() }
}

/// Makes a call that fails with this kind over and over, and looks whether another task goes on meanwhile.
async fn leaves_turns<T>(kind: ErrorKind, call: impl AsyncFn() -> Result<T>) {
    let turns = Cell::new(0);
    let other = async {
        loop {
            turns.set(turns.get() + 1);
            yield_now().await;
        }
    };
    let calls = async {
        for _ in 0..CALLS {
            assert_eq!(call().await.err().map(|error: Error| error.kind()), Some(kind));
        }
    };
    tokio::select! {
        biased;
        () = calls => {}
        () = other => {}
    }
    assert!(turns.get() >= CALLS, "another task had {} turns during {CALLS} calls", turns.get());
}

#[tokio::test]
async fn attempts_that_fail() {
    let (_, client) = failing().client();
    leaves_turns(ErrorKind::Unavailable, async || client.lock("a").try_acquire().await).await;
    let (_, client) = failing().client();
    leaves_turns(ErrorKind::Unavailable, async || client.reentrant("a", &OwnerId::new()).try_acquire().await).await;
}

#[tokio::test]
async fn attempts_that_the_client_has_no_room_for() {
    let (_, client) = Stage::default().client_with(|builder| builder.max_holds(1));
    let _held = client.lock("a").acquire().await.unwrap();
    leaves_turns(ErrorKind::LimitReached, async || client.lock("b").try_acquire().await).await;
}

#[tokio::test]
async fn extensions_that_fail() {
    let renewals = repeat_n(Step::Fail(ErrorKind::Unavailable), CALLS as usize);
    let (_, client) = Stage { renew: steps(renewals), ..Stage::default() }.client();
    let guard = client.lock("a").acquire().await.unwrap();
    leaves_turns(ErrorKind::Unavailable, async || guard.extend(TTL).await).await;
}

#[tokio::test]
async fn questions_that_fail() {
    let driver = tenure_memory::MemoryDriver::new();
    driver.faults().outage();
    let client = tenure_core::Client::new(driver);
    leaves_turns(ErrorKind::Unavailable, async || client.lock("a").inspect().await).await;
    leaves_turns(ErrorKind::Unavailable, async || client.ping().await).await;
}

#[tokio::test]
async fn calls_of_queues_that_fail() {
    let (stage, memory, _, queue) = staged();
    plan(&stage.pushes, repeat_n(Mishap::Fail(ErrorKind::Unavailable), CALLS as usize));
    leaves_turns(ErrorKind::Unavailable, async || queue.push(&"x".to_owned()).await).await;
    memory.faults().outage();
    leaves_turns(ErrorKind::Unavailable, async || queue.admin().stats().await).await;
    leaves_turns(ErrorKind::Unavailable, async || queue.try_receive().await).await;
}
