//! What a tick of the residency probe costs: its distribution, over one artifact in the states that differ most.
//!
//! `cargo bench --bench residency [-- TICKS]` prints, for each state, percentiles of a tick's time (preemption included)
//! under the default budget at an interval of 5 ms, the age of the oldest part after it, what one call over the whole
//! file would have cost instead (mincore: over 4 GiB of it at most), and what the first pass cost. It needs 4 GiB of
//! memory for page cache and no disk: what is read are the holes of a sparse file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};

use stagemark::artifact::{Artifact, Format, Found, Layout};
use stagemark::probe::residency::ResidencyProbe;
use stagemark::sys::cache::{Mapping, cachestat, page_size};

const GIB: u64 = 1 << 30;
const BUDGET: Duration = Duration::from_micros(350);
const INTERVAL: Duration = Duration::from_millis(5);

/// Makes this program the one that fills the cache of the file on its standard input, in one of two ways.
const FILL: &str = "STAGEMARK_BENCH_FILL";
const IN_ORDER: &str = "in-order";
const BY_FAULTS: &str = "by-faults";

fn main() -> io::Result<()> {
    if let Ok(how) = std::env::var(FILL) {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        return if how == IN_ORDER { read_in_order(&file) } else { fault_in(&file, 4 * GIB) };
    }
    let ticks = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(2_000).max(1);
    println!("{ticks} ticks each, budget {BUDGET:?}, interval {INTERVAL:?}; times in µs");
    println!(
        "{:44} {:>8} {:>8} {:>8} {:>8} {:>12} {:>12} {:>10} {:>10}  by",
        "", "median", "p90", "p99", "max", "oldest p50", "cachestat", "mincore", "first pass"
    );
    let small = "4 GiB, faulted in under MADV_RANDOM";
    measure("4 GiB, read in order", 4 * GIB, ticks, read_in_order, None)?;
    measure(small, 4 * GIB, ticks, |file| fault_in(file, 4 * GIB), None)?;
    measure("4 GiB, a quarter faulted in so", 4 * GIB, ticks, |file| fault_in(file, GIB), None)?;
    measure("4 GiB, being read in order", 4 * GIB, ticks, |_| Ok(()), Some(IN_ORDER))?;
    measure("4 GiB, being faulted in under MADV_RANDOM", 4 * GIB, ticks, |_| Ok(()), Some(BY_FAULTS))?;
    measure("1 TiB, sparse", 1024 * GIB, ticks, |_| Ok(()), None)?;
    Ok(())
}

/// `before` brings in what is in memory from the first tick on, `beside` names what another process does meanwhile.
fn measure(
    name: &str,
    bytes: u64,
    ticks: usize,
    before: impl FnOnce(&File) -> io::Result<()>,
    beside: Option<&str>,
) -> io::Result<()> {
    let file = tempfile::tempfile()?;
    file.set_len(bytes)?;
    // Through a descriptor that cannot write, as a model is opened.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let reader = Arc::new(OpenOptions::new().read(true).open(&path)?);
    before(&reader)?;
    let mut probe = ResidencyProbe::new();
    let start = Instant::now();
    let trust = probe.add(&artifact(&reader, bytes), Duration::from_secs(60));
    let first_pass = micros(start.elapsed());
    let mut costs = Vec::with_capacity(ticks);
    let mut oldest = Vec::with_capacity(ticks);
    let mut other = match beside {
        Some(how) => Some(
            Command::new(std::env::current_exe()?)
                .env(FILL, how)
                .stdin(OpenOptions::new().read(true).open(&path)?)
                .spawn()?,
        ),
        None => None,
    };
    for _ in 0..ticks {
        std::thread::sleep(INTERVAL);
        let start = Instant::now();
        let reading = probe.tick(BUDGET);
        costs.push(start.elapsed());
        oldest.push(reading.stale_ns.map(Duration::from_nanos));
    }
    if let Some(other) = &mut other {
        let status = other.wait()?;
        if !status.success() {
            return Err(io::Error::other(format!("the process that fills the cache ended: {status}")));
        }
    }
    costs.sort_unstable();
    oldest.sort_unstable();
    let at = |share: f64| micros(costs[((costs.len() - 1) as f64 * share) as usize]);
    let oldest = oldest[oldest.len() / 2].map_or("-".into(), |oldest| format!("{:.0}", micros(oldest)));
    let start = Instant::now();
    let by_cachestat = cachestat(&reader, 0..bytes).map(|_| format!("{:.1}", micros(start.elapsed())));
    println!(
        "{name:44} {:8.1} {:8.1} {:8.1} {:8.1} {oldest:>12} {:>12} {:>10.0} {first_pass:>10.0}  {}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        by_cachestat.unwrap_or_else(|error| error.to_string()),
        whole_mincore(&reader, bytes.min(4 * GIB))?,
        trust.by,
    );
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(())
}

/// Microseconds of one mincore over at most the first 4 GiB.
fn whole_mincore(file: &File, bytes: u64) -> io::Result<f64> {
    let mut answer = vec![0; (bytes / page_size()) as usize];
    let mapping = Mapping::new(file, 0..bytes)?;
    let start = Instant::now();
    mapping.mincore(0..bytes, &mut answer)?;
    Ok(micros(start.elapsed()))
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn artifact(file: &Arc<File>, bytes: u64) -> Artifact {
    let payload = std::iter::once(1_000..bytes - 10).collect();
    Artifact {
        path: "model".into(),
        real_path: "model".into(),
        file: file.clone(),
        size: bytes,
        device: 0,
        inode: 0,
        modified_ns: 0,
        found: Found::Declared,
        format: Format::Raw,
        layout: Ok(Arc::new(Layout { payload, ..Layout::default() })),
        header_digest: None,
    }
}

fn read_in_order(file: &File) -> io::Result<()> {
    io::copy(&mut file.take(4 * GIB), &mut io::sink()).map(drop)
}

/// Faults each page in through a mapping without read-ahead, so that each is a page-cache entry of its own.
#[allow(unsafe_code)]
fn fault_in(file: &File, bytes: u64) -> io::Result<()> {
    let length = NonZeroUsize::new(bytes as usize).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: a new mapping at an address of the kernel's choice; nobody else has the file, so that it keeps its length
    // while it is read; nothing refers into the mapping when it goes.
    unsafe {
        let start = mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, file, 0)?;
        madvise(start, length.get(), MmapAdvise::MADV_RANDOM)?;
        for page in (0..length.get()).step_by(page_size() as usize) {
            std::ptr::read_volatile(start.as_ptr().cast::<u8>().add(page));
        }
        munmap(start, length.get())?;
    }
    Ok(())
}
