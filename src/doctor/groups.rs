//! The control group: what the one this process is in shows, and whether a launch could be given one of its own.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::who::Who;
use super::{Finding, Refusal};
use crate::host::{Cgroups, Mounts, Roots};

/// A group that was made, and what it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    /// Whether its memory is counted, with a high-water mark.
    pub peak: bool,
    /// Whether processes can be moved to it.
    pub movable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// 1 or 2; absent where no group with the memory controller is to be seen.
    pub version: Option<u8>,
    pub group: Option<PathBuf>,
    /// Whether the group's `memory.stat` can be read.
    pub readable: bool,
    /// What making a group within it brought.
    pub made: Option<Result<Made, Refusal>>,
}

impl Tried {
    pub fn here() -> Tried {
        let roots = Roots::default();
        let groups = Cgroups::read(&roots, &Mounts::read(Path::new("/proc")));
        let group = groups.memory_group.map(PathBuf::from);
        let readable = group.as_ref().is_some_and(|group| std::fs::read(group.join("memory.stat")).is_ok());
        let made = group.as_deref().zip(groups.memory_version).map(|(group, version)| make(group, version));
        Tried { version: groups.memory_version, group, readable, made }
    }

    pub fn findings(&self, who: &Who) -> Vec<Finding> {
        vec![self.shared(), self.own(who)]
    }

    fn shared(&self) -> Finding {
        let (item, figure) = ("cgroup", "memory of the control group");
        match (&self.group, self.version, self.readable) {
            (Some(_), Some(version), true) => Finding::yes(item, figure, format!("cgroup v{version}: memory.stat"))
                .because("of everything in the group this process is in, not of the launch alone"),
            (Some(group), ..) => {
                Finding::no(item, figure).because(format!("{}: memory.stat cannot be read", group.display()))
            }
            (None, ..) => Finding::no(item, figure)
                .because("no group with the memory controller is to be seen")
                .remedied_by(["mount the cgroup file system (containers: --cgroupns=private)"]),
        }
    }

    fn own(&self, who: &Who) -> Finding {
        let (item, figure) = ("cgroup_own", "a group of its own (--cgroup)");
        let delegated = match (self.version, who.uid) {
            (Some(2), _) | (None, _) => {
                vec!["systemd-run --user --scope -p Delegate=yes -- stagemark run --cgroup auto …".to_owned()]
            }
            (Some(_), 0) => Vec::new(),
            (Some(_), _) => vec![who.as_host_root("a version 1 memory group that you own")],
        };
        let source = |version: Option<u8>| match version {
            Some(2) => "cgroup v2: memory.peak",
            _ => "cgroup v1: max_usage_in_bytes",
        };
        match &self.made {
            Some(Ok(Made { peak: true, movable: true })) => Finding::yes(item, figure, source(self.version)),
            Some(Ok(Made { peak: false, movable: true })) => Finding::no(item, figure)
                .because("a group can be made, but no memory is counted in it: the controller is not handed down")
                .remedied_by(delegated),
            Some(Ok(Made { movable: false, .. })) => {
                Finding::no(item, figure).because("a group can be made, but nothing moved to it").remedied_by(delegated)
            }
            Some(Err(refusal)) => Finding::no(item, figure)
                .because(format!("no group can be made in {}: {}", shown(&self.group), refusal.text))
                .remedied_by(delegated),
            None => Finding::no(item, figure)
                .because("no group with the memory controller is to be seen")
                .remedied_by(delegated),
        }
    }
}

fn shown(group: &Option<PathBuf>) -> String {
    group.as_ref().map_or_else(String::new, |group| group.display().to_string())
}

/// Makes a group, looks at what it has, and removes it.
fn make(group: &Path, version: u8) -> Result<Made, Refusal> {
    let made = group.join(format!("stagemark-doctor-{}", std::process::id()));
    std::fs::create_dir(&made)?;
    let peak = if version == 2 { "memory.peak" } else { "memory.max_usage_in_bytes" };
    let found = Made {
        peak: made.join(peak).exists(),
        // Of version 2, moving needs the right to the common ancestor's file too (cgroups(7)).
        movable: [&made, group].iter().all(|group| access(&group.join("cgroup.procs"), AccessFlags::W_OK).is_ok()),
    };
    let _ = std::fs::remove_dir(&made);
    Ok(found)
}
