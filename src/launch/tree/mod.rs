//! The processes of the launch, keyed by pid and start time: children, grandchildren, those that called setsid or were
//! double-forked (the profiler is their subreaper).
//!
//! A sweep reads each process's `/proc/PID/stat`, parents before their children, and looks for new ones among the
//! numbers given out since the sweep before. It keeps what it read for the probes, which need the same figures; what
//! they mean is theirs to say.

mod births;
mod history;
mod view;

use std::collections::{HashMap, HashSet};

pub use super::finals::ProcessKey;
use super::finals::{FinalReading, Finals};
use crate::clock::Mono;
use crate::event::{Pid, What};
use crate::proc::stat::{Comm, Image, Stat};
use crate::proc::{Buffer, ProcFile, Unread, text};
use births::{Births, Numbers};
use history::History;
pub use history::LifeRecord;
pub use view::TreeView;

/// Something seen: the moment, for how long before it cannot have been so, and what.
pub type Sighting = (Mono, Option<u64>, What);

/// A process of the tree, as last read.
#[derive(Debug)]
pub struct Process {
    pub key: ProcessKey,
    pub stat: Stat,
    /// How many programs it has been seen to run: a new number is a new address space.
    pub image: u32,
    /// It was not there yet at this moment.
    pub born_after: Mono,
    /// It has ended, and nobody has waited for it yet: its counters are final, and it holds nothing.
    pub has_ended: bool,
    file: ProcFile,
    /// What it runs; `None` until its first exec could be told.
    program: Option<(Image, Comm)>,
}

impl Process {
    /// Its pid and name, for reasons that people read.
    pub fn label(&self) -> String {
        format!("process {} ({})", self.key.pid, self.stat.comm)
    }

    fn reread(&mut self, buffer: &mut Buffer) -> Result<(), Unread> {
        let stat = Stat::parse(self.file.read(buffer)?).ok_or(Unread::Gone)?;
        // Where the file could not be kept open, the number may be another's by now.
        if stat.start_time != self.key.start_time {
            return Err(Unread::Gone);
        }
        self.stat = stat;
        Ok(())
    }

    /// Whether it runs another program than when last asked.
    fn runs_another(&mut self) -> bool {
        let image = self.stat.image;
        if !image.is_there() {
            return false;
        }
        let same = self.program.is_some_and(|(known, comm)| {
            // A name alone may be set by the program itself; it only counts where nothing else is shown.
            known == image && (image.is_known() || comm == self.stat.comm)
        });
        if !same {
            self.program = Some((image, self.stat.comm));
            self.image += 1;
        }
        !same
    }

    /// Exit code and signal of one that has ended.
    fn end(&self, stat: &Stat) -> (Option<i32>, Option<i32>) {
        // The kernel shows 0 where it withholds the code.
        let shown = stat.exit_code != 0 || self.program.is_some_and(|(image, _)| image.is_known());
        if shown { stat.end() } else { (None, None) }
    }
}

/// A process that was reaped since the last [`Tree::take_departed`].
#[derive(Debug)]
pub struct Departed {
    pub key: ProcessKey,
    /// Where the profiler reaped it itself: its counters at its end.
    pub last: Option<FinalReading>,
}

/// More departures than this are not kept for a probe that never asks.
const MOST_DEPARTED: usize = 65_536;
/// Whose parent could not be found is asked again in so many sweeps.
const TRIES: u32 = 3;

/// The tree.
pub struct Tree {
    root: Pid,
    finals: Finals,
    mask: fn(&[String]) -> Vec<String>,
    view: TreeView,
    processes: HashMap<Pid, Process>,
    /// Parents before their children.
    order: Vec<Pid>,
    births: Births,
    /// Processes that were found to be none of ours.
    foreign: HashSet<Pid>,
    undecided: Vec<(Pid, u32)>,
    /// The moment of the last sweep: what is new now was not so then.
    previous: Mono,
    readings: HashMap<ProcessKey, FinalReading>,
    departed: Vec<Departed>,
    left: HashMap<ProcessKey, Mono>,
    events: Vec<Sighting>,
    /// Where the kernel's own records come too.
    history: Option<History>,
    /// Numbers given out since the last sweep that are not met yet.
    fresh: HashSet<Pid>,
    unmet: u64,
    buffer: Buffer,
}

impl Tree {
    /// The tree that grows from `root`, started at `start`. `finals` holds the last readings of those that the profiler
    /// reaps; `mask` takes secrets out of arguments.
    ///
    /// Every child of the calling process that is not older than the root belongs to it too, since orphans become the
    /// subreaper's children; helpers of the profiler's own are left out by [`TreeView::exclude`].
    pub fn new(root: Pid, start: Mono, finals: Finals, mask: fn(&[String]) -> Vec<String>) -> Tree {
        let tree = Tree::without_orphans(root, start, finals, mask);
        tree.view.lock().profiler = Some(std::process::id() as Pid);
        tree
    }

    /// The tree of a process that is no subreaper, whose other children are none of the tree's.
    pub fn without_orphans(root: Pid, start: Mono, finals: Finals, mask: fn(&[String]) -> Vec<String>) -> Tree {
        Tree {
            root,
            finals,
            mask,
            view: TreeView::default(),
            processes: HashMap::new(),
            order: Vec::new(),
            births: Births::after(root),
            foreign: HashSet::new(),
            undecided: Vec::new(),
            previous: start,
            readings: HashMap::new(),
            departed: Vec::new(),
            left: HashMap::new(),
            events: Vec::new(),
            history: None,
            fresh: HashSet::new(),
            unmet: 0,
            buffer: Buffer::new(),
        }
    }

    /// Asks about membership from other threads.
    pub fn view(&self) -> TreeView {
        self.view.clone()
    }

    /// Leaves out a child of the profiler that is a helper of its own, with all its descendants.
    pub fn exclude(&self, pid: Pid) {
        self.view.exclude(pid);
    }

    /// Looks for processes born, changed by exec, or gone since the last sweep; each with the moment it was seen, and
    /// for how long before it cannot have been so. A zombie counts as gone, and its status is known where the kernel
    /// shows it.
    pub fn sweep(&mut self, now: Mono) -> Vec<Sighting> {
        self.sweep_over(now, true)
    }

    /// The same without the safety net: what got its number outside the cycle, or among too many others, is left to the
    /// next sweep. Where every birth is recorded, those are looked at that [`Tree::merge`] was told of, and no numbers that
    /// others were given.
    pub fn glance(&mut self, now: Mono) -> Vec<Sighting> {
        self.sweep_over(now, false)
    }

    fn sweep_over(&mut self, now: Mono, with_net: bool) -> Vec<Sighting> {
        self.count_sweep();
        self.drop_excluded();
        if self.root_is_new() {
            self.adopt(&[self.root]);
        }
        for pid in std::mem::take(&mut self.order) {
            self.revisit(pid);
        }
        self.collect_finals();
        let numbers = if !with_net && self.knows_births() {
            Numbers { fresh: self.recorded_unmet(), ..Numbers::default() }
        } else {
            self.births.look(now, with_net, &mut self.buffer)
        };
        if let Some(in_use) = &numbers.in_use {
            let in_use: HashSet<Pid> = in_use.iter().copied().collect();
            self.foreign.retain(|pid| in_use.contains(pid));
        }
        // Whatever had these numbers when they were found foreign is gone.
        numbers.fresh.iter().for_each(|pid| {
            self.foreign.remove(pid);
        });
        self.fresh = numbers.fresh.iter().copied().filter(|pid| !self.processes.contains_key(pid)).collect();
        let met_before = numbers.fresh.len() - self.fresh.len();
        let given = numbers.given;
        let fresh = self.fresh.len();
        let mut candidates = numbers.fresh;
        candidates.extend(self.undecided.iter().map(|(pid, _)| *pid));
        if with_net {
            let Tree { births, processes, foreign, .. } = self;
            candidates.extend(births.next_listed(|pid| !processes.contains_key(&pid) && !foreign.contains(&pid)));
        }
        self.adopt(&candidates);
        let met = met_before + fresh - std::mem::take(&mut self.fresh).len();
        self.unmet += given.saturating_sub(met) as u64;
        self.arrange();
        self.view.lock().forget_old(now);
        self.left.retain(|_, gone| now.since(*gone) < 5_000_000_000);
        self.previous = now;
        std::mem::take(&mut self.events)
    }

    /// The live processes, parents before their children.
    pub fn live(&self) -> Vec<ProcessKey> {
        self.processes().filter(|process| !process.has_ended).map(|process| process.key).collect()
    }

    /// Every process that nobody has waited for yet, those that have ended included, parents before their children.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.order.iter().filter_map(|pid| self.processes.get(pid))
    }

    /// The process that has this pid now.
    pub fn process(&self, pid: Pid) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// The launched process's number.
    pub fn root(&self) -> Pid {
        self.root
    }

    /// Whether the last sweep had to leave some new process to the next, so that a process may be there and not be known.
    pub fn may_lack(&self) -> bool {
        self.births.is_behind() || !self.undecided.is_empty()
    }

    /// How many process numbers were given out so far, to anybody's processes and threads, and were gone before a sweep
    /// could read what had them: no more processes than these lived between two sweeps.
    pub fn unmet(&self) -> u64 {
        self.unmet
    }

    /// Whether a pid is, or was within the last seconds, a process of the tree.
    pub fn contains(&self, pid: Pid) -> bool {
        self.view.lock().pids.contains_key(&pid)
    }

    /// Reads a process's stat again, for a probe that must know it later than the sweep; `None` if it is gone.
    pub fn reread(&mut self, key: ProcessKey) -> Option<&Stat> {
        let process = self.processes.get_mut(&key.pid).filter(|process| process.key == key)?;
        match process.reread(&mut self.buffer) {
            Err(Unread::Gone) => {
                self.lose(key);
                None
            }
            _ => self.processes.get(&key.pid).map(|process| &process.stat),
        }
    }

    /// Takes note that a probe found a process gone. The next sweep tells it.
    pub fn lose(&mut self, key: ProcessKey) {
        if self.processes.get(&key.pid).is_some_and(|process| process.key == key) {
            self.collect_finals();
            self.part_with(key.pid);
        }
    }

    /// The processes reaped since the last call, those included that only the profiler's own reaping showed.
    pub fn take_departed(&mut self) -> Vec<Departed> {
        std::mem::take(&mut self.departed)
    }

    fn tell(&mut self, what: What) {
        let at = Mono::now();
        self.events.push((at, Some(at.since(self.previous)), what));
    }

    fn root_is_new(&self) -> bool {
        self.view.lock().root_start.is_none()
    }

    fn drop_excluded(&mut self) {
        let mut members = self.view.lock();
        let excluded: Vec<Pid> =
            members.excluded.iter().copied().filter(|pid| self.processes.contains_key(pid)).collect();
        for pid in excluded {
            members.pids.remove(&pid);
            self.processes.remove(&pid);
            self.order.retain(|member| *member != pid);
        }
    }

    /// Reads a known process again.
    fn revisit(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        match process.reread(&mut self.buffer) {
            Ok(()) => self.compare(pid),
            Err(Unread::Gone) => {
                // Whoever reaped it has put its reading down before.
                self.collect_finals();
                self.part_with(pid);
            }
            // Nothing is known of it now: too many open files, say. It stays as it was.
            Err(_) => {}
        }
    }

    /// Tells an exec or an end that the last reading shows.
    fn compare(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.stat.has_ended() {
            if !process.has_ended {
                process.has_ended = true;
                let (code, signal) = process.end(&process.stat);
                self.tell(What::Gone { pid, code, signal });
            }
        } else if process.runs_another() {
            let mut argv = text::command_line(pid);
            if argv.is_empty() {
                argv.push(format!("[{}]", process.stat.comm));
            }
            let argv = (self.mask)(&argv);
            self.tell(What::Exec { pid, argv });
        }
    }

    /// Forgets a process that was reaped, and keeps its departure for the probes.
    fn part_with(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else { return };
        let last = self.readings.remove(&process.key);
        if !process.has_ended {
            let (code, signal) = match last.as_ref().and_then(|reading| Stat::parse(&reading.stat)) {
                Some(stat) => process.end(&stat),
                None => (None, None),
            };
            self.tell(What::Gone { pid, code, signal });
        }
        self.depart(process.key, last);
    }

    fn depart(&mut self, key: ProcessKey, last: Option<FinalReading>) {
        let now = Mono::now();
        self.left.insert(key, now);
        self.view.lock().pids.insert(key.pid, Some(now));
        if self.departed.len() < MOST_DEPARTED {
            self.departed.push(Departed { key, last });
        }
    }

    /// Takes over what the profiler read of those that it reaped. Some of them lived between two sweeps and were never
    /// seen alive.
    fn collect_finals(&mut self) {
        for (key, reading) in self.finals.drain() {
            if self.processes.get(&key.pid).is_some_and(|process| process.key == key) {
                self.readings.insert(key, reading);
                continue;
            }
            if self.left.contains_key(&key) || self.view.lock().excluded.contains(&key.pid) {
                continue;
            }
            let Some(stat) = Stat::parse(&reading.stat) else { continue };
            if key.pid == self.root {
                self.view.lock().root_start = Some(key.start_time);
            }
            self.tell(What::Born { pid: key.pid, parent: stat.parent });
            let (code, signal) = if stat.exit_code == 0 { (None, None) } else { stat.end() };
            self.tell(What::Gone { pid: key.pid, code, signal });
            self.depart(key, Some(reading));
        }
    }

    /// Takes those candidates into the tree that belong to it.
    fn adopt(&mut self, candidates: &[Pid]) {
        let mut probed: HashSet<Pid> = HashSet::new();
        let mut batch: Vec<(ProcFile, Stat)> = Vec::new();
        for &pid in candidates {
            if !self.processes.contains_key(&pid) && probed.insert(pid) {
                batch.extend(self.probe(pid));
            }
        }
        // A child may have been probed before its parent, and a parent may not be among the candidates at all.
        loop {
            let mut left = Vec::new();
            let mut parents = Vec::new();
            let before = batch.len();
            for (file, stat) in batch {
                match self.place(&stat) {
                    Place::Ours => self.take_in(file, stat),
                    Place::Foreign => {
                        self.foreign.insert(stat.pid);
                    }
                    Place::Open => {
                        if probed.insert(stat.parent) {
                            parents.push(stat.parent);
                        }
                        left.push((file, stat));
                    }
                }
            }
            let settled = left.len() < before;
            batch = left;
            for pid in &parents {
                batch.extend(self.probe(*pid));
            }
            if batch.is_empty() || (!settled && parents.is_empty()) {
                break;
            }
        }
        // Their parents ended while this was asked, and they have others now.
        let before = std::mem::take(&mut self.undecided);
        for (_, stat) in batch {
            let tries = before.iter().find(|(pid, _)| *pid == stat.pid).map_or(0, |(_, tries)| *tries);
            if tries < TRIES {
                self.undecided.push((stat.pid, tries + 1));
            }
        }
    }

    fn probe(&mut self, pid: Pid) -> Option<(ProcFile, Stat)> {
        let mut file = ProcFile::of(pid, "stat");
        let stat = file.read(&mut self.buffer).ok().and_then(Stat::parse)?;
        self.fresh.remove(&pid);
        (!stat.is_thread() && stat.pid == pid).then_some((file, stat))
    }

    fn place(&self, stat: &Stat) -> Place {
        let members = self.view.lock();
        if stat.pid == self.root {
            return Place::Ours;
        }
        if members.excluded.contains(&stat.pid)
            || Some(stat.pid) == members.profiler
            || members.root_start.is_some_and(|start| stat.start_time < start)
        {
            return Place::Foreign;
        }
        if self.processes.contains_key(&stat.parent) || Some(stat.parent) == members.profiler {
            return Place::Ours;
        }
        if stat.parent <= 0 || members.excluded.contains(&stat.parent) || self.foreign.contains(&stat.parent) {
            return Place::Foreign;
        }
        Place::Open
    }

    fn take_in(&mut self, file: ProcFile, stat: Stat) {
        let pid = stat.pid;
        let key = ProcessKey { pid, start_time: stat.start_time };
        if self.left.contains_key(&key) {
            return;
        }
        {
            let mut members = self.view.lock();
            if pid == self.root {
                members.root_start = Some(stat.start_time);
            }
            members.pids.insert(pid, None);
        }
        self.foreign.remove(&pid);
        let born_after = self.previous;
        self.processes.insert(pid, Process { key, stat, image: 0, born_after, has_ended: false, file, program: None });
        self.order.push(pid);
        self.tell(What::Born { pid, parent: stat.parent });
        self.compare(pid);
    }

    /// Puts parents before their children.
    fn arrange(&mut self) {
        let depth = |pid: Pid| {
            let mut depth = 0;
            let mut at = pid;
            while let Some(process) = self.processes.get(&at) {
                // A chain of parents cannot be longer than there are processes.
                if depth > self.processes.len() {
                    break;
                }
                depth += 1;
                at = process.stat.parent;
            }
            depth
        };
        let mut order: Vec<_> = self
            .processes
            .values()
            .map(|process| (depth(process.key.pid), process.key.start_time, process.key.pid))
            .collect();
        order.sort_unstable();
        self.order = order.into_iter().map(|(_, _, pid)| pid).collect();
    }
}

/// Where a process belongs.
enum Place {
    Ours,
    Foreign,
    /// Its parent is not known yet.
    Open,
}
