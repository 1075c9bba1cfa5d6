//! How far a series is, on standard error: a line a run, and how long the rest is likely to take.

use std::io::Write;
use std::time::Duration;

use crate::progress::StatusLine;
use crate::report::text::plain;
use crate::report::units;

/// Tells of runs.
pub(super) struct Progress {
    quiet: bool,
    line: StatusLine,
    /// How long runs of each arm took.
    took: Vec<Vec<Duration>>,
}

impl Progress {
    pub fn new(quiet: bool, arms: usize) -> Progress {
        Progress { quiet, line: StatusLine::unless(quiet), took: vec![Vec::new(); arms] }
    }

    /// A run begins; `left` are the arms of this one and those after it.
    pub fn begins(&mut self, what: &str, left: &[usize]) {
        let left = self.rest(left);
        self.line.show(&format!("{what} …{left}"));
    }

    /// It has ended; `left` are the arms of those after it.
    pub fn ended(&mut self, what: &str, outcome: &str, arm: usize, took: Duration, left: &[usize]) {
        if let Some(all) = self.took.get_mut(arm) {
            all.push(took);
        }
        let left = self.rest(left);
        self.say(&format!("{what}: {outcome}{left}"));
    }

    /// A line.
    pub fn say(&mut self, text: &str) {
        self.line.clear();
        if !self.quiet {
            // Standard error may be closed; there is nowhere else to say so.
            let _ = writeln!(std::io::stderr(), "{}", plain(text));
        }
    }

    /// What is left, as the end of a line.
    fn rest(&self, left: &[usize]) -> String {
        self.left(left).map(|left| format!("; about {} left", rounded(left))).unwrap_or_default()
    }

    /// The mean of an arm's runs for each that is left; of an arm that has none yet, the mean of all.
    fn left(&self, left: &[usize]) -> Option<Duration> {
        let mean = |runs: &[Duration]| {
            let count = u32::try_from(runs.len()).ok().filter(|count| *count > 0)?;
            Some(runs.iter().sum::<Duration>() / count)
        };
        let all: Vec<Duration> = self.took.concat();
        let any = mean(&all)?;
        let each = left.iter().map(|arm| self.took.get(*arm).and_then(|runs| mean(runs)).unwrap_or(any));
        Some(each.sum::<Duration>()).filter(|_| !left.is_empty())
    }
}

/// Whole seconds, or minutes: it is an estimate.
fn rounded(time: Duration) -> String {
    match time.as_secs() {
        0 => "1 s".to_owned(),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// A time of a run, for its line.
pub(super) fn shown(ns: u64) -> String {
    units::duration(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_by_arm() {
        let mut progress = Progress::new(true, 2);
        assert_eq!(progress.left(&[0, 1]), None);
        progress.ended("", "", 0, Duration::from_secs(10), &[]);
        assert_eq!(
            progress.left(&[1, 0]),
            Some(Duration::from_secs(20)),
            "an arm that was not run yet is as the others"
        );
        progress.ended("", "", 1, Duration::from_secs(2), &[]);
        assert_eq!(progress.left(&[1, 1, 0]), Some(Duration::from_secs(14)));
        assert_eq!(progress.left(&[]), None);
        assert_eq!(
            (rounded(Duration::from_millis(5)), rounded(Duration::from_secs(121))),
            ("1 s".into(), "3 min".into())
        );
    }
}
