//! NVIDIA's devices, by its management library, loaded at run time. It makes no CUDA context.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_C2C_LINK_COUNT;
use nvml_wrapper::{Device as Handle, Nvml};

use super::share::Listed;
use super::{Device, Shown, Vendor};
use crate::event::Pid;

/// What the loader finds by itself, in this order.
const USUAL: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// More devices, instances and processes than this are not looked at.
const MOST_DEVICES: u32 = 256;
const MOST_PROCESSES: usize = 65_536;

/// The library, open. It is never shut down: a process that ends has nothing to give back, and a shutdown that hangs
/// would hold its end.
pub struct Library {
    devices: Vec<Device>,
    handles: Vec<Handle<'static>>,
    /// Beside each, the most that each process of the launch had, and whether that is its last; `None` where the device
    /// keeps no account.
    accounts: Vec<Option<HashMap<Pid, (u64, bool)>>>,
    note: Option<String>,
    /// Whether one could not be opened.
    is_blind: bool,
}

impl Library {
    /// Loads it from `path`, or where the loader finds it.
    ///
    /// # Errors
    ///
    /// Why there is none, or what it said.
    pub fn open(path: Option<&Path>) -> Result<Library, String> {
        let mut loaded = init(path.map_or(OsStr::new(USUAL[0]), Path::as_os_str));
        // Another name helps where the file was not there, and nowhere else.
        if path.is_none() && matches!(loaded, Err(NvmlError::LibloadingError(_))) {
            loaded = init(OsStr::new(USUAL[1])).or(loaded);
        }
        let nvml = loaded.map_err(|error| told(&error))?;
        let nvml: &'static Nvml = Box::leak(Box::new(nvml));
        let driver = nvml.sys_driver_version().ok();
        let count = nvml.device_count().map_err(|error| told(&error))?;
        let mut library =
            Library { devices: Vec::new(), handles: Vec::new(), accounts: Vec::new(), note: None, is_blind: false };
        for index in 0..count.min(MOST_DEVICES) {
            match nvml.device_by_index(index) {
                Ok(handle) => library.meet(handle, driver.as_deref()),
                Err(error) => {
                    library.note = Some(format!("NVML: device {index} of {count}: {}", told(&error)));
                    library.is_blind = true;
                }
            }
        }
        let keeps = |handle: &Handle| handle.is_accounting_enabled().unwrap_or(false).then(HashMap::new);
        library.accounts = library.handles.iter().map(keeps).collect();
        if count == 0 {
            library.note = Some("NVML: it knows of no device".to_owned());
        }
        Ok(library)
    }

    fn meet(&mut self, handle: Handle<'static>, driver: Option<&str>) {
        let place = self.devices.len();
        let mut device = described(&handle);
        device.driver = driver.map(|version| format!("nvidia {version}"));
        let instances: Vec<Handle<'static>> = match handle.mig_mode() {
            Ok(mode) if mode.current != 0 => {
                let most = handle.mig_device_count().unwrap_or(0).min(MOST_DEVICES);
                (0..most).filter_map(|index| handle.mig_device_by_index(index).ok()).collect()
            }
            _ => Vec::new(),
        };
        device.is_divided = !instances.is_empty();
        let parent = device.clone();
        self.devices.push(device);
        self.handles.push(handle);
        for instance in instances {
            let (own, ids) = (described(&instance), crate::sys::nvml::instance_of(&instance));
            self.devices.push(Device {
                parent: Some(place),
                instance: ids.map(|(gpu, compute)| format!("{gpu}/{compute}")),
                pci: parent.pci.clone(),
                driver: parent.driver.clone(),
                ..own
            });
            self.handles.push(instance);
        }
    }

    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Whether there are devices that it would not open.
    pub fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// What could not be had of it.
    pub fn note(&self) -> Option<String> {
        self.note.clone()
    }

    /// What is in use on each device.
    pub fn memory(&mut self) -> Vec<Shown> {
        let shown = |handle: &Handle| match handle.memory_info() {
            Ok(memory) => Shown { used: Some(memory.used), free: Some(memory.free), ..Shown::default() },
            Err(error) => Shown { reason: Some(format!("NVML: {}", told(&error))), ..Shown::default() },
        };
        self.handles.iter().map(shown).collect()
    }

    /// What each device is, its driver, and how it hangs on the host, in words: PCIe generation and width as they are now (a
    /// link may be slower while its device is idle) and at most, and NVLink-C2C where there is any.
    pub fn links(&self) -> Vec<String> {
        let one = |(device, handle): (&Device, &Handle)| {
            let link = |generation: Result<u32, NvmlError>, width: Result<u32, NvmlError>| {
                Some(format!("generation {} ×{}", generation.ok()?, width.ok()?))
            };
            let now = link(handle.current_pcie_link_gen(), handle.current_pcie_link_width());
            let most = link(handle.max_pcie_link_gen(), handle.max_pcie_link_width());
            let pcie = match (now, most) {
                (Some(now), Some(most)) if now != most => Some(format!("PCIe {now} now, at most {most}")),
                (now, most) => now.or(most).map(|link| format!("PCIe {link}")),
            };
            let c2c = c2c_links(handle).map(|count| format!("NVLink-C2C, {count} links"));
            let parts = [Some(device.name.clone()), device.driver.clone(), pcie, c2c];
            parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
        };
        let whole = |(device, _): &(&Device, &Handle)| device.parent.is_none();
        self.devices.iter().zip(&self.handles).filter(whole).map(one).collect()
    }

    /// Adds who has how much, the most that each of `pids` ever had, and how busy each device is.
    pub fn processes(&mut self, pids: &[Pid], shown: &mut [Shown]) {
        for ((handle, account), shown) in self.handles.iter().zip(&mut self.accounts).zip(shown) {
            shown.accounted = account.as_mut().map(|account| accounted(handle, account, pids));
            let listed = handle.running_compute_processes().map(|mut listed| {
                // Few launches draw, and not every device can.
                listed.extend(handle.running_graphics_processes().unwrap_or_default());
                listed.truncate(MOST_PROCESSES);
                listed.into_iter().map(one).collect()
            });
            shown.processes = Some(listed.map_err(|error| format!("NVML: its processes: {}", told(&error))));
            shown.busy_percent = handle.utilization_rates().ok().map(|busy| busy.gpu);
        }
    }
}

/// Asks for the most that each process had, the last time when it has ended.
fn accounted(handle: &Handle, account: &mut HashMap<Pid, (u64, bool)>, pids: &[Pid]) -> Vec<(Pid, u64)> {
    let known: Vec<Pid> = account.iter().filter(|(_, (_, is_last))| !is_last).map(|(pid, _)| *pid).collect();
    for pid in pids.iter().copied().filter(|pid| !account.contains_key(pid)).chain(known).collect::<Vec<_>>() {
        let Ok(number) = u32::try_from(pid) else { continue };
        // One that never had any is not there.
        let Ok(stats) = handle.accounting_stats_for(number) else { continue };
        if let Some(most) = stats.max_memory_usage {
            let known = account.entry(pid).or_insert((0, false));
            *known = (known.0.max(most), !stats.is_running);
        }
    }
    account.iter().map(|(pid, (most, _))| (*pid, *most)).collect()
}

/// How many chip-to-chip links it has; `None` where it has none, or cannot say.
fn c2c_links(handle: &Handle) -> Option<u64> {
    let asked = FieldId(NVML_FI_DEV_C2C_LINK_COUNT);
    let count = match handle.field_values_for(&[asked]).ok()?.pop()?.ok()?.value.ok()? {
        SampleValue::U32(count) => u64::from(count),
        SampleValue::U64(count) => count,
        _ => return None,
    };
    (count > 0).then_some(count)
}

fn init(path: &OsStr) -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(path).init()
}

fn described(handle: &Handle) -> Device {
    let memory = handle.memory_info();
    Device {
        uuid: handle.uuid().ok(),
        name: handle.name().map(|name| name.chars().take(128).collect()).unwrap_or_default(),
        pci: handle.pci_info().ok().map(|pci| pci.bus_id.to_ascii_lowercase()),
        total_bytes: memory.as_ref().ok().map(|memory| memory.total),
        // Boards whose device shares the host's memory have none of their own to tell of.
        is_unified: matches!(memory, Err(NvmlError::NotSupported)),
        ..Device::of(Vendor::Nvidia)
    }
}

fn one(process: ProcessInfo) -> Listed {
    let bytes = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    Listed { pid: process.pid, bytes }
}

/// An error in words.
fn told(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) => {
            // The loader's own text names the file.
            let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
            text.chars().take(300).collect()
        }
        NvmlError::NotSupported => "not supported on this device".to_owned(),
        NvmlError::GpuLost => "the device is lost: it has fallen off the bus, or is otherwise out of reach".to_owned(),
        error => error.to_string().chars().take(300).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_it_says_which_file_is_missing() {
        let why = Library::open(Some(Path::new("/nowhere/libnvidia-ml.so.1"))).err().unwrap_or_default();
        assert!(why.contains("/nowhere/libnvidia-ml.so.1"), "{why}");
    }

    #[test]
    fn what_is_no_such_library_is_no_failure() {
        let why = Library::open(Some(Path::new("/proc/self/exe"))).err().unwrap_or_default();
        assert!(!why.is_empty());
        let why = Library::open(Some(Path::new("libc.so.6"))).err().unwrap_or_default();
        assert!(why.contains("nvmlInit"), "{why}");
    }
}
