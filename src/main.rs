//! Dispatch, print the error, exit status.

use std::ffi::OsStr;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use stagemark::cli::{Cli, Verb};
use stagemark::{demo, inspect, launch, record, report, watch};

/// The answer is "no".
const NO: u8 = 1;
/// Wrong usage, of any verb but `run`.
const USAGE: u8 = 2;
/// Our own failure before the command was started, wrong usage of `run` included.
const BEFORE_START: u8 = 125;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next();
    match verb.as_deref().and_then(OsStr::to_str) {
        // The verbs that are not for people: the launch's own small processes, and the bundled reference loader.
        Some(launch::pump::NAME) => return launch::pump::main(arguments),
        Some(launch::witness::NAME) => return launch::witness::main(arguments),
        Some("reference-loader") => return stagemark_fixtures::loader::main(arguments),
        _ => {}
    }
    let is_run = verb.as_deref() == Some(OsStr::new("run"));
    let usage = if is_run { BEFORE_START } else { USAGE };
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not errors.
            let asked = !error.use_stderr();
            let _ = error.print();
            return ExitCode::from(if asked { 0 } else { usage });
        }
    };
    match dispatch(cli.verb) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "stagemark: {error:#}");
            ExitCode::from(usage)
        }
    }
}

fn dispatch(verb: Verb) -> anyhow::Result<u8> {
    match verb {
        Verb::Run(run) => profile(&run.options()?),
        Verb::Demo(demo) => profile(&demo::prepare(demo.out)?),
        Verb::Report(options) => {
            let stages = options.stages.as_deref();
            let text = report::folder::again(&options.run, stages, options.out.as_deref())?;
            if !options.quiet {
                print(&text)?;
            }
            Ok(0)
        }
        Verb::Inspect(options) => {
            let out = &mut std::io::stdout().lock();
            let all_understood = inspect::inspect(&options.paths, options.json, out, &mut std::io::stderr())?;
            Ok(if all_understood { 0 } else { NO })
        }
        Verb::Mark { name } => watch::notify::mark(&name).map(|()| 0),
    }
}

fn profile(options: &record::Options) -> anyhow::Result<u8> {
    match record::profile(options) {
        Ok(status) => Ok(status),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "stagemark: {error}");
            Ok(error.status())
        }
    }
}

/// Prints to standard output; a reader that has seen enough is no error.
fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
