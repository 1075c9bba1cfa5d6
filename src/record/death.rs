//! Watches for a death before its time, and says what most likely caused it: the last stage, the groups that the launch's
//! processes are in, and who was killed.
//!
//! It looks at `/proc/PID/cgroup` once for each program that runs, and now and then for what moved since; at the groups
//! themselves only where something died.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;

use crate::clock::{At, Beat, Mono};
use crate::event::{Event, Evidence, Pid, What};
use crate::host::Roots;
use crate::host::oom::{GroupEvents, HOST, OomWatch};
use crate::launch::tree::{ProcessKey, Tree};
use crate::run::Meta;
use crate::run::death::{Cause, Death, signal_name};
use crate::units;

/// Processes that are asked in one look.
const MOST_AT_ONCE: usize = 64;
/// Longest text of `/proc/PID/cgroup` that is read: some dozen lines.
const LONGEST: u64 = 16 * 1024;
/// Killed processes that are kept.
const MOST_KILLED: usize = 64;

/// Signals by which a server is ended in the ordinary way: after the stopping event they are no death worth telling.
const ORDINARY: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE];

/// The watch.
pub struct DeathWatch {
    oom: OomWatch,
    /// The program that each process ran when its groups were asked for.
    asked: HashMap<ProcessKey, u32>,
    /// All processes are asked again for their groups so often.
    again: Beat,
    texts: HashSet<String>,
    /// Stages reached while the command ran, in order.
    reached: Vec<String>,
    /// When, who: killed by SIGKILL.
    killed: Vec<(At, Pid)>,
    /// Those whose parent reaped them before their status could be read, and that a look had met before. The kernel's
    /// records tell of many more, too short for a look: the out-of-memory killer does not choose those.
    vanished: Vec<(At, Pid)>,
    met: HashSet<Pid>,
}

impl DeathWatch {
    /// To be called before the command starts: a count that rises later must not have risen before.
    pub fn begin() -> DeathWatch {
        DeathWatch {
            oom: OomWatch::begin(Roots::default()),
            asked: HashMap::new(),
            again: Beat::GROUPS,
            texts: HashSet::new(),
            reached: Vec::new(),
            killed: Vec::new(),
            vanished: Vec::new(),
            met: HashSet::new(),
        }
    }

    /// Follows the groups of what is new in the tree.
    pub fn look(&mut self, tree: &Tree) {
        let now = Mono::now();
        if self.again.is_due(now) {
            self.asked.clear();
            self.again.done(now);
        }
        let mut left = MOST_AT_ONCE;
        for process in tree.processes().filter(|process| !process.has_ended) {
            self.met.insert(process.key.pid);
        }
        for process in tree.processes().filter(|process| !process.has_ended) {
            if left == 0 {
                return;
            }
            if self.asked.get(&process.key) != Some(&process.image) {
                left -= 1;
                self.asked.insert(process.key, process.image);
                if let Some(text) = membership(process.key.pid).filter(|text| !self.texts.contains(text)) {
                    self.oom.follow(&text);
                    self.texts.insert(text);
                }
            }
        }
    }

    /// Takes note of what happened.
    pub fn event(&mut self, event: &Event) {
        match &event.what {
            What::Mark(mark) if mark.evidence != Evidence::Exit => {
                self.reached.push(mark.stage.clone());
            }
            What::Gone { pid, signal: Some(signal), .. } => {
                self.met.remove(pid);
                if *signal == libc::SIGKILL && self.killed.len() < MOST_KILLED {
                    self.killed.push((event.at, *pid));
                }
                // Now, while the group is there.
                self.oom.refresh();
            }
            What::Gone { pid, code, signal: None } => {
                let was_met = self.met.remove(pid);
                if was_met && code.is_none() && self.vanished.len() < MOST_KILLED {
                    self.vanished.push((event.at, *pid));
                }
            }
            What::Exit { .. } => self.oom.refresh(),
            _ => {}
        }
    }

    /// The death, if it was one. `sampled`: the last living sample.
    pub fn conclude(&mut self, meta: &Meta, sampled: Option<At>) -> Option<Death> {
        let ended_well = meta.until.as_ref().is_some_and(|until| self.reached.contains(until));
        let exit = meta.exit.as_ref().filter(|exit| !exit.stopped)?;
        self.oom.refresh();
        let groups = self.oom.events();
        let root_was_killed = exit.signal == Some(libc::SIGKILL);
        let failed = exit.code != Some(0);
        let rose = groups.iter().any(|group| group.rise() > 0);
        let by_oom = rose && (root_was_killed || !self.killed.is_empty() || (failed && rose_in_group(&groups)));
        let is_root = !by_oom || root_was_killed;
        // Of several whose end is not known, nobody says which one it was.
        let worker = match (self.killed.as_slice(), self.vanished.as_slice()) {
            _ if is_root => None,
            ([first, ..], _) | ([], [first]) => Some(*first),
            _ => None,
        };
        let mut death = Death {
            at: worker.map_or(exit.at, |(at, _)| at),
            pid: worker.map(|(_, pid)| pid),
            is_root,
            code: exit.code,
            signal: exit.signal,
            stage: self.reached.last().cloned(),
            sampled,
            groups,
            ..Death::default()
        };
        match exit.signal {
            _ if by_oom => {
                death.cause = Cause::OomKill;
                death.evidence = out_of_memory(&death.groups, worker.map(|(_, pid)| pid));
            }
            Some(signal) if ended_well && ORDINARY.contains(&signal) => return None,
            Some(signal) => {
                death.cause = Cause::Signal;
                death.evidence = by_signal(signal, &death.groups);
            }
            None if failed && !ended_well => {
                death.cause = Cause::Exit;
                death.evidence = by_status(exit.code, &death.groups);
            }
            None => return None,
        }
        Some(death)
    }
}

fn membership(pid: Pid) -> Option<String> {
    let mut text = String::new();
    File::open(format!("/proc/{pid}/cgroup")).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn rose_in_group(groups: &[GroupEvents]) -> bool {
    groups.iter().any(|group| group.rise() > 0 && group.group != HOST)
}

/// In words, what speaks for the out-of-memory killer.
fn out_of_memory(groups: &[GroupEvents], worker: Option<Pid>) -> String {
    let risen = |group: &&GroupEvents| group.rise() > 0 && group.group != HOST;
    let who = match worker {
        Some(pid) => format!("process {pid} was killed, and "),
        None => String::new(),
    };
    // The victim's own group has the longest name of those that count it.
    let Some(group) = groups.iter().filter(risen).max_by_key(|group| group.group.len()) else {
        return format!("{who}oom_kill of the host rose ({HOST}), and of no group that the launch was seen in");
    };
    // Its own limit or an ancestor's: the tightest is the one that was hit.
    let limit = groups
        .iter()
        .filter(|other| is_at_or_above(&other.group, &group.group))
        .filter_map(|other| Some((other.limit_bytes?, other)))
        .min_by_key(|(bytes, _)| *bytes);
    let mut text = format!("{who}oom_kill rose by {} in {}", group.rise(), group.group);
    match limit {
        Some((bytes, limited)) => {
            text.push_str(&format!(", limit {}", units::bytes(bytes)));
            if limited.group != group.group {
                text.push_str(&format!(" (of {})", limited.group));
            }
            if let Some(peak) = limited.peak_bytes {
                text.push_str(&format!(", most ever in use {}", units::bytes(peak)));
            }
        }
        None => text.push_str(", which has no limit of its own that can be seen from here"),
    }
    text
}

fn is_at_or_above(group: &str, below: &str) -> bool {
    std::path::Path::new(below).starts_with(group)
}

fn no_kill(groups: &[GroupEvents]) -> &'static str {
    match groups.iter().any(|group| group.oom_kill_after.is_some()) {
        true => "no oom_kill rose",
        false => "whether the out-of-memory killer was at work cannot be read here",
    }
}

fn by_signal(signal: i32, groups: &[GroupEvents]) -> String {
    let name = signal_name(signal);
    match signal {
        libc::SIGKILL => format!("{name}, sender not known; {}", no_kill(groups)),
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGABRT | libc::SIGSYS | libc::SIGTRAP => {
            format!("{name}, by a fault of the program's own or a limit on it")
        }
        _ => format!("{name}, sender not known"),
    }
}

fn by_status(code: Option<i32>, groups: &[GroupEvents]) -> String {
    match code {
        None => "how the command ended could not be had".to_owned(),
        Some(code @ 129..=192) => format!(
            "exit status {code}: what a shell says of a command that {} ended; {}",
            signal_name(code - 128),
            no_kill(groups)
        ),
        Some(code) => format!("exit status {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, before: u64, after: u64, limit: Option<u64>, peak: Option<u64>) -> GroupEvents {
        GroupEvents {
            group: name.to_owned(),
            oom_kill_before: Some(before),
            oom_kill_after: Some(after),
            limit_bytes: limit,
            peak_bytes: peak,
        }
    }

    #[test]
    fn the_evidence_names_the_group_and_the_limit_that_was_hit() {
        let groups = [
            group("/sys/fs/cgroup/pod", 3, 4, Some(512 << 20), Some(511 << 20)),
            group("/sys/fs/cgroup/pod/run", 0, 1, None, None),
            group("/sys/fs/cgroup/podium", 0, 0, Some(1), None),
            group(HOST, 9, 10, None, None),
        ];
        assert_eq!(
            out_of_memory(&groups, Some(7)),
            "process 7 was killed, and oom_kill rose by 1 in /sys/fs/cgroup/pod/run, limit 512 MiB (of /sys/fs/cgroup/pod), \
             most ever in use 511 MiB"
        );
        assert!(out_of_memory(&groups[3..], None).starts_with("oom_kill of the host rose"));
    }

    #[test]
    fn one_too_short_for_a_look_is_not_taken_for_the_one_that_was_killed() {
        let mut watch = DeathWatch::begin();
        watch.met.extend([7, 9]);
        let gone =
            |pid, code| Event { at: At(1), uncertainty_ns: Some(0), what: What::Gone { pid, code, signal: None } };
        for event in [gone(8, None), gone(7, None), gone(9, Some(1)), gone(7, None)] {
            watch.event(&event);
        }
        assert_eq!(watch.vanished, [(At(1), 7)]);
    }

    #[test]
    fn causes_are_told_apart() {
        let calm = [group(HOST, 9, 9, None, None)];
        assert_eq!(by_signal(libc::SIGKILL, &calm), "SIGKILL, sender not known; no oom_kill rose");
        assert!(by_signal(libc::SIGKILL, &[]).contains("cannot be read"));
        assert!(by_signal(libc::SIGSEGV, &calm).starts_with("SIGSEGV, by a fault"));
        assert_eq!(by_status(Some(1), &calm), "exit status 1");
        assert!(by_status(Some(137), &calm).contains("SIGKILL ended; no oom_kill rose"));
    }
}
