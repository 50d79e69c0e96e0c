//! The etcd driver, on clusters of the harness's own. Behind the feature `etcd`, because its client library needs
//! `protoc` to be built.

mod harness;
mod inspector;
mod maker;

pub use maker::EtcdMaker;
