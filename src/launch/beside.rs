//! Who writes to a terminal past the pump: through `/dev/tty`, as programs do that ask for a word on it, or through the
//! terminal opened by its own name.
//!
//! inotify(7) tells, of the file that was opened and not of the device behind it: of `/dev/tty` each write, whosoever
//! terminal it goes to; of the terminal's own file that it was opened, since those who have it open already (the shell,
//! the profiler) write to it as well. What is written to a terminal that a program was given, as its standard input,
//! nobody tells.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// The terminal of whoever opens it.
const OWN: &str = "/dev/tty";

#[derive(Debug)]
pub(super) struct Beside(Inotify);

impl Beside {
    /// Begins to look at a terminal. Errors: inotify is not to be had, or its watches are used up.
    pub fn of(terminal: BorrowedFd<'_>) -> nix::Result<Beside> {
        let beside = Beside::at(OWN)?;
        let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
        beside.0.add_watch(path.as_str(), AddWatchFlags::IN_OPEN)?;
        Ok(beside)
    }

    fn at(own: &str) -> nix::Result<Beside> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        match inotify.add_watch(own, AddWatchFlags::IN_MODIFY) {
            // Nobody can open what is not there.
            Ok(_) | Err(Errno::ENOENT) => Ok(Beside(inotify)),
            Err(errno) => Err(errno),
        }
    }

    /// Whether somebody has written since the last call, or where that cannot be told.
    pub fn wrote(&self) -> bool {
        !matches!(self.0.read_events(), Err(Errno::EAGAIN))
    }
}

/// Can be read from when somebody has written.
impl AsFd for Beside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_write_is_told_once_and_an_opening_of_the_terminal() {
        let own = tempfile::NamedTempFile::new().unwrap();
        let terminal = tempfile::NamedTempFile::new().unwrap();
        let beside = Beside::at(own.path().to_str().unwrap()).unwrap();
        let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
        beside.0.add_watch(path.as_str(), AddWatchFlags::IN_OPEN).unwrap();
        assert!(!beside.wrote());
        // To be opened alone is what every bash does with /dev/tty.
        let mut file = File::options().write(true).open(own.path()).unwrap();
        terminal.as_file().write_all(b"the profiler's own").unwrap();
        assert!(!beside.wrote());
        file.write_all(b"name? ").unwrap();
        assert!(beside.wrote());
        assert!(!beside.wrote());
        File::open(terminal.path()).unwrap();
        assert!(beside.wrote());
        Beside::at("/dev/no such terminal").unwrap();
    }
}
