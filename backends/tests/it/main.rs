//! Tests that need several drivers, or several processes.

mod blocking;
mod changed_backend;
mod chaos;
mod connect_quorum;
mod defaults;
mod endless;
mod other_etcd;
mod queue_kill;
mod server_mutants;
mod tls;
mod topologies;
mod two_processes;
