//! Who keeps a file's pages in memory: the processes that map it, as far as their maps may be read. Asked only where an
//! eviction left something.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::artifact::Artifact;
use crate::event::Pid;
use crate::proc::Unread;
use crate::proc::maps::{self, Mapping, decode};

/// A process that maps the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub pid: Pid,
    /// Its name (proc_pid_comm(5)).
    pub name: String,
    /// Bytes of its mappings of the file, one on another counted twice.
    pub bytes: u64,
    /// Whether one of them is locked in memory (mlock(2); proc_pid_smaps(5), VmFlags).
    pub locked: bool,
}

/// The processes that map a file, this one left out; and how many there are whose mappings may not be read.
pub(super) fn of(artifact: &Artifact) -> (Vec<Holder>, usize) {
    let own = std::process::id() as Pid;
    let (mut found, mut unread) = (Vec::new(), 0);
    let mut text = Vec::new();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok()).filter(|pid| *pid != own) {
        match maps::read(pid, &mut text) {
            Ok(()) => {}
            Err(Unread::Gone) => continue,
            Err(_) => {
                unread += 1;
                continue;
            }
        }
        let is_of_it = |mapping: &Mapping| mapping.is_of_file() && is_of(artifact, pid, mapping);
        let bytes: u64 = Mapping::all(&text).filter(is_of_it).map(|mapping| mapping.end - mapping.start).sum();
        if bytes > 0 {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let locked = std::fs::read(format!("/proc/{pid}/smaps")).is_ok_and(|smaps| is_locked(&smaps, is_of_it));
            found.push(Holder { pid, name: name.trim_end().to_owned(), bytes, locked });
        }
    }
    found.sort_by_key(|holder| holder.pid);
    (found, unread)
}

/// By device and inode; or by its path, where that leads the process to the same file: maps has another device than
/// stat(2) on btrfs, and on some kernels on overlayfs.
fn is_of(artifact: &Artifact, pid: Pid, mapping: &Mapping) -> bool {
    if (mapping.device, mapping.inode) == (artifact.device, artifact.inode) {
        return true;
    }
    let path = decode(mapping.path);
    if *path != *artifact.real_path.as_os_str().as_bytes() {
        return false;
    }
    let inside = Path::new("/proc").join(pid.to_string()).join("root");
    let seen = artifact.real_path.strip_prefix("/").map(|path| inside.join(path));
    let stat = seen.ok().and_then(|path| std::fs::metadata(path).ok());
    stat.is_some_and(|stat| (stat.dev(), stat.ino()) == (artifact.device, artifact.inode))
}

/// Whether a mapping of the file has the flag `lo`. Each mapping's line of maps stands before its figures.
fn is_locked(smaps: &[u8], is_of_it: impl Fn(&Mapping) -> bool) -> bool {
    let mut ours = false;
    for line in smaps.split(|&byte| byte == b'\n') {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            if ours && flags.split(u8::is_ascii_whitespace).any(|flag| flag == b"lo") {
                return true;
            }
        } else if let Some(mapping) = Mapping::parse(line) {
            ours = is_of_it(&mapping);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_seen_on_the_files_own_mapping_alone() {
        let smaps = |flags: [&str; 2]| {
            format!(
                "7f00-7f01 r--p 00000000 08:01 5 /a\nRss: 4 kB\nVmFlags: {}\n\
                 7f01-7f02 r--p 00000000 08:01 6 /b\nRss: 4 kB\nVmFlags: {}\n",
                flags[0], flags[1]
            )
        };
        let of_b = |mapping: &Mapping| mapping.path == b"/b";
        assert!(is_locked(smaps(["rd mr", "rd lo mr"]).as_bytes(), of_b));
        assert!(!is_locked(smaps(["rd lo mr", "rd mr"]).as_bytes(), of_b));
        assert!(!is_locked(b"", of_b));
    }
}
