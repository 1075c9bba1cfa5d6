//! Fault samples and per-tensor residency on their way into the run folder: a thread that drains the kernel's rings and
//! appends rows, so that no tick waits for it.
//!
//! What is refused (perf events, the thread, the files) costs these files, and `run.json` says why.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::folder::{Folder, Sink};
use crate::artifact::Artifact;
use crate::artifact::locate::Locator;
use crate::clock::{At, Clock};
use crate::event::{ArtifactId, Pid};
use crate::probe::fault::{Fault, FaultProbe, FaultRings, Kind, MAJOR_PERIOD, Place};
use crate::probe::residency::TensorResidency;
use crate::report::text::plain;
use crate::run::faults::{FAULT_HEADER, FAULTS, FaultSamples, LAYOUT, LAYOUT_HEADER, RESIDENCY, RESIDENCY_HEADER};

/// Between two drains…
const DRAIN: Duration = Duration::from_millis(20);
/// … and where a ring was found half full or more.
const HURRY: Duration = Duration::from_millis(4);
const FULL: f64 = 0.5;

/// `faults.csv` takes no more than this; from then on only the first fault of each tensor by each process has a row.
const LIMIT: u64 = 64 << 20;
/// Samples outside the artifacts take no more than this of it.
const OUTSIDE_LIMIT: u64 = 16 << 20;
/// `tensor_residency.csv` takes no more than this.
const RESIDENCY_LIMIT: u64 = 64 << 20;

/// What was opened before the command's start.
pub struct Prepared {
    rings: Option<FaultRings>,
    samples: FaultSamples,
    sinks: Option<Sinks>,
}

struct Sinks {
    faults: Sink,
    layout: Sink,
    residency: Sink,
}

impl Prepared {
    /// Opens the events on the calling thread, which must be the one that starts the command, and the files.
    pub fn open(period: NonZeroU64, folder: Option<&Folder>) -> Prepared {
        let mut samples = FaultSamples::asked(period.get());
        let rings = match FaultRings::open(period) {
            Ok(rings) => {
                samples.minor_period = rings.minor_period;
                samples.major_period = MAJOR_PERIOD;
                samples.kernel = Some(rings.with_kernel);
                samples.ring_bytes = rings.bytes() as u64;
                Some(rings)
            }
            Err(why) => {
                samples.unavailable = Some(why);
                None
            }
        };
        let sinks = folder.and_then(|folder| {
            let sinks = (|| {
                std::io::Result::Ok(Sinks {
                    faults: folder.sink(FAULTS, &FAULT_HEADER)?,
                    layout: folder.sink(LAYOUT, &LAYOUT_HEADER)?,
                    residency: folder.sink(RESIDENCY, &RESIDENCY_HEADER)?,
                })
            })();
            sinks.map_err(|error| samples.unavailable = Some(format!("the files could not be made: {error}"))).ok()
        });
        Prepared { rings, samples, sinks }
    }

    /// Begins to drain. `discover`: files may join the set after start.
    pub fn start(self, clock: Clock, artifacts: Vec<Artifact>, discover: bool) -> FaultLog {
        let state = Arc::new(Mutex::new(State { samples: self.samples, losses: Vec::new() }));
        let (sender, receiver) = channel();
        let mut log = FaultLog { sender, state: state.clone(), thread: None };
        if let Some(sinks) = self.sinks {
            let worker = Worker {
                probe: self.rings.map(|rings| FaultProbe::new(rings, discover)),
                clock,
                sinks,
                state,
                artifacts: Vec::new(),
                tensors: Vec::new(),
                firsts: HashSet::new(),
                outside: 0,
                residency_cut: false,
            };
            let thread = std::thread::Builder::new().name("faults".into());
            match thread.spawn(move || worker.run(&receiver)) {
                Ok(thread) => log.thread = Some(thread),
                Err(error) => log.state().samples.unavailable = Some(format!("no thread: {error}")),
            }
        }
        log.artifacts(artifacts);
        log
    }
}

struct State {
    samples: FaultSamples,
    losses: Vec<String>,
}

enum Told {
    Artifacts(Vec<Artifact>),
    Residency(At, Vec<TensorResidency>),
    SetClosed,
    End,
}

/// The recorder's end of it.
pub struct FaultLog {
    sender: Sender<Told>,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultLog {
    /// The set as it is now.
    pub fn artifacts(&self, artifacts: Vec<Artifact>) {
        self.tell(Told::Artifacts(artifacts));
    }

    /// What was resident of each tensor beside the sample of this time.
    pub fn residency(&self, at: At, tensors: Vec<TensorResidency>) {
        self.tell(Told::Residency(at, tensors));
    }

    /// No file joins the set any more.
    pub fn set_closed(&self) {
        self.tell(Told::SetClosed);
    }

    /// For `run.json`.
    pub fn samples(&self) -> FaultSamples {
        self.state().samples.clone()
    }

    /// What could not be written.
    pub fn losses(&self) -> Vec<String> {
        self.state().losses.clone()
    }

    /// Drains for the last time; returns when all is written.
    pub fn finish(&mut self) {
        self.tell(Told::End);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.state().samples.unavailable = Some("the thread that takes the samples failed".to_owned());
        }
    }

    fn tell(&self, told: Told) {
        // A thread that could not be started hears nothing.
        let _ = self.sender.send(told);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept of an artifact's tensors: their names as cells, and where they lie.
struct Names {
    names: Vec<Vec<u8>>,
    locator: Locator,
}

struct Worker {
    probe: Option<FaultProbe>,
    clock: Clock,
    sinks: Sinks,
    state: Arc<Mutex<State>>,
    artifacts: Vec<Artifact>,
    /// By artifact.
    tensors: Vec<Names>,
    /// Whose first fault has a row, once the file is full: artifact, tensor, process.
    firsts: HashSet<(ArtifactId, Option<usize>, Pid)>,
    /// Bytes of rows about samples outside the artifacts.
    outside: u64,
    residency_cut: bool,
}

impl Worker {
    fn run(mut self, receiver: &Receiver<Told>) {
        let mut wait = DRAIN;
        loop {
            match receiver.recv_timeout(wait) {
                Ok(Told::Artifacts(artifacts)) => self.learn(artifacts),
                Ok(Told::Residency(at, tensors)) => self.residency(at, &tensors),
                Ok(Told::SetClosed) => self.probe.iter_mut().for_each(FaultProbe::close),
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // What was told came in between; the rings are looked at in any case, no less often than told.
            if let Some(probe) = &mut self.probe {
                let faults = probe.drain();
                wait = if probe.rings().fullest() >= FULL { HURRY } else { DRAIN };
                self.enter(&faults);
            }
        }
        let faults = self.probe.as_mut().map(FaultProbe::finish).unwrap_or_default();
        self.enter(&faults);
        if let Some(probe) = &self.probe {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).samples.lost_records = probe.rings().lost();
        }
    }

    /// Takes the set as it is now, and writes where the tensors of its new members lie.
    fn learn(&mut self, artifacts: Vec<Artifact>) {
        self.artifacts = artifacts;
        for (index, artifact) in self.artifacts.iter().enumerate().skip(self.tensors.len()) {
            let tensors = artifact.layout.as_ref().map(|layout| layout.tensors.as_slice()).unwrap_or_default();
            let ends = tensors.iter().map(|tensor| (tensor.offset, tensor.offset.saturating_add(tensor.length)));
            let names: Vec<Vec<u8>> = tensors.iter().map(|tensor| cell(&tensor.name)).collect();
            let locator = Locator::new(ends.clone());
            for (number, ((tensor, name), (begin, end))) in tensors.iter().zip(&names).zip(ends).enumerate() {
                let mut row = format!("{index},{number},").into_bytes();
                row.extend_from_slice(name);
                row.push(b',');
                row.extend(cell(&tensor.dtype));
                row.extend_from_slice(format!(",{begin},{end}\n").as_bytes());
                self.sinks.layout.push(&row);
            }
            self.tensors.push(Names { names, locator });
        }
        self.sinks.layout.flush();
        if let Some(probe) = &mut self.probe {
            probe.learn(&self.artifacts);
        }
        self.tell();
    }

    fn residency(&mut self, at: At, tensors: &[TensorResidency]) {
        for TensorResidency { artifact, tensor, resident_bytes } in tensors {
            if self.sinks.residency.length() >= RESIDENCY_LIMIT {
                self.residency_cut = true;
                break;
            }
            self.sinks.residency.push(format!("{},{},{tensor},{resident_bytes}\n", at.0, artifact.0).as_bytes());
        }
        self.sinks.residency.flush();
        self.tell();
    }

    fn enter(&mut self, faults: &[Fault]) {
        let (mut counts, mut left_out) = (FaultSamples::default(), FaultSamples::default());
        for fault in faults {
            counts.of(fault.place).add(fault.kind);
            if !self.row(fault) {
                left_out.left_out.add(fault.kind);
            }
        }
        self.sinks.faults.flush();
        if !faults.is_empty() {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let samples = &mut state.samples;
            for (into, from) in [
                (&mut samples.artifacts, counts.artifacts),
                (&mut samples.other_files, counts.other_files),
                (&mut samples.anonymous, counts.anonymous),
                (&mut samples.unknown, counts.unknown),
                (&mut samples.left_out, left_out.left_out),
            ] {
                into.minor += from.minor;
                into.major += from.major;
            }
        }
        self.tell();
    }

    /// Writes a fault's row, unless the file is full.
    fn row(&mut self, fault: &Fault) -> bool {
        let kind = match fault.kind {
            Kind::Minor => "minor",
            Kind::Major => "major",
        };
        let Fault { at, pid, address, place, .. } = fault;
        let t = self.clock.at(*at).0;
        let full = self.sinks.faults.length() >= LIMIT;
        let behind = match place {
            Place::Artifact { artifact, offset } => {
                let names = self.tensors.get(artifact.0);
                let tensor = names.and_then(|names| names.locator.at(*offset));
                if full && !self.firsts.insert((*artifact, tensor, *pid)) {
                    return false;
                }
                let name = names.zip(tensor).map(|(names, tensor)| names.names[tensor].as_slice()).unwrap_or_default();
                let mut row = format!("{t},{pid},{},{offset},", artifact.0).into_bytes();
                row.extend_from_slice(name);
                row.extend_from_slice(format!(",{kind},{address},artifact\n").as_bytes());
                self.sinks.faults.push(&row);
                return true;
            }
            Place::OtherFile => "file",
            Place::Anonymous => "anonymous",
            Place::Unknown => "unknown",
        };
        if full || self.outside >= OUTSIDE_LIMIT {
            return false;
        }
        let row = format!("{t},{pid},,,,{kind},{address},{behind}\n");
        self.outside += row.len() as u64;
        self.sinks.faults.push(row.as_bytes());
        true
    }

    /// What is asked for from other threads.
    fn tell(&self) {
        let sinks = [&self.sinks.faults, &self.sinks.layout, &self.sinks.residency];
        let mut losses: Vec<String> = sinks.into_iter().filter_map(Sink::loss).collect();
        if self.residency_cut {
            losses.push(format!("{RESIDENCY}: ends at its limit of {} MiB", RESIDENCY_LIMIT >> 20));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.losses = losses;
        if let Some(probe) = &self.probe {
            state.samples.lost_records = probe.rings().told_lost();
        }
    }
}

/// A text as a cell, quoted where need be (RFC 4180), on one line, and none that a spreadsheet would run.
fn cell(text: &str) -> Vec<u8> {
    let mut text = plain(text);
    if text.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']) {
        text.insert(0, '\'');
    }
    if text.contains([',', '"']) {
        text = format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cells() {
        for (name, expected) in
            [("a.b", "a.b"), ("a,b", "\"a,b\""), ("=1", "'=1"), ("a\"b", "\"a\"\"b\""), ("a\nb", "a\\nb")]
        {
            assert_eq!(String::from_utf8_lossy(&cell(name)), expected);
        }
    }
}
