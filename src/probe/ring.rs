//! A perf event with a ring buffer a CPU, inherited by everything that the command starts (perf_event_open(2)).
//!
//! Opened disabled on the thread that will start the command, and enabled by its exec: the profiler itself, which never
//! execs, is not in it. An inherited event can have no ring over all CPUs, so there is one event and one ring for each,
//! and what they hold is put in order of time here. Says how much the kernel had to drop; what a record means is for
//! whoever asked for it.

use std::io;

use perf_event_open::config::{Clock, Cpu, Inherit, OnExecve, Opts, Proc};
use perf_event_open::count::Counter;
use perf_event_open::event::sw::Software;
use perf_event_open::sample::Sampler;
use perf_event_open::sample::record::{Record, RecordId};

use crate::clock::Mono;

/// The rings of one event, and those of their records that are too young to be told in order.
///
/// To be used on any one thread at a time.
pub struct Rings<T> {
    rings: Vec<Ring>,
    bytes: usize,
    held: Vec<(Mono, T)>,
    /// What the LOST records so far add up to.
    told_lost: u64,
    fullest: f64,
}

struct Ring {
    // Before the event, which its mapping is of.
    sampler: Sampler,
    counter: Counter,
    counts_lost: bool,
}

impl<T> Rings<T> {
    /// Opens the event on the calling thread, which must be the one that starts the command, and which must start
    /// nothing else from here on: whatever it starts would be in it from its exec on.
    ///
    /// `options` says which records and samples; inheritance, the enabling by exec, the clock (CLOCK_MONOTONIC) and the
    /// record's time and task are set here. `sizes` are ring sizes to be tried in turn, each as the power of two of
    /// its pages: less room is better than none, where memory that stays locked is limited (kernel.perf_event_mlock_kb
    /// and RLIMIT_MEMLOCK). Takes a descriptor a CPU.
    ///
    /// # Errors
    /// All or nothing: with one CPU missing nobody could say what was not seen. The reason is for people.
    pub fn open(event: Software, options: &Opts, sizes: &[u8]) -> Result<Rings<T>, String> {
        let mut options = options.clone();
        options.inherit = Some(Inherit::NewChild);
        options.on_execve = Some(OnExecve::Enable);
        options.enable = false;
        options.timer = Some(Clock::Monotonic);
        options.record_id_all = true;
        options.record_id_format.time = true;
        options.record_id_format.task = true;
        options.stat_format.lost_records = true;
        let (counters, counts_lost) = match open_each(event, &options) {
            // Before Linux 6.0 the event's own count of what was lost is unknown.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                options.stat_format.lost_records = false;
                (open_each(event, &options), false)
            }
            opened => (opened, true),
        };
        let counters = counters.map_err(|error| refused(&error))?;
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for &size in sizes {
            match counters.iter().map(|counter| counter.sampler(size)).collect::<io::Result<Vec<Sampler>>>() {
                Ok(samplers) => {
                    let pairs = samplers.into_iter().zip(counters);
                    let rings = pairs.map(|(sampler, counter)| Ring { sampler, counter, counts_lost }).collect();
                    let bytes = page_size() << size;
                    return Ok(Rings { rings, bytes, held: Vec::new(), told_lost: 0, fullest: 0.0 });
                }
                Err(error) => last = error,
            }
        }
        Err(format!(
            "mapping the ring buffers: {last}{}",
            match last.raw_os_error() {
                Some(libc::EPERM | libc::ENOMEM) =>
                    "; they are limited by kernel.perf_event_mlock_kb and RLIMIT_MEMLOCK",
                _ => "",
            }
        ))
    }

    /// How many rings there are: one for each CPU that was online.
    pub fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// Bytes that each ring has room for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes out what the rings hold. `pick` says what of it is kept, and is asked ring by ring; what it keeps is
    /// returned in order of time, up to the beginning of this call. What is younger is kept for the next, since another ring
    /// may by now hold something older than that.
    ///
    /// A record is in its ring before whatever it tells of can be seen elsewhere, but for the first microseconds of a
    /// process: a call that begins after something was seen returns its record.
    pub fn drain(&mut self, mut pick: impl FnMut(Record) -> Option<T>) -> Vec<(Mono, T)> {
        let begun = Mono::now();
        self.fullest = 0.0;
        for ring in &mut self.rings {
            // Nobody else has an iterator of it.
            let Some(records) = ring.sampler.iter() else { continue };
            let mut records = records.into_cow();
            let mut bytes = 0;
            // What is behind so many bytes was written meanwhile, and its writer may be faster than this.
            while bytes < self.bytes
                && let Some(raw) = records.lending_next()
            {
                bytes += raw.as_raw().len();
                let (_, record) = raw.parse();
                if let Record::LostRecords(lost) = &record {
                    self.told_lost += lost.lost_records;
                }
                if let Some(at) = time_of(&record)
                    && let Some(kept) = pick(record)
                {
                    self.held.push((at, kept));
                }
            }
            self.fullest = self.fullest.max(bytes as f64 / self.bytes as f64);
        }
        // Stable: records of one moment stay in the order of their ring.
        self.held.sort_by_key(|(at, _)| *at);
        let ready = self.held.partition_point(|(at, _)| *at <= begun);
        self.held.drain(..ready).collect()
    }

    /// The share of its ring that the fullest held when it was last drained.
    pub fn fullest(&self) -> f64 {
        self.fullest
    }

    /// How many records the kernel had no room for so far: by the events' own counts (PERF_FORMAT_LOST, one read(2)
    /// each) where it has them, else by its LOST records, which come with the next record that has room.
    pub fn lost(&self) -> u64 {
        let counted = self.rings.iter().map(|ring| match ring.counts_lost {
            true => ring.counter.stat().ok()?.lost_records,
            false => None,
        });
        counted.sum::<Option<u64>>().map_or(self.told_lost, |counted| counted.max(self.told_lost))
    }

    /// What the LOST records so far add up to; costs nothing.
    pub fn told_lost(&self) -> u64 {
        self.told_lost
    }
}

/// A record's own time.
fn time_of(record: &Record) -> Option<Mono> {
    let id: Option<&RecordId> = match record {
        Record::Sample(sample) => Some(&sample.record_id),
        Record::Mmap(mapping) => mapping.record_id.as_ref(),
        Record::Comm(comm) => comm.record_id.as_ref(),
        Record::Fork(fork) => fork.record_id.as_ref(),
        Record::Exit(exit) => exit.record_id.as_ref(),
        Record::LostRecords(lost) => lost.record_id.as_ref(),
        Record::LostSamples(lost) => lost.record_id.as_ref(),
        Record::Throttle(throttle) => throttle.record_id.as_ref(),
        Record::Unthrottle(unthrottle) => unthrottle.record_id.as_ref(),
        _ => None,
    };
    id?.time.map(Mono)
}

fn open_each(event: Software, options: &Opts) -> io::Result<Vec<Counter>> {
    let mut counters = Vec::new();
    for cpu in online() {
        match Counter::new(event, (Proc::CURRENT, Cpu(cpu)), options) {
            Ok(counter) => counters.push(counter),
            // Taken offline meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    if counters.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    Ok(counters)
}

/// The CPUs that are online (Documentation/admin-guide/cputopology.rst).
pub fn online() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let listed = listed(text.trim());
    if !listed.is_empty() {
        return listed;
    }
    let configured = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_CONF).ok().flatten();
    (0..configured.and_then(|count| u32::try_from(count).ok()).unwrap_or(1)).collect()
}

/// The numbers of a list such as `0-3,8,10-11`.
fn listed(text: &str) -> Vec<u32> {
    let ranges = text.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}

fn refused(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "; one descriptor a CPU is needed".to_owned(),
        _ => std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").map_or_else(
            |_| "; this kernel has no perf events".to_owned(),
            |level| format!(" (kernel.perf_event_paranoid is {})", level.trim()),
        ),
    };
    format!("perf_event_open: {error}{why}")
}

fn page_size() -> usize {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| usize::try_from(size).ok()).unwrap_or(4096)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Refused on hosts that deny perf events; then there is nothing to test.
    fn rings(size: u8) -> Option<Rings<Record>> {
        let mut options = Opts::default();
        options.exclude.kernel = true;
        options.exclude.hv = true;
        options.extra_record.task = true;
        options.extra_record.comm = true;
        options.extra_record.mmap.code = true;
        options.extra_record.mmap.data = true;
        match Rings::open(Software::Dummy, &options, &[size]) {
            Ok(rings) => Some(rings),
            Err(why) => {
                eprintln!("not tested here: {why}");
                None
            }
        }
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(listed("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(listed("0"), [0]);
        assert!(listed("").is_empty());
        assert!(!online().is_empty());
    }

    #[test]
    fn a_child_and_its_child_are_there_in_order_of_time_and_this_process_is_not() {
        let Some(mut rings) = rings(5) else { return };
        let before = Mono::now();
        let status = Command::new("sh").args(["-c", "true & wait; sh -c 'exit 0'"]).status().unwrap();
        assert!(status.success());
        let records = rings.drain(Some);
        assert!(records.is_sorted_by_key(|(at, _)| *at));
        assert!(records.first().unwrap().0 >= before && records.last().unwrap().0 <= Mono::now());
        let own = std::process::id();
        let count = |wanted: fn(&Record) -> Option<u32>| {
            let pids: Vec<u32> = records.iter().filter_map(|(_, record)| wanted(record)).collect();
            assert!(!pids.contains(&own));
            pids.len()
        };
        // The first shell, and what it started; dash may run the last command without a fork.
        assert!(count(|record| if let Record::Exit(exit) = record { Some(exit.task.pid) } else { None }) >= 2);
        assert!(count(|record| if let Record::Fork(fork) = record { Some(fork.task.pid) } else { None }) >= 1);
        assert!(
            count(|record| match record {
                Record::Comm(comm) if comm.by_execve => Some(comm.task.pid),
                _ => None,
            }) >= 2
        );
        assert!(rings.fullest() > 0.0);
        assert_eq!(rings.lost(), 0);
        assert!(rings.drain(Some).is_empty());
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let Some(mut rings) = rings(0) else { return };
        assert!(
            Command::new("sh").args(["-c", "for i in 1 2 3 4; do ls / >/dev/null; done"]).status().unwrap().success()
        );
        rings.drain(|_| None::<Record>);
        assert!(rings.lost() > 0);
        assert!(rings.lost() >= rings.told_lost());
    }
}
