//! A process that forks while it has the file open. The only test of its program: a fork copies one thread of many.

use std::path::Path;
use std::time::Duration;

use fork::Fork;
use tenure_core::{Client, ErrorKind};
use tenure_sqlite::{SqliteConfig, SqliteDriver};
use tokio::runtime::{Builder, Runtime};

const TTL: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn open(file: &Path) -> Client {
    Client::new(SqliteDriver::open(SqliteConfig::new(file).unwrap()).await.unwrap())
}

/// What the child saw, in words.
async fn child(inherited: Client, file: &Path) -> String {
    let refused = match inherited.lock("b").try_acquire().await {
        Err(error) => error,
        Ok(_) => return String::from("the inherited client granted a lock"),
    };
    if refused.kind() != ErrorKind::Misconfigured || !refused.to_string().contains("forked") {
        return format!("the inherited client: {refused:#}");
    }
    // What it cannot undo it reports, and does not wait for longer.
    let closed = tokio::time::timeout(Duration::from_secs(5), inherited.close(Duration::from_millis(100))).await;
    if closed.is_err() {
        return String::from("closing the inherited client takes for ever");
    }
    drop(inherited);
    let own = open(file).await;
    match own.lock("a").try_acquire().await {
        Ok(None) => {}
        other => return format!("the parent's lock: {other:?}"),
    }
    match own.lock("b").acquire().await {
        Ok(guard) => drop(guard.release().await),
        Err(error) => return format!("a client of its own: {error:#}"),
    }
    String::from("as it should be")
}

/// The child is refused, may open the file anew, and takes nothing from its parent.
#[test]
fn a_child_of_the_process_that_opened_the_file_is_refused_and_may_open_it_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (file, said) = (folder.path().join("locks.db"), folder.path().join("said"));
    let parent = runtime();
    let client = parent.block_on(open(&file));
    let guard = parent.block_on(client.lock("a").ttl(TTL).acquire()).unwrap();
    let bells = std::fs::read_dir(folder.path().join("locks.db-bells")).unwrap();
    let bells: Vec<_> = bells.map(|bell| bell.unwrap().path()).collect();
    assert_eq!(bells.len(), 1);
    let id = match fork::fork().unwrap() {
        Fork::Child => {
            let reported = runtime().block_on(child(client, &file));
            std::fs::write(&said, reported).unwrap();
            std::process::exit(0);
        }
        Fork::Parent(id) => id,
    };
    let status = fork::waitpid(id).unwrap();
    let reported = std::fs::read_to_string(&said).unwrap_or_default();
    assert_eq!((status, reported.as_str()), (0, "as it should be"));
    // The parent goes on: its lease, its socket, its locks on the file.
    parent.block_on(guard.extend(TTL)).unwrap();
    assert!(bells[0].exists(), "the child took its socket away");
    let other = parent.block_on(open(&file));
    parent.block_on(async {
        let waiter = tokio::spawn(async move { other.lock("a").acquire().await.map(|guard| guard.fence()) });
        while client.lock("a").inspect().await.unwrap().waiters == 0 {
            tokio::task::yield_now().await;
        }
        let fence = guard.fence();
        guard.release().await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(4), waiter).await.expect("it was woken").unwrap();
        assert!(next.unwrap() > fence);
    });
}
