//! Which metrics are absent now, and why: told once when it begins, and once when it ends; and which ever were.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::event::What;
use crate::metric::{Metric, Values};

/// The absences that hold.
#[derive(Default)]
pub struct Absence {
    held: BTreeMap<Metric, String>,
    /// Every metric that was absent at some time, with the last reason.
    ever: BTreeMap<Metric, String>,
}

impl Absence {
    /// Takes a look's values and reasons; returns what changed. A reason that only changes its words while the metric
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
            if let Entry::Vacant(place) = self.held.entry(metric) {
                changes.push(What::Absent { metric, reason: reason.clone() });
                place.insert(reason);
            }
        }
        changes
    }

    /// Every metric that was absent at some time, with its last reason, in the order of the columns.
    pub fn ever(&self) -> impl Iterator<Item = (Metric, &str)> {
        self.ever.iter().map(|(&metric, reason)| (metric, reason.as_str()))
    }
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
}
