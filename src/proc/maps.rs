//! `/proc/PID/maps` (proc_pid_maps(5), fs/proc/task_mmu.c), line by line over bytes.
//!
//! Dear: about 1 µs a mapping, and the target's own mmap calls wait meanwhile. The file is opened for each reading, since
//! a descriptor of it stays with the address space that was there when it was opened, and an exec leaves that behind.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;

use super::{Unread, threads_but_main};
use crate::event::Pid;

/// Longest text that is read, in bytes: 65,530 mappings (the kernel's own limit, vm.max_map_count) of long paths.
const LONGEST: usize = 64 << 20;

/// One line. The path is as the kernel wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'t> {
    pub start: u64,
    pub end: u64,
    /// `rwxp`, `r--s`…
    pub permissions: [u8; 4],
    /// Of its first byte in the file.
    pub offset: u64,
    /// As maps shows it: a hint, which on some filesystems is not what stat(2) says.
    pub device: u64,
    pub inode: u64,
    /// A newline in it is written `\012`, everything else stands as it is; empty for anonymous memory, `[heap]` and the
    /// like for the kernel's own names; ` (deleted)` is appended if the file has no name any more.
    pub path: &'t [u8],
}

impl<'t> Mapping<'t> {
    /// From one line without its end; `None` if it is no such line.
    pub fn parse(line: &'t [u8]) -> Option<Mapping<'t>> {
        let (start, rest) = hexadecimal(line, b'-')?;
        let (end, rest) = hexadecimal(rest, b' ')?;
        let (permissions, rest) = rest.split_first_chunk::<4>()?;
        let (offset, rest) = hexadecimal(rest.strip_prefix(b" ")?, b' ')?;
        let (major, rest) = hexadecimal(rest, b':')?;
        let (minor, rest) = hexadecimal(rest, b' ')?;
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let inode = std::str::from_utf8(&rest[..length]).ok()?.parse().ok()?;
        // Padding, then a path: it begins with `/` or `[`, and may end in spaces of its own.
        let path = rest[length..].trim_ascii_start();
        let device = libc::makedev(u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
        (start <= end).then_some(Mapping { start, end, permissions: *permissions, offset, device, inode, path })
    }

    /// Every mapping of a text; lines that are none are left out.
    pub fn all(text: &'t [u8]) -> impl Iterator<Item = Mapping<'t>> {
        text.split(|&byte| byte == b'\n').filter_map(Mapping::parse)
    }

    /// Whether a file stands behind it.
    pub fn is_of_file(&self) -> bool {
        self.inode != 0 && self.path.first() == Some(&b'/')
    }
}

fn hexadecimal(text: &[u8], end: u8) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (index, &byte) in text.iter().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ if byte == end && index > 0 => return Some((value, &text[index + 1..])),
            _ => return None,
        };
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
    }
    None
}

/// A path as maps writes it.
pub fn encode(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'\n') {
        return Cow::Borrowed(path);
    }
    let mut encoded = Vec::with_capacity(path.len() + 3);
    for &byte in path {
        match byte {
            b'\n' => encoded.extend_from_slice(b"\\012"),
            other => encoded.push(other),
        }
    }
    Cow::Owned(encoded)
}

/// A path of maps as it most likely is: a name that truly holds the four characters `\012` reads as a newline.
pub fn decode(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.windows(4).any(|window| window == b"\\012") {
        return Cow::Borrowed(path);
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            decoded.push(b'\n');
            rest = tail;
        } else {
            decoded.push(byte);
            rest = tail;
        }
    }
    Cow::Owned(decoded)
}

/// Reads a process's mappings into `text`, whose capacity is used again. An empty text is of one that has no memory any
/// more.
pub fn read(pid: Pid, text: &mut Vec<u8>) -> Result<(), Unread> {
    read_file(&format!("/proc/{pid}/maps"), text)?;
    if text.is_empty() {
        for thread in threads_but_main(pid) {
            read_file(&format!("/proc/{pid}/task/{thread}/maps"), text)?;
            if !text.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

fn read_file(path: &str, text: &mut Vec<u8>) -> Result<(), Unread> {
    const PIECE: usize = 64 * 1024;
    let mut file = File::open(path)?;
    let mut length = 0;
    loop {
        if text.len() < length + PIECE {
            text.resize(length + PIECE, 0);
        }
        match file.read(&mut text[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if length >= LONGEST {
            break;
        }
    }
    text.truncate(length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ODD: &[u8] = include_bytes!("../../fixtures/proc/maps-odd");

    #[test]
    fn a_recorded_text_with_odd_names() {
        let mappings: Vec<_> = Mapping::all(ODD).collect();
        let paths: Vec<_> = mappings.iter().map(|mapping| mapping.path).collect();
        let expected: [&[u8]; 10] = [
            b"/usr/bin/model server",
            b"[heap]",
            b"",
            b"/SYSV1",
            b"/SYSVmodelweights.bin",
            b"/models/trailing  ",
            b"/models/new\\012line.safetensors",
            b"/models/\xff\xfe.gguf",
            b"/models/gone.gguf (deleted)",
            b"[vsyscall]",
        ];
        assert_eq!(paths, expected);
        let first = mappings[0];
        assert_eq!((first.start, first.end, first.offset), (0x55fc_271a_c000, 0x55fc_271a_d000, 0));
        assert_eq!((first.device, first.inode), (libc::makedev(0xfe, 0), 18504));
        assert_eq!(&first.permissions, b"r--p");
        let shifted = mappings[6];
        assert_eq!((shifted.offset, &shifted.permissions), (0x1_0000_3000, b"rw-s"));
        assert_eq!(mappings[9].start, 0xffff_ffff_ff60_0000);
        let files: Vec<bool> = mappings.iter().map(Mapping::is_of_file).collect();
        assert_eq!(files, [true, false, false, true, true, true, true, true, true, false]);
    }

    #[test]
    fn newlines_go_both_ways() {
        assert_eq!(&*decode(b"/a\\012b\\01"), b"/a\nb\\01");
        assert_eq!(&*encode(b"/a\nb"), b"/a\\012b");
        assert_eq!(&*decode(b"/plain"), b"/plain");
    }

    #[test]
    fn what_is_no_line() {
        for line in
            [&b""[..], b"-", b"1-2", b"1-2 r--p", b"2-1 r--p 0 0:0 0", b"1-2 r--p 0 0:0 ", b"12345678901234567-2 r"]
        {
            assert_eq!(Mapping::parse(line), None, "{:?}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn live_programs_with_odd_names() {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        for name in [&b"plain"[..], b"with\nnewline", b"ends in spaces  ", b"\xff\xfe", b"SYSV1", b"x (deleted)"] {
            let path = folder.path().join(std::ffi::OsStr::from_bytes(name));
            crate::testing::program::copy(std::path::Path::new("/bin/sleep"), &path);
            let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
            let pid = child.id() as Pid;
            // The spawn comes back when the old program is gone, which is before the new one is laid out.
            let mut stat = crate::proc::ProcFile::of(pid, "stat");
            let mut buffer = crate::proc::Buffer::new();
            crate::testing::until("its new program", || {
                crate::proc::stat::Stat::parse(stat.read(&mut buffer).unwrap()).unwrap().image.is_there()
            });
            let mut text = Vec::new();
            read(pid, &mut text).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            let wanted = path.as_os_str().as_bytes();
            let found: Vec<_> = Mapping::all(&text).filter(|mapping| mapping.path == &*encode(wanted)).collect();
            assert!(!found.is_empty(), "{name:?}");
            let inode = path.metadata().unwrap().ino();
            assert!(found.iter().all(|mapping| mapping.inode == inode && mapping.is_of_file()));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..800) {
            let _ = Mapping::all(&text).count();
            let _ = Mapping::all(&ODD[..cut.min(ODD.len())]).count();
            let _ = decode(&text);
        }

        #[test]
        fn encoding_is_undone(path in "[a-z\n\\\\/]{0,20}") {
            prop_assume!(!path.contains("\\012") && !path.ends_with('\\') && !path.contains("\\\n"));
            let encoded = encode(path.as_bytes());
            prop_assert_eq!(&*decode(&encoded), path.as_bytes());
        }
    }
}
