//! The artifacts' contents, digested once before a series and without warming the page cache: past it (open(2),
//! `O_DIRECT`), or, where the filesystem has no such way, through it, and each page that was not there before dropped
//! again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use sha2::{Digest, Sha256};

use super::series::Content;
use crate::artifact::{Artifact, hexadecimal};
use crate::event::text_of;
use crate::sys::cache::{Mapping, page_size};

/// Bytes that one read asks for.
const PIECE: usize = 4 << 20;
/// More than any storage wants its reads aligned to.
const ALIGNMENT: usize = 4096;

/// Digests a file.
pub(super) fn content(artifact: &Artifact) -> Content {
    let (sha256, by) = match direct(artifact) {
        Ok(digest) => (Some(digest), "read past the page cache (O_DIRECT)".to_owned()),
        Err(refused) => match through(&artifact.file, artifact.size) {
            Ok(digest) => {
                (Some(digest), format!("read through the page cache, and what was not in it dropped (O_DIRECT: {refused})"))
            }
            Err(error) => (None, format!("could not be read: {error}")),
        },
    };
    Content { path: text_of(&artifact.path), size_bytes: artifact.size, sha256, by }
}

fn direct(artifact: &Artifact) -> io::Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT | libc::O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*artifact.file)))?;
    let mut room = vec![0u8; PIECE + ALIGNMENT];
    let start = room.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let buffer = &mut room[start..start + PIECE];
    let mut digest = Sha256::new();
    let mut at = 0;
    while at < artifact.size {
        // The last one is short: the file's end need not be aligned.
        match file.read_at(buffer, at)? {
            0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has become shorter")),
            length => {
                let length = (length as u64).min(artifact.size - at);
                digest.update(&buffer[..length as usize]);
                at += length;
            }
        }
    }
    Ok(hexadecimal(&digest.finalize()))
}

fn through(file: &File, size: u64) -> io::Result<String> {
    // No read-ahead: it would bring in pages beyond those that were asked about.
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
    let page = page_size();
    let mut buffer = vec![0; PIECE];
    let mut digest = Sha256::new();
    let mut at = 0;
    while at < size {
        let pages = at..(at + PIECE as u64);
        let mut there = vec![0u8; PIECE / page as usize];
        Mapping::new(file, pages.clone())?.mincore(pages, &mut there)?;
        let mut filled = 0;
        while filled < PIECE {
            match file.read_at(&mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if filled == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has become shorter"));
        }
        digest.update(&buffer[..filled]);
        // Run by run: a page of a larger folio goes with the whole of it, or not at all.
        let mut place = 0;
        for run in there.chunk_by(|one, other| one & 1 == other & 1) {
            if run[0] & 1 == 0 {
                let (offset, length) = (at + place * page, run.len() as u64 * page);
                let _ = posix_fadvise(file, offset as i64, length as i64, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            }
            place += run.len() as u64;
        }
        at += filled as u64;
    }
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_NORMAL);
    Ok(hexadecimal(&digest.finalize()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::artifact::Found;
    use crate::cache;

    #[test]
    fn a_digest_warms_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..(5u32 << 20) + 123).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let artifact = Artifact::open_raw(&path, Found::Declared).unwrap();
        cache::drop_pages(&artifact.file).unwrap();
        let resident = || {
            let size = bytes.len() as u64 / page_size() * page_size();
            let mut there = vec![0; (size / page_size()) as usize];
            Mapping::new(&artifact.file, 0..size).unwrap().mincore(0..size, &mut there).unwrap();
            there.iter().filter(|page| **page & 1 == 1).count()
        };
        assert_eq!(resident(), 0);
        let wanted = hexadecimal(&Sha256::digest(&bytes));
        assert_eq!(through(&artifact.file, artifact.size).unwrap(), wanted);
        assert_eq!(resident(), 0, "what was not there is dropped again");
        let content = content(&artifact);
        assert_eq!(content.sha256, Some(wanted), "{}", content.by);
        assert_eq!(resident(), 0);
    }
}
