//! The main thread's loop while the command runs: forwards signals, reaps by pid, takes over a dead pump.

use std::sync::mpsc::Sender;

use super::child::Started;
use super::output::Outputs;
use crate::event::Pid;
use crate::watch::Seen;

/// How the command ended (wait(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub pid: Pid,
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

impl Ended {
    /// The status that a shell would show: the command's own, or 128 + signal.
    pub fn status(&self) -> u8 {
        match (self.code, self.signal) {
            (Some(code), _) => code as u8,
            (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
            (None, None) => 125,
        }
    }
}

/// The last readings of processes that the profiler reaped itself, taken while they were zombies, shared with the
/// process probe: `/proc/PID/{stat,io}` as text, by pid and start time.
#[derive(Clone, Default)]
pub struct Finals;

/// Asks the supervisor, from another thread, to end the command (`--then stop`).
#[derive(Clone)]
pub struct Control;

impl Control {
    pub fn new() -> std::io::Result<Control> {
        todo!()
    }

    /// Sends SIGTERM to the command, and SIGKILL to what is left of the tree 10 s later.
    pub fn stop(&self) {
        todo!()
    }
}

/// Runs until the command has ended. Sends [`Seen`] for each process reaped, and for the end itself.
pub fn supervise(
    started: &Started,
    outputs: &mut Outputs,
    finals: &Finals,
    control: &Control,
    sender: &Sender<Seen>,
) -> std::io::Result<Ended> {
    let _ = (started, outputs, finals, control, sender);
    todo!()
}
