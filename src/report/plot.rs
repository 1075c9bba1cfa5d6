//! `timeline.svg` and `timeline.png`: mapped extent against resident payload, the RSS split, fault and read rates, and
//! the marks as labelled lines.

use crate::account::StageTable;
use crate::run::Run;

/// The timeline as SVG.
pub fn svg(run: &Run, table: &StageTable) -> anyhow::Result<String> {
    let _ = (run, table);
    todo!()
}

/// The timeline as PNG, the same picture.
pub fn png(run: &Run, table: &StageTable) -> anyhow::Result<Vec<u8>> {
    let _ = (run, table);
    todo!()
}
