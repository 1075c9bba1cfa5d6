//! Falls of residency: what was in memory and is not any more, told when it is more than noise.
//!
//! Two figures of a file can be held against each other only where each is of all its parts, and every part of the later
//! one was asked about after every part of the earlier one. So this goes by full views: one ends when all parts of all
//! files were asked about since it began, and then the next begins. A part that was asked about long ago delays the end of
//! a view; it is no fall.
//!
//! A fall is held against the largest full view since the last fall that was told, so that a slow one (a host that
//! reclaims a little at a time) adds up to something that is told. What came in elsewhere in the file meanwhile hides as
//! much of it: a fall is of the file's sum.
//!
//! No fall, and held against nothing before it: a file that became shorter, and one about which other calls answer than
//! before. Pages that were still being read count as there, whether or not the call that was asked counts them.

use super::rotation::Rotation;
use crate::clock::Mono;

/// Noise, in bytes, at least…
const NOISE: u64 = 1 << 20;
/// …and as a part of what is watched.
const NOISE_PART: u64 = 100;

/// A fall of one file's residency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fall {
    /// The file, as the rotation numbers it.
    pub file: usize,
    /// Watched bytes in memory before and after.
    pub from: u64,
    pub to: u64,
    /// It had not happened by then: when the view that `from` is of began.
    pub after: Mono,
    /// It had happened by then.
    pub by: Mono,
}

/// What a file is held against.
#[derive(Clone, Copy, Debug)]
struct Before {
    cached: u64,
    /// When the view began.
    began: Mono,
}

/// The full views so far.
pub struct Views {
    began: Mono,
    before: Vec<Option<Before>>,
    /// Pages of each file when it was first seen, or when a fall was last looked into.
    lengths: Vec<Option<u64>>,
}

impl Views {
    /// None yet; the first begins `now`.
    pub fn new(now: Mono) -> Views {
        Views { began: now, before: Vec::new(), lengths: Vec::new() }
    }

    /// A file was taken into the rotation and asked about for the first time, from `began` on.
    pub fn first_seen(&mut self, rotation: &Rotation, id: usize, began: Mono) {
        self.before.resize(rotation.count(), None);
        self.lengths.resize(rotation.count(), None);
        self.before[id] = rotation.cached(id).map(|cached| Before { cached, began });
        self.lengths[id] = rotation.length(id);
    }

    /// To be called after every turn of the rotation: if a full view has ended with it, what has fallen.
    pub fn after_turn(&mut self, rotation: &Rotation) -> Vec<Fall> {
        let mut falls = Vec::new();
        if !rotation.oldest().is_some_and(|oldest| oldest >= self.began) {
            return falls;
        }
        let now = rotation.now();
        for (id, before) in self.before.iter_mut().enumerate() {
            let is = rotation.cached(id).map(|cached| Before { cached, began: self.began });
            let (Some(was), Some(is)) = (*before, is) else {
                *before = is;
                continue;
            };
            let noise = NOISE.max(rotation.watched(id) / NOISE_PART);
            if was.cached.saturating_sub(is.cached) >= noise {
                // Asked only here: of a file on a network it costs a message.
                let length = rotation.length(id);
                let shorter = length < self.lengths[id];
                self.lengths[id] = length;
                *before = Some(is);
                if !shorter {
                    falls.push(Fall { file: id, from: was.cached, to: is.cached, after: was.began, by: now });
                }
            } else if is.cached >= was.cached {
                *before = Some(is);
            }
        }
        self.began = now;
        falls
    }

    /// A file is answered for by other calls from here on.
    pub fn forget(&mut self, id: usize) {
        if let Some(before) = self.before.get_mut(id) {
            *before = None;
        }
    }
}
