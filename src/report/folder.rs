//! Every report of a run folder, made from its recorded files alone.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context;

use super::{csv, html, plot, tensors, terminal};
use crate::account::StageTable;
use crate::event::text_of;
use crate::run::{self, Run};
use crate::stage::{self, StageFile};

/// Loads a run and makes its table.
pub fn load(folder: &Path) -> anyhow::Result<(Run, StageTable)> {
    load_with(folder, None)
}

/// The same with other stages than the run's own, matched in what was recorded.
pub fn load_with(folder: &Path, stages: Option<&OsStr>) -> anyhow::Result<(Run, StageTable)> {
    let mut run = Run::load(folder)?;
    if let Some(stages) = stages {
        rematch(&mut run, StageFile::load(stages)?)?;
    }
    let table = StageTable::of(&run);
    Ok((run, table))
}

/// Makes `stages.csv`, `timeline.svg`, `timeline.png` and `report.html` in the folder of a run; with `--faults` also `tensors.csv`,
/// `touched.svg` and `touched.png`.
pub fn make(folder: &Path) -> anyhow::Result<()> {
    let (run, table) = load(folder)?;
    write(&run, &table, folder)
}

/// Writes the reports of a run into a folder, each file whole or not at all.
pub fn write(run: &Run, table: &StageTable, folder: &Path) -> anyhow::Result<()> {
    reports(run, table)?.iter().try_for_each(|report| report.write(folder))
}

/// One file of the reports.
pub struct Report {
    name: &'static str,
    bytes: Vec<u8>,
}

impl Report {
    /// Writes it into a folder, whole or not at all.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(self.name);
        run::replace(&path, &self.bytes).with_context(|| path.display().to_string())
    }
}

/// The reports of a run, made and not yet written.
pub fn reports(run: &Run, table: &StageTable) -> anyhow::Result<Vec<Report>> {
    let mut stages = Vec::new();
    csv::write(table, &mut stages)?;
    let (svg, png) = plot::svg_and_png(run, table)?;
    let mut files = vec![(run::STAGES, stages), (run::TIMELINE_PNG, png)];
    let mut touched = None;
    if let Some(found) = &run.tensors {
        let mut rows = Vec::new();
        tensors::write(run, found, table, &mut rows)?;
        files.extend([(run::TENSORS, rows), (run::TOUCHED_PNG, plot::touched::png(run, found, table)?)]);
        touched = Some(plot::touched::svg(run, found, table)?);
    }
    let page = html::page(run, table, html::Pictures { timeline: &svg, touched: touched.as_deref() })?;
    files.extend(touched.map(|svg| (run::TOUCHED_SVG, svg.into_bytes())));
    files.extend([(run::TIMELINE_SVG, svg.into_bytes()), (run::REPORT_HTML, page.into_bytes())]);
    Ok(files.into_iter().map(|(name, bytes)| Report { name, bytes }).collect())
}

/// Makes the reports again, with the run's own stages or with others, and returns the table for a terminal.
///
/// Other stages go into a folder of their own, so that a run's own reports stay what they are.
pub fn again(folder: &Path, stages: Option<&OsStr>, out: Option<&Path>) -> anyhow::Result<String> {
    if stages.is_some() {
        let out = out.context("--stages needs --out DIR: the run's own reports stay as they are")?;
        anyhow::ensure!(!same_place(folder, out), "--out {} is the run folder itself", text_of(out));
    }
    let (run, table) = load_with(folder, stages)?;
    match out {
        None => {
            write(&run, &table, folder).context("the reports could not be written; --out DIR puts them elsewhere")?
        }
        Some(out) => {
            let shown = text_of(out);
            let other = out.join(run::META).exists() && !same_place(folder, out);
            anyhow::ensure!(!other, "--out {shown} is the folder of another run, whose own reports stay as they are");
            std::fs::create_dir_all(out).with_context(|| format!("--out {shown}"))?;
            write(&run, &table, out)?;
        }
    }
    // The paths that the table ends with are those of the reports that were just made.
    Ok(terminal::text_in(&run, &table, &std::path::absolute(out.unwrap_or(folder))?))
}

/// Whether two names are of one thing that is there.
pub(super) fn same_place(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Replaces a run's marks by those that another stage file finds in what was recorded.
fn rematch(run: &mut Run, file: StageFile) -> anyhow::Result<()> {
    let lines: Vec<_> =
        run.output()?.into_iter().map(|logged| (logged.at, logged.uncertainty_ns, logged.line)).collect();
    let marks = stage::rematch(vec![file.clone()], &run.events, &lines, &run.samples);
    run.events = stage::with_marks(&run.events, marks);
    run.meta.variables = stage::values(&file, &run.events);
    run.meta.until = file.until.clone();
    run.meta.stages_digest = file.digest();
    run.meta.stage_digests = file.digests();
    run.meta.stages = file;
    Ok(())
}
