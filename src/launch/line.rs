//! One line of the profiler's own on the terminal that the command's output goes to, and how the two are kept apart.
//!
//! The command's bytes are the terminal's business and nobody else's. So the line is there only while the command has
//! printed nothing at all: before the command's first byte is passed on, its pump, which alone passes bytes on, wipes
//! the line and closes it, for good. A line that was drawn between two outputs of the command could not be wiped
//! without knowing where the command had left the cursor, and the pump does not look at what it carries.
//!
//! And it is drawn only where nobody else is known to write there: both of the command's streams go to this one
//! terminal, through one pump, or standard output is a file; this process group has the terminal; and its keys are
//! echoed and come by lines, as they do not while a program asks for a password or draws on the whole screen, on
//! `/dev/tty` past the pump. Whoever is seen to write there ([`super::beside`]) has the line to himself from then on: what
//! stands is left, not wiped, since a question may stand behind it, and nothing is drawn any more.
//!
//! Drawer and pump are two processes. A slot of the page that they share says whose turn it is; neither waits for the
//! other for long, whatever became of it, and a pump that takes over from one that was killed goes on from the slot.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::{getpgrp, tcgetpgrp, write};

use super::beside::Beside;
use crate::sys::process::{SharedPage, window_size};

/// What the slot has.
mod state {
    /// Nothing is drawn.
    pub const BLANK: u64 = 0;
    pub const DRAWN: u64 = 1;
    /// The drawer is about to write.
    pub const DRAWING: u64 = 2;
    /// The command has printed, somebody else has, or it is over: nothing is drawn any more.
    pub const CLOSED: u64 = 3;
}

/// The slot of the page.
pub const SLOT: usize = 4;
/// To the beginning of the line, and all of it wiped.
const WIPE: &[u8] = b"\r\x1b[K";
/// How long the command's first byte waits for a drawer that has begun to write. One that takes longer was stopped or
/// killed in between, or waits for the terminal, as the byte will have to.
const PATIENCE: Duration = Duration::from_millis(200);
/// In fewer columns there is nothing to be said.
const NARROWEST: usize = 20;

/// Of the pump: to be called before anything is passed on. Wipes the line if there is one; from then on there is none.
pub(super) fn make_room(slot: &AtomicU64, destination: BorrowedFd<'_>) {
    close(slot, destination, PATIENCE);
}

fn close(slot: &AtomicU64, destination: BorrowedFd<'_>, patience: Duration) {
    let mut until = None;
    loop {
        let now = slot.load(SeqCst);
        if now == state::CLOSED {
            return;
        }
        if now == state::DRAWING && Instant::now() < *until.get_or_insert_with(|| Instant::now() + patience) {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        if slot.compare_exchange(now, state::CLOSED, SeqCst, SeqCst).is_ok() {
            if now != state::BLANK {
                // A terminal that is gone has no line.
                let _ = write(destination, WIPE);
            }
            return;
        }
    }
}

/// The drawer's end.
#[derive(Debug)]
pub struct LiveLine {
    terminal: OwnedFd,
    page: SharedPage,
    beside: Beside,
}

/// Why a wait was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// So much time has passed, or nothing will ever be drawn any more.
    Due,
    /// The other end of `end` was closed.
    Ended,
}

impl LiveLine {
    pub(super) fn of(terminal: BorrowedFd<'_>, page: BorrowedFd<'_>) -> io::Result<LiveLine> {
        let (terminal, page) = (terminal.try_clone_to_owned()?, SharedPage::open(page.try_clone_to_owned()?)?);
        // Without a look at who else writes there, nothing is drawn.
        let beside = Beside::of(terminal.as_fd())?;
        Ok(LiveLine { terminal, page, beside })
    }

    /// Waits for so long, or until `end`'s other end is closed. Whoever writes past the pump meanwhile is left alone at
    /// once: the command's first byte, and with it the wiping, may be about to follow.
    pub fn wait(&self, limit: Duration, end: BorrowedFd<'_>) -> Waited {
        let until = Instant::now() + limit;
        loop {
            // To the next millisecond: one too early would be no wait at all.
            let rest = until.saturating_duration_since(Instant::now()).as_millis() + 1;
            let mut fds = [PollFd::new(end, PollFlags::POLLIN), PollFd::new(self.beside.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX));
            if fds[0].any().unwrap_or(true) {
                return Waited::Ended;
            }
            if matches!(ready, Ok(1..)) && self.beside.wrote() {
                self.leave();
            }
            if self.is_closed() || Instant::now() >= until {
                return Waited::Due;
            }
        }
    }

    /// Draws nothing any more, and leaves what stands there as it stands.
    fn leave(&self) {
        self.page.slot(SLOT).store(state::CLOSED, SeqCst);
    }

    /// Whether nothing will ever be drawn any more.
    pub fn is_closed(&self) -> bool {
        self.page.slot(SLOT).load(SeqCst) == state::CLOSED
    }

    /// How many columns there are for it; `None` where it must not be drawn now.
    pub fn room(&self) -> Option<usize> {
        let terminal = self.terminal.as_fd();
        if tcgetpgrp(terminal) != Ok(getpgrp()) {
            return None;
        }
        let modes = tcgetattr(terminal).ok()?;
        if !modes.local_flags.contains(LocalFlags::ECHO | LocalFlags::ICANON) {
            return None;
        }
        // The last column stays free: a terminal may go to the next line behind it.
        let columns = usize::from(window_size(terminal)?.ws_col).checked_sub(1)?;
        (columns >= NARROWEST).then_some(columns)
    }

    /// Draws a text in place of what was drawn before. It is fit to be shown and has no more columns than there is room
    /// for. May wait for a terminal whose output was stopped.
    pub fn draw(&self, text: &str) {
        let slot = self.page.slot(SLOT);
        let before = slot.load(SeqCst);
        if before == state::CLOSED || slot.compare_exchange(before, state::DRAWING, SeqCst, SeqCst).is_err() {
            return;
        }
        if self.beside.wrote() {
            return self.leave();
        }
        let bytes = [WIPE, text.as_bytes()].concat();
        let _ = write(&self.terminal, &bytes);
        self.beside.wrote_itself();
        // Closed meanwhile by a pump that was tired of waiting: what stands there now may be the command's.
        let _ = slot.compare_exchange(state::DRAWING, state::DRAWN, SeqCst, SeqCst);
    }

    /// Wipes it, for good.
    pub fn close(&self) {
        close(self.page.slot(SLOT), self.terminal.as_fd(), PATIENCE);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    fn line() -> (LiveLine, std::io::PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        let page = SharedPage::new().unwrap();
        (LiveLine::of(writer.as_fd(), page.as_fd()).unwrap(), reader)
    }

    fn written((line, mut reader): (LiveLine, std::io::PipeReader)) -> String {
        drop(line);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn it_is_wiped_before_the_first_byte_and_never_drawn_again() {
        let line = line();
        line.0.draw("one");
        line.0.draw("two");
        make_room(line.0.page.slot(SLOT), line.0.terminal.as_fd());
        assert!(line.0.is_closed());
        line.0.draw("three");
        line.0.close();
        make_room(line.0.page.slot(SLOT), line.0.terminal.as_fd());
        assert_eq!(written(line), "\r\u{1b}[Kone\r\u{1b}[Ktwo\r\u{1b}[K");
    }

    #[test]
    fn a_terminal_on_which_nothing_was_drawn_gets_no_byte() {
        let line = line();
        make_room(line.0.page.slot(SLOT), line.0.terminal.as_fd());
        line.0.draw("late");
        line.0.close();
        assert_eq!(written(line), "");
    }

    /// A drawer that was killed in between holds nobody up for long, and what it may have written is wiped.
    #[test]
    fn a_drawer_that_is_gone_is_not_waited_for() {
        let line = line();
        line.0.page.slot(SLOT).store(state::DRAWING, SeqCst);
        close(line.0.page.slot(SLOT), line.0.terminal.as_fd(), Duration::from_millis(1));
        assert!(line.0.is_closed());
        assert_eq!(written(line), "\r\u{1b}[K");
    }

    /// A question stands behind it, or in its place, and is not wiped.
    #[test]
    fn what_somebody_else_wrote_is_left() {
        let line = line();
        let (end, writer) = std::io::pipe().unwrap();
        line.0.draw("one");
        // Opened by its name, as by somebody who is about to write.
        let name = format!("/proc/self/fd/{}", line.0.terminal.as_raw_fd());
        drop(std::fs::File::options().write(true).open(&name).unwrap());
        assert_eq!(line.0.wait(Duration::from_secs(60), end.as_fd()), Waited::Due);
        assert!(line.0.is_closed());
        line.0.draw("two");
        make_room(line.0.page.slot(SLOT), line.0.terminal.as_fd());
        line.0.close();
        assert_eq!(written(line), "\r\u{1b}[Kone");
        let line = self::line();
        drop(
            std::fs::File::options()
                .write(true)
                .open(format!("/proc/self/fd/{}", line.0.terminal.as_raw_fd()))
                .unwrap(),
        );
        line.0.draw("one");
        assert_eq!(line.0.wait(Duration::ZERO, end.as_fd()), Waited::Due);
        drop(writer);
        assert_eq!(line.0.wait(Duration::from_secs(60), end.as_fd()), Waited::Ended);
        assert_eq!(written(line), "");
    }

    #[test]
    fn what_is_no_terminal_has_no_room() {
        let (line, _reader) = line();
        assert_eq!(line.room(), None);
    }
}
