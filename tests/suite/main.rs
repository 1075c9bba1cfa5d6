//! The integration tests: one binary, a module a room. They drive the `stagemark` program as its users do.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod cli;
mod confine;
mod degraded;
mod doctor;
mod folder;
mod host;
mod launch;
mod loader;
mod peaks;
mod readme;
mod reports;
mod residency;
mod runs;
mod stages;
mod support;
mod tree;
mod work;
