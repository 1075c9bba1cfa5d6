//! The command's two output streams: which are passed on as they are, which must be interposed, and where what goes
//! through them can be read.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::event::Stream;

/// Where a copy of what the command prints can be read.
#[derive(Debug)]
pub enum LogSource {
    /// The read end of a pipe that the pump copies into; end of file when the stream is over.
    Pipe { stream: Stream, fd: OwnedFd },
    /// The stream is a regular file: followed from `offset`, never written.
    File { stream: Stream, file: File, offset: u64 },
    /// The stream goes where nobody can look (closed, /dev/null…).
    Unseen { stream: Stream, why: String },
}

/// The command's outputs, prepared before it starts.
pub struct Outputs;

impl Outputs {
    /// Looks at standard output and standard error, and starts the pump where one is needed.
    pub fn prepare() -> std::io::Result<Outputs> {
        todo!()
    }

    /// The places where the copies can be read; each is given once.
    pub fn take_sources(&mut self) -> Vec<LogSource> {
        todo!()
    }

    /// Waits until all that the command printed so far has been passed on, or `limit` is over; says whether it has.
    pub fn drain(&self, limit: Duration) -> bool {
        let _ = limit;
        todo!()
    }
}
