//! The service on ports of this machine: what it answers, and how it stops.

mod http;
mod stopping;
mod web;
