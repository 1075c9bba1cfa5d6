//! `/proc/PID/stat` (proc_pid_stat(5), fs/proc/array.c).

use crate::event::Pid;

/// A command name as the kernel keeps it: at most 15 bytes for user processes, any bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comm {
    bytes: [u8; 32],
    length: u8,
}

impl Comm {
    fn new(name: &[u8]) -> Comm {
        let length = name.len().min(32);
        let mut bytes = [0; 32];
        bytes[..length].copy_from_slice(&name[..length]);
        Comm { bytes, length: length as u8 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::fmt::Debug for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self)
    }
}

impl std::fmt::Display for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::os::unix::ffi::OsStrExt;
        f.write_str(&crate::event::text_of(std::ffi::OsStr::from_bytes(self.as_bytes())))
    }
}

/// Where a program's parts lie in memory: they change at an exec and at nothing else that ordinary programs do, unlike
/// the command name, which every thread library sets. Where the kernel withholds them `start_code` is 1 and the others
/// are 0; all are 0 where there is no memory (a zombie), and for a moment within an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    pub start_code: u64,
    pub end_code: u64,
    pub start_stack: u64,
    pub start_data: u64,
    pub end_data: u64,
}

impl Image {
    /// Whether the kernel says where.
    pub fn is_known(&self) -> bool {
        self.start_stack != 0
    }

    /// Whether there is a program at all: not in a zombie, and not in the middle of an exec.
    pub fn is_there(&self) -> bool {
        self.start_code != 0
    }
}

/// The fields that somebody here uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: Pid,
    pub comm: Comm,
    pub state: u8,
    pub parent: Pid,
    /// Minor faults of all threads, the dead ones included.
    pub minflt: u64,
    /// … of waited-for children, and of those that they waited for.
    pub cminflt: u64,
    pub majflt: u64,
    pub cmajflt: u64,
    /// CPU time in clock ticks (sysconf(_SC_CLK_TCK)).
    pub utime: u64,
    pub stime: u64,
    pub cutime: u64,
    pub cstime: u64,
    pub threads: u64,
    /// Clock ticks since boot.
    pub start_time: u64,
    /// Virtual size in bytes.
    pub vsize: u64,
    pub image: Image,
    /// Ignored signals 1 to 31, as a mask.
    pub ignored: u64,
    /// The signal sent to the parent at the end; −1 for a thread that is no process.
    pub exit_signal: i64,
    /// 0 until the program's arguments have been laid out, and where the kernel withholds it.
    pub arg_start: u64,
    /// As wait(2) gives it; 0 where the kernel withholds it.
    pub exit_code: i32,
}

impl Stat {
    /// From the file's text; `None` if it is no such text.
    pub fn parse(text: &[u8]) -> Option<Stat> {
        // The name may hold spaces and parentheses of its own: it ends at the last one.
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let name = text.get(open + 1..close)?;
        let pid = std::str::from_utf8(text.get(..open)?).ok()?.trim().parse().ok()?;
        let rest = text.get(close + 1..)?.trim_ascii();

        // Fields 3 (state) to 52 (exit_code); older kernels have fewer, and those read 0.
        let mut fields = [0i128; 53];
        let mut words = rest.split(|&byte| byte == b' ');
        let state = *words.next()?.first()?;
        let mut count = 3;
        for (field, word) in fields[4..].iter_mut().zip(words) {
            *field = number(word)?;
            count += 1;
        }
        // Field 24 (rss) is in every kernel of this century.
        if count < 24 {
            return None;
        }
        let unsigned = |index: usize| u64::try_from(fields[index]).unwrap_or(0);
        Some(Stat {
            pid,
            comm: Comm::new(name),
            state,
            parent: i32::try_from(fields[4]).ok()?,
            minflt: unsigned(10),
            cminflt: unsigned(11),
            majflt: unsigned(12),
            cmajflt: unsigned(13),
            utime: unsigned(14),
            stime: unsigned(15),
            cutime: unsigned(16),
            cstime: unsigned(17),
            threads: unsigned(20),
            start_time: unsigned(22),
            vsize: unsigned(23),
            image: Image {
                start_code: unsigned(26),
                end_code: unsigned(27),
                start_stack: unsigned(28),
                start_data: unsigned(45),
                end_data: unsigned(46),
            },
            ignored: unsigned(33),
            exit_signal: i64::try_from(fields[38]).ok()?,
            arg_start: unsigned(48),
            exit_code: i32::try_from(fields[52]).ok()?,
        })
    }

    /// Whether the process has ended: a zombie, or about to be reaped. A main thread that has ended while others go on
    /// shows as a zombie too, with more than one thread.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// Whether it is a thread of some process, reached under its own number.
    pub fn is_thread(&self) -> bool {
        self.exit_signal == -1
    }

    /// Whether SIGCHLD is ignored: the kernel then reaps the children, and their counters reach nobody.
    pub fn ignores_children(&self) -> bool {
        self.ignored & (1 << (libc::SIGCHLD - 1)) != 0
    }

    /// Exit code and signal, as far as the kernel says: they are withheld (0) from whom `image` is withheld.
    pub fn end(&self) -> (Option<i32>, Option<i32>) {
        match self.exit_code & 0x7f {
            0 => (Some((self.exit_code >> 8) & 0xff), None),
            signal => (None, Some(signal)),
        }
    }
}

/// A decimal number, perhaps negative; fields go up to 2^64 − 1.
fn number(word: &[u8]) -> Option<i128> {
    let (negative, digits) = match word.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, word),
    };
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    let mut value = 0u128;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u128::from(digit - b'0');
    }
    let value = i128::try_from(value).ok()?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: &[u8] = include_bytes!("../../fixtures/proc/stat-cat");

    #[test]
    fn a_recorded_process() {
        let stat = Stat::parse(PLAIN).unwrap();
        assert_eq!((stat.pid, stat.parent, stat.state), (14713, 14707, b'R'));
        assert_eq!(stat.comm.as_bytes(), b"cat");
        assert_eq!((stat.minflt, stat.cminflt, stat.majflt, stat.cmajflt), (98, 7, 1, 2));
        assert_eq!((stat.threads, stat.start_time, stat.vsize), (1, 160_869, 3_133_440));
        assert_eq!(stat.image.start_code, 94_366_967_136_256);
        assert_eq!(stat.image.start_stack, 140_720_931_689_520);
        assert_eq!(stat.arg_start, 140_720_931_695_320);
        assert_eq!(stat.exit_signal, 17);
        assert!(!stat.has_ended() && !stat.is_thread() && !stat.ignores_children());
    }

    #[test]
    fn names_may_hold_anything() {
        for name in ["a) R 1 (b", "", ") ", "two words", "((", "x\n1 (y"] {
            let text = String::from_utf8_lossy(PLAIN).replace("(cat)", &format!("({name})"));
            let stat = Stat::parse(text.as_bytes()).unwrap();
            assert_eq!(stat.comm.as_bytes(), name.as_bytes());
            assert_eq!((stat.pid, stat.parent, stat.state), (14713, 14707, b'R'), "{name:?}");
        }
    }

    #[test]
    fn zombies_and_main_threads_that_left() {
        let zombie = String::from_utf8_lossy(PLAIN).replace(") R ", ") Z ");
        assert!(Stat::parse(zombie.as_bytes()).unwrap().has_ended());
        let left = zombie.replace(" 20 0 1 0 160869 ", " 20 0 3 0 160869 ");
        assert!(!Stat::parse(left.as_bytes()).unwrap().has_ended());
    }

    #[test]
    fn ends_as_wait_tells_them() {
        let with = |code: i32| Stat { exit_code: code, ..Stat::parse(PLAIN).unwrap() }.end();
        assert_eq!(with(3 << 8), (Some(3), None));
        assert_eq!(with(9), (None, Some(9)));
        assert_eq!(with(11 | 0x80), (None, Some(11)), "with a core");
    }

    #[test]
    fn what_is_no_stat() {
        for text in [&b""[..], b"1", b"1 (", b"1 (a", b"1 (a)", b"1 (a) R", b"1 (a) R 1 2 x", b"x (a) R 1 1 1", b")1 ("]
        {
            assert_eq!(Stat::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn agrees_with_the_procfs_crate() {
        let theirs = procfs::process::Process::myself().unwrap().stat().unwrap();
        let ours = Stat::parse(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert_eq!((ours.pid, ours.parent), (theirs.pid, theirs.ppid));
        assert_eq!(ours.comm.as_bytes(), theirs.comm.as_bytes());
        assert_eq!(ours.start_time, theirs.starttime);
        assert_eq!(Some(ours.exit_signal), theirs.exit_signal.map(i64::from));
        assert_eq!(Some(ours.arg_start), theirs.arg_start);
        assert_eq!(ours.image.start_stack, theirs.startstack);
        assert_eq!(ours.image.end_code, theirs.endcode);
        assert!(ours.minflt >= theirs.minflt && ours.vsize > 0 && ours.threads > 0);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stat::parse(&text);
            let mut cut = PLAIN.to_vec();
            cut.truncate(text.len());
            let _ = Stat::parse(&cut);
        }
    }
}
