//! `stagemark check`.

use std::path::PathBuf;

use clap::Args;

pub(super) const AFTER_HELP: &str = "\
A budget is TOML: a table a stage, and in it the most that is allowed of `time_s` (or `time = \"60 s\"`), `host_bytes` \
(the host account's total), `device_peak` (the launch's device memory since start), or of any column of stages.csv: a \
metric, `delta_…`, `peak_…` and `span_peak_…` (without `_low` and `_high`), a part of the host account, a ratio.

  [first_response]
  time_s = 60
  host_bytes = \"12 GiB\"
  device_peak = \"70 GiB\"
  delta_major_faults = 1000

A figure that is known by bounds keeps a limit by its high bound and breaks it by its low one; what lies between, and \
what is absent, is unknown.

Examples:
  stagemark check stagemark-runs/20260131T101500Z-vllm --budget budget.toml
  stagemark check --json RUN --budget budget.toml | jq '.limits[] | select(.verdict != \"kept\")'

Exit status: 0 where every limit was kept; 1 where one is broken; 2 on wrong usage; 3 where none is broken and one \
cannot be known, or the run cannot be read.";

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The run folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The limits
    #[arg(long, value_name = "FILE")]
    pub budget: PathBuf,
    /// The verdicts as JSON
    #[arg(long)]
    pub json: bool,
}
