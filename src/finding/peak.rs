//! Loading that took more than what stays, of the host and of the devices.
//!
//! Evidence on the host: the processes' resident sets, and beside them the host's MemAvailable or the control group's
//! own mark, neither of which counts shared pages twice. On devices: the launch's share, and all that was in use on
//! them (or the driver's accounting, where the share is itself derived from what was in use).

use super::{Finding, Ground, Quantity, Rule, derived, share};
use crate::clock::At;
use crate::metric::Metric::{self, *};
use crate::probe::device::Basis;
use crate::units;

pub(super) const HOST: Rule = Rule {
    id: "host-peak",
    about: "host memory that loading took and gave back: by resident sets, and by MemAvailable or the control group",
    find: |ground| host(ground).into_iter().collect(),
};

pub(super) const DEVICE: Rule = Rule {
    id: "device-peak",
    about: "device memory that loading took and gave back: by the launch's share, and by all that was in use or \
            accounted",
    find: |ground| device(ground).into_iter().collect(),
};

/// Above what stays by so much, in percent of it …
const MUCH: u64 = 15;
/// … and by so many bytes.
const LEAST: u64 = 64 << 20;

/// The rise of a peak above what stays, where it is worth a word.
fn above(peak: u64, steady: u64) -> Option<u64> {
    peak.checked_sub(steady).filter(|above| *above >= LEAST && *above >= share(steady, MUCH))
}

fn host(ground: &Ground) -> Option<Finding> {
    let last = ground.last()?;
    let peak = last.peak(RssBytes)?;
    let most = peak.low?;
    let steady = ground.table.steady(ground.run, RssBytes)?;
    let more = above(most, steady)?;
    // The second opinion has to see at least half of it.
    let agrees = |other: u64| other >= more / 2;
    let (opinion, name, seen) =
        [by_available(ground), by_group(ground)].into_iter().flatten().find(|(_, _, seen)| agrees(*seen))?;
    Some(Finding {
        rule: HOST.id,
        title: format!(
            "Loading took {} more host memory than stays: a resident set of {} against {} after it",
            units::bytes(more),
            units::bytes(most),
            units::bytes(steady)
        ),
        sentences: vec![format!(
            "The resident set reached {}{} up to {}, and was {} when last seen; {opinion} {} likewise.",
            units::bytes(most),
            if peak.basis == crate::account::Basis::Kernel { " by the kernel's own mark" } else { " or more" },
            last.outcome.stage,
            units::bytes(steady),
            units::bytes(seen)
        )],
        figures: vec![
            derived("peak_rss_bytes_low", Quantity::Bytes(most), "largest sample, or the kernel's mark"),
            derived("steady_rss_bytes", Quantity::Bytes(steady), "the last sample after the stopping event"),
            derived(name, Quantity::Bytes(seen), "a source that counts no page twice"),
        ],
        settles: "Plan the host for the peak, or lower it: load shard by shard, in fewer processes at a time, \
                  without a copy in between. --cgroup auto gives the peak of the whole launch by the kernel's own \
                  mark."
            .to_owned(),
        place: ground.whole(),
    })
}

/// How much lower MemAvailable was at its least than afterwards.
fn by_available(ground: &Ground) -> Option<(&'static str, &'static str, u64)> {
    let steady = ground.table.steady(ground.run, HostAvailableBytes)?;
    let samples = ground.samples(At(-1), ground.last()?.sampled?);
    let least = samples.iter().filter_map(|sample| sample.values.get(HostAvailableBytes)).min()?;
    Some(("MemAvailable of the host dipped by", "host_available_dip_bytes", steady.checked_sub(least)?))
}

/// How much more the launch's own control group was charged at most than afterwards.
fn by_group(ground: &Ground) -> Option<(&'static str, &'static str, u64)> {
    let steady = ground.table.steady(ground.run, CgroupBytes)?;
    let most = ground.last()?.values.get(CgroupPeakBytes)?;
    Some(("the launch's control group was charged more by", "cgroup_above_steady_bytes", most.checked_sub(steady)?))
}

fn device(ground: &Ground) -> Option<Finding> {
    let last = ground.last()?;
    let low = |metric: Metric| last.peak(metric).and_then(|peak| peak.low);
    let steady = |metric: Metric| ground.table.steady(ground.run, metric);
    let (most, stays) = (low(DeviceLaunchBytes)?, steady(DeviceLaunchBytes)?);
    let more = above(most, stays)?;
    // A share that is the rise of what is in use is no second opinion of it.
    let (name, seen) = match ground.run.meta.device_probe.launch_basis? {
        Basis::Processes => {
            ("device_used_above_steady_bytes", low(DeviceUsedBytes)?.checked_sub(steady(DeviceUsedBytes)?)?)
        }
        Basis::Rise => {
            ("device_accounted_above_steady_bytes", last.values.get(DevicePeakLowBytes)?.checked_sub(stays)?)
        }
    };
    if seen < more / 2 {
        return None;
    }
    Some(Finding {
        rule: DEVICE.id,
        title: format!(
            "Loading took {} more device memory than stays: {} against {} after it",
            units::bytes(more),
            units::bytes(most),
            units::bytes(stays)
        ),
        sentences: vec![format!(
            "The launch's share reached {} or more up to {}, and was {} when last seen; a second figure of the \
             driver was higher by {} likewise.",
            units::bytes(most),
            last.outcome.stage,
            units::bytes(stays),
            units::bytes(seen)
        )],
        figures: vec![
            derived(
                "peak_device_launch_bytes_low",
                Quantity::Bytes(most),
                "the largest sample, or the driver's accounting",
            ),
            derived("steady_device_launch_bytes", Quantity::Bytes(stays), "the last sample after the stopping event"),
            derived(name, Quantity::Bytes(seen), "all that is in use on the devices, or the driver's accounting"),
        ],
        settles:
            "Plan the device for the peak: it must have room before anything is given back. Weights that are converted \
                  on the device, or staged through a second buffer there, are the usual cause."
                .to_owned(),
        place: ground.whole(),
    })
}
