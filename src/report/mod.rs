//! Stage table → what people read. Pure: the same run gives the same bytes.

pub mod csv;
mod eviction;
pub mod folder;
pub mod plot;
pub mod terminal;
pub mod text;
mod units;
mod words;
mod work;
