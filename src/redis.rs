//! The driver for a single Redis server. Feature `redis`.

pub use tenure_redis::{Eviction, FenceScope, Fences, Notes, Prefix, RedisConfig, RedisDriver, RedisSettings};
