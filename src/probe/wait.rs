//! How long the tree's threads waited: for a CPU while they could have run, and for block I/O.
//!
//! The kernel keeps both for each thread alone, and drops them with it: `/proc/PID/schedstat` is the main thread's, and
//! nothing adds up the others' or the dead ones' (fs/proc/base.c, proc_pid_schedstat; fs/proc/array.c, field 42). So
//! the sums are **lower bounds**, and named so: each thread counts with what it was last read to have, and what it
//! waited between that reading and its end, or in a life that no reading met, is not there. They never fall.
//!
//! A look reads a few threads in turn (some 2 µs each, 5 µs where block I/O is counted too); one at a mark reads all of
//! them, in bounded time. The files of the first threads are kept open: to open one anew can take the kernel ten times as
//! long as to read it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use super::Reading;
use crate::clock::Mono;
use crate::event::Pid;
use crate::launch::tree::{ProcessKey, Tree};
use crate::metric::Metric;
use crate::proc::{Buffer, ProcFile, threads_but_main};

/// Threads read in a look that is not at a mark…
const FEW: usize = 16;
/// … and of processes whose threads are listed anew.
const LISTS: usize = 2;
/// The threads of a process are listed anew so often, and where their number has changed, which in some programs it
/// always has, after so long for each thread.
const LIST_PERIOD_NS: u64 = 1_000_000_000;
const LIST_APART_NS: u64 = 2_000_000;
/// The files of so many threads are kept open.
const KEPT: usize = 64;
/// The time for all threads, and for listing them, at a mark.
const MARK: Duration = Duration::from_millis(3);

/// What a thread waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waited {
    run_ns: u64,
    io_ns: u64,
}

/// A thread as last read, and its files, where they are kept open.
#[derive(Default)]
struct Thread {
    waited: Waited,
    files: Option<Box<Files>>,
}

struct Files {
    schedstat: ProcFile,
    stat: ProcFile,
}

impl Files {
    fn of(key: ProcessKey, thread: Pid) -> Files {
        let file = |name| ProcFile::of(key.pid, &format!("task/{thread}/{name}"));
        Files { schedstat: file("schedstat"), stat: file("stat") }
    }
}

/// A process's threads as last listed.
struct Listed {
    count: u64,
    at: Mono,
}

/// The waits of a tree.
pub struct WaitProbe {
    threads: HashMap<(ProcessKey, Pid), Thread>,
    kept: usize,
    turn: VecDeque<(ProcessKey, Pid)>,
    listed: HashMap<ProcessKey, Listed>,
    /// Over all threads that were ever read, the gone included.
    sum: Waited,
    run_absent: Option<String>,
    io_absent: Option<String>,
    ns_per_tick: u64,
    buffer: Buffer,
}

impl WaitProbe {
    /// Finds out what this kernel counts.
    pub fn new() -> WaitProbe {
        let own = std::fs::read("/proc/self/schedstat").map(|text| schedstat(&text));
        let run_absent = match own {
            // Which no thread that runs can have.
            Ok(Some(Schedule { on_ns: 0, times: 0, .. })) => {
                Some("this kernel keeps no scheduler statistics (/proc/PID/schedstat is empty)".to_owned())
            }
            Ok(Some(_)) => None,
            Ok(None) => Some("/proc/PID/schedstat is not in the form that is known".to_owned()),
            Err(error) => Some(format!("/proc/PID/schedstat: {error}")),
        };
        let io_absent = match std::fs::read_to_string("/proc/sys/kernel/task_delayacct") {
            Ok(text) if text.trim() == "0" => {
                Some("delay accounting is off on this host (kernel.task_delayacct is 0)".to_owned())
            }
            Ok(_) => None,
            // Before Linux 5.14 only the command line of the kernel says, and a zero is all there is to see.
            Err(error) => Some(format!("whether delays are counted is not known: kernel.task_delayacct: {error}")),
        };
        WaitProbe {
            threads: HashMap::new(),
            kept: 0,
            turn: VecDeque::new(),
            listed: HashMap::new(),
            sum: Waited::default(),
            run_absent,
            io_absent,
            ns_per_tick: super::process::ns_per_clock_tick(),
            buffer: Buffer::new(),
        }
    }

    /// Reads some threads, or at a mark all of them; [`Tree::sweep`] comes before.
    pub fn look(&mut self, tree: &Tree, now: Mono, at_mark: bool) -> Reading {
        if self.run_absent.is_none() || self.io_absent.is_none() {
            let begun = Mono::now();
            self.forget(tree);
            self.list(tree, now, at_mark, begun);
            let most = if at_mark { self.turn.len() } else { FEW.min(self.turn.len()) };
            for _ in 0..most {
                let Some(thread) = self.turn.pop_front() else { break };
                if self.read(thread) {
                    self.turn.push_back(thread);
                }
                if at_mark && Mono::now().since(begun) > MARK.as_nanos() as u64 {
                    break;
                }
            }
        }
        let sum = self.sum;
        let mut reading = Reading::default();
        for (metric, value, why) in
            [(Metric::RunWaitNs, sum.run_ns, &self.run_absent), (Metric::IoWaitNs, sum.io_ns, &self.io_absent)]
        {
            match why {
                None => reading.values.set(metric, value),
                Some(why) => reading.absences.push((metric, why.clone())),
            }
        }
        reading
    }

    /// Lets those processes go that are gone.
    fn forget(&mut self, tree: &Tree) {
        let there = |key: &ProcessKey| tree.process(key.pid).is_some_and(|process| process.key == *key);
        let gone: HashSet<ProcessKey> = self.listed.keys().filter(|key| !there(key)).copied().collect();
        if gone.is_empty() {
            return;
        }
        self.listed.retain(|key, _| !gone.contains(key));
        self.turn.retain(|(key, _)| !gone.contains(key));
        self.threads.retain(|(key, _), _| !gone.contains(key));
        self.kept = self.threads.values().filter(|thread| thread.files.is_some()).count();
    }

    fn list(&mut self, tree: &Tree, now: Mono, at_mark: bool, begun: Mono) {
        let mut lists = 0;
        for process in tree.processes() {
            let (key, count) = (process.key, process.stat.threads);
            let listed = self.listed.get(&key);
            let due = listed.is_none_or(|listed| {
                let since = now.since(listed.at);
                (listed.count != count && since >= LIST_APART_NS.saturating_mul(listed.count.max(count)))
                    || (count > 1 && since >= LIST_PERIOD_NS)
            });
            if !due {
                continue;
            }
            // A process of one thread needs no list.
            let others: Vec<Pid> = if count > 1 {
                let spent = if at_mark { Mono::now().since(begun) > MARK.as_nanos() as u64 } else { lists == LISTS };
                if spent {
                    continue;
                }
                lists += 1;
                threads_but_main(key.pid).collect()
            } else {
                Vec::new()
            };
            self.listed.insert(key, Listed { count, at: now });
            for thread in std::iter::once(key.pid).chain(others) {
                if let Entry::Vacant(place) = self.threads.entry((key, thread)) {
                    place.insert(Thread::default());
                    // New ones first: nothing is known of them.
                    self.turn.push_front((key, thread));
                }
            }
        }
    }

    /// Reads one thread; `false` if it is gone.
    fn read(&mut self, id: (ProcessKey, Pid)) -> bool {
        let (key, tid) = id;
        let Some(thread) = self.threads.get_mut(&id) else { return false };
        if thread.files.is_none() && self.kept < KEPT {
            self.kept += 1;
            thread.files = Some(Box::new(Files::of(key, tid)));
        }
        let known = thread.waited;
        // What cannot be had stays as it was.
        let mut waited = known;
        let mut gone = false;
        let mut passing = thread.files.is_none().then(|| Files::of(key, tid));
        if let Some(files) = thread.files.as_deref_mut().or(passing.as_mut()) {
            if self.run_absent.is_none() {
                match files.schedstat.read(&mut self.buffer) {
                    Ok(text) => match schedstat(text) {
                        // One that never ran has all zeros.
                        Some(schedule) => waited.run_ns = schedule.waiting_ns,
                        None => self.run_absent = Some(not_understood(key, tid, "schedstat")),
                    },
                    Err(_) => gone = true,
                }
            }
            if self.io_absent.is_none() && !gone {
                match files.stat.read(&mut self.buffer) {
                    Ok(text) => match block_ticks(text) {
                        Some(ticks) => waited.io_ns = ticks.saturating_mul(self.ns_per_tick),
                        None => self.io_absent = Some(not_understood(key, tid, "stat")),
                    },
                    Err(_) => gone = true,
                }
            }
        }
        if gone {
            self.kept -= usize::from(thread.files.is_some());
            self.threads.remove(&id);
            return false;
        }
        thread.waited = waited;
        // Less than it had: the number is another thread's by now.
        let before = if waited.run_ns < known.run_ns || waited.io_ns < known.io_ns { Waited::default() } else { known };
        self.sum.run_ns = self.sum.run_ns.saturating_add(waited.run_ns - before.run_ns);
        self.sum.io_ns = self.sum.io_ns.saturating_add(waited.io_ns - before.io_ns);
        true
    }
}

impl Default for WaitProbe {
    fn default() -> WaitProbe {
        WaitProbe::new()
    }
}

fn not_understood(key: ProcessKey, thread: Pid, file: &str) -> String {
    format!("/proc/{}/task/{thread}/{file} is not in the form that is known", key.pid)
}

/// What a schedstat file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Schedule {
    /// On a CPU…
    on_ns: u64,
    /// … waiting for one…
    waiting_ns: u64,
    /// … and how often it got one.
    times: u64,
}

fn schedstat(text: &[u8]) -> Option<Schedule> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    Some(Schedule { on_ns: numbers.next()?.ok()?, waiting_ns: numbers.next()?.ok()?, times: numbers.next()?.ok()? })
}

/// Field 42 of a stat file: clock ticks of waiting for block I/O.
fn block_ticks(text: &[u8]) -> Option<u64> {
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(42 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_waits() {
        assert_eq!(schedstat(b"50875 44690 2\n"), Some(Schedule { on_ns: 50_875, waiting_ns: 44_690, times: 2 }));
        for odd in [&b""[..], b"1 2", b"1 x 2\n", b"1 -2 3\n"] {
            assert_eq!(schedstat(odd), None);
        }
        let stat = include_bytes!("../../fixtures/proc/stat-cat");
        assert_eq!(block_ticks(stat), Some(0));
        let mut words: Vec<String> = String::from_utf8_lossy(stat).split(' ').map(str::to_owned).collect();
        words[41] = "17".into();
        assert_eq!(block_ticks(words.join(" ").as_bytes()), Some(17));
    }

    fn probe() -> WaitProbe {
        WaitProbe { run_absent: None, io_absent: Some(String::new()), ..WaitProbe::new() }
    }

    #[test]
    fn what_the_dead_waited_stays_and_nothing_falls() {
        let mut probe = probe();
        let had = |run_ns| Thread { waited: Waited { run_ns, io_ns: 0 }, files: None };
        let own = std::process::id() as Pid;
        let key = ProcessKey { pid: own, start_time: 1 };
        // A number that had more before: another thread has it now, and all of its wait is new.
        probe.threads.insert((key, own), had(u64::MAX / 2));
        probe.sum.run_ns = u64::MAX / 2;
        assert!(probe.read((key, own)));
        let its = probe.threads[&(key, own)].waited.run_ns;
        assert_eq!(probe.sum.run_ns, u64::MAX / 2 + its);
        assert!(probe.read((key, own)));
        let now = probe.threads[&(key, own)].waited.run_ns;
        assert_eq!(probe.sum.run_ns, u64::MAX / 2 + now, "what it had is counted once");
        let gone = (key, 0);
        probe.threads.insert(gone, had(5));
        assert!(!probe.read(gone));
        assert!(!probe.threads.contains_key(&gone) && probe.sum.run_ns == u64::MAX / 2 + now);
        assert_eq!(probe.kept, 1, "the living one's files");
    }

    #[test]
    fn delays_that_are_not_counted_are_absent() {
        let probe = WaitProbe::new();
        let on = std::fs::read_to_string("/proc/sys/kernel/task_delayacct").is_ok_and(|text| text.trim() != "0");
        assert_eq!(probe.io_absent.is_none(), on);
    }
}
