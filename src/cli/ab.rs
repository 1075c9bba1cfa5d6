//! `stagemark ab`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::compare::{Identity, JudgedArgs};
use super::{ThenArg, WatchArgs, utf8};
use crate::ab::{Arm, Options, OutputOf};
use crate::compare;

pub(super) const AFTER_HELP: &str = "\
Runs are taken by turns, ABBA…, so that what drifts over time comes to all arms alike. The first arm is the reference. \
Runs of one round make a pair, and each pair a ratio; there is no verdict from fewer than 3 pairs, and `different` means \
that every pair's ratio lies beyond 1% on one side. Values that lie apart, two modes and a drift are listed, never averaged away.

A command is split into words as a shell would, without running one: what needs a shell is written as A=\"sh -c '…'\". \
--setup, --prepare and --cleanup are given to /bin/sh. Each run is a whole run folder, DIR/runs/01-A and so on, made by \
`stagemark run`; `stagemark compare DIR` compares them again.

Examples:
  stagemark ab --cache cold --until first_response --arm A='python serve.py --mmap' --arm B='python serve.py --read'
  stagemark ab --runs 10 --arm A='vllm serve M' --arm B='vllm serve M' --env B:OMP_NUM_THREADS=8 --vary env:OMP_NUM_THREADS
  stagemark ab --prepare 'rm -rf ~/.cache/app' --same-output stdout --arm A=./old --arm B=./new

Exit status: 0 done; 2 on wrong usage; 3 where the runs cannot be compared, or one of the series' own commands failed; 4 \
where they are not like for like under --strict; 128+N where signal N ended the series (130: Ctrl-C), what was run being \
kept.";

#[derive(Debug, Args)]
pub struct AbArgs {
    /// A command under a name: A='python serve.py'. At least two; the first is the reference
    #[arg(long = "arm", required = true, value_name = "NAME=COMMAND", value_parser = utf8())]
    pub arms: Vec<String>,
    /// A variable of one arm's environment; may be repeated
    #[arg(long = "env", value_name = "ARM:NAME=VALUE", value_parser = utf8())]
    pub environment: Vec<String>,
    /// How often each arm is run
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub runs: u16,
    /// How often each arm is run before those, in no comparison
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=100))]
    pub warmup: u16,
    /// At the stopping event, stop the command or keep it running to its own end
    #[arg(long, value_enum, default_value_t = ThenArg::Stop)]
    pub then: ThenArg,
    /// A shell command, once before the first run
    #[arg(long, value_name = "COMMAND", value_parser = utf8())]
    pub setup: Option<String>,
    /// A shell command, before each run, outside of what is measured
    #[arg(long, value_name = "COMMAND", value_parser = utf8())]
    pub prepare: Option<String>,
    /// A shell command, at the end, also where the series failed or was interrupted
    #[arg(long, value_name = "COMMAND", value_parser = utf8())]
    pub cleanup: Option<String>,
    /// Say whether the runs produced the same: `stdout`, `response` (the bodies by which stages were reached), or a pattern
    /// of files that they write; may be repeated
    #[arg(long, value_name = "stdout|response|GLOB", value_parser = OutputOf::parse)]
    pub same_output: Vec<OutputOf>,
    /// By what the artifacts are held to be the same: their headers, or all of their contents, which are digested once before
    /// the first run without warming the page cache
    #[arg(long, value_enum, default_value_t = Identity::Header)]
    pub identity: Identity,
    /// Write the series here: exactly DIR, new or empty [default: stagemark-runs/<UTC time>-ab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Show what the commands print, on standard error
    #[arg(long)]
    pub show_output: bool,
    #[command(flatten)]
    pub judged: JudgedArgs,
    /// Say nothing on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

impl AbArgs {
    /// What was asked, with the arms split into words.
    ///
    /// # Errors
    /// An arm is none, there is only one, or what is asked of its runs is wrong usage.
    pub fn options(&self) -> anyhow::Result<Options> {
        let arms = Arm::all(&self.arms, &self.environment)?;
        anyhow::ensure!(arms.len() >= 2, "--arm: one arm has nothing to be compared with; name another with --arm");
        anyhow::ensure!(arms.len() <= 26, "--arm: more than 26 arms");
        // Before the first run, and so before half of a series is over.
        let mut warnings = Vec::new();
        for arm in &arms {
            let run = self.watch.clone().options(arm.argv.iter().map(OsString::from).collect())?;
            let variable = |name: &str| {
                let own = arm.environment.iter().rev().find(|(own, _)| own == name);
                own.map(|(_, value)| value.into()).or_else(|| std::env::var_os(name))
            };
            warnings.extend(run.check(variable)?);
        }
        warnings.dedup();
        Ok(Options {
            out: self.out.clone(),
            arms,
            runs: self.runs.into(),
            warmup: self.warmup.into(),
            cache: self.watch.cache.into(),
            until: self.watch.until.clone(),
            then: self.then.into(),
            setup: self.setup.clone(),
            prepare: self.prepare.clone(),
            cleanup: self.cleanup.clone(),
            artifacts: self.watch.artifacts.clone(),
            run_options: self.watch.words(),
            warnings,
            full_identity: self.identity == Identity::Full,
            same_output: self.same_output.clone(),
            show_output: self.show_output,
            quiet: self.quiet,
        })
    }

    /// What is asked of the comparison.
    pub fn comparing(&self) -> compare::Options {
        compare::Options {
            at: self.watch.until.clone(),
            same_event: self.judged.same_event,
            vary: self.judged.vary.clone(),
            contents: self.identity == Identity::Full,
        }
    }
}
