//! The benches are in the target `drivers`: `cargo bench -p tenure-benches`, or with `-- redis/single` for one driver.
