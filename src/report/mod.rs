//! Stage table → what people and other programs read. Pure: the same run gives the same bytes.

mod account;
pub mod color;
pub mod columns;
pub mod compare;
pub mod csv;
mod death;
mod device;
mod eviction;
mod faults;
pub mod findings;
pub mod folder;
pub mod format;
pub mod html;
pub mod json;
pub mod markdown;
pub mod peak;
pub mod perfetto;
pub mod plot;
mod repeats;
mod sources;
pub mod tensors;
pub mod terminal;
pub mod text;
mod words;
mod work;

pub use crate::units;
