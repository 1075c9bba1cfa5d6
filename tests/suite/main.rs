//! The integration tests: one binary, a module a room. They drive the `stagemark` program as its users do.
#![allow(clippy::unwrap_used)]

mod ab;
mod artifacts;
mod budget;
mod cache;
mod cli;
mod compare;
mod compare_page;
mod conditions;
mod confine;
mod copy_paths;
mod degraded;
mod devices;
mod doctor;
mod families;
mod faults;
mod findings;
mod folder;
mod formats;
mod host;
mod html;
mod launch;
mod live;
mod loader;
mod memory_group;
mod peaks;
#[path = "../../src/testing/program.rs"]
mod program;
mod readme;
mod reports;
mod residency;
mod runs;
mod stages;
mod stream;
mod support;
mod tree;
mod work;
