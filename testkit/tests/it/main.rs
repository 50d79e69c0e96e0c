//! The tests of the servers.

mod databases;
mod redis;
mod tls;
mod topologies;
