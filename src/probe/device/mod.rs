//! Memory of the devices: NVIDIA's by NVML, others by the kernel's own files (`/sys/class/drm`, `/sys/class/kfd`,
//! `/proc/PID/fdinfo`).
//!
//! A driver may take any time to answer, and may never: everything that asks one stands on a thread of its own
//! (`reader`), which the recorder's looks only ask and take from. What it read is used once; a look for which there is
//! nothing new has no value. This process never has a CUDA context, which would itself take device memory; where the
//! user asks for it, a small process of its own has one (`cuda`).
//!
//! How much of it is the launch's is told by [`share`]; which devices count by [`visible`].

pub mod cuda;
mod drm;
pub mod nvml;
mod reader;
pub mod share;
mod usage;
pub mod visible;

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Reading;
use crate::clock::Mono;
use crate::event::Pid;
use crate::launch::tree::{ProcessKey, Tree};
use crate::metric::Metric;
use crate::proc::{Buffer, ProcFile};
pub use reader::{Opened, open_for};
use reader::{Reader, Request};
use share::{Known, Listed};
use usage::Usage;
use visible::Wishes;

/// Whose device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vendor {
    Nvidia,
    Amd,
    Intel,
    Other,
}

/// Which source a device is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// NVIDIA's management library.
    Nvml,
    /// The kernel's own files.
    Drm,
    /// The CUDA driver (`--cuda-memory`), where NVML knows of no device.
    Cuda,
}

/// A context of the profiler's own on a device whose memory the CUDA driver tells (`--cuda-memory`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnContext {
    /// What it takes of the device: as much as another, made and ended before the start, was seen to take. It is in
    /// what is in use, before the start too, and so in no rise.
    pub bytes: Option<u64>,
    /// Why that is not known.
    pub reason: Option<String>,
}

/// One device, or one instance of a divided one. Its place in `run.json`'s `devices` is its id in `detail.csv`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub uuid: Option<String>,
    pub name: String,
    pub vendor: Vendor,
    pub source: Source,
    pub driver: Option<String>,
    /// `0000:03:00.0`.
    pub pci: Option<String>,
    pub total_bytes: Option<u64>,
    /// Whether its memory is the host's: what it uses is host memory in use, and is not to be added to it.
    pub is_unified: bool,
    /// Of an instance (MIG): the place of its device.
    pub parent: Option<usize>,
    /// Of an instance: `GPU instance/compute instance`, where known.
    pub instance: Option<String>,
    /// Whether its memory is counted in its instances.
    pub is_divided: bool,
    /// Whether it is counted in `device_used_bytes` and `device_launch_bytes`: the launch may use it.
    #[serde(default)]
    pub is_counted: bool,
    /// In use before the exec.
    #[serde(default)]
    pub baseline_bytes: Option<u64>,
    /// Why its memory was last not known.
    #[serde(default)]
    pub reason: Option<String>,
    /// Where its memory is told by the CUDA driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<OwnContext>,
}

impl Device {
    fn of(vendor: Vendor) -> Device {
        Device {
            uuid: None,
            name: String::new(),
            vendor,
            source: if vendor == Vendor::Nvidia { Source::Nvml } else { Source::Drm },
            driver: None,
            pci: None,
            total_bytes: None,
            is_unified: false,
            parent: None,
            instance: None,
            is_divided: false,
            is_counted: false,
            baseline_bytes: None,
            reason: None,
            context: None,
        }
    }

    /// For people.
    pub fn label(&self, index: usize) -> String {
        match self.name.as_str() {
            "" => format!("device {index}"),
            name => format!("device {index} ({name})"),
        }
    }
}

/// How device memory was known in a run, for `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceProbeMeta {
    /// `nvml`, `cuda`, `drm`, some of them, or none where no device was found.
    pub sources: Vec<String>,
    /// Why a source found none, each.
    pub reasons: Vec<String>,
    /// What there is to know about which devices are counted.
    pub notes: Vec<String>,
    /// What processes of the launch were started with that say of devices something else than the launch was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<OwnEnvironment>,
    /// How the launch's share is known: `processes` (the driver's list) or `rise` (in use now less what was before the
    /// exec, whoever took it); the lesser of them that ever held.
    pub launch_basis: Option<Basis>,
    /// Why it is not the driver's list.
    pub basis_reason: Option<String>,
    /// Readings made, the longest, and the mean time between two.
    pub readings: u64,
    pub longest_reading_ns: u64,
    pub mean_interval_ns: Option<u64>,
}

/// What a process of the launch was started with, as far as it is about devices. Of several that were started with the
/// same the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnEnvironment {
    pub pid: Pid,
    #[serde(flatten)]
    pub wishes: Wishes,
    /// The devices that it may use.
    pub devices: Vec<usize>,
}

/// How the launch's share is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    Processes,
    Rise,
}

/// What one device showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub used: Option<u64>,
    pub free: Option<u64>,
    /// Why it has no `used`.
    pub reason: Option<String>,
    /// The driver's list of processes; `None` where it was not asked for this time.
    pub processes: Option<Result<Vec<Listed>, String>>,
    /// What the launch's own processes hold by the kernel's files, where there are such: nobody need be told apart.
    pub own: Option<Vec<(Pid, u64)>>,
    /// The most that each process of the launch had, where the driver keeps account of it.
    pub accounted: Option<Vec<(Pid, u64)>>,
    /// Of its time, parts of a hundred in which it computed.
    pub busy_percent: Option<u32>,
}

/// What a reader saw at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReading {
    /// When the first driver was asked.
    pub began: Mono,
    pub ended: Mono,
    /// One beside each device.
    pub devices: Vec<Shown>,
}

/// A figure of one device or, of device memory, of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFigure {
    pub of: FigureOf,
    pub metric: &'static str,
    pub value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureOf {
    Device(usize),
    Process(Pid),
}

/// The metrics.
const METRICS: [Metric; 7] = [
    Metric::DeviceUsedBytes,
    Metric::DeviceLaunchBytes,
    Metric::DeviceRiseBytes,
    Metric::DeviceUnexplainedBytes,
    Metric::DeviceStaleNs,
    Metric::DevicePeakLowBytes,
    Metric::DevicePeakHighBytes,
];

/// How the reason begins on a host without a device.
pub const NO_DEVICE: &str = "no device was found";
/// … and where the launch is left none.
pub const NO_VISIBLE_DEVICE: &str = "the launch may use none of the devices";

/// Of a process's environment no more is looked at, in bytes; and of so many different ones no more are kept.
const LONGEST_ENVIRONMENT: u64 = 256 * 1024;
const MOST_ENVIRONMENTS: usize = 64;

/// A driver that has not answered for so long is said to be silent.
const SILENT_NS: u64 = 500_000_000;
/// At a mark an answer is waited for at least this long, however much of the mark's time is gone.
const AT_MARK: Duration = Duration::from_millis(10);

/// Where the devices are found.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// NVML; the loader's usual one without.
    pub nvml: Option<PathBuf>,
    /// `--cuda-memory`.
    pub cuda: Option<cuda::Wanted>,
    /// In place of `/sys`. For tests: `STAGEMARK_SYSFS`.
    pub sys: Option<PathBuf>,
    /// In place of `/proc`, for the kernel's files of devices alone. For tests: `STAGEMARK_PROC`.
    pub proc: Option<PathBuf>,
    /// How long an answer is waited for at a mark, whatever the mark's time. For tests, on machines that may give the
    /// reader no CPU for long: `STAGEMARK_DEVICE_PATIENCE_MS`.
    pub patience: Option<Duration>,
}

impl Place {
    /// By `--nvidia-ml` and `--cuda-memory`; the roots from the environment.
    pub fn of(nvml: Option<PathBuf>, cuda: Option<cuda::Wanted>) -> Place {
        let root = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let patience = std::env::var("STAGEMARK_DEVICE_PATIENCE_MS").ok().and_then(|text| text.parse().ok());
        let patience = patience.map(Duration::from_millis);
        Place { nvml, cuda, sys: root("STAGEMARK_SYSFS"), proc: root("STAGEMARK_PROC"), patience }
    }

    fn sys(&self) -> PathBuf {
        self.sys.clone().unwrap_or_else(|| "/sys".into())
    }

    fn proc(&self) -> PathBuf {
        self.proc.clone().unwrap_or_else(|| "/proc".into())
    }
}

/// The probe: the recorder's side.
pub struct DeviceProbe {
    reader: Result<Reader, String>,
    /// See [`Place::patience`].
    patience: Option<Duration>,
    wishes: Wishes,
    devices: Vec<Device>,
    meta: DeviceProbeMeta,
    /// Used before the exec, and the numbers in the driver's list then, beside each device.
    before: Vec<(Option<u64>, HashSet<u32>)>,
    has_baseline: bool,
    known: Known,
    /// NSpid was read of these.
    met: HashMap<ProcessKey, u32>,
    figures: Vec<DeviceFigure>,
    /// Whether anything of the launch is on a device.
    usage: Usage,
    first: Option<Mono>,
    last: Option<Mono>,
    /// Whether a look had none because there was no new one.
    was_between: bool,
    /// Whether there are devices that could not be opened.
    is_blind: bool,
    buffer: Buffer,
}

impl DeviceProbe {
    /// Begins to look for devices, on the reader's thread. Signals of the launch must be held by now, which a thread
    /// inherits.
    pub fn begin(place: Place) -> DeviceProbe {
        let patience = place.patience;
        let reader = Reader::start(place).map_err(|error| format!("no thread for the device reader: {error}"));
        DeviceProbe {
            reader,
            patience,
            wishes: Wishes::of_environment(),
            devices: Vec::new(),
            meta: DeviceProbeMeta::default(),
            before: Vec::new(),
            has_baseline: false,
            known: Known::default(),
            met: HashMap::new(),
            figures: Vec::new(),
            usage: Usage::default(),
            first: None,
            last: None,
            was_between: false,
            is_blind: false,
            buffer: Buffer::new(),
        }
    }

    /// Waits for what is in use before the exec; returns what there is to warn of.
    pub fn baseline(&mut self, limit: Duration) -> Option<String> {
        let Ok(reader) = &self.reader else { return None };
        let (reading, is_alone) = (reader.first(limit), reader.is_alone());
        self.meet_devices();
        match reading {
            Some(reading) => {
                self.has_baseline = true;
                for (device, shown) in self.devices.iter_mut().zip(&reading.devices) {
                    device.baseline_bytes = shown.used;
                    device.reason = shown.reason.clone();
                }
                let numbers = |shown: &Shown| match &shown.processes {
                    Some(Ok(listed)) => listed.iter().map(|listed| listed.pid).collect(),
                    _ => HashSet::new(),
                };
                self.before = reading.devices.iter().map(|shown| (shown.used, numbers(shown))).collect();
                self.note_reading(&reading);
                None
            }
            None if is_alone => None,
            None => Some(format!(
                "the devices' driver did not answer within {} ms: what was in use before the start is not known",
                limit.as_millis()
            )),
        }
    }

    /// The process that asks the CUDA driver: none of the launch's.
    pub fn helper(&self) -> Option<Pid> {
        self.reader.as_ref().ok().and_then(Reader::helper)
    }

    /// Whether the launch used a device that it may use, and why that is known or not; nothing where there is none.
    pub fn verdict(&self) -> Option<(Option<bool>, String)> {
        self.devices.iter().any(|device| device.is_counted).then(|| self.usage.verdict())
    }

    /// Takes in which devices there are, once that is known.
    fn meet_devices(&mut self) {
        let Ok(reader) = &self.reader else { return };
        let Some(opened) = reader.opened().filter(|_| self.devices.is_empty()) else { return };
        self.devices = opened.devices;
        self.meta.sources = opened.sources;
        self.meta.reasons = opened.reasons;
        self.is_blind = opened.is_blind;
        let visible = visible::resolve(&self.devices, &self.wishes);
        for (device, counted) in self.devices.iter_mut().zip(visible.devices) {
            device.is_counted = counted;
        }
        self.meta.notes = opened.notes;
        self.meta.notes.extend(visible.notes);
    }

    /// Takes in what a process was started with. One that says nothing of devices may be no program of theirs.
    fn heed_environment(&mut self, pid: Pid) {
        let own = environment_of(pid);
        if !own.has_any() || own == self.wishes || self.meta.environments.len() >= MOST_ENVIRONMENTS {
            return;
        }
        if self.meta.environments.iter().any(|known| known.wishes == own) {
            return;
        }
        let visible = visible::resolve(&self.devices, &own);
        let devices: Vec<usize> = (0..self.devices.len()).filter(|&index| visible.devices[index]).collect();
        for &index in devices.iter().filter(|&&index| !self.devices[index].is_counted) {
            let label = self.devices[index].label(index);
            self.meta.notes.push(format!(
                "{label} is counted since process {pid} was seen, which may use it by its own environment"
            ));
        }
        devices.iter().for_each(|&index| self.devices[index].is_counted = true);
        self.meta.environments.push(OwnEnvironment { pid, wishes: own, devices });
    }

    /// Asks for a reading, for whoever takes next. Costs the asker nothing.
    pub fn ask(&mut self, tree: &Tree, closely: bool) {
        let Ok(reader) = &self.reader else { return };
        if reader.is_alone() {
            return;
        }
        self.follow(tree);
        if let Ok(reader) = &self.reader {
            reader.ask(Request { pids: self.known.members.iter().copied().collect(), closely });
        }
    }

    /// Learns the processes of the launch, and their numbers in other namespaces.
    fn follow(&mut self, tree: &Tree) {
        let before = std::mem::take(&mut self.known);
        let mut known = Known { aliases: before.aliases, ended: before.ended, ..Known::default() };
        let mut started = Vec::new();
        for process in tree.processes().filter(|process| !process.has_ended) {
            if self.met.insert(process.key, process.image) == Some(process.image) {
                known.members.insert(process.key.pid);
                continue;
            }
            started.push(process.key.pid);
            let mut status = ProcFile::of(process.key.pid, "status");
            let status = status.read(&mut self.buffer).ok();
            known.add(process.key.pid, &status.map(namespaces).unwrap_or_default());
        }
        known.ended.extend(before.members.iter().filter(|pid| !known.members.contains(pid)));
        known.ended.retain(|pid| !known.members.contains(pid));
        if self.met.len() > known.members.len() {
            let is_there = |key: &ProcessKey| tree.process(key.pid).is_some_and(|process| process.key == *key);
            self.met.retain(|key, _| is_there(key));
            let members = &known.members;
            known.aliases.retain(|_, owner| owner.is_none_or(|owner| members.contains(&owner)));
        }
        self.known = known;
        started.into_iter().for_each(|pid| self.heed_environment(pid));
    }

    /// Takes what was read since the last time. At a mark, `left` of whose time is there yet, the answer is waited for: what
    /// was asked for before it is of before it. A driver that is silent is waited for no more.
    pub fn take(&mut self, now: Mono, left: Option<Duration>) -> Reading {
        let reader = match &self.reader {
            Ok(reader) => reader,
            Err(why) => return absent(why),
        };
        let wait = match (left, self.patience) {
            (None, _) => Duration::ZERO,
            (Some(_), Some(patience)) => patience,
            (Some(_), None) if reader.waiting_ns(Mono::now()) > SILENT_NS => Duration::ZERO,
            (Some(left), None) => left.max(AT_MARK),
        };
        let taken = reader.take(wait);
        let (is_alone, waiting_ns) = (reader.is_alone(), reader.waiting_ns(Mono::now()));
        self.meet_devices();
        self.figures.clear();
        if self.devices.is_empty() && is_alone {
            return absent(&self.why_none());
        }
        match taken {
            Some(reading) => self.tell(now, &reading),
            None if waiting_ns > SILENT_NS => {
                absent(&format!("the devices' driver has not answered for {} ms", waiting_ns / 1_000_000))
            }
            // The next look has it: this is not something that happened.
            None => {
                self.was_between = true;
                Reading::default()
            }
        }
    }

    fn why_none(&self) -> String {
        let reasons = self.meta.reasons.join("; ");
        // Nodes that only such a driver makes.
        let node = ["/dev/nvidiactl", "/dev/kfd"].into_iter().find(|node| std::path::Path::new(node).exists());
        match node {
            Some(node) => format!("devices cannot be seen, though there is {node}: {reasons}"),
            None if self.is_blind => format!("devices cannot be seen: {reasons}"),
            None => format!("{NO_DEVICE}: {reasons}"),
        }
    }

    fn note_reading(&mut self, reading: &DeviceReading) {
        self.meta.longest_reading_ns = self.meta.longest_reading_ns.max(reading.ended.since(reading.began));
        self.meta.readings += 1;
        let first = *self.first.get_or_insert(reading.began);
        self.last = Some(reading.began);
        self.meta.mean_interval_ns = reading.began.since(first).checked_div(self.meta.readings.saturating_sub(1));
    }

    fn tell(&mut self, now: Mono, reading: &DeviceReading) -> Reading {
        self.note_reading(reading);
        let mut told = Reading::default();
        told.values.set(Metric::DeviceStaleNs, Mono::now().max(now).since(reading.began));
        let mut used = Sum::default();
        let mut rise = Sum::default();
        let mut share = Sum::default();
        let mut unexplained = Sum::default();
        let (mut most, mut most_sum) = (0, Sum::default());
        let mut basis = Basis::Processes;
        let mut basis_reason = None;
        let mut share_asked = true;
        let mut by_process: HashMap<Pid, u64> = HashMap::new();
        let nothing_before = (None, HashSet::new());
        self.usage.begin();
        for (index, (device, shown)) in self.devices.iter_mut().zip(&reading.devices).enumerate() {
            let mut figure = |metric, value: Option<u64>| {
                let of = FigureOf::Device(index);
                self.figures.extend(value.map(|value| DeviceFigure { of, metric, value }));
            };
            figure("used_bytes", shown.used);
            figure("free_bytes", shown.free);
            figure("busy_percent", shown.busy_percent.map(u64::from));
            figure("own_context_bytes", device.context.as_ref().and_then(|context| context.bytes));
            device.reason = shown.reason.clone();
            let label = device.label(index);
            let (before, numbers) = self.before.get(index).unwrap_or(&nothing_before);
            let above = match (shown.used, before) {
                (None, _) => Err(shown.reason.clone().unwrap_or_else(|| "not known".to_owned())),
                (Some(_), None) => Err("what was in use before the exec is not known".to_owned()),
                // What others gave back hides what the launch took.
                (Some(used), Some(before)) => Ok(used.saturating_sub(*before)),
            };
            figure("rise_bytes", above.clone().ok());
            let named = match (&shown.own, &shown.processes) {
                (Some(own), _) => Some(Ok(own.clone())),
                (None, Some(Ok(listed))) => {
                    let exists = |pid: Pid| std::path::Path::new(&format!("/proc/{pid}")).exists();
                    Some(share::by_processes(listed, numbers, above.clone().ok(), &self.known, exists))
                }
                (None, Some(Err(why))) => Some(Err(why.clone())),
                (None, None) => None,
            };
            self.usage.device(&label, device.is_counted, &named, &above);
            if shown.accounted.iter().flatten().any(|(_, bytes)| *bytes > 0) {
                self.usage.was_used();
            }
            let of_launch = match &named {
                None => None,
                Some(Ok(shares)) => {
                    let bytes = shares.iter().map(|(_, bytes)| bytes).sum::<u64>();
                    if device.is_counted {
                        shares.iter().for_each(|(pid, bytes)| *by_process.entry(*pid).or_insert(0) += bytes);
                    }
                    Some(Ok(bytes))
                }
                Some(Err(why)) => {
                    if device.is_counted {
                        (basis, basis_reason) = (Basis::Rise, Some(format!("{label}: {why}")));
                    }
                    Some(above.clone().map_err(|more| format!("{why}; {more}")))
                }
            };
            figure("launch_bytes", of_launch.clone().and_then(Result::ok));
            if !device.is_counted {
                continue;
            }
            let account = shown.accounted.as_ref().ok_or("accounting mode is off (nvidia-smi -am 1 turns it on)");
            most_sum.add(&label, account.map(|all| all.iter().map(|(_, bytes)| bytes).sum()).map_err(str::to_owned));
            most = shown.accounted.iter().flatten().map(|(_, bytes)| *bytes).fold(most, u64::max);
            used.add(&label, shown.used.ok_or_else(|| shown.reason.clone().unwrap_or_else(|| "not known".to_owned())));
            match (&of_launch, &named) {
                (Some(of_launch), Some(named)) => {
                    share.add(&label, of_launch.clone());
                    unexplained.add(
                        &label,
                        match (&above, of_launch, named) {
                            (Ok(above), Ok(own), Ok(_)) => Ok(above.saturating_sub(*own)),
                            (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => Err(why.clone()),
                        },
                    );
                }
                _ => {
                    share_asked = false;
                    self.was_between = true;
                }
            }
            rise.add(&label, above);
        }
        self.usage.end(!self.known.members.is_empty(), reading.began);
        used.enter(Metric::DeviceUsedBytes, &mut told);
        rise.enter(Metric::DeviceRiseBytes, &mut told);
        if share_asked {
            share.enter(Metric::DeviceLaunchBytes, &mut told);
            unexplained.enter(Metric::DeviceUnexplainedBytes, &mut told);
            if told.values.get(Metric::DeviceLaunchBytes).is_some() {
                self.meta.launch_basis = self.meta.launch_basis.max(Some(basis));
            }
            match &basis_reason {
                // What the numbers mean is not known there.
                Some(why) => most_sum.reason = Some(why.clone()),
                None if most_sum.parts > 0 && most_sum.reason.is_none() => {
                    told.values.set(Metric::DevicePeakLowBytes, most);
                }
                None => {}
            }
            if told.values.get(Metric::DevicePeakLowBytes).is_none()
                && let Some(why) = &most_sum.reason
            {
                told.absences.push((Metric::DevicePeakLowBytes, why.clone()));
            }
            most_sum.enter(Metric::DevicePeakHighBytes, &mut told);
            if basis_reason.is_some() {
                self.meta.basis_reason = basis_reason;
            }
        }
        let of = |(pid, value)| DeviceFigure { of: FigureOf::Process(pid), metric: "device_bytes", value };
        self.figures.extend(by_process.into_iter().map(of));
        told
    }

    /// What each device and each process showed in the look before this, for `detail.csv`.
    pub fn figures(&self) -> &[DeviceFigure] {
        &self.figures
    }

    /// Why those metrics are not in every sample that are known in others.
    pub fn between(&self) -> impl Iterator<Item = (Metric, &'static str)> {
        let why = "a driver's answer is used once: a sample for which there is no new one has none";
        let was_between = self.was_between;
        METRICS.into_iter().filter(move |_| was_between).map(move |metric| (metric, why))
    }

    /// The devices, for `run.json`.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// How they were known, for `run.json`.
    pub fn meta(&self) -> &DeviceProbeMeta {
        &self.meta
    }
}

/// A sum that is absent where a part is, with the part's reason.
#[derive(Default)]
struct Sum {
    bytes: u64,
    parts: usize,
    reason: Option<String>,
}

impl Sum {
    fn add(&mut self, label: &str, part: Result<u64, String>) {
        self.parts += 1;
        match part {
            Ok(bytes) => self.bytes = self.bytes.saturating_add(bytes),
            Err(why) => self.reason = self.reason.take().or_else(|| Some(format!("{label}: {why}"))),
        }
    }

    fn enter(self, metric: Metric, told: &mut Reading) {
        match self {
            Sum { parts: 0, .. } => told.absences.push((metric, NO_VISIBLE_DEVICE.to_owned())),
            Sum { reason: Some(why), .. } => told.absences.push((metric, why)),
            Sum { bytes, .. } => told.values.set(metric, bytes),
        }
    }
}

fn absent(why: &str) -> Reading {
    Reading { absences: METRICS.into_iter().map(|metric| (metric, why.to_owned())).collect(), ..Reading::default() }
}

/// What a process was started with (proc_pid_environ(5)), as far as it may be read: what it has set since is not there.
fn environment_of(pid: Pid) -> Wishes {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/environ"));
    let read = file.and_then(|file| file.take(LONGEST_ENVIRONMENT).read_to_end(&mut bytes));
    if read.is_ok() { Wishes::of_block(&bytes) } else { Wishes::default() }
}

/// The numbers of a process in its namespaces, this one's first (proc_pid_status(5), NSpid).
fn namespaces(status: &[u8]) -> Vec<Pid> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"));
    let numbers = line.map(String::from_utf8_lossy).unwrap_or_default();
    numbers.split_ascii_whitespace().filter_map(|number| number.parse().ok()).take(33).collect()
}

#[cfg(test)]
mod tests;
