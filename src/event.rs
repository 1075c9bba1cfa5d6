//! What happens in a launch: one value a thing that was seen, with its time and how it was seen.
//!
//! Events are what stages are matched against, live and again later from the run folder, so everything that the
//! matcher needs is in them. Paths and arguments are kept as text by [`crate::event::text_of`], which loses nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use crate::clock::At;
use crate::metric::Metric;

/// A process id as the kernel of this pid namespace gives it.
pub type Pid = i32;

/// An artifact of the run: its index in the artifact set, and in `run.json`'s `artifacts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArtifactId(pub usize);

/// Which of the command's output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
    /// Standard output and standard error, where the caller gave one and the same file for both.
    Both,
}

/// One thing that was seen. The thing itself happened in `[at − uncertainty, at]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub at: At,
    /// Nanoseconds; `None` where no bound can be given.
    pub uncertainty_ns: Option<u64>,
    pub what: What,
}

/// How a stage's mark is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A mapping: the kernel's record of it, or the mapped extent by `/proc/PID/maps`.
    Mapping,
    /// A line that the command printed.
    Log,
    /// The resident share of the payload.
    Residency,
    /// A message on the notification socket.
    Notify,
    /// The end of the launched command.
    Exit,
    /// An acceptable response to a request.
    Http,
    /// A TCP connection that was accepted.
    Tcp,
    /// A connection to a Unix socket that was accepted.
    Unix,
    /// A file that is there.
    File,
    /// The first output.
    Output,
    /// A mapped extent that shrank.
    Unmap,
    /// Counters that stood still.
    Quiet,
    /// Device memory that rose and stood still.
    Device,
    /// Anonymous memory that rose and stood still.
    Anon,
    /// Several of the above, by `all` or `any`.
    Several,
}

/// A stage reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    #[serde(rename = "name")]
    pub stage: String,
    pub evidence: Evidence,
    /// The line, message or figure that shows it, for people. Bounded.
    pub detail: String,
    /// When the values beside it were taken; `None` until they are, or where the run ended first.
    pub sampled: Option<At>,
}

/// One attempt at a condition that has to be asked. The event's time is its end; where it was accepted, the uncertainty
/// reaches back to the beginning of the last attempt that was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    #[serde(rename = "name")]
    pub stage: String,
    pub by: Evidence,
    /// The digest of the condition that was asked ([`crate::stage::Condition::digest`]).
    pub condition: String,
    /// The URL, address or path; secrets masked.
    pub target: String,
    /// The how-manieth attempt it is, from 1.
    pub attempt: u64,
    pub began: At,
    pub accepted: bool,
    /// What came of it: `refused`, `status 503`…, `accepted`.
    pub outcome: String,
    /// When the first byte of a response's body was there; its last one is the event's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<At>,
    /// The size of a response's body, as far as it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The body was not read to its end, as the rest could not change whether it is accepted; then the event's time is that
    /// of the last byte that was read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// Attempts with this very outcome between the row before and this one, which have none of their own.
    #[serde(default)]
    pub without_row: u64,
}

/// How an artifact came into the set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// By `--artifact`.
    Declared,
    /// A path on the command line, or named by an index that stands there.
    CommandLine,
    /// A Hugging Face id on the command line, resolved in the local cache.
    HubCache { repository: String, revision: String },
    /// Seen opened or mapped by the tree after start.
    Discovered,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// A process of the tree was born, or first seen.
    Born { pid: Pid, parent: Pid },
    /// A process of the tree runs a new program (where only looking shows it, its first one included). The arguments
    /// have secrets masked; where they could not be read, the program's name stands in brackets for them.
    Exec { pid: Pid, argv: Vec<String> },
    /// A process of the tree is gone; the status as far as it could be had (wait(2)).
    Gone { pid: Pid, code: Option<i32>, signal: Option<i32> },
    /// An artifact joined the set.
    Artifact { artifact: ArtifactId, found: Found },
    /// A process of the tree was seen to hold an artifact open.
    Opened { pid: Pid, artifact: ArtifactId },
    /// A process's mapping of an artifact appeared or changed: bytes of the artifact it now covers, and permissions.
    Mapped { pid: Pid, artifact: ArtifactId, bytes: u64, permissions: String },
    /// A process no longer maps an artifact.
    Unmapped { pid: Pid, artifact: ArtifactId },
    /// Of an artifact's payload (all of the file, where that is unknown) `bytes` fewer were in memory than before.
    Evicted { artifact: ArtifactId, bytes: u64, from: u64, to: u64 },
    /// A log line by which a stage condition was met.
    LogMatch {
        stream: Stream,
        #[serde(rename = "name")]
        stage: String,
        line: String,
    },
    /// A message on the notification socket. `verified` says whether the sender was found in the tree.
    Notify {
        pid: Option<Pid>,
        #[serde(rename = "name")]
        stage: Option<String>,
        status: Option<String>,
        ready: bool,
        verified: bool,
    },
    /// An attempt at a condition that has to be asked.
    Probe(Probe),
    /// The first bytes that the command printed on a stream.
    FirstOutput { stream: Stream },
    /// A variable of the environment of a process that a stage file fits, from which that file takes a value.
    Environment { pid: Pid, name: String, value: String },
    /// A span began.
    Began {
        #[serde(rename = "name")]
        stage: String,
        evidence: Evidence,
        detail: String,
    },
    /// A stage reached.
    Mark(Mark),
    /// From here on a metric is absent, for this reason.
    Absent {
        #[serde(rename = "name")]
        metric: Metric,
        reason: String,
    },
    /// From here on a metric is known again.
    Present {
        #[serde(rename = "name")]
        metric: Metric,
    },
    /// The high-water marks of the processes were reset, for the stretch that begins here.
    PeaksReset {},
    /// Whether the launch used a device, as all that was read of them shows together: told at the end, where there are
    /// devices that it might have used. `used` is absent where that is not known.
    DeviceUse { used: Option<bool>, reason: String },
    /// The user should know.
    Warning { text: String },
    /// The launched command ended (wait(2)).
    Exit { pid: Pid, code: Option<i32>, signal: Option<i32> },
}

impl What {
    /// A warning from its text.
    pub fn warning(text: impl Into<String>) -> What {
        What::Warning { text: text.into() }
    }
}

/// Bytes as text that loses nothing: valid UTF-8 stays as it is, a backslash is doubled, control characters and bytes
/// that are no UTF-8 become `\xNN`.
pub fn text_of(bytes: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in bytes.as_ref().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    c.encode_utf8(&mut buffer).bytes().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_every_byte() {
        assert_eq!(text_of("mödel 1"), "mödel 1");
        assert_eq!(text_of(OsStr::from_bytes(b"a\nb\\c\xff")), "a\\x0ab\\\\c\\xff");
    }
}
