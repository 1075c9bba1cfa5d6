//! What the process was given, recorded before the Rust runtime changes it: signal dispositions and mask, and which of
//! the standard descriptors were closed. The launched command gets exactly these.
//!
//! The runtime sets SIGPIPE to be ignored and opens `/dev/null` on standard descriptors that are closed, both before
//! `main`; a function in `.init_array` runs earlier still.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use super::process::is_ignored;

/// Signals as a set: bit n − 1 is signal n, the kernel's own layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals(pub u64);

impl Signals {
    /// Every signal number that Linux has on this architecture.
    pub const NUMBERS: std::ops::RangeInclusive<i32> = 1..=64;

    /// Whether a signal is in the set.
    pub fn contains(self, signal: i32) -> bool {
        Signals::NUMBERS.contains(&signal) && self.0 >> (signal - 1) & 1 == 1
    }
}

/// What this process was given by whoever started it.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Signals that were ignored; execve(2) keeps exactly these and sets every other to its default action.
    pub ignored: Signals,
    /// Signals that were blocked.
    pub blocked: Signals,
    closed: u8,
}

impl Given {
    /// Whether a standard descriptor (0, 1 or 2) was closed.
    pub fn was_closed(self, fd: i32) -> bool {
        (0..3).contains(&fd) && self.closed >> fd & 1 == 1
    }
}

static RECORDED: AtomicBool = AtomicBool::new(false);
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU8 = AtomicU8::new(0);

#[used]
// SAFETY: the C library calls each pointer in this section once, as a C function, before `main`; `record` needs
// nothing of the Rust runtime and cannot unwind.
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    let ignored = Signals::NUMBERS.filter(|signal| is_ignored(*signal)).fold(0, |set, signal| set | bit(signal));
    // SAFETY: the structure is plain data for which all zeroes is a value; the call only writes to it.
    let blocked = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        Signals::NUMBERS.filter(|signal| libc::sigismember(&mask, *signal) == 1).fold(0, |set, s| set | bit(s))
    };
    // SAFETY: asking for descriptor flags touches nothing.
    let closed = (0..3).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } < 0).fold(0, |set, fd| set | 1 << fd);
    IGNORED.store(ignored, Relaxed);
    BLOCKED.store(blocked, Relaxed);
    CLOSED.store(closed, Relaxed);
    RECORDED.store(true, Relaxed);
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What this process was given. Before anything was recorded (a static build whose C library has no `.init_array`):
/// nothing ignored, blocked or closed.
pub fn given() -> Given {
    Given {
        ignored: Signals(IGNORED.load(Relaxed)),
        blocked: Signals(BLOCKED.load(Relaxed)),
        closed: CLOSED.load(Relaxed),
    }
}

/// Whether the record was made.
pub fn recorded() -> bool {
    RECORDED.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_made_before_main() {
        assert!(recorded());
        assert!(!given().was_closed(7));
    }

    #[test]
    fn sets_have_the_kernel_layout() {
        let set = Signals(1 << (libc::SIGPIPE - 1) | 1 << 63);
        assert!(set.contains(libc::SIGPIPE) && set.contains(64));
        assert!(!set.contains(libc::SIGINT) && !set.contains(0) && !set.contains(65));
    }
}
