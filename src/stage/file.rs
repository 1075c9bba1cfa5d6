//! Stage files: one TOML a loader family, embedded in the binary or given by `--stages`.
//!
//! Reading one is strict: what is not understood is an error that says where it stands, since a stage that silently
//! means something else would make two runs look comparable that are not. The parsed form is the normalised one: every
//! default is written out in it, and its digest says whether two runs used the same definitions.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::asked::{Values, Work};
use super::condition::{Condition, Count, FirstOutput, LogLine, Pattern, digest_of};
use crate::event::{Stream, text_of};
use crate::watch::{LONGEST_STAGE_NAME, is_stage_name};

/// The stage files that are part of the program, `generic` last.
const EMBEDDED: &[(&str, &str)] = &[
    ("vllm", include_str!("../../stages/vllm.toml")),
    ("sglang", include_str!("../../stages/sglang.toml")),
    ("tgi", include_str!("../../stages/tgi.toml")),
    ("tensorrt-llm", include_str!("../../stages/tensorrt-llm.toml")),
    ("llama-cpp", include_str!("../../stages/llama-cpp.toml")),
    ("llama-cpp-cli", include_str!("../../stages/llama-cpp-cli.toml")),
    ("ollama", include_str!("../../stages/ollama.toml")),
    ("triton", include_str!("../../stages/triton.toml")),
    ("mistralrs", include_str!("../../stages/mistralrs.toml")),
    ("mistralrs-python", include_str!("../../stages/mistralrs-python.toml")),
    ("tei", include_str!("../../stages/tei.toml")),
    ("cosmos", include_str!("../../stages/cosmos.toml")),
    ("transformers", include_str!("../../stages/transformers.toml")),
    ("safetensors", include_str!("../../stages/safetensors.toml")),
    ("torch", include_str!("../../stages/torch.toml")),
    ("torch-dcp", include_str!("../../stages/torch-dcp.toml")),
    ("fastsafetensors", include_str!("../../stages/fastsafetensors.toml")),
    ("runai-streamer", include_str!("../../stages/runai-streamer.toml")),
    ("onnxruntime", include_str!("../../stages/onnxruntime.toml")),
    ("candle", include_str!("../../stages/candle.toml")),
    ("reference-loader", include_str!("../../stages/reference-loader.toml")),
    ("generic", include_str!("../../stages/generic.toml")),
];

/// Largest stage file that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;
/// Most stages of one file, and most conditions in all of them: each line of the launch is held against each, and what is
/// asked is asked by a thread of its own.
const MOST_STAGES: usize = 256;
const MOST_CONDITIONS: usize = 512;

/// How deep `all` and `any` may be nested.
const DEEPEST: usize = 8;

const CONDITIONS: &[&str] = &[
    "mapping",
    "log",
    "residency",
    "exit",
    "notify",
    "http",
    "tcp",
    "unix",
    "file",
    "first_output",
    "unmap",
    "quiet",
    "device",
    "anon",
    "all",
    "any",
];

/// What each kind of condition takes, for people, and an example of it.
const FORMS: &[(&str, &str, &str)] = &[
    ("mapping", "text", "mapping = \"any\""),
    ("log", "text", "log = 'weights loaded'"),
    ("residency", "a share", "residency = \"99%\""),
    ("exit", "a status, or text", "exit = 0"),
    ("notify", "text", "notify = \"weights_loaded\""),
    ("http", "text or a table", "http = \"http://127.0.0.1:8000/health\""),
    ("tcp", "text or a table", "tcp = \"127.0.0.1:8000\""),
    ("unix", "text or a table", "unix = \"/run/server.sock\""),
    ("file", "text or a table", "file = \"out/done\""),
    ("first_output", "text", "first_output = \"line\""),
    ("unmap", "a share", "unmap = \"50%\""),
    ("quiet", "text or a table", "quiet = \"2 s\""),
    ("device", "a table", "device = { rise = \"64 MiB\", still = \"200 ms\" }"),
    ("anon", "a table", "anon = { rise = \"90%\", still = \"200 ms\" }"),
    ("all", "an array", "all = [ { log = 'loaded' }, { mapping = \"any\" } ]"),
    ("any", "an array", "any = [ { log = 'loaded' }, { mapping = \"any\" } ]"),
];

/// The name of the launch's own beginning in reports: no stage has it.
const START: &str = "start";

/// So many mistakes of one file are told…
const MOST_TOLD: usize = 20;
/// … and so many are looked for.
const MOST_PROBLEMS: usize = 1_000;

/// Longest value that is taken for a variable, in bytes.
const LONGEST_VALUE: usize = 1024;

/// A stage file, parsed and checked. Serialises to its normalised form, which is what is digested and compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageFile {
    pub name: String,
    pub about: String,
    /// `verified`: run against the real program; `unverified` otherwise.
    pub status: String,
    /// Chosen when any exec in the tree has one of these words in a row in its command line.
    pub argv: Vec<String>,
    /// Default stopping event.
    pub until: Option<String>,
    pub vars: BTreeMap<String, Variable>,
    /// Retained application state to record at start.
    pub state: Vec<String>,
    #[serde(rename = "stage")]
    pub stages: Vec<Definition>,
}

/// A value taken from the command line of the program that the file fits, else from that program's environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// The flag's spellings: `--port 80` and `--port=80` are understood, and of a single letter `-p80`, where the value
    /// begins with no letter (`-port` is another flag). The last one counts.
    #[serde(default, deserialize_with = "one_or_many")]
    pub flag: Vec<String>,
    #[serde(default)]
    pub env: Vec<String>,
    /// Where neither says it.
    pub default: String,
}

/// A text, as runs of former versions have it, or several.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::One(flag) => vec![flag],
        Either::Many(flags) => flags,
    })
}

impl Variable {
    /// Its value in a command line.
    pub fn in_argv(&self, argv: &[String]) -> Option<String> {
        let mut found = None;
        for (index, argument) in argv.iter().enumerate().skip(1) {
            for flag in &self.flag {
                let value = match argument.strip_prefix(flag.as_str()) {
                    Some("") => argv.get(index + 1).filter(|next| !next.starts_with("--")).map(String::as_str),
                    Some(rest) => rest.strip_prefix('=').or_else(|| glued(flag, rest)),
                    None => None,
                };
                let usable = |value: &&str| !value.is_empty() && value.len() <= LONGEST_VALUE;
                found = value.filter(usable).map(str::to_string).or(found);
            }
        }
        found
    }
}

/// The value that stands behind a flag of one letter without anything between them.
fn glued<'a>(flag: &str, rest: &'a str) -> Option<&'a str> {
    let is_short = flag.len() == 2 && flag.starts_with('-') && flag != "--";
    (is_short && !rest.starts_with(|c: char| c.is_alphabetic())).then_some(rest)
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    pub name: String,
    /// Stages that must have their marks before evidence for this one counts. A notification by this stage's name
    /// counts without them.
    #[serde(default)]
    pub after: Vec<String>,
    /// Of a span, what begins it: evidence for its end (`when`) counts from there on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Condition>,
    /// `None`: by notification alone.
    pub when: Option<Condition>,
}

impl Definition {
    /// SHA-256 of its normalised form, in hexadecimal: whether two runs mean the same by this stage.
    pub fn digest(&self) -> String {
        digest_of(self)
    }

    /// Its conditions, that of its beginning first.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.begin.iter().chain(&self.when)
    }
}

/// What is wrong with a stage file, and where. Lines and columns count from 1, columns in characters.
#[derive(Debug, thiserror::Error)]
#[error("{origin}:{line}:{column}: {problem}")]
pub struct StageError {
    pub origin: String,
    pub line: usize,
    pub column: usize,
    pub problem: String,
}

/// Everything that is wrong with a stage file, in the order of its text. There is at least one.
#[derive(Debug)]
pub struct StageErrors(Vec<StageError>);

impl std::error::Error for StageErrors {}

impl std::fmt::Display for StageErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, error) in self.0.iter().take(MOST_TOLD).enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        match self.0.len().checked_sub(MOST_TOLD) {
            Some(more @ 1..) => write!(f, "\nand {more} more"),
            _ => Ok(()),
        }
    }
}

impl From<StageError> for StageErrors {
    fn from(error: StageError) -> StageErrors {
        StageErrors(vec![error])
    }
}

/// Whether the files that a stage file names are looked at: they are there where it is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    Look,
    Leave,
}

impl StageFile {
    /// Parses a stage file; `origin` names it in errors.
    pub fn parse(text: &str, origin: &str) -> Result<StageFile, StageErrors> {
        StageFile::read(Reader::new(text, origin))
    }

    fn read(mut reader: Reader) -> Result<StageFile, StageErrors> {
        // What some editors put before the first line.
        let text = reader.text.strip_prefix('\u{feff}').unwrap_or(reader.text);
        reader.text = text;
        let table = reader.document()?;
        let read = reader.stage_file(&table);
        let mut problems = reader.problems.into_inner();
        match read {
            Ok(file) if problems.is_empty() => return Ok(file),
            Ok(_) => {}
            Err(error) => problems.push(error),
        }
        problems.sort_by_key(|error| (error.line, error.column));
        Err(StageErrors(problems))
    }

    fn bundled(name: &str, text: &str) -> Result<StageFile, StageErrors> {
        StageFile::read(Reader { is_bundled: true, ..Reader::new(text, name) })
    }

    /// By name among the embedded ones, or from a file.
    ///
    /// # Errors
    /// No embedded file has that name and no such file can be read, or it is not a stage file.
    pub fn load(name_or_path: impl AsRef<OsStr>) -> anyhow::Result<StageFile> {
        StageFile::load_for(name_or_path.as_ref(), "--stages ", Files::Leave)
    }

    /// The same, for an argument that errors call so (with a space behind it, or nothing).
    pub fn load_for(name_or_path: &OsStr, option: &str, files: Files) -> anyhow::Result<StageFile> {
        if let Some((name, text)) = EMBEDDED.iter().find(|(name, _)| *name == name_or_path) {
            return Ok(StageFile::bundled(name, text)?);
        }
        let shown = text_of(name_or_path);
        let names: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        let path = Path::new(name_or_path);
        let metadata = std::fs::metadata(path).with_context(|| {
            format!("{option}{shown}: neither a stage file nor the name of one{}", hint(&shown, &names))
        })?;
        // Asked before the open, which would wait for the writer of a FIFO.
        if !metadata.is_file() {
            anyhow::bail!(
                "{option}{shown}: not a file; expected a stage file or the name of one ({})",
                names.join(", ")
            );
        }
        let read = read_text(path, &format!("{option}{shown}"), &shown, "a stage file");
        let text = read.map_err(|error| match error.downcast::<StageError>() {
            Ok(error) => StageErrors::from(error).into(),
            Err(error) => error,
        })?;
        Ok(StageFile::read(Reader { files, ..Reader::new(&text, &shown) })?)
    }

    /// Every embedded file, `generic` last.
    pub fn embedded() -> Vec<StageFile> {
        EMBEDDED
            .iter()
            .map(|(name, text)| StageFile::bundled(name, text).expect("a unit test parses each embedded file"))
            .collect()
    }

    /// The text of an embedded file.
    ///
    /// # Errors
    /// There is none of that name; those that there are are named.
    pub fn embedded_text(name: &str) -> anyhow::Result<&'static str> {
        let names: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        match EMBEDDED.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Ok(text),
            None => anyhow::bail!("{}: no bundled stage file has that name{}", text_of(name), hint(name, &names)),
        }
    }

    /// Adds a one-off stage from the command line, `NAME=KIND:ARGUMENT` (`loaded=log:REGEX`, `half=residency:50%`,
    /// `mapped=mapping:all`, `done=exit:0`, `up=http:URL`, `up=tcp:HOST:PORT`, `up=unix:PATH`, `written=file:PATH`,
    /// `spoke=first_output:line`, `settled=quiet:2s`, `freed=unmap:50%`, `warm=notify`). A stage of that name is replaced
    /// where it stands. Errors name the argument, as there may be several.
    pub fn add_one_off(&mut self, text: &str) -> Result<(), StageError> {
        let origin = one_off_origin(text);
        let reader = Reader { vars: Some(self.vars.clone()), ..Reader::new(text, &origin) };
        let Some((name, definition)) = text.split_once('=') else {
            return Err(reader.error(0..0, "expected NAME=KIND:ARGUMENT, as in 'loaded=log:weights loaded'"));
        };
        reader.stage_called(name, 0..name.len())?;
        let start = name.len() + 1;
        let (kind, argument) = match definition.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (definition, None),
        };
        let rest = start + kind.len() + 1;
        let at_argument = || rest.min(text.len())..text.len();
        let when = match (kind, argument) {
            ("log", Some(pattern)) => {
                let pattern = Pattern::new(pattern).map_err(|problem| reader.error(at_argument(), problem))?;
                reader.tells_lines_apart(&pattern, at_argument())?;
                Some(Condition::Log(LogLine { pattern, count: Count::Number(1), stream: None }))
            }
            ("log", None) => return Err(reader.error(at_argument(), "expected a regular expression: NAME=log:REGEX")),
            ("mapping", which) => Some(Condition::Mapping(
                which.unwrap_or("any").parse().map_err(|problem: String| reader.error(at_argument(), problem))?,
            )),
            ("residency", Some(share)) => Some(Condition::Residency(
                share.parse().map_err(|problem: String| reader.error(at_argument(), problem))?,
            )),
            ("residency", None) => {
                return Err(reader.error(at_argument(), "expected a share of the payload: NAME=residency:99%"));
            }
            ("exit", which) => Some(Condition::Exit(
                which.unwrap_or("any").parse().map_err(|problem: String| reader.error(at_argument(), problem))?,
            )),
            ("notify", None | Some("")) => None,
            ("notify", Some(_)) => return Err(reader.error(at_argument(), "`notify` has no argument: NAME=notify")),
            (kind @ ("http" | "tcp" | "unix" | "file" | "first_output" | "unmap" | "quiet"), Some(argument)) => {
                Some(reader.asked_by_text(kind, argument, at_argument())?)
            }
            ("first_output", None) => Some(reader.asked_by_text(kind, "byte", at_argument())?),
            (kind @ ("http" | "tcp" | "unix" | "file" | "unmap" | "quiet"), None) => {
                let example = match kind {
                    "http" => "http:http://127.0.0.1:8000/health",
                    "tcp" => "tcp:127.0.0.1:8000",
                    "quiet" => "quiet:2s",
                    "unmap" => "unmap:50%",
                    _ => return Err(reader.error(at_argument(), format!("expected a path: NAME={kind}:PATH"))),
                };
                return Err(reader.error(at_argument(), format!("expected an argument, as in 'NAME={example}'")));
            }
            ("device" | "anon", _) => {
                let problem = format!("`{kind}` takes two figures, and so stands in a stage file only");
                return Err(reader.error(start..start, problem));
            }
            (kind, _) => {
                let stands_alone = |kind: &&str| !matches!(*kind, "device" | "anon" | "all" | "any");
                let kinds: Vec<&str> = CONDITIONS.iter().copied().filter(stands_alone).collect();
                let problem = format!("unknown kind `{kind}`{}", hint(kind, &kinds));
                return Err(reader.error(start..start, problem));
            }
        };
        let definition = Definition { name: name.to_string(), after: Vec::new(), begin: None, when };
        match self.stages.iter_mut().find(|stage| stage.name == name) {
            Some(stage) => *stage = definition,
            None => self.stages.push(definition),
        }
        Ok(())
    }

    /// Adds the stage `representative_work`, which is reached when all of these requests are accepted, after
    /// `first_response` where the file has that.
    pub fn add_work(&mut self, work: Work) {
        const NAME: &str = "representative_work";
        let after = self.stage("first_response").map(|stage| stage.name.clone());
        let when = Some(Condition::Work(work));
        let definition = Definition { name: NAME.to_string(), after: after.into_iter().collect(), begin: None, when };
        self.stages.retain(|stage| stage.name != NAME);
        self.stages.push(definition);
    }

    /// Whether an exec with this command line is of this family: one of the `argv` phrases stands in it, word by word.
    /// A word of a phrase fits an argument that is equal to it or whose file name is.
    pub fn fits(&self, argv: &[String]) -> bool {
        self.argv.iter().any(|phrase| {
            let words: Vec<&str> = phrase.split_whitespace().collect();
            !words.is_empty()
                && argv.windows(words.len()).any(|window| {
                    window.iter().zip(&words).all(|(argument, word)| {
                        argument == word || argument.rsplit_once('/').is_some_and(|(_, file)| file == *word)
                    })
                })
        })
    }

    /// The variables, each by its default.
    pub fn defaults(&self) -> Values {
        self.vars.iter().map(|(name, variable)| (name.clone(), variable.default.clone())).collect()
    }

    /// SHA-256 of the normalised form, in hexadecimal. The form is JSON without spaces, its keys in the order of the
    /// fields above, with every default written out and each pattern as it was given.
    pub fn digest(&self) -> String {
        digest_of(self)
    }

    /// The digest of each stage's own definition.
    pub fn digests(&self) -> BTreeMap<String, String> {
        self.stages.iter().map(|stage| (stage.name.clone(), stage.digest())).collect()
    }

    /// The definition of a stage.
    pub fn stage(&self, name: &str) -> Option<&Definition> {
        self.stages.iter().find(|stage| stage.name == name)
    }
}

/// The text of a file, of at most a mebibyte; errors about the file begin with `told`, those about a place in it with
/// `origin`, and call it `what`.
///
/// # Errors
/// It cannot be read, is no file, is too large or not UTF-8.
pub(crate) fn read_text(path: &Path, told: &str, origin: &str, what: &str) -> anyhow::Result<String> {
    // Asked before the open, which would wait for the writer of a FIFO.
    let metadata = std::fs::metadata(path).with_context(|| told.to_owned())?;
    anyhow::ensure!(metadata.is_file(), "{told}: not a file");
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
        .with_context(|| told.to_owned())?;
    if bytes.len() as u64 > LARGEST_FILE {
        anyhow::bail!("{told}: larger than {what} may be ({LARGEST_FILE} bytes)");
    }
    String::from_utf8(bytes).map_err(|error| {
        let good_to = error.utf8_error().valid_up_to();
        let good = std::str::from_utf8(&error.as_bytes()[..good_to]).unwrap_or_default();
        let problem = format!("not UTF-8 from here on; {what} is TOML");
        Reader::new(good, origin).error(good.len()..good.len(), problem).into()
    })
}

/// The one-off stages of a command line, each of which has a name of its own.
///
/// # Errors
/// Two of them have one name.
pub fn each_once(one_offs: &[String]) -> Result<(), StageError> {
    let name = |text: &String| text.split_once('=').map(|(name, _)| name.to_string());
    for (index, text) in one_offs.iter().enumerate() {
        let twin = |other: &&String| name(other).is_some() && name(other) == name(text);
        if let Some(other) = one_offs[..index].iter().find(twin) {
            let problem = format!("{} names that stage too: one stage has one definition", one_off_origin(other));
            return Err(Reader::new(text, &one_off_origin(text)).error(0..0, problem));
        }
    }
    Ok(())
}

/// How errors call a `--stage` argument.
fn one_off_origin(text: &str) -> String {
    const SHOWN: usize = 100;
    let shown = text_of(text);
    match shown.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("--stage '{}…'", &shown[..end]),
        None => format!("--stage '{shown}'"),
    }
}

/// The text being read, for errors that say where.
pub(crate) struct Reader<'t> {
    text: &'t str,
    origin: &'t str,
    /// It is one of the program's own.
    is_bundled: bool,
    files: Files,
    /// The variables that may stand in a condition; any, where they are not known yet.
    vars: Option<BTreeMap<String, Variable>>,
    /// What is wrong beside what was returned.
    problems: RefCell<Vec<StageError>>,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(text: &'t str, origin: &'t str) -> Reader<'t> {
        let vars = Some(BTreeMap::new());
        Reader { text, origin, is_bundled: false, files: Files::Leave, vars, problems: RefCell::default() }
    }

    /// The whole text as a table.
    pub(crate) fn document(&self) -> Result<Spanned<DeTable<'t>>, StageError> {
        let wrong = |error: toml::de::Error| self.error(error.span().unwrap_or_default(), error.message().to_string());
        DeTable::parse(self.text).map_err(wrong)
    }
}

type Fields<'a> = BTreeMap<&'a str, &'a Spanned<DeValue<'a>>>;

impl Reader<'_> {
    pub(crate) fn error(&self, span: Range<usize>, problem: impl Into<String>) -> StageError {
        let mut end = span.start.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        StageError {
            origin: self.origin.to_string(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            problem: problem.into(),
        }
    }

    /// Keeps a mistake, and goes on to the next.
    fn note(&self, error: StageError) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < MOST_PROBLEMS {
            problems.push(error);
        }
    }

    fn kept<T>(&self, read: Result<T, StageError>) -> Option<T> {
        read.map_err(|error| self.note(error)).ok()
    }

    /// All of them, or the first mistake; the others are kept.
    fn each<T>(&self, read: impl Iterator<Item = Result<T, StageError>>) -> Result<Vec<T>, StageError> {
        let mut first = None;
        let mut all = Vec::new();
        for one in read {
            match one {
                Ok(one) => all.push(one),
                Err(error) if first.is_none() => first = Some(error),
                Err(error) => self.note(error),
            }
        }
        first.map_or(Ok(all), Err)
    }

    /// The entries of a table, all of whose keys must be known.
    fn fields<'a>(&self, table: &'a DeTable<'a>, known: &[&str]) -> Result<Fields<'a>, StageError> {
        let unknown = table.iter().filter(|(key, _)| !known.contains(&key.get_ref().as_ref()));
        self.each(unknown.map(|(key, _)| {
            let name = key.get_ref().as_ref();
            Err::<(), _>(self.error(key.span(), format!("unknown key `{}`{}", text_of(name), hint(name, known))))
        }))?;
        Ok(table.iter().map(|(key, value)| (key.get_ref().as_ref(), value)).collect())
    }

    fn wrong(&self, value: &Spanned<DeValue>, what: &str, expected: &str) -> StageError {
        let found = value.get_ref().type_str();
        self.error(value.span(), format!("`{what}`: expected {expected}, found {found}"))
    }

    pub(crate) fn table<'a>(&self, value: &'a Spanned<DeValue<'a>>, what: &str) -> Result<&'a DeTable<'a>, StageError> {
        value.get_ref().as_table().ok_or_else(|| self.wrong(value, what, "a table"))
    }

    fn array<'a>(&self, value: &'a Spanned<DeValue<'a>>, what: &str) -> Result<&'a [Spanned<DeValue<'a>>], StageError> {
        match value.get_ref().as_array() {
            Some(array) => Ok(array),
            None => Err(self.wrong(value, what, "an array")),
        }
    }

    fn text<'a>(&self, value: &'a Spanned<DeValue<'a>>, what: &str) -> Result<&'a str, StageError> {
        value.get_ref().as_str().ok_or_else(|| self.wrong(value, what, "text"))
    }

    fn texts(&self, value: Option<&&Spanned<DeValue>>, what: &str) -> Result<Vec<String>, StageError> {
        let Some(value) = value else { return Ok(Vec::new()) };
        self.each(self.array(value, what)?.iter().map(|item| self.text(item, what).map(str::to_string)))
    }

    fn pattern_of(&self, text: &str) -> Result<Pattern, String> {
        if self.is_bundled { Ok(Pattern::known(text)) } else { Pattern::new(text) }
    }

    pub(crate) fn whole(&self, value: &Spanned<DeValue>, what: &str) -> Result<i64, StageError> {
        let number = value.get_ref().as_integer().ok_or_else(|| self.wrong(value, what, "a whole number"))?;
        i64::from_str_radix(&number.as_str().replace('_', ""), number.radix())
            .map_err(|_| self.error(value.span(), format!("`{what}`: number out of range")))
    }

    pub(crate) fn name(&self, name: &str, span: Range<usize>) -> Result<String, StageError> {
        if is_stage_name(name) {
            return Ok(name.to_string());
        }
        let problem =
            format!("`{}` cannot be a name: 1 to {LONGEST_STAGE_NAME} letters, digits, `_`, `.`, `-`", text_of(name));
        Err(self.error(span, problem))
    }

    fn stage_called(&self, name: &str, span: Range<usize>) -> Result<String, StageError> {
        match name {
            START => {
                Err(self
                    .error(span, "`start` is the start of the launch, from which all times count; take another name"))
            }
            name => self.name(name, span),
        }
    }

    /// A pattern that every line matches shows nothing.
    fn tells_lines_apart(&self, pattern: &Pattern, span: Range<usize>) -> Result<(), StageError> {
        // Nothing in a bundled file's pattern is compiled before it is needed.
        if self.is_bundled || !pattern.matches_everything() {
            return Ok(());
        }
        Err(self.error(span, "`log`: every line matches this; for the first line take first_output = \"line\""))
    }

    fn required<'a, 'b>(
        &self,
        fields: &'b Fields<'a>,
        key: &str,
        of: Range<usize>,
    ) -> Result<&'b &'a Spanned<DeValue<'a>>, StageError> {
        fields.get(key).ok_or_else(|| self.error(of, format!("`{key}` is missing")))
    }

    fn stage_file<'a>(&mut self, table: &'a Spanned<DeTable<'a>>) -> Result<StageFile, StageError> {
        let keys = ["name", "about", "status", "argv", "until", "vars", "state", "stage"];
        let fields = self.fields(table.get_ref(), &keys)?;
        // Each is read whatever is wrong with the others, so that all mistakes are told at once.
        let name = self.required(&fields, "name", 0..0).and_then(|value| {
            let name = self.text(value, "name")?;
            self.name(name, value.span())
        });
        let name = self.kept(name).unwrap_or_default();
        let about = fields.get("about").map(|value| self.text(value, "about"));
        let about = about.and_then(|about| self.kept(about)).unwrap_or_default().to_string();
        let status = match fields.get("status").map(|value| (value, self.kept(self.text(value, "status")))) {
            None | Some((_, None)) => "unverified",
            Some((_, Some(status @ ("verified" | "unverified")))) => status,
            Some((value, Some(_))) => {
                self.note(self.error(value.span(), "`status`: expected \"verified\" or \"unverified\""));
                "unverified"
            }
        };
        let argv = self.kept(self.texts(fields.get("argv"), "argv")).unwrap_or_default();
        if let Some(value) = fields.get("argv").filter(|_| argv.iter().any(|phrase| phrase.trim().is_empty())) {
            self.note(self.error(value.span(), "`argv`: an empty phrase would fit every command"));
        }
        if let Some(value) = fields.get("vars") {
            // Where one of them is no variable, none is missed in the conditions.
            self.vars = self.kept(self.variables(value));
        }
        let state = self.kept(self.texts(fields.get("state"), "state")).unwrap_or_default();
        let stage = self.required(&fields, "stage", 0..0)?;
        let names = stage_names(stage);
        let stages = self.stages(stage, &names)?;
        let until = fields.get("until").and_then(|value| self.kept(self.stage_name(value, "until", &names)));
        let vars = self.vars.take().unwrap_or_default();
        Ok(StageFile { name, about, status: status.to_string(), argv, until, vars, state, stages })
    }

    fn variables(&self, value: &Spanned<DeValue>) -> Result<BTreeMap<String, Variable>, StageError> {
        let read = self.table(value, "vars")?.iter().map(|(key, value)| {
            let name = self.name(key.get_ref(), key.span())?;
            Ok((name.clone(), self.variable(value, &name)?))
        });
        Ok(self.each(read)?.into_iter().collect())
    }

    /// A value that names one of the stages.
    fn stage_name(&self, value: &Spanned<DeValue>, what: &str, names: &[&str]) -> Result<String, StageError> {
        let name = self.text(value, what)?;
        if names.contains(&name) {
            return Ok(name.to_string());
        }
        Err(self.error(value.span(), format!("`{what}`: there is no stage `{}`{}", text_of(name), hint(name, names))))
    }

    /// One `[[stage]]` without what it waits for; `None` where it has no name.
    fn stage<'a>(&self, stage: &'a Spanned<DeValue<'a>>) -> Result<Option<(Definition, Fields<'a>)>, StageError> {
        let fields = self.fields(self.table(stage, "stage")?, &["name", "begin", "when", "after"])?;
        let name = self.required(&fields, "name", stage.span()).and_then(|value| {
            let name = self.text(value, "name")?;
            self.stage_called(name, value.span())
        });
        let condition = |key: &str| fields.get(key).and_then(|value| self.kept(self.condition(value, key, 0)));
        let (begin, when) = (condition("begin"), condition("when"));
        if let (Some(value), None) = (fields.get("begin"), fields.get("when")) {
            self.note(self.error(value.span(), "`begin` without `when`: a span has an end too"));
        }
        Ok(self.kept(name).map(|name| (Definition { name, after: Vec::new(), begin, when }, fields)))
    }

    fn stages<'a>(&self, value: &'a Spanned<DeValue<'a>>, names: &[&str]) -> Result<Vec<Definition>, StageError> {
        let mut stages: Vec<Definition> = Vec::new();
        let mut orders = Vec::new();
        let mut conditions = 0;
        let Some(all) = value.get_ref().as_array() else {
            let found = value.get_ref().type_str();
            return Err(
                self.error(value.span(), format!("`stage`: expected `[[stage]]` before each stage, found {found}"))
            );
        };
        for stage in all {
            let Some((definition, fields)) = self.kept(self.stage(stage)).flatten() else { continue };
            if stages.iter().any(|other| other.name == definition.name) {
                let span = fields.get("name").map_or(stage.span(), |value| value.span());
                self.note(self.error(span, format!("stage `{}` is defined twice", definition.name)));
            }
            orders.push(fields.get("after").copied());
            stages.push(definition);
            conditions +=
                stages[stages.len() - 1].conditions().map(|condition| condition.leaves().len()).sum::<usize>();
            if stages.len() > MOST_STAGES || conditions > MOST_CONDITIONS {
                let problem =
                    format!("a stage file has at most {MOST_STAGES} stages, with {MOST_CONDITIONS} conditions in all");
                return Err(self.error(stage.span(), problem));
            }
        }
        if all.is_empty() {
            return Err(self.error(value.span(), "a stage file needs at least one `[[stage]]`"));
        }
        for (index, order) in orders.iter().enumerate() {
            if let Some(value) = order
                && let Some(items) = self.kept(self.array(value, "after"))
            {
                let after = items.iter().filter_map(|item| self.kept(self.stage_name(item, "after", names)));
                stages[index].after = after.collect();
            }
        }
        for (index, order) in orders.iter().enumerate() {
            if waits_for_itself(&stages, index) {
                let span = order.map(|value| value.span()).unwrap_or_default();
                // Of all that stand in the circle one is enough.
                return Err(self.error(span, format!("stage `{}` would wait for itself", stages[index].name)));
            }
        }
        Ok(stages)
    }

    /// `what` is the key that it stands at.
    fn condition<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        what: &str,
        depth: usize,
    ) -> Result<Condition, StageError> {
        if depth > DEEPEST {
            return Err(self.error(value.span(), format!("conditions are nested deeper than {DEEPEST}")));
        }
        let Some(table) = value.get_ref().as_table() else {
            // As it stands on a command line, it is known what was meant.
            let text = value.get_ref().as_str().and_then(|text| text.split_once(':'));
            let meant = text.filter(|(kind, _)| CONDITIONS.contains(kind) && !matches!(*kind, "all" | "any"));
            let example = match meant {
                Some((kind, argument)) if argument.len() <= 100 && !argument.contains('\'') => {
                    format!("{{ {kind} = '{}' }}", text_of(argument))
                }
                _ => "{ log = 'weights loaded' }".to_string(),
            };
            return Err(self.wrong(value, what, &format!("a table, as in {example}")));
        };
        let known: Vec<&str> = CONDITIONS.iter().copied().chain(["count", "stream"]).collect();
        let fields = self.fields(table, &known)?;
        let mut kinds = CONDITIONS.iter().filter(|kind| fields.contains_key(*kind));
        let (Some(kind), None) = (kinds.next(), kinds.next()) else {
            let problem =
                format!("a condition has exactly one of {}; join several with `all` or `any`", list(CONDITIONS));
            return Err(self.error(value.span(), problem));
        };
        let foreign = |key: &str| match key {
            "count" => (*kind != "log").then_some("a `log` condition"),
            "stream" => (!matches!(*kind, "log" | "first_output")).then_some("a `log` or `first_output` condition"),
            _ => None,
        };
        if let Some((key, of)) = table.iter().find_map(|(key, _)| Some((key, foreign(key.get_ref())?))) {
            return Err(self.error(key.span(), format!("`{}` belongs to {of}", key.get_ref())));
        }
        let stream = match fields.get("stream") {
            None => None,
            Some(value) => match self.text(value, "stream")? {
                "stdout" => Some(Stream::Stdout),
                "stderr" => Some(Stream::Stderr),
                _ => return Err(self.error(value.span(), "`stream`: expected \"stdout\" or \"stderr\"")),
            },
        };
        let value = fields[kind];
        if let Some((_, takes, example)) = FORMS.iter().find(|(of, takes, _)| of == kind && !is_of_form(value, takes)) {
            return Err(self.wrong(value, kind, &format!("{takes}, as in {example}")));
        }
        let at_value = |problem: String| self.error(value.span(), format!("`{kind}`: {problem}"));
        Ok(match *kind {
            "mapping" => Condition::Mapping(self.text(value, kind)?.parse().map_err(at_value)?),
            "log" => {
                let pattern = self.pattern_of(self.text(value, kind)?).map_err(at_value)?;
                let count = fields.get("count").map_or(Ok(Count::Number(1)), |value| self.count(value))?;
                if count == Count::Number(1) {
                    self.tells_lines_apart(&pattern, value.span())?;
                }
                Condition::Log(LogLine { pattern, count, stream })
            }
            "notify" => Condition::Notify(self.name(self.text(value, kind)?, value.span())?),
            "residency" => Condition::Residency(self.share(value, kind)?),
            "unmap" => Condition::Unmap(self.share(value, kind)?),
            "first_output" => Condition::FirstOutput(FirstOutput {
                what: self.text(value, kind)?.parse().map_err(at_value)?,
                stream: stream.unwrap_or(Stream::Stdout),
            }),
            "http" => Condition::Http(Box::new(self.http(value)?)),
            "tcp" => Condition::Tcp(self.tcp(value)?),
            "unix" => Condition::Unix(self.unix(value)?),
            "file" => Condition::File(self.file(value)?),
            "quiet" => Condition::Quiet(self.quiet(value)?),
            "device" => Condition::Device(self.device(value)?),
            "anon" => Condition::Anon(self.anon(value)?),
            "exit" => Condition::Exit(match value.get_ref() {
                DeValue::Integer(_) => self.whole(value, kind)?.to_string().parse().map_err(at_value)?,
                _ => self.text(value, kind)?.parse().map_err(at_value)?,
            }),
            all_or_any => {
                let parts = self.array(value, kind)?;
                if parts.is_empty() {
                    return Err(self.error(value.span(), format!("`{kind}` of nothing")));
                }
                let parts = self.each(parts.iter().map(|part| self.condition(part, all_or_any, depth + 1)))?;
                if all_or_any == "all" { Condition::All(parts) } else { Condition::Any(parts) }
            }
        })
    }
}

mod asked;

/// Whether a value is of a form of [`FORMS`].
fn is_of_form(value: &Spanned<DeValue>, takes: &str) -> bool {
    match value.get_ref() {
        DeValue::String(_) => takes.contains("text") || takes.contains("share"),
        DeValue::Integer(_) => takes.contains("status") || takes.contains("share"),
        DeValue::Float(_) => takes.contains("share"),
        DeValue::Table(_) => takes.contains("table"),
        DeValue::Array(_) => takes.contains("array"),
        DeValue::Boolean(_) | DeValue::Datetime(_) => false,
    }
}

/// The names that stand in a file's stages, good or not.
fn stage_names<'a>(stages: &'a Spanned<DeValue<'a>>) -> Vec<&'a str> {
    let tables = stages.get_ref().as_array().into_iter().flat_map(|stages| stages.iter());
    tables.filter_map(|stage| stage.get_ref().as_table()?.get("name")?.get_ref().as_str()).collect()
}

/// Whether following `after` from a stage leads back to it.
fn waits_for_itself(stages: &[Definition], index: usize) -> bool {
    let mut waiting: Vec<&str> = stages[index].after.iter().map(String::as_str).collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        if name == stages[index].name {
            return true;
        }
        if seen.insert(name) {
            let of = stages.iter().filter(|stage| stage.name == name);
            waiting.extend(of.flat_map(|stage| stage.after.iter().map(String::as_str)));
        }
    }
    false
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The known word that was probably meant, or all of them.
pub(crate) fn hint(word: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|known| (edit_distance(word, known), known)).min();
    match nearest {
        Some((distance, known)) if distance <= 1 + known.len() / 4 => format!("; did you mean `{known}`?"),
        _ => format!("; expected {}", list(known)),
    }
}

/// How many characters must be put in, taken out or changed (Levenshtein). Words are cut at 64 characters.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::stage::condition::{ExitIs, Mapped};

    /// A stage file around one stage's other lines.
    fn with(stage: &str) -> Result<StageFile, StageErrors> {
        StageFile::parse(&format!("name = \"t\"\n[[stage]]\nname = \"s\"\n{stage}\n"), "t.toml")
    }

    fn condition(when: &str) -> Condition {
        with(&format!("when = {when}")).unwrap().stages[0].when.clone().unwrap()
    }

    fn problem(text: &str) -> String {
        StageFile::parse(text, "t.toml").unwrap_err().to_string()
    }

    #[test]
    fn what_every_line_is_held_against_is_bounded() {
        let stages = |count| (0..count).map(|n| format!("[[stage]]\nname = \"s{n}\"\n")).collect::<String>();
        let chain = |count: usize| {
            let after = |n: usize| format!("[[stage]]\nname = \"s{n}\"\nafter = [\"s{}\"]\n", n - 1);
            format!("name = \"t\"\n[[stage]]\nname = \"s0\"\n{}", (1..count).map(after).collect::<String>())
        };
        assert_eq!(StageFile::parse(&chain(MOST_STAGES), "t.toml").unwrap().stages.len(), MOST_STAGES);
        let said = problem(&format!("name = \"t\"\n{}", stages(MOST_STAGES + 1)));
        assert!(said.starts_with("t.toml:514:1: a stage file has at most 256 stages"), "{said}");
        let parts = vec!["{ log = 'x' }"; MOST_CONDITIONS + 1].join(", ");
        let said = problem(&format!("name = \"t\"\n[[stage]]\nname = \"s\"\nwhen = {{ any = [ {parts} ] }}\n"));
        assert!(said.starts_with("t.toml:2:1: a stage file has at most"), "{said}");
    }

    #[test]
    fn the_embedded_files_are_good_and_generic_is_last() {
        let files = StageFile::embedded();
        assert_eq!(files.last().unwrap().name, "generic");
        for ((name, _), file) in EMBEDDED.iter().zip(&files) {
            assert_eq!(*name, file.name);
            assert!(!file.about.is_empty());
            assert_eq!(StageFile::load(name).unwrap(), *file);
            assert_eq!(StageFile::parse(StageFile::embedded_text(name).unwrap(), name).unwrap(), *file, "all compile");
            let again: StageFile = serde_json::from_str(&serde_json::to_string(file).unwrap()).unwrap();
            assert_eq!(again, *file);
            assert_eq!(again.digest(), file.digest());
        }
    }

    #[test]
    fn every_condition_is_read() {
        assert_eq!(condition("{ mapping = 'all' }"), Condition::Mapping(Mapped::All));
        assert_eq!(condition("{ residency = '99%' }"), condition("{ residency = 0.99 }"));
        assert_eq!(condition("{ residency = 1 }"), Condition::Residency("100%".parse().unwrap()));
        assert_eq!(condition("{ exit = 3 }"), Condition::Exit(ExitIs::Code(3)));
        assert_eq!(condition("{ exit = 'any' }"), Condition::Exit(ExitIs::Any));
        let Condition::Log(log) = condition("{ log = 'took (?<s>[0-9.]+) s', count = 2, stream = 'stderr' }") else {
            panic!("not a log condition");
        };
        assert_eq!((log.count, log.stream), (Count::Number(2), Some(Stream::Stderr)));
        let nested = condition("{ all = [ { any = [ { mapping = 'any' }, { log = 'x' } ] }, { exit = 0 } ] }");
        let Condition::All(parts) = nested else { panic!("not all") };
        assert!(matches!(&parts[0], Condition::Any(parts) if parts.len() == 2));
    }

    #[test]
    fn what_has_to_be_asked_is_read_with_every_default() {
        let text = r#"
name = "t"
vars = { port = { flag = ["--port", "-p"], env = "PORT", default = "8000" }, ranks = { flag = "--tp", default = "1" } }
[[stage]]
name = "answered"
[stage.when.http]
url = "http://127.0.0.1:{port}/v1/completions"
json = { prompt = "hi", max_tokens = 1, temperature = 0.0, stop = ["{port}"] }
headers = { X-Request = "stagemark {port}" }
status = [201, 200]
response_headers = { Content-Type = "json" }
body = '"text"'
exists = "/choices/0"
equals = { "/done" = true }
ca = "ca.pem"
timeout = "1 min"
poll = "50 ms"
[[stage]]
name = "span"
begin = { tcp = "localhost:{port}" }
when = { all = [ { unix = "@x" }, { file = { path = "a", matches = "b" } }, { first_output = "line", stream = "stderr" } ] }
[[stage]]
name = "rest"
when = { any = [ { unmap = 0.5 }, { quiet = "2 s" }, { device = { rise = "64 MiB", still = "200 ms" } },
                 { log = "x", count = "{ranks}" }, { anon = { rise = "50%", still = "200 ms" } },
                 { quiet = { time = "1s", of = "reads" } } ] }
"#;
        let file = StageFile::parse(text, "t.toml").unwrap();
        let Some(Condition::Http(http)) = &file.stages[0].when else { panic!("not http") };
        assert_eq!((http.method.as_str(), &http.accept.status[..]), ("POST", &[200, 201][..]));
        assert_eq!(
            (http.connect_timeout_ns, http.timeout_ns, http.poll_ns),
            (1_000_000_000, 60_000_000_000, 50_000_000)
        );
        assert_eq!(http.accept.headers.keys().collect::<Vec<_>>(), ["content-type"]);
        let normalised = serde_json::to_value(&file).unwrap();
        let body = &normalised["stage"][0]["when"]["http"]["body"]["json"];
        assert_eq!(body["temperature"], 0.0);
        assert_eq!(normalised["stage"][1]["begin"]["tcp"]["poll_ns"], 100_000_000);
        assert_eq!(normalised["stage"][2]["when"]["any"][1]["quiet"]["time_ns"], 2_000_000_000u64);
        let again: StageFile = serde_json::from_value(normalised).unwrap();
        assert_eq!(again, file);
        assert_eq!(again.digests(), file.digests());
        assert_eq!(file.stages[1].conditions().flat_map(Condition::leaves).count(), 4);
        let names: Vec<_> = file.stages[2].when.as_ref().unwrap().names().into_iter().collect();
        assert_eq!(names, ["ranks"]);
        let plain = condition("{ http = 'http://h/' }");
        assert_eq!(plain, condition("{ http = { url = 'http://h/', method = 'GET', status = 200, poll = '0.1 s' } }"));
        assert_ne!(plain.digest(), condition("{ http = 'http://h/x' }").digest());
    }

    #[test]
    fn a_workload_is_a_request_a_line() {
        let text = "{\"url\": \"http://127.0.0.1:{port}/a\", \"json\": {\"n\": null}, \"body\": \"x\", \"id\": \"long\"}\n\n\
                    {\"url\": \"http://127.0.0.1/b\", \"status\": [200, 204], \"equals\": {\"/a\": null}, \"timeout\": \"5 s\"}\n";
        let work = Work::parse(text, "w.jsonl", 3).unwrap();
        assert_eq!((work.requests, work.concurrency, work.file_digest.len()), (2, 3, 64));
        let names: Vec<&str> = work.each.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["long", "2"]);
        let (long, other) = (&work.each[0].1, &work.each[1].1);
        assert_eq!((long.method.as_str(), other.method.as_str(), other.timeout_ns), ("POST", "GET", 5_000_000_000));
        assert_eq!(other.accept.equals["/a"], serde_json::Value::Null);
        let mut file = StageFile::parse(WHOLE, "w").unwrap();
        file.add_work(work.clone());
        file.add_work(work);
        let stage = file.stages.last().unwrap();
        assert_eq!(
            (stage.name.as_str(), &stage.after[..]),
            ("representative_work", &["first_response".to_string()][..])
        );
        let names = stage.when.as_ref().unwrap().names();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["port"]);
        let again: StageFile = serde_json::from_str(&serde_json::to_string(&file).unwrap()).unwrap();
        assert_eq!(again.digest(), file.digest());
        for (text, wrong) in [
            ("", "w:1:1: no request"),
            ("{\"url\": \"http://h\"}\n{", "w:2:1: "),
            ("[]", "w:1:1: "),
            ("{\"url\": 1}", "`url`: expected text"),
            ("{\"url\": \"http://h\", \"stauts\": 1}", "did you mean `status`?"),
            ("{\"url\": \"http://h\", \"json\": 1, \"method\": \"GET\"}", "a request with a body"),
            ("{\"url\": \"http://h\", \"equals\": 1}", "`equals`: expected an object"),
            ("{\"url\": \"http://h\", \"id\": []}", "`id`: expected"),
        ] {
            let error = Work::parse(text, "w", 1).unwrap_err().to_string();
            assert!(error.contains(wrong), "{text:?} gave {error}");
        }
    }

    #[test]
    fn a_variable_is_found_in_its_spellings() {
        let port = Variable { flag: vec!["--port".into(), "-p".into()], env: vec![], default: "1".into() };
        let value = |line: &str| port.in_argv(&line.split(' ').map(str::to_string).collect::<Vec<_>>());
        assert_eq!(value("serve --port 80 x").as_deref(), Some("80"));
        assert_eq!(value("serve --port=81").as_deref(), Some("81"));
        assert_eq!(value("serve -p 82").as_deref(), Some("82"));
        assert_eq!(value("serve -p83").as_deref(), Some("83"));
        assert_eq!(value("serve -p=84").as_deref(), Some("84"));
        assert_eq!(value("serve -p/run/x").as_deref(), Some("/run/x"));
        assert_eq!(value("serve --port85"), None, "a long flag has a space or a sign");
        assert_eq!(value("serve -port 86"), None, "another flag");
        assert_eq!(value("serve -p 82 --port=83").as_deref(), Some("83"), "the last one counts");
        for none in ["serve", "serve --port", "serve --port --x", "serve --ports 1", "serve --port=", "--port 80"] {
            assert_eq!(value(none), None, "{none}");
        }
        let old: Variable = serde_json::from_str(r#"{"flag":"--port","default":"1"}"#).unwrap();
        assert_eq!(old.flag, ["--port"]);
        let with = |vars: &str| problem(&format!("name='t'\nvars = {{ v = {vars} }}\n[[stage]]\nname='s'"));
        assert!(with("{ default = '1' }").contains("needs a `flag` or an `env`"));
        assert!(with("{ env = 'HF_TOKEN', default = '' }").contains("sounds like a secret"));
        assert!(with("{ flag = '', default = '' }").contains("empty"));
    }

    #[test]
    fn errors_say_what_and_where() {
        let cases = [
            (
                "name = \"t\"\nuntill = \"s\"\n[[stage]]\nname = \"s\"",
                "t.toml:2:1: unknown key `untill`; did you mean `until`?",
            ),
            (
                "name = \"t\"\nuntil = \"z\"\n[[stage]]\nname = \"s\"",
                "t.toml:2:9: `until`: there is no stage `z`; did you mean `s`?",
            ),
            ("name = \"t\"\n[[stage]]\nname = \"a b\"", "t.toml:3:8: `a b` cannot be a name"),
            (
                "name = \"t\"\n[[stage]]\nname = \"s\"\n[[stage]]\nname = \"s\"",
                "t.toml:5:8: stage `s` is defined twice",
            ),
            ("name = \"t\"\n[[stage]]\nnome = \"s\"", "t.toml:3:1: unknown key `nome`; did you mean `name`?"),
            ("name = \"t\"\n", "`stage` is missing"),
            ("name = ", "t.toml:1:"),
            ("name = \"t\"\n[stage]\nname = \"s\"", "`stage`: expected `[[stage]]` before each stage, found table"),
            ("name = \"t\"\n[[stage]]\nname = \"start\"", "t.toml:3:8: `start` is the start of the launch"),
            (
                "name = \"t\"\nvars = { p = { flag = '-p', default = '0' } }\n[[stage]]\nname = \"s\"\nwhen = { tcp = 'h:{p}' }",
                "expected a port from 1 to 65535, found `0`",
            ),
            ("name = \"t\"\nargv = [\" \"]\n[[stage]]\nname = \"s\"", "t.toml:2:8: `argv`: an empty phrase"),
            ("name = \"t\"\nstatus = \"ok\"\n[[stage]]\nname = \"s\"", "t.toml:2:10: `status`"),
            (
                "name = \"t\"\nvars = { p = { flag = 3, default = \"\" } }\n[[stage]]\nname = \"s\"",
                "t.toml:2:23: `flag`: expected text",
            ),
        ];
        for (text, expected) in cases {
            assert!(problem(text).contains(expected), "{text:?} gave {}", problem(text));
        }
        let cases = [
            ("when = { http = { url = 'x' } }", "t.toml:4:25: `url`: expected http://… or https://…"),
            ("when = { http = { method = 'GET' } }", "`url` is missing"),
            ("when = { http = 'http://u:p@h/' }", "`url`: a password stands in no file"),
            (
                "when = { http = { url = 'http://h/x?max_tokens=1&api_key=abc' } }",
                "`url`: `api_key` sounds like a secret, which stands in no file: give it by --header-env",
            ),
            ("when = { http = 'http://h:{port}/' }", "`url`: there is no variable `port` in `vars`"),
            ("when = { http = 'http://h/ x' }", "`url`: white space"),
            ("when = { http = { url = 'http://h', method = 'get' } }", "`method`: unknown; expected `GET`"),
            ("when = { http = { url = 'http://h', method = 'GET', json = 1 } }", "`method`: a request with a body"),
            ("when = { http = { url = 'http://h', json = 1, body_file = 'x' } }", "either `json` or `body_file`"),
            ("when = { http = { url = 'http://h', json = 2020-01-01 } }", "JSON has no dates"),
            ("when = { http = { url = 'http://h', json = nan } }", "no number that JSON has"),
            ("when = { http = { url = 'http://h', headers = { Authorization = 'Bearer x' } } }", "--header-env"),
            ("when = { http = { url = 'http://h', headers = { 'a b' = 'x' } } }", "not the name of a header"),
            ("when = { http = { url = 'http://h', status = 99 } }", "`status`: expected 100 to 599"),
            ("when = { http = { url = 'http://h', status = [] } }", "`status`: none"),
            ("when = { http = { url = 'http://h', body = '(' } }", "`body`: "),
            ("when = { http = { url = 'http://h', exists = 'a' } }", "a JSON pointer begins with `/`"),
            ("when = { http = { url = 'http://h', equals = { a = 1 } } }", "a JSON pointer begins with `/`"),
            ("when = { http = { url = 'http://h', poll = '1 ms' } }", "`poll`: from 10 ms to 1 h"),
            ("when = { http = { url = 'http://h', timeout = 5 } }", "`timeout`: expected text"),
            ("when = { http = { url = 'http://h', tiemout = '5 s' } }", "did you mean `timeout`?"),
            ("when = { tcp = 1 }", "`tcp`: expected text or a table, as in tcp = \"127.0.0.1:8000\", found integer"),
            ("when = { quiet = 2 }", "`quiet`: expected text or a table, as in quiet = \"2 s\", found integer"),
            ("when = { all = { log = 'x' } }", "`all`: expected an array, as in all = ["),
            ("when = 'log:x'", "t.toml:4:8: `when`: expected a table, as in { log = 'x' }, found string"),
            ("when = 3", "`when`: expected a table, as in { log = 'weights loaded' }, found integer"),
            ("when = { any = [ 'tcp:h:1' ] }", "`any`: expected a table, as in { tcp = 'h:1' }, found string"),
            (
                "when = { log = '' }",
                "t.toml:4:16: `log`: every line matches this; for the first line take first_output",
            ),
            ("when = { log = 'a*' }", "every line matches this"),
            ("when = { notify = 'a b' }", "`a b` cannot be a name"),
            ("when = { tcp = 'localhost:0' }", "`tcp`: expected a port from 1 to 65535, found `0`"),
            ("when = { http = 'http://h:0/x' }", "`url`: expected a port from 1 to 65535, found `0`"),
            ("when = { http = 'http://[::1]:99999' }", "`url`: expected a port from 1 to 65535, found `99999`"),
            ("when = { http = 'http:///x' }", "`url`: no host in it"),
            ("after = 's'", "`after`: expected an array"),
            ("when = { tcp = 'localhost' }", "`tcp`: expected HOST:PORT"),
            ("when = { tcp = 'localhost:99999' }", "`tcp`: expected a port from 1 to 65535, found `99999`"),
            ("when = { unix = '' }", "`path` is empty"),
            ("when = { file = { path = 'x', matches = '(' } }", "`matches`: "),
            ("when = { first_output = 'word' }", "t.toml:4:25: `first_output`: expected \"byte\" or \"line\""),
            ("when = { unmap = '0%' }", "`unmap`: "),
            ("when = { quiet = '2' }", "`time`: expected a time"),
            ("when = { quiet = { time = '2 s', of = 'writes' } }", "`of`: expected"),
            ("when = { all = [ { device = {} } ] }", "t.toml:4:29: `rise` is missing"),
            ("when = { device = { rise = '64 MiB', still = '1 ms' } }", "`still`: from 10 ms"),
            ("when = { anon = { rise = '64 MiB', still = '1 s' } }", "`rise`: expected a share"),
            ("when = { anon = { rise = '50%' } }", "`still` is missing"),
            ("when = { device = { rise = '64 mb', still = '1 s' } }", "`rise`: expected a size"),
            ("when = { log = 'x', count = '{ranks}' }", "`count`: there is no variable `ranks`"),
            ("when = { log = 'x', count = 'two' }", "`count`: with the variables' defaults it is no number"),
            ("when = { maping = 'any' }", "unknown key `maping`; did you mean `mapping`?"),
            ("when = { mapping = 'some' }", "t.toml:4:20: `mapping`: expected \"any\" or \"all\""),
            ("when = { log = '(' }", "t.toml:4:16: `log`: "),
            ("when = { log = 'x', count = 0 }", "t.toml:4:29: `count`: expected at least 1"),
            ("when = { log = 'x', stream = 'out' }", "`stream`: expected"),
            ("when = { mapping = 'any', count = 2 }", "`count` belongs to a `log` condition"),
            (
                "when = { mapping = 'any', stream = 'stderr' }",
                "`stream` belongs to a `log` or `first_output` condition",
            ),
            ("when = { mapping = 'any', log = 'x' }", "exactly one of"),
            ("when = {}", "exactly one of"),
            ("when = { all = [] }", "`all` of nothing"),
            ("when = { residency = '0%' }", "`residency`: "),
            ("when = { residency = 1.5 }", "`residency`: "),
            ("when = { exit = 256 }", "`exit`: "),
            ("begin = { log = 'x' }", "`begin` without `when`"),
            ("after = ['s']", "stage `s` would wait for itself"),
            ("after = ['t']", "there is no stage `t`"),
        ];
        for (stage, expected) in cases {
            let error = with(stage).unwrap_err().to_string();
            assert!(error.contains(expected), "{stage:?} gave {error}");
        }
        let mut deep = "{ exit = 0 }".to_string();
        for _ in 0..DEEPEST + 1 {
            deep = format!("{{ all = [ {deep} ] }}");
        }
        assert!(with(&format!("when = {deep}")).unwrap_err().to_string().contains("nested deeper"));
    }

    #[test]
    fn all_mistakes_are_told_at_once_up_to_a_number() {
        let text = "name = 'a b'\nabuot = 'x'\n";
        assert!(problem(text).contains("unknown key `abuot`"));
        let text = "name = 't'\nstatus = 'ok'\nuntil = 'x'\n[vars]\np = { default = '1' }\n[[stage]]\nname = 'a'\n\
                    when = { quiet = 2 }\nafter = ['c', 'b']\n[[stage]]\nnmae = 'b'\n[[stage]]\nname = 'd'\n\
                    when = { all = [ { log = '(' }, { tcp = '{q}:1' }, { exit = 300 } ] }\n";
        let said = problem(text);
        let places: Vec<&str> = said.lines().map(|line| line.split_once(": ").unwrap().0).collect();
        let wanted =
            ["t.toml:2:10", "t.toml:3:9", "t.toml:5:5", "t.toml:8:18", "t.toml:9:10", "t.toml:9:15", "t.toml:11:1"];
        assert_eq!(places[..7], wanted, "{said}");
        // What a variable that is none would have been is not held against its use.
        assert_eq!(places[7..], ["t.toml:14:26", "t.toml:14:61"], "{said}");
        let many = (0..30).map(|n| format!("[[stage]]\nname = 's{n}'\nwhen = 1\n")).collect::<String>();
        let said = problem(&format!("name = 't'\n{many}"));
        assert_eq!((said.lines().count(), said.lines().last()), (21, Some("and 10 more")));
    }

    #[test]
    fn files_that_are_named_are_looked_at_where_that_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(at("body.json"), "{}").unwrap();
        let checked = |keys: &str, files| {
            let path = at("stages.toml");
            let text = format!(
                "name = 't'\nvars = {{ v = {{ flag = '-v', default = 'x' }} }}\n[[stage]]\nname = 's'\n\
                 when = {{ http = {{ url = 'http://h/', {keys} }} }}\n"
            );
            std::fs::write(&path, text).unwrap();
            StageFile::load_for(path.as_os_str(), "", files).map(|_| ()).map_err(|error| error.to_string())
        };
        let body = |name: &str| format!("body_file = '{}'", at(name).display());
        assert_eq!(checked(&body("body.json"), Files::Look), Ok(()));
        assert_eq!(checked(&body("{v}.json"), Files::Look), Ok(()), "which file it is depends on the launch");
        assert_eq!(checked(&body("none"), Files::Leave), Ok(()));
        assert!(checked(&body("none"), Files::Look).unwrap_err().contains("`body_file`: "));
        assert!(checked(&body("fifo"), Files::Look).unwrap_err().ends_with("fifo: no regular file"));
        assert!(checked(&format!("ca = '{}'", at("ca").display()), Files::Look).unwrap_err().contains("`ca`: "));
    }

    #[test]
    fn one_off_stages_have_names_of_their_own() {
        let all = |one_offs: &[&str]| each_once(&one_offs.iter().map(|text| text.to_string()).collect::<Vec<_>>());
        assert!(all(&["a=exit", "b=exit", "no name", "no name"]).is_ok(), "told of elsewhere");
        let said = all(&["a=log:x", "b=exit", "a=tcp:h:1"]).unwrap_err().to_string();
        assert_eq!(
            said,
            "--stage 'a=tcp:h:1':1:1: --stage 'a=log:x' names that stage too: one stage has one definition"
        );
    }

    #[test]
    fn a_circle_of_stages_is_refused() {
        let text = "name = 't'\n[[stage]]\nname = 'a'\nafter = ['b']\n[[stage]]\nname = 'b'\nafter = ['c']\n\
                    [[stage]]\nname = 'c'\nafter = ['a']\n";
        assert_eq!(problem(text), "t.toml:4:9: stage `a` would wait for itself");
    }

    #[test]
    fn the_digest_is_of_the_meaning_not_of_the_text() {
        let short = with("when = { log = 'x' }").unwrap();
        let long = StageFile::parse(
            "# a comment\nname = 't'\nabout = ''\nstatus = \"unverified\"\nargv = []\n[[stage]]\n\
             when = { log = \"x\", count = 1 }\nafter = []\nname = 's'",
            "other.toml",
        );
        assert_eq!(short.digest(), long.unwrap().digest());
        assert_eq!(short.digest().len(), 64);
        assert_ne!(short.digest(), with("when = { log = 'y' }").unwrap().digest());
        assert_ne!(short.digest(), with("when = { log = 'x', count = 2 }").unwrap().digest());
    }

    #[test]
    fn a_command_line_fits_by_words_in_a_row() {
        let file = StageFile::parse(
            "name = 't'\nargv = ['vllm serve', 'vllm.entrypoints.openai.api_server']\n[[stage]]\nname = 's'",
            "t",
        )
        .unwrap();
        let fits = |line: &str| file.fits(&line.split(' ').map(str::to_string).collect::<Vec<_>>());
        assert!(fits("vllm serve org/model"));
        assert!(fits("/usr/bin/python3 /usr/bin/vllm serve org/model"));
        assert!(fits("python -m vllm.entrypoints.openai.api_server --port 1"));
        assert!(!fits("vllm bench serve"));
        assert!(!fits("vllm"));
        assert!(!fits("myvllm serve"));
        assert!(!fits("serve vllm"));
        assert!(!file.fits(&[]));
        assert!(!StageFile::load("generic").unwrap().fits(&["anything".to_string()]));
    }

    #[test]
    fn one_offs_are_added_and_replace() {
        let mut file = StageFile::load("generic").unwrap();
        let before = file.stages.len();
        file.add_one_off("loaded=log:weights: (?<n>\\d+)=done").unwrap();
        assert_eq!(file.stages.len(), before + 1);
        let Some(Condition::Log(log)) = &file.stage("loaded").unwrap().when else { panic!("not a log condition") };
        assert_eq!(log.pattern.as_str(), "weights: (?<n>\\d+)=done");
        file.add_one_off("loaded=residency:50%").unwrap();
        assert_eq!(file.stages.len(), before + 1);
        assert_eq!(file.stage("loaded").unwrap().when, Some(Condition::Residency("50%".parse().unwrap())));
        let good = [
            "a=mapping",
            "a=mapping:all",
            "a=exit",
            "a=exit:3",
            "a=notify",
            "a=http:http://127.0.0.1:8000/health",
            "a=tcp:localhost:80",
            "a=tcp:[::1]:80",
            "a=unix:/run/x.sock",
            "a=unix:@abstract",
            "a=file:out/done",
            "a=first_output",
            "a=first_output:line",
            "a=unmap:50%",
            "a=quiet:1.5s",
        ];
        for good in good {
            file.add_one_off(good).unwrap();
        }
        let cases = [
            ("loaded", "--stage 'loaded':1:1: expected NAME=KIND:ARGUMENT"),
            ("a b=log:x", "--stage 'a b=log:x':1:1: `a b` cannot be a name"),
            ("a=lag:x", "--stage 'a=lag:x':1:3: unknown kind `lag`; did you mean `log`?"),
            ("a=log", "expected a regular expression"),
            ("a=log:(", "--stage 'a=log:(':1:7: "),
            ("a=log:", "every line matches this"),
            ("start=log:x", "`start` is the start"),
            ("a=residency", "expected a share"),
            ("a=residency:half", "--stage 'a=residency:half':1:13: "),
            ("a=mapping:some", "expected \"any\" or \"all\""),
            ("a=http:x", "--stage 'a=http:x':1:8: `url`: expected http://"),
            ("a=http:http://127.0.0.1:{port}/", "there is no variable `port`"),
            ("a=http", "expected an argument, as in 'NAME=http:http://"),
            ("a=tcp:x", "expected HOST:PORT"),
            ("a=file", "expected a path: NAME=file:PATH"),
            ("a=unix:", "`unix` is empty"),
            ("a=quiet:soon", "expected a time"),
            ("a=device:1", "stands in a stage file only"),
            ("a=notify:x", "`notify` has no argument"),
        ];
        for (text, expected) in cases {
            let error = file.add_one_off(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?} gave {error}");
        }
    }

    const WHOLE: &str = r#"
name = "vllm"
about = "vLLM V1, `vllm serve` or the api_server module"
status = "verified"
argv = ["vllm serve", "vllm.entrypoints.openai.api_server"]
until = "first_response"
vars = { port = { flag = "--port", default = "8000" } }
state = ["~/.cache/vllm", "env:TORCHINDUCTOR_CACHE_DIR"]

[[stage]]
name = "mapping_available"
when = { mapping = "any" }

[[stage]]
name = "module_populated"
after = ["mapping_available"]
when = { log = 'Loading weights took (?<reported_seconds>[0-9.]+) seconds', count = 1, stream = "stderr" }

[[stage]]
name = "first_response"
when = { any = [ { log = '200 OK' }, { residency = 0.999, }, { all = [ { exit = 0 }, { exit = "any" } ] } ] }

[[stage]]
name = "answered"
begin = { quiet = { time = "1 s", of = ["reads"] } }
when = { http = { url = "http://127.0.0.1:{port}/x", json = { a = [1, { b = 0.5 }] }, equals = { "/a" = 1 }, poll = "1 s" } }
"#;

    #[test]
    fn the_whole_form_is_read() {
        let file = StageFile::parse(WHOLE, "vllm.toml").unwrap();
        let port = Variable { flag: vec!["--port".into()], env: Vec::new(), default: "8000".into() };
        assert_eq!(file.vars["port"], port);
        assert_eq!(file.state.len(), 2);
        assert_eq!((file.until.as_deref(), file.status.as_str()), (Some("first_response"), "verified"));
        assert_eq!(file.stages[1].after, ["mapping_available"]);
        let normalised = serde_json::to_value(&file).unwrap();
        let when = &normalised["stage"][1]["when"]["log"];
        assert_eq!(when["pattern"], "Loading weights took (?<reported_seconds>[0-9.]+) seconds");
        assert_eq!((&when["count"], &when["stream"]), (&1.into(), &"stderr".into()));
        assert_eq!(normalised["stage"][0]["when"]["mapping"], "any");
        assert_eq!(normalised["stage"][2]["when"]["any"][1]["residency"], "99.9%");
    }

    proptest::proptest! {
        #[test]
        fn damaged_files_are_errors_not_panics(
            changes in proptest::collection::vec((0..WHOLE.len(), "[\"'\\[\\]{}=,.a\u{e4}\n#-]{0,4}", 0usize..9), 1..6),
        ) {
            let mut text = WHOLE.to_string();
            for (start, put, taken) in changes {
                let mut start = start.min(text.len());
                let mut end = (start + taken).min(text.len());
                while !text.is_char_boundary(start) { start -= 1; }
                while !text.is_char_boundary(end) { end += 1; }
                text.replace_range(start..end, &put);
            }
            if let Err(errors) = StageFile::parse(&text, "damaged.toml") {
                proptest::prop_assert!(!errors.0.is_empty());
                proptest::prop_assert!(errors.0.iter().all(|error| error.line <= text.matches('\n').count() + 1));
                proptest::prop_assert!(errors.0.iter().all(|error| !error.problem.is_empty()));
            }
            if let Ok(mut file) = StageFile::parse(WHOLE, "w") {
                let _ = file.add_one_off(&text);
            }
        }
    }

    #[test]
    fn a_missing_file_names_those_there_are() {
        let error = format!("{:#}", StageFile::load("no-such-stages").unwrap_err());
        assert!(error.contains("no-such-stages") && error.contains("generic"), "{error}");
    }
}
