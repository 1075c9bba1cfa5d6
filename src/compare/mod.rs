//! Run A against run B, at the same stopping event.

pub mod series;
