//! What the launch's own small processes (pumps, witness) take of the processor: part of what profiling costs, although
//! they are kept out of the command's tree.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid as NixPid;

use crate::event::Pid;

/// CPU time of these processes, shared between whoever reaps them and whoever accounts for them.
#[derive(Clone, Debug, Default)]
pub struct Helpers(Arc<Mutex<Account>>);

#[derive(Debug, Default)]
struct Account {
    /// Those that are there, each with its last reading in nanoseconds.
    running: HashMap<Pid, u64>,
    ended_ns: u64,
}

impl Helpers {
    /// Takes a process into the account, with all that it took so far; one that is in it already stays.
    pub(super) fn take_in(&self, pid: Pid) {
        self.account().running.entry(pid).or_insert(0);
    }

    /// Reads one process again: right before it is reaped, while a dead one's figure can still be had.
    pub(super) fn read(&self, pid: Pid) {
        if let Some(taken) = self.account().running.get_mut(&pid) {
            *taken = cpu_of(pid).unwrap_or(*taken);
        }
    }

    /// A process was reaped: its number may be another's from here on.
    pub(super) fn ended(&self, pid: Pid) {
        let mut account = self.account();
        if let Some(taken) = account.running.remove(&pid) {
            account.ended_ns += taken;
        }
    }

    /// CPU time of all of them so far, in nanoseconds, those that have ended included. Of one that ended while nobody
    /// had found it dead yet, what it did since it was last read (at most one look of a few milliseconds before) is
    /// missing.
    pub fn cpu_ns(&self) -> u64 {
        let mut account = self.account();
        for (pid, taken) in &mut account.running {
            *taken = cpu_of(*pid).unwrap_or(*taken);
        }
        account.ended_ns + account.running.values().sum::<u64>()
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // Every change leaves the account whole, so another thread's panic has not spoilt it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// CPU time of a process that is there or a zombie, all its threads, in nanoseconds (clock_getcpuclockid(3)).
fn cpu_of(pid: Pid) -> Option<u64> {
    let clock = clock_getcpuclockid(NixPid::from_raw(pid)).ok()?;
    let time = nix::time::clock_gettime(clock).ok()?;
    u64::try_from(time.tv_sec()).ok()?.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec()).ok()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::process::reap;

    #[test]
    fn a_process_counts_while_it_runs_when_it_is_dead_and_when_it_is_reaped() {
        let helpers = Helpers::default();
        // Some work of its own, then its end waits for ours.
        #[allow(clippy::zombie_processes)]
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; echo done; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as Pid;
        helpers.take_in(pid);
        let mut said = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut said).unwrap();
        let running = helpers.cpu_ns();
        assert!(running > 0);
        drop(child.stdin.take());
        // Until it is a zombie: its files are closed before.
        crate::testing::until("its end", || {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ")
        });
        let dead = helpers.cpu_ns();
        assert!(dead >= running, "{dead} {running}");
        helpers.read(pid);
        reap(pid, true).unwrap();
        helpers.ended(pid);
        assert_eq!(helpers.cpu_ns(), dead);
        // The same number again is another process.
        helpers.take_in(pid);
        assert!(helpers.cpu_ns() >= dead);
    }
}
