//! Which rank of a distributed launch each process is of, and what the processes of each rank hold and took together.
//!
//! A launcher tells a worker its rank in the environment, and a child inherits it: `/proc/PID/environ` is read once after
//! a birth or an exec, for these names alone, and nothing else of it is kept. It shows the environment that the program
//! was started with; what the program set itself later, as a Python parent does for workers that it forks, is not there.
//! The values are the launch's own word: digits or nothing.
//!
//! A variable that the profiler itself was started with names the launch as a whole, not a rank within it (a scheduler
//! starts the profiler once a rank): it is passed over.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Read;

use super::process::ProcessFigure;
use crate::event::Pid;
use crate::launch::tree::{ProcessKey, Tree};

/// A rank's number.
pub type Rank = u32;

/// The variables that number a rank among all, the one that is told to the worker itself first: a scheduler's number may
/// be that of a launcher which starts several.
const NAMES: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "LOCAL_RANK"];
/// … and those beside it.
const LOCAL_NAMES: [&str; 2] = ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"];
const WORLD_NAMES: [&str; 1] = ["WORLD_SIZE"];

/// Longest environment that is read, in bytes. Linux allows 6 MiB; what lies beyond is not seen.
const LONGEST: u64 = 512 * 1024;
/// Environments that are read in one look.
const MOST_AT_ONCE: usize = 64;
/// More ranks than this have no rows.
const MOST_RANKS: usize = 4_096;

/// What an environment says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub rank: Option<Rank>,
    pub local_rank: Option<Rank>,
    pub world_size: Option<Rank>,
}

/// One figure of one rank, for `detail.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFigure {
    pub rank: Rank,
    /// A process figure's name, summed over the rank's processes; or `processes`, `local_rank`, `world_size`.
    pub metric: &'static str,
    pub value: u64,
}

/// What a process was found to be of.
struct Known {
    image: u32,
    told: Told,
}

/// The probe.
pub struct RankProbe {
    known: HashMap<ProcessKey, Known>,
    /// What the profiler was started with.
    own: Vec<u8>,
    buffer: Vec<u8>,
}

impl Default for RankProbe {
    fn default() -> RankProbe {
        let mut own = Vec::new();
        let _ = read(std::process::id() as Pid, &mut own);
        RankProbe { known: HashMap::new(), own, buffer: Vec::new() }
    }
}

impl RankProbe {
    /// Reads the environment of those that were born or ran another program since the last look.
    pub fn tick(&mut self, tree: &Tree) {
        let mut left = MOST_AT_ONCE;
        for process in tree.processes().filter(|process| !process.has_ended) {
            if self.known.get(&process.key).is_some_and(|known| known.image == process.image) || left == 0 {
                continue;
            }
            left -= 1;
            self.buffer.clear();
            // Denied, or gone: no rank is known. In the middle of an exec it is empty, and asked for again.
            match read(process.key.pid, &mut self.buffer) {
                Ok(()) if self.buffer.is_empty() => continue,
                _ => {}
            }
            let told = parse(&self.buffer, &self.own);
            self.known.insert(process.key, Known { image: process.image, told });
        }
        if self.known.len() > tree.processes().count() {
            let is_there = |key: &ProcessKey| tree.process(key.pid).is_some_and(|process| process.key == *key);
            self.known.retain(|key, _| is_there(key));
        }
    }

    /// The figures of each rank: the sums of what its processes show. Counters are those of the processes that are there,
    /// with the children that they waited for.
    pub fn figures<'f>(&self, processes: impl Iterator<Item = &'f ProcessFigure>) -> Vec<RankFigure> {
        if self.known.values().all(|known| known.told.rank.is_none()) {
            return Vec::new();
        }
        let by_pid: HashMap<Pid, Told> = self.known.iter().map(|(key, known)| (key.pid, known.told)).collect();
        let mut ranks: BTreeMap<Rank, BTreeMap<&'static str, u64>> = BTreeMap::new();
        let mut members: HashMap<Rank, HashSet<Pid>> = HashMap::new();
        let mut shares: HashSet<Pid> = HashSet::new();
        for figure in processes {
            let Some(told) = by_pid.get(&figure.pid) else { continue };
            let (Some(rank), true) = (told.rank, SUMMED.contains(&figure.metric)) else { continue };
            if ranks.len() >= MOST_RANKS && !ranks.contains_key(&rank) {
                continue;
            }
            if figure.metric == "pss_anon_bytes" {
                shares.insert(figure.pid);
            }
            let sums = ranks.entry(rank).or_default();
            let sum = sums.entry(figure.metric).or_insert(0);
            *sum = sum.saturating_add(figure.value);
            if members.entry(rank).or_default().insert(figure.pid) {
                *sums.entry("processes").or_insert(0) += 1;
                for (metric, value) in [("local_rank", told.local_rank), ("world_size", told.world_size)] {
                    if let Some(value) = value {
                        sums.insert(metric, u64::from(value));
                    }
                }
            }
        }
        // A share that is not known of every process of a rank is not the rank's.
        let complete = |rank: &Rank, metric: &str| {
            !metric.starts_with("pss_") || members.get(rank).is_some_and(|members| members.is_subset(&shares))
        };
        let mut figures = Vec::new();
        for (rank, sums) in &ranks {
            figures.extend(
                sums.iter().filter(|(metric, _)| complete(rank, metric)).map(|(metric, value)| RankFigure {
                    rank: *rank,
                    metric,
                    value: *value,
                }),
            );
        }
        figures
    }
}

/// The process figures that are summed.
const SUMMED: [&str; 13] = [
    "rss_bytes",
    "rss_anon_bytes",
    "rss_file_bytes",
    "rss_shmem_bytes",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "rchar_bytes",
    "cpu_ns",
    "threads",
    "pss_anon_bytes",
    "pss_file_bytes",
    "pss_shmem_bytes",
];

fn read(pid: Pid, into: &mut Vec<u8>) -> std::io::Result<()> {
    File::open(format!("/proc/{pid}/environ"))?.take(LONGEST).read_to_end(into).map(|_| ())
}

/// What an environment says of a rank; what stands in `own` with the same value is passed over. A process may have set
/// a variable twice: the first counts, as getenv(3) has it.
fn parse(environment: &[u8], own: &[u8]) -> Told {
    let first = |names: &[&str], inherited_too: bool| {
        names.iter().find_map(|name| {
            let value = value(environment, name)?;
            let inherited = self::value(own, name) == Some(value);
            if inherited && !inherited_too {
                return None;
            }
            // Digits alone: `parse` takes a sign too.
            let digits =
                std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
            digits.parse().ok()
        })
    };
    let rank = first(&NAMES, false);
    let beside = |names: &[&str]| rank.and_then(|_| first(names, true));
    Told { rank, local_rank: beside(&LOCAL_NAMES), world_size: beside(&WORLD_NAMES) }
}

fn value<'e>(environment: &'e [u8], name: &str) -> Option<&'e [u8]> {
    environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(environment: &[u8], own: &[u8]) -> Option<Rank> {
        parse(environment, own).rank
    }

    #[test]
    fn the_workers_own_number_comes_first() {
        assert_eq!(rank(b"A=1\0SLURM_PROCID=0\0RANK=3\0", b""), Some(3));
        assert_eq!(rank(b"OMPI_COMM_WORLD_RANK=2\0LOCAL_RANK=0\0", b""), Some(2));
        assert_eq!(rank(b"LOCAL_RANK=1\0", b""), Some(1));
        assert_eq!(rank(b"XRANK=1\0RANKS=2\0", b""), None);
        let told = parse(b"RANK=5\0LOCAL_RANK=1\0WORLD_SIZE=8\0", b"WORLD_SIZE=8\0");
        assert_eq!(told, Told { rank: Some(5), local_rank: Some(1), world_size: Some(8) });
        assert_eq!(parse(b"WORLD_SIZE=8\0", b""), Told::default());
    }

    #[test]
    fn what_the_profiler_was_started_with_is_no_rank_within() {
        assert_eq!(rank(b"SLURM_PROCID=3\0", b"SLURM_PROCID=3\0"), None);
        assert_eq!(rank(b"SLURM_PROCID=3\0RANK=0\0", b"SLURM_PROCID=3\0"), Some(0));
        assert_eq!(rank(b"RANK=1\0", b"RANK=0\0"), Some(1));
    }

    #[test]
    fn values_are_digits_or_nothing() {
        for odd in [&b"RANK=\0"[..], b"RANK=-1\0", b"RANK=+1\0", b"RANK=99999999999\0", b"RANK=1x\0", b"RANK=\xff\0"] {
            assert_eq!(rank(odd, b""), None, "{odd:?}");
        }
        assert_eq!(rank(b"RANK=x\0SLURM_PROCID=4\0", b""), Some(4), "the next that is one");
    }
}
