//! `stagemark copy-paths`: is this host slow at copying weights out of a mapping?
//!
//! Copies tensors of an artifact to where they would be used, by each way that loaders have ([`way`]), and says which is the
//! fastest here, by how much, and whether that is more than the spread.
//!
//! # The picture
//!
//! ```text
//! artifact ─► plan: tensors, ways, order ─► each place ─► each number of ranks ─► each repeat, each way:
//!                                             state (cold, warm) ─► ranks (processes) ─► pass: prepare | copy
//!                                                                                         │
//!                                                record (raw) ◄──────────────────────────┘
//! record ─► summary (envelopes, ratios) ─► verdict ─► report: text | csv | png
//! ```
//!
//! Right of the record everything is pure: the same file gives the same tables.
//!
//! # What is measured
//!
//! A pass copies every chosen tensor, one after the other, to a destination that was allocated and touched before. Its two
//! clocks are told apart: `prepare` is all that stands before a copy (mmap, touching, reading, cloning, pinning), `copy` the
//! copies themselves, each completed before the clock stops. Taking memory back is in neither. Of several ranks the slowest
//! one counts, since the model is there when all are done.
//!
//! What was measured is kept, whatever ends it: a signal, a place that has no room, a rank that is killed.

pub mod counters;
pub mod destination;
mod environment;
mod place;
pub mod plan;
pub mod rank;
mod ranks;
pub mod record;
pub mod report;
pub mod source;
mod state;
pub mod summary;
pub mod turns;
pub mod verdict;
pub mod way;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use nix::sys::signal::Signal;

use crate::artifact::Artifact;
use crate::artifact::set::{Resolution, resolve};
use crate::event::{text_of, word_of};
use crate::launch::ending::Ending;
use crate::units;
use destination::Kind;
use place::Lying;
use plan::Choice;
use rank::Order;
use ranks::Ranks;
use record::{ArtifactOf, Environment, Measured, Place, Progress, Record, SCHEMA, Series, Tensors};
use source::Span;
use state::State;
use way::{Regime, Way};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    pub artifact: PathBuf,
    /// Folders to which the artifact is copied, to be measured there too.
    pub on: Vec<PathBuf>,
    pub choice: Choice,
    /// The largest number of ranks; with more than one, one is measured too.
    pub ranks: u32,
    pub repeats: u32,
    /// Only these; empty for all.
    pub regimes: Vec<Regime>,
    /// Where to; empty for each CUDA device, or host memory where there is none.
    pub to: Vec<To>,
    /// The CUDA driver's library, where it is not the loader's usual one.
    pub cuda_library: Option<PathBuf>,
    /// The most memory to be held at once; a half of what is available where it is not given.
    pub max_memory: Option<u64>,
}

/// A destination that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Host,
    /// One CUDA device, or every one.
    Cuda(Option<u32>),
}

/// The destinations, and what there is to know of the devices, as far as they were asked for.
fn destinations(options: &Options) -> anyhow::Result<(Vec<Kind>, Vec<String>)> {
    if !options.to.is_empty() && options.to.iter().all(|to| *to == To::Host) {
        return Ok((vec![Kind::Host], Vec::new()));
    }
    let rank::Devices { cuda: devices, links } = ranks::devices(options.cuda_library.as_deref());
    let names = devices.clone().unwrap_or_default();
    let named = names.iter().enumerate().map(|(ordinal, name)| format!("cuda:{ordinal} {name}"));
    let told: Vec<String> = named.chain(links).collect();
    let all = || (0..names.len() as u32).map(Kind::Cuda);
    if options.to.is_empty() {
        let kinds: Vec<Kind> = all().collect();
        return Ok((if kinds.is_empty() { vec![Kind::Host] } else { kinds }, told));
    }
    let mut kinds: Vec<Kind> = Vec::new();
    for to in &options.to {
        match to {
            To::Host => kinds.push(Kind::Host),
            To::Cuda(Some(ordinal)) => kinds.push(Kind::Cuda(*ordinal)),
            To::Cuda(None) => {
                let none =
                    || anyhow::anyhow!("--to cuda: {}", devices.as_ref().err().map_or("there is no device", |why| why));
                kinds.extend(all());
                all().next().ok_or_else(none)?;
            }
        }
    }
    kinds.sort();
    kinds.dedup();
    Ok((kinds, told))
}

/// What was measured.
#[derive(Debug)]
pub struct Done {
    pub record: Record,
    /// The signal that ended it before its time.
    pub signal: Option<Signal>,
}

/// Measures. `progress` is told what is done next and how much is left, as a share; `keep` is given the record after each
/// repeat, for the case that this process is killed.
///
/// # Errors
/// Nothing was measured; else the record says what ended it.
pub fn measure(
    options: &Options,
    progress: &mut dyn FnMut(&str, f64),
    keep: &mut dyn FnMut(&Record),
) -> anyhow::Result<Done> {
    let directory = std::env::current_dir()?;
    let Resolution { artifacts, warnings, .. } =
        resolve(std::slice::from_ref(&options.artifact), &[], &BTreeMap::new(), &directory);
    let chosen = plan::choose(&artifacts, options.choice);
    if chosen.is_empty() {
        let why = artifacts.iter().find_map(|artifact| artifact.layout.as_ref().err().cloned());
        let why = why.or_else(|| warnings.first().cloned()).unwrap_or_else(|| "it has no tensors".to_owned());
        anyhow::bail!("{}: nothing to copy: {why}", text_of(&options.artifact));
    }
    bounded(options, &artifacts, &chosen)?;
    let (destinations, told) = destinations(options)?;
    let tensors: Vec<Span> =
        chosen.iter().map(|chosen| Span { file: chosen.file, offset: chosen.offset, length: chosen.length }).collect();
    let record = Record {
        schema: SCHEMA,
        stagemark: env!("CARGO_PKG_VERSION").to_owned(),
        started: crate::clock::now_utc(),
        environment: Environment::look(told),
        artifacts: artifacts.iter().map(ArtifactOf::of).collect(),
        tensors: Tensors {
            chosen: tensors.len() as u64,
            of: plan::choose(&artifacts, Choice::All).len() as u64,
            bytes: tensors.iter().map(|tensor| tensor.length).sum(),
            largest_bytes: tensors.iter().map(|tensor| tensor.length).max().unwrap_or(0),
        },
        repeats: options.repeats,
        places: Vec::new(),
        warnings,
        state: Progress::Running,
        problem: None,
    };
    // Not before: a driver that never says which devices there are is ended by a signal as usual.
    let signals = Ending::hold().context("signals cannot be held")?;
    let mut course = Course { options, artifacts, tensors, signals, record, progress, keep };
    let outcome = course.go(&destinations);
    let Course { mut record, signals, .. } = course;
    let Err(error) = outcome else {
        record.state = Progress::Done;
        return Ok(Done { record, signal: None });
    };
    match signals.interrupted {
        Some(signal) => {
            record.state = Progress::Interrupted;
            record.problem = Some(format!("ended by {signal}"));
        }
        None if !record.is_of_use() => return Err(error),
        None => {
            record.state = Progress::Failed;
            record.problem = Some(format!("{error:#}"));
        }
    }
    Ok(Done { record, signal: signals.interrupted })
}

/// That it fits into memory.
fn bounded(options: &Options, artifacts: &[Artifact], chosen: &[plan::Chosen]) -> anyhow::Result<()> {
    // Copies are there one at a time.
    let memory = options.on.iter().find(|directory| place::is_memory(directory));
    let copy = memory.map_or(0, |_| artifacts.iter().fold(0, |sum: u64, artifact| sum.saturating_add(artifact.size)));
    let needed = plan::memory_needed(chosen, options.ranks.max(1) as usize).saturating_add(copy);
    let (most, by) = match options.max_memory {
        Some(most) => (most, "--max-memory"),
        None => {
            let available = crate::host::condition_now(&crate::host::Roots::default()).memory_available_bytes;
            let limit = crate::host::Host::of(&crate::host::Roots::default()).cgroups.memory_limit;
            let most = available.into_iter().chain(limit.map(|limit| limit.bytes)).min().unwrap_or(u64::MAX);
            (most / 2, "half of the memory that is available")
        }
    };
    anyhow::ensure!(
        needed <= most,
        "{} of memory ({needed} bytes) are needed for {} and {}{}, and {by} is {}; --tensors takes fewer of them",
        units::bytes(needed),
        units::exactly(chosen.len() as u64, "tensor"),
        units::exactly(options.ranks.into(), "rank"),
        memory.map(|directory| format!(" and a copy in {}, which is memory", text_of(directory))).unwrap_or_default(),
        units::bytes(most)
    );
    Ok(())
}

/// A part of all that is to be done, as shares of it.
#[derive(Clone, Copy)]
struct Part {
    begin: f64,
    width: f64,
}

impl Part {
    const ALL: Part = Part { begin: 0.0, width: 1.0 };

    /// One of so many equal parts of it.
    fn one(self, index: usize, of: usize) -> Part {
        let width = self.width / of.max(1) as f64;
        Part { begin: self.begin + width * index as f64, width }
    }
}

/// A measurement under way. The record is filled as it goes, so that it has what was measured whatever comes after.
struct Course<'o> {
    options: &'o Options,
    artifacts: Vec<Artifact>,
    tensors: Vec<Span>,
    signals: Ending,
    record: Record,
    progress: &'o mut dyn FnMut(&str, f64),
    keep: &'o mut dyn FnMut(&Record),
}

impl Course<'_> {
    /// Every place.
    fn go(&mut self, destinations: &[Kind]) -> anyhow::Result<()> {
        let options = self.options;
        let places = 1 + options.on.len();
        for index in 0..places {
            let part = Part::ALL.one(index, places);
            let lying = match index.checked_sub(1) {
                None => Lying::as_found(&self.artifacts),
                Some(copy) => {
                    let directory = &options.on[copy];
                    (self.progress)(&format!("copying to {}", text_of(directory)), part.begin);
                    Lying::copied(&self.artifacts, directory, &mut self.signals)?
                }
            };
            let (filesystem, storage) = lying.storage();
            let (directory, is_copy) = (text_of(&lying.directory), lying.is_copy);
            self.record.places.push(Place { directory, is_copy, filesystem, storage, series: Vec::new() });
            self.at_place(index, &lying, destinations, part)?;
        }
        Ok(())
    }

    /// Every destination and number of ranks; `place` is its number in the record.
    fn at_place(&mut self, place: usize, lying: &Lying, destinations: &[Kind], part: Part) -> anyhow::Result<()> {
        let state = State::new(&lying.files, &self.artifacts, &self.tensors);
        let counts: Vec<u32> = if self.options.ranks > 1 { vec![1, self.options.ranks] } else { vec![1] };
        let steps = counts.len() * destinations.len();
        let all = destinations.iter().flat_map(|&destination| counts.iter().map(move |&count| (destination, count)));
        for (step, (destination, count)) in all.enumerate() {
            let part = part.one(step, steps);
            (self.progress)(&format!("{} · {}", text_of(&lying.directory), destination.name()), part.begin);
            let library = self.options.cuda_library.as_deref();
            let (files, tensors) = (&lying.files, &self.tensors);
            let ranks = Ranks::start(count as usize, files, tensors, destination, library, &mut self.signals)?;
            let ways = plan::ways(&self.options.regimes);
            let of_way = |&way: &Way| Series { destination, ranks: count, way, refused: None, passes: Vec::new() };
            let all = &mut self.record.places[place].series;
            let begin = all.len();
            all.extend(ways.iter().map(of_way));
            self.series(place, begin, &state, ranks, part)?;
        }
        Ok(())
    }

    /// Every way, repeat by repeat, with the same ranks: the series of a place from `begin` on.
    fn series(
        &mut self,
        place: usize,
        begin: usize,
        state: &State,
        mut ranks: Ranks,
        part: Part,
    ) -> anyhow::Result<()> {
        let repeats = self.options.repeats;
        let ways: Vec<Way> = self.record.places[place].series[begin..].iter().map(|series| series.way).collect();
        // Repeat 0 warms up, and its bytes are compared.
        for repeat in 0..=repeats {
            let part = part.one(repeat as usize, repeats as usize + 1);
            let order = repeat.checked_sub(1).map_or_else(|| ways.clone(), |at| plan::order(&ways, at as usize));
            for (position, way) in order.into_iter().enumerate() {
                let Some(at) = ways.iter().position(|other| *other == way) else { continue };
                let at_place = &self.record.places[place];
                let series = &at_place.series[begin + at];
                if series.refused.is_some() {
                    continue;
                }
                let ranked = units::exactly(series.ranks.into(), "rank");
                let what = format!("{} · {} · {ranked} · {way}", at_place.directory, series.destination.name());
                (self.progress)(&what, part.one(position, ways.len()).begin);
                let resident = state.make(way.regime.is_cold(), &mut self.signals).context("the page cache")?;
                // The last one is compared too: what came to be during the repeats would show.
                let verify = repeat == 0 || repeat == repeats;
                let passed = ranks.pass(Order { way, verify }, &mut self.signals)?;
                let series = &mut self.record.places[place].series[begin + at];
                match passed {
                    Ok(passes) => series.passes.extend(passes.into_iter().zip(0..).map(|(pass, rank)| Measured {
                        repeat,
                        position: position as u32,
                        rank,
                        resident_before_bytes: resident.clone().ok(),
                        resident_before_reason: resident.clone().err(),
                        pass,
                    })),
                    Err(why) => series.refused = Some(why),
                }
            }
            if repeat > 0 {
                (self.keep)(&self.record);
            }
        }
        Ok(())
    }
}

impl ArtifactOf {
    fn of(artifact: &Artifact) -> ArtifactOf {
        ArtifactOf {
            path: text_of(&artifact.path),
            format: word_of(&artifact.format),
            size_bytes: artifact.size,
            header_digest: artifact.header_digest.clone(),
        }
    }
}
