//! A control group of the launch's own (`--cgroup auto`): so that the kernel itself says what all its processes, the
//! shortest-lived included, were charged for (cgroups(7)).
//!
//! It is made beside or below this process's own group, where the memory controller can be had without anybody else
//! being moved or given other limits, and is removed when it is empty. No limit is ever set, and none is escaped: beside
//! a group that has limits of its own none is made. Where it cannot be had there is a reason, and the launch goes on
//! without.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host::group_files::GroupFiles;
use crate::host::{self, Mounts, Roots};

/// How long processes on their way out keep a group from being removed.
const LEAVING: Duration = Duration::from_millis(200);
/// A name may be taken by a group that an earlier run left.
const NAMES: u32 = 100;

/// The group, with the way into it.
#[derive(Debug)]
pub struct OwnGroup {
    files: GroupFiles,
    procs: Arc<File>,
}

impl OwnGroup {
    /// Makes one; the error says why there is none and what would change it.
    pub fn create() -> Result<OwnGroup, String> {
        let roots = Roots::default();
        let parent = place(&host::cgroup::memory_groups(&roots, &Mounts::read(&roots.proc)))?;
        let files = make(&parent)?;
        let open = OpenOptions::new().write(true).open(files.directory.join("cgroup.procs"));
        match open {
            _ if files.text(files.names().current).is_none() => {
                let _ = std::fs::remove_dir(&files.directory);
                Err(format!("a group made in {} has no memory controller", parent.path()))
            }
            Ok(procs) => Ok(OwnGroup { files, procs: Arc::new(procs) }),
            Err(error) => {
                let _ = std::fs::remove_dir(&files.directory);
                Err(format!("no process may be put into a group in {}: {error}", parent.path()))
            }
        }
    }

    /// What is written to it (`0` for the writer itself) enters the group.
    pub fn entrance(&self) -> Arc<File> {
        Arc::clone(&self.procs)
    }

    pub fn files(&self) -> &GroupFiles {
        &self.files
    }

    /// Removes it, unless processes are in it still: then it is left to them, and the reason returned.
    pub fn remove(self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let Err(error) = std::fs::remove_dir(&self.files.directory) else { return Ok(()) };
            if error.kind() == io::ErrorKind::NotFound {
                return Ok(());
            }
            let inside = self.files.text("cgroup.procs").map_or(0, |text| text.lines().count());
            if inside > 0 && begun.elapsed() >= LEAVING {
                let processes = if inside == 1 { "process is" } else { "processes are" };
                return Err(format!(
                    "{inside} {processes} still in the control group {}, which is left to them",
                    self.files.path()
                ));
            }
            if error.kind() != io::ErrorKind::ResourceBusy || begun.elapsed() >= LEAVING {
                return Err(format!("the control group {} cannot be removed: {error}", self.files.path()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn make(parent: &GroupFiles) -> Result<GroupFiles, String> {
    remove_forgotten(parent);
    let mut why = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..NAMES {
        let mut name = format!("stagemark-{}", std::process::id());
        if number > 0 {
            name.push_str(&format!("-{number}"));
        }
        let directory = parent.directory.join(&name);
        match std::fs::create_dir(&directory) {
            Ok(()) => return Ok(GroupFiles { version: parent.version, shown: parent.shown.join(&name), directory }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                why = error;
                break;
            }
        }
    }
    let change = match parent.version {
        2 => "start it where the group is delegated to this user (systemd-run --user --scope -p Delegate=yes …)",
        _ => "give this user a memory group of its own to start it in, or run as root",
    };
    Err(format!("no group can be made in {}: {why}; {change}", parent.path()))
}

/// Removes the empty groups of profilers that were killed, or whose launch outlived them.
fn remove_forgotten(parent: &GroupFiles) {
    for entry in std::fs::read_dir(&parent.directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix("stagemark-")?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            // One that has processes in it is refused.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Limits that a group beside this one would not have.
const LIMITS: [&str; 5] = ["memory.max", "memory.high", "memory.swap.max", "cpu.max", "pids.max"];

/// In which group one may be made: `groups` are this process's own and those above it.
fn place(groups: &[GroupFiles]) -> Result<GroupFiles, String> {
    let Some(own) = groups.first() else {
        return Err("no control group with the memory controller can be seen here".to_owned());
    };
    let hands_down = |group: &GroupFiles| {
        let controllers = group.text("cgroup.subtree_control").unwrap_or_default();
        controllers.split_whitespace().any(|name| name == "memory")
    };
    if own.version == 1 {
        // Before Linux 5.11 a group could decline to count those below it, which its limits then do not bind.
        return match own.text("memory.use_hierarchy") {
            Some(text) if text.trim() == "0" => Err(format!(
                "{} does not count the groups below it (memory.use_hierarchy is 0), so that one there would escape its \
                 limits",
                own.path()
            )),
            _ => Ok(own.clone()),
        };
    }
    if hands_down(own) {
        return Ok(own.clone());
    }
    // A group with processes in it can hand no controller down (cgroups(7), "no internal processes" rule), and this one
    // has at least this process.
    let Some(above) = groups.get(1) else {
        return Err(format!(
            "{} is the topmost group that can be seen, and has processes in it, so that no group below it can have the \
             memory controller; start the profiler in a group below one that has memory in its cgroup.subtree_control",
            own.path()
        ));
    };
    if !hands_down(above) {
        return Err(format!(
            "{} does not hand the memory controller down; what would: echo +memory >{}/cgroup.subtree_control",
            above.path(),
            above.path()
        ));
    }
    let limit = LIMITS.iter().find_map(|file| {
        let text = own.text(file)?;
        let text = text.trim();
        (!text.starts_with("max")).then(|| format!("{file} {text}"))
    });
    match limit {
        Some(limit) => Err(format!(
            "{} has a limit ({limit}), which a group beside it would escape; start the profiler in a group without limits \
             below one that has them",
            own.path()
        )),
        None => Ok(above.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    fn recorded(name: &str) -> Vec<GroupFiles> {
        groups(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/host").join(name))
    }

    fn groups(folder: &Path) -> Vec<GroupFiles> {
        let roots = Roots::recorded(folder);
        host::cgroup::memory_groups(&roots, &Mounts::read(&roots.proc))
    }

    #[test]
    fn version_1_is_entered_below_the_own_group() {
        assert_eq!(place(&recorded("v1-host")).unwrap().path(), "/sys/fs/cgroup/memory/jobs/1cc99c72");
        assert_eq!(place(&recorded("v1-docker")).unwrap().path(), "/sys/fs/cgroup/memory");
    }

    #[test]
    fn version_2_is_entered_beside_the_own_group_but_not_past_its_limits() {
        let refused = place(&recorded("v2-systemd")).unwrap_err();
        assert!(refused.contains("run-u42.scope has a limit (memory.high 42949672960)"), "{refused}");

        let folder = tempfile::tempdir().unwrap();
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/host/v2-systemd");
        let copied = Command::new("cp").arg("-r").args([&tree.join("proc"), &tree.join("sys"), folder.path()]).status();
        assert!(copied.unwrap().success());
        let slice = folder.path().join("sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice");
        std::fs::write(slice.join("run-u42.scope/memory.high"), "max\n").unwrap();
        let chosen = place(&groups(folder.path())).unwrap();
        assert!(chosen.path().ends_with("/user@1000.service/app.slice"), "{}", chosen.path());
        // Without the controller handed down there is none to be had.
        std::fs::write(slice.join("cgroup.subtree_control"), "pids\n").unwrap();
        assert!(place(&groups(folder.path())).unwrap_err().contains("echo +memory >/sys/fs/cgroup/user.slice"));
        // A group that hands it down although it has processes is a root, or has threads only below it.
        std::fs::write(slice.join("run-u42.scope/cgroup.subtree_control"), "memory pids\n").unwrap();
        assert!(place(&groups(folder.path())).unwrap().path().ends_with("run-u42.scope"));
    }

    #[test]
    fn a_container_of_one_group_has_no_place_for_another() {
        let refused = place(&recorded("v2-container")).unwrap_err();
        assert!(refused.contains("/sys/fs/cgroup is the topmost group"), "{refused}");
        assert!(place(&[]).unwrap_err().contains("no control group"));
    }
}
