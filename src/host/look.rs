//! Bounded reading of small files, and the few forms their text has.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Enough for any of the kernel's one-value files and short tables.
pub(super) const SMALL_CAP: u64 = 64 << 10;
/// The first CPU's entry says the model. Reading on would make the kernel ask each of hundreds of CPUs.
pub(super) const CPUINFO_CAP: u64 = 8 << 10;

/// A regular file, opened so that nothing can make it wait: a FIFO or a device in its place is refused, before the
/// open (which might have effects) and after it (it might have been replaced).
pub(super) fn open(path: &Path) -> Option<File> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// The first `cap` bytes of a regular file.
pub(super) fn bytes(path: &Path, cap: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(cap).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The first `cap` bytes of a regular file as text; what is no UTF-8 is replaced.
pub(super) fn text(path: &Path, cap: u64) -> Option<String> {
    Some(String::from_utf8_lossy(&bytes(path, cap)?).into_owned())
}

/// The trimmed text of a small file; absent where it is empty.
pub(super) fn line(path: &Path) -> Option<String> {
    let text = text(path, SMALL_CAP)?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The value of the first `name: value` line.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (left, right) = line.split_once(':')?;
        (left.trim_end() == name).then(|| right.trim())
    })
}

/// The value of a `name:  123 kB` line, in bytes.
pub(super) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets of `always [madvise] never`.
pub(super) fn chosen_word(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

/// How many numbers a list like `0-3,8` has (the kernel's bitmap lists, cpuset(7)); absent if it is no such list.
pub(crate) fn list_length(list: &str) -> Option<u64> {
    list.trim().split(',').filter(|range| !range.is_empty()).try_fold(0u64, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_forms_are_read() {
        let meminfo = "MemTotal:       24684096 kB\nHugePages_Total:       0\nSwapTotal:  x kB\n";
        assert_eq!(kilobytes(meminfo, "MemTotal"), Some(24_684_096 * 1024));
        assert_eq!(kilobytes(meminfo, "HugePages_Total"), None, "no unit");
        assert_eq!(kilobytes(meminfo, "SwapTotal"), None);
        assert_eq!(kilobytes("MemTotal: 18446744073709551615 kB", "MemTotal"), None, "more than can be");
        assert_eq!(field("model name\t: AMD EPYC\n", "model name"), Some("AMD EPYC"));
        assert_eq!(chosen_word("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen_word("always"), None);
    }

    #[test]
    fn lists_are_counted() {
        assert_eq!(list_length("0-3,8"), Some(5));
        assert_eq!(list_length("7\n"), Some(1));
        assert_eq!(list_length(""), Some(0));
        for bad in ["3-1", "a", "0-18446744073709551615", "1-2-3"] {
            assert_eq!(list_length(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_regular_files_and_only_so_much() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(bytes(&file, 4).unwrap(), b"0123");
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(bytes(&fifo, 4), None);
        assert_eq!(bytes(folder.path(), 4), None);
        assert_eq!(line(&folder.path().join("absent")), None);
    }
}
