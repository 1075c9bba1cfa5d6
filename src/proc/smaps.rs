//! `/proc/PID/smaps_rollup` (Documentation/filesystems/proc.rst): how much of what a process holds is its own share.
//!
//! The kernel walks the page tables for it while it holds the target's mmap lock for reading: whether that can be
//! afforded is for the caller to say. Nothing here is for a tick.

use super::text::key_and_value;

/// The sums over a process's mappings, in bytes. A page that `n` processes map counts one `n`th in each of them; the
/// kernel cuts each sum to whole KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    pub rss: u64,
    pub pss_anon: u64,
    pub pss_file: u64,
    pub pss_shmem: u64,
    /// Pages of mappings that are locked by mlock(2), proportionally.
    pub locked: u64,
    /// Anonymous memory in transparent huge pages; not proportional.
    pub anon_huge: u64,
    /// Pages merged by KSM (Linux 6.8): they may be shared with anybody, and their share here may be any part of them.
    pub ksm: u64,
}

impl Rollup {
    /// `None` where the text lacks the split of PSS (before Linux 5.9) or is empty: a process without memory.
    pub fn parse(text: &[u8]) -> Option<Rollup> {
        let mut rollup = Rollup::default();
        let mut split = 0;
        for line in text.split(|&byte| byte == b'\n') {
            let Some((key, value)) = key_and_value(line) else { continue };
            let field = match key {
                b"Rss" => &mut rollup.rss,
                b"Pss_Anon" => &mut rollup.pss_anon,
                b"Pss_File" => &mut rollup.pss_file,
                b"Pss_Shmem" => &mut rollup.pss_shmem,
                b"Locked" => &mut rollup.locked,
                b"AnonHugePages" => &mut rollup.anon_huge,
                b"KSM" => &mut rollup.ksm,
                _ => continue,
            };
            split += u32::from(key.starts_with(b"Pss_"));
            *field = value.saturating_mul(1024);
        }
        (split == 3).then_some(rollup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROLLUP: &[u8] = include_bytes!("../../fixtures/proc/smaps_rollup-forked");

    #[test]
    fn a_recorded_rollup() {
        // A child of one fork: half of the heap that it shares with its parent is its own share.
        let rollup = Rollup::parse(ROLLUP).unwrap();
        assert_eq!(rollup.rss, 1_058_960 * 1024);
        assert_eq!((rollup.pss_anon, rollup.pss_file, rollup.pss_shmem), (528_392 * 1024, 1_139 * 1024, 0));
        assert_eq!((rollup.locked, rollup.anon_huge, rollup.ksm), (0, 0, 0));
    }

    #[test]
    fn what_is_no_rollup_is_none() {
        assert_eq!(Rollup::parse(b""), None);
        assert_eq!(Rollup::parse(b"Rss: 4 kB\nPss: 4 kB\n"), None, "before the split");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Rollup::parse(&text);
        }
    }
}
