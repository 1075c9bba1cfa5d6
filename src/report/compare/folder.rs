//! From run folders to a comparison and its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::paired::Paired;
use super::{csv, json, terminal};
use crate::account::StageTable;
use crate::compare::likeness::artifacts;
use crate::compare::{Arm, Comparison, Refusal};
use crate::event::text_of;
use crate::probe::contents;
use crate::report::html::compared::{self, Refused};
use crate::report::plot;
use crate::report::text::{json_for_terminals, plain};
use crate::run::{self, Run, RunError};

/// The files of a comparison.
pub const CSV: &str = "compare.csv";
pub const JSON: &str = "compare.json";
pub const SVG: &str = "compare.svg";
pub const PNG: &str = "compare.png";
pub const HTML: &str = "compare.html";

/// Each folder as an arm of one run, named A, B, C….
pub fn arms(folders: &[PathBuf]) -> Result<Vec<Arm>, RunError> {
    let load = |(number, folder): (usize, &PathBuf)| {
        let run = Run::load(folder)?;
        let table = StageTable::of(&run);
        Ok(Arm { name: letters(number), runs: vec![(run, table)] })
    };
    folders.iter().enumerate().map(load).collect()
}

/// A, B … Z, AA, AB….
fn letters(number: usize) -> String {
    let last = char::from(b'A' + (number % 26) as u8);
    match number / 26 {
        0 => last.to_string(),
        before => format!("{}{last}", letters(before - 1)),
    }
}

/// Where the files are to go, made and looked at before anything is compared: not a run's own folder.
pub fn prepare(out: &Path) -> anyhow::Result<()> {
    let shown = text_of(out);
    anyhow::ensure!(!out.join(run::META).exists(), "--out {shown} is the folder of a run, whose files stay its own");
    run::prepare_folder(out).with_context(|| format!("--out {shown}"))
}

/// What stands beside a comparison or a refusal in its files: what a series adds for people, and all of it as JSON.
pub struct Beside<'a> {
    pub series: Option<&'a Paired>,
    pub json: &'a str,
}

/// Writes the files of a comparison, each whole or not at all.
pub fn write(arms: &[Arm], comparison: &Comparison, beside: &Beside, out: &Path) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    csv::write(comparison, &mut rows)?;
    let (svg, png) = plot::compared::svg_and_png(arms, comparison)?;
    let json = beside.json.as_bytes().to_vec();
    let html = compared::page(arms, comparison, beside.series, &svg).into_bytes();
    let files = [(CSV, rows), (JSON, json), (SVG, svg.into_bytes()), (PNG, png), (HTML, html)];
    files.into_iter().try_for_each(|(name, bytes)| replace(&out.join(name), &bytes))
}

/// Writes a refusal in the place of a comparison: the page and the JSON. The figures of an earlier one are taken away, as a
/// new comparison would have replaced them: nobody is to take them for this one's.
pub fn write_refusal(arms: &[Arm], refused: &Refused, beside: &Beside, out: &Path) -> anyhow::Result<()> {
    for name in [CSV, SVG, PNG] {
        let path = out.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{}: cannot be taken away", text_of(&path)));
            }
            _ => {}
        }
    }
    replace(&out.join(JSON), beside.json.as_bytes())?;
    replace(&out.join(HTML), compared::refusal(arms, refused, beside.series).as_bytes())
}

fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    run::replace(path, bytes).with_context(|| text_of(path))
}

/// The comparison as JSON, with a line end.
pub fn json_text(arms: &[Arm], comparison: &Comparison) -> String {
    json_for_terminals(&format!("{:#}\n", json::comparison(arms, comparison)))
}

/// A refusal as JSON, with a line end.
pub fn refusal_text(refusal: &Refusal) -> String {
    json_for_terminals(&format!("{:#}\n", json::refusal(refusal)))
}

/// Hashes the artifacts of which no digest is known yet, each file once.
pub fn hash_contents(arms: &mut [Arm]) {
    let mut known: BTreeMap<String, Result<String, String>> = BTreeMap::new();
    let artifacts = arms.iter_mut().flat_map(|arm| &mut arm.runs).flat_map(|(run, _)| &mut run.meta.artifacts);
    for artifact in artifacts.filter(|artifact| artifacts::contents(artifact).is_none()) {
        let key = format!("{}\n{}\n{}", artifact.real_path, artifact.size_bytes, artifact.modified_ns);
        let hashed = known.entry(key).or_insert_with(|| {
            let meant =
                contents::Stat { size: artifact.size_bytes, inode: artifact.inode, modified_ns: artifact.modified_ns };
            contents::sha256(Path::new(&artifact.real_path), meant)
        });
        match hashed {
            Ok(digest) => artifact.content_sha256 = Some(digest.clone()),
            Err(reason) => artifact.content_reason = Some(reason.clone()),
        }
    }
}

/// The comparison for a terminal; where its files are, if they were written.
pub fn text(arms: &[Arm], comparison: &Comparison, out: Option<&Path>) -> String {
    let mut text = terminal::text(arms, comparison);
    if let Some(out) = out {
        // Paths are not broken, so that they can be copied.
        text.push_str(&format!("\npage      {}\n", plain(&text_of(out.join(HTML)))));
        text.push_str(&format!("figures   {}\n", plain(&text_of(out.join(CSV)))));
        text.push_str(&format!("timelines {}\n", plain(&text_of(out.join(SVG)))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::letters;

    #[test]
    fn arms_have_letters() {
        for (number, name) in [(0, "A"), (25, "Z"), (26, "AA"), (27, "AB"), (701, "ZZ"), (702, "AAA")] {
            assert_eq!(letters(number), name);
        }
    }
}
