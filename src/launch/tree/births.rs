//! Which process numbers were given out since the last look.
//!
//! Numbers are given out in a cycle (kernel/pid.c, idr_alloc_cyclic), and the last field of `/proc/loadavg` is the one
//! given last in this pid namespace; threads take numbers as well. So a sweep in which nothing was born costs one short
//! read, and one in which little was born a probe of each number in between.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;

use crate::clock::{Beat, Mono};
use crate::event::Pid;
use crate::proc::{Buffer, ProcFile};
use crate::sys::directory::next_names;

/// So many numbers are probed one by one; more are left to a listing of `/proc`.
const FEW: usize = 256;
/// A listing is made at most this often for a storm of births…
const STORM_PERIOD_NS: u64 = 100_000_000;
/// … and this often as a safety net, for what got its number outside the cycle (clone3's set_tid), or rarer, where the
/// listing of a large machine costs more than one part in this many of the time.
const NET_PERIOD_NS: u64 = 1_000_000_000;
const NET_SHARE: u64 = 500;
/// The safety net's listing goes on over several looks, since an entry takes the kernel 5 µs where nothing of it is in the
/// CPU's caches: in each, so many bytes of entries (some twenty numbers) for so much time since the last, up to so many
/// times.
const STEP_BYTES: usize = 512;
const STEP_NS: u64 = 20_000_000;
const MOST_STEPS: u64 = 50;
/// So many numbers that the safety net found are probed a sweep.
const NET_PROBES: usize = 32;
/// After a turn of the cycle the kernel starts here (RESERVED_PIDS).
const FIRST_AFTER_TURN: Pid = 300;

/// Numbers to probe.
#[derive(Debug, Default)]
pub struct Numbers {
    /// Given out since the last look, in the order of giving: whatever had such a number before is gone.
    pub fresh: Vec<Pid>,
    /// How many were given out, as far as this look accounts for them: more than `fresh` where a listing had to do,
    /// and those that are not in it are gone.
    pub given: usize,
    /// Everything that is in use, where a listing was made, or came to its end: one that goes over several looks lacks what
    /// was born behind it.
    pub in_use: Option<Vec<Pid>>,
}

/// A listing that goes over several looks.
struct Pass {
    directory: File,
    found: Vec<Pid>,
    stepped_at: Mono,
    spent_ns: u64,
}

impl Pass {
    fn begin(now: Mono) -> Option<Pass> {
        Some(Pass { directory: File::open("/proc").ok()?, found: Vec::new(), stepped_at: now, spent_ns: 0 })
    }

    /// Goes on; says whether it is at its end.
    fn step(&mut self, now: Mono) -> bool {
        let begun = Mono::now();
        let steps = (now.since(self.stepped_at) / STEP_NS).clamp(1, MOST_STEPS);
        self.stepped_at = now;
        let Pass { directory, found, .. } = self;
        let mut take = |name: &[u8]| found.extend(number(name));
        // Where it fails, what it lacks is left to the next.
        let more = (0..steps).all(|_| next_names(directory, &mut [0; STEP_BYTES], &mut take).unwrap_or(false));
        self.spent_ns += Mono::now().since(begun);
        !more
    }
}

pub struct Births {
    load: ProcFile,
    last: Option<Pid>,
    cycle: Pid,
    storm: bool,
    listed_at: Mono,
    net: Beat,
    net_period_ns: u64,
    pass: Option<Pass>,
    waiting: VecDeque<Pid>,
}

impl Births {
    /// Counts the births after that of `root`; the first look lists all that is there as well.
    pub fn after(root: Pid) -> Births {
        Births {
            load: ProcFile::at(PathBuf::from("/proc/loadavg")),
            last: Some(root),
            cycle: cycle(),
            storm: false,
            listed_at: Mono(0),
            net: Beat::NUMBERS_IN_USE,
            pass: None,
            net_period_ns: NET_PERIOD_NS,
            waiting: VecDeque::new(),
        }
    }

    /// Nothing that is there need be listed at the first look.
    pub fn all_known(&mut self, now: Mono) {
        self.listed_at = now;
    }

    /// Whether numbers were given out that the next listing will have to find.
    pub fn is_behind(&self) -> bool {
        self.storm
    }

    /// What to probe now. `may_list`: whether there is time for a listing.
    pub fn look(&mut self, now: Mono, may_list: bool, buffer: &mut Buffer) -> Numbers {
        let mut numbers = Numbers::default();
        let newest = self.load.read(buffer).ok().and_then(last_pid);
        match (self.last, newest) {
            (Some(last), Some(newest)) => {
                if newest < last {
                    self.cycle = cycle();
                }
                let count = count_between(last, newest, self.cycle);
                if count <= FEW {
                    numbers.fresh.extend(between(last, newest, self.cycle));
                    numbers.given = count;
                    self.last = Some(newest);
                } else {
                    self.storm = true;
                }
            }
            // Without loadavg only listings are left.
            (_, None) => self.storm = true,
            (None, newest) => self.last = newest,
        }
        let since = now.since(self.listed_at);
        if !may_list {
            return numbers;
        }
        let is_first = self.listed_at == Mono(0);
        if is_first || (self.storm && since >= STORM_PERIOD_NS) {
            let in_use = list();
            if self.storm {
                // A storm's numbers cannot wait, nor can it be said which are fresh: all that lie in between.
                let fresh = |pid: &Pid| match (self.last, newest) {
                    (Some(last), Some(newest)) if newest >= last => (last < *pid) && (*pid <= newest),
                    (Some(last), Some(newest)) => *pid > last || *pid <= newest,
                    _ => true,
                };
                numbers.fresh = in_use.iter().copied().filter(fresh).collect();
                numbers.given = match (self.last, newest) {
                    (Some(last), Some(newest)) => count_between(last, newest, self.cycle),
                    _ => 0,
                };
                self.last = newest;
                self.storm = false;
            }
            self.pass = None;
            self.listed(in_use, Mono::now().since(now), now, &mut numbers);
        } else if let Some(pass) = &mut self.pass {
            if pass.step(now) {
                let (in_use, spent_ns) = (std::mem::take(&mut pass.found), pass.spent_ns);
                self.pass = None;
                self.listed(in_use, spent_ns, now, &mut numbers);
            }
        } else if self.net.is_due(now) && since + NET_PERIOD_NS / 2 >= self.net_period_ns {
            // The beat says when; the period only how many are left out.
            self.net.done(now);
            self.pass = Pass::begin(now);
        }
        numbers
    }

    /// Takes in a listing that is whole.
    fn listed(&mut self, in_use: Vec<Pid>, spent_ns: u64, now: Mono, numbers: &mut Numbers) {
        self.net.done(now);
        self.listed_at = now;
        self.net_period_ns = NET_PERIOD_NS.max(spent_ns.saturating_mul(NET_SHARE));
        self.waiting = in_use.iter().copied().collect();
        numbers.in_use = Some(in_use);
    }

    /// Lists everything at the next look: some births may have been missed.
    pub fn list_next(&mut self) {
        self.storm = true;
        self.listed_at = Mono(0);
    }

    /// The next few listed numbers for which `unknown` holds.
    pub fn next_listed(&mut self, unknown: impl Fn(Pid) -> bool) -> Vec<Pid> {
        let mut few = Vec::new();
        while few.len() < NET_PROBES {
            match self.waiting.pop_front() {
                Some(pid) if unknown(pid) => few.push(pid),
                Some(_) => {}
                None => break,
            }
        }
        few
    }
}

/// The last field of loadavg.
fn last_pid(text: &[u8]) -> Option<Pid> {
    let word = text.trim_ascii_end().rsplit(|&byte| byte == b' ').next()?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// One more than the largest number; the kernel's largest default where it cannot be read.
fn cycle() -> Pid {
    let text = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(1 << 22)
}

fn count_between(last: Pid, newest: Pid, cycle: Pid) -> usize {
    let count =
        if newest >= last { newest - last } else { (cycle - 1 - last).max(0) + (newest - FIRST_AFTER_TURN + 1).max(0) };
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The numbers after `last` up to `newest`, in the order of giving.
fn between(last: Pid, newest: Pid, cycle: Pid) -> impl Iterator<Item = Pid> {
    let (first, second) = if newest >= last {
        (last + 1..newest + 1, 0..0)
    } else {
        (last + 1..cycle.max(last + 1), FIRST_AFTER_TURN..newest + 1)
    };
    first.chain(second)
}

fn number(name: &[u8]) -> Option<Pid> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

fn list() -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_the_order_of_giving() {
        let all = |last, newest| between(last, newest, 1000).collect::<Vec<_>>();
        assert!(all(5, 5).is_empty());
        assert_eq!(all(5, 8), [6, 7, 8]);
        assert_eq!(all(997, 302), [998, 999, 300, 301, 302]);
        assert_eq!(all(999, 300), [300]);
        for (last, newest) in [(5, 5), (5, 8), (997, 302), (999, 300), (999, 3)] {
            assert_eq!(count_between(last, newest, 1000), all(last, newest).len(), "{last} {newest}");
        }
    }

    #[test]
    fn the_newest_number() {
        assert_eq!(last_pid(b"0.16 0.21 0.34 1/94 14717\n"), Some(14717));
        assert_eq!(last_pid(b""), None);
        assert_eq!(last_pid(b"0.16 x"), None);
    }

    #[test]
    fn a_birth_is_among_the_fresh() {
        let mut births = Births::after(std::process::id() as Pid);
        let mut buffer = Buffer::new();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let numbers = births.look(Mono::now(), true, &mut buffer);
        child.wait().unwrap();
        assert!(numbers.given >= 1);
        assert!(numbers.fresh.contains(&(child.id() as Pid)), "{numbers:?}");
        assert!(births.look(Mono::now(), true, &mut buffer).fresh.iter().all(|pid| !numbers.fresh.contains(pid)));
        assert!(numbers.in_use.is_some(), "the first look lists");
    }

    #[test]
    fn the_safety_net_is_drawn_over_several_looks() {
        let mut births = Births::after(std::process::id() as Pid);
        let mut buffer = Buffer::new();
        let begun = Mono::now();
        assert!(births.look(begun, true, &mut buffer).in_use.is_some());
        let mut looks = 0;
        // A look every 20 ms of a clock that nobody waits for.
        let in_use = (1..500).find_map(|tick| {
            let numbers = births.look(begun.plus(tick * 20_000_000), true, &mut buffer);
            looks += u64::from(births.pass.is_some());
            numbers.in_use
        });
        assert!(in_use.unwrap().contains(&(std::process::id() as Pid)));
        assert!(looks > 1, "{looks}");
    }
}
