//! Reads the copies of the command's output and splits them into lines.

use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use super::Seen;
use crate::launch::LogSource;

/// Longest piece of a line that is kept, in bytes.
pub const LONGEST_LINE: usize = 64 * 1024;

/// Starts one thread for a source; it ends at the stream's end, or (a followed file) when `Follow::stop` is called.
pub fn watch(source: LogSource, sender: Sender<Seen>) -> std::io::Result<LogWatch> {
    let _ = (source, sender);
    todo!()
}

/// A log watcher's thread.
pub struct LogWatch {
    #[allow(dead_code)]
    thread: Option<JoinHandle<()>>,
}

impl LogWatch {
    /// Reads what is there now to its end, then ends the thread: for after the command's exit.
    pub fn finish(self) {
        todo!()
    }
}
