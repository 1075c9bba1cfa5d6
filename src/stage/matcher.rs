//! Turns events, log lines and samples into marks.

use super::file::StageFile;
use crate::clock::At;
use crate::event::Event;
use crate::sample::Sample;
use crate::watch::Line;

/// The state of matching one launch.
///
/// It is given the stage files that may be chosen, follows the first that fits an exec of the tree, and until then
/// the last one given (`generic`); what was seen before the choice is matched again after it.
pub struct Matcher;

impl Matcher {
    /// `candidates`: the files to choose from by exec; a single one is followed at once.
    pub fn new(candidates: Vec<StageFile>) -> Matcher {
        let _ = candidates;
        todo!()
    }

    /// The file that is followed now.
    pub fn stages(&self) -> &StageFile {
        todo!()
    }

    /// Feeds something that happened. Returns what follows from it: marks, log matches.
    pub fn event(&mut self, event: &Event) -> Vec<Event> {
        let _ = event;
        todo!()
    }

    /// Feeds a line that the command printed.
    pub fn line(&mut self, at: At, uncertainty_ns: Option<u64>, line: &Line) -> Vec<Event> {
        let _ = (at, uncertainty_ns, line);
        todo!()
    }

    /// Feeds a sample.
    pub fn sample(&mut self, sample: &Sample) -> Vec<Event> {
        let _ = sample;
        todo!()
    }

    /// Whether a stage has its mark.
    pub fn reached(&self, stage: &str) -> bool {
        let _ = stage;
        todo!()
    }
}
