//! The machine, as far as it bears on copies.

use std::path::Path;

use super::record::Environment;
use crate::host::{Host, Roots};

/// The classes of PCI devices that compute: display controllers and processing accelerators (pci.ids).
const CLASSES: [&str; 2] = ["0x03", "0x12"];

/// The most devices that are told of.
const MOST: usize = 64;

impl Environment {
    /// Of this machine; `told` is what drivers said of their devices.
    pub fn look(told: Vec<String>) -> Environment {
        let roots = Roots::default();
        let host = Host { page_size_bytes: Some(crate::sys::cache::page_size()), ..Host::of(&roots) };
        Environment {
            cpu_model: host.cpu_model,
            logical_cpus: host.logical_cpus,
            affinity_cpus: host.affinity_cpus,
            numa_nodes: host.numa_nodes,
            memory_total_bytes: host.memory_total_bytes,
            memory_limit_bytes: host.cgroups.memory_limit.map(|limit| limit.bytes),
            kernel_release: host.kernel_release,
            page_size_bytes: host.page_size_bytes,
            transparent_huge_pages: host.transparent_huge_pages.enabled,
            virtualisation: host.virtualisation,
            devices: told.into_iter().chain(devices(&roots.sys)).collect(),
        }
    }
}

/// The devices on the PCI bus that compute, each with its driver and its link as it stands now: a link may run slower while
/// its device is idle.
fn devices(sys: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(sys.join("bus/pci/devices")) else { return Vec::new() };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let line = |folder: &Path, name: &str| {
        std::fs::read_to_string(folder.join(name))
            .ok()
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    };
    let told = |folder: &std::path::PathBuf| {
        let class = line(folder, "class")?;
        CLASSES.iter().any(|known| class.starts_with(known)).then_some(())?;
        let address = folder.file_name()?.to_string_lossy().into_owned();
        let id = |name| line(folder, name).unwrap_or_else(|| "?".to_owned()).replace("0x", "");
        let driver = std::fs::read_link(folder.join("driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let link = |which: &str| {
            let (speed, width) =
                (line(folder, &format!("{which}_link_speed"))?, line(folder, &format!("{which}_link_width"))?);
            Some(format!("{speed} ×{width}"))
        };
        let link = match (link("current"), link("max")) {
            (Some(now), Some(most)) if now != most => format!(", link {now} now, at most {most}"),
            (Some(now), _) => format!(", link {now}"),
            (None, _) => String::new(),
        };
        let driver = driver.map_or_else(|| "no driver".to_owned(), |name| format!("driver {name}"));
        Some(format!("{address} [{}:{}], {driver}{link}", id("vendor"), id("device")))
    };
    folders.iter().filter_map(told).take(MOST).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_compute_are_told_of_with_their_links() {
        let sys = tempfile::tempdir().unwrap();
        let write = |device: &str, name: &str, text: &str| {
            let folder = sys.path().join("bus/pci/devices").join(device);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
        };
        write("0000:01:00.0", "class", "0x030200\n");
        write("0000:01:00.0", "vendor", "0x10de\n");
        write("0000:01:00.0", "device", "0x2335\n");
        write("0000:01:00.0", "current_link_speed", "2.5 GT/s PCIe\n");
        write("0000:01:00.0", "current_link_width", "16\n");
        write("0000:01:00.0", "max_link_speed", "32.0 GT/s PCIe\n");
        write("0000:01:00.0", "max_link_width", "16\n");
        write("0000:00:03.0", "class", "0x020000\n");
        let expected = "0000:01:00.0 [10de:2335], no driver, link 2.5 GT/s PCIe ×16 now, at most 32.0 GT/s PCIe ×16";
        assert_eq!(devices(sys.path()), [expected]);
        assert!(devices(Path::new("/nonexistent")).is_empty());
    }
}
