//! Dispatch, print the error, exit status.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use stagemark::cli::{Cli, Verb};
use stagemark::probe::device::cuda;
use stagemark::run::RunError;
use stagemark::stage::trial::TrialError;
use stagemark::{catalogue, copy_paths, demo, doctor, inspect, launch, record, report, watch};

/// The answer is "no".
const NO: u8 = 1;
/// Wrong usage, of any verb but `run`.
const USAGE: u8 = 2;
/// Something cannot be read or understood.
const UNKNOWN: u8 = 3;
/// Our own failure before the command was started, wrong usage of `run` included.
const BEFORE_START: u8 = 125;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next();
    match verb.as_deref().and_then(OsStr::to_str) {
        // The verbs that are not for people: the launch's own small processes, the one that asks the
        // CUDA driver, a rank of copy-paths, and the bundled reference loader.
        Some(launch::pump::NAME) => return launch::pump::main(arguments),
        Some(launch::witness::NAME) => return launch::witness::main(arguments),
        Some(cuda::process::NAME) => return cuda::process::main(arguments),
        Some(copy_paths::rank::NAME) => return copy_paths::rank::main(arguments),
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
            if is_run && error.kind() == ErrorKind::UnknownArgument {
                let tip = match behind_faults(&error) {
                    Some(word) => format!("tip: the number is given with an equals sign: --faults={word}"),
                    None => "tip: the launch command stands behind `--`: stagemark run [OPTIONS] -- COMMAND".to_owned(),
                };
                let _ = writeln!(std::io::stderr(), "\n{tip}");
            }
            return ExitCode::from(if asked { 0 } else { usage });
        }
    };
    match dispatch(cli.verb) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            complain(&format!("{error:#}"));
            let unreadable = error.downcast_ref::<RunError>().is_some_and(|error| !error.is_usage())
                || error.downcast_ref::<TrialError>().is_some();
            ExitCode::from(if unreadable { UNKNOWN } else { usage })
        }
    }
}

/// The word that was not understood, if it stands behind `--faults` as its number would.
fn behind_faults(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    let words: Vec<_> = std::env::args_os().take_while(|word| word != "--").collect();
    let is = |pair: &[std::ffi::OsString]| pair[0] == "--faults" && pair[1] == word.as_str();
    (word.parse::<u64>().is_ok() && words.windows(2).any(is)).then(|| word.clone())
}

fn dispatch(verb: Verb) -> anyhow::Result<u8> {
    match verb {
        Verb::Run(run) => profile(&run.options()?),
        Verb::Demo(demo) => profile(&demo::prepare(demo.out)?),
        Verb::Report(options) => {
            let stages = options.stages.as_deref();
            if let Some(format) = options.format {
                let text = report::format::answer(&options.run, stages, format, options.out.as_deref())?;
                text.iter().try_for_each(|text| print(text))?;
                return Ok(0);
            }
            let text = report::folder::again(&options.run, stages, options.out.as_deref())?;
            if !options.quiet {
                let colored = options.color.is_wanted(std::io::stdout().is_terminal());
                print(&if colored { report::color::painted(&text) } else { text })?;
            }
            Ok(0)
        }
        Verb::Findings(options) => {
            print(&report::findings::answer(&options.run, options.json)?)?;
            Ok(0)
        }
        Verb::Inspect(options) => {
            let out = &mut std::io::stdout().lock();
            let all_understood = inspect::inspect(&options.paths, options.json, out, &mut std::io::stderr())?;
            Ok(if all_understood { 0 } else { UNKNOWN })
        }
        Verb::Doctor(options) => {
            let all_seen = doctor::doctor(&options.paths, options.json, &mut std::io::stdout().lock())?;
            Ok(if all_seen { 0 } else { UNKNOWN })
        }
        Verb::Stages { ask } => {
            let (yes, text) = catalogue::answer(&ask)?;
            print(&text)?;
            Ok(if yes { 0 } else { NO })
        }
        Verb::Columns(options) => {
            print(&report::columns::answer(options.form())?)?;
            Ok(0)
        }
        Verb::CopyPaths(options) => match options.answer() {
            Ok(text) => print(&text).map(|()| Ok(0))?,
            Err(error) => {
                complain(&format!("{error:#}"));
                Ok(UNKNOWN)
            }
        },
        Verb::Mark { name } => watch::notify::mark(&name).map(|()| 0),
    }
}

fn profile(options: &record::Options) -> anyhow::Result<u8> {
    match record::profile(options) {
        Ok(status) => Ok(status),
        Err(error) => {
            complain(&error.to_string());
            Ok(error.status())
        }
    }
}

/// Says what went wrong. Names that came from files and arguments are in it.
fn complain(error: &str) {
    let lines: Vec<String> = error.lines().map(report::text::plain).collect();
    let _ = writeln!(std::io::stderr(), "stagemark: {}", lines.join("\n  "));
}

/// Prints to standard output; a reader that has seen enough is no error.
fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
