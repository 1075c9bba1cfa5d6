//! The tool's figures held against what loaders themselves wrote down of their acts: `cargo test --test truth`.
//!
//! A case runs a loader that knows what it did, and makes claims: what is claimed, in words; what is true, as narrow as
//! what is known of the moment allows; and the tool's figure. A claim holds where an exact figure lies in the truth,
//! where bounds have room for it and are no wider than the claim states, or where an absence has the reason that it
//! must have. Where nothing is untrue and bounds are too wide, as on a machine whose processors others have, the case is
//! run again, four times at most. The table is printed whatever comes out.
//!
//! ```text
//! cargo test --test truth                      all cases, two at a time
//! cargo test --test truth -- deleted           those with `deleted` in their name
//! cargo test --test truth -- --list            their names
//! STAGEMARK_TRUTH_ALL=1 cargo test --test truth    a case that cannot be run here is a failure
//! ```
//!
//! To add cases: a file in `cases/` with a `const CASES: &[Case]`, named in `cases/mod.rs`. A case is a function from a
//! [`bench::Bench`] to claims:
//!
//! ```text
//! fn deleted(bench: &Bench) -> Vec<Claim> {
//!     let model = bench.model(8 * MIB, Fill::Pattern);
//!     let run = bench.loader(&model, "mmap-lazy --touch 4MiB --advice random --notify").run();
//!     vec![Claim::exact("mapped_bytes at first_response", model.size, run.at("first_response", "mapped_bytes"))]
//! }
//! ```
#![allow(clippy::unwrap_used)]

mod bench;
mod cases;
mod claim;
#[path = "../suite/confine.rs"]
#[allow(dead_code)]
mod confine;
#[path = "../suite/folder.rs"]
#[allow(dead_code)]
mod folder;
mod harness;
#[path = "../suite/memory_group.rs"]
#[allow(dead_code)]
mod memory_group;
mod needs;
mod profile;
#[path = "../../src/testing/program.rs"]
mod program;
mod run;
#[path = "../suite/support.rs"]
#[allow(dead_code)]
mod support;

fn main() -> std::process::ExitCode {
    harness::main(std::env::args().skip(1))
}
