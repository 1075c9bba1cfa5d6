//! `/proc/PID/status`, `/proc/PID/io` and `/proc/PID/cmdline` (proc(5)).

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use crate::event::{Pid, text_of};

/// What a process holds, in bytes (`/proc/PID/status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub rss: u64,
    /// VmHWM: since the last exec, and off by some pages per CPU.
    pub peak_rss: u64,
    /// VmPeak: the largest address space since the last exec.
    pub peak_virtual: u64,
    pub anon: u64,
    pub file: u64,
    pub shmem: u64,
    pub swap: u64,
    pub page_tables: u64,
    /// HugetlbPages: pages of hugetlbfs, which are in no other figure here.
    pub hugetlb: u64,
}

impl Memory {
    /// `None` where the text has no VmRSS: the process has given its memory back (a zombie), or its main thread ended.
    pub fn parse(text: &[u8]) -> Option<Memory> {
        let mut memory = Memory::default();
        let mut has_rss = false;
        for line in text.split(|&byte| byte == b'\n') {
            // Only these letters begin a line that is wanted; the kernel escapes newlines in the name.
            if !matches!(line.first(), Some(b'V' | b'R' | b'H')) {
                continue;
            }
            let Some((key, value)) = key_and_value(line) else { continue };
            let bytes = value.saturating_mul(1024);
            match key {
                b"VmPeak" => memory.peak_virtual = bytes,
                b"VmHWM" => memory.peak_rss = bytes,
                b"VmRSS" => (memory.rss, has_rss) = (bytes, true),
                b"RssAnon" => memory.anon = bytes,
                b"RssFile" => memory.file = bytes,
                b"RssShmem" => memory.shmem = bytes,
                b"VmPTE" => memory.page_tables = bytes,
                b"VmSwap" => memory.swap = bytes,
                b"HugetlbPages" => {
                    memory.hugetlb = bytes;
                    break;
                }
                _ => {}
            }
        }
        has_rss.then_some(memory)
    }
}

/// What a process has read and written (`/proc/PID/io`), its waited-for children included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Io {
    pub rchar: u64,
    pub wchar: u64,
    pub read_syscalls: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Io {
    /// `None` if a line is missing: a kernel without task I/O accounting.
    pub fn parse(text: &[u8]) -> Option<Io> {
        let mut io = Io::default();
        let mut found = 0;
        for line in text.split(|&byte| byte == b'\n') {
            let Some((key, value)) = key_and_value(line) else { continue };
            let field = match key {
                b"rchar" => &mut io.rchar,
                b"wchar" => &mut io.wchar,
                b"syscr" => &mut io.read_syscalls,
                b"read_bytes" => &mut io.read_bytes,
                b"write_bytes" => &mut io.write_bytes,
                _ => continue,
            };
            *field = value;
            found += 1;
        }
        (found == 5).then_some(io)
    }
}

/// `Key:   123 kB` → the key and 123.
pub(super) fn key_and_value(line: &[u8]) -> Option<(&[u8], u64)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let digits = line[colon + 1..].trim_ascii_start();
    let mut value = 0u64;
    let mut any = false;
    for &digit in digits.iter().take_while(|byte| byte.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        any = true;
    }
    any.then_some((&line[..colon], value))
}

/// Longest command line that is read, in bytes.
const LONGEST_COMMAND_LINE: u64 = 64 * 1024;

/// The arguments of a process as text that loses nothing, at most 64 KiB of them; empty if it has none (a zombie, or
/// one in the middle of an exec).
pub fn command_line(pid: Pid) -> Vec<String> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|file| file.take(LONGEST_COMMAND_LINE).read_to_end(&mut bytes));
    if read.is_err() {
        bytes.clear();
    }
    split_arguments(&bytes)
}

fn split_arguments(bytes: &[u8]) -> Vec<String> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|&byte| byte == 0).map(|argument| text_of(OsStr::from_bytes(argument))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATUS: &[u8] = include_bytes!("../../fixtures/proc/status-python");
    const ZOMBIE: &[u8] = include_bytes!("../../fixtures/proc/status-zombie");
    const IO: &[u8] = include_bytes!("../../fixtures/proc/io-python");

    #[test]
    fn recorded_memory() {
        let memory = Memory::parse(STATUS).unwrap();
        assert_eq!(memory.rss, memory.anon + memory.file + memory.shmem);
        assert_eq!(memory.rss, 13_576 * 1024);
        assert_eq!(memory.peak_rss, 13_576 * 1024);
        assert!(memory.peak_virtual > memory.peak_rss);
        assert_eq!((memory.swap, memory.page_tables), (0, 76 * 1024));
        assert_eq!(Memory::parse(ZOMBIE), None, "a zombie holds nothing");
    }

    #[test]
    fn recorded_io() {
        let io = Io::parse(IO).unwrap();
        assert_eq!(io, Io { rchar: 431_482, wchar: 17, read_syscalls: 63, read_bytes: 4096, write_bytes: 8192 });
        assert_eq!(Io::parse(b"rchar: 1\nwchar: 2\n"), None);
        assert_eq!(Io::parse(b""), None);
    }

    #[test]
    fn agrees_with_the_procfs_crate() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = procfs::process::Process::new(child.id() as Pid).unwrap();
        // Its figures stand still once it sleeps.
        crate::testing::until("its sleep", || {
            process.stat().unwrap().state == 'S' && command_line(child.id() as Pid) == ["sleep", "60"]
        });
        let theirs = process.status().unwrap();
        let ours = Memory::parse(&std::fs::read(format!("/proc/{}/status", child.id())).unwrap()).unwrap();
        assert_eq!(Some(ours.rss / 1024), theirs.vmrss);
        assert_eq!(Some(ours.anon / 1024), theirs.rssanon);
        assert_eq!(Some(ours.page_tables / 1024), theirs.vmpte);
        let theirs = process.io().unwrap();
        let ours = Io::parse(&std::fs::read(format!("/proc/{}/io", child.id())).unwrap()).unwrap();
        assert_eq!(
            (ours.rchar, ours.read_syscalls, ours.write_bytes),
            (theirs.rchar, theirs.syscr, theirs.write_bytes)
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn arguments_are_kept_byte_for_byte() {
        assert_eq!(split_arguments(b"a\0\0b c\0"), ["a", "", "b c"]);
        assert_eq!(split_arguments(b"new title"), ["new title"]);
        assert_eq!(split_arguments(b"\xff\n\0"), ["\\xff\\x0a"]);
        assert!(split_arguments(b"").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (Memory::parse(&text), Io::parse(&text), split_arguments(&text));
        }
    }
}
