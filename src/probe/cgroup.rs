//! What the launch's own control group is charged for, where it has one (`--cgroup auto`).
//!
//! Memory is charged to the group whose process first touched it: page cache that was there before, or that others of the
//! host touched first, is not in these figures, and what the launch read and nobody maps is.

use std::ffi::OsStr;
use std::fs::OpenOptions;

use super::Reading;
use crate::clock::{Beat, Mono};
use crate::host::group_files::{GroupFile, GroupFiles, field};
use crate::launch::tree::{Process, Tree};
use crate::metric::Metric;

/// The group's figures, or why there are none.
pub struct CgroupProbe {
    group: Result<Open, String>,
    beat: Beat,
    followed: Option<Mono>,
}

/// The membership of so many processes is looked at ten times a second and at marks (3 µs each), that of more of them…
const FEW: usize = 16;
/// … once a second.
const FOLLOW_NS: u64 = 1_000_000_000;

/// Whether a `/proc/PID/cgroup` of a process that has not ended names another memory group than that of this name and
/// those below it.
fn is_elsewhere(membership: &str, version: u8, name: &OsStr) -> bool {
    let of_memory = |controllers: &str| match version {
        2 => controllers.is_empty(),
        _ => controllers.split(',').any(|controller| controller == "memory"),
    };
    membership.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return false };
        of_memory(controllers) && !path.split('/').any(|part| OsStr::new(part) == name)
    })
}

struct Open {
    files: GroupFiles,
    current: GroupFile,
    stat: GroupFile,
    peak: Result<GroupFile, String>,
    /// A mark of this descriptor's own, which begins anew where it is written to.
    span: Result<GroupFile, String>,
}

const METRICS: [Metric; 5] = [
    Metric::CgroupBytes,
    Metric::CgroupAnonBytes,
    Metric::CgroupFileBytes,
    Metric::CgroupPeakBytes,
    Metric::CgroupSpanPeakBytes,
];

impl CgroupProbe {
    /// Of a launch that has no group of its own.
    pub fn none(reason: impl Into<String>) -> CgroupProbe {
        CgroupProbe { group: Err(reason.into()), beat: Beat::MEMBERSHIP, followed: None }
    }

    /// Of a group. `resets`: whether [`CgroupProbe::reset`] will be called.
    pub fn of(files: &GroupFiles, resets: bool) -> CgroupProbe {
        let names = files.names();
        let open = |file: &str| files.open(file).map_err(|error| format!("{}/{file}: {error}", files.path()));
        let span = match (resets, files.version) {
            (false, _) => Err("high-water marks are not reset at stages (--reset-peaks)".to_owned()),
            (true, 2) => {
                let file = OpenOptions::new().read(true).write(true).open(files.directory.join(names.peak));
                file.map(GroupFile::of).map_err(|error| cannot_reset(&error))
            }
            (true, _) => {
                Err("the mark of a version 1 control group is not reset: it is not the profiler's alone".to_owned())
            }
        };
        let group = open(names.current).and_then(|current| {
            let stat = open("memory.stat")?;
            Ok(Open { files: files.clone(), current, stat, peak: open(names.peak), span })
        });
        CgroupProbe { group, beat: Beat::MEMBERSHIP, followed: None }
    }

    /// The group, for whoever reads others of its files.
    pub fn files(&self) -> Option<&GroupFiles> {
        self.group.as_ref().ok().map(|open| &open.files)
    }

    /// Looks whether every process of the launch is in the group still: one that went elsewhere is charged there, and the
    /// group's figures are no longer the launch's.
    pub fn follow(&mut self, tree: &Tree, now: Mono, at_mark: bool) {
        let Ok(open) = &self.group else { return };
        if !at_mark && !self.beat.is_due(now) {
            return;
        }
        self.beat.done(now);
        let Some(name) = open.files.directory.file_name() else { return };
        let live: Vec<&Process> = tree.processes().filter(|process| !process.has_ended).collect();
        if live.len() > FEW && self.followed.is_some_and(|at| now.since(at) < FOLLOW_NS) {
            return;
        }
        self.followed = Some(now);
        let version = open.files.version;
        let elsewhere = live.iter().find(|process| {
            let text = std::fs::read_to_string(format!("/proc/{}/cgroup", process.key.pid)).unwrap_or_default();
            is_elsewhere(&text, version, name)
        });
        if let Some(process) = elsewhere {
            self.group = Err(format!("{} left the launch's control group, and is charged elsewhere", process.label()));
        }
    }

    /// The figures now.
    pub fn read(&mut self) -> Reading {
        let mut reading = Reading::default();
        let open = match &mut self.group {
            Ok(open) => open,
            Err(reason) => {
                reading.absences.extend(METRICS.map(|metric| (metric, reason.clone())));
                return reading;
            }
        };
        let names = open.files.names();
        let stat = open.stat.read().map_err(|error| format!("memory.stat: {error}"));
        let of_stat = |key: &str| match &stat {
            Ok(text) => field(text, key).ok_or_else(|| format!("memory.stat has no {key}")),
            Err(error) => Err(error.clone()),
        };
        let (anon, file) = (of_stat(names.anon), of_stat(names.file));
        let number = |file: &mut Result<GroupFile, String>| match file {
            Ok(file) => file.number(),
            Err(reason) => Err(reason.clone()),
        };
        // The peaks last, so that none is less than what was read before.
        let current = open.current.number();
        let figures = [current, anon, file, number(&mut open.peak), number(&mut open.span)];
        for (metric, figure) in METRICS.into_iter().zip(figures) {
            match figure {
                Ok(value) => reading.values.set(metric, value),
                Err(reason) => reading.absences.push((metric, reason)),
            }
        }
        reading
    }

    /// Begins the mark anew that `cgroup_span_peak_bytes` is; `cgroup_peak_bytes` and what others read stay as they are.
    pub fn reset(&mut self) {
        let Ok(open) = &mut self.group else { return };
        if let Ok(file) = &open.span
            && let Err(error) = file.write(b"reset\n")
        {
            open.span = Err(cannot_reset(&error));
        }
    }
}

fn cannot_reset(error: &std::io::Error) -> String {
    format!("memory.peak cannot be reset: {error}; it can since Linux 6.12")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Mounts, Roots, cgroup};
    use std::path::Path;

    fn recorded(name: &str) -> CgroupProbe {
        let roots = Roots::recorded(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/host").join(name));
        let groups = cgroup::memory_groups(&roots, &Mounts::read(&roots.proc));
        CgroupProbe::of(&groups[0], false)
    }

    fn values(reading: &Reading) -> [Option<u64>; 4] {
        [METRICS[0], METRICS[1], METRICS[2], METRICS[3]].map(|metric| reading.values.get(metric))
    }

    #[test]
    fn both_versions_have_the_same_figures_by_other_names() {
        let version_2 = recorded("v2-systemd").read();
        assert_eq!(values(&version_2), [9_123_456_000, 5_000_003_584, 3_900_002_304, 9_663_676_416].map(Some));
        let version_1 = recorded("v1-docker").read();
        assert_eq!(values(&version_1), [2_147_483_648, 1_048_576_000, 1_073_741_824, 4_294_967_296].map(Some));
        for reading in [version_1, version_2] {
            let [(metric, reason)] = reading.absences.as_slice() else { panic!("{:?}", reading.absences) };
            assert!(*metric == Metric::CgroupSpanPeakBytes && reason.contains("--reset-peaks"), "{reason}");
        }
    }

    #[test]
    fn who_went_elsewhere_is_told() {
        let name = OsStr::new("stagemark-7");
        assert!(!is_elsewhere("4:memory:/a/stagemark-7\n0::/\n", 1, name));
        assert!(!is_elsewhere("4:cpu,memory:/a/stagemark-7/below\n0::/x\n", 1, name));
        assert!(is_elsewhere("4:memory:/\n0::/stagemark-7\n", 1, name));
        assert!(!is_elsewhere("4:memory:/\n0::/stagemark-7\n", 2, name));
        assert!(is_elsewhere("0::/stagemark-70\n", 2, name));
        assert!(!is_elsewhere("", 2, name), "one that cannot be read is not told of");
    }

    #[test]
    fn a_kernel_without_the_mark_says_so() {
        let reading = recorded("v2-container").read();
        assert_eq!(reading.values.get(Metric::CgroupBytes), Some(1_073_741_824));
        assert_eq!(reading.values.get(Metric::CgroupPeakBytes), None);
        assert!(reading.absences.iter().any(|(_, reason)| reason.contains("/sys/fs/cgroup/memory.peak")));
    }

    #[test]
    fn without_a_group_every_figure_has_the_reason() {
        let reading = CgroupProbe::none("why").read();
        assert_eq!(reading.absences.len(), METRICS.len());
        assert!(CgroupProbe::none("why").files().is_none());
    }
}
