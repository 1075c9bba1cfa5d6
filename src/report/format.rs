//! A run in one of the forms that other programs and people take: `stagemark report RUN --format …`.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context;

use super::{folder, json, markdown, perfetto};
use crate::account::StageTable;
use crate::event::text_of;
use crate::run::{self, Run};

/// Which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A trace for the Perfetto UI: counters, stages, processes, spans
    Perfetto,
    /// The whole stage table with reasons, findings and condition
    Json,
    /// A table to paste into a pull request
    Md,
}

/// The files of a run folder from which everything else is made.
const RECORDED: [&str; 5] = [run::META, run::SAMPLES, run::DETAIL, run::EVENTS, run::OUTPUT];

/// A run in a form.
pub fn text(run: &Run, table: &StageTable, format: Format) -> anyhow::Result<String> {
    Ok(match format {
        Format::Perfetto => perfetto::text(run, table)?,
        Format::Json => json::text(run, table)?,
        Format::Md => markdown::text(run, table),
    })
}

/// A run folder in a form, with its own stages or with others; nothing else is written. With `out` it goes into that
/// file, whole or not at all, and nothing is returned.
pub fn answer(
    folder: &Path,
    stages: Option<&OsStr>,
    format: Format,
    out: Option<&Path>,
) -> anyhow::Result<Option<String>> {
    let (run, table) = folder::load_with(folder, stages)?;
    let text = text(&run, &table, format)?;
    let Some(out) = out else { return Ok(Some(text)) };
    let shown = text_of(out);
    let recorded = RECORDED.iter().any(|name| folder::same_place(&folder.join(name), out));
    anyhow::ensure!(!recorded, "--out {shown} is what the run recorded, which stays as it is");
    anyhow::ensure!(!out.is_dir(), "--out {shown}: with --format it is a file, and this is a folder");
    run::replace(out, text.as_bytes()).with_context(|| format!("--out {shown}"))?;
    Ok(None)
}
