//! The witness: a tiny process in the command's process group that says which signals came to it too.
//!
//! A signal that a process sends to the whole group (`kill %1`, timeout(1), a service manager that stops every process
//! of a service) reaches the command by itself, and its siginfo does not say that it was sent to more than one. What
//! the witness got too, from the same sender, was not meant for the profiler alone and is not forwarded.
//!
//! # Two of a kind
//!
//! A signal that is pending is not queued a second time (signal(7)), and each process comes to its own at its own time:
//! of two that were sent to the group, the profiler may see two and the witness one, or the other way round. So signals
//! are not counted. What was sent to the group was pending at the witness when it was sent, and the witness read it
//! later: a report stands for every signal of its kind and sender that may have been sent before it was read, however
//! many they are. A report that is older than the signal stands for one at most, and only for a moment: whoever
//! signals a group's processes one by one may come to the witness first.
//!
//! So the command is never given more signals of a kind than were sent. What can be lost is one that was sent to the
//! profiler alone while an earlier one of its kind and sender, sent to the group, still waited for the witness: a
//! moment in which two to one process would be one as well.

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
/// How long at most, where the witness would run and cannot.
const LONGEST: Duration = Duration::from_secs(1);
/// How much older than a signal a report may be that stands for it, in nanoseconds; as long as it is waited for.
const EARLY_NS: u64 = PATIENCE.as_nanos() as u64;
/// How long reports are kept, in nanoseconds.
const KEPT_NS: u64 = 10_000_000_000;
/// Signal, sender, moment.
const RECORD: usize = 16;

/// The witness's process.
#[derive(Debug)]
pub struct Witness {
    pid: Pid,
    reports: File,
    heard: Heard,
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

/// What the witness has said, each with whether it has stood for a signal yet.
#[derive(Debug, Default)]
struct Heard(Vec<(Report, bool)>);

impl Heard {
    /// Whether something that was said stands for a signal that was sent at `sent` or later.
    fn stands_for(&mut self, signal: Signal, from: Pid, sent: Mono) -> bool {
        let of_its_kind = |report: &Report| report.signal == signal as i32 && report.from == from;
        let mut found = false;
        for (report, used) in self.0.iter_mut().filter(|(report, _)| of_its_kind(report)) {
            if report.at >= sent.0 {
                (found, *used) = (true, true);
            }
        }
        if !found {
            let early = sent.0.saturating_sub(EARLY_NS);
            let unused = |(report, used): &&mut (Report, bool)| of_its_kind(report) && !*used && report.at >= early;
            if let Some((_, used)) = self.0.iter_mut().find(unused) {
                (found, *used) = (true, true);
            }
        }
        found
    }

    fn add(&mut self, report: Report) {
        self.0.retain(|(old, _)| old.at.saturating_add(KEPT_NS) > report.at);
        self.0.push((report, false));
    }
}

/// What the witness does, with regard to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The signal waits for it to be taken.
    Behind,
    /// It runs, or would: it may have taken the signal and not said so yet.
    Busy,
    /// It waits for what comes next.
    Asleep,
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
        Ok(Witness { pid, reports: reports.into(), heard: Heard::default(), _life: life.into() })
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the witness got this signal too, which was sent at `sent` or later. Waits a moment for it.
    pub fn saw(&mut self, signal: Signal, from: Pid, sent: Mono) -> bool {
        let begun = Instant::now();
        let mut limit = PATIENCE;
        loop {
            if self.heard.stands_for(signal, from, sent) {
                return true;
            }
            let left = limit.saturating_sub(begun.elapsed());
            if self.listen(left) {
                continue;
            }
            // It may not have come to run in all that time.
            match self.doing(signal) {
                Doing::Behind => return true,
                Doing::Busy if limit < LONGEST => limit += PATIENCE,
                // What it said before it went to sleep again is there by now.
                Doing::Asleep | Doing::Busy if !self.listen(Duration::ZERO) => return false,
                Doing::Asleep | Doing::Busy => {}
            }
        }
    }

    /// Takes one report; `false` where none came in time, or none will come any more.
    fn listen(&mut self, limit: Duration) -> bool {
        // Rounded up, so that a limit that is not over is never taken for one that is.
        let limit = if limit.is_zero() { limit } else { limit + Duration::from_millis(1) };
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(self.reports.as_fd(), PollFlags::POLLIN)];
        let mut record = [0; RECORD];
        // Records are written whole (PIPE_BUF). An end of file is the witness's own end.
        if !matches!(poll(&mut fds, limit), Ok(1)) || self.reports.read_exact(&mut record).is_err() {
            return false;
        }
        self.heard.add(Report::parse(record));
        true
    }

    /// What the witness does now (proc_pid_status(5)). One that is gone, or cannot be seen, says nothing any more.
    fn doing(&self, signal: Signal) -> Doing {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
        let pending = u64::from_str_radix(field("ShdPnd:"), 16).unwrap_or(0);
        match field("State:").starts_with('R') {
            _ if pending >> (signal as i32 - 1) & 1 == 1 => Doing::Behind,
            true => Doing::Busy,
            false => Doing::Asleep,
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

    const FROM: Pid = 4321;
    const MS: u64 = 1_000_000;

    fn heard(at: &[u64]) -> Heard {
        let mut heard = Heard::default();
        at.iter().for_each(|at| heard.add(Report { signal: Signal::SIGTERM as i32, from: FROM, at: 1_000 * MS + at }));
        heard
    }

    fn stands(heard: &mut Heard, sent: u64) -> bool {
        heard.stands_for(Signal::SIGTERM, FROM, Mono(1_000 * MS + sent))
    }

    #[test]
    fn one_report_stands_for_all_that_were_sent_before_it() {
        // Two to the group, which were one to the witness.
        let mut heard = heard(&[MS]);
        assert!(stands(&mut heard, 0));
        assert!(stands(&mut heard, MS / 2));
        // A third, to the profiler alone, sent when the witness had read them.
        assert!(!stands(&mut heard, MS + 1));
    }

    #[test]
    fn an_older_report_stands_for_one_and_not_for_long() {
        let mut one_by_one = heard(&[0]);
        assert!(stands(&mut one_by_one, 2 * MS));
        assert!(!stands(&mut one_by_one, 3 * MS));
        assert!(!stands(&mut heard(&[0]), EARLY_NS + 1));
        // Two to the witness, which were one to the profiler: both stood for it.
        let mut two = heard(&[MS, 2 * MS]);
        assert!(stands(&mut two, 0));
        assert!(!stands(&mut two, 3 * MS));
    }

    #[test]
    fn kind_and_sender_are_part_of_it() {
        let mut heard = heard(&[MS]);
        assert!(!heard.stands_for(Signal::SIGINT, FROM, Mono(1_000 * MS)));
        assert!(!heard.stands_for(Signal::SIGTERM, FROM + 1, Mono(1_000 * MS)));
        heard.add(Report { signal: Signal::SIGINT as i32, from: FROM, at: 1_000 * MS + KEPT_NS + MS });
        assert!(!stands(&mut heard, 0), "forgotten by now");
    }

    #[test]
    fn reports_survive_the_pipe() {
        let report = Report { signal: 15, from: 4321, at: u64::MAX - 7 };
        assert_eq!(Report::parse(report.bytes()), report);
    }
}
