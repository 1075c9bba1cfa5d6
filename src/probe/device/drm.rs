//! Devices by the kernel's own files, whoever made them, with no vendor's library.
//!
//! - which there are: `/sys/class/drm/cardN/device` (driver, PCI address);
//! - in use and total, amdgpu alone: `mem_info_vram_used`, `mem_info_vram_total` (Documentation/gpu/amdgpu);
//! - what the launch's own processes hold: `/proc/PID/fdinfo` of what they have open in `/dev/dri`
//!   (Documentation/gpu/drm-usage-stats.rst), each client of a device once, however many descriptors and processes share
//!   it; and `/sys/class/kfd/kfd/proc/PID/vram_*` (amdkfd, compute). A process has the larger of the two: memory of
//!   compute is in both where the driver shares the address space.
//!
//! All of it is text of drivers: sizes are bounded, and what has another form is passed over.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Device, Shown, Vendor};
use crate::event::Pid;

/// Drivers of devices that compute, as against those of mere screens.
const DRIVERS: [(&str, Vendor); 15] = [
    ("amdgpu", Vendor::Amd),
    ("radeon", Vendor::Amd),
    ("i915", Vendor::Intel),
    ("xe", Vendor::Intel),
    ("nvidia", Vendor::Nvidia),
    ("nouveau", Vendor::Nvidia),
    ("panfrost", Vendor::Other),
    ("panthor", Vendor::Other),
    ("lima", Vendor::Other),
    ("v3d", Vendor::Other),
    ("msm", Vendor::Other),
    ("msm_dpu", Vendor::Other),
    ("etnaviv", Vendor::Other),
    ("asahi", Vendor::Other),
    ("powervr", Vendor::Other),
];
/// Of so many devices, and so many descriptors a process, no more is looked at.
const MOST_DEVICES: usize = 256;
const MOST_DESCRIPTORS: usize = 4_096;
/// Longest file that is read.
const LONGEST: u64 = 16 * 1024;

/// The devices, and where to look.
pub struct Drm {
    proc: PathBuf,
    kfd: PathBuf,
    devices: Vec<Device>,
    /// `cardN/device`, beside each.
    folders: Vec<PathBuf>,
    /// KFD's number of each device, where it has one.
    kfd_ids: HashMap<String, usize>,
    why_none: String,
}

impl Drm {
    /// Looks which devices there are. `without_nvidia`: somebody else speaks for NVIDIA's.
    pub fn open(sys: &Path, proc: &Path, without_nvidia: bool) -> Drm {
        let class = sys.join("class/drm");
        let kfd = sys.join("class/kfd/kfd");
        let mut drm = Drm {
            proc: proc.to_owned(),
            kfd,
            devices: Vec::new(),
            folders: Vec::new(),
            kfd_ids: HashMap::new(),
            why_none: String::new(),
        };
        let mut cards: Vec<(u32, PathBuf)> = match std::fs::read_dir(&class) {
            Ok(entries) => entries
                .flatten()
                .filter_map(|entry| {
                    let number = entry.file_name().to_str()?.strip_prefix("card")?.parse().ok()?;
                    Some((number, entry.path()))
                })
                .take(MOST_DEVICES)
                .collect(),
            Err(error) => {
                drm.why_none = format!("{}: {error}", class.display());
                return drm;
            }
        };
        cards.sort();
        let mut passed_over = HashSet::new();
        for (number, card) in cards {
            let folder = card.join("device");
            let Some(driver) = std::fs::read_link(folder.join("driver")).ok() else { continue };
            let driver = driver.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some((_, vendor)) = DRIVERS.iter().find(|(known, _)| *known == driver) else {
                passed_over.insert(driver);
                continue;
            };
            // NVIDIA's own driver tells nothing there, and NVML knows its devices.
            if driver == "nvidia" || (without_nvidia && *vendor == Vendor::Nvidia) {
                passed_over.insert(driver);
                continue;
            }
            let uevent = text(&folder.join("uevent")).unwrap_or_default();
            let pci = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")).map(str::to_owned);
            let total = number_in(&folder.join("mem_info_vram_total"));
            let name = text(&folder.join("product_name")).map(|name| name.trim().to_owned()).unwrap_or_default();
            let uuid = text(&folder.join("unique_id")).map(|id| format!("GPU-{}", id.trim()));
            let own_memory = match driver.as_str() {
                "amdgpu" | "radeon" | "nouveau" => true,
                "i915" => card.join("lmem_total_bytes").exists() || folder.join("lmem_total_bytes").exists(),
                "xe" => {
                    folder.join("tile0/physical_vram_size_bytes").exists()
                        || folder.join("vram_d3cold_threshold").exists()
                }
                _ => false,
            };
            drm.devices.push(Device {
                uuid: uuid.filter(|_| *vendor == Vendor::Amd),
                name: if name.is_empty() { format!("card{number}, {driver}") } else { name },
                source: super::Source::Drm,
                driver: Some(driver),
                pci,
                total_bytes: total,
                is_unified: !own_memory,
                ..Device::of(*vendor)
            });
            drm.folders.push(folder);
        }
        drm.find_kfd();
        if drm.devices.is_empty() {
            let mut names: Vec<String> = passed_over.into_iter().collect();
            names.sort();
            drm.why_none = match names.as_slice() {
                [] => format!("{}: it has no device", class.display()),
                names => format!("{}: only devices of {}", class.display(), names.join(", ")),
            };
        }
        drm
    }

    /// Which number compute's own files have for each device, and which of them are one with the CPU.
    fn find_kfd(&mut self) {
        let Ok(nodes) = std::fs::read_dir(self.kfd.join("topology/nodes")) else { return };
        for node in nodes.flatten().take(MOST_DEVICES) {
            let Some(id) = text(&node.path().join("gpu_id")) else { continue };
            let properties = text(&node.path().join("properties")).unwrap_or_default();
            let property = |name: &str| {
                properties
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
            };
            let Some(location) = property("location_id") else { continue };
            // Bus, device and function, as pci_dev_id() packs them.
            let (bus, slot, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
            let pci = format!("{:04x}:{bus:02x}:{slot:02x}.{function}", property("domain").unwrap_or(0));
            let Some(place) = self.devices.iter().position(|device| device.pci.as_ref() == Some(&pci)) else {
                continue;
            };
            self.kfd_ids.insert(id.trim().to_owned(), place);
            if property("cpu_cores_count").is_some_and(|cores| cores > 0) {
                self.devices[place].is_unified = true;
            }
        }
    }

    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Why there is none.
    pub fn why_none(&self) -> String {
        self.why_none.clone()
    }

    /// What is in use on each.
    pub fn memory(&mut self) -> Vec<Shown> {
        let shown = |(device, folder): (&Device, &PathBuf)| {
            let path = folder.join("mem_info_vram_used");
            match number_in(&path) {
                Some(used) => {
                    let free = device.total_bytes.map(|total| total.saturating_sub(used));
                    let busy = number_in(&folder.join("gpu_busy_percent")).and_then(|busy| u32::try_from(busy).ok());
                    Shown { used: Some(used), free, busy_percent: busy, ..Shown::default() }
                }
                None => {
                    let driver = device.driver.as_deref().unwrap_or("its driver");
                    let why = match folder.exists() {
                        true => format!("{driver} tells only what the launch's own processes hold"),
                        false => "the device is gone".to_owned(),
                    };
                    Shown { reason: Some(why), ..Shown::default() }
                }
            }
        };
        self.devices.iter().zip(&self.folders).map(shown).collect()
    }

    /// Adds what the processes of the launch hold.
    pub fn processes(&mut self, pids: &[Pid], shown: &mut [Shown]) {
        if self.devices.is_empty() {
            return;
        }
        let mut held: Vec<HashMap<Pid, u64>> = vec![HashMap::new(); self.devices.len()];
        let mut clients = HashSet::new();
        let mut refused = None;
        let mut sorted = pids.to_vec();
        // The older process of two that share a client has it.
        sorted.sort_unstable();
        for pid in sorted {
            if let Err(why) = self.of_process(pid, &mut clients, &mut held) {
                refused = Some(why);
            }
        }
        for (place, shown) in shown.iter_mut().enumerate() {
            let mut own: Vec<(Pid, u64)> =
                held.get(place).into_iter().flatten().map(|(pid, bytes)| (*pid, *bytes)).collect();
            own.sort_unstable();
            match &refused {
                None => shown.own = Some(own),
                Some(why) => shown.processes = Some(Err(why.clone())),
            }
        }
    }

    fn of_process(
        &self,
        pid: Pid,
        clients: &mut HashSet<(usize, u64)>,
        held: &mut [HashMap<Pid, u64>],
    ) -> Result<(), String> {
        let folder = self.proc.join(pid.to_string());
        let descriptors = match std::fs::read_dir(folder.join("fd")) {
            Ok(descriptors) => descriptors,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(format!("what process {pid} has open cannot be seen: {error}"));
            }
            // It ended.
            Err(_) => return Ok(()),
        };
        for descriptor in descriptors.flatten().take(MOST_DESCRIPTORS) {
            let Ok(target) = std::fs::read_link(descriptor.path()) else { continue };
            if !target.starts_with("/dev/dri") {
                continue;
            }
            let Some(info) = text(&folder.join("fdinfo").join(descriptor.file_name())) else { continue };
            let Some(client) = parse_client(&info) else { continue };
            let place = self.devices.iter().position(|device| match (&client.pdev, &device.pci) {
                (Some(pdev), Some(pci)) => pdev == pci,
                _ => device.driver.as_deref() == Some(client.driver.as_str()),
            });
            let Some(place) = place else { continue };
            if clients.insert((place, client.id)) {
                let bytes = client.bytes(self.devices[place].is_unified);
                *held[place].entry(pid).or_insert(0) += bytes;
            }
        }
        for (id, place) in &self.kfd_ids {
            if let Some(bytes) = number_in(&self.kfd.join(format!("proc/{pid}/vram_{id}"))) {
                let known = held[*place].entry(pid).or_insert(0);
                *known = bytes.max(*known);
            }
        }
        Ok(())
    }
}

/// One client of a device, as a descriptor's fdinfo has it.
#[derive(Debug, PartialEq, Eq)]
struct Client {
    driver: String,
    pdev: Option<String>,
    id: u64,
    /// Bytes by region: resident where the driver tells that, else what is allocated.
    regions: HashMap<String, u64>,
}

impl Client {
    /// What of the device's own memory it holds; of a device that has none, what of the host's.
    fn bytes(&self, is_unified: bool) -> u64 {
        let own = |region: &str| region.starts_with("vram") || region.starts_with("local");
        let any_own = self.regions.keys().any(|region| own(region));
        let counts = |region: &str| if is_unified && !any_own { !region.starts_with("stolen") } else { own(region) };
        self.regions
            .iter()
            .filter(|(region, _)| counts(region))
            .map(|(_, bytes)| bytes)
            .fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The lines of an fdinfo file that are a DRM client's.
fn parse_client(info: &str) -> Option<Client> {
    let mut client = Client { driver: String::new(), pdev: None, id: 0, regions: HashMap::new() };
    let mut has_id = false;
    // The better known of a region's figures: resident, then allocated, then amdgpu's older word.
    let mut rank: HashMap<String, u8> = HashMap::new();
    for line in info.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key {
            "drm-driver" => client.driver = value.to_owned(),
            "drm-pdev" => client.pdev = Some(value.to_ascii_lowercase()),
            "drm-client-id" => (client.id, has_id) = (value.parse().ok()?, true),
            _ => {
                let words = [("drm-resident-", 3), ("drm-total-", 2), ("drm-memory-", 1)];
                let Some((region, of)) = words.iter().find_map(|(word, rank)| Some((key.strip_prefix(word)?, *rank)))
                else {
                    continue;
                };
                let Some(bytes) = size(value) else { continue };
                if rank.get(region).is_none_or(|known| *known < of) {
                    rank.insert(region.to_owned(), of);
                    client.regions.insert(region.to_owned(), bytes);
                }
            }
        }
    }
    (has_id && !client.driver.is_empty()).then_some(client)
}

/// `12`, `12 KiB`, `12 MiB`.
fn size(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let unit = match words.next() {
        None | Some("B") => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("GiB") => 1 << 30,
        Some(_) => return None,
    };
    number.checked_mul(unit)
}

fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn number_in(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A host with an amdgpu, an integrated i915 and a screen.
    fn host() -> tempfile::TempDir {
        let scratch = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = scratch.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (card, driver, pci) in
            [("card0", "amdgpu", "0000:03:00.0"), ("card1", "i915", "0000:00:02.0"), ("card2", "ast", "x")]
        {
            let folder = format!("sys/class/drm/{card}/device");
            write(&format!("{folder}/uevent"), &format!("DRIVER={driver}\nPCI_SLOT_NAME={pci}\n"));
            symlink(format!("/sys/bus/pci/drivers/{driver}"), scratch.path().join(&folder).join("driver")).unwrap();
        }
        write("sys/class/drm/card0/device/mem_info_vram_total", "17163091968\n");
        write("sys/class/drm/card0/device/mem_info_vram_used", "1073741824\n");
        write("sys/class/drm/card0-DP-1/status", "connected\n");
        write("sys/class/kfd/kfd/topology/nodes/1/gpu_id", "4711\n");
        write("sys/class/kfd/kfd/topology/nodes/1/properties", "cpu_cores_count 0\nlocation_id 768\ndomain 0\n");
        write("sys/class/kfd/kfd/proc/11/vram_4711", "900000\n");
        for (pid, fd, info) in [
            (
                10,
                3,
                "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t7\ndrm-total-vram:\t300 KiB\ndrm-resident-vram:\t256 KiB\ndrm-total-gtt:\t9 MiB\n",
            ),
            // The same client, by another descriptor and in another process.
            (10, 4, "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t7\ndrm-total-vram:\t300 KiB\n"),
            (11, 3, "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t7\ndrm-memory-vram:\t300 KiB\n"),
            (
                11,
                5,
                "drm-driver:\ti915\ndrm-pdev:\t0000:00:02.0\ndrm-client-id:\t7\ndrm-total-system0:\t2 MiB\ndrm-resident-system0:\t1 MiB\ndrm-total-stolen-system0:\t4 MiB\n",
            ),
        ] {
            write(&format!("proc/{pid}/fdinfo/{fd}"), info);
            std::fs::create_dir_all(scratch.path().join(format!("proc/{pid}/fd"))).unwrap();
            symlink("/dev/dri/renderD128", scratch.path().join(format!("proc/{pid}/fd/{fd}"))).unwrap();
        }
        scratch
    }

    fn open(host: &tempfile::TempDir) -> Drm {
        Drm::open(&host.path().join("sys"), &host.path().join("proc"), false)
    }

    #[test]
    fn devices_are_found_and_their_memory_read() {
        let host = host();
        let mut drm = open(&host);
        let [amd, intel] = drm.devices() else { panic!("{:?}", drm.devices()) };
        assert_eq!((amd.vendor, amd.total_bytes, amd.is_unified), (Vendor::Amd, Some(17_163_091_968), false));
        assert_eq!((intel.vendor, intel.total_bytes, intel.is_unified), (Vendor::Intel, None, true));
        let shown = drm.memory();
        assert_eq!((shown[0].used, shown[0].free), (Some(1 << 30), Some(17_163_091_968 - (1 << 30))));
        assert!(shown[1].used.is_none() && shown[1].reason.as_ref().unwrap().contains("own processes"));
    }

    #[test]
    fn a_client_counts_once_and_compute_is_not_added_to_it() {
        let host = host();
        let mut drm = open(&host);
        let mut shown = drm.memory();
        drm.processes(&[11, 10, 12], &mut shown);
        assert_eq!(shown[0].own, Some(vec![(10, 256 << 10), (11, 900_000)]));
        assert_eq!(shown[1].own, Some(vec![(11, 1 << 20)]));
    }

    #[test]
    fn a_device_that_vanishes_has_a_reason() {
        let host = host();
        let mut drm = open(&host);
        std::fs::remove_dir_all(host.path().join("sys/class/drm/card0")).unwrap();
        assert_eq!(drm.memory()[0].reason.as_deref(), Some("the device is gone"));
    }

    #[test]
    fn without_devices_it_says_what_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(Drm::open(scratch.path(), scratch.path(), false).why_none().contains("class/drm"));
    }

    #[test]
    fn odd_lines_are_passed_over() {
        assert_eq!(parse_client("drm-driver:\tx\ndrm-client-id:\ty\n"), None);
        assert_eq!(parse_client("pos:\t0\nflags:\t02\n"), None);
        let client = parse_client("drm-driver:\tx\ndrm-client-id:\t1\ndrm-total-vram0:\t1 parsec\n::\n").unwrap();
        assert_eq!(client.regions.len(), 0);
        assert_eq!(size("18446744073709551615 KiB"), None);
    }
}
