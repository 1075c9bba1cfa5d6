//! The cases, a module a subject.

mod frame;
mod lines;
mod loads;
mod trees;

use crate::harness::Case;

/// Every case, in the order of the table.
pub fn all() -> impl Iterator<Item = Case> {
    let subjects = [
        frame::CASES, //
        loads::CASES,
        trees::CASES,
        lines::CASES,
    ];
    subjects.into_iter().flatten().copied()
}
