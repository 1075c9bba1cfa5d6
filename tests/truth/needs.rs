//! What a case needs of the machine, found out by trying. Where it is lacking the case is not run, and the table says why.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Something that not every machine has, or not for every user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)]
pub enum Need {
    Root,
    /// mount(2) in the tests' own mount namespace.
    Mounts,
    /// A filesystem that this kernel knows (/proc/filesystems), or can load.
    Filesystem(&'static str),
    /// A program in PATH.
    Program(&'static str),
    /// /dev/fuse.
    Fuse,
    /// A writable /dev/shm.
    SharedMemory,
    /// Control groups of version 1, with this controller mounted.
    CgroupV1(&'static str),
    /// Control groups of version 2, with this controller at hand.
    CgroupV2(&'static str),
    /// io_uring_setup(2) is allowed.
    IoUring,
    /// perf_event_open(2) is allowed.
    Perf,
    /// A file that is present.
    File(&'static str),
}

impl Need {
    /// Why it is lacking, if it is.
    pub fn lacking(self) -> Option<String> {
        match self {
            Need::Root => (!nix::unistd::geteuid().is_root()).then(|| "needs root".to_owned()),
            Need::Mounts => Need::Root.lacking().or_else(mounts_lacking),
            Need::Filesystem(name) => filesystem_lacking(name),
            Need::Program(name) => program_lacking(name),
            Need::Fuse => (!Path::new("/dev/fuse").exists()).then(|| "there is no /dev/fuse".to_owned()),
            Need::SharedMemory => {
                let tried = tempfile::tempdir_in("/dev/shm");
                tried.err().map(|error| format!("/dev/shm cannot be written: {error}"))
            }
            Need::CgroupV1(controller) => {
                let mounted = Path::new("/sys/fs/cgroup").join(controller).join("cgroup.procs").exists();
                (!mounted).then(|| format!("no cgroup v1 controller {controller} is mounted"))
            }
            Need::CgroupV2(controller) => {
                let text = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
                let there = text.split_whitespace().any(|name| name == controller);
                (!there).then(|| format!("no cgroup v2 controller {controller} is at hand"))
            }
            Need::IoUring => stagemark_fixtures::loader::io_uring_denied().map(|why| format!("io_uring: {why}")),
            Need::Perf => perf_lacking(),
            Need::File(path) => (!Path::new(path).exists()).then(|| format!("there is no {path}")),
        }
    }
}

fn program_lacking(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    (!found).then(|| format!("{name} is not installed"))
}

fn filesystem_lacking(name: &str) -> Option<String> {
    let known = || {
        let text = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().next_back() == Some(name))
    };
    if known() {
        return None;
    }
    // Mounting would load it; so does this, where there are modules at all.
    let _ = Command::new("modprobe").arg(name).output();
    (!known()).then(|| format!("this kernel has no {name}"))
}

/// A container may be root and yet not be allowed to mount.
fn mounts_lacking() -> Option<String> {
    static TRIED: OnceLock<Option<String>> = OnceLock::new();
    let try_it = || {
        let folder = tempfile::tempdir().ok()?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(folder.path()).output();
        let why = match &mounted {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if why.is_none() {
            let _ = Command::new("umount").arg(folder.path()).status();
        }
        why.map(|why| format!("mounting is refused: {why}"))
    };
    TRIED.get_or_init(try_it).clone()
}

fn perf_lacking() -> Option<String> {
    use perf_event_open::config::{Cpu, Opts, Proc};
    use perf_event_open::count::Counter;
    use perf_event_open::event::sw::Software;
    let options = Opts::default();
    let tried = Counter::new(Software::TaskClock, (Proc::CURRENT, Cpu::ALL), &options);
    tried.err().map(|error| format!("perf_event_open: {error}"))
}
