//! What the launch says, outside the kernel's own records: the lines that it prints, the notifications that it sends.
//! Each watcher is a thread that sends what it saw with its own time; the recorder decides and writes.

pub mod log;
pub mod notify;

use std::os::fd::OwnedFd;

use crate::clock::Mono;
use crate::event::{Stream, What};

/// One thing that a watcher saw, with its own time.
#[derive(Debug)]
pub struct Seen {
    pub at: Mono,
    /// The thing happened in `[at − uncertainty, at]`; `None` is unbounded.
    pub uncertainty_ns: Option<u64>,
    pub what: Observed,
}

/// What a watcher can see.
#[derive(Debug)]
pub enum Observed {
    Line(Line),
    Event(What),
    /// Somebody waits until everything before this was heard, and the sample at its mark taken: dropping it tells them.
    Barrier(OwnedFd),
}

/// A piece of output between two line ends (`\n` or `\r`), or as much of a long line as is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub stream: Stream,
    /// Without its end; not necessarily UTF-8.
    pub bytes: Vec<u8>,
    /// How it ended.
    pub end: LineEnd,
}

/// How a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    Newline,
    /// A carriage return: a progress bar is drawn over.
    Return,
    /// The line was longer than is kept; the rest of it was passed over.
    Cut,
    /// The stream ended.
    Eof,
}
