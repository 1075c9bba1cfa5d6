//! What the kernel's stream tells, as far as page faults and what lies behind their addresses need it.

use std::ops::Range;

use perf_event_open::sample::record::Record as Perf;
use perf_event_open::sample::record::mmap::Info;
use serde::{Deserialize, Serialize};

use crate::clock::Mono;
use crate::event::Pid;

/// Whether a fault had to wait for I/O (getrusage(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Minor,
    Major,
}

/// The file of a mapping, as the kernel calls it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileName {
    /// As `/proc/PID/maps` writes it.
    pub path: Vec<u8>,
    /// As maps shows it: a hint.
    pub device: u64,
    pub inode: u64,
}

/// One thing of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Fault {
        kind: Kind,
        pid: Pid,
        address: u64,
    },
    Mapped {
        pid: Pid,
        addresses: Range<u64>,
        /// Byte of the file at the first address.
        offset: u64,
        /// `None` for anonymous memory.
        file: Option<FileName>,
        is_stack: bool,
    },
    Forked {
        pid: Pid,
        parent: Pid,
    },
    Execed {
        pid: Pid,
    },
    Ended {
        pid: Pid,
    },
    /// A ring was full: what follows may be missing something.
    Lost,
    /// The mappings of a process as they were at that time, read from `/proc/PID/maps`.
    Reread {
        pid: Pid,
        maps: Vec<u8>,
    },
}

/// A record and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    pub at: Mono,
    pub record: Record,
}

/// Takes what matters here out of the crate's records; `kind` is that of the event whose record it is.
pub fn read(record: Perf, kind: Kind) -> Option<Record> {
    Some(match record {
        Perf::Sample(sample) => {
            Record::Fault { kind, pid: sample.record_id.task?.pid as Pid, address: sample.data_addr? }
        }
        Perf::Mmap(mmap) => {
            let name = mmap.file.as_bytes();
            let (device, inode) = match mmap.ext.map(|ext| ext.info) {
                Some(Info::Device { major, minor, inode, .. }) => (libc::makedev(major, minor), inode),
                _ => (0, 0),
            };
            // Anonymous memory is `//anon`, and the kernel's own areas are `[heap]` and the like.
            let is_of_file = inode != 0 && name.first() == Some(&b'/');
            let file = is_of_file.then(|| {
                let path = crate::proc::maps::encode(name).into_owned();
                FileName { path, device, inode }
            });
            Record::Mapped {
                pid: mmap.task.pid as Pid,
                addresses: mmap.addr..mmap.addr.saturating_add(mmap.len),
                offset: mmap.page_offset,
                file,
                is_stack: name == b"[stack]",
            }
        }
        Perf::Fork(fork) => {
            // A thread shares its process's memory.
            if fork.task.pid == fork.parent_task.pid {
                return None;
            }
            Record::Forked { pid: fork.task.pid as Pid, parent: fork.parent_task.pid as Pid }
        }
        Perf::Exit(exit) => {
            if exit.task.pid != exit.task.tid {
                return None;
            }
            Record::Ended { pid: exit.task.pid as Pid }
        }
        Perf::Comm(comm) if comm.by_execve => Record::Execed { pid: comm.task.pid as Pid },
        _ => return None,
    })
}
