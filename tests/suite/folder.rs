//! A run folder as its readers see it: by the names of the contract, with nothing of the profiler's own code.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One row of a CSV file by column name; an empty cell is absent.
pub type Row = HashMap<String, String>;

/// A finished run.
pub struct RunFolder {
    pub path: PathBuf,
}

impl RunFolder {
    pub fn at(path: impl AsRef<Path>) -> RunFolder {
        RunFolder { path: path.as_ref().to_owned() }
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes("run.json")).unwrap()
    }

    pub fn rows(&self, name: &str) -> Vec<Row> {
        let mut reader = csv::Reader::from_path(self.path.join(name)).unwrap();
        reader.deserialize().map(|row| row.unwrap()).collect()
    }

    pub fn stage(&self, stage: &str) -> Stage {
        let rows = self.rows("stages.csv");
        let row = rows.into_iter().find(|row| row["stage"] == stage);
        Stage(row.unwrap_or_else(|| panic!("stages.csv has no row for {stage}")))
    }

    /// The largest value of a column of `samples.csv`.
    pub fn largest(&self, metric: &str) -> Option<u64> {
        self.rows("samples.csv").iter().filter_map(|row| row[metric].parse().ok()).max()
    }

    /// A column's value in the last whole row of `samples.csv`, while it is still being written.
    #[allow(dead_code)]
    pub fn latest(&self, metric: &str) -> Option<u64> {
        let text = String::from_utf8(self.bytes("samples.csv")).unwrap();
        let whole = &text[..=text.rfind('\n')?];
        let column = whole.lines().next()?.split(',').position(|name| name == metric)?;
        whole.lines().last()?.split(',').nth(column)?.parse().ok()
    }

    /// The events of a kind.
    pub fn events(&self, kind: &str) -> Vec<Row> {
        self.rows("events.csv").into_iter().filter(|row| row["kind"] == kind).collect()
    }
}

/// A row of `stages.csv`.
pub struct Stage(Row);

impl Stage {
    #[allow(dead_code)]
    pub fn new(row: Row) -> Stage {
        Stage(row)
    }

    #[allow(dead_code)]
    /// A time that must be there, in nanoseconds since start.
    pub fn time(&self, column: &str) -> i64 {
        self.text(column).parse().unwrap_or_else(|_| panic!("{column} is no time at {}", self.text("stage")))
    }

    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).unwrap_or_else(|| panic!("stages.csv has no column {column}"))
    }

    pub fn number(&self, column: &str) -> Option<u64> {
        let text = self.text(column);
        (!text.is_empty()).then(|| text.parse().unwrap_or_else(|_| panic!("{column} is no number: {text}")))
    }

    /// A number that must be there.
    pub fn known(&self, column: &str) -> u64 {
        self.number(column).unwrap_or_else(|| panic!("{column} is absent at {}", self.text("stage")))
    }

    pub fn reached(&self) -> bool {
        self.text("status") == "reached"
    }
}
