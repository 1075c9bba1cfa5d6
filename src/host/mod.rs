//! What this machine, its limits and the working directory are: all that a later comparison needs and cannot be had
//! later, and the masking of secrets in whatever of it is kept.
//!
//! It looks and never acts: nothing is executed to learn a version, no file is read without a cap on its size, and
//! only regular files are opened. What cannot be read is absent; nothing here fails. The host's name and the user's
//! are left out: a run folder is made to be handed on.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cgroup;
pub mod environment;
pub mod group_files;
pub mod limits;
mod look;
pub mod mask;
pub mod mounts;
pub mod oom;
pub mod pressure;
pub mod software;
pub mod storage;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use cgroup::{Cgroups, CpuQuota};
pub use environment::{environment_of, environment_that_matters};
pub use limits::{Limits, limit_behind};
pub(crate) use look::list_length;
pub use mask::{mask_argv, mask_text};
pub use mounts::{Mount, Mounts};
pub use pressure::{ConditionNow, condition_now};
pub use software::Software;

/// Where the kernel's files are: the live ones, or a recorded tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// In place of `/proc`.
    pub proc: PathBuf,
    /// In place of `/sys`.
    pub sys: PathBuf,
    /// In place of `/`, for what is in neither of the two.
    pub root: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { proc: "/proc".into(), sys: "/sys".into(), root: "/".into() }
    }
}

impl Roots {
    /// A recorded tree: a folder with `proc`, `sys` and other parts of a root filesystem in it.
    pub fn recorded(folder: &Path) -> Roots {
        Roots { proc: folder.join("proc"), sys: folder.join("sys"), root: folder.to_path_buf() }
    }

    /// Where to look for `path`, an absolute path as the machine itself would name it.
    fn find(&self, path: &Path) -> PathBuf {
        if let Ok(rest) = path.strip_prefix("/proc") {
            self.proc.join(rest)
        } else if let Ok(rest) = path.strip_prefix("/sys") {
            self.sys.join(rest)
        } else {
            self.root.join(path.strip_prefix("/").unwrap_or(path))
        }
    }

    /// The trimmed text of a small file, named as the machine itself would; absent where it is empty.
    fn text(&self, path: &str) -> Option<String> {
        look::line(&self.find(Path::new(path)))
    }

    fn number<N: std::str::FromStr>(&self, path: &str) -> Option<N> {
        self.text(path)?.parse().ok()
    }
}

/// The machine, the limits on this process (the command inherits them), and the software that the command names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// `/proc/sys/kernel/osrelease`.
    pub kernel_release: Option<String>,
    /// `/proc/sys/kernel/version`: the build.
    pub kernel_version: Option<String>,
    /// The instruction set (uname(2)).
    pub machine: Option<String>,
    /// Two runs with the same one were made without a reboot between them (random(4)).
    pub boot_id: Option<String>,
    /// `/proc/cpuinfo`; absent where the architecture names none.
    pub cpu_model: Option<String>,
    /// CPUs online (`/sys/devices/system/cpu/online`).
    pub logical_cpus: Option<u64>,
    /// CPUs that this process may run on, as a list like `0-3,8` (proc_pid_status(5)).
    pub affinity: Option<String>,
    /// How many those are.
    pub affinity_cpus: Option<u64>,
    /// NUMA nodes online.
    pub numa_nodes: Option<u64>,
    pub numa_balancing: Option<i64>,
    /// MemTotal, of the machine: a control group may allow less ([`Cgroups::memory_limit`]).
    pub memory_total_bytes: Option<u64>,
    pub swap_total_bytes: Option<u64>,
    /// HugePages_Total × Hugepagesize: memory that is set aside and no page cache can use.
    pub huge_pages_bytes: Option<u64>,
    pub page_size_bytes: Option<u64>,
    /// The chosen words of `/sys/kernel/mm/transparent_hugepage`.
    pub transparent_huge_pages: HugePages,
    /// `/proc/sys/vm/overcommit_memory`.
    pub overcommit_memory: Option<i64>,
    /// `/proc/sys/vm/swappiness`.
    pub swappiness: Option<i64>,
    /// `/proc/sys/kernel/perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
    /// `/sys/kernel/mm/lru_gen/enabled`: which parts of the multi-generational LRU are on.
    pub lru_gen: Option<String>,
    /// What DAMON does to memory on its own, one entry a running scheme (`kdamond 0: paddr pageout`). Such a host
    /// evicts clean pages with no memory pressure. Empty: none runs; absent: it could not be seen.
    pub damon: Option<Vec<String>>,
    /// Signs of a virtual machine.
    pub virtualisation: Vec<String>,
    /// Signs of a container.
    pub container: Vec<String>,
    pub limits: Limits,
    pub cgroups: Cgroups,
    pub software: Software,
}

/// How the kernel was told to use huge pages (Documentation/admin-guide/mm/transhuge.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HugePages {
    pub enabled: Option<String>,
    pub defrag: Option<String>,
    pub shmem_enabled: Option<String>,
}

/// The cores that a launch may use, and what sets their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cores<'a> {
    Quota(&'a CpuQuota),
    /// So many: its affinity, or all that are online.
    Counted(u64),
}

impl Cores<'_> {
    /// Their number; of a quota it may be broken.
    pub fn number(self) -> f64 {
        match self {
            Cores::Quota(quota) => quota.cpus(),
            Cores::Counted(count) => count as f64,
        }
    }
}

impl Host {
    /// The tighter of affinity and quota.
    pub fn cores(&self) -> Option<Cores<'_>> {
        let counted = self.affinity_cpus.or(self.logical_cpus);
        let quota = self.cgroups.cpu_quota.as_ref();
        match (quota, counted) {
            (Some(quota), count) if count.is_none_or(|count| quota.cpus() < count as f64) => Some(Cores::Quota(quota)),
            (_, count) => count.map(Cores::Counted),
        }
    }

    /// Looks at this machine; `argv` is the launch command, whose interpreter and packages are looked at too, and
    /// `directory` the one it will run in.
    pub fn look(argv: &[String], directory: &Path) -> Host {
        let mut host = Host::of(&Roots::default());
        host.machine = nix::sys::utsname::uname().ok().map(|name| name.machine().to_string_lossy().into_owned());
        host.page_size_bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
            .ok()
            .flatten()
            .and_then(|size| u64::try_from(size).ok());
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            host.container.push("KUBERNETES_SERVICE_HOST".to_owned());
        }
        host.software = Software::look(argv, directory);
        host
    }

    /// What the kernel's files say, without what only a system call or the command can say.
    pub fn of(roots: &Roots) -> Host {
        let cpuinfo = look::text(&roots.find(Path::new("/proc/cpuinfo")), look::CPUINFO_CAP).unwrap_or_default();
        let status = look::text(&roots.find(Path::new("/proc/self/status")), look::SMALL_CAP).unwrap_or_default();
        let meminfo = look::text(&roots.find(Path::new("/proc/meminfo")), look::SMALL_CAP).unwrap_or_default();
        let affinity = look::field(&status, "Cpus_allowed_list").map(str::to_owned);
        let chosen = |file: &str| {
            roots.text(&format!("/sys/kernel/mm/transparent_hugepage/{file}")).as_deref().and_then(look::chosen_word)
        };
        let mounts = Mounts::read(&roots.proc);
        let cgroups = Cgroups::read(roots, &mounts);
        Host {
            kernel_release: roots.text("/proc/sys/kernel/osrelease"),
            kernel_version: roots.text("/proc/sys/kernel/version"),
            machine: None,
            boot_id: roots.text("/proc/sys/kernel/random/boot_id"),
            cpu_model: look::field(&cpuinfo, "model name").map(str::to_owned),
            logical_cpus: roots.text("/sys/devices/system/cpu/online").as_deref().and_then(look::list_length),
            affinity_cpus: affinity.as_deref().and_then(look::list_length),
            affinity,
            numa_nodes: roots.text("/sys/devices/system/node/online").as_deref().and_then(look::list_length),
            numa_balancing: roots.number("/proc/sys/kernel/numa_balancing"),
            memory_total_bytes: look::kilobytes(&meminfo, "MemTotal"),
            swap_total_bytes: look::kilobytes(&meminfo, "SwapTotal"),
            huge_pages_bytes: look::field(&meminfo, "HugePages_Total")
                .and_then(|count| count.parse::<u64>().ok()?.checked_mul(look::kilobytes(&meminfo, "Hugepagesize")?)),
            page_size_bytes: None,
            transparent_huge_pages: HugePages {
                enabled: chosen("enabled"),
                defrag: chosen("defrag"),
                shmem_enabled: chosen("shmem_enabled"),
            },
            overcommit_memory: roots.number("/proc/sys/vm/overcommit_memory"),
            swappiness: roots.number("/proc/sys/vm/swappiness"),
            perf_event_paranoid: roots.number("/proc/sys/kernel/perf_event_paranoid"),
            lru_gen: roots.text("/sys/kernel/mm/lru_gen/enabled"),
            damon: damon(roots),
            virtualisation: virtualisation(roots, &cpuinfo),
            container: container(roots, &cgroups),
            limits: Limits::read(&roots.proc),
            cgroups,
            software: Software::default(),
        }
    }
}

/// The most DAMON threads, contexts or schemes looked at.
const DAMON_CAP: u32 = 16;

/// The schemes that DAMON runs (Documentation/admin-guide/mm/damon/usage.rst), and the modules that drive it
/// themselves.
fn damon(roots: &Roots) -> Option<Vec<String>> {
    let mut running = None;
    for module in ["damon_reclaim", "damon_lru_sort"] {
        if let Some(enabled) = roots.text(&format!("/sys/module/{module}/parameters/enabled")) {
            let running = running.get_or_insert_with(Vec::new);
            if enabled == "Y" {
                running.push(module.to_owned());
            }
        }
    }
    let kdamonds = "/sys/kernel/mm/damon/admin/kdamonds";
    let Some(threads) = roots.number::<u32>(&format!("{kdamonds}/nr_kdamonds")) else { return running };
    let running = running.get_or_insert_with(Vec::new);
    for thread in 0..threads.min(DAMON_CAP) {
        let thread_path = format!("{kdamonds}/{thread}");
        if roots.text(&format!("{thread_path}/state")).as_deref() != Some("on") {
            continue;
        }
        let contexts = roots.number::<u32>(&format!("{thread_path}/contexts/nr_contexts")).unwrap_or(0);
        for context in 0..contexts.min(DAMON_CAP) {
            let context = format!("{thread_path}/contexts/{context}");
            let operations = roots.text(&format!("{context}/operations")).unwrap_or_else(|| "unknown".to_owned());
            let schemes = roots.number::<u32>(&format!("{context}/schemes/nr_schemes")).unwrap_or(0);
            for scheme in 0..schemes.min(DAMON_CAP) {
                let action = roots.text(&format!("{context}/schemes/{scheme}/action"));
                let action = action.as_deref().unwrap_or("unknown");
                running.push(format!("kdamond {thread}: {operations} {action}"));
            }
        }
    }
    Some(std::mem::take(running))
}

fn virtualisation(roots: &Roots, cpuinfo: &str) -> Vec<String> {
    let mut signs = Vec::new();
    if look::field(cpuinfo, "flags").is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")) {
        signs.push("CPU flag hypervisor".to_owned());
    }
    for (name, path) in [
        ("hypervisor", "/sys/hypervisor/type"),
        ("vendor", "/sys/class/dmi/id/sys_vendor"),
        ("product", "/sys/class/dmi/id/product_name"),
    ] {
        if let Some(text) = roots.text(path) {
            signs.push(format!("{name} {text}"));
        }
    }
    signs
}

fn container(roots: &Roots, cgroups: &Cgroups) -> Vec<String> {
    let mut signs: Vec<String> = ["/.dockerenv", "/run/.containerenv"]
        .into_iter()
        .filter(|path| roots.find(Path::new(path)).exists())
        .map(str::to_owned)
        .collect();
    let known = ["docker", "kubepods", "libpod", "containerd", "lxc", "crio", "garden"];
    let named = cgroups.membership.iter().find(|member| known.iter().any(|word| member.path.contains(word)));
    if let Some(member) = named {
        signs.push(format!("control group {}", member.path));
    }
    signs
}

#[cfg(test)]
pub(in crate::host) mod tests {
    use super::*;

    /// The recorded tree of that name.
    pub(super) fn recorded(name: &str) -> Roots {
        Roots::recorded(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/host").join(name))
    }

    #[test]
    fn a_recorded_machine_is_read_whole() {
        let host = Host::of(&recorded("v1-host"));
        assert_eq!(host.kernel_release.as_deref(), Some("6.18.44"));
        assert_eq!(host.kernel_version.as_deref(), Some("#1 SMP PREEMPT_DYNAMIC"));
        assert_eq!(host.boot_id.as_deref(), Some("2f1c7f0a-3d5e-4b62-9a1e-6f0c5d4b3a29"));
        assert_eq!(host.cpu_model.as_deref(), Some("AMD EPYC"));
        assert_eq!((host.logical_cpus, host.affinity_cpus), (Some(2), Some(2)));
        assert_eq!(host.affinity.as_deref(), Some("0-1"));
        assert_eq!((host.numa_nodes, host.numa_balancing), (Some(1), Some(0)));
        assert_eq!(host.memory_total_bytes, Some(24_684_096 * 1024));
        assert_eq!(host.swap_total_bytes, Some(0), "a zero that was read is a zero");
        assert_eq!(host.huge_pages_bytes, Some(0));
        assert_eq!(host.transparent_huge_pages.enabled.as_deref(), Some("madvise"));
        assert_eq!(host.transparent_huge_pages.defrag.as_deref(), Some("madvise"));
        assert_eq!(host.transparent_huge_pages.shmem_enabled.as_deref(), Some("never"));
        assert_eq!((host.overcommit_memory, host.swappiness), (Some(0), Some(60)));
        assert_eq!(host.perf_event_paranoid, Some(2));
        assert_eq!(host.damon, Some(vec!["kdamond 0: paddr pageout".to_owned()]));
        assert_eq!(host.virtualisation, ["CPU flag hypervisor"]);
        assert!(host.container.is_empty());
    }

    #[test]
    fn containers_show_themselves() {
        assert_eq!(Host::of(&recorded("v2-container")).container, ["/.dockerenv"]);
        let docker = Host::of(&recorded("v1-docker")).container;
        assert_eq!(docker[0], "/.dockerenv");
        assert!(docker[1].starts_with("control group /docker/"), "{docker:?}");
    }

    #[test]
    fn what_cannot_be_read_is_absent() {
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(Host::of(&Roots::recorded(nowhere.path())), Host::default());
    }

    #[test]
    fn older_and_newer_records_load() {
        assert_eq!(serde_json::from_str::<Host>("{}").unwrap(), Host::default());
        let newer =
            r#"{"kernel_release": "9.1", "gravity": 9.81, "limits": {"nofile": {"soft": 5, "hard": "unlimited"}}}"#;
        let host: Host = serde_json::from_str(newer).unwrap();
        assert_eq!(host.kernel_release.as_deref(), Some("9.1"));
        assert_eq!(host.limits.nofile.hard, Some(limits::Ceiling::Unlimited));
    }

    #[test]
    fn a_host_survives_its_record() {
        for tree in ["v1-host", "v1-docker", "v2-systemd", "v2-container"] {
            let host = Host::of(&recorded(tree));
            let text = serde_json::to_string(&host).unwrap();
            assert_eq!(serde_json::from_str::<Host>(&text).unwrap(), host);
        }
    }

    #[test]
    fn this_machine_is_a_linux_machine() {
        let host = Host::look(&["sh".to_owned()], Path::new("/"));
        let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
        assert_eq!(host.kernel_release, Some(release));
        assert!(host.page_size_bytes.unwrap().is_power_of_two());
        assert!(host.memory_total_bytes.unwrap() > 0);
        assert!(host.affinity_cpus.unwrap() <= host.logical_cpus.unwrap());
        assert!(host.limits.nofile.soft.is_some());
        assert!(host.software.program.unwrap().real_path.is_some());
    }
}
