//! What else the machine is doing at a moment: pressure (Documentation/accounting/psi.rst), load average, memory that
//! could be had.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Roots, look};

/// The load on the machine now. It fills the start condition of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionNow {
    /// `cpu`, `memory`, `io` → the lines of `/proc/pressure`, as they stand. Empty where the kernel has it switched
    /// off.
    pub pressure: BTreeMap<String, String>,
    /// `/proc/loadavg`.
    pub load: Option<String>,
    /// MemAvailable: the kernel's estimate of what a new program could take without swapping (proc_meminfo(5)).
    pub memory_available_bytes: Option<u64>,
}

/// Looks at the load now.
pub fn condition_now(roots: &Roots) -> ConditionNow {
    let pressure = ["cpu", "memory", "io"]
        .into_iter()
        .filter_map(|resource| Some((resource.to_owned(), roots.text(&format!("/proc/pressure/{resource}"))?)))
        .collect();
    let meminfo = look::text(&roots.find(Path::new("/proc/meminfo")), look::SMALL_CAP).unwrap_or_default();
    ConditionNow {
        pressure,
        load: roots.text("/proc/loadavg"),
        memory_available_bytes: look::kilobytes(&meminfo, "MemAvailable"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::recorded;

    #[test]
    fn a_recorded_moment() {
        let now = condition_now(&recorded("v1-host"));
        assert_eq!(now.pressure.keys().collect::<Vec<_>>(), ["cpu", "io", "memory"]);
        assert!(now.pressure["io"].starts_with("some avg10=1.25 "));
        assert!(now.pressure["io"].contains("\nfull avg10=1.02 "));
        assert_eq!(now.load.as_deref(), Some("0.23 0.41 0.44 1/96 12893"));
        assert_eq!(now.memory_available_bytes, Some(24_185_960 * 1024));
    }

    #[test]
    fn a_kernel_without_pressure() {
        let now = condition_now(&recorded("v1-docker"));
        assert!(now.pressure.is_empty());
        assert_eq!(now.memory_available_bytes, None, "an old kernel has no such line");
    }
}
