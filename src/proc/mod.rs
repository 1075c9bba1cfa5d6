//! Files of `/proc/PID`: kept open, read again in place, parsed by hand over bytes.
//!
//! A descriptor of `/proc/PID/stat` belongs to one process for good: after its end reads fail with ESRCH, whoever gets
//! the number next. Nothing here allocates once its buffer has grown, and nothing here interprets: sums, trees and
//! reasons are made by those who read. smaps has no parser here on purpose, and `smaps` (its rollup) is for marks alone:
//! they walk page tables while they hold the target's mmap lock.

pub mod maps;
pub mod smaps;
pub mod stat;
pub mod text;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::resource::{Resource, getrlimit};

use crate::event::Pid;

/// Why a file of `/proc` was not read.
#[derive(Debug)]
pub enum Unread {
    /// The process is gone.
    Gone,
    /// The kernel does not let this user read it (proc(5): ptrace access mode).
    Denied,
    Other(io::Error),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Unread::Gone,
            Some(libc::EACCES | libc::EPERM) => Unread::Denied,
            _ => Unread::Other(error),
        }
    }
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Gone => f.write_str("the process is gone"),
            Unread::Denied => f.write_str("permission denied"),
            Unread::Other(error) => error.fmt(f),
        }
    }
}

/// Room for the text of one file, used again and again.
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Room for an ordinary file of `/proc`; it grows where one is longer.
    pub fn new() -> Buffer {
        Buffer(vec![0; 4096])
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::new()
    }
}

/// How many descriptors are kept open by all [`ProcFile`]s.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// How many may be: half of what this process may open, so that a launch of very many processes leaves room for the
/// profiler's other files. Beyond it files are opened for each read.
fn may_keep() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        usize::try_from(soft / 2).unwrap_or(usize::MAX)
    })
}

/// A file of `/proc`, opened at its first reading and kept open where descriptors allow.
#[derive(Debug)]
pub struct ProcFile {
    path: PathBuf,
    file: Option<File>,
}

impl ProcFile {
    /// `/proc/PID/NAME`.
    pub fn of(pid: Pid, name: &str) -> ProcFile {
        ProcFile::at(PathBuf::from(format!("/proc/{pid}/{name}")))
    }

    /// Any file whose text is made anew at each reading from its start.
    pub fn at(path: PathBuf) -> ProcFile {
        ProcFile { path, file: None }
    }

    /// The whole text. Where descriptors are short the file is opened by its path each time, and the number may by then
    /// be another process's: callers who care compare start times.
    pub fn read<'b>(&mut self, buffer: &'b mut Buffer) -> Result<&'b [u8], Unread> {
        match &self.file {
            Some(file) => read_whole(file, buffer),
            None => {
                let file = File::open(&self.path)?;
                let outcome = read_whole(&file, buffer);
                if outcome.is_ok() && KEPT.fetch_add(1, Ordering::Relaxed) < may_keep() {
                    self.file = Some(file);
                } else if outcome.is_ok() {
                    KEPT.fetch_sub(1, Ordering::Relaxed);
                }
                outcome
            }
        }
    }
}

impl Drop for ProcFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            KEPT.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The threads of a process but its main one: `/proc/PID` itself shows no memory once that has ended, although the
/// process goes on.
pub fn threads_but_main(pid: Pid) -> impl Iterator<Item = Pid> {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(move |thread| *thread != pid)
}

/// seq_file makes the text of a single-record file whole in one read, if the buffer has room; a read that fills the
/// buffer may be cut and is made again with more.
fn read_whole<'b>(file: &File, buffer: &'b mut Buffer) -> Result<&'b [u8], Unread> {
    /// Far beyond anything that stat, status or io can be.
    const LONGEST: usize = 1 << 20;
    loop {
        let length = match file.read_at(&mut buffer.0, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if length < buffer.0.len() || length >= LONGEST {
            return Ok(&buffer.0[..length]);
        }
        buffer.0.resize(length * 2, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_never_becomes_another_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as Pid;
        let mut file = ProcFile::of(pid, "stat");
        let mut buffer = Buffer::new();
        assert_eq!(stat::Stat::parse(file.read(&mut buffer).unwrap()).unwrap().pid, pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(file.read(&mut buffer), Err(Unread::Gone)));
        assert!(matches!(ProcFile::of(pid, "stat").read(&mut buffer), Err(Unread::Gone)));
    }

    #[test]
    fn a_long_text_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        let text = vec![b'x'; 10_000];
        std::fs::write(&path, &text).unwrap();
        assert_eq!(ProcFile::at(path).read(&mut Buffer::new()).unwrap(), text);
    }
}
