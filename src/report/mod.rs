//! Stage table → what people read. Pure: the same run gives the same bytes.

mod account;
pub mod copy_paths;
pub mod csv;
mod death;
mod device;
mod eviction;
mod faults;
pub mod folder;
pub mod html;
pub mod peak;
pub mod plot;
mod sources;
pub mod tensors;
pub mod terminal;
pub mod text;
pub mod units;
mod words;
mod work;
