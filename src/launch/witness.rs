//! The witness: a tiny process in the command's process group that says which signals came to it too.
//!
//! A signal that a process sends to the whole group (`kill %1`, timeout(1), a service manager that stops every process
//! of a service) reaches the command by itself, and its siginfo does not say that it was sent to more than one. What
//! the witness got too, from the same sender, was not meant for the profiler alone and is not forwarded.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid as NixPid, pipe2};

use super::signals::{Inbox, Notice, Sender};
use crate::clock::Mono;
use crate::event::Pid;
use crate::sys::process::{adopt, close_all_but, reap, start_with_blocked};

/// The hidden verb, and the name by which process listings show the process.
pub const NAME: &str = "signal-witness";

/// How long a signal is held until the witness has had its chance to get it too.
const PATIENCE: Duration = Duration::from_millis(50);
/// How old what the witness said may be, in nanoseconds: a later signal of the same kind is another one.
const FRESH_NS: u64 = 1_000_000_000;
/// Signal, sender, moment.
const RECORD: usize = 16;

/// The witness's process.
#[derive(Debug)]
pub struct Witness {
    pid: Pid,
    reports: File,
    heard: Vec<Report>,
    /// Its end is the witness's end.
    _life: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Report {
    signal: i32,
    from: Pid,
    at: u64,
}

impl Report {
    fn bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&self.signal.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.from.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.at.to_ne_bytes());
        bytes
    }

    fn parse(bytes: [u8; RECORD]) -> Report {
        let [s0, s1, s2, s3, f0, f1, f2, f3, at @ ..] = bytes;
        Report {
            signal: i32::from_ne_bytes([s0, s1, s2, s3]),
            from: Pid::from_ne_bytes([f0, f1, f2, f3]),
            at: u64::from_ne_bytes(at),
        }
    }
}

impl Witness {
    /// Starts it, in the calling process's group.
    pub fn start() -> io::Result<Witness> {
        let (reports, to_us) = pipe2(OFlag::O_CLOEXEC)?;
        let (its_life, life) = pipe2(OFlag::O_CLOEXEC)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).arg(NAME).env_clear().current_dir("/");
        command.stdin(Stdio::from(its_life)).stdout(Stdio::from(to_us)).stderr(Stdio::null());
        start_with_blocked(&mut command, Inbox::held());
        let pid = command.spawn()?.id() as Pid;
        Ok(Witness { pid, reports: reports.into(), heard: Vec::new(), _life: life.into() })
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the witness got this signal too. Waits a moment for it.
    pub fn saw(&mut self, signal: Signal, from: Pid) -> bool {
        let (now, begun) = (Mono::now().0, Instant::now());
        loop {
            self.heard.retain(|report| report.at.saturating_add(FRESH_NS) > now);
            if let Some(at) = self.heard.iter().position(|heard| heard.signal == signal as i32 && heard.from == from) {
                self.heard.swap_remove(at);
                return true;
            }
            let left = PollTimeout::try_from(PATIENCE.saturating_sub(begun.elapsed())).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(self.reports.as_fd(), PollFlags::POLLIN)];
            let mut record = [0; RECORD];
            // Records are written whole (PIPE_BUF). An end of file is the witness's own end.
            if !matches!(poll(&mut fds, left), Ok(1)) || self.reports.read_exact(&mut record).is_err() {
                return false;
            }
            self.heard.push(Report::parse(record));
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // Reaped here unless the supervisor has found it dead: then its pid may be another's already.
        if matches!(reap(self.pid, false), Ok(None)) && kill(NixPid::from_raw(self.pid), Signal::SIGKILL).is_ok() {
            let _ = reap(self.pid, true);
        }
    }
}

/// The witness's process. Must be dispatched before anything opens a descriptor.
pub fn main(_arguments: impl Iterator<Item = OsString>) -> ExitCode {
    close_all_but(&[]);
    // Only the name is lost if this fails.
    let _ = nix::sys::prctl::set_name(c"signal-witness");
    let (Some(life), Some(to), Ok(inbox)) = (adopt(0), adopt(1), Inbox::open()) else { return ExitCode::FAILURE };
    let mut to = File::from(to);
    loop {
        let mut fds = [PollFd::new(life.as_fd(), PollFlags::POLLIN), PollFd::new(inbox.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return ExitCode::FAILURE,
            Ok(_) => {}
        }
        while let Some(notice) = inbox.next() {
            if let Notice::ForCommand { signal, from: Sender::Process(from) } = notice {
                let report = Report { signal: signal as i32, from, at: Mono::now().0 };
                if to.write_all(&report.bytes()).is_err() {
                    return ExitCode::SUCCESS;
                }
            }
        }
        if fds[0].any() == Some(true) {
            return ExitCode::SUCCESS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        let report = Report { signal: 15, from: 4321, at: u64::MAX - 7 };
        assert_eq!(Report::parse(report.bytes()), report);
    }
}
