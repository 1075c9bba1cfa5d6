//! What a series of runs by turns adds to a comparison, in words: each figure pair by pair, what the runs produced, and
//! what is to be known of single ones. It holds what the series found, and decides nothing.

use crate::compare::Quantity;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paired {
    /// At the stopping event.
    pub figures: Vec<Figure>,
    pub outputs: Vec<Output>,
    /// What was left out, what failed, how far the series came.
    pub notes: Vec<String>,
}

impl Paired {
    /// What the pairs of an arm say of a figure.
    pub fn verdict(&self, of: Quantity, arm: &str) -> Option<&str> {
        let figure = self.figures.iter().find(|figure| figure.of == of)?;
        let against = figure.against.iter().find(|against| against.arm == arm)?;
        Some(&against.verdict)
    }
}

/// One figure, pair by pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    pub of: Quantity,
    /// Where every run has one exact value: that, and in how many runs.
    pub all_same: Option<(String, usize)>,
    pub arms: Vec<ArmValues>,
    pub against: Vec<Against>,
}

/// An arm's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmValues {
    pub arm: String,
    /// In the order of running, with their median and envelope.
    pub values: String,
    /// A slow first run, a value apart, two modes, drift: each with the values.
    pub remarks: Vec<String>,
}

/// An arm against the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Against {
    pub arm: String,
    /// Of each pair, this ÷ the first arm's; empty where figures are only bounded.
    pub ratios: String,
    pub verdict: String,
}

/// Whether runs produced the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// `stdout`, `response`, or a pattern of files.
    pub of: String,
    pub verdict: String,
    /// Each run, and its digest or the reason why there is none.
    pub digests: Vec<(String, Result<String, String>)>,
}
