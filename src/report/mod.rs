//! Stage table → what people read. Pure: the same run gives the same bytes.

pub mod csv;
pub mod folder;
pub mod plot;
mod sources;
pub mod terminal;
pub mod text;
mod units;
mod words;
