//! Whether runs produced the same: digests of what each printed, was answered, or wrote.
//!
//! Equal digests are equal bytes; what differs may differ in a date alone, and that is not looked into.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::series::{RunState, Series};
use crate::artifact::hexadecimal;
use crate::event::{Stream, text_of};
use crate::run::{self, Meta};

/// No more files of a pattern than this.
const MOST_FILES: usize = 10_000;

/// What is to be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputOf {
    /// What was printed to standard output.
    Stdout,
    /// The bodies of the responses by which stages were reached.
    Response,
    /// The files that a pattern finds, relative to the directory in which the series is run.
    Files(String),
}

impl OutputOf {
    /// `stdout`, `response`, or a pattern.
    ///
    /// # Errors
    /// It is no pattern.
    pub fn parse(text: &str) -> Result<OutputOf, String> {
        Ok(match text {
            "stdout" => OutputOf::Stdout,
            "response" => OutputOf::Response,
            pattern => {
                glob::Pattern::new(pattern).map_err(|error| format!("`{pattern}`: not a pattern: {error}"))?;
                OutputOf::Files(pattern.to_owned())
            }
        })
    }

    /// As it is asked for.
    pub fn word(&self) -> &str {
        match self {
            OutputOf::Stdout => "stdout",
            OutputOf::Response => "response",
            OutputOf::Files(pattern) => pattern,
        }
    }

    /// What a run produced of it. `since`: its beginning, nanoseconds since 1970; files that are older are not its own.
    pub(super) fn of_run(&self, folder: &Path, directory: &Path, since: i128) -> Output {
        let found = match self {
            OutputOf::Stdout => stdout(folder),
            OutputOf::Response => responses(folder),
            OutputOf::Files(pattern) => files(pattern, directory, since),
        };
        let (sha256, reason) = match found {
            Ok(sha256) => (Some(sha256), None),
            Err(why) => (None, Some(why)),
        };
        Output { of: self.word().to_owned(), sha256, reason }
    }
}

/// What one run produced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// As of [`OutputOf::word`].
    pub of: String,
    pub sha256: Option<String>,
    /// Why there is no digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn stdout(folder: &Path) -> Result<String, String> {
    let meta = Meta::load(folder).map_err(|error| error.to_string())?;
    let both = meta.printed.iter().find(|printed| printed.stream == Stream::Both);
    let own = meta.printed.iter().find(|printed| printed.stream == Stream::Stdout);
    match own.or(both) {
        Some(printed) => Ok(printed.sha256.clone()),
        None => Err("what it printed was not seen whole".to_owned()),
    }
}

/// The bodies: what is before the first empty line is the request and the headers, which have dates.
fn responses(folder: &Path) -> Result<String, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let is_response = |name: &String| name.starts_with("response-") && name.ends_with(".txt");
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(is_response).collect();
    names.sort();
    if names.is_empty() {
        return Err("no stage was reached by a response".to_owned());
    }
    let mut digest = Sha256::new();
    for name in names {
        let bytes = run::read_file(&folder.join(&name)).map_err(|error| format!("{name}: {error}"))?;
        let end = memchr::memmem::find(&bytes, b"\n\n").map_or(bytes.len(), |end| end + 2);
        digest.update(format!("{name}\0{}\0", bytes.len() - end));
        digest.update(&bytes[end..]);
    }
    Ok(hexadecimal(&digest.finalize()))
}

fn files(pattern: &str, directory: &Path, since: i128) -> Result<String, String> {
    let whole = format!("{}/{pattern}", glob::Pattern::escape(&directory.to_string_lossy()));
    let whole = if Path::new(pattern).is_absolute() { pattern.to_owned() } else { whole };
    let found = glob::glob(&whole).map_err(|error| error.to_string())?;
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut old = 0;
    for path in found.flatten() {
        let Ok(stat) = std::fs::metadata(&path) else { continue };
        if !stat.is_file() {
            continue;
        }
        // A file's time is of the last tick of the kernel's clock, up to 10 ms old.
        let modified = i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec());
        if modified + 20_000_000 < since {
            old += 1;
            continue;
        }
        if paths.len() == MOST_FILES {
            return Err(format!("more than {MOST_FILES} files"));
        }
        paths.push(path);
    }
    if paths.is_empty() {
        return Err(match old {
            0 => "no such file".to_owned(),
            old => format!("none was written by it ({old} older)"),
        });
    }
    paths.sort();
    let mut digest = Sha256::new();
    for path in paths {
        let own = sha256_of(&path).map_err(|error| format!("{}: {error}", text_of(&path)))?;
        let name = path.strip_prefix(directory).unwrap_or(&path);
        digest.update(format!("{}\0{own}\0", text_of(name)));
    }
    Ok(hexadecimal(&digest.finalize()))
}

fn sha256_of(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hexadecimal(&digest.finalize())),
            length => digest.update(&buffer[..length]),
        }
    }
}

/// What the runs of a series say of one kind of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub of: String,
    /// Whether every run that is compared has the same; absent where one has none to be known.
    pub equal: Option<bool>,
    /// In words.
    pub words: String,
}

/// Each run of the series proper, and its digest or the reason why there is none.
pub fn digests(series: &Series, of: &str) -> Vec<(String, Result<String, String>)> {
    let told = |run: &super::series::RunEntry| {
        let output = run.outputs.iter().find(|output| output.of == of);
        let digest = match output {
            Some(Output { sha256: Some(sha256), .. }) => Ok(sha256.clone()),
            Some(Output { reason, .. }) => Err(reason.clone().unwrap_or_else(|| "not known".to_owned())),
            None => Err("not looked at".to_owned()),
        };
        (format!("run {} ({})", run.number, run.arm), digest)
    };
    produced(series).map(told).collect()
}

/// The runs whose outputs count.
fn produced(series: &Series) -> impl Iterator<Item = &super::series::RunEntry> {
    series.runs.iter().filter(|run| !run.warmup && run.state != RunState::Interrupted)
}

/// One verdict for each kind that was asked for. Runs that failed or were interrupted count too: they produced what they did.
pub fn verdicts(series: &Series) -> Vec<Verdict> {
    let runs = || produced(series);
    let verdict = |of: &String| {
        let mut digests: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        let mut unknown = None;
        for run in runs() {
            match run.outputs.iter().find(|output| output.of == *of) {
                Some(Output { sha256: Some(sha256), .. }) => {
                    *digests.entry(sha256).or_default().entry(&run.arm).or_default() += 1;
                }
                Some(Output { reason, .. }) => {
                    let why = reason.as_deref().unwrap_or("not known");
                    unknown.get_or_insert_with(|| format!("run {} ({}): {why}", run.number, run.arm));
                }
                None => {
                    unknown.get_or_insert_with(|| format!("run {} ({}): not looked at", run.number, run.arm));
                }
            }
        }
        let listed: Vec<String> = digests
            .iter()
            .map(|(sha256, arms)| {
                let arms: Vec<String> = arms.iter().map(|(arm, count)| format!("{arm} ×{count}")).collect();
                format!("{} {}", sha256.get(..12).unwrap_or(sha256), arms.join(", "))
            })
            .collect();
        let (equal, words) = match (unknown, digests.len()) {
            (_, 2..) => (Some(false), format!("different: {}", listed.join("; "))),
            (Some(why), _) => (None, format!("not known: {why}")),
            (None, 0) => (None, "not known: no run".to_owned()),
            (None, 1) => (Some(true), format!("the same in {} runs: {}", runs().count(), listed.join(""))),
        };
        Verdict { of: of.clone(), equal, words }
    };
    series.same_output.iter().map(verdict).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::series::tests::series;
    use super::*;

    #[test]
    fn outputs_are_equal_or_not_or_not_known() {
        let mut series = series(&[("A", RunState::Done), ("B", RunState::Failed), ("A", RunState::Interrupted)]);
        series.same_output = vec!["stdout".into()];
        let set = |series: &mut Series, digests: [Option<&str>; 2]| {
            for (run, digest) in series.runs.iter_mut().zip(digests) {
                let reason = digest.is_none().then(|| "gone".to_owned());
                run.outputs = vec![Output { of: "stdout".into(), sha256: digest.map(str::to_owned), reason }];
            }
        };
        let told = |series: &Series| {
            let verdict = verdicts(series).remove(0);
            (verdict.equal, verdict.words)
        };
        set(&mut series, [Some("ab"), Some("ab")]);
        assert_eq!(told(&series), (Some(true), "the same in 2 runs: ab A ×1, B ×1".into()));
        set(&mut series, [Some("ab"), Some("cd")]);
        assert_eq!(told(&series), (Some(false), "different: ab A ×1; cd B ×1".into()));
        set(&mut series, [Some("ab"), None]);
        assert_eq!(told(&series), (None, "not known: run 2 (B): gone".into()));
    }

    #[test]
    fn files_are_those_that_a_run_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let of = |pattern: &str, since| OutputOf::parse(pattern).unwrap().of_run(folder.path(), folder.path(), since);
        assert_eq!(of("*.txt", 0).reason.as_deref(), Some("no such file"));
        std::fs::write(folder.path().join("a.txt"), "one").unwrap();
        let one = of("*.txt", 0);
        std::fs::write(folder.path().join("b.txt"), "two").unwrap();
        let two = of("*.txt", 0);
        assert!(one.sha256.is_some() && two.sha256.is_some() && one != two);
        assert_eq!(of("*.txt", i128::from(i64::MAX)).reason.as_deref(), Some("none was written by it (2 older)"));
        assert!(OutputOf::parse("a[").is_err());
    }

    #[test]
    fn a_response_is_its_body() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            std::fs::write(folder.path().join("response-up.txt"), text).unwrap();
            OutputOf::Response.of_run(folder.path(), folder.path(), 0).sha256.unwrap()
        };
        let one = write("GET /\n200\ndate: 1\n\nbody");
        assert_eq!(write("GET /\n200\ndate: 2\n\nbody"), one);
        assert_ne!(write("GET /\n200\ndate: 2\n\nother"), one);
    }
}
