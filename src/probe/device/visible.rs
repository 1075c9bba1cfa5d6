//! Which of the devices a launch may use, by the variables that its runtime obeys. Pure.
//!
//! `CUDA_VISIBLE_DEVICES` (CUDA C Programming Guide, environment variables): numbers, `GPU-` UUIDs or the beginning of
//! one, `MIG-` names; what stands behind the first entry that names nothing, or one that was named before, is not seen. `HIP_VISIBLE_DEVICES` and
//! `ROCR_VISIBLE_DEVICES` are the same for AMD's.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Device, Vendor};

/// Longest value that is taken of a process's variable, in bytes.
const LONGEST: usize = 4096;

/// What an environment says of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// `CUDA_VISIBLE_DEVICES`.
    #[serde(rename = "cuda_visible_devices")]
    pub cuda: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    #[serde(rename = "cuda_device_order")]
    pub cuda_order: Option<String>,
    /// `HIP_VISIBLE_DEVICES`, or `ROCR_VISIBLE_DEVICES` where that is not set.
    #[serde(rename = "hip_visible_devices")]
    pub hip: Option<String>,
}

impl Wishes {
    /// Of the environment that the launch is started with.
    pub fn of_environment() -> Wishes {
        Wishes::of(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Of an environment as execve(2) has it: entries with a zero behind each.
    pub fn of_block(block: &[u8]) -> Wishes {
        // Of two entries of one name getenv(3) finds the first.
        Wishes::of(|name| {
            let value = block
                .split(|byte| *byte == 0)
                .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            Some(String::from_utf8_lossy(&value[..value.len().min(LONGEST)]).into_owned())
        })
    }

    /// Whether it says anything of which devices are visible.
    pub fn has_any(&self) -> bool {
        self.cuda.is_some() || self.hip.is_some()
    }

    fn of(text: impl Fn(&str) -> Option<String>) -> Wishes {
        Wishes {
            cuda: text("CUDA_VISIBLE_DEVICES"),
            cuda_order: text("CUDA_DEVICE_ORDER"),
            hip: text("HIP_VISIBLE_DEVICES").or_else(|| text("ROCR_VISIBLE_DEVICES")),
        }
    }
}

/// Which devices are the launch's, and what there is to say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// One beside each device.
    pub devices: Vec<bool>,
    pub notes: Vec<String>,
}

/// Applies the wishes to the devices of a host. A device of which memory is counted in its instances (MIG) is not
/// counted itself.
pub fn resolve(devices: &[Device], wishes: &Wishes) -> Visible {
    let mut visible = Visible { devices: devices.iter().map(|device| !device.is_divided).collect(), notes: Vec::new() };
    for (vendor, variable, wish) in [
        (Vendor::Nvidia, "CUDA_VISIBLE_DEVICES", &wishes.cuda),
        (Vendor::Amd, "HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES", &wishes.hip),
    ] {
        let Some(wish) = wish else { continue };
        let of_vendor = |device: &Device| device.vendor == vendor;
        if !devices.iter().any(of_vendor) {
            continue;
        }
        let (named, stop) = named(devices, vendor, wish);
        for (index, device) in devices.iter().enumerate().filter(|(_, device)| of_vendor(device)) {
            // A device that is named stands for its instances.
            let own = named.contains(&index);
            let by_parent = device.parent.is_some_and(|parent| named.contains(&parent));
            visible.devices[index] &= own || by_parent;
        }
        match stop {
            Some(Stop::Unknown(unknown)) => visible.notes.push(format!(
                "{variable}: `{}` names no device here; it and what stands behind it is passed over, as the runtime does",
                short(&unknown)
            )),
            Some(Stop::Again(again)) => visible.notes.push(format!(
                "{variable}: `{}` names a device that was named before; what stands behind it is passed over, and a \
                 runtime may show none at all",
                short(&again)
            )),
            None => {}
        }
        if vendor == Vendor::Nvidia && is_by_number(wish) && wishes.cuda_order.as_deref() != Some("PCI_BUS_ID") {
            let mut names = devices.iter().filter(|device| of_vendor(device) && device.parent.is_none());
            let first = names.next().map(|device| &device.name);
            if names.any(|device| Some(&device.name) != first) {
                visible.notes.push(
                    "CUDA_VISIBLE_DEVICES counts devices with the fastest first where CUDA_DEVICE_ORDER is not \
                     PCI_BUS_ID; here they are of several kinds and taken in PCI order, which may be another"
                        .to_owned(),
                );
            }
        }
    }
    visible
}

fn is_by_number(wish: &str) -> bool {
    wish.split(',').any(|entry| entry.trim().parse::<u32>().is_ok())
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

/// An entry at which a wish ends.
enum Stop {
    /// It names no device.
    Unknown(String),
    /// It names one that was named before.
    Again(String),
}

/// The devices that a wish names, and where it ends before its end.
fn named(devices: &[Device], vendor: Vendor, wish: &str) -> (Vec<usize>, Option<Stop>) {
    let tops: Vec<usize> = devices
        .iter()
        .enumerate()
        .filter(|(_, device)| device.vendor == vendor && device.parent.is_none())
        .map(|(index, _)| index)
        .collect();
    let mut named = Vec::new();
    let mut before = BTreeSet::new();
    for entry in wish.split(',').map(str::trim) {
        let found = if entry.is_empty() || entry == "-1" || entry == "NoDevFiles" {
            // The way to say "none".
            return (named, None);
        } else if let Ok(number) = entry.parse::<usize>() {
            tops.get(number).copied()
        } else {
            by_uuid(devices, vendor, entry)
        };
        match found {
            Some(index) if before.insert(index) => named.push(index),
            Some(_) => return (named, Some(Stop::Again(entry.to_owned()))),
            None => return (named, Some(Stop::Unknown(entry.to_owned()))),
        }
    }
    (named, None)
}

/// The one device whose UUID is this, or begins so.
fn by_uuid(devices: &[Device], vendor: Vendor, entry: &str) -> Option<usize> {
    // The older names of instances: MIG-GPU-<UUID of the device>/<GPU instance>/<compute instance>.
    if let Some((parent, instance)) = entry.strip_prefix("MIG-").and_then(|rest| rest.split_once('/')) {
        let parent = by_uuid(devices, vendor, parent)?;
        return devices
            .iter()
            .position(|device| device.parent == Some(parent) && device.instance.as_deref() == Some(instance));
    }
    if !(entry.starts_with("GPU-") || entry.starts_with("MIG-")) || entry.len() < 5 {
        return None;
    }
    let entry = entry.to_ascii_lowercase();
    let begins = |device: &Device| {
        device.vendor == vendor
            && device.uuid.as_ref().is_some_and(|uuid| uuid.to_ascii_lowercase().starts_with(&entry))
    };
    let mut found = devices.iter().enumerate().filter(|(_, device)| begins(device));
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(uuid: &str, name: &str, parent: Option<usize>) -> Device {
        Device { uuid: Some(uuid.to_owned()), name: name.to_owned(), parent, ..Device::of(Vendor::Nvidia) }
    }

    fn host() -> Vec<Device> {
        vec![
            device("GPU-aaaa-1", "A", None),
            Device { is_divided: true, ..device("GPU-abbb-2", "A", None) },
            Device { instance: Some("3/0".into()), ..device("MIG-cccc-3", "A 1g", Some(1)) },
            Device { instance: Some("4/0".into()), ..device("MIG-dddd-4", "A 1g", Some(1)) },
        ]
    }

    fn seen(wish: Option<&str>) -> Vec<usize> {
        let wishes = Wishes { cuda: wish.map(str::to_owned), ..Wishes::default() };
        let visible = resolve(&host(), &wishes);
        visible.devices.iter().enumerate().filter(|(_, seen)| **seen).map(|(index, _)| index).collect()
    }

    #[test]
    fn numbers_uuids_beginnings_and_instances_are_resolved() {
        assert_eq!(seen(None), [0, 2, 3], "a divided device is counted in its instances");
        assert_eq!(seen(Some("0")), [0]);
        assert_eq!(seen(Some("1")), [2, 3]);
        assert_eq!(seen(Some("GPU-aaaa-1")), [0]);
        assert_eq!(seen(Some("gpu-aa")), [0; 0], "the prefix is in capitals");
        assert_eq!(seen(Some("GPU-aa")), [0]);
        assert_eq!(seen(Some("GPU-a")), [0; 0], "two begin so");
        assert_eq!(seen(Some("MIG-dddd-4")), [3]);
        assert_eq!(seen(Some("MIG-GPU-abbb-2/3/0")), [2]);
        assert_eq!(seen(Some(" 0 , MIG-cccc")), [0, 2]);
    }

    #[test]
    fn what_stands_behind_an_entry_that_names_nothing_is_not_seen() {
        for none in ["", "-1", "7", "x", "-1,0", "GPU-", "99999999999999999999"] {
            assert_eq!(seen(Some(none)), [0; 0], "{none}");
        }
        assert_eq!(seen(Some("0,7,1")), [0]);
        let wishes = Wishes { cuda: Some("0,7".into()), ..Wishes::default() };
        assert!(resolve(&host(), &wishes).notes[0].contains("`7` names no device"));
    }

    #[test]
    fn a_device_that_is_named_again_ends_the_list() {
        assert_eq!(seen(Some("0,0,1")), [0]);
        assert_eq!(seen(Some("0,GPU-aaaa-1,1")), [0], "by another name");
        assert_eq!(seen(Some("MIG-cccc-3,MIG-GPU-abbb-2/3/0,MIG-dddd-4")), [2]);
        let wishes = Wishes { cuda: Some("0,0".into()), ..Wishes::default() };
        assert!(resolve(&host(), &wishes).notes[0].contains("`0` names a device that was named before"));
    }

    #[test]
    fn odd_values_name_what_they_name_and_no_more() {
        assert_eq!(seen(Some("0 ,1")), [0, 2, 3]);
        for none in ["   ", ",0", "-2,0", "+", "0x1", "1.0", "GPU", "MIG-", "MIG-GPU-abbb-2/9/9", "NoDevFiles", "é"] {
            assert_eq!(seen(Some(none)), [0; 0], "{none}");
        }
        assert_eq!(seen(Some("0,,1")), [0]);
        let long = "0,".repeat(100_000);
        assert_eq!(seen(Some(&long)), [0]);
    }

    #[test]
    fn an_environment_block_is_read_as_getenv_does() {
        let wishes =
            Wishes::of_block(b"A=1\0XCUDA_VISIBLE_DEVICES=7\0CUDA_VISIBLE_DEVICES=1,0\0CUDA_VISIBLE_DEVICES=3\0");
        assert_eq!((wishes.cuda.as_deref(), wishes.hip.as_deref()), (Some("1,0"), None));
        assert!(wishes.has_any() && !Wishes::of_block(b"CUDA_VISIBLE_DEVICES\0\0x").has_any());
        assert_eq!(Wishes::of_block(b"CUDA_VISIBLE_DEVICES=").cuda.as_deref(), Some(""), "which shows none");
        assert_eq!(Wishes::of_block(b"ROCR_VISIBLE_DEVICES=\xff").hip.as_deref(), Some("\u{fffd}"));
        let long = [b"CUDA_VISIBLE_DEVICES=".as_slice(), &[b'1'; 9_000]].concat();
        assert_eq!(Wishes::of_block(&long).cuda.map(|value| value.len()), Some(LONGEST));
    }

    #[test]
    fn an_order_that_is_not_known_is_said() {
        let mut devices = host();
        devices[0].name = "B".into();
        let wishes = |order: Option<&str>| Wishes {
            cuda: Some("0".into()),
            cuda_order: order.map(str::to_owned),
            ..Wishes::default()
        };
        assert_eq!(resolve(&devices, &wishes(None)).notes.len(), 1);
        assert_eq!(resolve(&devices, &wishes(Some("PCI_BUS_ID"))).notes.len(), 0);
    }
}
