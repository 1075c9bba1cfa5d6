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
use nix::sys::stat::{FileStat, fstat, stat};

/// The terminal of whoever opens it.
const OWN: &str = "/dev/tty";

#[derive(Debug)]
pub(super) struct Beside {
    inotify: Inotify,
    /// The terminal was given to this process as `/dev/tty`, so that what it writes itself is told too.
    tells_own: bool,
}

impl Beside {
    /// Begins to look at a terminal. Errors: inotify is not to be had, or its watches are used up.
    pub fn of(terminal: BorrowedFd<'_>) -> nix::Result<Beside> {
        let mut beside = Beside::at(OWN)?;
        let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
        beside.inotify.add_watch(path.as_str(), AddWatchFlags::IN_OPEN)?;
        let of_own = stat(OWN).is_ok_and(|own| fstat(terminal).is_ok_and(|it| is_one_file(&own, &it)));
        beside.tells_own = of_own;
        Ok(beside)
    }

    fn at(own: &str) -> nix::Result<Beside> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        match inotify.add_watch(own, AddWatchFlags::IN_MODIFY) {
            // Nobody can open what is not there.
            Ok(_) | Err(Errno::ENOENT) => Ok(Beside { inotify, tells_own: false }),
            Err(errno) => Err(errno),
        }
    }

    /// Whether somebody has written since the last call, or where that cannot be told.
    pub fn wrote(&self) -> bool {
        !matches!(self.inotify.read_events(), Err(Errno::EAGAIN))
    }

    /// To be called when this process has written there itself. What others wrote meanwhile is not lost for it, but where
    /// the two cannot be told apart.
    pub fn wrote_itself(&self) {
        if self.tells_own {
            let _ = self.wrote();
        }
    }
}

fn is_one_file(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Can be read from when somebody has written.
impl AsFd for Beside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
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
        beside.inotify.add_watch(path.as_str(), AddWatchFlags::IN_OPEN).unwrap();
        assert!(!beside.wrote());
        // To be opened alone is what every bash does with /dev/tty.
        let mut file = File::options().write(true).open(own.path()).unwrap();
        terminal.as_file().write_all(b"the profiler's own").unwrap();
        assert!(!beside.wrote());
        file.write_all(b"name? ").unwrap();
        // Nor does it go by what this process writes elsewhere meanwhile.
        beside.wrote_itself();
        assert!(beside.wrote());
        assert!(!beside.wrote());
        File::open(terminal.path()).unwrap();
        assert!(beside.wrote());
        Beside::at("/dev/no such terminal").unwrap();
    }
}
