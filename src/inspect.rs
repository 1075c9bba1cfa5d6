//! `stagemark inspect`: what model files hold, and how much of it is resident now.
//!
//! Looks at the files that the paths name, as the artifact set of a launch would be found, and nowhere else. Reads
//! headers only, and leaves the page cache as it was.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::artifact::set::{Resolution, resolve};
use crate::artifact::{Artifact, Format, Tensor};
use crate::clock::Mono;
use crate::event::{text_of, word_of};
use crate::probe::residency::ResidencyProbe;
use crate::report::text::{elide, json_for_terminals, plain};

/// How long the kernel is asked about one file.
const RESIDENCY_LIMIT: Duration = Duration::from_secs(5);

/// How many of the largest tensors the table and the JSON have.
const LARGEST: (usize, usize) = (5, 20);

/// The most lines of dtypes that the table has of one file, and the most characters of a name in it. JSON has all.
const DTYPES: usize = 16;
const NAME: usize = 80;

/// How much of a file's watched ranges is resident, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Bytes; `Err` is the reason of their absence.
    pub bytes: Result<u64, String>,
    /// The call that answered: `mincore`, `cachestat`, or `none`.
    pub by: String,
    /// Why that one.
    pub because: String,
}

/// Describes files (or what directories and indexes name) to `out`, as a table or as JSON.
///
/// Returns whether every file could be understood; problems are told on `errors`, naming path and offset.
pub fn inspect(paths: &[PathBuf], json: bool, out: &mut dyn Write, errors: &mut dyn Write) -> anyhow::Result<bool> {
    inspect_with(paths, json, resident_now, out, errors)
}

/// Asks the kernel, file by file.
fn resident_now(artifacts: &[Artifact]) -> Vec<Resident> {
    let mut probe = ResidencyProbe::new();
    let trust: Vec<_> = artifacts.iter().map(|artifact| probe.add(artifact, RESIDENCY_LIMIT)).collect();
    let files: HashMap<_, _> =
        probe.files(Mono::now()).into_iter().map(|file| (file.artifact.0, file.resident)).collect();
    let resident = |(index, trust): (usize, crate::probe::residency::Trust)| Resident {
        bytes: files.get(&index).cloned().unwrap_or_else(|| Err("not looked at".into())),
        by: trust.by,
        because: trust.because,
    };
    trust.into_iter().enumerate().map(resident).collect()
}

/// As [`inspect`], with another source of residency: one answer for each artifact, in their order.
pub fn inspect_with(
    paths: &[PathBuf],
    json: bool,
    resident: impl FnOnce(&[Artifact]) -> Vec<Resident>,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<bool> {
    let Resolution { artifacts, warnings, failures } = match paths {
        [] => Resolution::default(),
        _ => resolve(paths, &[], &BTreeMap::new(), &std::env::current_dir()?),
    };
    for warning in &warnings {
        // Standard error may be closed; the answer is on standard output.
        let _ = writeln!(errors, "{}", plain(warning));
    }
    let resident = resident(&artifacts);
    let largest = if json { LARGEST.1 } else { LARGEST.0 };
    let files: Vec<File> =
        artifacts.iter().zip(resident).map(|(artifact, resident)| File::of(artifact, resident, largest)).collect();
    let total = Total::of(&files);
    let text = if json {
        let mut text =
            json_for_terminals(&serde_json::to_string_pretty(&Answer { files, total, warnings: &warnings })?);
        text.push('\n');
        text
    } else {
        table(&files, &total)
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(failures == 0)
}

#[derive(Serialize)]
struct Answer<'a> {
    files: Vec<File>,
    total: Total,
    warnings: &'a [String],
}

/// What is told of one file. Absent is `null`, with the reason beside it.
#[derive(Serialize)]
struct File {
    path: String,
    real_path: String,
    format: Format,
    size_bytes: u64,
    payload_bytes: Option<u64>,
    payload_reason: Option<String>,
    /// Header, metadata and padding.
    overhead_bytes: Option<u64>,
    tensors: Option<usize>,
    bytes_by_dtype: BTreeMap<String, u64>,
    largest_tensors: Vec<Largest>,
    header_digest: Option<String>,
    /// What `resident_bytes` is a part of: `payload`, or `file` where the payload is unknown.
    resident_of: &'static str,
    resident_bytes: Option<u64>,
    resident_reason: Option<String>,
    resident_by: String,
    resident_because: String,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Largest {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    offset: u64,
    bytes: u64,
}

/// The files together; absent where a file's part is.
#[derive(Serialize)]
struct Total {
    files: usize,
    size_bytes: Option<u64>,
    payload_bytes: Option<u64>,
    overhead_bytes: Option<u64>,
    tensors: Option<usize>,
    bytes_by_dtype: BTreeMap<String, u64>,
    resident_payload_bytes: Option<u64>,
}

impl File {
    fn of(artifact: &Artifact, resident: Resident, largest: usize) -> File {
        let layout = artifact.layout.as_ref().ok();
        let payload = artifact.payload_bytes();
        File {
            path: text_of(&artifact.path),
            real_path: text_of(&artifact.real_path),
            format: artifact.format,
            size_bytes: artifact.size,
            payload_bytes: payload,
            payload_reason: artifact.layout.as_ref().err().cloned(),
            overhead_bytes: payload.map(|payload| artifact.size - payload),
            tensors: layout.filter(|_| artifact.format != Format::Raw).map(|layout| layout.tensors.len()),
            bytes_by_dtype: layout.map(|layout| layout.by_dtype.clone()).unwrap_or_default(),
            largest_tensors: layout.map(|layout| self::largest(&layout.tensors, largest)).unwrap_or_default(),
            header_digest: artifact.header_digest.clone(),
            resident_of: if payload.is_some() { "payload" } else { "file" },
            resident_reason: resident.bytes.as_ref().err().cloned(),
            resident_bytes: resident.bytes.ok(),
            resident_by: resident.by,
            resident_because: resident.because,
            notes: layout.map(|layout| layout.notes.clone()).unwrap_or_default(),
        }
    }
}

impl Total {
    fn of(files: &[File]) -> Total {
        let mut bytes_by_dtype = BTreeMap::new();
        for (dtype, bytes) in files.iter().flat_map(|file| &file.bytes_by_dtype) {
            let sum = bytes_by_dtype.entry(dtype.clone()).or_insert(0u64);
            *sum = sum.saturating_add(*bytes);
        }
        // Absent where a part is. A sum past 2^64, which sparse files can feign, is no figure either.
        let sum = |of: fn(&File) -> Option<u64>| files.iter().try_fold(0u64, |sum, file| sum.checked_add(of(file)?));
        Total {
            files: files.len(),
            size_bytes: sum(|file| Some(file.size_bytes)),
            payload_bytes: sum(|file| file.payload_bytes),
            overhead_bytes: sum(|file| file.overhead_bytes),
            tensors: files.iter().map(|file| file.tensors).sum(),
            bytes_by_dtype,
            resident_payload_bytes: sum(|file| file.resident_bytes.filter(|_| file.payload_bytes.is_some())),
        }
    }
}

/// The largest tensors, the largest first; of equal ones that which stands first in the file.
fn largest(tensors: &[Tensor], count: usize) -> Vec<Largest> {
    let mut order: Vec<&Tensor> = tensors.iter().collect();
    order.sort_by_key(|tensor| (std::cmp::Reverse(tensor.length), tensor.offset));
    let told = |tensor: &&Tensor| Largest {
        name: tensor.name.clone(),
        dtype: tensor.dtype.clone(),
        shape: tensor.shape.clone(),
        offset: tensor.offset,
        bytes: tensor.length,
    };
    order.iter().take(count).map(told).collect()
}

/// The answer for people.
fn table(files: &[File], total: &Total) -> String {
    let mut table = Table::default();
    for file in files {
        table.heading(&plain(&file.path));
        if file.real_path != file.path {
            table.line("is", &plain(&file.real_path));
        }
        table.line("format", &word_of(&file.format));
        table.bytes("size", Some(file.size_bytes), "");
        table.bytes("payload", file.payload_bytes, &plain(file.payload_reason.as_deref().unwrap_or_default()));
        table.bytes("overhead", file.overhead_bytes, "header, metadata and padding");
        table.count("tensors", file.tensors);
        table.dtypes(&file.bytes_by_dtype);
        for tensor in &file.largest_tensors {
            let kind = if tensor.dtype.is_empty() { String::new() } else { format!("  {}", name(&tensor.dtype)) };
            let shape = if tensor.shape.is_empty() { String::new() } else { format!(" {:?}", tensor.shape) };
            table.bytes("largest", Some(tensor.bytes), &format!("{}{kind}{shape}", name(&tensor.name)));
        }
        let known = match (&file.resident_reason, file.resident_bytes) {
            (Some(reason), _) => reason.clone(),
            (None, Some(bytes)) => {
                let of = file.payload_bytes.unwrap_or(file.size_bytes);
                let share = if of == 0 { String::new() } else { format!("{} ", percent(bytes, of)) };
                format!("{share}of the {}, by {}: {}", file.resident_of, file.resident_by, file.resident_because)
            }
            (None, None) => String::new(),
        };
        table.bytes("resident", file.resident_bytes, &known);
        file.notes.iter().for_each(|note| table.line("note", &plain(note)));
    }
    if files.is_empty() {
        return String::new();
    }
    table.heading(&format!("In all: {} file{}", total.files, if total.files == 1 { "" } else { "s" }));
    table.bytes("size", total.size_bytes, "");
    table.bytes(
        "payload",
        total.payload_bytes,
        if total.payload_bytes.is_none() { "unknown for a file above" } else { "" },
    );
    table.bytes("overhead", total.overhead_bytes, "");
    table.count("tensors", total.tensors);
    table.dtypes(&total.bytes_by_dtype);
    let share = match (total.resident_payload_bytes, total.payload_bytes) {
        (Some(resident), Some(payload)) if payload > 0 => format!("{} of the payload", percent(resident, payload)),
        (None, _) => "unknown for a file above".into(),
        _ => String::new(),
    };
    table.bytes("resident", total.resident_payload_bytes, &share);
    table.0
}

/// Lines of a label, a rounded figure, an exact one, and words.
#[derive(Default)]
struct Table(String);

impl Table {
    fn heading(&mut self, heading: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(heading);
        self.0.push('\n');
    }

    fn line(&mut self, label: &str, value: &str) {
        self.0.push_str(format!("  {label:<9} {value}").trim_end());
        self.0.push('\n');
    }

    fn bytes(&mut self, label: &str, bytes: Option<u64>, words: &str) {
        let (rounded, exact) = match bytes {
            Some(bytes) => (rounded(bytes), bytes.to_string()),
            None => ("unknown".into(), String::new()),
        };
        self.line(label, &format!("{rounded:>10}  {exact:>16}  {words}"));
    }

    /// The dtypes with the most bytes, and how many others there are.
    fn dtypes(&mut self, by_dtype: &BTreeMap<String, u64>) {
        let mut order: Vec<(&String, u64)> = by_dtype.iter().map(|(dtype, bytes)| (dtype, *bytes)).collect();
        order.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let others = order.split_off(order.len().min(DTYPES));
        order.iter().for_each(|(dtype, bytes)| self.bytes("dtype", Some(*bytes), &name(dtype)));
        if !others.is_empty() {
            let sum = others.iter().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
            self.bytes("dtype", sum, &format!("{} others", others.len()));
        }
    }

    fn count(&mut self, label: &str, count: Option<usize>) {
        let exact = count.map_or("unknown".into(), |count| count.to_string());
        self.line(label, &format!("{:>10}  {exact:>16}", ""));
    }
}

/// A name out of a header, fit for a terminal.
fn name(name: &str) -> String {
    elide(&plain(name), NAME)
}

/// Bytes in the largest unit of which there is one, to three digits.
fn rounded(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A share; never 0% for something nor 100% for not all.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let percent = part as f64 / whole as f64 * 100.0;
    match part {
        0 => "0%".into(),
        _ if part == whole => "100%".into(),
        _ => format!("{:.1}%", percent.clamp(0.1, 99.9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10_234, "9.99 KiB"),
            (10_239, "10.0 KiB"),
            (4 << 30, "4.00 GiB"),
            (150_323_855_360, "140 GiB"),
            ((1 << 40) - 1, "1.00 TiB"),
            (u64::MAX, "16384 PiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(rounded(bytes), text);
        }
    }

    #[test]
    fn something_is_not_nothing() {
        assert_eq!(percent(0, 10), "0%");
        assert_eq!(percent(1, 1 << 40), "0.1%");
        assert_eq!(percent((1 << 40) - 1, 1 << 40), "99.9%");
        assert_eq!(percent(1 << 40, 1 << 40), "100%");
    }
}
