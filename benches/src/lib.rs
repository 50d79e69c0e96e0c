//! The benches are in the target `drivers`: `cargo bench`, or with `-- redis/single` for one driver.
