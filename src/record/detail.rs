//! What goes into `detail.csv`: a figure when it changed, at most once a second each (a device's whenever it was seen to
//! change), and at marks and ends.

use std::collections::HashMap;

use crate::clock::At;
use crate::event::Pid;
use crate::run::{Detail, Scope};

/// A figure is written no more often than this, but for marks and ends.
pub const APART_NS: i64 = 1_000_000_000;

/// Decides which figures are written.
#[derive(Default)]
pub struct DetailLog {
    figures: HashMap<(Scope, &'static str), Figure>,
}

struct Figure {
    at: At,
    value: u64,
    written: Option<(At, u64)>,
}

impl DetailLog {
    /// Takes a figure as it is at `at`; returns its row if it is to be written. `at_mark` writes it in any case.
    pub fn offer(&mut self, at: At, scope: Scope, metric: &'static str, value: u64, at_mark: bool) -> Option<Detail> {
        let figure = self.figures.entry((scope, metric)).or_insert(Figure { at, value, written: None });
        (figure.at, figure.value) = (at, value);
        let due = match figure.written {
            None => true,
            Some((written_at, written)) => {
                // A device's memory changes seldom, and is in no sample by itself: each change has its time.
                let is_frequent = !matches!(scope, Scope::Device(_));
                written != value && (!is_frequent || at.0 - written_at.0 >= APART_NS)
            }
        };
        (due || at_mark).then(|| figure.write(scope, metric))
    }

    /// The end of a process: its last figures, as far as they were not written, in the order of their names.
    pub fn end(&mut self, pid: Pid) -> Vec<Detail> {
        let mine = Scope::Process(pid);
        let mut rows: Vec<Detail> = self
            .figures
            .extract_if(|&(scope, _), _| scope == mine)
            .filter(|(_, figure)| figure.written.is_none_or(|(_, value)| value != figure.value))
            .map(|((scope, metric), mut figure)| figure.write(scope, metric))
            .collect();
        rows.sort_by(|a, b| a.metric.cmp(&b.metric));
        rows
    }
}

impl Figure {
    fn write(&mut self, scope: Scope, metric: &str) -> Detail {
        self.written = Some((self.at, self.value));
        Detail { at: self.at, scope, metric: metric.to_owned(), value: self.value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_figure_is_written_on_change_once_a_second_at_marks_and_at_its_end() {
        let mut log = DetailLog::default();
        let scope = Scope::Process(3);
        let mut offer = |t, value, mark| log.offer(At(t), scope, "rss_bytes", value, mark).is_some();
        assert!(offer(0, 1, false), "the first is written");
        assert!(!offer(SECOND / 2, 2, false), "too soon");
        assert!(offer(SECOND, 2, false));
        assert!(!offer(3 * SECOND, 2, false), "no change");
        assert!(offer(3 * SECOND, 2, true), "a mark");
        assert!(!offer(3 * SECOND + 1, 9, false));
        let rows = log.end(3);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].at, rows[0].value), (At(3 * SECOND + 1), 9));
        assert_eq!(log.end(3), []);
        let mut offer = |t, value| log.offer(At(t), Scope::Device(0), "used_bytes", value, false).is_some();
        assert_eq!([(0, 1), (20, 1), (40, 2), (60, 1)].map(|(t, value)| offer(t, value)), [true, false, true, true]);
    }
}
