//! Locks between the processes of one machine, in an SQLite file, for [tenure](https://docs.rs/tenure).
