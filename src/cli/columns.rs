//! `stagemark columns`.

use clap::Args;

use crate::report::columns::Form;

pub const AFTER_HELP: &str = "\
The glossary of samples.csv and stages.csv, from the table that the program itself goes by.

Examples:
  stagemark columns | less
  stagemark columns --json | jq '.[] | select(.unit == \"bytes\") | .column'
  stagemark columns --md > columns.md

Exit status: 0 done, 2 on wrong usage.";

#[derive(Debug, Args)]
pub struct ColumnsArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// As a table in Markdown
    #[arg(long, conflicts_with = "json")]
    pub md: bool,
}

impl ColumnsArgs {
    /// The form that was asked for.
    pub fn form(&self) -> Form {
        match (self.json, self.md) {
            (true, _) => Form::Json,
            (false, true) => Form::Markdown,
            (false, false) => Form::Text,
        }
    }
}
