//! The driver for locks within one process, with hooks to simulate failures. Feature `memory`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure::Result<()> {
//! use tenure::{Client, memory::MemoryDriver};
//!
//! // Two clients of one store, as two processes of one server.
//! let driver = MemoryDriver::new();
//! let anna = Client::new(driver.clone());
//! let bert = Client::new(driver.another_client());
//!
//! let held = anna.lock("orders/42").acquire().await?;
//! assert!(bert.lock("orders/42").try_acquire().await?.is_none());
//! // Ends her lease early, as a long pause would.
//! driver.faults().expire("orders/42")?;
//! assert!(bert.lock("orders/42").try_acquire().await?.is_some());
//! assert!(held.release().await.unwrap_err().is_lost());
//! # Ok(())
//! # }
//! ```

pub use tenure_memory::{Faults, MemoryDriver, MemoryDriverBuilder, Operation, Residue, Wakeups};
