//! Signals sent to the profiler are meant for the command: forwarded once, unless the terminal already gave them to the
//! whole foreground group.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::event::Pid;
use crate::sys::process::{set_disposition, set_mask};
use crate::sys::startup::{self, Signals};

/// The signals that are forwarded. SIGTSTP among them does not stop the profiler: a command may have other plans for it.
/// The profiler stops when the command has. SIGTTIN and SIGTTOU keep their own action: the kernel sends them to a whole
/// group, which so stops together.
const FORWARDED: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGINT,
    Signal::SIGTSTP,
    // Continues the profiler too, although it is blocked (signal(7)).
    Signal::SIGCONT,
];

/// Holds back, in the calling thread and those that it starts from now on, the signals that a launch has to do with;
/// they wait until [`Inbox`] takes them. Must be called before any other thread is started: a thread without this
/// would be killed in the command's stead.
pub fn hold() {
    // Ignored by our parent, this one would make the kernel reap the command, and its status would be lost.
    set_disposition(libc::SIGCHLD, false);
    // A write beyond RLIMIT_FSIZE is an error to be told, not the profiler's end (setrlimit(2)). The command gets its
    // own disposition back.
    set_disposition(libc::SIGXFSZ, true);
    // Cannot fail with these arguments.
    let _ = all().thread_block();
}

/// Stops the whole process as a signal for stopping does by default, until it is continued.
pub fn stop_by(signal: Signal) {
    let mut only = SigSet::empty();
    only.add(signal);
    // SIGSTOP cannot be blocked; of the others the one raised here is taken as soon as it is let through.
    let _ = raise(signal);
    let _ = only.thread_unblock();
    let _ = only.thread_block();
}

/// Gives the calling thread the mask back that the process was started with: for after the launch, so that a signal
/// ends the profiler itself again.
pub fn release() {
    set_mask(startup::given().blocked);
}

/// Whether a signal that would have ended the command waits since [`hold`] (proc_pid_status(5), SigPnd and ShdPnd).
pub fn waits() -> bool {
    const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let pending = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    pending
        .filter_map(|set| u64::from_str_radix(set.trim(), 16).ok())
        .any(|set| ENDING.iter().any(|signal| Signals(set).contains(*signal as i32)))
}

fn all() -> SigSet {
    FORWARDED.into_iter().chain([Signal::SIGCHLD, Signal::SIGWINCH]).collect()
}

/// What a signal means to the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A child changed its state.
    Child,
    /// The terminal's size changed.
    Resized,
    /// A signal for the command.
    ForCommand { signal: Signal, from: Sender },
    /// None of the above.
    Other,
}

/// Who sent a signal (sigaction(2), si_code).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The kernel: a key at the terminal, or its hanging up.
    Kernel,
    Process(Pid),
}

/// Signals held back so far, and those to come.
#[derive(Debug)]
pub struct Inbox(SignalFd);

impl Inbox {
    /// The signals that come to it, and that [`hold`] blocks.
    pub fn held() -> Signals {
        Signals(all().iter().fold(0, |set, signal| set | 1 << (signal as i32 - 1)))
    }

    /// Opens it; [`hold`] must have been called.
    pub fn open() -> Result<Inbox, Errno> {
        Ok(Inbox(SignalFd::with_flags(&all(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// The next signal that waits, if one does.
    pub fn next(&self) -> Option<Notice> {
        let info = self.0.read_signal().ok()??;
        let sender = match info.ssi_code {
            libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL => Sender::Process(info.ssi_pid as Pid),
            _ => Sender::Kernel,
        };
        Some(match Signal::try_from(info.ssi_signo as i32) {
            Ok(Signal::SIGCHLD) => Notice::Child,
            Ok(Signal::SIGWINCH) => Notice::Resized,
            Ok(signal) if FORWARDED.contains(&signal) => Notice::ForCommand { signal, from: sender },
            _ => Notice::Other,
        })
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a signal still has to be given to the command.
///
/// `same_group`: the command's root is in the profiler's process group. `from_tree`: the sender is of the command's
/// own tree, so that what reached the profiler was sent to the group, or to the profiler as an adopting parent.
/// `to_group`: it was sent to the profiler's whole process group.
pub fn must_forward(from: Sender, same_group: bool, from_tree: bool, to_group: bool) -> bool {
    match from {
        // The group that the terminal signals was ours; a root that left it got nothing.
        Sender::Kernel => !same_group,
        Sender::Process(_) => !(from_tree || to_group && same_group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_terminal_gave_to_the_group_is_not_doubled() {
        assert!(!must_forward(Sender::Kernel, true, false, false));
        assert!(must_forward(Sender::Kernel, false, false, false));
        assert!(must_forward(Sender::Process(1), true, false, false));
        assert!(must_forward(Sender::Process(1), false, false, false));
        assert!(!must_forward(Sender::Process(1), true, true, false));
        assert!(!must_forward(Sender::Process(1), true, false, true));
        assert!(must_forward(Sender::Process(1), false, false, true));
    }
}
