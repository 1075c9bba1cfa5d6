//! The host's size and this process's limits, as far as they bear on measuring; devices; the notification socket.

use std::time::Duration;

use super::who::{Capability, Who};
use super::{Finding, Refusal};
use crate::host::limits::Ceiling;
use crate::host::{Host, Roots};
use crate::probe::device::{Device, Place, Source, open_for};
use crate::units;
use crate::watch::notify::Notify;

/// How long a driver may take to answer.
const DRIVER: Duration = Duration::from_secs(5);

/// Descriptors below which a launch of many processes is looked at by opening files anew at each tick.
const FEW: u64 = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// CPUs that this process may run on, and those that its control group's quota amounts to.
    pub cpus: Option<u64>,
    pub quota: Option<String>,
    pub descriptors: Option<Ceiling>,
    pub locked: Option<Ceiling>,
    /// MemAvailable.
    pub available: bool,
    /// What evicts pages on its own.
    pub evicts: Vec<String>,
    pub notify: Result<(), Refusal>,
    /// The devices, and why a source has none, each; or why nobody knows.
    pub devices: Result<(Vec<Device>, Vec<String>), String>,
}

impl Tried {
    pub fn here() -> Tried {
        let roots = Roots::default();
        let host = Host::of(&roots);
        Tried {
            cpus: host.affinity_cpus.or(host.logical_cpus),
            quota: host.cgroups.cpu_quota.map(|quota| format!("{:.2}", quota.cpus())),
            descriptors: host.limits.nofile.soft,
            locked: host.limits.memlock.soft,
            available: crate::host::condition_now(&roots).memory_available_bytes.is_some(),
            evicts: host.damon.unwrap_or_default(),
            notify: Notify::bind(None).map(drop).map_err(Refusal::from),
            devices: open_for(Place::of(None, None), DRIVER).map(|(mut opened, first)| {
                let shown = first.map(|reading| reading.devices).unwrap_or_default();
                for (device, shown) in opened.devices.iter_mut().zip(shown) {
                    (device.baseline_bytes, device.reason) = (shown.used, shown.reason);
                }
                (opened.devices, opened.reasons)
            }),
        }
    }

    pub fn findings(&self, who: &Who) -> Vec<Finding> {
        vec![
            self.memory(),
            self.eviction(),
            self.cpus(),
            self.descriptors(),
            self.locked(who),
            self.notify(),
            self.devices(),
        ]
    }

    fn devices(&self) -> Finding {
        let (item, figure) = ("devices", "devices' memory");
        let (devices, reasons) = match &self.devices {
            Ok(found) => found,
            Err(why) => return Finding::no(item, figure).because(why.clone()),
        };
        let source = |source: Source| match source {
            Source::Nvml => "NVML",
            Source::Drm => "DRM, KFD",
            Source::Cuda => "CUDA",
        };
        let mut sources: Vec<&str> = devices.iter().map(|device| source(device.source)).collect();
        sources.dedup();
        let named = format!("{} of {}", sources.join(", "), units::exactly(devices.len() as u64, "device"));
        let unread =
            devices.iter().enumerate().find(|(_, device)| !device.is_divided && device.baseline_bytes.is_none());
        match unread {
            _ if devices.is_empty() => {
                Finding::no(item, figure).because(format!("no device was found: {}", reasons.join("; "))).remedied_by([
                    "where there is one: the driver's libnvidia-ml.so.1 where the loader finds it (containers: \
                               NVIDIA_DRIVER_CAPABILITIES=compute,utility), or /dev/dri and /sys/class/drm",
                ])
            }
            Some((index, device)) => {
                let why = device.reason.as_deref().unwrap_or("what is in use on it is not known");
                let found = Finding::bounded(item, figure, named).because(format!("{}: {why}", device.label(index)));
                match device.source {
                    Source::Nvml => found.remedied_by(["`stagemark run --cuda-memory`, which takes a context on it"]),
                    Source::Drm | Source::Cuda => found,
                }
            }
            None => Finding::yes(item, figure, named),
        }
    }

    fn memory(&self) -> Finding {
        let (item, figure) = ("host_memory", "memory the host has left");
        match self.available {
            true => Finding::yes(item, figure, "/proc/meminfo"),
            false => Finding::no(item, figure).because("/proc/meminfo has no MemAvailable"),
        }
    }

    fn eviction(&self) -> Finding {
        let finding = Finding::yes("eviction", "pages evicted unasked", "cachestat, mincore");
        match self.evicts.is_empty() {
            true => finding,
            false => finding.because(format!(
                "this host evicts clean pages on its own ({}): residency falls with no memory short",
                self.evicts.join(", ")
            )),
        }
    }

    fn cpus(&self) -> Finding {
        let (item, figure) = ("cpus", "ticks on time");
        let quota = self.quota.as_ref().map(|quota| format!("; the control group allows {quota}")).unwrap_or_default();
        match self.cpus {
            Some(1) => Finding::bounded(item, figure, format!("1 CPU{quota}"))
                .because("the launch and the profiler share it: ticks come late when it is busy, and say how late")
                .remedied_by(["more CPUs: taskset, the cpuset, --cpus"]),
            Some(cpus) => Finding::yes(item, figure, format!("{cpus} CPUs{quota}")),
            None => Finding::yes(item, figure, format!("CPUs: not to be seen{quota}")),
        }
    }

    fn descriptors(&self) -> Finding {
        let (item, figure) = ("descriptors", "large trees of processes");
        match self.descriptors {
            Some(Ceiling::At(count)) if count < FEW => Finding::bounded(item, figure, format!("{count} descriptors"))
                .because("files of /proc are opened anew at each tick, which is dearer, and some figures may be absent")
                .remedied_by(["ulimit -n 4096"]),
            Some(ceiling) => Finding::yes(item, figure, format!("{ceiling} descriptors")),
            None => Finding::yes(item, figure, "descriptors: not to be seen"),
        }
    }

    fn locked(&self, who: &Who) -> Finding {
        let (item, figure) = ("locked_memory", "room for perf's rings");
        match self.locked {
            Some(Ceiling::At(_)) if who.has_on_host(Capability::IpcLock) => Finding::yes(item, figure, "CAP_IPC_LOCK"),
            Some(Ceiling::At(bytes)) => Finding::yes(item, figure, format!("{} locked", units::bytes(bytes)))
                .because("beside what kernel.perf_event_mlock_kb gives each CPU"),
            Some(Ceiling::Unlimited) => Finding::yes(item, figure, "no limit"),
            None => Finding::yes(item, figure, "limit not to be seen"),
        }
    }

    fn notify(&self) -> Finding {
        let (item, figure) = ("notify", "stages that the launch tells");
        match &self.notify {
            Ok(()) => Finding::yes(item, figure, "NOTIFY_SOCKET"),
            Err(refusal) => Finding::no(item, figure)
                .because(format!("no socket can be bound: {}", refusal.text))
                .remedied_by(["a folder to write to: XDG_RUNTIME_DIR, TMPDIR"]),
        }
    }
}
