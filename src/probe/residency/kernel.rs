//! The questions that the kernel is asked about one file, in pages; behind a trait, so that trust and rotation can be
//! tried on kernels, filesystems and sizes that are not at hand.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::statfs::fstatfs;

use crate::sys::cache::{CacheStat, Mapping, cachestat, is_dax, page_size};

/// One file's pages, as the kernel tells of them.
pub trait PageCache: Send {
    /// Counts `pages` by cachestat(2).
    fn cachestat(&mut self, pages: Range<u64>) -> io::Result<CacheStat>;

    /// Which of `pages` are in memory, by mincore(2): a byte a page, its lowest bit set if so.
    fn mincore(&mut self, pages: Range<u64>) -> io::Result<&[u8]>;

    /// The file's length now, in pages.
    fn length(&self) -> io::Result<u64>;

    /// The filesystem's number (statfs(2), `f_type`).
    fn filesystem(&self) -> io::Result<u32>;

    /// Whether the file was opened, and not only found (`O_PATH`, open(2)).
    fn is_open(&self) -> bool;

    /// Whether its storage is mapped directly, past the page cache (statx(2), `STATX_ATTR_DAX`).
    fn is_dax(&self) -> bool;
}

/// Bytes that are mapped at a time for mincore(2): mapping and unmapping cost microseconds, asking about as much 11 ms
/// and more, and a limit of address space is not reached.
const WINDOW: u64 = 1 << 30;

/// The kernel itself.
pub struct Kernel {
    file: Arc<File>,
    page_size: u64,
    window: Option<Mapping>,
    answer: Vec<u8>,
}

impl Kernel {
    pub fn new(file: Arc<File>) -> Kernel {
        Kernel { file, page_size: page_size(), window: None, answer: Vec::new() }
    }

    fn bytes(&self, pages: &Range<u64>) -> Range<u64> {
        pages.start.saturating_mul(self.page_size)..pages.end.saturating_mul(self.page_size)
    }

    /// The mapping that holds the byte at `position`.
    fn window_at(&mut self, position: u64) -> io::Result<&Mapping> {
        let window = match self.window.take() {
            Some(window) if window.bytes().contains(&position) => window,
            _ => {
                let start = position / WINDOW * WINDOW;
                Mapping::new(&self.file, start..start + WINDOW)?
            }
        };
        Ok(self.window.insert(window))
    }
}

impl PageCache for Kernel {
    fn cachestat(&mut self, pages: Range<u64>) -> io::Result<CacheStat> {
        cachestat(&self.file, self.bytes(&pages))
    }

    fn mincore(&mut self, pages: Range<u64>) -> io::Result<&[u8]> {
        let bytes = self.bytes(&pages);
        let mut answer = std::mem::take(&mut self.answer);
        answer.clear();
        answer.resize((pages.end - pages.start) as usize, 0);
        let mut from = bytes.start;
        while from < bytes.end {
            let page_size = self.page_size;
            let window = self.window_at(from)?;
            let to = bytes.end.min(window.bytes().end);
            let slots = (from - bytes.start) / page_size..(to - bytes.start) / page_size;
            window.mincore(from..to, &mut answer[slots.start as usize..slots.end as usize])?;
            from = to;
        }
        self.answer = answer;
        Ok(&self.answer)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().div_ceil(self.page_size))
    }

    fn filesystem(&self) -> io::Result<u32> {
        // The field's width and sign differ between architectures; the numbers are of 32 bits.
        Ok(fstatfs(&*self.file)?.filesystem_type().0 as u32)
    }

    fn is_open(&self) -> bool {
        // Of a descriptor that was not opened by O_PATH this asks nobody but the kernel's own table.
        fcntl(&*self.file, FcntlArg::F_GETFL).is_ok_and(|flags| flags & libc::O_PATH == 0)
    }

    fn is_dax(&self) -> bool {
        is_dax(&self.file)
    }
}
