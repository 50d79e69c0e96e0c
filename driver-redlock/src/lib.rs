//! A quorum of independent nodes as one lock.
#[allow(dead_code)]
mod quorum;
