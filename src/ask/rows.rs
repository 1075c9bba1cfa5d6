//! Which attempts have a row of their own. All have at first; of thousands that ended alike a reader needs the first, the
//! last, and their number.

use crate::clock::Mono;
use crate::event::Probe;

/// Attempts in a row with one outcome that each have a row.
const EACH: u64 = 100;
/// Of more of them, one in so many has one.
const ONE_IN: u64 = 100;
/// Rows of one condition; where its outcomes change that often, one attempt in [`ONE_IN`] has one after that.
const MOST: u64 = 5_000;

type Row = (Mono, u64, Probe);

/// The attempts at one condition so far.
#[derive(Default)]
pub(super) struct Rows {
    outcome: String,
    /// Attempts with this outcome in a row.
    alike: u64,
    /// Those since the last row that have none, and the last of them.
    without: u64,
    last: Option<Row>,
    written: u64,
}

impl Rows {
    /// Takes an attempt; returns the rows to be written now. Accepted, it always has one.
    pub fn attempt(&mut self, at: Mono, uncertainty_ns: u64, probe: Probe) -> Vec<Row> {
        let changed = probe.outcome != self.outcome;
        if changed {
            self.outcome = probe.outcome.clone();
            self.alike = 0;
        }
        self.alike += 1;
        let mut rows = Vec::new();
        let has_own = match (changed, self.written < MOST) {
            (true, true) => true,
            (false, true) => self.alike <= EACH || self.alike.is_multiple_of(ONE_IN),
            (_, false) => probe.attempt.is_multiple_of(ONE_IN),
        };
        if has_own || probe.accepted {
            // The last of those that were alike tells how many they were.
            if changed {
                rows = self.end();
            }
            let without_row = std::mem::take(&mut self.without);
            self.last = None;
            rows.push((at, uncertainty_ns, Probe { without_row, ..probe }));
        } else {
            self.without += 1;
            self.last = Some((at, uncertainty_ns, probe));
        }
        self.written += rows.len() as u64;
        rows
    }

    /// The last attempt, if it has no row yet: no other comes.
    pub fn end(&mut self) -> Vec<Row> {
        let without_row = std::mem::take(&mut self.without).saturating_sub(1);
        let last = self.last.take();
        last.into_iter().map(|(at, ns, probe)| (at, ns, Probe { without_row, ..probe })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::At;
    use crate::event::Evidence;

    fn probe(attempt: u64, outcome: &str) -> Probe {
        Probe {
            stage: "s".into(),
            by: Evidence::Http,
            condition: String::new(),
            target: String::new(),
            attempt,
            began: At(0),
            accepted: outcome == "accepted",
            outcome: outcome.into(),
            first_byte: None,
            bytes: None,
            is_cut: false,
            without_row: 0,
        }
    }

    #[test]
    fn thousands_of_equal_attempts_are_few_rows_that_add_up() {
        let mut rows = Rows::default();
        let mut written = Vec::new();
        for attempt in 1..=10_050 {
            written.extend(rows.attempt(Mono(attempt), 0, probe(attempt, "refused")));
        }
        written.extend(rows.attempt(Mono(10_051), 0, probe(10_051, "status 503")));
        written.extend(rows.attempt(Mono(10_052), 0, probe(10_052, "accepted")));
        assert!(rows.end().is_empty());
        assert_eq!(written.len(), 100 + 99 + 1 + 2);
        let told: u64 = written.iter().map(|(_, _, probe)| 1 + probe.without_row).sum();
        assert_eq!(told, 10_052);
        let attempts: Vec<u64> = written.iter().map(|(_, _, probe)| probe.attempt).collect();
        assert!(attempts.is_sorted() && attempts.ends_with(&[10_050, 10_051, 10_052]));
    }

    #[test]
    fn outcomes_that_change_each_time_are_bounded_too() {
        let mut rows = Rows::default();
        let mut written = Vec::new();
        for attempt in 1..=100_000 {
            let outcome = if attempt % 2 == 0 { "refused" } else { "reset" };
            written.extend(rows.attempt(Mono(attempt), 0, probe(attempt, outcome)));
        }
        written.extend(rows.end());
        assert!(written.len() < 8_000, "{}", written.len());
        let told: u64 = written.iter().map(|(_, _, probe)| 1 + probe.without_row).sum();
        assert_eq!(told, 100_000);
    }
}
