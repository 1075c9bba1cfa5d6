//! The last readings of processes that the profiler reaps itself: taken while they are zombies, kept for the tree.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Mono;
use crate::event::Pid;
use crate::proc::stat::Stat;
use crate::sys::process::max_rss_of_dead;

/// Most processes whose last readings wait to be taken.
const FINALS_AT_MOST: usize = 65_536;

/// A process for good: pids are used again, pid and start time are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessKey {
    pub pid: Pid,
    /// Clock ticks since boot (stat, field starttime).
    pub start_time: u64,
}

/// The last reading of a process: its `/proc/PID` files as they were when it was a zombie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalReading {
    /// When it was taken.
    pub at: Mono,
    /// `/proc/PID/stat`; the name in it need not be UTF-8.
    pub stat: Vec<u8>,
    /// `/proc/PID/io`; `None` where it could not be read (a process of another user).
    pub io: Option<Vec<u8>>,
    /// The largest high-water mark of its resident set over all programs that it ran, and of the children that it waited
    /// for, in bytes (getrusage(2), ru_maxrss). `clear_refs` lowers it.
    pub max_rss: Option<u64>,
}

/// The last readings of processes that the profiler reaped itself, taken while they were zombies, shared with the
/// process probe: `/proc/PID/{stat,io}` as text, by pid and start time.
///
/// At most 65,536 wait to be taken; beyond that the oldest are dropped and counted.
#[derive(Clone, Debug, Default)]
pub struct Finals(Arc<Mutex<Store>>);

#[derive(Debug, Default)]
struct Store {
    readings: HashMap<ProcessKey, (u64, FinalReading)>,
    /// Their order, for dropping the oldest.
    order: BTreeMap<u64, ProcessKey>,
    next: u64,
    dropped: u64,
}

impl Finals {
    /// An empty store.
    pub fn new() -> Finals {
        Finals::default()
    }

    /// Takes one reading out.
    pub fn take(&self, key: &ProcessKey) -> Option<FinalReading> {
        let mut store = self.store();
        let (number, reading) = store.readings.remove(key)?;
        store.order.remove(&number);
        Some(reading)
    }

    /// Takes all readings out, oldest first.
    pub fn drain(&self) -> Vec<(ProcessKey, FinalReading)> {
        let mut store = self.store();
        let order = std::mem::take(&mut store.order);
        order.into_values().filter_map(|key| store.readings.remove(&key).map(|(_, reading)| (key, reading))).collect()
    }

    /// How many were dropped because nobody took them.
    pub fn dropped(&self) -> u64 {
        self.store().dropped
    }

    /// Keeps a process's last reading. To be called before the process is reaped, so that whoever finds it gone finds
    /// its reading here.
    pub fn insert(&self, key: ProcessKey, reading: FinalReading) {
        let mut store = self.store();
        let number = store.next;
        store.next += 1;
        if let Some((old, _)) = store.readings.insert(key, (number, reading)) {
            store.order.remove(&old);
        }
        store.order.insert(number, key);
        while store.order.len() > FINALS_AT_MOST
            && let Some((_, key)) = store.order.pop_first()
        {
            store.readings.remove(&key);
            store.dropped += 1;
        }
    }

    /// Reads a zombie and keeps what it says.
    pub(super) fn read(&self, pid: Pid) {
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { return };
        let Some(start_time) = Stat::parse(&stat).map(|stat| stat.start_time) else { return };
        let io = std::fs::read(format!("/proc/{pid}/io")).ok();
        let max_rss = max_rss_of_dead(pid);
        self.insert(ProcessKey { pid, start_time }, FinalReading { at: Mono::now(), stat, io, max_rss });
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Every change above leaves the store whole, so another thread's panic has not spoilt it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(text: &str) -> FinalReading {
        FinalReading { at: Mono(1), stat: text.into(), io: None, max_rss: None }
    }

    #[test]
    fn readings_are_kept_by_pid_and_start_time() {
        let finals = Finals::new();
        let key = |start_time| ProcessKey { pid: 7, start_time };
        finals.insert(key(100), reading("first"));
        finals.insert(key(200), reading("second"));
        assert_eq!(finals.take(&key(200)), Some(reading("second")));
        assert_eq!(finals.take(&key(200)), None);
        assert_eq!(finals.drain(), vec![(key(100), reading("first"))]);
        assert_eq!(finals.drain(), vec![]);
    }

    #[test]
    fn too_many_readings_drop_the_oldest_and_say_so() {
        let finals = Finals::new();
        for pid in 0..FINALS_AT_MOST as Pid + 3 {
            finals.insert(ProcessKey { pid, start_time: 1 }, reading(""));
        }
        assert_eq!(finals.dropped(), 3);
        assert_eq!(finals.take(&ProcessKey { pid: 2, start_time: 1 }), None);
        assert!(finals.take(&ProcessKey { pid: 3, start_time: 1 }).is_some());
    }
}
