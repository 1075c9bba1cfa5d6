//! A run folder: its files, and how they are written and read again.
//!
//! A folder is enough for every report. A killed run is readable up to its last flushed line: a torn last line is left
//! out and said.

pub mod death;
pub mod faults;
pub mod meta;
pub mod peaks;
pub mod responses;
pub mod rows;
pub mod silence;
pub mod sources;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use csv::ByteRecord;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use crate::clock::At;
use crate::event::{ArtifactId, Event, Pid, text_of};
use crate::sample::Sample;
use crate::watch::Line;
pub use meta::Meta;

/// The names of a run folder's files.
pub const META: &str = "run.json";
/// The file that the folder of a series of runs has in its place.
pub const SERIES: &str = "series.json";
pub const SAMPLES: &str = "samples.csv";
pub const DETAIL: &str = "detail.csv";
pub const EVENTS: &str = "events.csv";
pub const OUTPUT: &str = "output.log";
pub const STAGES: &str = "stages.csv";
pub const TIMELINE_SVG: &str = "timeline.svg";
pub const TIMELINE_PNG: &str = "timeline.png";
pub const REPORT_HTML: &str = "report.html";
pub const RESPONSES: &str = "responses.csv";
pub const TENSORS: &str = "tensors.csv";
pub const TOUCHED_SVG: &str = "touched.svg";
pub const TOUCHED_PNG: &str = "touched.png";

/// What a figure of `detail.csv` is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Process(Pid),
    Artifact(ArtifactId),
    /// An entry of `run.json`'s `storage`, by its index.
    Storage(usize),
    /// An entry of `run.json`'s `devices`, by its index.
    Device(usize),
    /// A rank of a distributed launch, by its number: the sums over its processes.
    Rank(u32),
}

/// One row of `detail.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    pub at: At,
    pub scope: Scope,
    pub metric: String,
    pub value: u64,
}

/// A line of the command's output, as kept in `output.log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine {
    pub at: At,
    pub uncertainty_ns: Option<u64>,
    pub line: Line,
}

/// A run, loaded.
#[derive(Clone, Debug)]
pub struct Run {
    pub folder: PathBuf,
    pub meta: Meta,
    /// In order of time.
    pub samples: Vec<Sample>,
    /// In the order in which they were seen.
    pub events: Vec<Event>,
    pub details: Vec<Detail>,
    /// Of runs with `--faults`.
    pub tensors: Option<faults::Tensors>,
    /// Of runs with repeated requests or a workload, in the order in which they ended.
    pub responses: Vec<responses::Response>,
    /// What could not be read of the folder, for people: a torn last line, a missing file.
    pub gaps: Vec<String>,
}

/// What is wrong with a run folder, and where.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{}: not a run folder: {problem}", text_of(folder))]
    NotARun { folder: PathBuf, problem: String },
    #[error("{}: {META} is of schema {schema}, and this version of stagemark reads up to {reads}: use a newer one", text_of(folder), reads = meta::SCHEMA)]
    Newer { folder: PathBuf, schema: u32 },
    #[error("{}: line {line}: {problem}", text_of(path))]
    Row { path: PathBuf, line: u64, problem: String },
    #[error("{}: {error}", text_of(path))]
    Io { path: PathBuf, error: std::io::Error },
}

impl RunError {
    /// Whether it was the wrong folder that was named, and not a run that cannot be read.
    pub fn is_usage(&self) -> bool {
        matches!(self, RunError::NotARun { .. })
    }
}

impl Run {
    /// Loads a folder. A file that is missing or ends in a torn line is a gap, not an error; a line in the middle that
    /// is no row is an error.
    pub fn load(folder: &Path) -> Result<Run, RunError> {
        let meta = Meta::load(folder)?;
        let mut gaps = Vec::new();
        let mut columns = None;
        let samples = read_rows(folder, SAMPLES, &mut gaps, |header, row| {
            if columns.is_none() {
                columns = Some(rows::SampleColumns::of(header)?);
            }
            columns.as_ref().map(|columns| columns.sample(row)).transpose()
        })?;
        let events = read_rows(folder, EVENTS, &mut gaps, |_, row| rows::event(row))?;
        let details = read_rows(folder, DETAIL, &mut gaps, |_, row| rows::detail(row))?;
        let tensors = faults::Tensors::load(folder, &meta, &mut gaps)?;
        let responses = responses::load(folder, &mut gaps)?;
        Ok(Run { folder: folder.to_owned(), meta, samples, events, details, tensors, responses, gaps })
    }

    /// The command's output as far as `output.log` keeps it; empty where there is none.
    pub fn output(&self) -> Result<Vec<LoggedLine>, RunError> {
        let path = self.folder.join(OUTPUT);
        let bytes = match read_file(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(RunError::Io { path, error }),
        };
        let lines = whole_lines(&bytes).split_inclusive(|&byte| byte == b'\n').zip(1..);
        lines
            .map(|(line, number)| {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                rows::logged_line(line).map_err(|problem| RunError::Row { path: path.clone(), line: number, problem })
            })
            .collect()
    }
}

/// Far more than what a run records, whose ticks grow rarer from half a million rows on. A damaged or forged file has any
/// size without a byte on the disk, and would take all memory.
const LARGEST_FILE: u64 = 4 << 30;

/// The bytes of a regular file.
pub fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = open_file(path)?;
    let too_large = || std::io::Error::other(format!("is larger than {}", crate::units::bytes(LARGEST_FILE)));
    if file.metadata()?.len() > LARGEST_FILE {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // It may still be written to.
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(too_large());
    }
    Ok(bytes)
}

/// A folder for files that are about to be made, itself made where it is not there: whoever measures for long, and writes
/// then, asks before.
///
/// # Errors
/// It cannot be made, or nothing may be written into it.
pub fn prepare_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let may = AccessFlags::W_OK | AccessFlags::X_OK;
    Ok(faccessat(AT_FDCWD, folder, may, AtFlags::AT_EACCESS)?)
}

/// A regular file. Anything else that has the name of one of a folder's files may have no end, or no beginning.
fn open_file(path: &Path) -> std::io::Result<File> {
    // A pipe that nobody writes to is opened without waiting.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("is not a regular file"));
    }
    Ok(file)
}

/// Replaces a file by these bytes, whole or not at all.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let written = std::fs::write(&beside, bytes);
    written.and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

/// The part of a file up to its last line end: a killed writer may have left a torn line behind it.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    &bytes[..end]
}

fn read_rows<T>(
    folder: &Path,
    name: &str,
    gaps: &mut Vec<String>,
    mut parse: impl FnMut(&ByteRecord, &ByteRecord) -> rows::RowResult<Option<T>>,
) -> Result<Vec<T>, RunError> {
    let path = folder.join(name);
    let bytes = match read_file(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            gaps.push(format!("there is no {name}"));
            return Ok(Vec::new());
        }
        Err(error) => return Err(RunError::Io { path, error }),
    };
    let whole = whole_lines(&bytes);
    if whole.len() < bytes.len() {
        gaps.push(format!("{name} ends in a torn line, which was left out"));
    }
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(whole);
    let fault = |line, problem| RunError::Row { path: path.clone(), line, problem };
    let header = reader.byte_headers().map_err(|error| fault(1, error.to_string()))?.clone();
    let mut row = ByteRecord::new();
    let mut found = Vec::new();
    while reader.read_byte_record(&mut row).map_err(|error| fault(0, error.to_string()))? {
        let line = row.position().map_or(0, csv::Position::line);
        found.extend(parse(&header, &row).map_err(|problem| fault(line, problem))?);
    }
    Ok(found)
}
