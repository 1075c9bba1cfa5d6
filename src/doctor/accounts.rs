//! Counters that the kernel keeps when told to: I/O of a task, its waiting, pressure, the devices' own.

use std::fs::File;
use std::io::Read;

use super::who::Who;
use super::{Finding, Refusal};
use crate::host::{Host, Mounts, Roots};
use crate::probe::pressure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// `/proc/self/io`.
    pub io: Result<(), Refusal>,
    /// `/proc/self/schedstat`, its text.
    pub schedstat: Result<String, Refusal>,
    /// `kernel.task_delayacct`.
    pub delay_accounting: Result<bool, Refusal>,
    /// A read of `/proc/pressure/memory`.
    pub pressure: Result<(), Refusal>,
    /// The same of this process's own version 2 group; without an error's number where there is no such group.
    pub group_pressure: Result<(), (Option<i32>, String)>,
    /// Whether a block device shows its counters below `/sys`; absent where none is to be seen.
    pub storage: Option<Result<(), Refusal>>,
    /// Bytes of swap space.
    pub swap: Option<u64>,
}

impl Tried {
    pub fn here() -> Tried {
        Tried {
            io: read("/proc/self/io").map(drop),
            schedstat: read("/proc/self/schedstat"),
            delay_accounting: read("/proc/sys/kernel/task_delayacct").map(|text| text.trim() == "1"),
            pressure: read("/proc/pressure/memory").map(drop),
            group_pressure: group_pressure(),
            storage: storage(),
            swap: Host::of(&Roots::default()).swap_total_bytes,
        }
    }

    pub fn findings(&self, who: &Who) -> Vec<Finding> {
        vec![
            self.io(),
            self.storage(),
            self.run_wait(),
            self.io_wait(who),
            self.pressure(),
            self.group_pressure(),
            self.swap(),
        ]
    }

    fn io(&self) -> Finding {
        let (item, figure) = ("io", "bytes read and written");
        match &self.io {
            Ok(()) => Finding::yes(item, figure, "/proc/PID/io"),
            Err(refusal) => Finding::no(item, figure)
                .because(format!("/proc/PID/io: {}", refusal.text))
                .remedied_by(missing(refusal, "a kernel with CONFIG_TASK_IO_ACCOUNTING")),
        }
    }

    fn storage(&self) -> Finding {
        let (item, figure) = ("storage", "the storage device's counters");
        match &self.storage {
            Some(Ok(())) => Finding::yes(item, figure, "/sys/dev/block/*/stat"),
            Some(Err(refusal)) => Finding::no(item, figure).because(format!("/sys/dev/block/*/stat: {}", refusal.text)),
            None => Finding::no(item, figure)
                .because("no block device is to be seen below /sys/dev/block")
                .remedied_by(["mount /sys into the container, read-only"]),
        }
    }

    fn run_wait(&self) -> Finding {
        let (item, figure) = ("run_wait", "waiting for a CPU");
        match &self.schedstat {
            // A kernel without scheduler statistics answers with three zeroes, and this process has run.
            Ok(text) if text.split_whitespace().next().is_some_and(|ran| ran != "0") => {
                Finding::yes(item, figure, "/proc/PID/schedstat")
            }
            Ok(_) => Finding::no(item, figure)
                .because("/proc/PID/schedstat says 0 of a process that has run")
                .remedied_by(["a kernel with CONFIG_SCHED_INFO (SCHEDSTATS or TASK_DELAY_ACCT)"]),
            Err(refusal) => Finding::no(item, figure)
                .because(format!("/proc/PID/schedstat: {}", refusal.text))
                .remedied_by(missing(refusal, "a kernel with CONFIG_SCHED_INFO (SCHEDSTATS or TASK_DELAY_ACCT)")),
        }
    }

    fn io_wait(&self, who: &Who) -> Finding {
        let (item, figure) = ("io_wait", "waiting for a disk");
        match &self.delay_accounting {
            Ok(true) => Finding::yes(item, figure, "/proc/PID/stat, delays"),
            Ok(false) => {
                Finding::no(item, figure).because("delay accounting is off (kernel.task_delayacct is 0)").remedied_by([
                    who.as_host_root("sysctl kernel.task_delayacct=1"),
                    "delayacct on the kernel's command line".into(),
                ])
            }
            Err(refusal) => Finding::no(item, figure)
                .because(format!("/proc/sys/kernel/task_delayacct: {}", refusal.text))
                .remedied_by(missing(refusal, "a kernel from 5.14 on with CONFIG_TASK_DELAY_ACCT")),
        }
    }

    fn pressure(&self) -> Finding {
        let (item, figure) = ("pressure", "pressure of the host (PSI)");
        match &self.pressure {
            Ok(()) => Finding::yes(item, figure, "/proc/pressure"),
            Err(refusal) => Finding::no(item, figure)
                .because(format!("/proc/pressure: {}", refusal.text))
                .remedied_by(no_pressure(refusal.errno)),
        }
    }

    fn group_pressure(&self) -> Finding {
        let (item, figure) = ("pressure_cgroup", "pressure of the control group");
        match &self.group_pressure {
            Ok(()) => Finding::yes(item, figure, "cgroup v2: *.pressure"),
            Err((Some(errno), why)) => Finding::no(item, figure)
                .because(format!("memory.pressure of the group: {why}"))
                .remedied_by(no_pressure(Some(*errno))),
            Err((None, why)) => Finding::no(item, figure)
                .because(why.clone())
                .remedied_by(["systemd-run --user --scope -- stagemark run …   (where cgroup v2 is in use)"]),
        }
    }

    fn swap(&self) -> Finding {
        let (item, figure) = ("swap", "swapped memory");
        let finding = Finding::yes(item, figure, "/proc/PID/status");
        match self.swap {
            Some(0) => finding.because("this host has no swap space: it will be 0"),
            Some(_) => finding,
            None => Finding::no(item, figure).because("/proc/meminfo does not tell of swap space"),
        }
    }
}

/// Where the kernel says "not supported" it can pressure, and was told not to.
fn no_pressure(errno: Option<i32>) -> Vec<String> {
    match errno {
        Some(libc::EOPNOTSUPP) => vec!["psi=1 on the kernel's command line".into()],
        Some(libc::ENOENT) => vec!["a kernel with CONFIG_PSI; psi=1 on its command line".into()],
        _ => Vec::new(),
    }
}

/// The remedy where a file is not there at all.
fn missing(refusal: &Refusal, remedy: &str) -> Vec<String> {
    (refusal.errno == Some(libc::ENOENT)).then(|| remedy.to_owned()).into_iter().collect()
}

fn read(path: &str) -> Result<String, Refusal> {
    let mut text = String::new();
    File::open(path)?.take(1 << 16).read_to_string(&mut text)?;
    Ok(text)
}

/// The pressure of the group that the pressure probe would read.
fn group_pressure() -> Result<(), (Option<i32>, String)> {
    let roots = Roots::default();
    let mounts = Mounts::read(&roots.proc);
    let group = pressure::group(&roots, &mounts).map_err(|why| (None, why))?;
    let read = read(&group.join("memory.pressure").to_string_lossy());
    read.map(drop).map_err(|refusal| (refusal.errno, refusal.text))
}

fn storage() -> Option<Result<(), Refusal>> {
    let device = std::fs::read_dir("/sys/dev/block").ok()?.flatten().next()?;
    Some(read(&device.path().join("stat").to_string_lossy()).map(drop))
}
