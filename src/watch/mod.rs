//! What the launch says, outside the kernel's own records: the lines that it prints, the notifications that it sends.
//! Each watcher is a thread that sends what it saw with its own time; the recorder decides and writes. A watcher never
//! holds the command up: what it cannot keep it drops, and says how much that was.
//!
//! # What the times mean
//!
//! A line's time is the moment of the read that completed it, a notification's the moment of its receipt or the time
//! that its sender gave. The uncertainty reaches back to the last moment at which nothing was on the way, from the
//! command's own write to the read here, so it bounds when the line's last byte was *written*. A program that buffers its output (C's stdio does, when standard
//! output is no terminal) may have meant a line long before it wrote it; nobody can see that from outside, and no bound
//! is given for it.

mod ending;
pub mod log;
pub mod notify;

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Mono;
use crate::event::{Stream, What};

/// How long a log is waited on before it is looked at again, in milliseconds: what bounds the uncertainty of the next
/// line.
const TICK_MS: u16 = 20;

/// The same, in nanoseconds.
const TICK_NS: u64 = TICK_MS as u64 * 1_000_000;

/// Longest name of a stage, in bytes.
pub const LONGEST_STAGE_NAME: usize = 64;

/// Whether this can be a stage's name: 1 to 64 of `A–Z a–z 0–9 _ . -`.
pub fn is_stage_name(name: &str) -> bool {
    (1..=LONGEST_STAGE_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

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
    Line(QueuedLine),
    /// Output that was passed over because lines came faster than they were taken: its bytes, line ends not counted,
    /// since the last time that some were told of.
    Lost {
        stream: Stream,
        lines: u64,
        bytes: u64,
    },
    Event(What),
    /// A response that was accepted, as it is kept; which of its stage's conditions it was.
    Response {
        stage: String,
        part: usize,
        text: String,
    },
    /// All that was printed to a stream, as a digest.
    Printed(Printed),
    /// How one of many requests went: a row of `responses.csv`.
    Answer(Vec<String>),
    /// A mapping was recorded for which a stage may wait: there is something to take.
    Recorded,
    /// Somebody waits until everything before this was heard, and the sample at its mark taken: dropping it tells them.
    Barrier(OwnedFd),
}

/// What was printed to a stream from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    pub stream: Stream,
    pub bytes: u64,
    /// Of the bytes as they were, in hexadecimal.
    pub sha256: String,
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
    /// `\n` or `\r\n`.
    Newline,
    /// A carriage return: a progress bar is drawn over.
    Return,
    /// The line was longer than is kept; the rest of it was passed over.
    Cut,
    /// The stream ended.
    Eof,
}

/// A line on its way to the recorder. It counts against what may be on the way until it is dropped or taken out.
#[derive(Debug)]
pub struct QueuedLine {
    line: Line,
    _permit: Permit,
}

impl QueuedLine {
    /// The line itself.
    pub fn into_line(self) -> Line {
        self.line
    }
}

impl Deref for QueuedLine {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.line
    }
}

/// How many bytes may be on the way from one watcher to the recorder.
#[derive(Clone, Debug)]
struct Budget(Arc<Purse>);

#[derive(Debug)]
struct Purse {
    size: usize,
    left: Mutex<usize>,
    refilled: Condvar,
}

/// Part of a [`Budget`], given back when dropped.
#[derive(Debug)]
struct Permit {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    fn new(bytes: usize) -> Budget {
        Budget(Arc::new(Purse { size: bytes, left: Mutex::new(bytes), refilled: Condvar::new() }))
    }

    /// Takes `bytes` of it, if there are as many.
    fn take(&self, bytes: usize) -> Option<Permit> {
        let mut left = self.left();
        *left = left.checked_sub(bytes)?;
        Some(Permit { budget: self.clone(), bytes })
    }

    /// Waits until much of it is there again, so that a waiter is not woken for each line; one tick at most.
    fn wait(&self) {
        let left = self.left();
        let enough = self.enough();
        // An early or late return is met by the next `take`.
        let _ = self.0.refilled.wait_timeout_while(left, Duration::from_nanos(TICK_NS), |left| *left < enough);
    }

    fn enough(&self) -> usize {
        self.0.size / 4
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        // A number has no state that a panic elsewhere could leave half changed.
        self.0.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut left = self.budget.left();
        let before = *left;
        *left += self.bytes;
        if before < self.budget.enough() && *left >= self.budget.enough() {
            self.budget.0.refilled.notify_one();
        }
    }
}

const UNSEEN: &str = "cannot be read, so no line of it can mark a stage: ";

/// Says that an output stream cannot be followed. Recorded, so that [`unseen_stream`] finds it again in a run.
pub fn unseen(stream: Stream, why: &str) -> What {
    What::warning(format!("{} {UNSEEN}{why}", name_of(stream)))
}

/// The stream that such a warning is about.
pub fn unseen_stream(text: &str) -> Option<Stream> {
    [Stream::Stdout, Stream::Stderr, Stream::Both].into_iter().find(|stream| {
        text.strip_prefix(name_of(*stream))
            .and_then(|rest| rest.strip_prefix(' '))
            .is_some_and(|rest| rest.starts_with(UNSEEN))
    })
}

const UNHEARD: &str = "notifications cannot be heard: ";

/// Says that no notification can be heard. Recorded, so that [`unheard`] finds it again.
pub fn not_heard(error: &std::io::Error) -> String {
    format!("{UNHEARD}{error}")
}

/// Why none could be, if that is what a warning says.
pub fn unheard(text: &str) -> Option<&str> {
    text.strip_prefix(UNHEARD)
}

const LOST: &str = "came too fast to be matched or kept";

/// Says that some of an output was passed on without being looked at. Recorded, so that [`tells_a_loss`] finds it again.
pub fn lost(what: &str) -> What {
    What::warning(format!("{what} {LOST}"))
}

/// Whether a warning is of this kind.
pub fn tells_a_loss(text: &str) -> bool {
    text.ends_with(LOST)
}

fn name_of(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "standard output",
        Stream::Stderr => "standard error",
        Stream::Both => "standard output and error",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_unseen_stream_is_found_again() {
        for stream in [Stream::Stdout, Stream::Stderr, Stream::Both] {
            let What::Warning { text } = unseen(stream, "it is /dev/null") else { panic!("not a warning") };
            assert_eq!(unseen_stream(&text), Some(stream));
        }
        assert_eq!(unseen_stream("standard output was truncated"), None);
    }

    #[test]
    fn a_budget_is_given_back() {
        let budget = Budget::new(10);
        let first = budget.take(6).unwrap();
        assert!(budget.take(5).is_none());
        drop(first);
        assert!(budget.take(10).is_some());
    }
}
