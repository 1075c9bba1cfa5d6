//! Fault samples and tensors in a run folder: `faults.csv`, `tensor_layout.csv` and `tensor_residency.csv`, written as
//! things happen, and what `run.json` says of how they are known. Only runs with `--faults` have them.

use std::collections::BTreeMap;
use std::path::Path;

use csv::ByteRecord;
use serde::{Deserialize, Serialize};

use super::{Meta, RunError, read_rows, rows};
use crate::artifact::locate::Locator;
use crate::clock::At;
use crate::event::{ArtifactId, Pid};
use crate::probe::fault::{Kind, MAJOR_PERIOD, Place, UNSEEN};

pub const FAULTS: &str = "faults.csv";
pub const LAYOUT: &str = "tensor_layout.csv";
pub const RESIDENCY: &str = "tensor_residency.csv";

/// The header of `faults.csv`. `offset` is a byte of the artifact, `tensor` the name of the tensor it belongs to;
/// `behind` is `artifact`, `file`, `anonymous`, or `unknown`.
pub const FAULT_HEADER: [&str; 8] = ["t_ns", "pid", "artifact", "offset", "tensor", "kind", "address", "behind"];
/// The header of `tensor_layout.csv`: bytes `begin` to before `end` of the artifact are a tensor.
pub const LAYOUT_HEADER: [&str; 6] = ["artifact", "tensor", "name", "dtype", "begin", "end"];
/// The header of `tensor_residency.csv`, by the tensor's number in `tensor_layout.csv`.
pub const RESIDENCY_HEADER: [&str; 4] = ["t_ns", "artifact", "tensor", "resident_bytes"];

/// `run.json`'s `faults`: how the samples are known, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultSamples {
    /// One in so many minor faults was asked for (`--faults`).
    pub asked: u64,
    /// Why there are no samples.
    pub unavailable: Option<String>,
    /// One sample in so many minor faults, for each thread on each CPU apart…
    pub minor_period: u64,
    /// … and in so many major ones.
    pub major_period: u64,
    /// Whether faults in the kernel on a process's behalf are among them: those of read(2) into fresh memory.
    pub kernel: Option<bool>,
    /// Samples by what lay behind their address.
    pub artifacts: Counts,
    pub other_files: Counts,
    pub anonymous: Counts,
    /// Neither the record stream nor `/proc/PID/maps` knew the address.
    pub unknown: Counts,
    /// Records, samples or mappings, for which the kernel's rings had no room.
    pub lost_records: u64,
    /// Samples that are counted here and stand in no row: `faults.csv` is limited in size.
    pub left_out: Counts,
    /// Bytes of each CPU's ring.
    pub ring_bytes: u64,
    /// What no event of the kernel shows, for people.
    pub unseen: String,
}

/// Samples of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub minor: u64,
    pub major: u64,
}

impl Counts {
    pub fn add(&mut self, kind: Kind) {
        match kind {
            Kind::Minor => self.minor += 1,
            Kind::Major => self.major += 1,
        }
    }

    pub fn total(self) -> u64 {
        self.minor.saturating_add(self.major)
    }

    fn and(self, other: Counts) -> Counts {
        Counts { minor: self.minor + other.minor, major: self.major + other.major }
    }
}

impl FaultSamples {
    /// Before there are any.
    pub fn asked(period: u64) -> FaultSamples {
        FaultSamples { asked: period, unseen: UNSEEN.to_owned(), ..FaultSamples::default() }
    }

    /// Samples of them all.
    pub fn all(&self) -> Counts {
        self.artifacts.and(self.other_files).and(self.anonymous).and(self.unknown)
    }

    /// About how many faults so many samples stand for: too few by up to a period for each thread on each CPU.
    pub fn estimate(&self, samples: Counts) -> u64 {
        let minor = samples.minor.saturating_mul(self.minor_period);
        minor.saturating_add(samples.major.saturating_mul(self.major_period.max(MAJOR_PERIOD)))
    }

    /// The counts of what lies behind an address.
    pub fn of(&mut self, place: Place) -> &mut Counts {
        match place {
            Place::Artifact { .. } => &mut self.artifacts,
            Place::OtherFile => &mut self.other_files,
            Place::Anonymous => &mut self.anonymous,
            Place::Unknown => &mut self.unknown,
        }
    }
}

/// A sample that lies in an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    pub at: At,
    pub pid: Pid,
    pub kind: Kind,
    pub artifact: ArtifactId,
    pub offset: u64,
}

/// A tensor of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPlace {
    pub name: String,
    pub dtype: String,
    pub begin: u64,
    pub end: u64,
}

/// All of it, loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// Samples in artifacts, in order of time.
    pub touches: Vec<Touch>,
    /// By artifact.
    pub layouts: BTreeMap<ArtifactId, Vec<TensorPlace>>,
    /// Resident bytes, by the time of the sample beside which they were asked for, artifact and tensor.
    pub resident: BTreeMap<At, BTreeMap<(ArtifactId, usize), u64>>,
}

impl Tensors {
    /// From a run's folder; `None` where it has none, and what could not be read goes into `gaps`.
    pub fn load(folder: &Path, meta: &Meta, gaps: &mut Vec<String>) -> Result<Option<Tensors>, RunError> {
        if meta.faults.is_none() {
            return Ok(None);
        }
        let mut tensors =
            Tensors { touches: read_rows(folder, FAULTS, gaps, |_, row| touch(row))?, ..Tensors::default() };
        // Rows of files that were found late come late.
        tensors.touches.sort_by_key(|touch| touch.at);
        let places = read_rows(folder, LAYOUT, gaps, |_, row| place(row).map(Some))?;
        for (artifact, place) in places {
            tensors.layouts.entry(artifact).or_default().push(place);
        }
        for (at, artifact, tensor, bytes) in read_rows(folder, RESIDENCY, gaps, |_, row| resident(row).map(Some))? {
            tensors.resident.entry(at).or_default().insert((artifact, tensor), bytes);
        }
        Ok(Some(tensors))
    }

    /// Finds an artifact's tensors by byte.
    pub fn locator(&self, artifact: ArtifactId) -> Locator {
        let places = self.layouts.get(&artifact).map(Vec::as_slice).unwrap_or_default();
        Locator::new(places.iter().map(|place| (place.begin, place.end)))
    }
}

fn number<T: TryFrom<i128>>(row: &ByteRecord, index: usize, name: &str) -> rows::RowResult<T> {
    let field = row.get(index).and_then(|field| std::str::from_utf8(field).ok());
    let value: Option<i128> = field.and_then(|field| field.parse().ok());
    let value = value.ok_or_else(|| format!("the field {name} is no number"))?;
    let value = rows::plausible(value, name)?;
    T::try_from(value).map_err(|_| format!("the field {name} is out of range: `{value}`"))
}

fn text(row: &ByteRecord, index: usize) -> String {
    row.get(index).map(|field| String::from_utf8_lossy(field).into_owned()).unwrap_or_default()
}

/// `None` for a row of a sample that lies in no artifact.
fn touch(row: &ByteRecord) -> rows::RowResult<Option<Touch>> {
    if row.get(2).is_none_or(<[u8]>::is_empty) {
        return Ok(None);
    }
    let kind = match row.get(5) {
        Some(b"minor") => Kind::Minor,
        Some(b"major") => Kind::Major,
        _ => return Err("the field kind is neither minor nor major".to_owned()),
    };
    let artifact = ArtifactId(number(row, 2, "artifact")?);
    let (at, pid) = (At(number(row, 0, "t_ns")?), number(row, 1, "pid")?);
    Ok(Some(Touch { at, pid, kind, artifact, offset: number(row, 3, "offset")? }))
}

fn place(row: &ByteRecord) -> rows::RowResult<(ArtifactId, TensorPlace)> {
    let place = TensorPlace {
        name: text(row, 2),
        dtype: text(row, 3),
        begin: number(row, 4, "begin")?,
        end: number(row, 5, "end")?,
    };
    Ok((ArtifactId(number(row, 0, "artifact")?), place))
}

fn resident(row: &ByteRecord) -> rows::RowResult<(At, ArtifactId, usize, u64)> {
    let artifact = ArtifactId(number(row, 1, "artifact")?);
    Ok((At(number(row, 0, "t_ns")?), artifact, number(row, 2, "tensor")?, number(row, 3, "resident_bytes")?))
}
