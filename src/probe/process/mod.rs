//! What the processes of the tree hold and took: memory, threads, faults, I/O, CPU time.
//!
//! From `/proc/PID/{stat,status,io}`, kept open and re-read in place; never smaps. Counters are of everything that the
//! command's process did since its fork, the few faults before its exec included, as its own getrusage(2) has it.

mod counter_error;
mod first_image;
mod high_water;
mod totals;

use std::collections::{HashMap, HashSet};

use nix::unistd::{SysconfVar, sysconf};

use super::Reading;
use crate::clock::Mono;
use crate::event::Pid;
use crate::launch::tree::{Departed, Process, ProcessKey, Tree};
use crate::metric::Metric;
use crate::proc::stat::Stat;
use crate::proc::text::{Io, Memory, command_line};
use crate::proc::{Buffer, ProcFile, Unread, threads_but_main};
pub use counter_error::CounterError;
use high_water::{Bounds, HighWater, Stretches};
use totals::{Account, Ledger, Parent, Vanished, waited_faults};

/// One figure of one process, for `detail.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFigure {
    pub pid: Pid,
    /// `rss_bytes`, `peak_rss_bytes` (VmHWM of the program that it runs now), `rss_anon_bytes`, `rss_file_bytes`,
    /// `rss_shmem_bytes`, `threads`, and counters with waited-for children: `minor_faults`, `major_faults`, `read_bytes`, `rchar_bytes`,
    /// `cpu_ns`.
    pub metric: &'static str,
    pub value: u64,
}

/// A process as last read.
struct Entry {
    status: ProcFile,
    io_file: ProcFile,
    label: String,
    parent: Option<ProcessKey>,
    image: u32,
    threads: u64,
    /// `None` for one that holds nothing any more.
    memory: Option<Memory>,
    /// Why its memory is not known, where it should be.
    memory_unread: Option<String>,
    /// The largest VmHWM seen: it can fall by a few pages.
    peak_rss: u64,
    account: Account,
    io_unread: Option<String>,
    waited: u64,
    /// See [`Vanished::settled`].
    settled: u64,
    ignores_children: bool,
    has_ended: bool,
    read_at: Mono,
}

/// The memory that a thread other than the main one shows; `None` on the way out of the last.
fn memory_of_threads(pid: Pid, buffer: &mut Buffer) -> Option<Memory> {
    threads_but_main(pid).find_map(|thread| {
        ProcFile::of(pid, &format!("task/{thread}/status")).read(buffer).ok().and_then(Memory::parse)
    })
}

/// The largest resident set of the calling process so far, with the counter's error.
pub fn memory_of_this_process() -> Option<u64> {
    let memory = ProcFile::at("/proc/self/status".into()).read(&mut Buffer::new()).ok().and_then(Memory::parse)?;
    let threads = threads_but_main(std::process::id() as Pid).count() as u64 + 1;
    Some(memory.peak_rss.saturating_add(CounterError::here().bytes(threads)))
}

/// Processes that ignore SIGCHLD, whose children the kernel reaps: a child that no look met while it lived is in no
/// counter, and shows only in the numbers that were given out.
#[derive(Default)]
struct Deaf {
    /// The first that was seen.
    first: Option<String>,
    /// Whether one was seen to have a child.
    has_child: bool,
    /// [`Tree::unmet`] at the last look, and how far it rose over looks at whose beginning or end there was one.
    unmet_before: u64,
    unmet: u64,
    was_there: bool,
}

impl Deaf {
    fn look(&mut self, entries: &HashMap<ProcessKey, Entry>, unmet: u64) {
        let found = entries.values().find(|entry| entry.ignores_children && !entry.has_ended);
        if let (None, Some(entry)) = (&self.first, found) {
            self.first = Some(entry.label.clone());
        }
        if self.was_there || found.is_some() {
            self.unmet += unmet.saturating_sub(self.unmet_before);
        }
        (self.was_there, self.unmet_before) = (found.is_some(), unmet);
    }

    fn caveat(&self) -> Option<String> {
        let label = self.first.as_ref().filter(|_| self.has_child || self.unmet > 0)?;
        Some(format!(
            "{label} ignores SIGCHLD, so the kernel reaps its children: those that lived between two looks are not in the \
             counters, which are at most {}, the processes and threads of this host that nobody met meanwhile",
            self.unmet
        ))
    }
}

/// The I/O metrics, in the order of [`io_values`].
const IO: [Metric; 5] =
    [Metric::RcharBytes, Metric::ReadBytes, Metric::WcharBytes, Metric::WriteBytes, Metric::ReadSyscalls];

fn io_values(io: &Io) -> [u64; 5] {
    [io.rchar, io.read_bytes, io.wchar, io.write_bytes, io.read_syscalls]
}

/// Sums over the tree; counters neither count a waited-for child twice nor go backwards.
pub struct ProcessProbe {
    entries: HashMap<ProcessKey, Entry>,
    ledger: Ledger,
    /// Vanished, but their parents have not been read since.
    pending: Vec<Vanished>,
    /// The largest value told of each counter.
    told: HashMap<Metric, u64>,
    /// Those that ignore SIGCHLD.
    deaf: Deaf,
    ns_per_tick: u64,
    high_water: Stretches,
    /// What the launched process was started with, where that is known.
    argv: Option<Vec<String>>,
    buffer: Buffer,
}

/// The clock tick of `/proc`'s times (sysconf(_SC_CLK_TCK)), in nanoseconds.
pub fn ns_per_clock_tick() -> u64 {
    // Every Linux has 100 ticks a second for user space unless it says otherwise.
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
    1_000_000_000 / ticks.filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// A parent whose child vanished is read again, and its other children are looked after, at most so often a tick.
const ROUNDS: usize = 4;

impl ProcessProbe {
    /// Of a tree of which nobody says how it was started.
    pub fn new() -> ProcessProbe {
        ProcessProbe {
            entries: HashMap::new(),
            ledger: Ledger::new(),
            pending: Vec::new(),
            told: HashMap::new(),
            deaf: Deaf::default(),
            high_water: Stretches { run: HighWater::new(CounterError::here(), None), span: None },
            argv: None,
            ns_per_tick: ns_per_clock_tick(),
            buffer: Buffer::new(),
        }
    }

    /// Of a launch that was started with `argv` by this process, which had a resident set of at most `own_rss` by then.
    /// `resets`: whether [`ProcessProbe::reset_peaks`] will be called.
    pub fn of_launch(argv: Vec<String>, own_rss: Option<u64>, resets: bool) -> ProcessProbe {
        let error = CounterError::here();
        ProcessProbe {
            high_water: Stretches {
                run: HighWater::new(error, own_rss),
                span: resets.then(|| HighWater::new(error, None)),
            },
            argv: Some(argv),
            ..ProcessProbe::new()
        }
    }

    /// Reads every process of the tree once, parents before their children; [`Tree::sweep`] comes before, and
    /// [`Tree::merge`] where the kernel's records are had.
    ///
    /// The order is what keeps a child from being counted twice: its own reading comes after its parent's, so a child
    /// that can still be read was not yet in the account that its parent showed.
    pub fn tick(&mut self, tree: &mut Tree, now: Mono) -> Reading {
        if let Some(why) = tree.take_unmet_birth() {
            self.high_water.each(|stretch| stretch.lose(why.clone()));
        }
        let members: Vec<ProcessKey> = tree.processes().map(|process| process.key).collect();
        for key in members {
            self.read(tree, key, now);
        }
        let unread = self.look_after_parents(tree, now);
        self.settle(tree, &unread, now);
        self.deaf.look(&self.entries, tree.unmet());
        if let (Some(label), true) = (&self.deaf.first, self.deaf.unmet > 0 && !tree.knows_births()) {
            self.high_water.each(|stretch| {
                stretch.lose(format!("{label} ignores SIGCHLD, so that a child of it may have come and gone unseen"));
            });
        }
        self.sum(tree.may_lack())
    }

    /// Reads status and io of one process, whose stat the sweep has read.
    fn read(&mut self, tree: &mut Tree, key: ProcessKey, now: Mono) {
        let Some(process) = tree.process(key.pid).filter(|process| process.key == key) else { return };
        let stat = process.stat;
        let parent = tree.process(stat.parent).map(|parent| parent.key);
        if !self.entries.contains_key(&key) {
            let before = self.image_before(tree, process);
            let label = process.label();
            self.high_water.each(|stretch| stretch.meet(key, &label, before.clone()));
            if waited_faults(&stat) > 0 {
                self.high_water.each(|stretch| stretch.lose(waited_for_unread(&label)));
            }
        }
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            status: ProcFile::of(key.pid, "status"),
            io_file: ProcFile::of(key.pid, "io"),
            label: process.label(),
            parent,
            image: process.image,
            threads: 0,
            memory: None,
            memory_unread: None,
            peak_rss: 0,
            // Should it be gone before its I/O is read, nothing of that was ever seen.
            account: Account::of(&stat, Account::NOTHING.io),
            io_unread: None,
            waited: waited_faults(&stat),
            settled: waited_faults(&stat),
            ignores_children: false,
            has_ended: false,
            read_at: now,
        });
        if entry.image != process.image {
            entry.image = process.image;
            entry.label = process.label();
            entry.peak_rss = 0;
            self.high_water.each(|stretch| stretch.exec(key));
        }
        let mut io = match entry.read_io(&mut self.buffer) {
            Err(Unread::Gone) => return tree.lose(key),
            other => Some(other),
        };
        let memory = if process.has_ended {
            Ok(None)
        } else {
            match entry.status.read(&mut self.buffer) {
                Err(Unread::Gone) => return tree.lose(key),
                Err(error) => Err(error),
                // Its main thread may have ended while others go on: they show the memory.
                Ok(text) => Ok(Memory::parse(text).or_else(|| memory_of_threads(key.pid, &mut self.buffer))),
            }
        };
        // Everything was read while it was there: only now may it replace what was known.
        entry.take_stat(&stat, parent, now, &mut self.high_water);
        entry.has_ended = process.has_ended;
        match memory {
            Ok(memory) => {
                match &memory {
                    Some(held) => self.high_water.each(|stretch| stretch.read(key, held, stat.threads)),
                    None => self.high_water.each(|stretch| stretch.ended(key)),
                }
                entry.memory_unread = None;
                entry.memory = memory;
                entry.peak_rss = entry.peak_rss.max(memory.map_or(0, |memory| memory.peak_rss));
            }
            Err(error) => {
                entry.memory = None;
                entry.memory_unread = Some(format!("{}: /proc/{}/status: {error}", entry.label, key.pid));
            }
        }
        if matches!(io, Some(Err(Unread::Denied))) {
            // Without memory the file is root's (fs/proc/base.c, task_dump_owner): one first read on its way out, or as a
            // zombie, shows nothing to others, which is no denial. A file opened before goes on showing all.
            match tree.reread(key) {
                Some(now) if now.image.is_there() => {}
                _ => io = None,
            }
        }
        if let (Some(io), Some(entry)) = (io, self.entries.get_mut(&key)) {
            entry.take_io(io);
        }
        if parent.and_then(|parent| self.entries.get(&parent)).is_some_and(|parent| parent.ignores_children) {
            self.deaf.has_child = true;
        }
    }

    /// A parent may have waited for a child between its own reading and the child's. So that its account is known to
    /// hold the child, it is read again; and so that nobody else has slipped into that account meanwhile, its other
    /// children must still be there after that. Returns the parents for which this did not come to an end.
    fn look_after_parents(&mut self, tree: &mut Tree, now: Mono) -> HashSet<ProcessKey> {
        let is_there = |tree: &Tree, key: &ProcessKey| tree.process(key.pid).is_some_and(|process| process.key == *key);
        let mut seen_gone: HashSet<ProcessKey> = HashSet::new();
        for round in 0..=ROUNDS {
            let parents: HashSet<ProcessKey> = self
                .entries
                .iter()
                .filter(|(key, _)| !is_there(tree, key) && !seen_gone.contains(key))
                .filter_map(|(_, entry)| entry.parent)
                .filter(|parent| is_there(tree, parent))
                .collect();
            if round == ROUNDS || parents.is_empty() {
                return parents;
            }
            seen_gone.extend(self.entries.keys().filter(|key| !is_there(tree, key)));
            for parent in parents {
                self.read_again(tree, parent, now);
                let children: Vec<ProcessKey> = self
                    .entries
                    .iter()
                    .filter(|(_, entry)| entry.parent == Some(parent))
                    .map(|(key, _)| *key)
                    .collect();
                for child in children {
                    tree.reread(child);
                }
            }
        }
        HashSet::new()
    }

    fn read_again(&mut self, tree: &mut Tree, key: ProcessKey, now: Mono) {
        let Some(stat) = tree.reread(key).copied() else { return };
        let Some(entry) = self.entries.get_mut(&key) else { return };
        match entry.read_io(&mut self.buffer) {
            Err(Unread::Gone) => tree.lose(key),
            io => {
                let parent = entry.parent;
                entry.take_stat(&stat, parent, now, &mut self.high_water);
                entry.take_io(io);
            }
        }
    }

    /// Accounts for those that vanished.
    fn settle(&mut self, tree: &mut Tree, unread: &HashSet<ProcessKey>, now: Mono) {
        let mut ends = HashMap::new();
        for departed in tree.take_departed() {
            self.part_with_marks(&departed);
            let end = departed.last.as_ref().and_then(|last| {
                let stat = Stat::parse(&last.stat)?;
                let io = last.io.as_deref().and_then(Io::parse);
                Some((Account::of(&stat, io), waited_faults(&stat)))
            });
            match end {
                Some(end) if self.entries.contains_key(&departed.key) => {
                    ends.insert(departed.key, end);
                }
                Some((account, _)) => self.ledger.retain_unseen(&account),
                None => {}
            }
        }
        let is_there = |key: &ProcessKey| tree.process(key.pid).is_some_and(|process| process.key == *key);
        let gone: Vec<ProcessKey> = self.entries.keys().filter(|key| !is_there(key)).copied().collect();
        let mut vanished = std::mem::take(&mut self.pending);
        for key in gone {
            let Some(entry) = self.entries.remove(&key) else { continue };
            self.high_water.each(|stretch| stretch.forget(key));
            let end = ends.remove(&key).map(|(mut account, waited)| {
                // A zombie's I/O is withheld from an ordinary user who had not opened the file before; here it was.
                account.io = account.io.or(entry.account.io);
                (account, waited)
            });
            vanished.push(Vanished {
                key,
                label: entry.label,
                parent: entry.parent,
                last: entry.account,
                settled: entry.settled,
                ignores_children: entry.ignores_children,
                end,
                // A zombie's counters are its last.
                unseen_ns: if entry.has_ended { 0 } else { now.since(entry.read_at) },
            });
        }
        parents_first(&mut vanished);
        // What hangs on a parent that could not be read in time is put off, with all beneath it.
        let mut put_off: HashSet<ProcessKey> = HashSet::new();
        let (pending, settled): (Vec<_>, Vec<_>) = vanished.into_iter().partition(|process| {
            let waits = process.end.is_none()
                && process.parent.is_some_and(|parent| unread.contains(&parent) || put_off.contains(&parent));
            if waits {
                put_off.insert(process.key);
            }
            waits
        });
        self.pending = pending;

        if !settled.is_empty() {
            let parent = |(key, entry): (&ProcessKey, &Entry)| {
                let (settled, waited) = (entry.settled, entry.waited);
                (*key, Parent { settled, waited, ignores_children: entry.ignores_children })
            };
            let present: HashMap<ProcessKey, Parent> = self.entries.iter().map(parent).collect();
            self.ledger.settle(settled, &present);
        }
        for (key, entry) in &mut self.entries {
            if !unread.contains(key) {
                entry.settled = entry.waited;
            }
        }
    }

    /// Why an image of a process that is seen for the first time may have gone unread.
    fn image_before(&self, tree: &Tree, process: &Process) -> Option<String> {
        let Process { key, stat, .. } = process;
        let label = process.label();
        if process.has_ended {
            return Some(format!("{label} had ended when it was first seen"));
        }
        if !stat.image.is_known() {
            return Some(format!("the kernel does not show when {label} changes its program"));
        }
        if key.pid == tree.root() {
            let argv = self.argv.as_ref()?;
            return (!first_image::is_first(&command_line(key.pid), argv))
                .then(|| format!("{label} had changed its program before the first look"));
        }
        // After fork(2) everything lies where it lay in the parent.
        match tree.process(stat.parent) {
            Some(parent) if parent.stat.image == stat.image => None,
            _ => Some(format!("{label} had changed its program before it was first seen")),
        }
    }

    /// Takes note of a process that is gone, with what the profiler read of it if it reaped it itself.
    fn part_with_marks(&mut self, departed: &Departed) {
        let last = departed.last.as_ref();
        if let Some(stat) = last.and_then(|last| Stat::parse(&last.stat)) {
            let before = self.entries.get(&departed.key).map_or(0, |entry| entry.waited);
            if waited_faults(&stat) > before {
                let label = format!("process {} ({})", stat.pid, stat.comm);
                self.high_water.each(|stretch| stretch.lose(waited_for_unread(&label)));
            }
        }
        let max_rss = last.and_then(|last| last.max_rss);
        self.high_water.each(|stretch| stretch.depart(departed.key, max_rss));
    }

    /// Writes 5 to `/proc/PID/clear_refs` of every process, so that its high-water mark begins anew (proc(5)). It changes
    /// what the process itself is told by getrusage(2). What rose and fell again between the last reading of a mark and
    /// its reset, some microseconds, is in no figure.
    pub fn reset_peaks(&mut self) {
        let Some(mut span) = self.high_water.span.as_ref().map(HighWater::renewed) else { return };
        let mut keys: Vec<ProcessKey> =
            self.entries.iter().filter(|(_, entry)| !entry.has_ended).map(|(key, _)| *key).collect();
        keys.sort_unstable();
        for key in keys {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let text = entry.status.read(&mut self.buffer).ok();
            let Some(memory) = text.and_then(Memory::parse) else { continue };
            self.high_water.run.read(key, &memory, entry.threads);
            // What a mark rose by since the look at the stage is of the stretch that begins there.
            let rose = entry.memory.is_some_and(|before| memory.peak_rss > before.peak_rss);
            let since = if rose { memory } else { Memory { peak_rss: memory.rss, ..memory } };
            match std::fs::write(format!("/proc/{}/clear_refs", key.pid), b"5") {
                Ok(()) => {
                    self.high_water.run.reset(key);
                    span.read(key, &since, entry.threads);
                    span.reset(key);
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => span.lose(format!("the high-water mark of {} cannot be reset: {error}", entry.label)),
            }
        }
        self.high_water.span = Some(span);
    }

    fn sum(&mut self, may_lack: bool) -> Reading {
        let mut reading = Reading::default();
        let mut total = *self.ledger.retained();
        let mut memory = Memory::default();
        let (mut processes, mut threads) = (0u64, 0u64);
        let mut memory_unread = None;
        let mut io_unread = self.ledger.io_lost().map(str::to_owned);
        for entry in self.entries.values() {
            total = total.plus(&entry.account);
            if let (None, Some(reason)) = (&io_unread, &entry.io_unread) {
                io_unread = Some(reason.clone());
            }
            if entry.has_ended {
                continue;
            }
            processes += 1;
            threads += entry.threads;
            match (&entry.memory, &entry.memory_unread) {
                (Some(held), _) => memory = add(memory, held),
                (None, Some(reason)) => memory_unread = Some(reason.clone()),
                (None, None) => {}
            }
        }
        reading.values.set(Metric::Processes, processes);
        reading.values.set(Metric::Threads, threads);
        for (metric, value) in [
            (Metric::RssBytes, memory.rss),
            (Metric::RssAnonBytes, memory.anon),
            (Metric::RssFileBytes, memory.file),
            (Metric::RssShmemBytes, memory.shmem),
            (Metric::SwapBytes, memory.swap),
            (Metric::PageTableBytes, memory.page_tables),
            (Metric::HugetlbBytes, memory.hugetlb),
        ] {
            match &memory_unread {
                None => reading.values.set(metric, value),
                Some(reason) => reading.absences.push((metric, reason.clone())),
            }
        }
        let behind = may_lack.then_some("some processes are so new that they were left to the next look");
        let sum = || memory_unread.clone().map_or(Ok(memory.rss), Err);
        let bounds = self.high_water.run.bounds(sum(), behind);
        reading.bounds(Metric::RssHighWaterLowBytes, Metric::RssHighWaterHighBytes, bounds);
        let not_reset = || Err("high-water marks are not reset at stages (--reset-peaks)".to_owned());
        let bounds = match &mut self.high_water.span {
            Some(span) => span.bounds(sum(), behind),
            None => Bounds { low: not_reset(), high: not_reset() },
        };
        reading.bounds(Metric::RssSpanHighWaterLowBytes, Metric::RssSpanHighWaterHighBytes, bounds);
        for (metric, value) in [
            (Metric::MinorFaults, total.minor_faults),
            (Metric::MajorFaults, total.major_faults),
            (Metric::CpuUserNs, total.user_ticks.saturating_mul(self.ns_per_tick)),
            (Metric::CpuSystemNs, total.system_ticks.saturating_mul(self.ns_per_tick)),
        ] {
            reading.values.set(metric, self.tell(metric, value));
        }
        match (total.io, io_unread) {
            (Some(io), None) => {
                for (metric, value) in IO.into_iter().zip(io_values(&io)) {
                    reading.values.set(metric, self.tell(metric, value));
                }
            }
            (_, reason) => {
                let reason = reason.unwrap_or_else(|| "the I/O counters of a process could not be read".to_owned());
                reading.absences.extend(IO.map(|metric| (metric, reason.clone())));
            }
        }
        reading
    }

    /// A counter never falls: a total that lacks something for a tick stands still.
    fn tell(&mut self, metric: Metric, value: u64) -> u64 {
        let told = self.told.entry(metric).or_insert(value);
        *told = value.max(*told);
        *told
    }

    /// Each process's figures as last read.
    pub fn figures(&self) -> Vec<ProcessFigure> {
        let mut entries: Vec<_> = self.entries.iter().filter(|(_, entry)| !entry.has_ended).collect();
        entries.sort_unstable_by_key(|(key, _)| **key);
        let mut figures = Vec::with_capacity(entries.len() * 10);
        for (key, entry) in entries {
            let mut push = |metric, value| figures.push(ProcessFigure { pid: key.pid, metric, value });
            if let Some(memory) = &entry.memory {
                push("rss_bytes", memory.rss);
                push("peak_rss_bytes", entry.peak_rss);
                push("rss_anon_bytes", memory.anon);
                push("rss_file_bytes", memory.file);
                push("rss_shmem_bytes", memory.shmem);
            }
            push("minor_faults", entry.account.minor_faults);
            push("major_faults", entry.account.major_faults);
            if let Some(io) = &entry.account.io {
                push("read_bytes", io.read_bytes);
                push("rchar_bytes", io.rchar);
            }
            push("cpu_ns", (entry.account.user_ticks + entry.account.system_ticks).saturating_mul(self.ns_per_tick));
            push("threads", entry.threads);
        }
        figures
    }

    /// What a process held when it was last read; `None` where that is not known.
    pub fn memory(&self, key: ProcessKey) -> Option<&Memory> {
        self.entries.get(&key)?.memory.as_ref()
    }

    /// What the counters may lack at most, for `run.json`: children reaped by the kernel or orphaned, whose last
    /// counters were seen some time before their end. Empty if nothing may be lacking.
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = self.ledger.caveats();
        caveats.extend(self.deaf.caveat());
        caveats
    }
}

impl Default for ProcessProbe {
    fn default() -> ProcessProbe {
        ProcessProbe::new()
    }
}

impl Entry {
    fn read_io(&mut self, buffer: &mut Buffer) -> Result<Option<Io>, Unread> {
        self.io_file.read(buffer).map(Io::parse)
    }

    fn take_stat(&mut self, stat: &Stat, parent: Option<ProcessKey>, now: Mono, high_water: &mut Stretches) {
        self.account = Account::of(stat, self.account.io);
        if waited_faults(stat) > self.waited {
            high_water.each(|stretch| stretch.lose(waited_for_unread(&self.label)));
        }
        self.waited = waited_faults(stat);
        self.ignores_children = stat.ignores_children();
        self.threads = stat.threads;
        self.parent = parent;
        self.read_at = now;
    }

    fn take_io(&mut self, io: Result<Option<Io>, Unread>) {
        (self.account.io, self.io_unread) = match io {
            Ok(Some(io)) => (Some(io), None),
            Ok(None) => (None, Some("this kernel has no task I/O accounting (/proc/PID/io)".to_owned())),
            Err(error) => (None, Some(format!("{}: its /proc/PID/io cannot be read: {error}", self.label))),
        };
    }
}

impl Reading {
    /// Two bounds, each with the reason why it is not there.
    fn bounds(&mut self, low: Metric, high: Metric, bounds: Bounds) {
        for (metric, bound) in [(low, bounds.low), (high, bounds.high)] {
            match bound {
                Ok(value) => self.values.set(metric, value),
                Err(reason) => self.absences.push((metric, reason)),
            }
        }
    }
}

fn waited_for_unread(label: &str) -> String {
    format!("a child of {label} ended between two looks, and was not read at its end")
}

/// Sorts by the length of the chain of parents within the slice.
fn parents_first(vanished: &mut [Vanished]) {
    let parents: HashMap<ProcessKey, Option<ProcessKey>> =
        vanished.iter().map(|process| (process.key, process.parent)).collect();
    vanished.sort_by_cached_key(|process| {
        let chain = std::iter::successors(Some(process.key), |key| parents.get(key).copied().flatten());
        (chain.take(parents.len() + 1).filter(|key| parents.contains_key(key)).count(), process.key)
    });
}

fn add(sum: Memory, held: &Memory) -> Memory {
    Memory {
        rss: sum.rss.saturating_add(held.rss),
        peak_rss: 0,
        peak_virtual: 0,
        anon: sum.anon.saturating_add(held.anon),
        file: sum.file.saturating_add(held.file),
        shmem: sum.shmem.saturating_add(held.shmem),
        swap: sum.swap.saturating_add(held.swap),
        page_tables: sum.page_tables.saturating_add(held.page_tables),
        hugetlb: sum.hugetlb.saturating_add(held.hugetlb),
    }
}
