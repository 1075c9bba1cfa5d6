//! Which metrics are absent now, and why: told once when it begins, and once when it ends.

use std::collections::BTreeMap;

use crate::event::What;
use crate::metric::{Metric, Values};

/// The absences that hold.
#[derive(Default)]
pub struct Absence {
    held: BTreeMap<Metric, String>,
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
            if values.get(metric).is_none() && !self.held.contains_key(&metric) {
                changes.push(What::Absent { metric, reason: reason.clone() });
                self.held.insert(metric, reason);
            }
        }
        changes
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
        assert_eq!(absence.update(&values, reason()).len(), 1);
    }
}
