//! Where it ran: the machine and its kernel, what the artifacts lie on, the devices, and the limits.

use super::{Facts, Party, Subject};
use crate::event::word_of;
use crate::host::Host;
use crate::host::cgroup::MemoryLimit;
use crate::host::limits::{Ceiling, Limit, Limits};

pub(super) fn compare(facts: &mut Facts) {
    host(facts);
    storage(facts);
    devices(facts);
    limits(facts);
}

fn text<T: ToString>(value: &Option<T>) -> Option<String> {
    value.as_ref().map(T::to_string)
}

/// A fact of the host: its name, whether every Linux has it, and its value.
type Fact = (&'static str, bool, fn(&Host) -> Option<String>);

const HOST: &[Fact] = &[
    ("kernel_release", true, |host| host.kernel_release.clone()),
    ("kernel_version", false, |host| host.kernel_version.clone()),
    ("machine", false, |host| host.machine.clone()),
    ("cpu_model", false, |host| host.cpu_model.clone()),
    ("logical_cpus", false, |host| text(&host.logical_cpus)),
    ("affinity", false, |host| host.affinity.clone()),
    ("numa_nodes", false, |host| text(&host.numa_nodes)),
    ("numa_balancing", false, |host| text(&host.numa_balancing)),
    ("memory_total_bytes", true, |host| text(&host.memory_total_bytes)),
    ("swap_total_bytes", false, |host| text(&host.swap_total_bytes)),
    ("huge_pages_bytes", false, |host| text(&host.huge_pages_bytes)),
    ("page_size_bytes", false, |host| text(&host.page_size_bytes)),
    ("transparent_huge_pages.enabled", false, |host| host.transparent_huge_pages.enabled.clone()),
    ("transparent_huge_pages.defrag", false, |host| host.transparent_huge_pages.defrag.clone()),
    ("transparent_huge_pages.shmem_enabled", false, |host| host.transparent_huge_pages.shmem_enabled.clone()),
    ("overcommit_memory", false, |host| text(&host.overcommit_memory)),
    ("swappiness", false, |host| text(&host.swappiness)),
    ("lru_gen", false, |host| host.lru_gen.clone()),
    ("damon", false, |host| host.damon.as_ref().map(|running| words(running))),
    ("virtualisation", false, |host| host.kernel_release.as_ref().map(|_| words(&host.virtualisation))),
    ("container", false, |host| host.kernel_release.as_ref().map(|_| words(&container(host)))),
];

fn words(list: &[String]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

/// The signs of a container, without the container's own name.
fn container(host: &Host) -> Vec<String> {
    let kind = |sign: &String| match sign.strip_prefix("control group /") {
        Some(path) => format!("control group /{}", path.split('/').next().unwrap_or_default()),
        None => sign.clone(),
    };
    host.container.iter().map(kind).collect()
}

fn host(facts: &mut Facts) {
    for (name, needed, value) in HOST {
        let value = |party: &Party| value(&party.run.meta.host);
        match needed {
            true => facts.needed(Subject::Host, name, value),
            false => facts.maybe(Subject::Host, name, value),
        }
    }
}

/// What the artifacts lie on, each kind once.
fn storage(facts: &mut Facts) {
    let once = |mut list: Vec<String>| {
        list.sort_unstable();
        list.dedup();
        (!list.is_empty()).then(|| list.join(", "))
    };
    facts.maybe(Subject::Storage, "filesystem", |party| {
        let artifacts = &party.run.meta.artifacts;
        once(artifacts.iter().map(|artifact| artifact.filesystem.clone()).collect::<Option<Vec<_>>>()?)
    });
    facts.maybe(Subject::Storage, "behind", |party| {
        let name =
            |boundary: &crate::host::storage::Boundary| format!("{} ({})", boundary.name, word_of(&boundary.kind));
        once(party.run.meta.storage.iter().map(name).collect())
    });
}

/// The devices that the launch may use, each by its name, memory and driver: two of a kind are alike.
fn devices(facts: &mut Facts) {
    let counted = |party: &Party, of: fn(&crate::probe::device::Device) -> String| {
        let devices = party.run.meta.devices.iter().filter(|device| device.is_counted);
        let mut found: Vec<String> = devices.map(of).collect();
        found.sort_unstable();
        found
    };
    let some = facts.parties.iter().any(|party| !counted(party, |device| device.name.clone()).is_empty());
    if !some {
        return;
    }
    facts.needed(Subject::Device, "devices", |party| {
        Some(words(&counted(party, |device| match device.total_bytes {
            Some(bytes) => format!("{} of {bytes} bytes", device.name),
            None => device.name.clone(),
        })))
    });
    facts.maybe(Subject::Device, "driver", |party| {
        let mut drivers = counted(party, |device| device.driver.clone().unwrap_or_default());
        drivers.dedup();
        drivers.retain(|driver| !driver.is_empty());
        (!drivers.is_empty()).then(|| drivers.join(", "))
    });
}

/// A resource: its name, and its limits.
type Resource = (&'static str, fn(&Limits) -> Limit);

const LIMITS: &[Resource] = &[
    ("nofile", |limits| limits.nofile),
    ("memlock", |limits| limits.memlock),
    ("as", |limits| limits.address_space),
    ("data", |limits| limits.data),
    ("stack", |limits| limits.stack),
    ("nproc", |limits| limits.nproc),
    ("core", |limits| limits.core),
];

fn limits(facts: &mut Facts) {
    for (name, limit) in LIMITS {
        facts.maybe(Subject::Limit, name, |party| {
            let Limit { soft, hard } = limit(&party.run.meta.host.limits);
            let shown = |ceiling: Option<Ceiling>| ceiling.map_or_else(|| "unknown".to_owned(), |at| at.to_string());
            (soft.is_some() || hard.is_some()).then(|| format!("{} / {}", shown(soft), shown(hard)))
        });
    }
    // No limit is a limit's absence only where the group could be seen.
    let memory = |party: &Party, limit: &Option<MemoryLimit>| {
        let seen = party.run.meta.host.cgroups.memory_group.is_some();
        match limit {
            Some(limit) => Some(format!("{} bytes", limit.bytes)),
            None => seen.then(|| "none".to_owned()),
        }
    };
    facts.maybe(Subject::Limit, "memory", |party| memory(party, &party.run.meta.host.cgroups.memory_limit));
    facts.maybe(Subject::Limit, "memory_high", |party| memory(party, &party.run.meta.host.cgroups.memory_high));
    facts.maybe(Subject::Limit, "swap", |party| memory(party, &party.run.meta.host.cgroups.swap_limit));
    facts.maybe(Subject::Limit, "cpu_quota", |party| {
        let cgroups = &party.run.meta.host.cgroups;
        match &cgroups.cpu_quota {
            Some(quota) => Some(format!("{} µs in {} µs", quota.quota_us, quota.period_us)),
            None => (!cgroups.membership.is_empty()).then(|| "none".to_owned()),
        }
    });
    facts.maybe(Subject::Limit, "cpus", |party| party.run.meta.host.cgroups.cpus.clone());
    facts.maybe(Subject::Limit, "memory_nodes", |party| party.run.meta.host.cgroups.memory_nodes.clone());
    let some_own = facts.parties.iter().any(|party| party.run.meta.cgroup.is_some());
    if some_own {
        facts.needed(Subject::Limit, "own_group", |party| {
            Some(if party.run.meta.cgroup.is_some() { "yes" } else { "no" }.to_owned())
        });
    }
}
