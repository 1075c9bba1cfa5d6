//! Who asks, and in what confinement: what decides which remedy is the right one.

use serde::Serialize;

use crate::host::Host;

/// Capabilities that matter here (capabilities(7)), by their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    IpcLock = 14,
    SysPtrace = 19,
    SysAdmin = 21,
    Perfmon = 38,
}

/// This process's rights and confinement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Who {
    /// The kernel's release.
    pub kernel: String,
    /// Effective user.
    pub uid: u32,
    /// Effective capabilities, as the kernel writes them.
    #[serde(serialize_with = "hexadecimal")]
    pub capabilities: u64,
    /// Whether in a user namespace that is not the host's: capabilities there do not open what belongs to the host.
    pub user_namespace: bool,
    /// Whether a seccomp filter stands between this process and the kernel.
    pub seccomp_filter: bool,
    /// Signs of a container.
    pub container: Vec<String>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
    /// Whether `/proc` shows this process at all.
    pub proc: bool,
}

impl Who {
    pub(super) fn here() -> Who {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}"));
        let status = read("status");
        let host = Host::of(&crate::host::Roots::default());
        let released = || nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
        Who {
            kernel: host.kernel_release.or_else(|| released().ok()).unwrap_or_default(),
            container: host.container,
            perf_event_paranoid: host.perf_event_paranoid,
            proc: status.is_ok(),
            ..Who::of(
                nix::unistd::geteuid().as_raw(),
                &status.unwrap_or_default(),
                &read("uid_map").unwrap_or_default(),
            )
        }
    }

    /// What `/proc/self/status` and `/proc/self/uid_map` say.
    fn of(uid: u32, status: &str, uid_map: &str) -> Who {
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        // The host's own namespace maps every user to itself (user_namespaces(7)).
        let whole = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
        Who {
            uid,
            capabilities: field("CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0),
            user_namespace: !uid_map.is_empty() && !whole,
            seccomp_filter: field("Seccomp") == Some("2"),
            ..Who::default()
        }
    }

    /// Whether this process has a capability in its own user namespace.
    pub(super) fn has(&self, capability: Capability) -> bool {
        self.capabilities >> capability as u32 & 1 == 1
    }

    /// Whether it may do what needs a capability in the host's user namespace.
    pub(super) fn has_on_host(&self, capability: Capability) -> bool {
        !self.user_namespace && self.has(capability)
    }

    /// A command that must be given as the host's root.
    pub(super) fn as_host_root(&self, command: &str) -> String {
        match (self.container.is_empty() && !self.user_namespace, self.uid) {
            (true, 0) => command.to_owned(),
            (true, _) => format!("{command}   (as root)"),
            (false, _) => format!("{command}   (as root of the host)"),
        }
    }
}

fn hexadecimal<S: serde::Serializer>(mask: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{mask:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read() {
        let status = "Name:\tx\nCapEff:\t000001fffeffffff\nSeccomp:\t0\nSeccomp_filters:\t0\n";
        let root = Who::of(0, status, "         0          0 4294967295\n");
        assert!(root.has(Capability::SysPtrace) && root.has_on_host(Capability::Perfmon));
        assert!(!root.user_namespace && !root.seccomp_filter);
        let mapped = Who::of(0, "CapEff:\t000001ffffffffff\nSeccomp:\t2\n", "         0       1000          1\n");
        assert!(mapped.has(Capability::Perfmon) && !mapped.has_on_host(Capability::Perfmon));
        assert!(mapped.user_namespace && mapped.seccomp_filter);
        assert!(!Who::of(65534, "", "").user_namespace, "without /proc nothing is claimed");
    }
}
