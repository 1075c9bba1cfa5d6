//! Dispatch, print the error, exit status.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use stagemark::cli::{AbArgs, Cli, CompareArgs, Verb};
use stagemark::compare::Comparison;
use stagemark::compare::likeness::Verdict;
use stagemark::probe::device::cuda;
use stagemark::run::{Meta, RunError};
use stagemark::stage::trial::TrialError;
use stagemark::{ab, budget, cache, catalogue, copy_paths, demo, doctor, inspect, launch, record, report, watch};

/// The answer is "no".
const NO: u8 = 1;
/// Wrong usage, of any verb but `run`.
const USAGE: u8 = 2;
/// Something cannot be read or understood.
const UNKNOWN: u8 = 3;
/// Runs are not like for like, or that cannot be told, under `--strict`.
const NOT_ALIKE: u8 = 4;
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
            let unreadable = error.downcast_ref::<ab::SeriesError>().is_some()
                || error.downcast_ref::<RunError>().is_some_and(|error| !error.is_usage())
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
        Verb::Ab(options) => by_turns(&options),
        Verb::Compare(options) => match &options.runs[..] {
            [folder] if ab::is_series(folder) => {
                let answer = ab::compare(folder, &options.options(), options.judged.json, options.out.as_deref())?;
                told(&answer, options.judged.strict)
            }
            [folder] => {
                Meta::load(folder)?;
                anyhow::bail!("one run has nothing to be compared with: name another, or the folder of a series")
            }
            _ => compare(&options),
        },
        Verb::Findings(options) => {
            print(&report::findings::answer(&options.run, options.json)?)?;
            Ok(0)
        }
        Verb::Inspect(options) => {
            let out = &mut std::io::stdout().lock();
            let all_understood = inspect::inspect(&options.paths, options.json, out, &mut std::io::stderr())?;
            Ok(if all_understood { 0 } else { UNKNOWN })
        }
        Verb::Cache { ask } => {
            let (wish, options) = ask.parts();
            let out = &mut std::io::stdout().lock();
            let answer = cache::cache(wish, &options.paths, options.json, out, &mut std::io::stderr())?;
            Ok(match answer {
                cache::Answer::Yes => 0,
                cache::Answer::No => NO,
                cache::Answer::Unknown => UNKNOWN,
            })
        }
        Verb::Check(options) => {
            let (answer, text) = budget::check(&options.run, &options.budget, options.json)?;
            print(&text)?;
            Ok(match answer {
                budget::Answer::Kept => 0,
                budget::Answer::Broken => NO,
                budget::Answer::Unknown => UNKNOWN,
            })
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
            Ok(answer) => {
                print(&answer.text)?;
                answer.problem.iter().for_each(|problem| complain(problem));
                Ok(match (answer.signal, answer.problem) {
                    (Some(signal), _) => 128u8.saturating_add(signal as u8),
                    (None, Some(_)) => UNKNOWN,
                    (None, None) => 0,
                })
            }
            Err(error) => {
                complain(&format!("{error:#}"));
                Ok(UNKNOWN)
            }
        },
        Verb::Mark { name } => watch::notify::mark(&name).map(|()| 0),
    }
}

fn compare(arguments: &CompareArgs) -> anyhow::Result<u8> {
    use report::compare::folder::{self, Beside};
    use report::compare::terminal;
    let options = arguments.options();
    let out = arguments.out.as_deref();
    let mut arms = folder::arms(&arguments.runs)?;
    out.map(folder::prepare).transpose()?;
    if options.contents {
        folder::hash_contents(&mut arms);
    }
    let comparison = match Comparison::of(&arms, &options) {
        Ok(comparison) => comparison,
        Err(refusal) => {
            let json = folder::refusal_text(&refusal);
            if let Some(out) = out {
                folder::write_refusal(&arms, &(&refusal).into(), &Beside { series: None, json: &json }, out)?;
            }
            if arguments.judged.json {
                print(&json)?;
            }
            let _ = std::io::stderr().write_all(terminal::refusal(&refusal).as_bytes());
            return Ok(UNKNOWN);
        }
    };
    let json = folder::json_text(&arms, &comparison);
    if let Some(out) = out {
        folder::write(&arms, &comparison, &Beside { series: None, json: &json }, out)?;
    }
    print(&match arguments.judged.json {
        true => json,
        false => folder::text(&arms, &comparison, out),
    })?;
    let alike = comparison.likeness.verdict() == Verdict::LikeForLike;
    Ok(if arguments.judged.strict && !alike { NOT_ALIKE } else { 0 })
}

/// Runs a series, and compares what was run, also where it was ended before its time.
fn by_turns(arguments: &AbArgs) -> anyhow::Result<u8> {
    let done = ab::execute(&arguments.options()?)?;
    let answer = ab::compare(&done.folder, &arguments.comparing(), arguments.judged.json, Some(&done.folder))?;
    let status = told(&answer, arguments.judged.strict)?;
    Ok(match (done.signal, done.series.problem) {
        (Some(signal), _) => 128u8.saturating_add(signal as u8),
        // One of its own commands failed: `--cleanup` too, when all was run.
        (None, Some(_)) => UNKNOWN,
        (None, None) => status,
    })
}

fn told(answer: &ab::Answer, strict: bool) -> anyhow::Result<u8> {
    print(&answer.text)?;
    let _ = std::io::stderr().write_all(answer.refusal.as_bytes());
    Ok(match answer.is_alike {
        None => UNKNOWN,
        Some(false) if strict => NOT_ALIKE,
        Some(_) => 0,
    })
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
