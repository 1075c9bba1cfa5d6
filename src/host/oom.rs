//! Whether the kernel's out-of-memory killer took something from a launch: the counts of the control groups that its
//! processes are in, of their ancestors, and of the host, before and after.
//!
//! Version 2 counts a kill in the victim's group and in all its ancestors (`memory.events`); version 1 in the victim's
//! group alone (`memory.oom_control`; Linux 4.13). `/proc/vmstat` counts every kill of the host. The kernel's log, which
//! has the names, is not read: it is withheld from most users.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cgroup::{memberships_in, memory_groups_of};
use super::group_files::GroupFiles;
use super::{Mounts, Roots, look};

/// What one control group says of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupEvents {
    /// Its directory; `/proc/vmstat` stands for the host.
    pub group: String,
    /// Processes that the out-of-memory killer took (`memory.events`, `memory.oom_control`, field oom_kill): before the
    /// start, or when the group was first seen, and after the end.
    pub oom_kill_before: Option<u64>,
    pub oom_kill_after: Option<u64>,
    /// `memory.max`, `memory.limit_in_bytes`; absent where there is none.
    pub limit_bytes: Option<u64>,
    /// The most ever in use (`memory.peak`, `memory.max_usage_in_bytes`): before the start too.
    pub peak_bytes: Option<u64>,
}

impl GroupEvents {
    /// By how much its count of killed processes rose.
    pub fn rise(&self) -> u64 {
        let both = self.oom_kill_after.zip(self.oom_kill_before);
        both.map_or(0, |(after, before)| after.saturating_sub(before))
    }
}

/// More groups than this are not followed.
const MOST_GROUPS: usize = 256;

/// One group, and its count when it was first seen.
struct Followed {
    version: u8,
    /// Where to read it.
    directory: PathBuf,
    before: Option<u64>,
    /// The last that could be read: a group may be gone by the end.
    last: GroupEvents,
}

/// The watch over a launch's groups.
pub struct OomWatch {
    roots: Roots,
    mounts: Mounts,
    /// By the name that this machine has for them.
    groups: BTreeMap<PathBuf, Followed>,
    host_before: Option<u64>,
    host_after: Option<u64>,
}

/// What stands for the host among the groups.
pub const HOST: &str = "/proc/vmstat";

impl OomWatch {
    /// Takes the counts of this process's own groups, which the command inherits, and of the host.
    pub fn begin(roots: Roots) -> OomWatch {
        let mounts = Mounts::read(&roots.proc);
        let own = look::text(&roots.proc.join("self/cgroup"), look::SMALL_CAP).unwrap_or_default();
        let mut watch = OomWatch { roots, mounts, groups: BTreeMap::new(), host_before: None, host_after: None };
        watch.host_before = watch.host_kills();
        watch.host_after = watch.host_before;
        watch.follow(&own);
        watch
    }

    /// Follows the groups that a process is in, by the text of its `/proc/PID/cgroup`.
    pub fn follow(&mut self, membership: &str) {
        let groups = memory_groups_of(&self.roots, &self.mounts, &memberships_in(membership));
        for GroupFiles { version, shown, directory } in groups {
            if self.groups.contains_key(&shown) || self.groups.len() >= MOST_GROUPS {
                continue;
            }
            let before = kills(version, &directory);
            let last = GroupEvents {
                group: shown.display().to_string(),
                oom_kill_before: before,
                oom_kill_after: before,
                ..GroupEvents::default()
            };
            self.groups.insert(shown, Followed { version, directory, before, last });
        }
    }

    /// Reads all counts again. What cannot be read any more stays as it was last.
    pub fn refresh(&mut self) {
        for group in self.groups.values_mut() {
            let text = |name: &str| look::line(&group.directory.join(name));
            let (limit, peak) = match group.version {
                2 => (text("memory.max"), text("memory.peak")),
                _ => (text("memory.limit_in_bytes"), text("memory.max_usage_in_bytes")),
            };
            if let Some(limit) = limit {
                group.last.limit_bytes = super::cgroup::bytes(&limit);
            }
            group.last.peak_bytes = peak.and_then(|peak| peak.parse().ok()).or(group.last.peak_bytes);
            group.last.oom_kill_before = group.before;
            group.last.oom_kill_after = kills(group.version, &group.directory).or(group.last.oom_kill_after);
        }
        self.host_after = self.host_kills().or(self.host_after);
    }

    /// The groups with a limit, and those whose count rose, as last read; the host last.
    pub fn events(&self) -> Vec<GroupEvents> {
        let telling = |group: &&GroupEvents| group.limit_bytes.is_some() || group.rise() > 0;
        let mut events: Vec<GroupEvents> =
            self.groups.values().map(|group| &group.last).filter(telling).cloned().collect();
        events.push(GroupEvents {
            group: HOST.to_owned(),
            oom_kill_before: self.host_before,
            oom_kill_after: self.host_after,
            ..GroupEvents::default()
        });
        events
    }

    fn host_kills(&self) -> Option<u64> {
        field(&look::text(&self.roots.proc.join("vmstat"), look::SMALL_CAP)?, "oom_kill")
    }
}

fn kills(version: u8, directory: &Path) -> Option<u64> {
    let name = if version == 2 { "memory.events" } else { "memory.oom_control" };
    field(&look::text(&directory.join(name), look::SMALL_CAP)?, "oom_kill")
}

/// The value of a `name value` line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine of version 2 with a limit two levels up.
    fn version_2() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("proc/self/cgroup", "0::/pod/engine\n");
        write("proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
        for (group, kills, limit) in [("pod", 1, "536870912"), ("pod/engine", 0, "max"), ("pod/engine/run", 0, "max")] {
            let events = format!("low 0\nhigh 0\nmax 9\noom {kills}\noom_kill {kills}\noom_group_kill 0\n");
            write(&format!("sys/fs/cgroup/{group}/memory.events"), &events);
            write(&format!("sys/fs/cgroup/{group}/memory.max"), limit);
            write(&format!("sys/fs/cgroup/{group}/memory.peak"), "536000000");
        }
        folder
    }

    fn raise(folder: &Path, group: &str, kills: u64) {
        let file = folder.join("sys/fs/cgroup").join(group).join("memory.events");
        fs::write(file, format!("oom {kills}\noom_kill {kills}\noom_group_kill {kills}\n")).unwrap();
    }

    #[test]
    fn a_kill_of_version_2_shows_in_the_group_and_its_ancestors() {
        let folder = version_2();
        let mut watch = OomWatch::begin(Roots::recorded(folder.path()));
        watch.follow("0::/pod/engine/run\n");
        watch.refresh();
        assert!(watch.events().iter().all(|group| group.rise() == 0), "{:?}", watch.events());
        raise(folder.path(), "pod", 2);
        raise(folder.path(), "pod/engine", 1);
        raise(folder.path(), "pod/engine/run", 1);
        fs::write(folder.path().join("proc/vmstat"), "oom_kill 8\n").unwrap();
        watch.refresh();
        let events = watch.events();
        let told: Vec<(&str, u64, Option<u64>)> =
            events.iter().map(|group| (group.group.as_str(), group.rise(), group.limit_bytes)).collect();
        assert_eq!(
            told,
            [
                ("/sys/fs/cgroup/pod", 1, Some(512 << 20)),
                ("/sys/fs/cgroup/pod/engine", 1, None),
                ("/sys/fs/cgroup/pod/engine/run", 1, None),
                (HOST, 1, None),
            ]
        );
        assert_eq!(events[0].peak_bytes, Some(536_000_000));
        // Whoever made the group has taken it away: what was read last stays.
        fs::remove_dir_all(folder.path().join("sys/fs/cgroup/pod/engine/run")).unwrap();
        watch.refresh();
        assert_eq!(watch.events(), events);
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        let nowhere = tempfile::tempdir().unwrap();
        let mut watch = OomWatch::begin(Roots::recorded(nowhere.path()));
        watch.refresh();
        assert_eq!(watch.events().len(), 1);
        assert_eq!((watch.events()[0].rise(), watch.events()[0].oom_kill_after), (0, None));
    }

    #[test]
    fn fields_are_whole_words() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(field(text, "oom_kill"), Some(3));
        assert_eq!(field("oom_group_kill 3\n", "oom_kill"), None);
    }
}
