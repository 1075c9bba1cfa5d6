//! The command line: clap structs in, plain options out.
// Comments here are help texts first, where `<UTC time>` stands for itself.
#![allow(rustdoc::invalid_html_tags)]

mod ab;
mod cache;
mod check;
mod columns;
mod compare;
mod copy_paths;
mod findings;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::record::{Options, Then};
use crate::report::color::Color;
use crate::report::format::Format;

pub use ab::AbArgs;
pub use cache::{CacheArg, CacheArgs, CacheAsk};
pub use check::CheckArgs;
pub use columns::ColumnsArgs;
pub use compare::CompareArgs;
pub use findings::FindingsArgs;
pub use watch::WatchArgs;

const AFTER_HELP: &str = "\
Examples:
  stagemark demo
  stagemark run -- vllm serve ORG/NAME
  stagemark compare RUN OTHER
  stagemark findings stagemark-runs/20260131T101500Z-vllm
  stagemark inspect model.safetensors
  stagemark stages list

`stagemark VERB --help` says more, exit statuses included.";

const RUN_AFTER_HELP: &str = "\
Without --artifact the model is found by the command line (a path, or a Hugging Face id in the local cache), and else \
by the files that the launch opens.

Examples:
  stagemark run -- vllm serve ORG/NAME
  stagemark run --artifact model.gguf -- ./start.sh
  stagemark run --stage 'loaded=log:weights loaded in' --until loaded --then stop -- python serve.py

Exit status: the command's own, 128+N where signal N ended it, 0 where --then stop did; 127 where the command was not \
found, 126 where it could not be executed, 125 where stagemark failed before it started it, wrong usage included.";

const DEMO_AFTER_HELP: &str = "\
Writes 512 MiB to stagemark-runs/demo-model.safetensors and leaves it there.

Exit status: as of `stagemark run`.";

const REPORT_AFTER_HELP: &str = "\
Examples:
  stagemark report stagemark-runs/20260131T101500Z-vllm
  stagemark report RUN --stages my-stages.toml --out other-stages
  stagemark report RUN --format md
  stagemark report RUN --format perfetto --out trace.json       # opens in ui.perfetto.dev

Exit status: 0 where the reports were made, 2 on wrong usage, 3 where the run cannot be read.";

const INSPECT_AFTER_HELP: &str = "\
Reads headers only, executes and unpickles nothing, and leaves the page cache as it was. A folder stands for the model \
files in it, or, where it has none, for those in its folders; an index or one part of a split file for all parts. \
`raw:PATH` takes all bytes as payload.

Examples:
  stagemark inspect model.safetensors
  stagemark inspect --json ./model-folder | jq .total

Exit status: 0 where every file was understood, 2 on wrong usage, 3 where something could not be found or understood.";

const DOCTOR_AFTER_HELP: &str = "\
Found by trying, as this user and in this place: in a container, in a job, under a service manager, ask there. Each line \
is a figure, how it is known here, and, where it is not had in full, why and what would change it. A PATH is told of \
too: who may be asked how much of it is in memory, and what it lies on. Changes nothing; a file on FUSE is not opened.

Examples:
  stagemark doctor
  stagemark doctor --json /models/ORG/NAME | jq '.findings[] | select(.state != \"yes\")'

Exit status: 0 whatever may be measured, 2 on wrong usage, 3 where a PATH could not be looked at.";

const STAGES_AFTER_HELP: &str = "\
A stage file says what the stages of one family of loaders are and what shows each. `stagemark run` follows the first \
bundled one that fits a program of the launch, or the one that --stages names.

Examples:
  stagemark stages list
  stagemark stages show vllm > mine.toml
  stagemark stages check mine.toml
  stagemark stages try mine.toml server.log

Exit status: 0 done, 1 where the answer is no (`check`: not a stage file; `try`: no stage matched), 2 on wrong usage, \
3 where a log cannot be read to its end.";

const MARK_AFTER_HELP: &str = "\
For scripts inside `stagemark run`. The name has 1 to 64 letters, digits, `_`, `.`, `-`.

Example:
  stagemark mark weights_loaded

Exit status: 0 where the mark was heard, 2 outside of a run or where nobody heard it.";

/// What a model's start-up really costs, and when it is really ready.
#[derive(Debug, Parser)]
#[command(name = "stagemark", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a launch command unchanged and record what it costs, stage by stage.
    #[command(after_help = RUN_AFTER_HELP)]
    Run(RunArgs),
    /// Make a model file and profile the bundled reference loader on it.
    #[command(after_help = DEMO_AFTER_HELP)]
    Demo(DemoArgs),
    /// Make the reports of a run folder again from its recorded files.
    #[command(after_help = REPORT_AFTER_HELP)]
    Report(ReportArgs),
    /// Put runs side by side at the same stopping event, or say why they cannot be.
    #[command(after_help = compare::AFTER_HELP)]
    Compare(CompareArgs),
    /// Say what a run's figures show, each finding with its evidence and what would settle it.
    #[command(after_help = findings::AFTER_HELP)]
    Findings(FindingsArgs),
    /// Describe model files: format, payload, dtypes, and how much is resident now.
    #[command(after_help = INSPECT_AFTER_HELP)]
    Inspect(InspectArgs),
    /// Run several commands by turns, each several times, and compare them pair by pair.
    #[command(after_help = ab::AFTER_HELP)]
    Ab(AbArgs),
    /// Take model files out of the page cache, or read them into it, and verify what was reached.
    #[command(after_help = cache::AFTER_HELP)]
    Cache {
        #[command(subcommand)]
        ask: CacheAsk,
    },
    /// Hold a run against a budget: limits a stage, of time, memory and any other figure.
    #[command(after_help = check::AFTER_HELP)]
    Check(CheckArgs),
    /// Say what may be measured here, why not, and what would change it.
    #[command(after_help = DOCTOR_AFTER_HELP)]
    Doctor(DoctorArgs),
    /// List, show, check or try stage files: what the stages of a launch are, and what marks them.
    #[command(after_help = STAGES_AFTER_HELP)]
    Stages {
        #[command(subcommand)]
        ask: Ask,
    },
    /// Say what each column of a run's tables is: unit, kind, meaning, what it includes and overlaps.
    #[command(after_help = columns::AFTER_HELP)]
    Columns(ColumnsArgs),
    /// Measure how fast this host copies tensors out of mappings, and out of memory.
    #[command(after_help = copy_paths::AFTER_HELP)]
    CopyPaths(copy_paths::CopyPathsArgs),
    /// Mark a stage from inside a run; returns when it was heard.
    #[command(after_help = MARK_AFTER_HELP)]
    Mark {
        /// The stage's name
        #[arg(value_parser = utf8())]
        name: String,
    },
}

/// What is asked of stage files.
#[derive(Debug, Subcommand)]
pub enum Ask {
    /// The bundled stage files: name, status, what they are for, and the command lines that choose them
    #[command(after_help = STAGES_AFTER_HELP)]
    List,
    /// Print a bundled stage file, as a beginning for one of your own
    #[command(after_help = STAGES_AFTER_HELP)]
    Show {
        /// Its name
        #[arg(value_parser = utf8())]
        name: String,
    },
    /// Say whether a file is a stage file, and how each of its stages is reached
    #[command(after_help = STAGES_AFTER_HELP)]
    Check {
        /// The stage file, or the name of a bundled one
        file: OsString,
    },
    /// Say which lines of a saved log would have marked which stages
    #[command(after_help = STAGES_AFTER_HELP)]
    Try {
        /// The name of a bundled stage file, or a path
        #[arg(value_name = "NAME|FILE")]
        stages: OsString,
        /// The log: text, a run folder or its output.log, or `-` for standard input
        log: PathBuf,
        /// The command that printed it, after `--`: what the stage file takes from a command line [default: its defaults]
        #[arg(last = true, value_name = "COMMAND")]
        argv: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Write the run folder here; refuses a folder with something in it [default: stagemark-runs/<UTC time>-<program>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// At the stopping event, keep the command running or stop it (the exit status is then 0)
    #[arg(long, value_enum, default_value_t = ThenArg::Keep)]
    pub then: ThenArg,
    /// Say nothing on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Colour in the table at the end; NO_COLOR is heeded
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: Color,
    /// The launch command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub argv: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ThenArg {
    Keep,
    Stop,
}

impl From<ThenArg> for Then {
    fn from(argument: ThenArg) -> Then {
        match argument {
            ThenArg::Keep => Then::Keep,
            ThenArg::Stop => Then::Stop,
        }
    }
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Write the run folder here [default: stagemark-runs/<UTC time>-stagemark]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Match these stages instead of the run's own: the name of a bundled stage file, or a path
    #[arg(long, value_name = "NAME|FILE")]
    pub stages: Option<OsString>,
    /// Write the reports here [default: the run folder; needed with --stages]; with --format it is the file to write
    #[arg(long, value_name = "DIR|FILE")]
    pub out: Option<PathBuf>,
    /// Print the run in this form instead, and make no reports
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Colour in the table; NO_COLOR is heeded
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: Color,
    /// Do not print the table
    #[arg(long, short, conflicts_with = "format")]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Model files, indexes, or folders; `raw:PATH` for a file that is all payload
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Exact figures as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Model files, indexes, or folders to be told of too
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The findings as JSON
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    /// What was asked, with the stage file loaded.
    pub fn options(self) -> anyhow::Result<Options> {
        let RunArgs { out, watch, then, quiet, color, argv } = self;
        Ok(Options { out, then: then.into(), quiet, color, ..watch.options(argv)? })
    }
}

/// Text, with an error that names the argument where it is none.
fn utf8() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|text| text.into_string().map_err(|_| "not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_is_kept_as_it_is() {
        let cli =
            Cli::try_parse_from(["stagemark", "run", "--quiet", "--", "prog", "--quiet", "--", "-x", ""]).unwrap();
        let Verb::Run(run) = cli.verb else { panic!("not run") };
        assert_eq!(run.argv, ["prog", "--quiet", "--", "-x", ""]);
        assert!(Cli::try_parse_from(["stagemark", "run", "--bogus", "--", "prog"]).is_err());
        assert!(Cli::try_parse_from(["stagemark", "run", "prog"]).is_err());
    }
}
