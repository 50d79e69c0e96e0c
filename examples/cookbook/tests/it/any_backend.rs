//! Tests that run on any backend.

use tenure::{Client, OwnerId};

/// As many clients of one backend as there would be processes, and the suffix
/// of all names in this test. In memory, unless `TENURE_URL` names a server:
///
/// ```sh
/// export TENURE_URL=postgres://localhost/test?migrate=true
/// cargo test --features tenure/postgres
/// ```
async fn clients<const N: usize>() -> ([Client; N], OwnerId) {
    // Random, so that tests and runs that share a server have different names.
    let run = OwnerId::new();
    let url = std::env::var("TENURE_URL");
    let url = url.unwrap_or_else(|_| format!("memory:{run}"));
    let mut clients = Vec::new();
    for _ in 0..N {
        clients.push(tenure::connect(&url).await.expect("the backend answers"));
    }
    (clients.try_into().expect("N clients"), run)
}

#[tokio::test]
async fn of_two_processes_one_makes_the_report() {
    let ([anna, bert], run) = clients().await;
    let report = format!("report-{run}");
    let (anna, bert) = (anna.lock(&report), bert.lock(&report));
    let guard = anna.try_acquire().await.unwrap().expect("the lock is free");
    // They share one store.
    assert!(bert.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(bert.try_acquire().await.unwrap().is_some());
}
