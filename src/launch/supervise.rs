//! The main thread's loop while the command runs: forwards signals, reaps by pid, takes over a dead pump.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use super::child::Started;
use super::output::Outputs;
use super::tree::ProcessKey;
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

/// The last reading of a process that the profiler reaped itself, as text, taken while it was a zombie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalReading {
    /// `/proc/PID/stat`.
    pub stat: Vec<u8>,
    /// `/proc/PID/io`, where it could be read.
    pub io: Option<Vec<u8>>,
}

/// The last readings of processes that the profiler reaped itself, by pid and start time: written before each is
/// reaped, taken by the process tree.
#[derive(Clone, Debug, Default)]
pub struct Finals(Arc<Mutex<HashMap<ProcessKey, FinalReading>>>);

impl Finals {
    /// To be called before the process is reaped, so that whoever finds it gone finds its reading here.
    pub fn insert(&self, key: ProcessKey, reading: FinalReading) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, reading);
    }

    /// Takes one reading out.
    pub fn take(&self, key: &ProcessKey) -> Option<FinalReading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// Takes all readings out.
    pub fn drain(&self) -> Vec<(ProcessKey, FinalReading)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}

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
