//! The perf events behind fault samples (perf_event_open(2)): one of minor faults, in whose rings also lies which process
//! maps what, and one of major faults.
//!
//! A fault taken inside get_user_pages (MAP_POPULATE, mlock, O_DIRECT into fresh memory) reaches no perf event
//! (mm/memory.c, `mm_account_fault`).

use std::num::NonZeroU64;

use nix::sys::resource::{Resource, getrlimit};
use perf_event_open::config::{Opts, SampleOn, UseBuildId};
use perf_event_open::event::sw::Software;

use super::record::{Kind, Record, Stamped, read};
use crate::probe::ring::{self, Rings};

/// Ring sizes to be tried, as powers of two of their pages: 128 KiB hold the samples of 20 ms at 150,000 a second…
const SIZES: &[u8] = &[5, 4, 3, 2];
/// … and where nearly every fault is a sample, 2 MiB.
const WIDE_SIZES: &[u8] = &[9, 8, 7, 6, 5, 4, 3, 2];
const WIDE_BELOW: u64 = 16;
/// For major faults 128 KiB: those of 20 ms at 100,000 a second, or of 200 ms in which a busy machine does not let the
/// profiler run.
const MAJOR_SIZES: &[u8] = &[5, 4, 3, 2, 1];

/// Of major faults each one is a sample: they are few, and each waits for a device.
pub const MAJOR_PERIOD: u64 = 1;

/// Descriptors that must be left for the rest of the profiler.
const SPARE_DESCRIPTORS: u64 = 128;

/// The rings of both events.
pub struct FaultRings {
    minor: Rings<Record>,
    major: Rings<Record>,
    /// Whether faults are sampled that the kernel takes on a process's behalf: those of read(2) into fresh memory.
    pub with_kernel: bool,
    /// One sample in so many minor faults.
    pub minor_period: u64,
}

impl FaultRings {
    /// Opens them on the calling thread, which must be the one that starts the command; one minor fault in `period` is
    /// a sample. Takes two descriptors a CPU.
    ///
    /// # Errors
    ///
    /// Why there are none, for people.
    pub fn open(period: NonZeroU64) -> Result<FaultRings, String> {
        let wanted = 2 * ring::online().len() as u64 + SPARE_DESCRIPTORS;
        if getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(soft, _)| soft < wanted) {
            return Err(format!("{wanted} descriptors are needed, more than `ulimit -n` allows"));
        }
        // An ordinary user may have to leave the kernel's faults out (kernel.perf_event_paranoid 2).
        open(period.get(), true).or_else(|_| open(period.get(), false))
    }

    /// Hands out everything that has come since the last call, ring by ring.
    pub fn drain(&mut self, mut take: impl FnMut(Stamped)) {
        // What is mapped was mapped before it was touched, so that its ring is looked at last.
        for (rings, kind) in [(&mut self.major, Kind::Major), (&mut self.minor, Kind::Minor)] {
            let records = rings.drain(|record| read(record, kind));
            records.into_iter().for_each(|(at, record)| take(Stamped { at, record }));
        }
    }

    /// The share of its ring that the fullest held when it was last drained.
    pub fn fullest(&self) -> f64 {
        self.minor.fullest().max(self.major.fullest())
    }

    /// Bytes of each CPU's ring of minor faults.
    pub fn bytes(&self) -> usize {
        self.minor.bytes()
    }

    /// Records that were lost for want of room, samples or others.
    pub fn lost(&self) -> u64 {
        self.minor.lost().saturating_add(self.major.lost())
    }

    /// The same as far as the stream has told it; costs nothing.
    pub fn told_lost(&self) -> u64 {
        self.minor.told_lost().saturating_add(self.major.told_lost())
    }
}

fn open(period: u64, with_kernel: bool) -> Result<FaultRings, String> {
    let mut options = Opts::default();
    options.exclude.kernel = !with_kernel;
    options.exclude.hv = !with_kernel;
    options.sample_format.data_addr = true;
    options.sample_on = SampleOn::Count(MAJOR_PERIOD);
    let major = Rings::open(Software::MajorPageFault, &options, MAJOR_SIZES)?;
    options.sample_on = SampleOn::Count(period);
    options.extra_record.task = true;
    options.extra_record.comm = true;
    options.extra_record.mmap.code = true;
    options.extra_record.mmap.data = true;
    options.extra_record.mmap.ext = Some(UseBuildId(false));
    let sizes = if period < WIDE_BELOW { WIDE_SIZES } else { SIZES };
    let minor = Rings::open(Software::MinorPageFault, &options, sizes)?;
    Ok(FaultRings { minor, major, with_kernel, minor_period: period })
}
