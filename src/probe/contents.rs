//! The SHA-256 of a file's contents, with the page cache left as it was: read past it (`O_DIRECT`) where the filesystem
//! can, else through it, page ranges that were not in memory being given back at once (posix_fadvise(2),
//! `POSIX_FADV_DONTNEED`). Nobody else's pages go: what was in memory before stays.
//!
//! It takes as long as reading all of the file does, and is no part of a launch.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use sha2::{Digest, Sha256};

use crate::artifact::hexadecimal;
use crate::sys::cache::{Mapping, page_size};

/// Bytes of one read: a multiple of every page size.
const CHUNK: usize = 4 << 20;
/// What direct reads want their memory and their offsets to be multiples of: no block is larger (open(2)).
const ALIGNED: usize = 64 << 10;

/// By what a file is known to be the one that was meant (stat(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub size: u64,
    pub inode: u64,
    pub modified_ns: i64,
}

impl Stat {
    fn of(file: &File) -> io::Result<Stat> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        let modified_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        Ok(Stat { size: metadata.size(), inode: metadata.ino(), modified_ns })
    }
}

/// SHA-256 of the file in hexadecimal, if it is the one that was meant and stays it.
///
/// # Errors
/// Why there is none: it cannot be opened or read, or it is another file by now.
pub fn sha256(path: &Path, meant: Stat) -> Result<String, String> {
    let told = |error: io::Error| error.to_string();
    let check = |file: &File| match Stat::of(file).map_err(told)? == meant {
        true => Ok(()),
        false => Err("the file is not what it was at the run (stat)".to_owned()),
    };
    let file = open(path, 0).map_err(told)?;
    check(&file)?;
    let direct = open(path, libc::O_DIRECT).and_then(|file| past_the_cache(&file));
    let digest = match direct {
        Ok(digest) => digest,
        // The filesystem or its device cannot, or not at this alignment.
        Err(_) => around_the_cache(&file, meant.size).map_err(told)?,
    };
    check(&file)?;
    Ok(hexadecimal(&digest))
}

/// A pipe that nobody writes to is opened without waiting.
fn open(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | flags).open(path)
}

fn past_the_cache(file: &File) -> io::Result<Vec<u8>> {
    let mut memory = vec![0u8; CHUNK + ALIGNED];
    let begin = memory.as_ptr().align_offset(ALIGNED);
    let buffer = memory.get_mut(begin..begin + CHUNK).ok_or_else(|| io::Error::other("memory cannot be aligned"))?;
    let mut digest = Sha256::new();
    let mut at = 0u64;
    loop {
        let read = file.read_at(buffer, at)?;
        digest.update(&buffer[..read]);
        at += read as u64;
        // A short read is the end: from there no offset is aligned.
        if read < CHUNK {
            break;
        }
    }
    match file.metadata()?.size() == at {
        true => Ok(digest.finalize().to_vec()),
        false => Err(io::Error::other("a direct read ended before the file did")),
    }
}

fn around_the_cache(file: &File, size: u64) -> io::Result<Vec<u8>> {
    posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)?;
    let page = page_size();
    let mut buffer = vec![0u8; CHUNK];
    let mut resident = vec![0u8; (CHUNK as u64).div_ceil(page) as usize];
    let mut digest = Sha256::new();
    let mut at = 0;
    while at < size {
        let length = (size - at).min(CHUNK as u64);
        let end = at + length.div_ceil(page) * page;
        let pages = &mut resident[..((end - at) / page) as usize];
        Mapping::new(file, at..end)?.mincore(at..end, pages)?;
        let part = &mut buffer[..length as usize];
        file.read_exact_at(part, at)?;
        digest.update(&*part);
        let mut first = 0;
        while first < pages.len() {
            let was = pages[first] & 1;
            let run = pages[first..].iter().take_while(|state| *state & 1 == was).count();
            if was == 0 {
                let (from, bytes) = (at + first as u64 * page, run as u64 * page);
                let as_offset = |bytes: u64| libc::off_t::try_from(bytes).map_err(io::Error::other);
                posix_fadvise(file, as_offset(from)?, as_offset(bytes)?, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
            }
            first += run;
        }
        at += length;
    }
    Ok(digest.finalize().to_vec())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    fn of_size(bytes: usize) -> (tempfile::NamedTempFile, Stat, String) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let contents: Vec<u8> = (0..bytes).map(|place| (place * 7 + place / 4096) as u8).collect();
        file.write_all(&contents).unwrap();
        file.as_file().sync_all().unwrap();
        let stat = Stat::of(file.as_file()).unwrap();
        (file, stat, crate::artifact::sha256(&[&contents]))
    }

    #[test]
    fn both_ways_give_the_same_digest_at_every_size() {
        for size in [0, 1, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5000] {
            let (file, stat, wanted) = of_size(size);
            assert_eq!(sha256(file.path(), stat).as_deref(), Ok(wanted.as_str()), "{size}");
            let around = around_the_cache(file.as_file(), stat.size).unwrap();
            let around: String = around.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(around, wanted, "{size}");
        }
    }

    #[test]
    fn what_was_in_memory_stays_and_nothing_else_comes() {
        let (file, stat, wanted) = of_size(3 * CHUNK + 4096);
        let page = page_size();
        let pages = || {
            let end = stat.size.div_ceil(page) * page;
            let mut states = vec![0u8; (end / page) as usize];
            Mapping::new(file.as_file(), 0..end).unwrap().mincore(0..end, &mut states).unwrap();
            states.iter().map(|state| state & 1).collect::<Vec<u8>>()
        };
        // A part of the file goes from memory, as far as the filesystem lets it.
        let half = CHUNK as i64 + 65536;
        posix_fadvise(file.as_file(), 0, half, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        let before = pages();
        assert_eq!(sha256(file.path(), stat).unwrap(), wanted);
        assert_eq!(pages(), before);
        around_the_cache(file.as_file(), stat.size).unwrap();
        assert_eq!(pages(), before);
    }

    #[test]
    fn another_file_by_that_name_is_not_hashed() {
        let (file, stat, _) = of_size(100);
        for other in [
            Stat { size: 101, ..stat },
            Stat { modified_ns: stat.modified_ns + 1, ..stat },
            Stat { inode: stat.inode + 1, ..stat },
        ] {
            assert!(sha256(file.path(), other).unwrap_err().contains("not what it was"));
        }
        assert!(sha256(Path::new("/dev/null"), stat).unwrap_err().contains("not a regular file"));
        assert!(sha256(Path::new("/absent"), stat).is_err());
    }
}
