//! Where orders are kept. A database checks the fence in its statement: see `docs/fencing-in-sql.md`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tenure::{FenceGate, FencingToken, StaleFence};

/// Texts of orders, each behind a gate that lets no older holder write.
#[derive(Debug, Default)]
pub struct Orders(Mutex<HashMap<String, (FenceGate, String)>>);

impl Orders {
    /// Changes the order, unless a later holder of its lock has written.
    ///
    /// # Errors
    ///
    /// The fence is older than one that was seen: nothing was written.
    pub fn write(
        &self,
        id: &str,
        fence: FencingToken,
        text: String,
    ) -> Result<(), StaleFence> {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (gate, order) = orders.entry(id.to_owned()).or_default();
        gate.admit(fence)?;
        *order = text;
        Ok(())
    }

    /// The text of an order.
    pub fn read(&self, id: &str) -> Option<String> {
        let orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        orders.get(id).map(|(_, text)| text.clone())
    }
}
