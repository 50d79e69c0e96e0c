//! A custom driver, written as an author outside of this workspace would. `docs/writing-a-driver.md` walks through
//! it.
//!
//! The backend is a [`Table`]: rows that are changed one at a time, in transactions, by the table's own clock. Think of
//! a SQL database; the statements are beside the code. It can neither wake waiters nor queue them, so
//! [its driver](TableDriver) declares [`Waiting::Poll`](tenure_core::driver::Waiting::Poll), and it declares neither
//! introspection nor forced release nor re-entrant locks. What it does declare, `tests/conformance.rs` proves.

mod connect;
mod driver;
mod table;

pub use connect::connect;
pub use driver::TableDriver;
pub use table::{Row, Table};
