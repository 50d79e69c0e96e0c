//! A process that forks while it uses the blocking API. The only test of its program: a fork copies one thread of many.

use std::time::{Duration, Instant};

use fork::Fork;
use tenure::ErrorKind;
use tenure::blocking::{self, Client, Delivery, LockGuard, Queue};

const URL: &str = "memory:forked";

/// What the child saw, in words.
fn child(client: &Client, guard: &LockGuard, delivery: Delivery<String>) -> String {
    if guard.is_held() || !guard.remaining().is_zero() || !delivery.is_lost() {
        return String::from("what the parent holds counts as held");
    }
    match guard.check() {
        Err(error) if error.is_lost() => {}
        other => return format!("a check: {other:?}"),
    }
    let asked = Instant::now();
    let calls = [
        client.lock("b").acquire_within(Duration::from_secs(60)).map(drop),
        client.ping(),
        delivery.ack().map(drop),
        blocking::connect(URL).map(drop),
        client.close(Duration::from_secs(60)),
    ];
    for call in calls {
        match call {
            Err(error) if error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("forked") => {}
            other => return format!("a call: {other:?}"),
        }
    }
    if asked.elapsed() > Duration::from_secs(20) {
        return format!("the calls took {:?}", asked.elapsed());
    }
    String::from("as it should be")
}

#[test]
fn in_a_forked_child_every_call_fails_at_once_and_nothing_is_held() {
    let said = std::env::temp_dir().join(format!("tenure-forked-{}", std::process::id()));
    let client = blocking::connect(URL).unwrap();
    let guard = client.lock("a").acquire().unwrap();
    let queue: Queue<String> = client.queue("jobs").unwrap();
    queue.push(&String::from("x")).unwrap();
    let delivery = queue.receive().unwrap();
    let id = match fork::fork().unwrap() {
        Fork::Child => {
            std::fs::write(&said, child(&client, &guard, delivery)).unwrap();
            std::process::exit(0);
        }
        Fork::Parent(id) => id,
    };
    let status = fork::waitpid(id).unwrap();
    let reported = std::fs::read_to_string(&said).unwrap_or_default();
    let _ = std::fs::remove_file(&said);
    assert_eq!((status, reported.as_str()), (0, "as it should be"));
    assert!(guard.is_held() && !delivery.is_lost());
    guard.release().unwrap();
    delivery.ack().unwrap();
    client.close(Duration::from_secs(20)).unwrap();
}
