//! The tests of the engine: over drivers in memory and scripted ones, and in a simulated world.

mod locks;
mod metrics;
mod queues;
mod telemetry;
mod world;
