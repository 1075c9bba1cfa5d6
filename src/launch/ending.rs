//! Signals that end a verb which has many parts, a series of runs or of copies: held back, so that they end the series and
//! not the process, and what was done is kept.
//!
//! One that the process was told to ignore, as `nohup` tells it of SIGHUP, is ignored.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::sys::process::set_disposition;
use crate::sys::startup;

const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// How long is waited at a time.
const PATIENCE_MS: u16 = 1000;

/// The signals held back. Children inherit that they are blocked, unless they are started otherwise.
pub struct Ending {
    inbox: SignalFd,
    /// The first one that came.
    pub interrupted: Option<Signal>,
}

impl Ending {
    /// Must be called before other threads are started.
    ///
    /// # Errors
    /// As signalfd(2).
    pub fn hold() -> io::Result<Ending> {
        // Ignored by our parent, this one would make the kernel reap the children, and their status would be lost.
        set_disposition(libc::SIGCHLD, false);
        let ignored = startup::given().ignored;
        let meant = ENDING.into_iter().filter(|signal| !ignored.contains(*signal as i32));
        let all: SigSet = meant.chain([Signal::SIGCHLD]).collect();
        all.thread_block()?;
        let inbox = SignalFd::with_flags(&all, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Ending { inbox, interrupted: None })
    }

    /// Takes what has come; gives what somebody sent to this process alone, and a child has to be told.
    pub fn take(&mut self) -> Vec<Signal> {
        let mut to_tell = Vec::new();
        while let Ok(Some(info)) = self.inbox.read_signal() {
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { continue };
            if signal == Signal::SIGCHLD {
                continue;
            }
            self.interrupted.get_or_insert(signal);
            if matches!(info.ssi_code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL) {
                to_tell.push(signal);
            }
        }
        to_tell
    }

    /// Whether the series is to end.
    pub fn is_interrupted(&mut self) -> bool {
        self.take();
        self.interrupted.is_some()
    }

    /// An error where it is to end, which names the signal.
    ///
    /// # Errors
    /// See above.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.take();
        match self.interrupted {
            Some(signal) => Err(anyhow::anyhow!("ended by {signal}")),
            None => Ok(()),
        }
    }

    /// Waits for a signal, a child's end among them; for a second at most.
    pub fn wait(&self) {
        let mut fds = [PollFd::new(self.inbox.as_fd(), PollFlags::POLLIN)];
        // An error, or a signal that was lost, is met by looking again.
        if let Err(error) = poll(&mut fds, PollTimeout::from(PATIENCE_MS))
            && error != Errno::EINTR
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until there is something to be read, or nothing ever will.
    ///
    /// # Errors
    /// As [`Ending::check`], where a signal comes first.
    pub fn readable(&mut self, source: impl AsFd) -> anyhow::Result<()> {
        loop {
            self.check()?;
            let mut fds = [source.as_fd(), self.inbox.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut fds, PollTimeout::from(PATIENCE_MS)) {
                Ok(_) if fds[0].any() == Some(false) => {}
                Err(Errno::EINTR) => {}
                // Of anything else the reading tells.
                _ => return Ok(()),
            }
        }
    }
}
