//! A sample: every metric's value at one time.

use crate::clock::At;
use crate::metric::Values;

/// One row of `samples.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken: the end of the look.
    pub t: At,
    /// How much later than planned it began; 0 for one taken because of an event.
    pub late_ns: u64,
    /// How long the look took.
    pub cost_ns: u64,
    pub values: Values,
}
