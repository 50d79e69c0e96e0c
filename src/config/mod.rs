//! Settings of a client, from a program, its environment, a file, and a URL.

#[cfg(feature = "serde")]
mod file;
mod settings;
mod value;

pub use settings::ClientConfig;
pub(crate) use settings::{from_url, of_the_client};
