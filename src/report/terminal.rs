//! The stage table for a terminal: 80 columns.

use crate::account::StageTable;
use crate::run::Run;

/// The table, what it says in words, the profiler's own cost, and warnings.
pub fn text(run: &Run, table: &StageTable) -> String {
    let _ = (run, table);
    todo!()
}
