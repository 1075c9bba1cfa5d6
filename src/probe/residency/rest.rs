//! The bytes of the artifacts that are no payload (headers, padding, metadata): how many of them are in memory. Asked at
//! marks, apart from the rotation, which spends its time on the payload.

use std::io;
use std::ops::Range;
use std::time::Duration;

use super::ResidencyProbe;
use super::kernel::PageCache;
use super::pages::Watched;
use super::trust::Verdict;
use crate::artifact::Artifact;
use crate::clock::Mono;
use crate::sys::cache::page_size;

/// Pages that are asked about in one call.
const AT_ONCE: u64 = 1 << 14;

/// What the rotation does not watch of an artifact.
pub fn of(artifact: &Artifact) -> Watched {
    Watched::new(&artifact.watched_ranges().complement(artifact.size), page_size())
}

impl ResidencyProbe {
    /// Bytes of the artifacts that are in memory, in mincore's meaning: of the payload (or the whole file where that is
    /// unknown) as last seen, and of the rest as it is now.
    ///
    /// # Errors
    ///
    /// The reason why there is no such sum: no artifact, one about which nobody may be asked, or more to ask than `limit`
    /// allows.
    pub fn whole(&mut self, limit: Duration) -> Result<u64, String> {
        if self.artifacts.is_empty() {
            return Err("no artifact in the set".into());
        }
        let deadline = self.rotation.now().plus(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let mut sum = 0u64;
        for (id, known) in self.artifacts.iter().enumerate() {
            let named = |why: &str| format!("{}: {why}", known.path.display());
            let watched = self.rotation.resident(id).map_err(named)?;
            let rest = self.rotation.ask_aside(id, |cache, verdict| count(cache, verdict, &known.rest, deadline));
            sum = sum.saturating_add(watched).saturating_add(rest.map_err(|why| named(&why))?);
        }
        Ok(sum)
    }
}

/// Bytes of `rest` that are in memory.
fn count(cache: &mut dyn PageCache, verdict: &Verdict, rest: &Watched, deadline: Mono) -> Result<u64, String> {
    let mut sum = 0;
    for run in rest.runs() {
        let mut start = run.start;
        while start < run.end {
            if Mono::now() > deadline {
                return Err("there was no time left to ask about its headers and padding".into());
            }
            let pages = start..run.end.min(start + AT_ONCE);
            start = pages.end;
            let asked =
                if verdict.mincore { by_mincore(cache, rest, &pages) } else { by_cachestat(cache, rest, &pages) };
            sum += asked.map_err(|error| error.to_string())?;
        }
    }
    Ok(sum)
}

fn by_mincore(cache: &mut dyn PageCache, rest: &Watched, pages: &Range<u64>) -> io::Result<u64> {
    let answer = cache.mincore(pages.clone())?;
    let whole = answer.iter().map(|page| u64::from(page & 1)).sum::<u64>() * rest.page_size();
    let in_memory = |page: u64| answer[(page - pages.start) as usize] & 1 == 1;
    let unwatched: u64 = rest.odd(pages).iter().filter(|odd| in_memory(odd.page)).map(|odd| odd.unwatched).sum();
    Ok(whole.saturating_sub(unwatched))
}

fn by_cachestat(cache: &mut dyn PageCache, rest: &Watched, pages: &Range<u64>) -> io::Result<u64> {
    let mut sum = cache.cachestat(pages.clone())?.cached * rest.page_size();
    for odd in rest.odd(pages) {
        if cache.cachestat(odd.page..odd.page + 1)?.cached > 0 {
            sum = sum.saturating_sub(odd.unwatched);
        }
    }
    Ok(sum)
}
