//! Takes a file out of the page cache, as far as whoever may read it can: posix_fadvise(2), `POSIX_FADV_DONTNEED`.
//!
//! The kernel drops pages that are clean, unlocked and mapped by nobody (mm/truncate.c, `invalidate_mapping_pages`), and
//! passes over those that wait in some CPU's batch: so what is dirty is written first, and it is tried again.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::fstatfs;

use super::look::Watch;
use crate::artifact::Artifact;
use crate::sys::cache::{cachestat, is_dax};

/// How often it is tried.
const TRIES: u32 = 6;
/// After so many tries that brought nothing it is given up.
const IN_VAIN: u32 = 3;
/// What is waited after the first try, doubled after each: pages may be under way to the device, or read just now.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// Filesystems whose files are memory, by their numbers (statfs(2)).
const MEMORY: &[(u32, &str)] = &[(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs"), (0x9584_58f6, "hugetlbfs")];

/// All of a file, however long it is or grows.
pub const WHOLE: Range<u64> = 0..u64::MAX >> 1;

/// Writes what is dirty of a range of a file to its device and drops the range's pages; the kernel passes over one that
/// is not in it whole.
///
/// # Errors
/// As fdatasync(2) and posix_fadvise(2).
pub fn drop_pages(file: &File, bytes: Range<u64>) -> io::Result<()> {
    // Where nobody counts dirty pages there may be some.
    if cachestat(file, bytes.clone()).map_or(true, |counts| counts.dirty + counts.writeback > 0) {
        match file.sync_data() {
            // What cannot be written has nothing to be written (fsync(2)).
            Err(error) if matches!(error.raw_os_error(), Some(libc::EROFS | libc::EINVAL)) => {}
            written => written?,
        }
    }
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let begin = i64::try_from(bytes.start).map_err(invalid)?;
    let length = i64::try_from(bytes.end.saturating_sub(bytes.start)).map_err(invalid)?;
    posix_fadvise(file, begin, length, PosixFadviseAdvice::POSIX_FADV_DONTNEED).map_err(io::Error::from)
}

/// Why a file cannot leave memory, where that is so.
fn is_memory(file: &File) -> Option<String> {
    // The field's width and sign differ between architectures; the numbers are of 32 bits.
    let number = fstatfs(file).ok().map(|found| found.filesystem_type().0 as u32);
    if let Some((_, name)) = MEMORY.iter().find(|(of, _)| Some(*of) == number) {
        return Some(format!("it lies on {name}, which is memory itself: there is no storage to leave it on"));
    }
    is_dax(file).then(|| "its storage is mapped directly (DAX), past the page cache".to_owned())
}

/// Evicts; what stood in the way is said.
pub(super) fn evict(artifact: &Artifact, watch: &mut Watch) -> Vec<String> {
    if let Some(why) = is_memory(&artifact.file) {
        return vec![format!("cannot be evicted: {why}")];
    }
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    let mut in_vain = 0;
    for number in 1..=TRIES {
        if let Err(error) = drop_pages(&artifact.file, WHOLE) {
            return vec![format!("cannot be evicted: {error}")];
        }
        match watch.resident() {
            Ok(0) => return Vec::new(),
            Ok(left) => {
                in_vain = if last.is_some_and(|last| left >= last) { in_vain + 1 } else { 0 };
                last = Some(left);
            }
            // Nobody may say how much is left: a second time is for what was under way.
            Err(_) if number >= 2 => return Vec::new(),
            Err(_) => {}
        }
        if in_vain >= IN_VAIN {
            break;
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
    let dirty = cachestat(&artifact.file, WHOLE).map_or(0, |counts| counts.dirty + counts.writeback);
    match dirty {
        0 => Vec::new(),
        pages => vec![format!("{pages} pages of it are dirty or being written: someone writes to it")],
    }
}
