//! The driver for Redis on the crate `redis`. Feature `redis`.

pub use tenure_redis::{
    Address, Checkup, Concern, Eviction, FenceScope, Fences, Finding, Identity, Login, Notes, Prefix, Protocol,
    RedisConfig, RedisDriver, RedisSettings, Tls, Topology,
};
