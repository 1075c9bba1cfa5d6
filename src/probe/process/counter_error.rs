//! How far the kernel's resident-set counter, and with it VmHWM, may be from the truth.
//!
//! A process image has three counters of resident pages: anonymous, file-backed, shared memory. Their sum is what the
//! kernel compares with the high-water mark just before a part of it is given back (`update_hiwater_rss`,
//! include/linux/mm.h), and for that it takes them as they stand, without what is held back:
//!
//! - since Linux 6.2 each processor holds back up to a batch of pages of each counter, of either sign; a batch is 32
//!   pages, or twice the number of processors if that is more (lib/percpu_counter.c);
//! - before, each thread held back the pages of up to 64 faults, of either sign (mm/memory.c, `TASK_RSS_EVENTS_THRESH`).
//!
//! So a mark may be too low, or too high, by what all of them hold back. That is the most: 220 KiB was seen where this
//! says 744.

use nix::unistd::{SysconfVar, sysconf};

/// Counters of resident pages: anonymous, file-backed, shared memory.
const COUNTERS: u64 = 3;
/// The smallest batch of a per-processor counter, in pages.
const SMALLEST_BATCH: u64 = 32;
/// Pages that a thread holds back before Linux 6.2, the one that makes it give them up included.
const PAGES_OF_A_THREAD: u64 = 65;

/// Who holds back resident pages, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterError {
    /// Each processor; bytes for one process image.
    Processors { bytes: u64 },
    /// Each thread; bytes for one of them. Of how many there were, the most that a look saw is known.
    Threads { bytes: u64 },
}

impl CounterError {
    /// For the kernel and the processors of this machine.
    pub fn here() -> CounterError {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        // Those that could be there: a processor that is taken offline gives up what it holds back, and where files are
        // made up for a container this one is commonly left as it is.
        let cpus = crate::host::list_length(text("/sys/devices/system/cpu/present").trim());
        let cpus = cpus.or_else(|| std::thread::available_parallelism().ok().map(|count| count.get() as u64));
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| u64::try_from(size).ok());
        CounterError::of(&text("/proc/sys/kernel/osrelease"), cpus.unwrap_or(1), page.unwrap_or(4096))
    }

    /// For a kernel's release, a number of processors and a page size in bytes.
    pub fn of(release: &str, cpus: u64, page: u64) -> CounterError {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
        let version = (numbers.next().flatten(), numbers.next().flatten());
        match version {
            (Some(major), Some(minor)) if (major, minor) < (6, 2) => {
                CounterError::Threads { bytes: PAGES_OF_A_THREAD * page }
            }
            _ => {
                let batch = SMALLEST_BATCH.max(2 * cpus);
                // A batch itself is handed over at once.
                CounterError::Processors { bytes: COUNTERS * cpus * (batch - 1) * page }
            }
        }
    }

    /// The most that the mark of one process image with so many threads may be off, in bytes.
    pub fn bytes(self, threads: u64) -> u64 {
        match self {
            CounterError::Processors { bytes } => bytes,
            CounterError::Threads { bytes } => bytes.saturating_mul(threads.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_with_the_number_of_processors() {
        let bytes = |cpus, page| CounterError::of("6.18.44", cpus, page).bytes(1);
        assert_eq!(bytes(1, 4096), 3 * 31 * 4096);
        assert_eq!(bytes(2, 4096), 3 * 2 * 31 * 4096);
        assert_eq!(bytes(16, 4096), 3 * 16 * 31 * 4096);
        assert_eq!(bytes(64, 65536), 3 * 64 * 127 * 65536);
        assert!(matches!(CounterError::of("7.0.0-rc1", 2, 4096), CounterError::Processors { .. }));
    }

    #[test]
    fn older_kernels_hold_back_by_thread() {
        for release in ["5.15.0-91-generic", "6.1.0", "4.18.0-553.el8"] {
            let error = CounterError::of(release, 64, 4096);
            assert_eq!((error.bytes(1), error.bytes(3)), (65 * 4096, 3 * 65 * 4096), "{release}");
        }
        assert!(matches!(CounterError::of("6.2.0", 64, 4096), CounterError::Processors { .. }));
        assert!(matches!(CounterError::of("?", 64, 4096), CounterError::Processors { .. }));
    }

    #[test]
    fn this_machine_has_one() {
        assert!(CounterError::here().bytes(1) >= 65 * 4096);
    }
}
