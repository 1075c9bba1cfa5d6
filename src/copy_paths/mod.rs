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
pub mod verdict;
pub mod way;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;

use crate::artifact::Artifact;
use crate::artifact::set::{Resolution, resolve};
use crate::event::{text_of, word_of};
use crate::units;
use destination::Kind;
use place::Lying;
use plan::Choice;
use rank::Order;
use ranks::Ranks;
use record::{ArtifactOf, Environment, Measured, Place, Record, SCHEMA, Series, Tensors};
use source::Span;
use state::State;
use way::Regime;

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

/// Measures. `progress` is told what is done next and how much is left, as a share.
pub fn measure(options: &Options, progress: &mut dyn FnMut(&str, f64)) -> anyhow::Result<Record> {
    let directory = std::env::current_dir()?;
    let Resolution { artifacts, warnings, .. } =
        resolve(std::slice::from_ref(&options.artifact), &[], &BTreeMap::new(), &directory);
    let chosen = plan::choose(&artifacts, options.choice);
    if chosen.is_empty() {
        let why = artifacts.iter().find_map(|artifact| artifact.layout.as_ref().err().cloned());
        let why = why.or_else(|| warnings.first().cloned()).unwrap_or_else(|| "it has no tensors".to_owned());
        anyhow::bail!("{}: nothing to copy: {why}", text_of(&options.artifact));
    }
    bounded(options, &chosen)?;
    let (destinations, told) = destinations(options)?;
    let tensors: Vec<Span> =
        chosen.iter().map(|chosen| Span { file: chosen.file, offset: chosen.offset, length: chosen.length }).collect();
    let mut record = Record {
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
    };
    let places = 1 + options.on.len();
    for index in 0..places {
        let lying = match index.checked_sub(1) {
            None => Lying::as_found(&artifacts),
            Some(copy) => {
                progress(&format!("copying to {}", text_of(&options.on[copy])), index as f64 / places as f64);
                Lying::copied(&artifacts, &options.on[copy])?
            }
        };
        let told = &mut |what: &str, share: f64| progress(what, (index as f64 + share) / places as f64);
        record.places.push(at_place(options, &artifacts, &lying, &tensors, &destinations, told)?);
    }
    Ok(record)
}

/// That it fits into memory.
fn bounded(options: &Options, chosen: &[plan::Chosen]) -> anyhow::Result<()> {
    let needed = plan::memory_needed(chosen, options.ranks.max(1) as usize);
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
        "{} of memory ({needed} bytes) are needed for {} and {}, and {by} is {}; --tensors takes fewer of them",
        units::bytes(needed),
        units::exactly(chosen.len() as u64, "tensor"),
        units::exactly(options.ranks.into(), "rank"),
        units::bytes(most)
    );
    Ok(())
}

/// Every number of ranks at one place.
fn at_place(
    options: &Options,
    artifacts: &[Artifact],
    lying: &Lying,
    tensors: &[Span],
    destinations: &[Kind],
    progress: &mut dyn FnMut(&str, f64),
) -> anyhow::Result<Place> {
    let (filesystem, storage) = lying.storage();
    let mut place =
        Place { directory: text_of(&lying.directory), is_copy: lying.is_copy, filesystem, storage, series: Vec::new() };
    let state = State::new(&lying.files, artifacts, tensors);
    let counts: Vec<u32> = if options.ranks > 1 { vec![1, options.ranks] } else { vec![1] };
    let steps = (counts.len() * destinations.len()) as f64;
    let mut step = 0.0;
    for &destination in destinations {
        for &count in &counts {
            let told = &mut |what: &str, share: f64| progress(what, (step + share) / steps);
            place.series.extend(series(options, &state, lying, tensors, destination, count, told)?);
            step += 1.0;
        }
    }
    Ok(place)
}

/// Every way, repeat by repeat, with the same ranks.
fn series(
    options: &Options,
    state: &State,
    lying: &Lying,
    tensors: &[Span],
    destination: Kind,
    count: u32,
    progress: &mut dyn FnMut(&str, f64),
) -> anyhow::Result<Vec<Series>> {
    let ways = plan::ways(&options.regimes);
    let mut ranks = Ranks::start(count as usize, &lying.files, tensors, destination, options.cuda_library.as_deref())?;
    let of_way = |way| Series { destination, ranks: count, way, refused: None, passes: Vec::new() };
    let mut all: Vec<Series> = ways.iter().copied().map(of_way).collect();
    // Repeat 0 warms up, and its bytes are compared.
    for repeat in 0..=options.repeats {
        let order = plan::order(&ways, repeat as usize);
        for (position, way) in order.into_iter().enumerate() {
            let Some(series) = all.iter_mut().find(|series| series.way == way) else { continue };
            if series.refused.is_some() {
                continue;
            }
            let share = (f64::from(repeat) + position as f64 / ways.len() as f64) / f64::from(options.repeats + 1);
            progress(
                &format!(
                    "{} · {} · {} · {way}",
                    text_of(&lying.directory),
                    destination.name(),
                    units::exactly(count.into(), "rank")
                ),
                share,
            );
            let resident = state.make(way.regime.is_cold()).context("the page cache")?;
            // The last one is compared too: what came to be during the repeats would show.
            let verify = repeat == 0 || repeat == options.repeats;
            match ranks.pass(Order { way, verify })? {
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
    }
    Ok(all)
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
