//! How much of each tensor is in host memory, byte-exact: for marks, where a few milliseconds can be afforded.
//!
//! One question a tensor and two for the pages at its ends; neighbours that are wholly in memory, or wholly not, are
//! answered together. Goes through the artifacts in their order and each file in its own, and stops at the deadline:
//! what was not come to has no figure, and neither has a file about which nobody may be asked.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::ResidencyProbe;
use super::kernel::{Kernel, PageCache};
use crate::artifact::{Artifact, ArtifactId, Layout};
use crate::clock::Mono;
use crate::sys::cache::page_size;

/// One tensor's part in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorResidency {
    pub artifact: ArtifactId,
    /// Its place in the artifact's layout.
    pub tensor: usize,
    pub resident_bytes: u64,
}

/// Neighbours are first asked about together, up to so many bytes: what is then neither full nor empty is asked about
/// once more.
const TOGETHER: u64 = 16 << 20;
/// One question is about no more than this: about 0.6 ms where the cache is in 4 KiB pages.
const AT_ONCE: u64 = 64 << 20;

impl ResidencyProbe {
    /// Asks about each tensor of these artifacts, until `deadline`.
    pub fn tensors(&self, artifacts: &[Artifact], deadline: Mono) -> Vec<TensorResidency> {
        let mut found = Vec::new();
        for (index, artifact) in artifacts.iter().enumerate().take(self.artifacts.len()) {
            let verdict = self.rotation.verdict(index);
            let Ok(layout) = &artifact.layout else { continue };
            if verdict.is_none() {
                continue;
            }
            let mut kernel = Kernel::new(Arc::clone(&artifact.file));
            let mut look = Look { cache: &mut kernel, cachestat: verdict.cachestat, page_size: page_size(), deadline };
            let mut enter = |tensor, resident_bytes| {
                found.push(TensorResidency { artifact: ArtifactId(index), tensor, resident_bytes });
            };
            // What was found before an error is true.
            if !look.layout(layout, &mut enter).unwrap_or(true) {
                break;
            }
        }
        found
    }
}

/// A look at one file.
struct Look<'a> {
    cache: &'a mut dyn PageCache,
    cachestat: bool,
    page_size: u64,
    deadline: Mono,
}

impl Look<'_> {
    /// Asks about every tensor; whether there was time for all.
    fn layout(&mut self, layout: &Layout, enter: &mut dyn FnMut(usize, u64)) -> io::Result<bool> {
        let tensors = &layout.tensors;
        let mut first = 0;
        while first < tensors.len() {
            let begin = tensors[first].offset;
            let mut end = begin.saturating_add(tensors[first].length);
            let mut last = first + 1;
            while last < tensors.len() {
                let next = &tensors[last];
                let reach = end.max(next.offset.saturating_add(next.length));
                if next.offset > end.saturating_add(self.page_size) || reach - begin > TOGETHER {
                    break;
                }
                end = reach;
                last += 1;
            }
            let group = self.pages(&(begin..end));
            let whole = group.end - group.start;
            let Some(count) = self.count(group)? else { return Ok(false) };
            for (index, tensor) in tensors.iter().enumerate().take(last).skip(first) {
                let bytes = tensor.offset..tensor.offset.saturating_add(tensor.length);
                let resident = match count {
                    0 => 0,
                    full if full >= whole => tensor.length,
                    count => {
                        let known = (last - first == 1).then_some(count);
                        let Some(resident) = self.tensor(&bytes, known)? else { return Ok(false) };
                        resident
                    }
                };
                enter(index, resident);
            }
            first = last;
        }
        Ok(true)
    }

    /// Resident bytes of a range whose pages' count may be known; `None` where the time is over.
    fn tensor(&mut self, bytes: &Range<u64>, known: Option<u64>) -> io::Result<Option<u64>> {
        let pages = self.pages(bytes);
        let whole = pages.end - pages.start;
        let length = bytes.end - bytes.start;
        let count = match known {
            Some(count) => count,
            None => match self.count(pages.clone())? {
                Some(count) => count,
                None => return Ok(None),
            },
        };
        if count == 0 || whole == 0 {
            return Ok(Some(0));
        }
        if count >= whole {
            return Ok(Some(length));
        }
        // Bytes of its first and last page that are not its own count only if the page is there.
        let before = bytes.start - pages.start * self.page_size;
        let after = pages.end * self.page_size - bytes.end;
        let mut foreign = 0;
        for (page, bytes) in [(pages.start, before), (pages.end - 1, after)] {
            if bytes > 0 && self.count(page..page + 1)?.is_none_or(|count| count > 0) {
                foreign += bytes;
            }
        }
        // Pages may have come and gone between the questions.
        Ok(Some((count * self.page_size).saturating_sub(foreign).min(length)))
    }

    fn pages(&self, bytes: &Range<u64>) -> Range<u64> {
        if bytes.start >= bytes.end {
            return 0..0;
        }
        bytes.start / self.page_size..(bytes.end - 1) / self.page_size + 1
    }

    /// Pages in memory; `None` where the time is over.
    fn count(&mut self, pages: Range<u64>) -> io::Result<Option<u64>> {
        let step = (AT_ONCE / self.page_size).max(1);
        let (mut at, mut count) = (pages.start, 0);
        while at < pages.end {
            if Mono::now() >= self.deadline {
                return Ok(None);
            }
            let piece = at..pages.end.min(at + step);
            at = piece.end;
            count += match self.cachestat {
                true => self.cache.cachestat(piece)?.cached,
                false => self.cache.mincore(piece)?.iter().filter(|page| **page & 1 == 1).count() as u64,
            };
        }
        Ok(Some(count))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::artifact::Tensor;
    use crate::sys::cache::CacheStat;
    use proptest::prelude::*;

    struct Pages {
        there: Vec<u8>,
        asked: usize,
    }

    impl PageCache for Pages {
        fn cachestat(&mut self, pages: Range<u64>) -> io::Result<CacheStat> {
            self.asked += 1;
            let cached = self.there[pages.start as usize..pages.end as usize].iter().map(|page| u64::from(*page)).sum();
            Ok(CacheStat { cached, ..CacheStat::default() })
        }

        fn mincore(&mut self, pages: Range<u64>) -> io::Result<&[u8]> {
            self.asked += 1;
            Ok(&self.there[pages.start as usize..pages.end as usize])
        }

        fn length(&self) -> io::Result<u64> {
            Ok(self.there.len() as u64)
        }

        fn filesystem(&self) -> io::Result<u32> {
            Ok(0)
        }

        fn is_open(&self) -> bool {
            true
        }

        fn is_dax(&self) -> bool {
            false
        }
    }

    fn layout(tensors: &[(u64, u64)]) -> Layout {
        let tensor = |&(offset, length): &(u64, u64)| Tensor {
            name: String::new(),
            dtype: String::new(),
            shape: Vec::new(),
            offset,
            length,
        };
        Layout { tensors: tensors.iter().map(tensor).collect(), ..Layout::default() }
    }

    fn look(pages: &mut Pages, cachestat: bool, layout: &Layout, deadline: Mono) -> (Vec<u64>, bool) {
        let mut found = Vec::new();
        let mut look = Look { cache: pages, cachestat, page_size: 8, deadline };
        let all = look
            .layout(layout, &mut |index, resident| {
                assert_eq!(index, found.len());
                found.push(resident);
            })
            .unwrap();
        (found, all)
    }

    #[test]
    fn what_is_all_there_or_not_there_is_asked_about_once() {
        let layout = layout(&[(3, 10), (13, 20), (33, 60)]);
        for (page, expected) in [(0, [0, 0, 0]), (1, [10, 20, 60])] {
            let mut pages = Pages { there: vec![page; 16], asked: 0 };
            let (found, all) = look(&mut pages, true, &layout, Mono(u64::MAX));
            assert_eq!((found.as_slice(), all, pages.asked), (&expected[..], true, 1));
        }
    }

    #[test]
    fn when_the_time_is_over_the_rest_has_no_figure() {
        let mut pages = Pages { there: vec![1; 16], asked: 0 };
        assert_eq!(look(&mut pages, true, &layout(&[(0, 8)]), Mono(0)), (Vec::new(), false));
        assert_eq!(pages.asked, 0);
    }

    proptest! {
        #[test]
        fn every_byte_is_counted_where_its_page_is(
            there in prop::collection::vec(0u8..2, 32),
            tensors in prop::collection::vec((0u64..200, 0u64..50), 0..10),
            cachestat in any::<bool>(),
        ) {
            let mut tensors = tensors;
            tensors.sort_unstable();
            let mut pages = Pages { there: there.clone(), asked: 0 };
            let (found, all) = look(&mut pages, cachestat, &layout(&tensors), Mono(u64::MAX));
            let bytes = |&(offset, length): &(u64, u64)| {
                (offset..offset + length).filter(|byte| there[(byte / 8) as usize] == 1).count() as u64
            };
            prop_assert!(all);
            prop_assert_eq!(found, tensors.iter().map(bytes).collect::<Vec<_>>());
        }
    }
}
