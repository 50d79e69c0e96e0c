//! The suite's own proving ground: the in-process driver under virtual time.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_conformance::harness::{Data, OpenPush, Residue};
use tenure_conformance::{BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector};
use tenure_core::driver::{
    Backend, Census, Delay, DelayQueue, DistributedLock, Family, NamedId, NewMessage, Payload, Permits, ReentrantLock,
};
use tenure_core::queue::MessageId;
use tenure_core::{FenceFloor, LockName};
use tenure_memory::{MemoryDriver, Wakeups};

pub(crate) struct Memory;

pub(crate) fn maker() -> Arc<dyn HarnessMaker> {
    Arc::new(Memory)
}

fn driver() -> MemoryDriver {
    MemoryDriver::builder()
        .max_waiters(40)
        .max_depth(50)
        .max_dead_letters(30)
        .max_request_bytes(2 * 1024 * 1024)
        .build()
        .expect("the caps are within their limits")
}

#[async_trait]
impl HarnessMaker for Memory {
    fn id(&self) -> &str {
        "memory"
    }

    fn declared(&self) -> Declared {
        let driver = driver();
        Declared::new(DistributedLock::capabilities(&driver))
            .reentrant(ReentrantLock::capabilities(&driver))
            .permits(Permits::capabilities(&driver))
            .queue(DelayQueue::capabilities(&driver))
            .census(Census::capabilities(&driver))
            .faults([FaultKind::ExpireLease, FaultKind::MuteNotifications, FaultKind::PauseServer])
            .faults([FaultKind::CutConnections, FaultKind::CutNotifications, FaultKind::RestartKeepingData])
            .faults([FaultKind::FewConnections, FaultKind::DemoteServer, FaultKind::OpenPush, FaultKind::PassDays])
            .virtual_time()
            .visible_leftovers()
            .fence_floors()
    }

    async fn make(&self, _context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(World { driver: driver(), clients: Vec::new() }))
    }
}

struct World {
    driver: MemoryDriver,
    clients: Vec<MemoryDriver>,
}

#[async_trait]
impl Harness for World {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        let client = self.driver.another_client();
        self.clients.push(client.clone());
        Ok(Backend::from(client))
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        self.driver.raise_fences(floor);
        self.backend().await
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let faults: Vec<_> = self.clients.iter().map(MemoryDriver::faults).collect();
        let each = |act: &dyn Fn(&tenure_memory::Faults)| faults.iter().for_each(act);
        match fault {
            Fault::ExpireLease(name) => drop(self.driver.faults().expire(name.as_bytes())?),
            Fault::MuteNotifications => each(&|link| link.set_wakeups(Wakeups::Lost)),
            Fault::PauseServer => each(&|link| link.silence()),
            Fault::KillServer(Data::Kept) => each(&|link| link.outage()),
            Fault::CutNotifications => {
                each(&|link| link.set_wakeups(Wakeups::Lost));
                each(&|link| link.heal());
            }
            Fault::CutConnections => {
                each(&|link| link.outage());
                each(&|link| link.heal());
            }
            // There are no connections, and nothing is kept of idle names: only broken drivers notice.
            Fault::FewConnections | Fault::PassDays => return Ok(Healer::nothing()),
            // The store that takes over knows of no lease.
            Fault::DemoteServer => {
                for held in self.driver.held(b"", None, 100).await?.locks {
                    self.driver.faults().expire(held.name.as_bytes())?;
                }
                return Ok(Healer::nothing());
            }
            Fault::OpenPush(push) => return Ok(self.open_push(push)),
            other => return Err(format!("{other:?} is not declared").into()),
        }
        Ok(Healer::new(async move {
            faults.iter().for_each(tenure_memory::Faults::heal);
            Ok(())
        }))
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(Look(self.driver.clone())))
    }
}

impl World {
    fn open_push(&self, push: OpenPush) -> Healer {
        let driver = self.driver.clone();
        Healer::new(async move {
            let message = NewMessage::new(Payload::new(b"open".as_slice())?);
            let id = push.id.map(|id| MessageId::named(&id).map(|id| NamedId::new(id, Delay::ZERO))).transpose()?;
            driver.push(&push.queue, &[message.with_id(id)]).await?;
            Ok(())
        })
    }
}

struct Look(MemoryDriver);

#[async_trait]
impl Inspector for Look {
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let (seen, all) = (DistributedLock::inspect(&self.0, name).await?, self.0.residue());
        let mut leases = usize::from(seen.holder.is_some());
        for family in Family::ALL {
            leases += Permits::inspect(&self.0, family, name, usize::MAX).await?.holders.len();
        }
        Ok(Residue { leases, waiters: all.waiters, subscriptions: all.watches, tombstones: all.tombstones, endless: 0 })
    }

    async fn names(&self) -> Result<usize, BoxError> {
        Ok(self.0.residue().names)
    }
}
