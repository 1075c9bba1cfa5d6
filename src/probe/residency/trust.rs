//! Who may be believed about one file, found by trying: never by kernel version, and by the filesystem's name only
//! where an answer is known to be wrong without a sign.

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
    /// Whether cachestat was found wrong by comparison. That it is not found wrong at another time says nothing: where
    /// the cache is empty, right and wrong look alike.
    pub contradicted: bool,
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
        Verdict { mincore, cachestat, contradicted: false, because: because.into() }
    }

    /// This verdict on a file about which cachestat was found wrong, because of `why`.
    pub fn without_cachestat(self, why: &str) -> Verdict {
        let because = if self.mincore { why.to_owned() } else { format!("{why}; {}", self.because) };
        Verdict { mincore: self.mincore, cachestat: false, contradicted: true, because }
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

/// Tries both calls, and compares them at `places`.
pub fn decide(cache: &mut dyn PageCache, watched: &Watched, places: Places) -> Verdict {
    let filesystem = cache.filesystem().unwrap_or(0);
    if filesystem == HUGETLBFS_MAGIC {
        // mincore says 0 of pages that are there.
        return Verdict::none("hugetlbfs: neither mincore nor cachestat tells of huge pages");
    }
    let mincore = mincore_may_be_asked(cache);
    let cachestat = cachestat_may_be_asked(cache);
    match (mincore, cachestat) {
        (Ok(()), _) if filesystem == OVERLAYFS_MAGIC => {
            Verdict::of(true, false, "overlayfs: mincore sees the layers' page cache, cachestat does not")
        }
        (Err(why), _) if filesystem == OVERLAYFS_MAGIC => {
            Verdict::none(format!("overlayfs: cachestat does not see the layers' page cache; {why}"))
        }
        (Ok(()), Ok(())) => match compare(cache, watched, places) {
            Ok(seen) => Verdict::of(
                true,
                true,
                format!("both calls answer; where compared, mincore saw {seen} pages and cachestat no fewer"),
            ),
            Err(why) => Verdict::of(true, true, "").without_cachestat(&why),
        },
        (Ok(()), Err(why)) => Verdict::of(true, false, why),
        // Kernels before the check of permission came to cachestat answer anyone, and truly.
        (Err(why), Ok(())) => Verdict::of(false, true, format!("cachestat answers; {why}")),
        (Err(mincore), Err(cachestat)) => Verdict::none(format!("{mincore}; {cachestat}")),
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
    let between = cache.cachestat(pages.clone())?;
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
