//! The ways by which a tensor's bytes come from its file to where they are used.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sys::memory::Sharing;

/// What happens to a tensor before and while it is copied to its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Regime {
    /// Out of a mapping that nobody touched yet; the file's pages are in no memory.
    FirstTouchCold,
    /// The same; the file's pages are in the page cache.
    FirstTouchWarm,
    /// Out of a mapping of which every page was read once before.
    Prefaulted,
    /// Out of a mapping that mmap(2) itself filled (`MAP_POPULATE`).
    Populated,
    /// read(2) into fresh anonymous memory, and out of that.
    Heap,
    /// Out of a mapping into fresh anonymous memory, and out of that.
    Cloned,
    /// Out of a mapping through one pinned buffer that all tensors share.
    PinnedOnce,
    /// Out of a mapping through a pinned buffer that each tensor is given anew.
    PinnedEach,
    /// read(2) past the page cache (`O_DIRECT`) into fresh anonymous memory, and out of that.
    Direct,
}

impl Regime {
    /// Every one, in the order of the tables.
    pub const ALL: [Regime; 9] = [
        Regime::FirstTouchCold,
        Regime::FirstTouchWarm,
        Regime::Prefaulted,
        Regime::Populated,
        Regime::Heap,
        Regime::Cloned,
        Regime::PinnedOnce,
        Regime::PinnedEach,
        Regime::Direct,
    ];

    /// Whether the file is mapped for it.
    pub fn maps(self) -> bool {
        !matches!(self, Regime::Heap | Regime::Direct)
    }

    /// Whether the copy itself is out of the file's mapping, rather than out of anonymous memory.
    pub fn copies_out_of_the_mapping(self) -> bool {
        matches!(self, Regime::FirstTouchCold | Regime::FirstTouchWarm | Regime::Prefaulted | Regime::Populated)
    }

    /// Whether it is pinned memory, of which a device's driver says where it lies.
    pub fn is_pinned(self) -> bool {
        matches!(self, Regime::PinnedOnce | Regime::PinnedEach)
    }

    /// Whether the page cache is to hold none of the tensors beforehand; else it is to hold all.
    pub fn is_cold(self) -> bool {
        self == Regime::FirstTouchCold
    }

    /// As tables and files name it.
    pub fn name(self) -> &'static str {
        match self {
            Regime::FirstTouchCold => "first_touch_cold",
            Regime::FirstTouchWarm => "first_touch_warm",
            Regime::Prefaulted => "prefaulted",
            Regime::Populated => "populated",
            Regime::Heap => "heap",
            Regime::Cloned => "cloned",
            Regime::PinnedOnce => "pinned_once",
            Regime::PinnedEach => "pinned_each",
            Regime::Direct => "direct",
        }
    }
}

/// How a regime maps the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapped {
    /// `PROT_READ | PROT_WRITE`, `MAP_PRIVATE`.
    Private,
    /// `PROT_READ`, `MAP_SHARED`.
    Shared,
}

impl Mapped {
    pub fn sharing(self) -> Sharing {
        match self {
            Mapped::Private => Sharing::PrivateWritable,
            Mapped::Shared => Sharing::SharedReadOnly,
        }
    }

    /// As `/proc/PID/maps` shows it.
    pub fn permissions(self) -> &'static str {
        match self {
            Mapped::Private => "rw-p",
            Mapped::Shared => "r--s",
        }
    }
}

/// A regime, with the kind of mapping where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Way {
    pub regime: Regime,
    pub mapped: Option<Mapped>,
}

impl Way {
    pub const HEAP: Way = Way { regime: Regime::Heap, mapped: None };

    pub fn mapping(regime: Regime, mapped: Mapped) -> Way {
        Way { regime, mapped: Some(mapped) }
    }

    /// What its copies are to be out of, as `/proc/PID/maps` tells it; `None` where that is a driver's.
    pub fn class(&self, is_device: bool) -> Option<String> {
        match self.mapped {
            Some(mapped) if self.regime.copies_out_of_the_mapping() => Some(format!("file {}", mapped.permissions())),
            _ if is_device && self.regime.is_pinned() => None,
            _ => Some("anonymous rw-p".to_owned()),
        }
    }

    /// Every way, in the order of the tables.
    pub fn all() -> Vec<Way> {
        let each = |regime: Regime| match regime.maps() {
            true => vec![Way::mapping(regime, Mapped::Private), Way::mapping(regime, Mapped::Shared)],
            false => vec![Way { regime, mapped: None }],
        };
        Regime::ALL.into_iter().flat_map(each).collect()
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.regime.name())?;
        match self.mapped {
            Some(Mapped::Private) => formatter.write_str(" private"),
            Some(Mapped::Shared) => formatter.write_str(" shared"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_is_made_both_ways() {
        let ways = Way::all();
        assert_eq!(ways.len(), 7 * 2 + 2);
        assert!(ways.contains(&Way::HEAP));
        assert!(ways.iter().all(|way| way.mapped.is_some() == way.regime.maps()));
        assert_eq!(ways[0].to_string(), "first_touch_cold private");
    }
}
