//! The pumps of one client: one for each queue that it uses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::QueueName;
use super::attend::Attended;
use super::pump::Pump;
use crate::driver::DelayQueue;
use crate::engine::shared::Shared;
use crate::value::error::{Error, ErrorKind, Result};

/// The queues of the backend.
pub(crate) fn driver(shared: &Shared) -> Result<&Arc<dyn DelayQueue>> {
    shared.backend.queue().ok_or_else(|| {
        let text = format!("the driver \"{}\" has no delay queues", shared.driver());
        Error::new(ErrorKind::Unsupported, text)
    })
}

#[derive(Debug, Default)]
pub(crate) struct Pumps {
    of: Mutex<HashMap<QueueName, Weak<Pump>>>,
    pub(super) attended: Attended,
}

impl Pumps {
    /// The pump of this queue.
    pub(crate) fn get(shared: &Arc<Shared>, name: QueueName) -> Result<Arc<Pump>> {
        let driver = driver(shared)?;
        let mut pumps = shared.pumps.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pump) = pumps.get(&name).and_then(Weak::upgrade) {
            return Ok(pump);
        }
        pumps.retain(|_, pump| pump.strong_count() > 0);
        let pump = Arc::new(Pump::new(Arc::clone(shared), Arc::clone(driver), name.clone()));
        pumps.insert(name, Arc::downgrade(&pump));
        Ok(pump)
    }

    /// Waits until all settlements are answered.
    pub(crate) async fn drained(&self) {
        let pumps: Vec<_> = {
            let pumps = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            pumps.values().filter_map(Weak::upgrade).collect()
        };
        for pump in pumps {
            pump.drained().await;
        }
    }
}
