//! What the page cache holds: mincore(2) on a mapping that is never touched, and cachestat(2).

use std::ffi::{c_long, c_uint};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;

/// Bytes of a page (sysconf(3), `_SC_PAGESIZE`).
pub fn page_size() -> u64 {
    // SAFETY: sysconf takes no pointer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // POSIX requires the name; 4096 is every Linux architecture's least.
    u64::try_from(bytes).unwrap_or(4096).max(1)
}

/// What cachestat(2) counts, in pages (include/uapi/linux/mman.h, `struct cachestat`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// In the page cache, pages that are still being read included.
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
    /// Gone from the cache, remembered as having been there.
    pub evicted: u64,
    pub recently_evicted: u64,
}

/// `struct cachestat_range`: a length of 0 would mean "to the end of the file".
#[repr(C)]
struct CacheStatRange {
    offset: u64,
    length: u64,
}

/// The call's number, one for all architectures that numbered their calls anew since 5.1; libc does not have it yet.
const SYS_CACHESTAT: c_long = 451;

/// Counts the page cache's pages of a byte range of a file (cachestat(2), Linux 6.5).
///
/// # Errors
///
/// `ENOSYS` before 6.5; `EPERM` without ownership or write permission, and from some seccomp filters; `EOPNOTSUPP` on
/// hugetlbfs; `EINVAL` for an empty range.
pub fn cachestat(file: &File, bytes: Range<u64>) -> io::Result<CacheStat> {
    if bytes.start >= bytes.end {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    if cfg!(any(target_arch = "mips", target_arch = "mips64")) {
        // These number their calls from other bases.
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let range = CacheStatRange { offset: bytes.start, length: bytes.end - bytes.start };
    let mut counts = CacheStat::default();
    let no_flags: c_uint = 0;
    // SAFETY: both structures have the kernel's layout and outlive the call, which reads the one and writes the other.
    let status = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), ptr::from_ref(&range), ptr::from_mut(&mut counts), no_flags)
    };
    if status == 0 { Ok(counts) } else { Err(io::Error::last_os_error()) }
}

/// A file's length as this host knows it, without asking a server or a daemon of a network or user-space filesystem, which
/// may not answer (statx(2), `AT_STATX_DONT_SYNC`).
///
/// # Errors
///
/// As statx(2).
pub fn length_as_known(file: &File) -> io::Result<u64> {
    // SAFETY: struct statx is plain integers, for which all zeroes is a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty C string, which the descriptor stands for, and a structure to write to; both outlive the call.
    let status =
        unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_SIZE, ptr::from_mut(&mut found)) };
    if status == 0 { Ok(found.stx_size) } else { Err(io::Error::last_os_error()) }
}

/// Whether a file's storage is mapped directly, past the page cache (statx(2), `STATX_ATTR_DAX`; Linux 5.8).
pub fn is_dax(file: &File) -> bool {
    const STATX_ATTR_DAX: u64 = 0x0020_0000;
    // SAFETY: plain numbers, for which 0 is a value.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty path that ends in a 0 byte, with which the descriptor itself is meant; the answer outlives the
    // call, which writes it.
    let status = unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_BASIC_STATS, &mut answer) };
    status == 0 && answer.stx_attributes & answer.stx_attributes_mask & STATX_ATTR_DAX != 0
}

/// A shared read-only mapping of a part of a file, for mincore(2) alone: it is never populated and never read, so that
/// it brings nothing in, maps no page, and cannot fault when the file shrinks.
#[derive(Debug)]
pub struct Mapping {
    address: usize,
    length: usize,
    offset: u64,
}

impl Mapping {
    /// Maps `bytes` of the file; both ends are multiples of the page size, and may lie beyond the file's end.
    ///
    /// # Errors
    ///
    /// As mmap(2): `ENODEV` where the filesystem has no mappings, `ENOMEM` at a limit of address space.
    pub fn new(file: &File, bytes: Range<u64>) -> io::Result<Mapping> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let length = usize::try_from(bytes.end.saturating_sub(bytes.start)).map_err(|_| invalid())?;
        let offset = libc::off_t::try_from(bytes.start).map_err(|_| invalid())?;
        // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anyone; it is not accessed.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { address: address as usize, length, offset: bytes.start })
    }

    /// The bytes of the file that are mapped.
    pub fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.length as u64
    }

    /// Where it lies in this process.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Asks mincore(2) about the pages of `bytes`, a part of the mapping that begins at a page; one byte a page goes
    /// into `answer`, its lowest bit set where the page is in memory and up to date.
    ///
    /// Where the caller neither owns the file nor may write it, the kernel answers that every page is in memory
    /// (mm/mincore.c, `can_do_mincore`).
    ///
    /// # Errors
    ///
    /// `EINVAL` where `bytes` is not inside the mapping or `answer` is not of as many bytes as there are pages; else as
    /// mincore(2).
    pub fn mincore(&self, bytes: Range<u64>, answer: &mut [u8]) -> io::Result<()> {
        let mapped = self.bytes();
        let inside = mapped.start <= bytes.start && bytes.start <= bytes.end && bytes.end <= mapped.end;
        if !inside || answer.len() as u64 != (bytes.end - bytes.start).div_ceil(page_size()) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let skip = (bytes.start - mapped.start) as usize;
        let length = (bytes.end - bytes.start) as usize;
        // SAFETY: the range lies in our own mapping, which mincore does not access; `answer` has a byte for each of
        // its pages.
        let status = unsafe { libc::mincore((self.address + skip) as *mut _, length, answer.as_mut_ptr().cast()) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it was ever made.
        unsafe { libc::munmap(self.address as *mut _, self.length) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_would_mean_something_else_are_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(cachestat(&file, 0..0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        let page = page_size();
        let mapping = Mapping::new(&file, 0..page * 4).unwrap();
        let refused = |bytes, answer: &mut [u8]| mapping.mincore(bytes, answer).unwrap_err().raw_os_error();
        assert_eq!(refused(0..page * 5, &mut [0; 5]), Some(libc::EINVAL));
        assert_eq!(refused(0..page * 2, &mut [0; 1]), Some(libc::EINVAL));
    }

    #[test]
    fn pages_beyond_the_end_are_not_in_memory() {
        // The owner's own file: mincore may be asked.
        let file = tempfile::tempfile().unwrap();
        let page = page_size();
        let mut answer = [1; 4];
        Mapping::new(&file, 0..page * 4).unwrap().mincore(0..page * 4, &mut answer).unwrap();
        assert_eq!(answer, [0; 4]);
    }
}
