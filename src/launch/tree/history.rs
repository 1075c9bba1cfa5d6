//! The history of the tree by the kernel's own records, and how it goes together with what a sweep sees.
//!
//! A record has the moment itself, and there is one of every process, however short its life; a sweep has the exit
//! status, the arguments, and whatever no record could tell (records were lost, or a set-user-ID program took its events
//! off: begin_new_exec, fs/exec.c). Whatever both tell is one event, with the record's time. A process is a pid from
//! one birth to the next.

use std::collections::HashMap;

use super::{Process, Sighting, Tree};
use crate::clock::Mono;
use crate::event::{Pid, What, text_of};
use crate::proc::text;

/// What one record tells of a process. Its threads are no processes, but the last of them ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifeRecord {
    Fork {
        pid: Pid,
        parent: Pid,
    },
    /// One thread more.
    Thread {
        pid: Pid,
    },
    /// It runs another program, whose file has this name (15 bytes of it).
    Exec {
        pid: Pid,
        comm: Vec<u8>,
    },
    /// It gave itself another name.
    Renamed {
        pid: Pid,
        comm: Vec<u8>,
    },
    /// One thread less.
    ThreadEnd {
        pid: Pid,
    },
}

/// From one birth under a pid to the next.
#[derive(Clone, Debug)]
struct Life {
    born: Mono,
    /// How many threads it has; `None` once a record may be missing, and then only a sweep can tell the end.
    threads: Option<u32>,
    comm: Vec<u8>,
    last_exec: Option<Mono>,
    ended: Option<Mono>,
    /// A sweep saw it.
    met: bool,
}

impl Life {
    fn new(born: Mono, threads: Option<u32>) -> Life {
        Life { born, threads, comm: Vec::new(), last_exec: None, ended: None, met: false }
    }

    fn met(self) -> Life {
        Life { met: true, ..self }
    }

    /// Whether every record of it comes here.
    fn is_told(&self) -> bool {
        self.threads.is_some()
    }
}

/// An exec whose arguments are not read yet.
#[derive(Debug)]
struct Exec {
    at: Mono,
    pid: Pid,
    comm: Vec<u8>,
    tries: u32,
}

/// An end whose status may still come, until the sweep after this one.
#[derive(Debug)]
struct Ending {
    at: Mono,
    pid: Pid,
    sweep: u64,
}

type Status = (Mono, Option<i32>, Option<i32>);

/// A process in the middle of its exec shows no arguments; it is asked in so many looks.
const TRIES: u32 = 3;
/// What has ended is remembered for so long.
const REMEMBERED_NS: u64 = 5_000_000_000;
/// A process shows itself some time before its birth is recorded, and still for some time after its end was: it may lose
/// the CPU in between (copy_process, kernel/fork.c; do_exit, kernel/exit.c). A number is not given twice in that time.
const SLACK_NS: u64 = 1_000_000_000;
/// Forgetting is done every so many sweeps.
const FORGET_EVERY: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct History {
    /// The lives under a pid, oldest first.
    lives: HashMap<Pid, Vec<Life>>,
    execs: Vec<Exec>,
    endings: Vec<Ending>,
    statuses: HashMap<Pid, Status>,
    /// What only sweeps have seen, each with the number of its sweep: its record may be on the way.
    held: Vec<(u64, Sighting)>,
    sweeps: u64,
    told: Vec<Sighting>,
    /// Records were lost: a parent that is not known is no stranger.
    lossy: bool,
    /// Some process took its events off: the births beneath it are not recorded.
    partial: bool,
    /// The first that no sweep has met, since the last time that somebody asked.
    unmet: Option<String>,
    /// What the root was started with, until its first exec was told.
    started: Vec<String>,
}

impl History {
    fn last(&mut self, pid: Pid) -> Option<&mut Life> {
        self.lives.get_mut(&pid)?.last_mut()
    }

    fn living(&mut self, pid: Pid) -> Option<&mut Life> {
        self.last(pid).filter(|life| life.ended.is_none())
    }

    /// The life that something belongs to which was so at `at`, and not yet `window` before.
    fn of(&mut self, pid: Pid, at: Mono, window: Option<u64>) -> Option<&mut Life> {
        let since = beginning(at, window);
        let life = self.lives.get_mut(&pid)?.iter_mut().rev().find(|life| life.born <= at)?;
        life.ended.is_none_or(|ended| ended >= since).then_some(life)
    }

    /// The life whose birth was recorded soon after `at`.
    fn born_after(&mut self, pid: Pid, at: Mono) -> Option<&mut Life> {
        let soon = |life: &&mut Life| life.born > at && life.born.since(at) <= SLACK_NS;
        self.lives.get_mut(&pid)?.iter_mut().find(soon)
    }

    /// Looks for one that had ended by `swept`, when a sweep began, and that none has met.
    fn look_for_unmet(&mut self, swept: Mono) {
        for Ending { at, pid, .. } in &self.endings {
            let life = self.lives.get(pid).and_then(|lives| lives.iter().rev().find(|life| life.ended == Some(*at)));
            if let Some(life) = life.filter(|life| !life.met && *at <= swept) {
                let name = String::from_utf8_lossy(&life.comm);
                let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
                self.unmet.get_or_insert(format!("process {pid}{name} was born and gone between two looks"));
                return;
            }
        }
    }

    fn begin(&mut self, pid: Pid, life: Life) {
        self.lives.entry(pid).or_default().push(life);
    }

    fn tell(&mut self, at: Mono, what: What) {
        self.told.push((at, Some(0), what));
    }

    fn forget(&mut self, now: Mono, is_there: impl Fn(Pid) -> bool) {
        let is_old = |at: Mono| now.since(at) > REMEMBERED_NS;
        self.statuses.retain(|_, (at, _, _)| !is_old(*at));
        self.lives.retain(|pid, lives| {
            // What a sweep will yet tell of one that nobody has waited for was told.
            lives.retain(|life| !life.ended.is_some_and(is_old) || is_there(*pid));
            !lives.is_empty()
        });
    }

    /// One thread less; the last one's end is the process's.
    fn thread_ended(&mut self, at: Mono, pid: Pid) {
        let sweep = self.sweeps;
        let Some(life) = self.living(pid) else { return };
        let Some(threads) = &mut life.threads else { return };
        *threads = threads.saturating_sub(1);
        if *threads == 0 {
            life.ended = Some(at);
            self.endings.push(Ending { at, pid, sweep });
        }
    }

    /// Something that a sweep saw, told unless a record has told it. `again`: its record had time to come.
    fn confirm(&mut self, sweep: u64, sighting: Sighting, again: bool) {
        let (at, window, what) = &sighting;
        let (at, window) = (*at, *window);
        match what {
            What::Born { pid, .. } => {
                if let Some(life) = self.of(*pid, at, window) {
                    life.met = true;
                    return;
                }
                if let Some(life) = self.born_after(*pid, at) {
                    life.met = true;
                    return;
                }
                if !again {
                    return self.held.push((sweep, sighting));
                }
                self.begin(*pid, Life::new(at, None).met());
                self.told.push(sighting);
            }
            What::Exec { pid, .. } => {
                let known = self.of(*pid, at, window).is_some_and(|life| {
                    let since = at.0.saturating_sub(window.unwrap_or(u64::MAX));
                    life.is_told() || life.last_exec.is_some_and(|exec| exec <= at && exec.0 >= since)
                });
                match (known, again) {
                    (true, _) => {}
                    (false, true) => self.told.push(sighting),
                    (false, false) => self.held.push((sweep, sighting)),
                }
            }
            What::Gone { pid, code, signal } => {
                if code.is_some() || signal.is_some() {
                    self.statuses.insert(*pid, (at, *code, *signal));
                }
                // Of a number that is given again and again, the sweep saw one of those ends.
                let since = beginning(at, window);
                let ended_then = |life: &Life| life.ended.is_some_and(|ended| ended >= since && ended <= at);
                if self.lives.get(pid).is_some_and(|lives| lives.iter().any(ended_then)) {
                    return;
                }
                let life = self.of(*pid, at, window);
                if life.as_ref().is_some_and(|life| life.ended.is_some()) {
                    return;
                }
                if !again {
                    return self.held.push((sweep, sighting));
                }
                if let Some(life) = life {
                    life.ended = Some(at);
                }
                self.told.push(sighting);
            }
            _ => self.told.push(sighting),
        }
    }
}

/// From when on a life may have ended that a sweep saw something of at `at`, and not yet `window` before.
fn beginning(at: Mono, window: Option<u64>) -> Mono {
    Mono(at.0.saturating_sub(window.unwrap_or(u64::MAX)).saturating_sub(SLACK_NS))
}

impl Tree {
    /// From here on the kernel's records of the tree come to [`Tree::merge`]. `start` is the root's exec, `argv` what it
    /// was started with.
    pub fn keep_history(&mut self, start: Mono, argv: Vec<String>) {
        let mut history = History { started: argv, ..History::default() };
        history.begin(self.root, Life::new(start, Some(1)).met());
        history.tell(start, What::Born { pid: self.root, parent: std::process::id() as Pid });
        self.history = Some(history);
        // Whatever is born in the tree is recorded.
        self.births.all_known(start);
    }

    /// The processes that the records have told of and no sweep has met.
    pub(super) fn recorded_unmet(&self) -> Vec<Pid> {
        let lives = self.history.iter().flat_map(|history| &history.lives);
        let is_unmet = |lives: &[Life]| lives.last().is_some_and(|life| !life.met && life.ended.is_none());
        let mut unmet: Vec<(Mono, Pid)> = lives
            .filter(|(_, lives)| is_unmet(lives))
            .filter_map(|(pid, lives)| Some((lives.last()?.born, *pid)))
            .collect();
        // Parents before their children.
        unmet.sort_unstable();
        unmet.into_iter().map(|(_, pid)| pid).collect()
    }

    /// Takes the status of a process that was reaped, to be told with its end. `false` where no history is kept, and
    /// whoever asks must tell it.
    pub fn reaped(&mut self, at: Mono, window: Option<u64>, what: &What) -> bool {
        let Some(history) = &mut self.history else { return false };
        let sweep = history.sweeps;
        history.confirm(sweep, (at, window, what.clone()), false);
        true
    }

    /// Whether every birth in the tree is recorded.
    pub fn knows_births(&self) -> bool {
        self.history.as_ref().is_some_and(|history| !history.lossy && !history.partial)
    }

    /// A process that lived between two sweeps, in words, if the records told of one since this was last asked.
    pub fn take_unmet_birth(&mut self) -> Option<String> {
        self.history.as_mut()?.unmet.take()
    }

    /// When the process that had this pid last ended, by the records.
    pub fn end_of(&self, pid: Pid) -> Option<Mono> {
        self.history.as_ref()?.lives.get(&pid)?.last()?.ended
    }

    /// Whether the process that has this pid now was born by then, as far as the records say.
    pub fn is_same(&self, pid: Pid, at: Mono) -> bool {
        let lives = self.history.as_ref().and_then(|history| history.lives.get(&pid));
        lives.and_then(|lives| lives.last()).is_none_or(|life| life.born <= at && life.ended.is_none())
    }

    /// Records were lost: nothing that is known by them alone is certain, and the next sweep looks at everything.
    pub fn records_lost(&mut self) {
        if let Some(history) = &mut self.history {
            history.lossy = true;
            history.lives.values_mut().flatten().for_each(|life| life.threads = None);
        }
        self.births.list_next();
    }

    /// Puts records, in order of time, together with what the last sweep saw (nothing, where none was made since). Each
    /// event of a process comes out once; what a record may yet tell comes out after the next sweep.
    ///
    /// Without a history the sweep's sightings come out as they are.
    pub fn merge(
        &mut self,
        records: impl IntoIterator<Item = (Mono, LifeRecord)>,
        swept: Vec<Sighting>,
    ) -> Vec<Sighting> {
        let Some(mut history) = self.history.take() else { return swept };
        for (at, record) in records {
            self.record(&mut history, at, record);
        }
        let sweep = history.sweeps;
        for (number, sighting) in std::mem::take(&mut history.held) {
            history.confirm(number, sighting, number < sweep);
        }
        for sighting in swept {
            history.confirm(sweep, sighting, false);
        }
        history.look_for_unmet(self.previous);
        self.tell_execs(&mut history, false);
        self.tell_endings(&mut history, false);
        if history.sweeps % FORGET_EVERY == FORGET_EVERY - 1 {
            history.forget(Mono::now(), |pid| self.processes.contains_key(&pid));
        }
        let told = std::mem::take(&mut history.told);
        self.history = Some(history);
        told
    }

    /// Tells what was held back. For the end, when no more records come.
    pub fn settle(&mut self) -> Vec<Sighting> {
        let Some(mut history) = self.history.take() else { return Vec::new() };
        for (number, sighting) in std::mem::take(&mut history.held) {
            history.confirm(number, sighting, true);
        }
        self.tell_execs(&mut history, true);
        self.tell_endings(&mut history, true);
        let told = std::mem::take(&mut history.told);
        self.history = Some(history);
        told
    }

    pub(super) fn count_sweep(&mut self) {
        if let Some(history) = &mut self.history {
            history.sweeps += 1;
        }
    }

    fn record(&self, history: &mut History, at: Mono, record: LifeRecord) {
        let is_member = |pid: Pid| self.view.lock().pids.contains_key(&pid);
        match record {
            LifeRecord::Fork { pid, parent } => {
                if history.last(parent).is_none() && !history.lossy && !is_member(parent) {
                    return;
                }
                if let Some(life) = history.living(pid) {
                    // The number was given again: its end was missed.
                    let since = life.last_exec.unwrap_or(life.born);
                    life.ended = Some(at);
                    let end = What::Gone { pid, code: None, signal: None };
                    history.told.push((at, Some(at.since(since)), end));
                }
                history.begin(pid, Life::new(at, Some(1)));
                history.tell(at, What::Born { pid, parent });
            }
            LifeRecord::Thread { pid } => {
                if let Some(threads) = history.living(pid).and_then(|life| life.threads.as_mut()) {
                    *threads += 1;
                }
            }
            LifeRecord::Exec { pid, comm } => {
                if history.living(pid).is_none() {
                    // Its birth was lost, or it was a stranger's.
                    let Some(process) = self.processes.get(&pid) else { return };
                    let parent = process.stat.parent;
                    history.begin(pid, Life::new(at, None).met());
                    let since_start =
                        history.lives.get(&self.root).and_then(|lives| lives.first()).map(|life| life.born);
                    let window = since_start.map(|start| at.since(start));
                    history.told.push((at, window, What::Born { pid, parent }));
                }
                if let Some(life) = history.living(pid) {
                    life.last_exec = Some(at);
                    life.comm.clone_from(&comm);
                }
                history.execs.push(Exec { at, pid, comm, tries: 0 });
            }
            LifeRecord::Renamed { pid, comm } => {
                if let Some(life) = history.living(pid) {
                    life.comm = comm;
                }
            }
            LifeRecord::ThreadEnd { pid } => history.thread_ended(at, pid),
        }
    }

    /// The arguments are those of the last program alone, and only as long as it is there; of the others the name is
    /// known.
    fn tell_execs(&self, history: &mut History, last_time: bool) {
        for mut exec in std::mem::take(&mut history.execs) {
            let comm = match history.living(exec.pid) {
                Some(life) if life.last_exec == Some(exec.at) => Some(life.comm.clone()),
                _ => None,
            };
            let argv = comm.map(|comm| (text::command_line(exec.pid), comm));
            let argv = match argv {
                Some((argv, _)) if argv.is_empty() && exec.tries < TRIES && !last_time => {
                    exec.tries += 1;
                    history.execs.push(exec);
                    continue;
                }
                // Another program may run there by now, of which nobody has told yet.
                Some((argv, comm)) if !argv.is_empty() && is_named(exec.pid, &comm) => argv,
                _ if exec.pid == self.root && !history.started.is_empty() => std::mem::take(&mut history.started),
                _ => {
                    use std::os::unix::ffi::OsStrExt;
                    vec![format!("[{}]", text_of(std::ffi::OsStr::from_bytes(&exec.comm)))]
                }
            };
            if exec.pid == self.root {
                history.started.clear();
            }
            history.tell(exec.at, What::Exec { pid: exec.pid, argv: (self.mask)(&argv) });
        }
    }

    fn tell_endings(&self, history: &mut History, last_time: bool) {
        for ending in std::mem::take(&mut history.endings) {
            let Ending { at, pid, sweep } = ending;
            let status = history.statuses.get(&pid).copied().filter(|(seen, _, _)| *seen >= at);
            if status.is_none() && sweep >= history.sweeps && !last_time {
                history.endings.push(ending);
                continue;
            }
            // One that is on its way out has given its memory back before its end was recorded.
            let goes_on = |process: &Process| !process.has_ended && process.stat.image.is_there();
            let still_there = self.processes.get(&pid).is_some_and(goes_on);
            if status.is_none()
                && still_there
                && sweep < history.sweeps
                && let Some(life) = history.last(pid).filter(|life| life.ended == Some(at))
            {
                // Not its end, but that of its events: it runs a program that may not be watched.
                (life.ended, life.threads) = (None, None);
                history.partial = true;
                continue;
            }
            if status.is_some() {
                history.statuses.remove(&pid);
            }
            let (_, code, signal) = status.unwrap_or((at, None, None));
            history.tell(at, What::Gone { pid, code, signal });
        }
    }
}

/// Whether a process has this name now (proc_pid_comm(5)).
fn is_named(pid: Pid, comm: &[u8]) -> bool {
    std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_ascii_end() == comm.trim_ascii_end())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::launch::Finals;

    const ROOT: Pid = 1_000_000_001;
    const CHILD: Pid = 1_000_000_002;

    /// Pids that no process has: no sweep is made, and what would have been swept is given.
    fn tree() -> Tree {
        let mut tree = Tree::without_orphans(ROOT, Mono(100), Finals::default(), |argv| argv.to_vec());
        tree.keep_history(Mono(100), Vec::new());
        assert_eq!(
            tree.merge([], vec![]),
            [(Mono(100), Some(0), What::Born { pid: ROOT, parent: std::process::id() as Pid })]
        );
        tree
    }

    fn fork(at: u64, pid: Pid) -> (Mono, LifeRecord) {
        (Mono(at), LifeRecord::Fork { pid, parent: ROOT })
    }

    fn exec(at: u64, pid: Pid, comm: &str) -> (Mono, LifeRecord) {
        (Mono(at), LifeRecord::Exec { pid, comm: comm.into() })
    }

    fn end(at: u64, pid: Pid) -> (Mono, LifeRecord) {
        (Mono(at), LifeRecord::ThreadEnd { pid })
    }

    fn born(at: u64, window: u64, pid: Pid) -> Sighting {
        (Mono(at), Some(window), What::Born { pid, parent: ROOT })
    }

    fn ran(at: u64, window: u64, pid: Pid, name: &str) -> Sighting {
        (Mono(at), Some(window), What::Exec { pid, argv: vec![name.to_owned()] })
    }

    fn gone(at: u64, window: u64, pid: Pid, code: Option<i32>) -> Sighting {
        (Mono(at), Some(window), What::Gone { pid, code, signal: None })
    }

    #[test]
    fn a_glance_meets_those_that_are_recorded_and_a_sweep_the_others() {
        let own = std::process::id() as Pid;
        let mut tree = Tree::without_orphans(own, Mono::now(), Finals::default(), |argv| argv.to_vec());
        tree.keep_history(Mono::now(), Vec::new());
        let start = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut children = [start(), start()];
        let [told, untold] = [0, 1].map(|index: usize| children[index].id() as Pid);
        tree.merge([(Mono::now(), LifeRecord::Fork { pid: told, parent: own })], vec![]);
        let swept = tree.glance(Mono::now());
        assert!(tree.process(told).is_some() && tree.process(untold).is_none());
        // It has the record's time already.
        assert!(tree.merge([], swept).iter().all(|(_, _, what)| !matches!(what, What::Born { .. })));
        assert!(tree.recorded_unmet().is_empty());
        crate::testing::until("the other is met", || {
            tree.sweep(Mono::now());
            tree.process(untold).is_some()
        });
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn what_both_have_seen_is_one_event_with_the_record_s_time_and_the_sweep_s_status() {
        let mut tree = tree();
        tree.count_sweep();
        let swept = vec![born(300, 150, CHILD), ran(300, 150, CHILD, "false"), gone(300, 150, CHILD, Some(1))];
        let told = tree.merge([fork(200, CHILD), exec(210, CHILD, "false"), end(220, CHILD)], swept);
        // Nothing can be read of it any more, so its name stands for its arguments.
        assert_eq!(told, [born(200, 0, CHILD), ran(210, 0, CHILD, "[false]"), gone(220, 0, CHILD, Some(1))]);
        assert!(tree.settle().is_empty());
    }

    #[test]
    fn a_status_that_comes_later_is_waited_for_until_the_next_sweep() {
        let mut tree = tree();
        tree.count_sweep();
        assert_eq!(tree.merge([fork(200, CHILD), end(220, CHILD)], vec![]), [born(200, 0, CHILD)]);
        assert!(tree.merge([], vec![]).is_empty());
        assert!(tree.reaped(Mono(230), Some(10), &What::Gone { pid: CHILD, code: Some(3), signal: None }));
        assert_eq!(tree.merge([], vec![]), [gone(220, 0, CHILD, Some(3))]);

        assert_eq!(tree.merge([fork(300, CHILD), end(320, CHILD)], vec![]), [born(300, 0, CHILD)]);
        tree.count_sweep();
        assert_eq!(tree.merge([], vec![]), [gone(320, 0, CHILD, None)]);
        assert!(tree.settle().is_empty());
    }

    #[test]
    fn a_pid_that_is_given_again_is_another_process() {
        let mut tree = tree();
        let records = [fork(200, CHILD), end(220, CHILD), fork(230, CHILD), end(240, CHILD), fork(250, CHILD)];
        let mut told = tree.merge(records, vec![]);
        told.extend(tree.settle());
        told.sort_by_key(|(at, _, _)| *at);
        assert_eq!(
            told,
            [
                born(200, 0, CHILD),
                gone(220, 0, CHILD, None),
                born(230, 0, CHILD),
                gone(240, 0, CHILD, None),
                born(250, 0, CHILD)
            ]
        );
        // Its end was not recorded: it lies between the two births.
        let told = tree.merge([fork(300, CHILD)], vec![]);
        assert_eq!(told, [gone(300, 50, CHILD, None), born(300, 0, CHILD)]);
    }

    #[test]
    fn the_last_thread_ends_a_process() {
        let mut tree = tree();
        let thread = |at| (Mono(at), LifeRecord::Thread { pid: CHILD });
        tree.merge([fork(200, CHILD), thread(205), thread(206), end(210, CHILD), end(211, CHILD)], vec![]);
        assert_eq!(tree.end_of(CHILD), None);
        assert!(tree.is_same(CHILD, Mono(200)) && !tree.is_same(CHILD, Mono(199)));
        tree.merge([end(220, CHILD)], vec![]);
        assert_eq!(tree.end_of(CHILD), Some(Mono(220)));
    }

    #[test]
    fn what_no_record_tells_is_told_by_the_sweep_a_look_later() {
        let mut tree = tree();
        tree.count_sweep();
        let swept = || vec![born(300, 100, CHILD), ran(300, 100, CHILD, "x"), gone(310, 100, CHILD, Some(0))];
        assert!(tree.merge([], swept()).is_empty());
        tree.count_sweep();
        assert_eq!(tree.merge([], vec![]), swept());
        assert!(tree.settle().is_empty());
        // A stranger's child is none of the tree's.
        let stranger = (Mono(400), LifeRecord::Fork { pid: 7, parent: 1_000_000_009 });
        assert!(tree.merge([stranger, end(401, 7)], vec![]).is_empty());
    }

    #[test]
    fn a_sweep_that_sees_a_birth_before_its_record_or_an_end_after_it_tells_nothing_new() {
        let mut tree = tree();
        tree.count_sweep();
        assert!(tree.merge([], vec![born(190, 90, CHILD)]).is_empty());
        tree.count_sweep();
        assert_eq!(tree.merge([fork(200, CHILD)], vec![]), [born(200, 0, CHILD)]);
        // Its end was recorded before a sweep to which it was still there.
        assert!(tree.merge([end(300, CHILD)], vec![]).is_empty());
        tree.count_sweep();
        assert_eq!(tree.merge([], vec![]), [gone(300, 0, CHILD, None)]);
        for _ in 0..2 {
            tree.count_sweep();
            assert!(tree.merge([], vec![gone(500, 190, CHILD, Some(0))]).is_empty());
        }
        // Nor is one born again that a sweep met late on its way out.
        tree.count_sweep();
        assert!(tree.merge([], vec![born(600, 90, CHILD), gone(600, 90, CHILD, Some(0))]).is_empty());
        tree.count_sweep();
        assert!(tree.merge([], vec![]).is_empty() && tree.settle().is_empty());
    }

    #[test]
    fn who_came_and_went_between_two_sweeps_is_known_and_who_was_met_is_not_among_them() {
        let mut tree = tree();
        assert!(tree.knows_births());
        tree.count_sweep();
        tree.merge([fork(150, CHILD)], vec![born(160, 60, CHILD)]);
        tree.previous = Mono(200);
        tree.merge([end(180, CHILD), fork(210, CHILD + 1), exec(215, CHILD + 1, "true"), end(220, CHILD + 1)], vec![]);
        assert_eq!(tree.take_unmet_birth(), None, "a sweep after its end may yet meet it");
        tree.count_sweep();
        tree.previous = Mono(300);
        tree.merge([], vec![]);
        let told = tree.take_unmet_birth().unwrap();
        assert!(told.contains(&format!("process {} (true) was born and gone", CHILD + 1)), "{told}");
        assert_eq!(tree.take_unmet_birth(), None);
        tree.records_lost();
        assert!(!tree.knows_births());
    }

    #[test]
    fn after_a_loss_the_sweeps_tell_the_ends() {
        let mut tree = tree();
        tree.merge([fork(200, CHILD)], vec![]);
        tree.records_lost();
        assert!(tree.merge([end(210, CHILD)], vec![]).is_empty());
        assert_eq!(tree.end_of(CHILD), None);
        tree.count_sweep();
        assert!(tree.merge([], vec![gone(300, 50, CHILD, None)]).is_empty());
        tree.count_sweep();
        assert_eq!(tree.merge([], vec![]), [gone(300, 50, CHILD, None)]);
    }
}
