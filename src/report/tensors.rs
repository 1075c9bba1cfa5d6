//! `tensors.csv`: one row a tensor of each artifact. How much of it was resident at each stage, and what the fault
//! samples say of when it was first touched and by whom.
//!
//! Columns, in this order: `artifact` (its place in `run.json`'s `artifacts`), `tensor`, `dtype`, `begin`, `end` (bytes
//! of the file), `bytes`; `resident_<stage>`, bytes, for each stage that was reached; `first_touched_at_most_ns` and
//! `first_touched_pid`, of its first sampled fault: it may have been touched before that; `minor_sampled` and
//! `major_sampled`; `faults_estimate`, samples times their periods. A cell is empty where nothing is known: the look at
//! that stage did not come so far or was not allowed, no fault was sampled, or there are no samples at all.
//!
//! Only runs with `--faults` have it. Of 20,000 tensors it has 1.9 MB at six stages, beside 1.1 MB of
//! `tensor_layout.csv` and 0.4 MB a stage of `tensor_residency.csv`, in a folder that has 0.8 MB without; and each mark
//! asks up to one question a tensor, 9 ms for 20,000, while a loader may be waiting for it.

use std::collections::HashMap;
use std::io::Write;

use csv::{Terminator, WriterBuilder};

use super::csv::text;
use crate::account::StageTable;
use crate::clock::At;
use crate::event::{ArtifactId, Pid};
use crate::run::Run;
use crate::run::faults::{Counts, Tensors};

/// What the samples say of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    pub first: At,
    pub by: Pid,
    pub samples: Counts,
}

/// What the samples say of the tensors that have any.
pub fn touched(tensors: &Tensors) -> HashMap<(ArtifactId, usize), Touched> {
    let mut touched: HashMap<_, Touched> = HashMap::new();
    let locators: HashMap<_, _> = tensors.layouts.keys().map(|id| (*id, tensors.locator(*id))).collect();
    // In order of time, so that the first is the first.
    for touch in &tensors.touches {
        let Some(tensor) = locators.get(&touch.artifact).and_then(|locator| locator.at(touch.offset)) else { continue };
        let new = Touched { first: touch.at, by: touch.pid, samples: Counts::default() };
        touched.entry((touch.artifact, tensor)).or_insert(new).samples.add(touch.kind);
    }
    touched
}

/// Writes the table of a run that has one.
pub fn write(run: &Run, tensors: &Tensors, table: &StageTable, out: &mut dyn Write) -> csv::Result<()> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
    let stages: Vec<_> = table.reached().map(|row| (&row.outcome.stage, row.sampled)).collect();
    let mut header: Vec<String> = ["artifact", "tensor", "dtype", "begin", "end", "bytes"].map(str::to_owned).into();
    header.extend(stages.iter().map(|(stage, _)| format!("resident_{}", super::text::plain(stage))));
    let of_samples =
        ["first_touched_at_most_ns", "first_touched_pid", "minor_sampled", "major_sampled", "faults_estimate"];
    header.extend(of_samples.map(str::to_owned));
    writer.write_record(&header)?;

    let touched = touched(tensors);
    let meta = run.meta.faults.as_ref();
    let sampled = meta.filter(|samples| samples.unavailable.is_none());
    // Where rows are missing the counts would be too low; the first touches are all there.
    let counted = sampled.filter(|samples| samples.left_out.total() == 0);
    for (artifact, places) in &tensors.layouts {
        for (number, place) in places.iter().enumerate() {
            let key = (*artifact, number);
            let bytes = place.end.saturating_sub(place.begin);
            let mut cells = vec![artifact.0.to_string(), text(&place.name), text(&place.dtype)];
            cells.extend([place.begin, place.end, bytes].map(|value| value.to_string()));
            cells.extend(stages.iter().map(|(_, sampled)| {
                let resident = sampled.and_then(|at| tensors.resident.get(&at)?.get(&key));
                resident.map_or_else(String::new, u64::to_string)
            }));
            let known = touched.get(&key);
            cells.push(known.map_or_else(String::new, |touched| touched.first.0.to_string()));
            cells.push(known.map_or_else(String::new, |touched| touched.by.to_string()));
            let samples = known.map(|touched| touched.samples).unwrap_or_default();
            cells.extend(match counted {
                Some(meta) => [samples.minor, samples.major, meta.estimate(samples)].map(|count| count.to_string()),
                None => Default::default(),
            });
            writer.write_record(&cells)?;
        }
    }
    writer.flush()?;
    Ok(())
}
