//! The driver for Redis on the crate `fred`. Feature `fred`.

pub use tenure_fred::{
    Address, Checkup, Concern, Eviction, FenceScope, Fences, Finding, FredDriver, Identity, Login, Notes, Prefix,
    Protocol, RedisConfig, RedisSettings, Tls, Topic, Topology,
};
