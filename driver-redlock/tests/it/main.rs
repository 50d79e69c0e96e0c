//! The tests of this driver: quorums of nodes in memory and of servers that each test starts.

mod absent;
mod asked_again;
mod clients;
mod common;
mod fences;
mod held_throughout;
mod late;
mod memory_of_nodes;
mod quorum;
mod redis;
mod runtimes;
mod simulation;
mod telemetry;
mod traces;
