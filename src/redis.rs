//! The driver for Redis on the crate `redis`. Feature `redis`.

pub use tenure_redis::{
    Address, Eviction, Fences, Identity, Login, Notes, Prefix, Protocol, RedisConfig, RedisDriver, RedisSettings, Tls,
    Topology,
};
