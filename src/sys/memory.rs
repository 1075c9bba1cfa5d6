//! Memory that copies go through: anonymous buffers, and mappings of files that are copied out of.
//!
//! No reference is ever made into a file's mapping: its bytes may change under it, and a file that is cut short answers
//! with SIGBUS, which ends the process. Only processes whose death is a result do this.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;

use super::cache::page_size;

/// Private anonymous memory, in whole pages.
#[derive(Debug)]
pub struct Buffer {
    address: usize,
    length: usize,
}

impl Buffer {
    /// Reserves zeroed memory; its pages come at their first touch.
    ///
    /// # Errors
    ///
    /// As mmap(2): `ENOMEM` at a limit.
    pub fn new(length: usize) -> io::Result<Buffer> {
        let length = length.max(1).next_multiple_of(page_size() as usize);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anyone.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Buffer { address: address as usize, length })
    }

    pub fn address(&self) -> u64 {
        self.address as u64
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is ours, readable and of this length; nobody writes to it while it is borrowed.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.length) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours, writable and of this length, and borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.length) }
    }

    /// Keeps the pages in memory until the buffer is dropped, and brings them in (mlock(2)).
    ///
    /// # Errors
    ///
    /// `ENOMEM` or `EPERM` beyond `RLIMIT_MEMLOCK`.
    pub fn lock(&mut self) -> io::Result<()> {
        // SAFETY: the range is our own mapping.
        let status = unsafe { libc::mlock(self.address as *const _, self.length) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives the buffer.
        unsafe { libc::munmap(self.address as *mut _, self.length) };
    }
}

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// `PROT_READ | PROT_WRITE`, `MAP_PRIVATE`: as torch maps.
    PrivateWritable,
    /// `PROT_READ`, `MAP_SHARED`: as llama.cpp and memmap2 map.
    SharedReadOnly,
}

/// Bytes of a file in this process, to be copied out of.
#[derive(Debug)]
pub struct FileMapping {
    address: usize,
    length: usize,
    /// Where the bytes asked for begin in the mapping, which begins at a page.
    skip: usize,
}

impl FileMapping {
    /// Maps `bytes` of a file, `populate`d or not (mmap(2), `MAP_POPULATE`).
    ///
    /// # Errors
    ///
    /// As mmap(2); `EINVAL` for an empty range.
    pub fn new(file: &File, bytes: Range<u64>, sharing: Sharing, populate: bool) -> io::Result<FileMapping> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let begin = bytes.start - bytes.start % page_size();
        let skip = (bytes.start - begin) as usize;
        let length =
            bytes.end.checked_sub(begin).and_then(|length| usize::try_from(length).ok()).ok_or_else(invalid)?;
        let offset = libc::off_t::try_from(begin).map_err(|_| invalid())?;
        let (protection, shared) = match sharing {
            Sharing::PrivateWritable => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
            Sharing::SharedReadOnly => (libc::PROT_READ, libc::MAP_SHARED),
        };
        let flags = shared | if populate { libc::MAP_POPULATE } else { 0 };
        // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anyone.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, file.as_raw_fd(), offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(FileMapping { address: address as usize, length, skip })
    }

    /// Where the bytes asked for lie.
    pub fn address(&self) -> u64 {
        (self.address + self.skip) as u64
    }

    /// How many bytes were asked for.
    pub fn length(&self) -> usize {
        self.length - self.skip
    }

    /// Reads one byte of each page, so that each is mapped.
    pub fn touch(&self) {
        let page = page_size() as usize;
        for at in (0..self.length).step_by(page) {
            // SAFETY: inside our own mapping, which is readable; a volatile read has no other demand on what it reads.
            unsafe { ptr::read_volatile((self.address + at) as *const u8) };
        }
    }

    /// Copies all the bytes asked for to the front of `to`.
    ///
    /// # Errors
    ///
    /// `EINVAL` where `to` is shorter.
    pub fn copy_to(&self, to: &mut [u8]) -> io::Result<()> {
        if to.len() < self.length() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the source lies inside our own mapping, which is readable; the destination is at least as long, and
        // memory that a `&mut` stands for is in no file's mapping.
        unsafe { ptr::copy_nonoverlapping(self.address() as *const u8, to.as_mut_ptr(), self.length()) };
        Ok(())
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it was ever made.
        unsafe { libc::munmap(self.address as *mut _, self.length) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn bytes_come_out_of_a_mapping_as_they_are_in_the_file() {
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..20_000u32).map(|byte| (byte % 251) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        for sharing in [Sharing::PrivateWritable, Sharing::SharedReadOnly] {
            for populate in [false, true] {
                // Neither end is at a page.
                let mapping = FileMapping::new(&file, 4099..19_999, sharing, populate).unwrap();
                mapping.touch();
                let mut out = Buffer::new(mapping.length()).unwrap();
                mapping.copy_to(out.bytes_mut()).unwrap();
                assert_eq!(out.bytes()[..mapping.length()], content[4099..19_999]);
                assert!(mapping.copy_to(&mut [0; 100]).is_err());
            }
        }
        assert!(
            FileMapping::new(&file, 5..5, Sharing::SharedReadOnly, false).is_ok_and(|mapping| mapping.length() == 0)
        );
        let backwards = Range { start: 9000, end: 100 };
        assert!(FileMapping::new(&file, backwards, Sharing::SharedReadOnly, false).is_err());
    }
}
