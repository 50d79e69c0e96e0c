//! Clients of other languages that lock as the Redis documentation says exclude ours, and are excluded.

use std::process::{Command, Stdio};

use crate::common::{Client, attempt, hold, server, waiter};
use tenure_core::driver::Released;

/// Runs Python (what `TENURE_PYTHON` names, or `python3`) with `redis` imported and a client `r` of the server.
fn python(server: &tenure_testkit::RedisServer, program: &str) -> String {
    let python = std::env::var_os("TENURE_PYTHON").unwrap_or_else(|| "python3".into());
    let script = format!("import redis\nr = redis.Redis(unix_socket_path={:?})\n{program}", server.socket());
    let output = Command::new(&python).arg("-c").arg(script).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {}: {error}", python.display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} needs the package redis (redis-py): {errors}", python.display());
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
#[ignore = "needs redis-py"]
async fn redis_py_and_tenure_exclude_each_other() {
    let server = server();
    let client = Client::of(&server).await;
    let mine = attempt("shared");
    client.grant(&mine).await;
    let take = "print(r.lock('tenure:shared', timeout=30).acquire(blocking=False))";
    assert_eq!(python(&server, take), "False", "ours excludes theirs");
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::Released);
    assert_eq!(python(&server, take), "True", "a released one is free to them");

    let next = waiter("shared");
    let busy = client.busy(&next).await;
    assert_eq!(busy.position, Some(0), "theirs excludes ours");
    assert!(busy.recheck_after.is_some());
    assert_eq!(client.locks.release(&hold(&next)).await.unwrap(), Released::NotHeld);
    let value = server.cli(&["GET", "tenure:shared"]).unwrap().text();
    let theirs = format!(
        "l = r.lock('tenure:shared', timeout=30)\nl.local.token = {value:?}.encode()\nl.extend(5)\nl.release()\nprint('ok')"
    );
    assert_eq!(python(&server, &theirs), "ok", "waiting for theirs left it as it was");
    client.grant(&next).await;
}
