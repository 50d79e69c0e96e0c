//! Semaphores and read-write locks.

use tenure_core::Client;
use tenure_memory::MemoryDriver;

#[tokio::test(start_paused = true)]
async fn an_upgrade_can_wait_in_a_task_of_its_own() {
    let client = Client::new(MemoryDriver::new());
    let lock = client.rw_lock("spawned");
    let (reader, upgradable) = (lock.read().await.unwrap(), lock.upgradable().await.unwrap());
    let upgrade = tokio::spawn(upgradable.upgrade());
    reader.release().await.unwrap();
    let writer = upgrade.await.unwrap().unwrap();
    assert!(writer.is_held());
}
