//! `stagemark findings`.

use std::path::PathBuf;

use clap::Args;

pub const AFTER_HELP: &str = "\
A rule speaks where two independent kinds of evidence agree, and is silent where the run cannot tell; what was looked for \
and not found is listed behind the findings. The most telling ones are in the table of `stagemark run` as well.

Examples:
  stagemark findings stagemark-runs/20260131T101500Z-vllm
  stagemark findings RUN --json | jq '.findings[] | {rule, title}'

Exit status: 0 whatever was found, 2 on wrong usage, 3 where the run cannot be read.";

#[derive(Debug, Args)]
pub struct FindingsArgs {
    /// The run folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The findings as JSON: figures exact, each with its unit and source
    #[arg(long)]
    pub json: bool,
}
