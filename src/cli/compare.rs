//! `stagemark compare`: its arguments.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::utf8;
use crate::compare::{Options, Vary};

pub(super) const AFTER_HELP: &str = "\
The first run is the one to which the others are held: ratios are B ÷ A. Without --at the runs' own stopping events have \
to be one. Two stages are one event where name, definition and kind of evidence are the same.

What --vary takes, alone or as WHAT:NAME for one fact of it:
  artifact        the model files: sizes, headers, contents, revision
  representation  dtypes and formats that they store
  argv            words of the command line that differ, stage variables
  program, interpreter, python, package:NAME, commit
  env:NAME        environment variables
  host, storage, device, limit
  condition       what was in memory at start, retained state, pressure, load
  source          how the figures are known

Examples:
  stagemark compare before after --vary commit
  stagemark compare mmap heap read --at first_response --vary argv --out report
  stagemark compare A B --json | jq '.stages[-1].figures[0]'

Exit status: 0 done, 2 on wrong usage, 3 where the runs cannot be compared or read, 4 where they are not like for like, or \
that cannot be told, under --strict.";

/// How runs are held against each other, whoever made them.
#[derive(Debug, Args)]
pub struct JudgedArgs {
    /// Declare that the stage is one event in all runs though its definitions or evidence differ; each report says so
    #[arg(long)]
    pub same_event: bool,
    /// Declare what was meant to differ; may be repeated
    #[arg(long, value_name = "WHAT", value_parser = Vary::parse)]
    pub vary: Vec<Vary>,
    /// Exit with 4 where the runs are not like for like, or that cannot be told
    #[arg(long)]
    pub strict: bool,
    /// Exact figures as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run folders, the first one the reference; or the folder of one series of `stagemark ab`
    #[arg(required = true, num_args = 1.., value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Compare at this stage [default: the runs' own stopping event]
    #[arg(long, value_name = "STAGE", value_parser = utf8())]
    pub at: Option<String>,
    #[command(flatten)]
    pub judged: JudgedArgs,
    /// Write compare.html, compare.csv, compare.json, compare.svg and compare.png here, in the place of those of an earlier
    /// comparison; a refusal is the page and the JSON alone
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// By what the artifacts are held to be the same: their headers, or all of their contents, which are hashed now where
    /// no digest is known yet, past the page cache, if the files are still what they were
    #[arg(long, value_enum, default_value_t = Identity::Header)]
    pub identity: Identity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Identity {
    Header,
    Full,
}

impl CompareArgs {
    pub fn options(&self) -> Options {
        Options {
            at: self.at.clone(),
            same_event: self.judged.same_event,
            vary: self.judged.vary.clone(),
            contents: self.identity == Identity::Full,
        }
    }
}
