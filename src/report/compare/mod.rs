//! Comparison → what people and programs read: a table for a terminal, `compare.csv`, `compare.json`, and the timelines
//! of all runs in one picture (`compare.svg`, `compare.png`). [`super::html::compared`] makes the page with all of it.

pub mod csv;
pub mod folder;
pub mod json;
pub mod paired;
pub mod terminal;
pub mod words;
