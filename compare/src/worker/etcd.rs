//! etcd: ours, the writes that any lock needs, and etcd's own lock API.

use etcd_client::{Client, LockOptions};
use tenure_core::driver::Backend;
use tenure_etcd::EtcdDriver;

use super::ours::{OurLane, client_of};
use super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;

/// Longer than any measurement.
const LEASE_SECONDS: i64 = 600;

client_of!(
    /// One etcd, on the etcd driver.
    Ours,
    ours
);

pub(super) async fn ours(job: &Job) -> Outcome<Backend> {
    Ok(EtcdDriver::connect(&format!("etcd://127.0.0.1:{}", job.ports[0])).await?.into())
}

async fn connect(job: &Job) -> Outcome<Client> {
    Ok(Client::connect([format!("127.0.0.1:{}", job.ports[0])], None).await?)
}

/// The floor: a key is written and deleted. Excludes no client.
pub(super) struct PutDel(Client);

impl Subject for PutDel {
    type Lane = PutDelLane;

    async fn open(job: &Job) -> Outcome<Self> {
        connect(job).await.map(Self)
    }

    async fn lane(&self, name: &str) -> Outcome<PutDelLane> {
        Ok(PutDelLane { client: self.0.clone(), key: name.to_owned() })
    }
}

pub(super) struct PutDelLane {
    client: Client,
    key: String,
}

impl Lane for PutDelLane {
    type Held = ();

    async fn take(&mut self) -> Outcome<((), u64)> {
        self.client.put(self.key.as_str(), "v", None).await?;
        Ok(((), 0))
    }

    async fn give(&mut self, (): ()) -> Outcome {
        self.client.delete(self.key.as_str(), None).await?;
        Ok(())
    }
}

/// etcd's lock API. Each lane has a lease of its own: on a shared one it does not exclude.
pub(super) struct LockApi(Client);

impl Subject for LockApi {
    type Lane = LockApiLane;

    async fn open(job: &Job) -> Outcome<Self> {
        connect(job).await.map(Self)
    }

    async fn lane(&self, name: &str) -> Outcome<LockApiLane> {
        let mut client = self.0.clone();
        let lease = client.lease_grant(LEASE_SECONDS, None).await?.id();
        Ok(LockApiLane { client, name: name.to_owned(), lease })
    }
}

pub(super) struct LockApiLane {
    client: Client,
    name: String,
    lease: i64,
}

impl Lane for LockApiLane {
    type Held = Vec<u8>;

    async fn take(&mut self) -> Outcome<(Vec<u8>, u64)> {
        let options = LockOptions::new().with_lease(self.lease);
        let taken = self.client.lock(self.name.as_str(), Some(options)).await?;
        Ok((taken.key().to_vec(), 0))
    }

    async fn give(&mut self, key: Vec<u8>) -> Outcome {
        self.client.unlock(key).await?;
        Ok(())
    }
}
