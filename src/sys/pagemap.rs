//! What a process's page tables point at: the `PAGEMAP_SCAN` ioctl (Linux 6.7), and the words of `/proc/PID/pagemap`
//! before it; and which mapping lies at an address (`PROCMAP_QUERY`, Linux 6.11). Documentation/admin-guide/mm/pagemap.rst,
//! fs/proc/task_mmu.c.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Pages of an address space that have something in common, as the kernel tells of them (`struct page_region`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct QueryArguments {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// A page of a file or of shared memory, so that a page of a private mapping that was written is none…
const PAGE_IS_FILE: u64 = 1 << 2;
/// …which a page table points at.
const PAGE_IS_PRESENT: u64 = 1 << 3;

nix::ioctl_readwrite!(pagemap_scan, b'f', 16, ScanArguments);
nix::ioctl_readwrite!(procmap_query, b'f', 17, QueryArguments);

/// Which of `addresses`, whose ends are multiples of the page size, page tables point at and are a file's: in order, into
/// `found`, as many regions as it has room for. Says up to which address the answer goes; what is left is to be asked anew.
///
/// `pagemap` is `/proc/PID/pagemap`. The target's mmap lock is held for reading meanwhile: its mmap and munmap wait, and
/// faults that need them. 1 GiB takes 0.1 ms in pages of 2 MiB, 4 ms in pages of 4 KiB, and 0.01 ms where nothing is
/// present, as measured on 6.18.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.7; `ESRCH` where the process has no memory any more.
pub fn scan(pagemap: &File, addresses: Range<u64>, found: &mut Vec<Region>) -> io::Result<u64> {
    found.resize(found.capacity().max(1), Region::default());
    let mut arguments = ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        flags: 0,
        start: addresses.start,
        end: addresses.end,
        walk_end: 0,
        vec: found.as_mut_ptr() as u64,
        vec_len: found.len() as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: PAGE_IS_PRESENT | PAGE_IS_FILE,
        category_anyof_mask: 0,
        return_mask: PAGE_IS_PRESENT | PAGE_IS_FILE,
    };
    // SAFETY: the structure is the kernel's (include/uapi/linux/fs.h) and names its own size; `vec` points at `vec_len`
    // regions that are ours and outlive the call, which writes no more than so many.
    let outcome = unsafe { pagemap_scan(pagemap.as_raw_fd(), &mut arguments) };
    match outcome {
        Ok(count) => {
            found.truncate(usize::try_from(count).unwrap_or(0));
            Ok(arguments.walk_end)
        }
        Err(error) => {
            found.clear();
            Err(error.into())
        }
    }
}

/// Words of `/proc/PID/pagemap` that say the same.
const PRESENT: u64 = 1 << 63;
const FILE_OR_SHARED: u64 = 1 << 61;

/// The same by reading `/proc/PID/pagemap`, a word a page, of up to 2,048 pages; `page_size` is the system's.
///
/// 1 GiB takes 0.7 to 3 ms, as measured on 6.18; the kernel takes the mmap lock for 2 MiB at a time.
///
/// # Errors
///
/// As read(2); `UnexpectedEof` where the process has no memory any more.
pub fn read(pagemap: &File, addresses: Range<u64>, page_size: u64, found: &mut Vec<Region>) -> io::Result<u64> {
    const WORDS: usize = 2_048;
    found.clear();
    let pages = ((addresses.end - addresses.start) / page_size).min(WORDS as u64);
    let mut bytes = [0; WORDS * 8];
    let words = &mut bytes[..pages as usize * 8];
    pagemap.read_exact_at(words, addresses.start / page_size * 8)?;
    for (index, word) in words.chunks_exact(8).enumerate() {
        let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
        if word & (PRESENT | FILE_OR_SHARED) != PRESENT | FILE_OR_SHARED {
            continue;
        }
        let start = addresses.start + index as u64 * page_size;
        match found.last_mut() {
            Some(last) if last.end == start => last.end += page_size,
            _ => found.push(Region { start, end: start + page_size, categories: 0 }),
        }
    }
    Ok(addresses.start + pages * page_size)
}

/// What lies at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingAt {
    pub start: u64,
    pub end: u64,
    /// Of its first byte in the file.
    pub offset: u64,
    /// As `/proc/PID/maps` shows them.
    pub device: u64,
    pub inode: u64,
}

/// The mapping that holds an address; `maps` is `/proc/PID/maps`. `None` where there is none.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.11; `ESRCH` where the process has no memory any more.
pub fn mapping_at(maps: &File, address: u64) -> io::Result<Option<MappingAt>> {
    let mut arguments =
        QueryArguments { size: size_of::<QueryArguments>() as u64, query_addr: address, ..QueryArguments::default() };
    // SAFETY: the structure is the kernel's (include/uapi/linux/fs.h) and names its own size; both of its sizes of
    // buffers are 0, so that the call writes nothing else.
    let outcome = unsafe { procmap_query(maps.as_raw_fd(), &mut arguments) };
    match outcome {
        Ok(_) => Ok(Some(MappingAt {
            start: arguments.vma_start,
            end: arguments.vma_end,
            offset: arguments.vma_offset,
            device: libc::makedev(arguments.dev_major, arguments.dev_minor),
            inode: arguments.inode,
        })),
        Err(nix::errno::Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::cache::page_size;
    use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
    use std::num::NonZeroUsize;

    /// The regions of the whole range, whichever call gives them.
    fn all(
        addresses: Range<u64>,
        mut ask: impl FnMut(Range<u64>, &mut Vec<Region>) -> io::Result<u64>,
    ) -> Vec<(u64, u64)> {
        let mut found: Vec<Region> = Vec::with_capacity(3);
        let mut regions: Vec<(u64, u64)> = Vec::new();
        let mut at = addresses.start;
        while at < addresses.end {
            at = ask(at..addresses.end, &mut found).unwrap();
            for region in &found {
                match regions.last_mut() {
                    Some(last) if last.1 == region.start => last.1 = region.end,
                    _ => regions.push((region.start, region.end)),
                }
            }
        }
        regions
    }

    #[test]
    fn both_calls_see_what_was_touched_and_not_what_was_written() {
        let page = page_size();
        let pages = 64;
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; (pages * page) as usize], 0).unwrap();
        let length = NonZeroUsize::new((pages * page) as usize).unwrap();
        // SAFETY: a new private mapping at an address of the kernel's choice, of a file that keeps its length.
        let start = unsafe {
            mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE, &file, 0).unwrap()
        };
        let base = start.as_ptr() as u64;
        // SAFETY: inside the mapping, which nothing refers to.
        unsafe { nix::sys::mman::madvise(start, length.get(), nix::sys::mman::MmapAdvise::MADV_RANDOM).unwrap() };
        // Written pages are anonymous; the kernel may map neighbours of a page that is only read.
        for index in (0..pages).step_by(2) {
            // SAFETY: inside the mapping.
            unsafe { (start.as_ptr() as *mut u8).add((index * page) as usize).write_volatile(2) };
        }
        // SAFETY: inside the mapping.
        unsafe { (start.as_ptr() as *const u8).add((5 * page) as usize).read_volatile() };
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let range = base..base + pages * page;
        let by_reading = all(range.clone(), |range, found| read(&pagemap, range, page, found));
        assert!(by_reading.contains(&(base + 5 * page, base + 6 * page)), "{by_reading:?}");
        assert!(by_reading.iter().all(|(start, end)| (start - base) / page % 2 == 1 && end - start == page));
        match scan(&pagemap, range.clone(), &mut Vec::new()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => eprintln!("skipped: no PAGEMAP_SCAN here"),
            _ => assert_eq!(all(range, |range, found| scan(&pagemap, range, found)), by_reading),
        }
        // SAFETY: the mapping is ours.
        unsafe { munmap(start, length.get()).unwrap() };
    }

    #[test]
    fn a_mapping_is_found_by_an_address_in_it() {
        let maps = File::open("/proc/self/maps").unwrap();
        let mut text = Vec::new();
        crate::proc::maps::read(std::process::id() as i32, &mut text).unwrap();
        let known = crate::proc::maps::Mapping::all(&text).find(|mapping| mapping.is_of_file()).unwrap();
        match mapping_at(&maps, known.start + 1) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => eprintln!("skipped: no PROCMAP_QUERY here"),
            found => {
                let found = found.unwrap().unwrap();
                assert_eq!((found.start, found.end, found.offset), (known.start, known.end, known.offset));
                assert_eq!((found.device, found.inode), (known.device, known.inode));
                assert_eq!(mapping_at(&maps, 16).unwrap(), None);
            }
        }
    }
}
