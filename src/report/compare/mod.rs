//! Comparison → what people and programs read: a table for a terminal, `compare.csv`, `compare.json`, and the timelines
//! of all runs in one picture (`compare.svg`, `compare.png`).

pub mod csv;
pub mod folder;
pub mod json;
pub mod terminal;
pub mod words;
