//! Starting the command: its arguments, environment, descriptors, signal mask and dispositions are those that the
//! profiler was given.
//!
//! It stays in the profiler's process group and session, so that the caller's job control and terminal see one job.
//! Nothing ties its life to the profiler's.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::output::Outputs;
use crate::clock::Mono;
use crate::event::{Pid, text_of};
use crate::host::limit_behind;
use crate::sys::process::{Environment, SharedPage, hand_on};
use crate::sys::startup;

/// What to start.
#[derive(Clone, Debug)]
pub struct Command {
    /// Program and arguments, byte for byte. The program is looked up in PATH as execvp(3) does.
    pub argv: Vec<OsString>,
    /// Variables added to the inherited environment (the notification socket's), nothing else is changed.
    pub environment: Vec<(OsString, OsString)>,
    /// The `cgroup.procs` of a control group that it is to be in from before its exec.
    pub group: Option<Arc<File>>,
}

/// The command, running.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    pub pid: Pid,
    /// The last moment before execve(2), by the child's own clock reading.
    pub start: Mono,
    /// Why it is not in the control group, where it was to be in one: an error number.
    pub group_error: Option<i32>,
}

/// Why the command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{program}: command not found")]
    NotFound { program: String },
    #[error("{program}: cannot be executed: {source}")]
    NotExecutable { program: String, source: io::Error },
    #[error("cannot start {program}: {source}{limit}", limit = limit_behind(.source))]
    Other { program: String, source: io::Error },
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

    fn new(program: String, source: io::Error) -> StartError {
        match source.raw_os_error() {
            Some(libc::ENOENT) => StartError::NotFound { program },
            // Of fork(2) or of descriptors, not of execve(2).
            None | Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
                StartError::Other { program, source }
            }
            Some(_) => StartError::NotExecutable { program, source },
        }
    }
}

/// Starts the command. The calling thread's inherited perf counters go with it.
///
/// From here on the calling process is the parent of every process of the command's tree that loses its own
/// (PR_SET_CHILD_SUBREAPER, prctl(2)).
pub fn start(command: &Command, outputs: &mut Outputs) -> Result<Started, StartError> {
    let Some((program, arguments)) = command.argv.split_first() else {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "there is no command");
        return Err(StartError::Other { program: String::new(), source });
    };
    super::signals::hold();
    // Without it orphans go to init, as they would without the profiler; they are then missed, not harmed.
    let _ = nix::sys::prctl::set_child_subreaper(true);
    // Refused where no file may have any size (RLIMIT_FSIZE): then the start is known as the moment before the fork.
    let page = SharedPage::new().ok().map(Arc::new);
    let before = Mono::now();
    let spawned = {
        let mut process = std::process::Command::new(program);
        process.args(arguments);
        process.stdout(outputs.give(0)).stderr(outputs.give(1));
        let environment = Environment::with(&command.environment);
        hand_on(&mut process, startup::given(), environment, page.clone(), 0, command.group.clone());
        process.spawn()
        // Dropping `process` here closes the profiler's copies of the streams' write ends.
    };
    let child = spawned.map_err(|source| StartError::new(text_of(program), source))?;
    let start = page.as_ref().map_or(0, |page| page.slot(0).load(SeqCst));
    let group_error = match (&command.group, &page) {
        (None, _) => None,
        // Whether it went well cannot be told.
        (Some(_), None) => Some(libc::EIO),
        (Some(_), Some(page)) => i32::try_from(page.slot(1).load(SeqCst)).ok().filter(|error| *error != 0),
    };
    // Reaped by the supervisor, by its pid: dropping the handle does nothing to the process.
    Ok(Started { pid: child.id() as Pid, start: if start == 0 { before } else { Mono(start) }, group_error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_a_shell_s() {
        let status = |errno| StartError::new("x".into(), io::Error::from_raw_os_error(errno)).status();
        assert_eq!(status(libc::ENOENT), 127);
        assert_eq!(status(libc::EACCES), 126);
        assert_eq!(status(libc::ENOEXEC), 126);
        assert_eq!(status(libc::EAGAIN), 125);
    }
}
