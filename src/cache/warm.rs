//! Reads files into the page cache at full speed: several threads, large reads.
//!
//! It refuses where they do not fit into what memory there is: the kernel would push out other files' pages, and in the
//! end these files' own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::artifact::Artifact;
use crate::host::{Mounts, Roots, cgroup, condition_now};
use crate::progress::StatusLine;
use crate::report::units;

/// Bytes that one read asks for.
const PIECE: u64 = 4 << 20;
/// More readers gain nothing on any device, and each has its buffer.
const MOST_THREADS: usize = 8;
/// How often progress is told, and the stop asked for.
const STEP: Duration = Duration::from_millis(100);

/// Who is told how far it is.
pub trait Progress {
    /// So many bytes of so many were read.
    fn at(&mut self, done: u64, of: u64);
}

/// What pages there is room for, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub bytes: u64,
    pub by: String,
}

impl Room {
    /// The least of MemAvailable and of what each control group of this process has left; page cache that a group holds
    /// already can be reclaimed, and is room.
    pub fn now() -> Option<Room> {
        let roots = Roots::default();
        let available = condition_now(&roots).memory_available_bytes;
        let host = available.map(|bytes| Room { bytes, by: "MemAvailable".to_owned() });
        let groups = cgroup::memory_groups(&roots, &Mounts::read(Path::new("/proc"))).into_iter().filter_map(|group| {
            let names = group.names();
            let file = if group.version == 2 { "memory.max" } else { "memory.limit_in_bytes" };
            let (limit, used) = (group.number(file)?, group.number(names.current)?);
            let cache = group.field("memory.stat", names.file).unwrap_or(0);
            let bytes = limit.saturating_sub(used.saturating_sub(cache));
            Some(Room { bytes, by: format!("{}/{file}", group.path()) })
        });
        host.into_iter().chain(groups).min_by_key(|room| room.bytes)
    }
}

/// Reads each file in whole; says of each what stood in the way. `before` is what is resident of what is watched of each.
pub(super) fn warm(
    artifacts: &[Artifact],
    before: &[Result<u64, String>],
    progress: &mut dyn Progress,
    stop: &dyn Fn() -> bool,
) -> Vec<Vec<String>> {
    let total: u64 = artifacts.iter().map(|artifact| artifact.size).fold(0, u64::saturating_add);
    let there: u64 = before.iter().flatten().fold(0, |sum, bytes| sum.saturating_add(*bytes));
    let wanted = total.saturating_sub(there);
    if let Some(room) = Room::now().filter(|room| room.bytes < wanted) {
        let note = format!(
            "not read: {} more would have to stay in memory, and {} has room for {}",
            units::bytes(wanted),
            room.by,
            units::bytes(room.bytes)
        );
        return vec![vec![note]; artifacts.len()];
    }
    let mut done = 0;
    let read = |artifact: &Artifact| {
        let mut tell = |bytes: u64| progress.at(done + bytes, total);
        let outcome = read_all(&artifact.file, artifact.size, &mut tell, stop);
        done += artifact.size;
        match outcome {
            Ok(true) => Vec::new(),
            Ok(false) => vec!["not read to its end: interrupted".to_owned()],
            Err(error) => vec![format!("not read to its end: {error}")],
        }
    };
    let notes = artifacts.iter().map(read).collect();
    progress.at(total, total);
    notes
}

/// Whether it was read to its end, and not stopped before.
fn read_all(file: &File, size: u64, tell: &mut dyn FnMut(u64), stop: &dyn Fn() -> bool) -> std::io::Result<bool> {
    let pieces = size.div_ceil(PIECE);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cpus.clamp(1, MOST_THREADS).min(usize::try_from(pieces).unwrap_or(MOST_THREADS));
    let (next, done, stopped) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let reader = || -> std::io::Result<()> {
        let mut buffer = vec![0; PIECE as usize];
        while !stopped.load(Relaxed) {
            let piece = next.fetch_add(1, Relaxed);
            if piece >= pieces {
                break;
            }
            let (mut at, end) = (piece * PIECE, size.min((piece + 1) * PIECE));
            while at < end {
                match file.read_at(&mut buffer[..(end - at) as usize], at) {
                    // It has become shorter meanwhile.
                    Ok(0) => break,
                    Ok(length) => at += length as u64,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        stopped.store(true, Relaxed);
                        return Err(error);
                    }
                }
            }
            done.fetch_add(end - piece * PIECE, Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(reader)).collect();
        let mut interrupted = false;
        let mut last = Instant::now();
        while running.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
            if last.elapsed() >= STEP {
                last = Instant::now();
                tell(done.load(Relaxed));
                interrupted |= stop();
                if interrupted {
                    stopped.store(true, Relaxed);
                }
            }
        }
        let outcomes = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a reader failed"))));
        outcomes.collect::<std::io::Result<()>>().map(|()| !interrupted)
    })
}

/// A line on standard error, where that is a terminal and reading takes longer than a moment.
pub struct OnTerminal {
    begun: Instant,
    line: StatusLine,
    last: Option<Instant>,
}

impl OnTerminal {
    /// Nothing is shown where it is to be quiet.
    pub fn unless(quiet: bool) -> OnTerminal {
        OnTerminal { begun: Instant::now(), line: StatusLine::unless(quiet), last: None }
    }
}

impl Progress for OnTerminal {
    fn at(&mut self, done: u64, of: u64) {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= Duration::from_millis(200));
        if done < of && is_due {
            self.last = Some(Instant::now());
            self.line.show(&line(done, of, self.begun.elapsed()));
        }
        if done >= of {
            self.line.clear();
        }
    }
}

/// `reading 1.2 GiB of 4 GiB, 800 MiB/s, 4 s left`.
fn line(done: u64, of: u64, since: Duration) -> String {
    let ns = since.as_nanos().max(1);
    let rate = u64::try_from(u128::from(done) * 1_000_000_000 / ns).unwrap_or(u64::MAX);
    let left = match rate {
        0 => String::new(),
        rate => format!(", {} s left", (of - done).div_ceil(rate)),
    };
    format!("reading {} of {}, {}/s{left}", units::bytes(done), units::bytes(of), units::bytes(rate))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_reading_and_is_no_error() {
        let file = tempfile::tempfile().unwrap();
        // Sparse, so that it takes long enough to be stopped.
        file.set_len(1 << 40).unwrap();
        let mut told = 0;
        assert!(!read_all(&file, 1 << 40, &mut |_| told += 1, &|| true).unwrap());
        assert_eq!(told, 1);
    }

    #[test]
    fn there_is_room_for_something_here() {
        let room = Room::now().unwrap();
        assert!(room.bytes > 0 && !room.by.is_empty(), "{room:?}");
    }

    #[test]
    fn the_line_says_how_long_it_takes() {
        let told = line(1 << 30, 3 << 30, Duration::from_secs(2));
        assert_eq!(told, "reading 1 GiB of 3 GiB, 512 MiB/s, 4 s left");
        assert_eq!(line(0, 1, Duration::ZERO), "reading 0 B of 1 B, 0 B/s");
    }
}
