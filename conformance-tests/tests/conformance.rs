//! The suite against the in-process driver: every case of it, under virtual time.

#[path = "it/memory/mod.rs"]
mod memory;

fn main() {
    tenure_conformance::main([memory::maker()])
}
