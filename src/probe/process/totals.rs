//! The counters of a tree of processes: never twice, never backwards.
//!
//! # What the kernel does
//!
//! When a parent waits for a child, the child's counters are added to the parent's, with those that the child had from
//! its own children: apart from the parent's own in stat (`cminflt`, `cutime`…), mixed with them in io
//! (kernel/exit.c, wait_task_zombie). A child that the kernel reaps by itself (the parent ignores SIGCHLD or set
//! SA_NOCLDWAIT) is added to nobody. One that outlives its parent becomes the profiler's, which reads it as a zombie
//! before it reaps it.
//!
//! # The algorithm
//!
//! So the tree's total is the sum over the processes that are there, each with the children that it waited for, plus
//! what those took with them that nobody waited for. At each look:
//!
//! 1. Every known process is read, **parents before their children**. A child that can still be read was not yet waited
//!    for when its parent was read, so the two readings hold nothing twice.
//! 2. Where a process is found gone, its parent is read again, so that it is known whether that one's account holds it;
//!    and then the parent's other children are looked after again, lest one of them has meanwhile gone into the account
//!    just read. This is repeated until nobody else is gone, four times at most; what is open then waits for the next
//!    look, and the parent's account stands as it was settled.
//! 3. For each process that vanished it is decided whose account holds it, children before their parents
//!    ([`Ledger::settle`]). The witness is the parent's `cminflt + cmajflt`, since every process has faults:
//!    - it rose by at least what all its vanished children were last seen to have: it waited for them; nothing is added;
//!    - it did not rise, or it ignores SIGCHLD: nobody waited; each child's last reading is retained for good;
//!    - it rose by less: some were waited for and some were not. Only the faults for which the rise has no room are
//!      retained.
//!    - It has a last reading as a zombie, made by the profiler that reaped it: that is retained, exact.
//!    - Its parent went too: the same is asked of that one's own end, or carried on to the parent of both.
//! 4. The total is the sum over those present and what is retained. What is told is the largest total so far.
//!
//! # What holds
//!
//! - **Never twice.** What a process took is in one present account, or retained once, or in neither.
//! - **Never backwards.** What is told does not fall; where the total lacks something for a look, it stands still.
//! - **Exact** where every process was waited for by one of the tree, or outlived its parent: at its end the total is
//!   what the kernel counted.
//! - **Bounded from above** always, by what the kernel counted. What may be lacking is said by [`Ledger::caveats`] for
//!   processes that some look met: what they took after their last reading, and what could not be told apart. For those
//!   that none met, perf's inherited counters give the bounds (`account::unaccounted`), where they may be had.

use std::collections::HashMap;

use crate::launch::tree::ProcessKey;
use crate::proc::stat::Stat;
use crate::proc::text::Io;
use crate::units;

/// What a process took, its waited-for children included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Clock ticks.
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// `None` where the kernel does not let it be read.
    pub io: Option<Io>,
}

impl Account {
    pub const NOTHING: Account = Account {
        minor_faults: 0,
        major_faults: 0,
        user_ticks: 0,
        system_ticks: 0,
        io: Some(Io { rchar: 0, wchar: 0, read_syscalls: 0, read_bytes: 0, write_bytes: 0 }),
    };

    pub fn of(stat: &Stat, io: Option<Io>) -> Account {
        Account {
            minor_faults: stat.minflt.saturating_add(stat.cminflt),
            major_faults: stat.majflt.saturating_add(stat.cmajflt),
            user_ticks: stat.utime.saturating_add(stat.cutime),
            system_ticks: stat.stime.saturating_add(stat.cstime),
            io,
        }
    }

    pub fn faults(&self) -> u64 {
        self.minor_faults.saturating_add(self.major_faults)
    }

    /// The sum; its io is absent if either's is.
    pub fn plus(&self, other: &Account) -> Account {
        Account {
            minor_faults: self.minor_faults.saturating_add(other.minor_faults),
            major_faults: self.major_faults.saturating_add(other.major_faults),
            user_ticks: self.user_ticks.saturating_add(other.user_ticks),
            system_ticks: self.system_ticks.saturating_add(other.system_ticks),
            io: self.io.zip(other.io).map(|(a, b)| Io {
                rchar: a.rchar.saturating_add(b.rchar),
                wchar: a.wchar.saturating_add(b.wchar),
                read_syscalls: a.read_syscalls.saturating_add(b.read_syscalls),
                read_bytes: a.read_bytes.saturating_add(b.read_bytes),
                write_bytes: a.write_bytes.saturating_add(b.write_bytes),
            }),
        }
    }
}

/// Faults of children that a process has waited for.
pub fn waited_faults(stat: &Stat) -> u64 {
    stat.cminflt.saturating_add(stat.cmajflt)
}

/// What is known of a process that has vanished.
#[derive(Clone, Debug)]
pub struct Vanished {
    pub key: ProcessKey,
    pub label: String,
    /// Its parent when it was last seen, if that was of the tree.
    pub parent: Option<ProcessKey>,
    /// As last seen.
    pub last: Account,
    /// [`waited_faults`] up to which its vanished children have been accounted for.
    pub settled: u64,
    pub ignores_children: bool,
    /// Its last reading as a zombie, where the profiler reaped it itself: the account, and `waited_faults`.
    pub end: Option<(Account, u64)>,
    /// Since when nothing is known of it.
    pub unseen_ns: u64,
}

/// What is known of a parent that is still there.
#[derive(Clone, Copy, Debug)]
pub struct Parent {
    pub settled: u64,
    pub waited: u64,
    pub ignores_children: bool,
}

/// What the departed took with them.
#[derive(Debug)]
pub struct Ledger {
    retained: Account,
    /// The first whose I/O went unread.
    io_lost: Option<String>,
    /// Ended with nobody waiting for them: how many, and the longest time before their end unseen.
    unwaited: u64,
    longest_unseen_ns: u64,
    /// Could have been waited for or not: how many, and what is lacking at most.
    ambiguous: u64,
    lacking: Account,
    /// Ended before their I/O could be read at all.
    io_unseen: u64,
}

impl Ledger {
    pub fn new() -> Ledger {
        Ledger {
            retained: Account::NOTHING,
            io_lost: None,
            unwaited: 0,
            longest_unseen_ns: 0,
            ambiguous: 0,
            lacking: Account::NOTHING,
            io_unseen: 0,
        }
    }

    /// The counters of those that nobody waited for.
    pub fn retained(&self) -> &Account {
        &self.retained
    }

    /// Why the I/O counters lack something for good.
    pub fn io_lost(&self) -> Option<&str> {
        self.io_lost.as_deref()
    }

    /// Decides for each of `vanished` whether somebody's account holds what it took. They must be in the order of the
    /// tree, parents before their children, and every parent in `present` have been read after they vanished.
    pub fn settle(&mut self, vanished: Vec<Vanished>, present: &HashMap<ProcessKey, Parent>) {
        let mut open: HashMap<ProcessKey, Vec<(Account, Vanished)>> = HashMap::new();
        let gone: std::collections::HashSet<ProcessKey> = vanished.iter().map(|process| process.key).collect();
        // Children first: what a process is expected to have had at its end includes those that it waited for.
        for process in vanished.into_iter().rev() {
            let children = open.remove(&process.key).unwrap_or_default();
            if let Some((end, waited)) = process.end {
                self.resolve(children, waited.saturating_sub(process.settled), process.ignores_children);
                self.retain(&end, &process.label);
                continue;
            }
            let mut expected = process.last;
            if process.ignores_children {
                self.keep(children);
            } else {
                // Either it waited for them and its own end account held them, or they outlived it by less than a tick.
                for (account, _) in &children {
                    expected = expected.plus(account);
                }
            }
            match process.parent {
                Some(parent) if gone.contains(&parent) || present.contains_key(&parent) => {
                    open.entry(parent).or_default().push((expected, process));
                }
                _ => self.keep(vec![(expected, process)]),
            }
        }
        for (key, children) in open {
            if let Some(parent) = present.get(&key) {
                self.resolve(children, parent.waited.saturating_sub(parent.settled), parent.ignores_children);
            } else {
                self.keep(children);
            }
        }
    }

    /// Vanished children of one parent, whose account of waited-for children rose by `rise` meanwhile.
    fn resolve(&mut self, children: Vec<(Account, Vanished)>, rise: u64, ignores_children: bool) {
        let expected: u64 = children.iter().map(|(account, _)| account.faults()).fold(0, u64::saturating_add);
        if children.is_empty() || (!ignores_children && rise >= expected) {
            return;
        }
        if ignores_children || rise == 0 {
            self.keep(children);
            return;
        }
        // Some were waited for and some were not, and nobody says which: at least the faults that the parent's account
        // has no room for are missing from it.
        self.ambiguous += children.len() as u64;
        for (account, _) in &children {
            self.lacking = self.lacking.plus(account);
        }
        let mut room = rise;
        for (account, _) in &children {
            for (faults, retained) in [
                (account.minor_faults, &mut self.retained.minor_faults),
                (account.major_faults, &mut self.retained.major_faults),
            ] {
                let held = faults.min(room);
                room -= held;
                *retained = retained.saturating_add(faults - held);
            }
        }
    }

    /// Nobody waited for these: what they were last seen to have is the least that they took.
    fn keep(&mut self, children: Vec<(Account, Vanished)>) {
        for (account, process) in children {
            self.unwaited += 1;
            self.longest_unseen_ns = self.longest_unseen_ns.max(process.unseen_ns);
            self.retain(&account, &process.label);
        }
    }

    /// Adds a departed process's account for good.
    pub fn retain(&mut self, account: &Account, label: &str) {
        let known = Account { io: account.io.or(Account::NOTHING.io), ..*account };
        self.retained = self.retained.plus(&known);
        if account.io.is_none() && self.io_lost.is_none() {
            self.io_lost = Some(format!("{label} ended, and its I/O counters could not be read"));
        }
    }

    /// Adds the account of one that the profiler reaped, and that no tick had read alive.
    pub fn retain_unseen(&mut self, account: &Account) {
        self.io_unseen += u64::from(account.io.is_none());
        let known = Account { io: account.io.or(Account::NOTHING.io), ..*account };
        self.retained = self.retained.plus(&known);
    }

    /// What the totals may lack, for people.
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.unwaited > 0 {
            let (processes, their) = if self.unwaited == 1 { ("process", "its") } else { ("processes", "their") };
            caveats.push(format!(
                "{} {processes} ended that no process of the tree waited for: {their} counters are as last seen, up to {} \
                 before {their} end",
                self.unwaited,
                units::duration(self.longest_unseen_ns)
            ));
        }
        if self.ambiguous > 0 {
            let io = self.lacking.io.unwrap_or_default();
            caveats.push(format!(
                "{} processes ended of which some were waited for and some were not: the counters lack at most {} faults, \
                 {} bytes of rchar, {} bytes of read_bytes",
                self.ambiguous,
                self.lacking.faults(),
                io.rchar,
                io.read_bytes
            ));
        }
        if self.io_unseen > 0 {
            caveats.push(format!(
                "{} orphaned processes lived for less than a tick, and the kernel withholds a zombie's I/O counters: what \
                 they read and wrote is not in the counters",
                self.io_unseen
            ));
        }
        caveats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: i32) -> ProcessKey {
        ProcessKey { pid, start_time: 1 }
    }

    fn took(faults: u64) -> Account {
        Account { minor_faults: faults, io: Some(Io { rchar: faults * 10, ..Io::default() }), ..Account::NOTHING }
    }

    fn vanished(pid: i32, parent: i32, faults: u64) -> Vanished {
        Vanished {
            key: key(pid),
            label: format!("process {pid} (test)"),
            parent: Some(key(parent)),
            last: took(faults),
            settled: 0,
            ignores_children: false,
            end: None,
            unseen_ns: 20_000_000,
        }
    }

    fn parent(rise: u64) -> Parent {
        Parent { settled: 100, waited: 100 + rise, ignores_children: false }
    }

    fn settle(gone: Vec<Vanished>, present: Parent) -> Ledger {
        let mut ledger = Ledger::new();
        ledger.settle(gone, &HashMap::from([(key(1), present)]));
        ledger
    }

    #[test]
    fn waited_for_children_are_in_their_parent() {
        let ledger = settle(vec![vanished(2, 1, 50), vanished(3, 1, 30)], parent(85));
        assert_eq!(*ledger.retained(), Account::NOTHING);
        assert!(ledger.caveats().is_empty());
    }

    #[test]
    fn children_that_the_kernel_reaped_are_kept() {
        let ledger = settle(vec![vanished(2, 1, 50)], parent(0));
        assert_eq!(*ledger.retained(), took(50));
        let caveat = "1 process ended that no process of the tree waited for: its counters are as last seen, up to 20 ms before its end";
        assert_eq!(ledger.caveats(), [caveat]);
        // Others may have been waited for before SIGCHLD was ignored.
        let ledger = settle(vec![vanished(2, 1, 50)], Parent { ignores_children: true, ..parent(500) });
        assert_eq!(*ledger.retained(), took(50));
    }

    #[test]
    fn what_cannot_be_told_is_never_twice() {
        let ledger = settle(vec![vanished(2, 1, 50), vanished(3, 1, 30)], parent(60));
        assert_eq!(ledger.retained().minor_faults, 20);
        assert_eq!(ledger.retained().io.unwrap().rchar, 0);
        assert!(ledger.caveats()[0].contains("at most 80 faults, 800 bytes"), "{:?}", ledger.caveats());
    }

    #[test]
    fn a_branch_that_vanished_at_once() {
        // 1 → 2 → 3: the root waited for 2, which had waited for 3.
        let ledger = settle(vec![vanished(2, 1, 50), vanished(3, 2, 30)], parent(80));
        assert_eq!(*ledger.retained(), Account::NOTHING);
        // The kernel reaped 2: both are lost but for what was seen.
        let ledger = settle(vec![vanished(2, 1, 50), vanished(3, 2, 30)], parent(0));
        assert_eq!(*ledger.retained(), took(80));
        // 2 ignored its children: 3 is in nobody's account.
        let mut deaf = vanished(2, 1, 50);
        deaf.ignores_children = true;
        let ledger = settle(vec![deaf, vanished(3, 2, 30)], parent(55));
        assert_eq!(*ledger.retained(), took(30));
    }

    #[test]
    fn the_profilers_own_reaping_is_exact() {
        let mut orphan = vanished(2, 1, 50);
        orphan.end = Some((took(70), 0));
        let ledger = settle(vec![orphan.clone()], parent(0));
        assert_eq!(*ledger.retained(), took(70));
        assert!(ledger.caveats().is_empty());
        // Its own child, waited for (its account rose by enough), or not.
        orphan.end = Some((took(100), 30));
        let ledger = settle(vec![orphan.clone(), vanished(3, 2, 30)], parent(0));
        assert_eq!(*ledger.retained(), took(100));
        orphan.end = Some((took(70), 0));
        let ledger = settle(vec![orphan, vanished(3, 2, 30)], parent(0));
        assert_eq!(*ledger.retained(), took(100));
    }

    #[test]
    fn unread_io_is_said() {
        let mut secret = vanished(2, 1, 50);
        secret.last.io = None;
        let ledger = settle(vec![secret], parent(0));
        assert_eq!(ledger.retained().minor_faults, 50);
        assert!(ledger.io_lost().unwrap().contains("process 2 (test)"));
    }
}
