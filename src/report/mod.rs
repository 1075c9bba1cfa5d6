//! Stage table → what people read. Pure: the same run gives the same bytes.

mod account;
pub mod csv;
mod death;
mod eviction;
pub mod folder;
pub mod peak;
pub mod plot;
pub mod terminal;
pub mod text;
pub mod units;
mod words;
mod work;
