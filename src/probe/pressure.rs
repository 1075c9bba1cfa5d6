//! How long tasks waited for CPU, I/O or memory: pressure stall information of the host and of the launch's control
//! group (Documentation/accounting/psi.rst).
//!
//! The kernel's totals, in microseconds, less what they were before the exec. All six files take some 5 µs, so they
//! are read at every tick. A group of version 1 has no such files; the root group of version 2 has the host's.

use std::path::{Path, PathBuf};

use super::Reading;
use crate::host::cgroup::memberships;
use crate::host::{Mounts, Roots};
use crate::metric::Metric;
use crate::proc::{Buffer, ProcFile, Unread};

/// One file, and the lines of it that are metrics.
struct Source {
    file: Result<ProcFile, String>,
    shown: String,
    metrics: &'static [(&'static str, Metric)],
    /// The totals before the exec.
    base: Vec<Option<u64>>,
}

const HOST: [(&str, &[(&str, Metric)]); 3] = [
    ("cpu", &[("some", Metric::PressureCpuSomeNs)]),
    ("io", &[("some", Metric::PressureIoSomeNs), ("full", Metric::PressureIoFullNs)]),
    ("memory", &[("some", Metric::PressureMemorySomeNs), ("full", Metric::PressureMemoryFullNs)]),
];

const GROUP: [(&str, &[(&str, Metric)]); 3] = [
    ("cpu", &[("some", Metric::CgroupPressureCpuSomeNs)]),
    ("io", &[("some", Metric::CgroupPressureIoSomeNs)]),
    ("memory", &[("some", Metric::CgroupPressureMemorySomeNs)]),
];

/// The pressure files of a launch.
pub struct PressureProbe {
    sources: Vec<Source>,
    buffer: Buffer,
}

impl PressureProbe {
    /// Over the host, and a control group's directory or the reason why there is none.
    pub fn new(group: Result<PathBuf, String>) -> PressureProbe {
        let host = HOST.map(|(name, metrics)| Source::of(Ok(Path::new("/proc/pressure").join(name)), metrics));
        let group = GROUP.map(|(name, metrics)| {
            Source::of(
                group.as_ref().map(|group| group.join(format!("{name}.pressure"))).map_err(Clone::clone),
                metrics,
            )
        });
        PressureProbe { sources: host.into_iter().chain(group).collect(), buffer: Buffer::new() }
    }

    /// Takes the totals before the exec.
    pub fn begin(&mut self) {
        for source in &mut self.sources {
            let totals = source.read(&mut self.buffer);
            source.base = totals.unwrap_or_else(|_| vec![None; source.metrics.len()]);
        }
    }

    /// The totals since then.
    pub fn look(&mut self) -> Reading {
        let mut reading = Reading::default();
        for source in &mut self.sources {
            let totals = source.read(&mut self.buffer);
            for (index, &(_, metric)) in source.metrics.iter().enumerate() {
                let since = match &totals {
                    Ok(totals) => match (totals[index], source.base.get(index).copied().flatten()) {
                        (Some(now), Some(before)) => Ok(now.saturating_sub(before).saturating_mul(1_000)),
                        (None, _) => Err(format!("{} has no such line", source.shown)),
                        (_, None) => Err(format!("{} was not read before the start", source.shown)),
                    },
                    Err(why) => Err(why.clone()),
                };
                match since {
                    Ok(ns) => reading.values.set(metric, ns),
                    Err(why) => reading.absences.push((metric, why)),
                }
            }
        }
        reading
    }
}

impl Source {
    fn of(path: Result<PathBuf, String>, metrics: &'static [(&'static str, Metric)]) -> Source {
        let shown = path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        Source { file: path.map(ProcFile::at), shown, metrics, base: Vec::new() }
    }

    fn read(&mut self, buffer: &mut Buffer) -> Result<Vec<Option<u64>>, String> {
        let file = self.file.as_mut().map_err(|why| why.clone())?;
        let text = file.read(buffer).map_err(|error| match error {
            Unread::Gone => format!("there is no {}: this kernel keeps no pressure, or not of this group", self.shown),
            Unread::Other(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                format!("{}: pressure is switched off on this host (psi=0)", self.shown)
            }
            other => format!("{}: {other}", self.shown),
        })?;
        Ok(self.metrics.iter().map(|(line, _)| total(text, line)).collect())
    }
}

/// The total of the line `some` or `full`, in microseconds.
fn total(text: &[u8], line: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().find(|text| text.split_ascii_whitespace().next() == Some(line))?;
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// The directory of this process's own control group of version 2, which the launch inherits; or why its pressure is
/// not to be had.
pub fn group(roots: &Roots, mounts: &Mounts) -> Result<PathBuf, String> {
    let members = memberships(roots);
    let member = members.iter().find(|member| member.hierarchy == 0 && member.controllers.is_empty());
    let member = member.ok_or("the launch's control group is of version 1, which has no pressure")?;
    let reachable = mounts.iter().rev().filter(|mount| mount.fs_type == "cgroup2").find_map(|mount| {
        let below = Path::new(&member.path).strip_prefix(&mount.root).ok()?;
        let directory = roots.root.join(mount.mount_point.strip_prefix("/").ok()?).join(below);
        directory.is_dir().then_some(directory)
    });
    let directory = reachable.ok_or("no mount shows the launch's control group of version 2")?;
    // The root of all groups alone has no such file.
    if !directory.join("cgroup.type").exists() {
        return Err("the launch is in the root control group of version 2, whose pressure is the host's".to_owned());
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_file() {
        let text = include_bytes!("../../fixtures/host/v1-host/proc/pressure/io");
        assert!(total(text, "some").unwrap() >= total(text, "full").unwrap());
        assert_eq!(total(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=29645962\n", "some"), Some(29_645_962));
        assert_eq!(total(b"some avg10=0.00 total=1\n", "full"), None, "the host's cpu file of old kernels");
        assert_eq!(total(b"", "some"), None);
    }

    #[test]
    fn totals_are_since_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, total: u64| {
            std::fs::write(folder.path().join(format!("{name}.pressure")), format!("some avg10=0.00 total={total}\n"))
        };
        write("cpu", 100).unwrap();
        write("io", 7).unwrap();
        let mut probe = PressureProbe::new(Ok(folder.path().to_owned()));
        probe.begin();
        write("cpu", 103).unwrap();
        write("memory", 5).unwrap();
        let reading = probe.look();
        assert_eq!(reading.values.get(Metric::CgroupPressureCpuSomeNs), Some(3_000));
        assert_eq!(reading.values.get(Metric::CgroupPressureIoSomeNs), Some(0));
        // What nobody had read before the start could be anybody's.
        assert_eq!(reading.values.get(Metric::CgroupPressureMemorySomeNs), None);
        assert!(reading.absences.iter().any(|(metric, why)| {
            *metric == Metric::CgroupPressureMemorySomeNs && why.contains("not read before the start")
        }));
        for (_, metrics) in HOST {
            for (_, metric) in metrics {
                assert_ne!(
                    reading.values.get(*metric).is_some(),
                    reading.absences.iter().any(|(absent, _)| absent == metric)
                );
            }
        }
    }

    #[test]
    fn only_a_group_of_version_2_has_pressure() {
        let recorded = |name: &str| {
            let roots = Roots::recorded(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/host").join(name));
            let mounts = Mounts::read(&roots.proc);
            group(&roots, &mounts)
        };
        assert!(recorded("v1-docker").unwrap_err().contains("version"));
        assert!(recorded("v1-host").is_err());
        // A recorded tree that keeps the group's directory, but not the file that tells it from the root.
        assert!(recorded("v2-systemd").unwrap_err().contains("root"));
    }
}
