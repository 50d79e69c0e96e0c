//! Servers that take each other's place while locks are held and waited for, through both client libraries.

mod doctor;
mod failover;
mod queues;
mod slots;
mod support;
