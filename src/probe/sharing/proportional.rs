//! PSS of each process (`/proc/PID/smaps_rollup`), as many as fit into a box of time.
//!
//! What a process will cost is told from its resident set, and from what it cost before. One that would not fit is
//! left out and said: to begin it and stop is not possible, since the kernel answers in one piece.

use std::collections::HashMap;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::clock::Mono;
use crate::launch::tree::ProcessKey;
use crate::proc::smaps::Rollup;
use crate::proc::{Buffer, ProcFile, Unread};
use crate::sys::cache::page_size;

/// What a page is taken to cost before its process was read: the kernel walks 4 KiB pages at 12 to 30 ns, larger ones at
/// less.
const PAGE_NS: f64 = 25.0;

/// What a process costs beside its pages: opening, and its mappings.
const PROCESS_NS: u64 = 40_000;

/// Walks may take one part in so many of the time, with so much saved up: marks that come in a storm are not worth a
/// target's mmap lock.
const SHARE: u64 = 10;
const MOST_SAVED_NS: u64 = 60_000_000;

/// A process that is to be read.
pub struct Subject<'a> {
    pub key: ProcessKey,
    pub label: &'a str,
    /// VmRSS; `None` where it could not be read.
    pub resident: Option<u64>,
    /// Whether others may share its anonymous memory: these are read first, as PSS tells most about them.
    pub has_kin: bool,
}

/// What was read.
pub struct Shares {
    pub rollups: Vec<(ProcessKey, Rollup)>,
    /// Why some process is not among them.
    pub unread: Option<String>,
}

/// The reader, with what it learnt of costs.
pub struct Proportional {
    /// Nanoseconds a resident page, by process.
    page_ns: HashMap<ProcessKey, f64>,
    credit_ns: u64,
    last: Option<Mono>,
    buffer: Buffer,
}

impl Default for Proportional {
    fn default() -> Proportional {
        Proportional { page_ns: HashMap::new(), credit_ns: MOST_SAVED_NS, last: None, buffer: Buffer::new() }
    }
}

impl Proportional {
    /// Reads the processes that will be done by `end` and within `most` CPU time, by what is to be expected, the cheapest
    /// first. CPU time is what a walk costs its target; what others had the CPU for in the meantime is not held against it.
    pub fn look(&mut self, mut subjects: Vec<Subject<'_>>, now: Mono, end: Mono, most: Duration) -> Shares {
        let earned = self.last.map_or(0, |last| now.since(last) / SHARE);
        self.credit_ns = self.credit_ns.saturating_add(earned).min(MOST_SAVED_NS);
        self.last = Some(now);
        self.page_ns.retain(|key, _| subjects.iter().any(|subject| subject.key == *key));

        let before = cpu_ns();
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let mut shares = Shares { rollups: Vec::new(), unread: None };
        subjects.sort_by_key(|subject| (!subject.has_kin, subject.resident));
        for subject in &subjects {
            let begun = cpu_ns();
            let expected = self.expected_ns(subject);
            let left = end.since(Mono::now()).min(self.credit_ns).min(most.saturating_sub(begun - before));
            if expected > left {
                shares.unread.get_or_insert_with(|| {
                    format!(
                        "{}: its share of shared pages was not read: the walk over its page tables would take about {}, \
                         and {} were left for it",
                        subject.label,
                        milliseconds(expected),
                        milliseconds(left)
                    )
                });
                continue;
            }
            let outcome = ProcFile::of(subject.key.pid, "smaps_rollup").read(&mut self.buffer).map(Rollup::parse);
            let cost = cpu_ns() - begun;
            self.credit_ns = self.credit_ns.saturating_sub(cost);
            match outcome {
                Ok(Some(rollup)) => {
                    let pages = (rollup.rss / page_size()).max(1);
                    self.page_ns.insert(subject.key, cost.saturating_sub(PROCESS_NS) as f64 / pages as f64);
                    shares.rollups.push((subject.key, rollup));
                }
                // Without memory of its own there is nothing to share; it is on its way out.
                Err(Unread::Gone) => {}
                Ok(None) if subject.resident.is_none() => {}
                Ok(None) => {
                    let why = "this kernel's smaps_rollup has no split of PSS (Linux 5.9)";
                    shares.unread.get_or_insert_with(|| why.to_owned());
                }
                Err(error) => {
                    let why = format!("{}: its /proc/PID/smaps_rollup cannot be read: {error}", subject.label);
                    shares.unread.get_or_insert(why);
                }
            }
        }
        shares
    }

    fn expected_ns(&self, subject: &Subject<'_>) -> u64 {
        let pages = subject.resident.unwrap_or(0) / page_size();
        // What is known of it may have been of large pages that were split since.
        let each = self.page_ns.get(&subject.key).map_or(PAGE_NS, |known| known * 1.25);
        PROCESS_NS + (pages as f64 * each) as u64
    }
}

/// CPU time of this thread; 0 where there is no such clock, which Linux has had since 2.6.12.
pub(in crate::probe) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: Duration = Duration::from_secs(1);

    fn own() -> (ProcessKey, u64) {
        let pid = std::process::id() as i32;
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        (ProcessKey { pid, start_time: 1 }, kilobytes * 1024)
    }

    #[test]
    fn what_would_not_fit_is_not_begun_and_said() {
        let (key, resident) = own();
        let subject = |resident| Subject { key, label: "process 1 (own)", resident: Some(resident), has_kin: false };
        let now = Mono::now();
        let mut reader = Proportional::default();
        let shares = reader.look(vec![subject(1 << 40)], now, now.plus(20_000_000), BOX);
        assert!(shares.rollups.is_empty());
        let reason = shares.unread.unwrap();
        assert!(reason.starts_with("process 1 (own)") && reason.contains("would take about 6710"), "{reason}");
        let shares = reader.look(vec![subject(resident)], now, Mono::now().plus(10_000_000_000), BOX);
        assert_eq!(shares.rollups.len(), 1, "{:?}", shares.unread);
        let rollup = shares.rollups[0].1;
        assert!(rollup.pss_anon > 0 && rollup.pss_anon + rollup.pss_file + rollup.pss_shmem <= rollup.rss);
        assert!(shares.unread.is_none());
    }

    #[test]
    fn a_storm_of_marks_runs_out_of_time() {
        let (key, resident) = own();
        let mut reader = Proportional { credit_ns: 0, ..Proportional::default() };
        let look = |reader: &mut Proportional, now: Mono| {
            let subject = Subject { key, label: "own", resident: Some(resident), has_kin: true };
            reader.look(vec![subject], now, Mono::now().plus(10_000_000_000), BOX).rollups.len()
        };
        let begun = Mono::now();
        assert_eq!(look(&mut reader, begun), 0);
        assert_eq!(look(&mut reader, begun.plus(10_000_000_000)), 1, "what was saved up since");
    }
}
