//! A terminal's modes: what the command sets on the pty that stands for its terminal is set on the terminal itself.
//!
//! Programs that draw on the whole screen set the modes of their output (ncurses does so on standard output), but read
//! keys from their input, which is the real terminal. Only changes are copied, and only what has changed, so that modes
//! which somebody else sets on the terminal meanwhile are left alone. Nothing is ever set that the command did not
//! set, and nothing is restored that the command would have left.
//!
//! It is done by looking, many times a second: nothing tells when a pty's modes change, but for a mode of the pty
//! (packet mode) in which its bytes could not be passed on as they are. What is set and set back between two looks is
//! not seen.

use std::os::fd::BorrowedFd;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

/// The modes of one pty, as the terminal has got them.
#[derive(Clone, Copy, Debug)]
pub struct Modes {
    /// Whether the terminal processed output at the start. The pty never does: the terminal does it.
    processes_output: bool,
    seen: Flags,
    /// All that the command has changed so far.
    touched: Flags,
}

/// What is copied: neither speed nor character size means anything to a pty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags {
    input: libc::tcflag_t,
    output: libc::tcflag_t,
    local: libc::tcflag_t,
    keys: [libc::cc_t; libc::NCCS],
}

impl Modes {
    /// Begins with a terminal and the pty made to look like it, by its master.
    pub fn of(terminal: BorrowedFd<'_>, master: BorrowedFd<'_>) -> nix::Result<Modes> {
        let terminal = libc::termios::from(tcgetattr(terminal)?);
        let processes_output = terminal.c_oflag & libc::OPOST != 0;
        Ok(Modes { processes_output, seen: Flags::of(master, processes_output)?, touched: Flags::default() })
    }

    /// Whether the command has changed modes that the terminal has not got yet.
    pub fn have_changed(&self, master: BorrowedFd<'_>) -> bool {
        Flags::of(master, self.processes_output).is_ok_and(|now| now != self.seen)
    }

    /// Copies what has changed to the terminal.
    pub fn copy(&mut self, terminal: BorrowedFd<'_>, master: BorrowedFd<'_>) {
        let Ok(now) = Flags::of(master, self.processes_output) else { return };
        let changed = now.differences(&self.seen);
        self.touched = self.touched.or(&changed);
        self.seen = now;
        set(terminal, &now, &changed);
    }

    /// Copies all that the command has ever changed once more: the terminal was another's meanwhile.
    pub fn copy_again(&mut self, terminal: BorrowedFd<'_>, master: BorrowedFd<'_>) {
        self.copy(terminal, master);
        if self.touched != Flags::default() {
            set(terminal, &self.seen, &self.touched);
        }
    }
}

impl Flags {
    /// Those of a pty, by its master (tty_ioctl(4): the master answers for its slave), with the output processing that
    /// the command means to have.
    fn of(master: BorrowedFd<'_>, processes_output: bool) -> nix::Result<Flags> {
        let modes = libc::termios::from(tcgetattr(master)?);
        let mut flags = Flags { input: modes.c_iflag, output: modes.c_oflag, local: modes.c_lflag, keys: modes.c_cc };
        // A program that asks for raw modes (cfmakeraw(3)) asks for raw output with them; on the pty it was raw before.
        let cooked = libc::ICANON | libc::ECHO | libc::ISIG | libc::IEXTEN;
        let raw = flags.local & cooked == 0 && flags.input & (libc::ICRNL | libc::IXON) == 0;
        flags.output &= !libc::OPOST;
        if processes_output && !raw {
            flags.output |= libc::OPOST;
        }
        Ok(flags)
    }

    /// Ones where two differ; for keys, any bits.
    fn differences(&self, other: &Flags) -> Flags {
        Flags {
            input: self.input ^ other.input,
            output: self.output ^ other.output,
            local: self.local ^ other.local,
            keys: std::array::from_fn(|key| self.keys[key] ^ other.keys[key]),
        }
    }

    fn or(&self, other: &Flags) -> Flags {
        Flags {
            input: self.input | other.input,
            output: self.output | other.output,
            local: self.local | other.local,
            keys: std::array::from_fn(|key| self.keys[key] | other.keys[key]),
        }
    }
}

/// Sets on a terminal what `mask` names of `flags`.
fn set(terminal: BorrowedFd<'_>, flags: &Flags, mask: &Flags) {
    let Ok(modes) = tcgetattr(terminal) else { return };
    let mut modes = libc::termios::from(modes);
    let mix = |old: libc::tcflag_t, new: libc::tcflag_t, mask: libc::tcflag_t| old & !mask | new & mask;
    modes.c_iflag = mix(modes.c_iflag, flags.input, mask.input);
    modes.c_oflag = mix(modes.c_oflag, flags.output, mask.output);
    modes.c_lflag = mix(modes.c_lflag, flags.local, mask.local);
    for key in 0..libc::NCCS {
        if mask.keys[key] != 0 {
            modes.c_cc[key] = flags.keys[key];
        }
    }
    // The caller has looked whether the terminal is the command's; should it be another's by now, SIGTTOU would stop
    // the whole job unless it is blocked (tcsetattr(3p)).
    let mut held = SigSet::empty();
    held.add(Signal::SIGTTOU);
    let Ok(before) = held.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK) else { return };
    // A terminal that is gone has no modes.
    let _ = tcsetattr(terminal, SetArg::TCSANOW, &Termios::from(modes));
    let _ = before.thread_set_mask();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::process::pty_slave;
    use nix::fcntl::OFlag;
    use nix::pty::{PtyMaster, posix_openpt, unlockpt};
    use nix::sys::termios::{InputFlags, LocalFlags, OutputFlags, cfmakeraw};
    use std::os::fd::{AsFd, OwnedFd};

    fn pty() -> (PtyMaster, OwnedFd) {
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        unlockpt(&master).unwrap();
        let slave = pty_slave(master.as_fd()).unwrap();
        (master, slave)
    }

    fn change(fd: &OwnedFd, change: impl FnOnce(&mut Termios)) -> Termios {
        let before = tcgetattr(fd).unwrap();
        let mut modes = before.clone();
        change(&mut modes);
        tcsetattr(fd, SetArg::TCSANOW, &modes).unwrap();
        before
    }

    #[test]
    fn only_what_the_command_changed_is_set_and_it_can_set_it_back() {
        let ((_keep, terminal), (master, command)) = (pty(), pty());
        change(&command, |modes| modes.output_flags.remove(OutputFlags::OPOST));
        let mut modes = Modes::of(terminal.as_fd(), master.as_fd()).unwrap();
        assert!(!modes.have_changed(master.as_fd()));
        // Somebody else's change of the terminal itself.
        change(&terminal, |modes| modes.input_flags.insert(InputFlags::IUTF8));
        let first = change(&command, |modes| modes.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO));
        assert!(modes.have_changed(master.as_fd()));
        modes.copy(terminal.as_fd(), master.as_fd());
        let now = tcgetattr(&terminal).unwrap();
        assert!(!now.local_flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO));
        assert!(now.local_flags.contains(LocalFlags::ISIG) && now.input_flags.contains(InputFlags::IUTF8));
        assert!(now.output_flags.contains(OutputFlags::OPOST));
        tcsetattr(&command, SetArg::TCSANOW, &first).unwrap();
        modes.copy(terminal.as_fd(), master.as_fd());
        let now = tcgetattr(&terminal).unwrap();
        assert!(now.local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO));
        assert!(now.input_flags.contains(InputFlags::IUTF8));
    }

    #[test]
    fn raw_modes_have_raw_output() {
        let ((_keep, terminal), (master, command)) = (pty(), pty());
        change(&command, |modes| modes.output_flags.remove(OutputFlags::OPOST));
        let mut modes = Modes::of(terminal.as_fd(), master.as_fd()).unwrap();
        let first = change(&command, cfmakeraw);
        modes.copy(terminal.as_fd(), master.as_fd());
        assert!(!tcgetattr(&terminal).unwrap().output_flags.contains(OutputFlags::OPOST));
        tcsetattr(&command, SetArg::TCSANOW, &first).unwrap();
        modes.copy(terminal.as_fd(), master.as_fd());
        assert!(tcgetattr(&terminal).unwrap().output_flags.contains(OutputFlags::OPOST));
    }

    #[test]
    fn what_another_set_meanwhile_is_set_again() {
        let ((_keep, terminal), (master, command)) = (pty(), pty());
        let mut modes = Modes::of(terminal.as_fd(), master.as_fd()).unwrap();
        change(&command, |modes| modes.local_flags.remove(LocalFlags::ICANON));
        modes.copy(terminal.as_fd(), master.as_fd());
        change(&terminal, |modes| modes.local_flags.insert(LocalFlags::ICANON));
        assert!(!modes.have_changed(master.as_fd()));
        modes.copy_again(terminal.as_fd(), master.as_fd());
        assert!(!tcgetattr(&terminal).unwrap().local_flags.contains(LocalFlags::ICANON));
        // The last end of the command being closed does not hide what it set.
        change(&command, |modes| modes.local_flags.insert(LocalFlags::ICANON));
        drop(command);
        modes.copy(terminal.as_fd(), master.as_fd());
        assert!(tcgetattr(&terminal).unwrap().local_flags.contains(LocalFlags::ICANON));
    }
}
