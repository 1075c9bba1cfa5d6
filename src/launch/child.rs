//! Starting the command: its arguments, environment, descriptors, signal mask and dispositions are those that the
//! profiler was given.

use std::ffi::OsString;

use super::output::Outputs;
use crate::clock::Mono;
use crate::event::Pid;

/// What to start.
#[derive(Clone, Debug)]
pub struct Command {
    /// Program and arguments, byte for byte. The program is looked up in PATH as execvp(3) does.
    pub argv: Vec<OsString>,
    /// Variables added to the inherited environment (the notification socket's), nothing else is changed.
    pub environment: Vec<(OsString, OsString)>,
}

/// The command, running.
#[derive(Debug)]
pub struct Started {
    pub pid: Pid,
    /// The last moment before execve(2), by the child's own clock reading.
    pub start: Mono,
}

/// Why the command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{program}: command not found")]
    NotFound { program: String },
    #[error("{program}: cannot be executed: {source}")]
    NotExecutable { program: String, source: std::io::Error },
    #[error("cannot start {program}: {source}")]
    Other { program: String, source: std::io::Error },
}

impl StartError {
    /// The exit status a shell would give: 127, 126; 125 for our own failure.
    pub fn status(&self) -> u8 {
        match self {
            StartError::NotFound { .. } => 127,
            StartError::NotExecutable { .. } => 126,
            StartError::Other { .. } => 125,
        }
    }
}

/// Starts the command. The calling thread's inherited perf counters go with it.
pub fn start(command: &Command, outputs: &mut Outputs) -> Result<Started, StartError> {
    let _ = (command, outputs);
    todo!()
}
