//! `stages.csv`: the deliverable of a capacity review. RFC 4180, numbers bare, empty for absent, nothing that a
//! spreadsheet would run as a formula.

use std::io::Write;

use crate::account::StageTable;

/// Writes the table.
pub fn write(table: &StageTable, out: &mut dyn Write) -> csv::Result<()> {
    let _ = (table, out);
    todo!()
}
