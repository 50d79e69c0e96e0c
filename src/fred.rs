//! The driver for Redis on the crate `fred`. Feature `fred`.

pub use tenure_fred::{
    Address, Eviction, Fences, FredDriver, Identity, Login, Notes, Prefix, Protocol, RedisConfig, RedisSettings, Tls,
    Topology,
};
