//! etcd: the writes that any lock needs, and etcd's own lock API.

use etcd_client::{Client, LockOptions};

use super::locks::Lane;
use crate::job::{Job, Outcome};

/// Longer than any measurement.
const LEASE_SECONDS: i64 = 600;

async fn connect(job: &Job) -> Outcome<Client> {
    Ok(Client::connect([format!("127.0.0.1:{}", job.ports[0])], None).await?)
}

/// The floor: a key is written and deleted. Excludes no client.
pub(super) struct PutDel {
    client: Client,
    key: String,
}

impl Lane for PutDel {
    type Held = ();

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let client = connect(job).await?;
        Ok(names.iter().map(|name| Self { client: client.clone(), key: name.clone() }).collect())
    }

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
pub(super) struct LockApi {
    client: Client,
    name: String,
    lease: i64,
}

impl Lane for LockApi {
    type Held = Vec<u8>;

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let (mut client, mut lanes) = (connect(job).await?, Vec::new());
        for name in names {
            let lease = client.lease_grant(LEASE_SECONDS, None).await?.id();
            lanes.push(Self { client: client.clone(), name: name.clone(), lease });
        }
        Ok(lanes)
    }

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
