//! The cases, a module a subject.

mod account;
mod bounds;
mod copies;
mod deaths;
mod events;
mod eviction;
mod faults;
mod files;
mod filesystems;
mod frame;
mod kernel;
mod lines;
mod loads;
mod mappings;
mod paths;
mod peaks;
mod ranks;
mod readers;
mod trees;
mod verdicts;

use crate::harness::Case;

/// Every case, in the order of the table.
pub fn all() -> impl Iterator<Item = Case> {
    let subjects = [
        frame::CASES, //
        loads::CASES,
        trees::CASES,
        lines::CASES,
        filesystems::CASES,
        mappings::CASES,
        files::CASES,
        faults::CASES,
        readers::CASES,
        paths::CASES,
        kernel::CASES,
        peaks::CASES,
        account::CASES,
        events::CASES,
        verdicts::CASES,
        eviction::CASES,
        bounds::CASES,
        ranks::CASES,
        copies::CASES,
        deaths::CASES,
    ];
    subjects.into_iter().flatten().copied()
}
