//! Nothing is in the environment: the defaults of the program hold.

use std::time::Duration;

use cookbook_example::configuration::from_environment;

#[tokio::test(start_paused = true)]
async fn the_programs_own_default_holds_where_the_environment_says_nothing() {
    let client = from_environment().await.unwrap();
    let guard = client.lock("a").acquire().await.unwrap();
    let left = guard.remaining();
    assert!(
        left > Duration::from_secs(9) && left <= Duration::from_secs(10),
        "{left:?}"
    );
    guard.release().await.unwrap();
}
