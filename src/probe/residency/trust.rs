//! Who may be believed about one file: a table, whose facts are found by trying, never by kernel version, and by the
//! filesystem's name only where an answer is known to be wrong without a sign.
//!
//! | the file | mincore(2) says | cachestat(2) says | believed |
//! |---|---|---|---|
//! | not opened (found after start on FUSE, where a second open() empties the cache) | – | – | nobody |
//! | on hugetlbfs | 0, whatever is there | `EOPNOTSUPP` | nobody |
//! | with DAX | 0: its pages are the storage itself and in no page cache | 0 | nobody |
//! | on overlayfs, one's own | the layers' page cache | 0: it asks a cache that is never filled | mincore |
//! | on overlayfs, another user's | "all" | 0 | nobody |
//! | one's own, writable, or by capability; tmpfs, ext4, xfs, btrfs, FUSE, NFS, 9p, virtiofs… | the truth | the truth, and pages still being read | both: cachestat where it is the cheaper |
//! | the same on a kernel without cachestat, or where a filter forbids it | the truth | `ENOSYS`, `EPERM` | mincore |
//! | the same where cachestat lacks pages that mincore saw before and after it | the truth | of another cache | mincore |
//! | another user's, read-only | "all" | `EPERM` | nobody |
//! | the same on a kernel whose cachestat has no check of permission yet | "all" | the truth | cachestat |
//!
//! Where both are believed and differ, mincore is the meaning: cachestat counts pages that read-ahead has begun and not
//! finished. Between marks that is let be, for a moment later it is true; at marks what has just filled up is asked of
//! mincore ([`super::rotation::Rotation::settle_in_flight`]).
//!
//! One disagreement is not distrust. It is two answers that contradict each other twice in a row at one place, and for
//! good only if that happens at a second trial too; a later trial that finds pages where both agree takes the first back.
//! Trials go on at every mark, and between marks once a second, each time at other places: where nothing is in memory,
//! right and wrong look alike.

use std::io;
use std::ops::Range;

use super::Trust;
use super::kernel::PageCache;
use super::pages::Watched;

/// Which calls may answer for a file, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub mincore: bool,
    pub cachestat: bool,
    /// Whether cachestat was found wrong by comparison.
    pub contradicted: bool,
    /// Pages that both saw where they were compared. Where there were none, agreement says nothing.
    pub agreed: u64,
    pub because: String,
}

/// Pages of one comparison of the two calls.
const STRIDE: u64 = 64;

/// How far beyond the file's end the page lies that shows whether mincore answers truly: farther than a file that is
/// being written grows in between.
const BEYOND: u64 = 1 << 14;

const HUGETLBFS_MAGIC: u32 = 0x9584_58f6;
const OVERLAYFS_MAGIC: u32 = 0x794c_7630;

impl Verdict {
    /// For `run.json`.
    pub fn trust(&self) -> Trust {
        let by = match (self.cachestat, self.mincore) {
            (true, _) => "cachestat",
            (false, true) => "mincore",
            (false, false) => "none",
        };
        Trust { by: by.into(), because: self.because.clone() }
    }

    /// Whether nobody may answer.
    pub fn is_none(&self) -> bool {
        !self.mincore && !self.cachestat
    }

    /// Nobody may.
    pub fn none(because: impl Into<String>) -> Verdict {
        Verdict::of(false, false, because)
    }

    fn of(mincore: bool, cachestat: bool, because: impl Into<String>) -> Verdict {
        Verdict { mincore, cachestat, contradicted: false, agreed: 0, because: because.into() }
    }

    /// This verdict on a file about which cachestat was found wrong, because of `why`.
    pub fn without_cachestat(self, why: &str) -> Verdict {
        let because = if self.mincore { why.to_owned() } else { format!("{why}; {}", self.because) };
        Verdict { mincore: self.mincore, cachestat: false, contradicted: true, agreed: 0, because }
    }

    /// Whether the same calls may answer.
    pub fn same_calls(&self, other: &Verdict) -> bool {
        (self.mincore, self.cachestat) == (other.mincore, other.cachestat)
    }
}

/// Whether mincore answers truly about this file.
///
/// To one who neither owns the file nor may write it the kernel says of every page that it is in memory, without an
/// error (mm/mincore.c, `can_do_mincore`). A page beyond the file's end cannot be; what is said of it tells the two apart,
/// whichever of ownership, permission, capability or user namespace decided.
fn mincore_may_be_asked(cache: &mut dyn PageCache) -> Result<(), String> {
    let failed = |error: io::Error| format!("mincore: {error}");
    // Once more, should the file have grown past that page in the meantime.
    for _ in 0..2 {
        let beyond = cache.length().map_err(failed)?.saturating_add(BEYOND);
        if cache.mincore(beyond..beyond + 1).map_err(failed)?[0] & 1 == 0 {
            return Ok(());
        }
    }
    Err("mincore withholds its answer: neither the file's owner nor allowed to write it".into())
}

fn cachestat_may_be_asked(cache: &mut dyn PageCache) -> Result<(), String> {
    match cache.cachestat(0..1) {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::ENOSYS) => "no cachestat in this kernel (Linux 6.5)".into(),
            Some(libc::EPERM) => "cachestat: not permitted (EPERM)".into(),
            _ => format!("cachestat: {error}"),
        }),
    }
}

/// Which places of a file the two calls are compared at: `count` of `of` places spread evenly over what is watched, at
/// even distances from `first`.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub first: u64,
    pub count: u64,
    pub of: u64,
}

impl Places {
    /// `count` places over the whole file.
    pub fn all(count: u64) -> Places {
        Places { first: 0, count, of: count }
    }

    fn nths(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |nth| (self.first + nth * self.of / self.count) % self.of)
    }
}

/// What was found out about a file.
struct Tried {
    opened: bool,
    dax: bool,
    filesystem: u32,
    mincore: Result<(), String>,
    cachestat: Result<(), String>,
}

impl Tried {
    fn of(cache: &mut dyn PageCache) -> Tried {
        let opened = cache.is_open();
        let not_asked = || Err("not asked".to_owned());
        Tried {
            opened,
            dax: cache.is_dax(),
            filesystem: cache.filesystem().unwrap_or(0),
            mincore: if opened { mincore_may_be_asked(cache) } else { not_asked() },
            cachestat: if opened { cachestat_may_be_asked(cache) } else { not_asked() },
        }
    }

    fn why_not(&self) -> String {
        let reasons = [&self.mincore, &self.cachestat].map(|tried| tried.as_ref().err().map(String::as_str));
        reasons.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Whose answer is taken.
#[derive(Clone, Copy)]
enum Believed {
    Nobody,
    Mincore,
    Cachestat,
    /// Unless a comparison shows that cachestat is wrong.
    Both,
}

/// One row of the table.
struct Rule {
    holds: fn(&Tried) -> bool,
    believed: Believed,
    /// What is said of it, before what the calls themselves gave as their reason.
    because: &'static str,
}

/// The table; the first rule that holds decides.
const RULES: &[Rule] = &[
    Rule {
        holds: |tried| !tried.opened,
        believed: Believed::Nobody,
        because: "found after start on a FUSE file system, where opening it would empty its page cache",
    },
    Rule {
        holds: |tried| tried.filesystem == HUGETLBFS_MAGIC,
        believed: Believed::Nobody,
        because: "hugetlbfs: neither mincore nor cachestat tells of huge pages",
    },
    Rule {
        holds: |tried| tried.dax,
        believed: Believed::Nobody,
        because: "DAX: what is mapped is the storage itself, and no page cache tells how much of it is used",
    },
    Rule {
        holds: |tried| tried.filesystem == OVERLAYFS_MAGIC && tried.mincore.is_ok(),
        believed: Believed::Mincore,
        because: "overlayfs: mincore sees the layers' page cache, cachestat does not",
    },
    Rule {
        holds: |tried| tried.filesystem == OVERLAYFS_MAGIC,
        believed: Believed::Nobody,
        because: "overlayfs: cachestat does not see the layers' page cache",
    },
    Rule {
        holds: |tried| tried.mincore.is_ok() && tried.cachestat.is_ok(),
        believed: Believed::Both,
        because: "both calls answer",
    },
    Rule { holds: |tried| tried.mincore.is_ok(), believed: Believed::Mincore, because: "mincore answers" },
    // Kernels before the check of permission came to cachestat answer anyone, and truly.
    Rule { holds: |tried| tried.cachestat.is_ok(), believed: Believed::Cachestat, because: "cachestat answers" },
    Rule { holds: |_| true, believed: Believed::Nobody, because: "" },
];

/// Tries both calls, looks the outcome up in the table, and compares the calls at `places` where both may answer.
pub fn decide(cache: &mut dyn PageCache, watched: &Watched, places: Places) -> Verdict {
    let tried = Tried::of(cache);
    let Some(rule) = RULES.iter().find(|rule| (rule.holds)(&tried)) else { return Verdict::none(tried.why_not()) };
    let because = match (rule.because, tried.why_not()) {
        ("", why) => why,
        (because, why) if why.is_empty() || !tried.opened => because.to_owned(),
        (because, why) => format!("{because}; {why}"),
    };
    match rule.believed {
        Believed::Nobody => Verdict::none(because),
        Believed::Mincore => Verdict::of(true, false, because),
        Believed::Cachestat => Verdict::of(false, true, because),
        Believed::Both => match compare(cache, watched, places) {
            Ok(agreed) => Verdict {
                agreed,
                ..Verdict::of(
                    true,
                    true,
                    format!("{because}; where compared, mincore saw {agreed} pages and cachestat no fewer"),
                )
            },
            Err(why) => Verdict::of(true, true, "").without_cachestat(&why),
        },
    }
}

/// Compares the two calls at `places`; how many pages mincore saw there.
///
/// # Errors
///
/// Why cachestat is not to be believed: it lacks pages that mincore saw both before and after it, twice. More pages than
/// mincore's are no sign: read-ahead in flight is counted by cachestat alone.
fn compare(cache: &mut dyn PageCache, watched: &Watched, places: Places) -> Result<u64, String> {
    let mut seen = 0;
    for nth in places.nths() {
        let Some(pages) = strided(watched, nth, places.of) else { continue };
        for attempt in 1..=2 {
            // An error here is the rotation's to meet.
            let Ok((by_mincore, by_cachestat)) = both(cache, &pages) else { break };
            if by_mincore <= by_cachestat {
                seen += by_mincore;
                break;
            }
            if attempt == 2 {
                return Err(format!(
                    "cachestat saw {by_cachestat} of the {by_mincore} pages that mincore saw in pages {}..{}",
                    pages.start, pages.end
                ));
            }
        }
    }
    Ok(seen)
}

/// The counts of mincore, the lesser of before and after, and of cachestat in between.
fn both(cache: &mut dyn PageCache, pages: &Range<u64>) -> io::Result<(u64, u64)> {
    let count = |cache: &mut dyn PageCache| {
        cache.mincore(pages.clone()).map(|answer| answer.iter().filter(|page| **page & 1 == 1).count() as u64)
    };
    let before = count(cache)?;
    let between = cache.cachestat(pages.clone())?.cached;
    Ok((before.min(count(cache)?), between))
}

/// The `nth` of `of` ranges of pages spread evenly over the watched runs.
fn strided(watched: &Watched, nth: u64, of: u64) -> Option<Range<u64>> {
    let total: u64 = watched.runs().iter().map(|run| run.end - run.start).sum();
    let mut skip = (u128::from(total) * u128::from(nth) / u128::from(of.max(1))) as u64;
    for run in watched.runs() {
        let length = run.end - run.start;
        if skip < length {
            return Some(run.start + skip..run.end.min(run.start + skip + STRIDE));
        }
        skip -= length;
    }
    None
}
