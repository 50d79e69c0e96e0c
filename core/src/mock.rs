//! `mockall` mocks of the driver traits, for tests of code that is generic over drivers.
//!
//! To test an application, prefer the memory driver: it behaves, and it can be told to fail. A new major version of
//! `mockall` is a breaking change of this module alone.
//!
//! ```
//! use std::sync::Arc;
//! use tenure_core::{Client, ErrorKind, Error, driver::Backend, mock::MockDistributedLock};
//! # use std::time::Duration;
//! # use tenure_core::driver::*;
//! # fn capabilities() -> LockCapabilities {
//! #     let (min, max, granularity) = (Duration::from_millis(10), Duration::from_secs(60), Duration::from_millis(1));
//! #     LockCapabilities::new(Exclusion::SingleNode, Fencing::Strict, Waiting::Poll, TtlRange { min, max, granularity })
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let mut driver = MockDistributedLock::new();
//! driver.expect_driver().return_const("mock");
//! driver.expect_capabilities().returning(capabilities);
//! driver.expect_acquire().returning(|_| Err(Error::new(ErrorKind::Unavailable, "the backend is down")));
//!
//! let client = Client::new(Backend::new(Arc::new(driver)));
//! let refused = client.lock("orders/42").try_acquire().await.unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::Unavailable);
//! # }
//! ```

pub use crate::driver::{MockDelayQueue, MockDistributedLock, MockQuorumNode, MockReentrantLock};
