//! Which metrics are absent now, and why: told when it begins, when the reason becomes another, and when it ends; and
//! which ever were.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::event::What;
use crate::metric::{Metric, Values};

/// In one absence so many reasons are told at most: of several that hold at once any may be the one given.
const MOST_REASONS: u32 = 16;

/// The absences that hold.
#[derive(Default)]
pub struct Absence {
    /// With the reason last told, and how many were.
    held: BTreeMap<Metric, (String, u32)>,
    /// Every metric that was absent at some time, with the last reason.
    ever: BTreeMap<Metric, String>,
}

impl Absence {
    /// Takes a look's values and reasons; returns what changed. A reason that only changes its numbers while the metric
    /// stays absent is not told again.
    pub fn update(&mut self, values: &Values, reasons: Vec<(Metric, String)>) -> Vec<What> {
        let mut changes = Vec::new();
        self.held.retain(|&metric, _| {
            let known = values.get(metric).is_some();
            if known {
                changes.push(What::Present { metric });
            }
            !known
        });
        for (metric, reason) in reasons {
            if values.get(metric).is_some() {
                continue;
            }
            self.ever.insert(metric, reason.clone());
            match self.held.entry(metric) {
                Entry::Vacant(place) => {
                    changes.push(What::Absent { metric, reason: reason.clone() });
                    place.insert((reason, 1));
                }
                Entry::Occupied(mut place) => {
                    let (before, told) = place.get_mut();
                    if *told < MOST_REASONS && !is_same_but_numbers(before, &reason) {
                        changes.push(What::Absent { metric, reason: reason.clone() });
                        (*before, *told) = (reason, *told + 1);
                    }
                }
            }
        }
        changes
    }

    /// Every metric that was absent at some time, with its last reason, in the order of the columns.
    pub fn ever(&self) -> impl Iterator<Item = (Metric, &str)> {
        self.ever.iter().map(|(&metric, reason)| (metric, reason.as_str()))
    }
}

fn is_same_but_numbers(one: &str, other: &str) -> bool {
    let words = |text: &str| {
        text.split(|letter: char| letter.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .eq(other.split(|letter: char| letter.is_ascii_digit()).filter(|part| !part.is_empty()))
    };
    one == other || words(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let mut absence = Absence::default();
        let mut values = Values::ABSENT;
        let reason = || vec![(Metric::ReadBytes, "denied".to_owned())];
        assert_eq!(absence.update(&values, reason()).len(), 1);
        assert_eq!(absence.update(&values, reason()), []);
        values.set(Metric::ReadBytes, 4);
        assert_eq!(absence.update(&values, vec![]), [What::Present { metric: Metric::ReadBytes }]);
        assert_eq!(absence.update(&values, vec![]), []);
        values.set(Metric::ReadBytes, None);
        assert_eq!(absence.update(&values, vec![(Metric::ReadBytes, "gone".to_owned())]).len(), 1);
        values.set(Metric::ReadBytes, 4);
        absence.update(&values, vec![]);
        assert_eq!(absence.ever().collect::<Vec<_>>(), [(Metric::ReadBytes, "gone")]);
    }

    #[test]
    fn another_reason_is_told_and_another_number_is_not() {
        let mut absence = Absence::default();
        let mut told = |reason: &str| {
            absence.update(&Values::ABSENT, vec![(Metric::ReadBytes, reason.to_owned())]).into_iter().next()
        };
        let absent = |reason: &str| Some(What::Absent { metric: Metric::ReadBytes, reason: reason.to_owned() });
        assert_eq!(told("no artifact in the set"), absent("no artifact in the set"));
        assert_eq!(told("FUSE: 9 of 10 pages"), absent("FUSE: 9 of 10 pages"));
        assert_eq!(told("FUSE: 10 of 10 pages"), None);
        assert_eq!(told("FUSE: no pages"), absent("FUSE: no pages"));
        // Two that take turns are not told for ever.
        let many = (0..100).filter_map(|turn| told(if turn % 2 == 0 { "a" } else { "b" })).count();
        assert_eq!(many, MOST_REASONS as usize - 3);
    }
}
