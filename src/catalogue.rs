//! `stagemark stages`: which stage files there are, what they say, whether a file is one, and what it would have matched
//! in a log that was saved.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::Ask;
use crate::event::text_of;
use crate::report::text::{columns, padded, plain, wrap};
use crate::run;
use crate::stage::asked::{at_home, lacking};
use crate::stage::condition::Condition;
use crate::stage::file::Files;
use crate::stage::trial::{Found, Hit, Trial, TrialError, Tried};
use crate::stage::{Definition, StageErrors, StageFile};
use crate::units;

/// Columns of what is printed for people.
const WIDTH: usize = 100;

/// The answer, and whether it is "yes".
///
/// # Errors
/// Wrong usage: no such stage file, no such log. A [`TrialError`] where a log cannot be read to its end.
pub fn answer(ask: &Ask) -> anyhow::Result<(bool, String)> {
    match ask {
        Ask::List => Ok((true, list(&StageFile::embedded()))),
        Ask::Show { name } => Ok((true, StageFile::embedded_text(name)?.to_owned())),
        Ask::Check { file } => match StageFile::load_for(file, "", Files::Look) {
            Ok(stages) => Ok((true, checked(&text_of(file), &stages))),
            Err(error) => match error.downcast::<StageErrors>() {
                Ok(errors) => Ok((false, errors.to_string().lines().map(|line| plain(line) + "\n").collect())),
                Err(error) => Err(error),
            },
        },
        Ask::Try { stages, log, argv } => {
            let stages = StageFile::load_for(stages, "", Files::Leave)?;
            let argv: Vec<String> = argv.iter().map(text_of).collect();
            let tried = try_log(Trial::new(stages.clone(), &argv), log)?;
            let matched = tried.1.iter().any(|tried| matches!(tried.found, Found::Matched { .. }));
            let by_default = (!argv.is_empty()).then(|| fits_not(&stages, &argv)).flatten().unwrap_or_default();
            Ok((matched, trial(&stages.name, &text_of(log), tried.0, &tried.1) + &by_default))
        }
    }
}

/// Each file: name, status, what it is for, what chooses it.
fn list(files: &[StageFile]) -> String {
    let names = files.iter().map(|file| columns(&file.name)).max().unwrap_or(0);
    let indent = " ".repeat(names + 2 + "unverified".len() + 2);
    let mut text = String::new();
    for file in files {
        let by = match &file.argv[..] {
            [] if file.name == GENERIC => "by: any other command".to_owned(),
            [] => format!("by: --stages {} alone", file.name),
            argv => format!("by: {}", argv.join(" · ")),
        };
        let lines = [&file.about, &by].into_iter().flat_map(|text| wrap(text, WIDTH - indent.len()));
        for (index, line) in lines.enumerate() {
            match index {
                0 => text.push_str(&format!("{}  {}  {line}\n", padded(&file.name, names), padded(&file.status, 10))),
                _ => text.push_str(&format!("{indent}{line}\n")),
            }
        }
    }
    text.push_str(
        "\nverified: run against the real program; unverified: written from its source.\n\
         by: words in a row on the command line of any program of the launch; the first file that fits is followed.\n",
    );
    text
}

/// The file that is followed where no other fits.
const GENERIC: &str = "generic";

/// How each stage of a good file is reached.
fn checked(shown: &str, stages: &StageFile) -> String {
    let until = stages.until.as_ref().map_or("none, so the end of the command".to_owned(), |until| until.clone());
    let mut text = format!(
        "{}: the stage file `{}`, {}, {}, stopping event {until}\n",
        plain(shown),
        stages.name,
        stages.status,
        units::exactly(stages.stages.len() as u64, "stage")
    );
    let width = stages.stages.iter().map(|stage| columns(&stage.name)).max().unwrap_or(0);
    for stage in &stages.stages {
        text.push_str(&row(&stage.name, width, &reached_by(stage)));
    }
    text.extend(by_the_launch(stages).iter().flat_map(|text| wrap(&plain(text), WIDTH)).map(|line| line + "\n"));
    text.push_str(&format!("digest {}\n", stages.digest()));
    text
}

/// The files that are needed and whose names depend on the launch: what is there under the names that the variables'
/// defaults make.
fn by_the_launch(stages: &StageFile) -> Vec<String> {
    let defaults = stages.defaults();
    let mut all = Vec::new();
    for stage in &stages.stages {
        let leaves = stage.begin.iter().chain(&stage.when).flat_map(Condition::leaves);
        let files = leaves.flat_map(|leaf| if let Condition::Http(http) = leaf { http.files() } else { Vec::new() });
        for (key, path) in files.filter(|(_, path)| !path.names().is_empty()) {
            let file = path.fill_known(&defaults);
            let there = lacking(&at_home(&file)).map_or(", which is there".to_owned(), |lack| format!(": {lack}"));
            let name = &stage.name;
            all.push(format!("`{key}` of `{name}` depends on the launch; by the defaults it is {file}{there}"));
        }
    }
    all
}

fn reached_by(stage: &Definition) -> String {
    let begin = stage.begin.as_ref().map(|begin| format!("from {begin} on, ")).unwrap_or_default();
    let when = stage.when.as_ref().map_or("by notification alone".to_owned(), |when| format!("{begin}by {when}"));
    match &stage.after[..] {
        [] => when,
        after => format!("{when}, after {}", after.join(", ")),
    }
}

fn row(name: &str, width: usize, text: &str) -> String {
    let indent = width + 4;
    let lines = wrap(&plain(text), WIDTH.saturating_sub(indent).max(40));
    let mut all = String::new();
    for (index, line) in lines.iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        all.push_str(&format!("  {}  {line}\n", padded(name, width)));
    }
    all
}

/// That a command is none of a stage file's, which takes no variable from it.
fn fits_not(stages: &StageFile, argv: &[String]) -> Option<String> {
    if stages.argv.is_empty() || stages.fits(argv) {
        return None;
    }
    let phrases = stages.argv.iter().map(|phrase| format!("`{phrase}`")).collect::<Vec<_>>().join(", ");
    let vars: Vec<String> =
        stages.vars.iter().map(|(name, variable)| format!("{name} = {}", variable.default)).collect();
    let by_default = if vars.is_empty() {
        String::new()
    } else {
        format!(", and variables have their defaults: {}", vars.join(", "))
    };
    let text = format!("the command fits none of the file's `argv` ({phrases}){by_default}");
    Some(wrap(&plain(&text), WIDTH).iter().map(|line| format!("{line}\n")).collect())
}

/// Feeds a log to a stage file; how many lines it has, and what became of each stage.
fn try_log(mut trial: Trial, log: &Path) -> anyhow::Result<(u64, Vec<Tried>)> {
    if log == Path::new("-") {
        feed(&mut trial, std::io::stdin().lock(), "-")?;
    } else {
        let path = if log.is_dir() { kept_output(log)? } else { log.to_owned() };
        let file = File::open(&path).with_context(|| text_of(&path))?;
        feed(&mut trial, file, &text_of(&path))?;
    }
    Ok((trial.lines(), trial.found()))
}

/// What a run folder keeps of what its command printed.
fn kept_output(folder: &Path) -> anyhow::Result<PathBuf> {
    let (path, shown) = (folder.join(run::OUTPUT), text_of(folder));
    if path.exists() {
        return Ok(path);
    }
    anyhow::ensure!(
        folder.join(run::META).exists(),
        "{shown}: a folder, and not a run folder: expected a log or a run"
    );
    anyhow::bail!(
        "{shown}: the run has no {}: what its command printed was not kept (--no-output-log), or the file was taken \
         away; launch it again without --no-output-log, or give a log that was \
         saved otherwise",
        run::OUTPUT
    );
}

fn feed(trial: &mut Trial, log: impl Read, shown: &str) -> anyhow::Result<()> {
    trial.read(log).map_err(|error: TrialError| anyhow::Error::from(error).context(shown.to_owned()))
}

/// What was found, in the order of lines; then what was not, and what no line can show.
fn trial(name: &str, log: &str, lines: u64, tried: &[Tried]) -> String {
    let width = tried.iter().map(|tried| columns(&tried.stage)).max().unwrap_or(0);
    let mut text = format!("stage file `{name}` on {}: {}\n", plain(log), units::exactly(lines, "line"));
    let mut matched: Vec<(&Tried, &Hit, &[Hit])> = tried
        .iter()
        .filter_map(|tried| match &tried.found {
            Found::Matched { by, with } => Some((tried, by, &with[..])),
            _ => None,
        })
        .collect();
    matched.sort_by_key(|(_, by, _)| by.line);
    for (tried, by, with) in matched {
        let with = with.iter().map(|hit| format!("; with {}", where_it_is(hit)));
        let rest = if tried.whole { "" } else { "; its condition has parts that no line shows" };
        let told = format!("{}: {}{}{rest}", where_it_is(by), by.text.trim(), with.collect::<String>());
        text.push_str(&row(&tried.stage, width, &told));
    }
    let mut told = |heading: &str, each: &dyn Fn(&Tried) -> Option<String>| {
        let rows: Vec<String> =
            tried.iter().filter_map(|tried| Some(row(&tried.stage, width, &each(tried)?))).collect();
        if !rows.is_empty() {
            text.push_str(&format!("{heading}\n{}", rows.concat()));
        }
    };
    told("not reached:", &|tried| {
        let when = tried.when.as_ref().map(ToString::to_string).unwrap_or_default();
        let waits = match &tried.after[..] {
            [] => String::new(),
            after => format!(", after {}", after.join(", ")),
        };
        match &tried.found {
            Found::Missed => Some(format!("needs {when}{waits}")),
            Found::Partly(hits) => {
                let seen: Vec<String> = hits.iter().map(where_it_is).collect();
                Some(format!("needs {when}{waits}; of it {}", seen.join(", ")))
            }
            _ => None,
        }
    });
    told("not by a line:", &|tried| match (&tried.found, &tried.when) {
        (Found::NotByOutput, Some(when)) => Some(format!("by {when}")),
        (Found::NotByOutput, None) => Some("by notification alone".to_owned()),
        _ => None,
    });
    text
}

fn where_it_is(hit: &Hit) -> String {
    match hit.at {
        Some(at) => format!("line {} at {:.3} s", hit.line, at.seconds()),
        None => format!("line {}", hit.line),
    }
}
