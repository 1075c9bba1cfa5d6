//! What the control groups of this process allow: memory, CPU time, CPUs (cgroups(7); Documentation/admin-guide/
//! cgroup-v2.rst and cgroup-v1/memory.rst).
//!
//! A limit of any ancestor binds, so each is the tightest on the way up, with the file that says so. Inside a container
//! the way up ends at the container's own group: what its host limits further out cannot be seen there.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::group_files::GroupFiles;
use super::mounts::Mounts;
use super::{Roots, look};

/// The control groups of this process, and what they allow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroups {
    /// The lines of `/proc/self/cgroup`.
    pub membership: Vec<Membership>,
    /// The version of the hierarchy that holds the memory controller: 1 or 2.
    pub memory_version: Option<u8>,
    /// The directory of the group whose memory is charged.
    pub memory_group: Option<String>,
    /// The tightest `memory.max` or `memory.limit_in_bytes`. Absent: no limit, or none to be seen
    /// ([`Cgroups::memory_group`] tells which).
    pub memory_limit: Option<MemoryLimit>,
    /// The tightest `memory.high`: above it the group is throttled and reclaimed. Version 2 alone has it.
    pub memory_high: Option<MemoryLimit>,
    /// The tightest limit on swap (version 2, `memory.swap.max`) or on memory and swap together (version 1,
    /// `memory.memsw.limit_in_bytes`).
    pub swap_limit: Option<MemoryLimit>,
    /// Whether the group keeps its own high-water mark (`memory.peak`, Linux 5.19; `memory.max_usage_in_bytes`).
    pub memory_peak_available: Option<bool>,
    /// The tightest quota of CPU time.
    pub cpu_quota: Option<CpuQuota>,
    /// CPUs and memory nodes that the group may use, as lists (cpuset(7)).
    pub cpus: Option<String>,
    pub memory_nodes: Option<String>,
}

/// One line of `/proc/self/cgroup`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Membership {
    /// 0 for the version 2 hierarchy.
    pub hierarchy: u32,
    /// Controllers of a version 1 hierarchy, separated by commas; empty for version 2.
    pub controllers: String,
    /// The group's path, as this process's cgroup namespace names it.
    pub path: String,
}

/// A limit in bytes, and the file that sets it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryLimit {
    pub bytes: u64,
    pub file: String,
}

/// So much CPU time in each period, and the file that sets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuQuota {
    pub quota_us: u64,
    pub period_us: u64,
    pub file: String,
}

impl CpuQuota {
    /// The quota as a number of CPUs.
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

impl Cgroups {
    /// What `roots` show of this process's groups; `mounts` is the mount table of the same roots.
    pub fn read(roots: &Roots, mounts: &Mounts) -> Cgroups {
        let mut groups = Cgroups { membership: memberships(roots), ..Cgroups::default() };

        if let Some(memory) = Group::find(roots, mounts, &groups.membership, "memory") {
            groups.memory_version = Some(memory.version);
            groups.memory_group = Some(memory.shown.display().to_string());
            if memory.version == 2 {
                groups.memory_limit = memory.tightest("memory.max", false);
                groups.memory_high = memory.tightest("memory.high", false);
                groups.swap_limit = memory.tightest("memory.swap.max", false);
            } else {
                groups.memory_limit = tighter(memory.tightest("memory.limit_in_bytes", true), memory.beyond());
                groups.swap_limit = memory.tightest("memory.memsw.limit_in_bytes", true);
            }
            let peak = if memory.version == 2 { "memory.peak" } else { "memory.max_usage_in_bytes" };
            groups.memory_peak_available = Some(look::open(&memory.own(peak)).is_some());
        }
        if let Some(cpu) = Group::find(roots, mounts, &groups.membership, "cpu") {
            groups.cpu_quota = cpu.tightest_quota();
        }
        if let Some(cpuset) = Group::find(roots, mounts, &groups.membership, "cpuset") {
            // A version 2 group without the controller has no such files: its nearest ancestor with them decides.
            let names = match cpuset.version {
                2 => ["cpuset.cpus.effective", "cpuset.mems.effective"],
                _ => ["cpuset.effective_cpus", "cpuset.effective_mems"],
            };
            let [cpus, nodes] = names.map(|name| cpuset.levels().find_map(|(_, level)| look::line(&level.join(name))));
            groups.cpus = cpus;
            groups.memory_nodes = nodes;
        }
        groups
    }
}

/// This process's group in the hierarchy that has the memory controller, and the groups above it that can be seen,
/// nearest first.
pub fn memory_groups(roots: &Roots, mounts: &Mounts) -> Vec<GroupFiles> {
    memory_groups_of(roots, mounts, &memberships(roots))
}

/// The same for a process of these memberships.
pub(super) fn memory_groups_of(roots: &Roots, mounts: &Mounts, memberships: &[Membership]) -> Vec<GroupFiles> {
    let Some(group) = Group::find(roots, mounts, memberships, "memory") else { return Vec::new() };
    let files = |(shown, directory): (&Path, &Path)| GroupFiles {
        version: group.version,
        shown: shown.to_owned(),
        directory: directory.to_owned(),
    };
    group.levels().map(files).collect()
}

/// The lines of `/proc/self/cgroup`.
pub fn memberships(roots: &Roots) -> Vec<Membership> {
    memberships_in(&look::text(&roots.proc.join("self/cgroup"), look::SMALL_CAP).unwrap_or_default())
}

/// The lines of a `/proc/PID/cgroup`.
pub(super) fn memberships_in(text: &str) -> Vec<Membership> {
    text.lines().filter_map(membership).collect()
}

fn membership(line: &str) -> Option<Membership> {
    let mut fields = line.splitn(3, ':');
    Some(Membership {
        hierarchy: fields.next()?.parse().ok()?,
        controllers: fields.next()?.to_owned(),
        path: fields.next()?.to_owned(),
    })
}

/// A group's directory, and how many ancestors of it can be seen.
struct Group {
    version: u8,
    /// As this machine names it.
    shown: PathBuf,
    /// Where to read it.
    directory: PathBuf,
    /// Steps up to the mount point.
    depth: usize,
}

impl Group {
    /// This process's group for a controller: in the version 1 hierarchy that has the controller, or else in
    /// version 2.
    fn find(roots: &Roots, mounts: &Mounts, membership: &[Membership], controller: &str) -> Option<Group> {
        let has = |member: &&Membership| member.controllers.split(',').any(|name| name == controller);
        let (version, member) = match membership.iter().find(has) {
            Some(member) => (1, member),
            None => (2, membership.iter().find(|member| member.hierarchy == 0 && member.controllers.is_empty())?),
        };
        let candidates = mounts.iter().rev().filter(|mount| match version {
            1 => mount.fs_type == "cgroup" && mount.super_options.split(',').any(|name| name == controller),
            _ => mount.fs_type == "cgroup2",
        });
        let mut best: Option<Group> = None;
        for mount in candidates {
            // Docker without a cgroup namespace mounts the container's own group, and mountinfo names that as the
            // root. A group that does not lie below the mount's root cannot be reached through it.
            let Ok(below) = Path::new(&member.path).strip_prefix(&mount.root) else { continue };
            if below.components().any(|part| !matches!(part, Component::Normal(_))) {
                continue;
            }
            let shown = mount.mount_point.join(below);
            let shown = if below.as_os_str().is_empty() { mount.mount_point.clone() } else { shown };
            let directory = roots.find(&shown);
            let depth = below.components().count();
            // The mount that shows most ancestors.
            if directory.is_dir() && best.as_ref().is_none_or(|best| depth > best.depth) {
                best = Some(Group { version, shown, directory, depth });
            }
        }
        best
    }

    fn own(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// The group and its visible ancestors, nearest first: as named, and where to read it.
    fn levels(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.shown.ancestors().zip(self.directory.ancestors()).take(self.depth + 1)
    }

    /// The smallest limit of that name on the way up; the nearest of equals.
    fn tightest(&self, file: &str, version_1: bool) -> Option<MemoryLimit> {
        let mut tightest = None;
        for (step, (shown, directory)) in self.levels().enumerate() {
            // Before Linux 5.11 a version 1 ancestor could decline to count its descendants.
            if version_1 && step > 0 && look::line(&directory.join("memory.use_hierarchy")).as_deref() == Some("0") {
                break;
            }
            if let Some(bytes) = look::line(&directory.join(file)).as_deref().and_then(bytes) {
                let limit = MemoryLimit { bytes, file: shown.join(file).display().to_string() };
                tightest = tighter(tightest, Some(limit));
            }
        }
        tightest
    }

    /// Version 1 says the tightest limit of all ancestors, those that cannot be seen from here included.
    fn beyond(&self) -> Option<MemoryLimit> {
        let text = look::text(&self.own("memory.stat"), look::SMALL_CAP)?;
        let value = text.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
        let file = format!("{} (hierarchical_memory_limit)", self.shown.join("memory.stat").display());
        Some(MemoryLimit { bytes: bytes(value.trim())?, file })
    }

    fn tightest_quota(&self) -> Option<CpuQuota> {
        let quotas = self.levels().filter_map(|(shown, directory)| {
            let name = if self.version == 2 { "cpu.max" } else { "cpu.cfs_quota_us" };
            let text = look::line(&directory.join(name))?;
            let (quota, period) = match self.version {
                2 => text.split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))?,
                _ => (text, look::line(&directory.join("cpu.cfs_period_us"))?),
            };
            // "max" (version 2) and -1 (version 1), which say that there is none, are no such numbers.
            let (quota_us, period_us) = (quota.parse().ok()?, period.parse().ok()?);
            (period_us > 0).then(|| CpuQuota { quota_us, period_us, file: shown.join(name).display().to_string() })
        });
        quotas.min_by(|one, other| one.cpus().total_cmp(&other.cpus()))
    }
}

/// The smaller of two limits, the first of equals.
fn tighter(one: Option<MemoryLimit>, other: Option<MemoryLimit>) -> Option<MemoryLimit> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.bytes < one.bytes { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// A limit's bytes; absent where it says that there is none. Version 1 writes that as the largest multiple of the page
/// size that a signed long holds, whatever the page size (mm/page_counter.c).
pub(super) fn bytes(text: &str) -> Option<u64> {
    const LARGEST_PAGE: u64 = 64 << 10;
    text.parse::<u64>().ok().filter(|&bytes| bytes <= i64::MAX as u64 - LARGEST_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::recorded;

    fn groups(tree: &str) -> Cgroups {
        let roots = recorded(tree);
        Cgroups::read(&roots, &Mounts::read(&roots.proc))
    }

    fn limit(bytes: u64, file: &str) -> Option<MemoryLimit> {
        Some(MemoryLimit { bytes, file: file.to_owned() })
    }

    #[test]
    fn version_1_without_limits() {
        let groups = groups("v1-host");
        assert_eq!(groups.membership.len(), 10);
        assert_eq!(groups.memory_version, Some(1));
        assert_eq!(groups.memory_group.as_deref(), Some("/sys/fs/cgroup/memory/jobs/1cc99c72"));
        assert_eq!((groups.memory_limit, groups.memory_high, groups.swap_limit), (None, None, None));
        assert_eq!(groups.memory_peak_available, Some(true));
        assert_eq!(groups.cpu_quota, None);
        assert_eq!(groups.cpus.as_deref(), Some("0-1"));
        assert_eq!(groups.memory_nodes.as_deref(), Some("0"));
    }

    #[test]
    fn version_1_in_docker_sees_its_own_group_as_the_top() {
        let groups = groups("v1-docker");
        assert_eq!(groups.memory_group.as_deref(), Some("/sys/fs/cgroup/memory"));
        // The container's own limit is 16 GiB; an ancestor that only memory.stat tells of allows 8.
        let file = "/sys/fs/cgroup/memory/memory.stat (hierarchical_memory_limit)";
        assert_eq!(groups.memory_limit, limit(8 << 30, file));
        assert_eq!(groups.swap_limit, limit(32 << 30, "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"));
        let quota = groups.cpu_quota.unwrap();
        assert_eq!((quota.quota_us, quota.period_us), (400_000, 100_000));
        assert_eq!(quota.file, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us");
        assert_eq!(quota.cpus(), 4.0);
        assert_eq!(groups.cpus.as_deref(), Some("4-7"));
    }

    #[test]
    fn version_2_takes_the_tightest_on_the_way_up() {
        let groups = groups("v2-systemd");
        let slice = "/sys/fs/cgroup/user.slice/user-1000.slice";
        assert_eq!(groups.memory_version, Some(2));
        assert_eq!(
            groups.memory_group.as_deref(),
            Some(&*format!("{slice}/user@1000.service/app.slice/run-u42.scope"))
        );
        assert_eq!(groups.memory_limit, limit(48 << 30, &format!("{slice}/memory.max")));
        assert_eq!(
            groups.memory_high,
            limit(40 << 30, &format!("{slice}/user@1000.service/app.slice/run-u42.scope/memory.high"))
        );
        assert_eq!(groups.swap_limit, limit(0, &format!("{slice}/user@1000.service/app.slice/memory.swap.max")));
        assert_eq!(groups.memory_peak_available, Some(true));
        let quota = groups.cpu_quota.unwrap();
        assert_eq!((quota.cpus(), quota.file), (1.5, format!("{slice}/cpu.max")));
        assert_eq!(groups.cpus.as_deref(), Some("0-15"), "the nearest ancestor that has the controller");
    }

    #[test]
    fn version_2_in_a_container_is_its_own_root() {
        let groups = groups("v2-container");
        assert_eq!(groups.memory_group.as_deref(), Some("/sys/fs/cgroup"));
        assert_eq!(groups.memory_limit, limit(4 << 30, "/sys/fs/cgroup/memory.max"));
        assert_eq!(groups.memory_high, None);
        assert_eq!(groups.memory_peak_available, Some(false), "a kernel before 5.19");
        assert_eq!(groups.cpu_quota, None);
    }

    #[test]
    fn a_group_that_no_mount_shows_gives_nothing() {
        let roots = recorded("v2-container");
        let elsewhere = Mounts::parse(b"5 1 0:26 /other / rw - cgroup2 cgroup rw\n");
        let groups = Cgroups::read(&roots, &elsewhere);
        assert_eq!((groups.memory_group, groups.memory_limit), (None, None));
        assert_eq!(groups.membership.len(), 1);
    }

    #[test]
    fn no_limit_is_told_from_a_large_one() {
        for page in [4096, 16384, 65536] {
            assert_eq!(bytes(&(i64::MAX as u64 / page * page).to_string()), None);
        }
        assert_eq!(bytes("max"), None);
        assert_eq!(bytes(&(1u64 << 62).to_string()), Some(1 << 62));
        assert_eq!(bytes("-1"), None);
    }
}
