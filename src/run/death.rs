//! `run.json`'s `death`: how a launch came to an end that it was not meant to have, and what speaks for which cause.

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::clock::At;
use crate::event::Pid;
use crate::host::oom::GroupEvents;

/// What most likely ended a launch, or a process of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The kernel's out-of-memory killer: its count rose while the launch ran, and a process of it was killed.
    OomKill,
    /// A signal, of a sender that is not known.
    Signal,
    /// The command's own exit status.
    #[default]
    Exit,
}

/// A death before its time: by a signal, by the out-of-memory killer, or an exit status other than 0 before the stopping
/// event. Absent for a run that ended well, that the profiler stopped, or whose profiler was killed itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Death {
    pub at: At,
    /// The worker that the out-of-memory killer chose, where that is known.
    pub pid: Option<Pid>,
    /// Whether it was the command's root that died, and not a worker.
    pub is_root: bool,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub cause: Cause,
    /// What speaks for the cause, for people.
    pub evidence: String,
    /// The last stage that was reached before.
    pub stage: Option<String>,
    /// The last sample before it with a process in it: the account at death.
    pub sampled: Option<At>,
    /// The control groups that the launch's processes were seen in, their ancestors, and the host (`/proc/vmstat`): those
    /// with a limit, and those whose count rose.
    pub groups: Vec<GroupEvents>,
}

/// A signal by the name that people know, or its number where it has none.
pub fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}
