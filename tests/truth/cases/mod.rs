//! The cases, a module a subject.

mod faults;
mod files;
mod filesystems;
mod frame;
mod kernel;
mod lines;
mod loads;
mod mappings;
mod paths;
mod readers;
mod trees;

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
    ];
    subjects.into_iter().flatten().copied()
}
