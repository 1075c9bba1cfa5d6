//! Every unsafe line of the crate, each with its reason; safe functions outward. Nothing here decides anything.

pub mod cache;
pub mod cuda;
pub mod directory;
pub mod memory;
pub mod nvml;
pub mod pagemap;
pub mod process;
pub mod socket;
pub mod startup;
pub mod thread;
