//! `responses.csv`: how each of many requests went. Only runs with a workload or repeated requests have it.

use std::path::Path;

use super::{RESPONSES, RunError, read_rows, rows};
use crate::clock::At;

/// The columns: one row an attempt at one of many requests.
pub const RESPONSES_HEADER: [&str; 9] =
    ["stage", "request", "attempt", "began_ns", "first_byte_ns", "t_ns", "latency_ns", "bytes", "outcome"];

/// What an attempt ended in that was as it should be.
pub const ACCEPTED: &str = "accepted";
/// The name of the request by which a stage was reached, before the same is repeated.
pub const FIRST: &str = "first";

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub stage: String,
    pub request: String,
    pub began: At,
    /// When its last byte was read.
    pub at: At,
    pub latency_ns: u64,
    pub is_accepted: bool,
}

/// Those of a folder, in the order of their rows; none where there is no such file.
pub(super) fn load(folder: &Path, gaps: &mut Vec<String>) -> Result<Vec<Response>, RunError> {
    if !folder.join(RESPONSES).exists() {
        return Ok(Vec::new());
    }
    read_rows(folder, RESPONSES, gaps, |header, row| {
        let place = |name: &str| {
            header.iter().position(|field| field == name.as_bytes()).ok_or_else(|| format!("there is no column {name}"))
        };
        let text = |name: &str| {
            Ok::<_, String>(String::from_utf8_lossy(row.get(place(name)?).unwrap_or_default()).into_owned())
        };
        Ok(Some(Response {
            stage: text("stage")?,
            request: text("request")?,
            began: rows::time(row, place("began_ns")?)?,
            at: rows::time(row, place("t_ns")?)?,
            latency_ns: rows::number(row, place("latency_ns")?, "latency_ns")?.ok_or("no latency_ns")?,
            is_accepted: text("outcome")? == ACCEPTED,
        }))
    })
}
