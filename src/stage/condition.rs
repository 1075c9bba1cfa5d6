//! Conditions: when a stage is reached, as values that can be compared, written down and read again.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::asked::{FileIs, Http, Tcp, Template, Unix, Values, Work};
use crate::artifact::hexadecimal;
use crate::event::Stream;
use crate::units;

/// Largest compiled pattern, in bytes: a pattern is untrusted text, and `x{1000}{1000}` would take all memory.
const LARGEST_PATTERN: usize = 1 << 20;

/// When a stage is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Artifacts of the run have been mapped.
    Mapping(Mapped),
    /// A line was printed.
    Log(LogLine),
    /// A share of the payload is resident.
    Residency(Share),
    /// The launched command ended.
    Exit(ExitIs),
    /// A notification by this name came.
    Notify(String),
    /// A request was answered as it should be.
    Http(Box<Http>),
    /// Requests that stand for the work were all answered as they should be (`--workload`).
    Work(Work),
    /// A TCP connection was accepted.
    Tcp(Tcp),
    /// A connection to a Unix socket was accepted.
    Unix(Unix),
    /// A file is there, and says what it should.
    File(FileIs),
    /// The command printed something.
    FirstOutput(FirstOutput),
    /// The mapped extent has shrunk by this share of the largest that it was.
    Unmap(Share),
    /// Nothing was faulted in or read for a time: reached when that began.
    Quiet(Quiet),
    /// Device memory rose, and then stayed as it was: reached when it began to stay.
    Device(Plateau),
    /// Anonymous memory rose since an artifact was first opened, and then stayed: reached when it began to stay.
    Anon(Growth),
    /// Each of these holds: reached with the last of them.
    All(Vec<Condition>),
    /// One of these holds: reached with the first of them.
    Any(Vec<Condition>),
}

impl Condition {
    /// Whether a mapping may decide it.
    pub fn needs_mapping(&self) -> bool {
        match self {
            Condition::Mapping(_) | Condition::Unmap(_) => true,
            Condition::All(parts) | Condition::Any(parts) => parts.iter().any(Condition::needs_mapping),
            _ => false,
        }
    }

    /// The conditions that it is made of, itself where it has no parts.
    pub fn leaves(&self) -> Vec<&Condition> {
        match self {
            Condition::All(parts) | Condition::Any(parts) => parts.iter().flat_map(Condition::leaves).collect(),
            leaf => vec![leaf],
        }
    }

    /// Whether somebody has to ask: it is decided by [`crate::event::What::Probe`] events.
    pub fn is_asked(&self) -> bool {
        matches!(
            self,
            Condition::Http(_) | Condition::Work(_) | Condition::Tcp(_) | Condition::Unix(_) | Condition::File(_)
        )
    }

    /// The variables without which it cannot be decided.
    pub fn names(&self) -> BTreeSet<&str> {
        match self {
            Condition::Http(http) => http.names(),
            Condition::Work(work) => work.each.iter().flat_map(|(_, http)| http.names()).collect(),
            Condition::Tcp(tcp) => tcp.address.names(),
            Condition::Unix(unix) => unix.path.names(),
            Condition::File(file) => file.path.names(),
            Condition::Log(LogLine { count: Count::Of(count), .. }) => count.names(),
            Condition::All(parts) | Condition::Any(parts) => parts.iter().flat_map(Condition::names).collect(),
            _ => BTreeSet::new(),
        }
    }

    /// The same for people: each variable as its value, where that is known.
    pub fn shown(&self, values: &Values) -> Condition {
        let filled = |template: &Template| Template::new(template.fill_known(values));
        let parts = |parts: &[Condition]| parts.iter().map(|part| part.shown(values)).collect();
        match self {
            Condition::Http(http) => Condition::Http(Box::new(Http { url: filled(&http.url), ..(**http).clone() })),
            Condition::Tcp(tcp) => Condition::Tcp(Tcp { address: filled(&tcp.address), ..tcp.clone() }),
            Condition::Unix(unix) => Condition::Unix(Unix { path: filled(&unix.path), ..unix.clone() }),
            Condition::File(file) => Condition::File(FileIs { path: filled(&file.path), ..file.clone() }),
            Condition::Log(log) => {
                let count = log.count.number(values).map_or_else(|| log.count.clone(), Count::Number);
                Condition::Log(LogLine { count, ..log.clone() })
            }
            Condition::All(all) => Condition::All(parts(all)),
            Condition::Any(any) => Condition::Any(parts(any)),
            other => other.clone(),
        }
    }

    /// The first 16 digits of the SHA-256 of its normalised form: what an attempt is recorded under.
    pub fn digest(&self) -> String {
        let mut digest = digest_of(self);
        digest.truncate(16);
        digest
    }
}

/// SHA-256 of the JSON form, in hexadecimal.
pub(super) fn digest_of(value: &impl Serialize) -> String {
    let normalised = serde_json::to_vec(value).expect("names, numbers and text always serialise");
    hexadecimal(&Sha256::digest(&normalised))
}

impl Condition {
    /// What of it lines alone can show: the rest is left out of an `all` or `any`, as if it held, or
    /// never would. `None` where nothing is left.
    pub fn by_output(&self) -> Option<Condition> {
        let parts = |parts: &[Condition], joined: fn(Vec<Condition>) -> Condition| {
            let mut kept: Vec<Condition> = parts.iter().filter_map(Condition::by_output).collect();
            match kept.len() {
                0 | 1 => kept.pop(),
                _ => Some(joined(kept)),
            }
        };
        match self {
            Condition::Log(_) => Some(self.clone()),
            Condition::All(all) => parts(all, Condition::All),
            Condition::Any(any) => parts(any, Condition::Any),
            _ => None,
        }
    }
}

/// Which artifacts must have been mapped at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapped {
    /// A first one.
    Any,
    /// Every one that is in the set by then. Where the set is not known before the launch but discovered in it, this
    /// holds as soon as what was discovered so far is mapped.
    All,
}

/// A line by its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub pattern: Pattern,
    /// The how-manieth matching line it is.
    pub count: Count,
    /// On this stream alone. Where both streams are one and the same file, lines of either count.
    pub stream: Option<Stream>,
}

/// A number of times, at least 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Count {
    Number(u64),
    /// Taken from the command line, as `{ranks}`.
    Of(Template),
}

/// A first sign on an output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstOutput {
    pub what: FirstIs,
    /// Where both streams are one and the same file, output of either counts.
    pub stream: Stream,
}

/// How much must have been printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstIs {
    Byte,
    /// A line with something in it.
    Line,
}

/// A time in which nothing came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    pub time_ns: u64,
    /// No page faults of either kind.
    pub faults: bool,
    /// No bytes from storage.
    pub reads: bool,
}

/// A rise of device memory, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plateau {
    /// Over what there was when it was first looked at.
    pub rise_bytes: u64,
    pub still_ns: u64,
}

/// A rise of anonymous memory, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// As a share of the payload, over what there was when an artifact was first opened.
    pub rise: Share,
    pub still_ns: u64,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitIs {
    /// In whatever way.
    Any,
    /// By itself, with this status.
    Code(u8),
}

/// A regular expression over bytes, not anchored.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    regex: OnceLock<Regex>,
}

/// A share of the payload: more than 0, at most all, in exact parts of a thousand million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(u32);

impl Pattern {
    /// Compiles a pattern. The error is a sentence of one line.
    pub fn new(text: &str) -> Result<Pattern, String> {
        let regex = compiled(text).map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => format!("the pattern is too large: over {limit} bytes compiled"),
            // The crate draws the pattern over several lines; its last one says what is wrong.
            error => error.to_string().lines().last().unwrap_or("not a pattern").trim().replace("error: ", ""),
        })?;
        Ok(Pattern { text: text.to_owned(), regex: OnceLock::from(regex) })
    }

    /// A pattern that is known to be good, compiled when it is first needed: the bundled stage files have a hundred, and a
    /// launch follows one file.
    pub(super) fn known(text: &str) -> Pattern {
        Pattern { text: text.to_owned(), regex: OnceLock::new() }
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches a line whatever is in it.
    pub fn matches_everything(&self) -> bool {
        self.regex().is_match(b"") && self.regex().is_match(b"\x01")
    }

    /// The compiled pattern.
    pub fn regex(&self) -> &Regex {
        self.regex.get_or_init(|| compiled(&self.text).expect("a unit test compiles those of each bundled file"))
    }
}

fn compiled(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(LARGEST_PATTERN).build()
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.as_str())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        Pattern::new(&text)
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.as_str().to_string()
    }
}

impl Share {
    const WHOLE: u32 = 1_000_000_000;

    /// Whether `part` is at least this share of `whole`, exactly. Never of a `whole` of 0.
    pub fn is_reached(self, part: u64, whole: u64) -> bool {
        whole > 0 && u128::from(part) * u128::from(Share::WHOLE) >= u128::from(self.0) * u128::from(whole)
    }
}

impl FromStr for Share {
    type Err = String;

    /// From `"99%"`, `"99.5%"`, or a decimal number up to 1 (`"0.995"`); nine decimals of the number at most.
    fn from_str(text: &str) -> Result<Share, String> {
        let wrong = || "expected a share of the payload, as \"99%\" or a number over 0 and up to 1".to_string();
        let (number, decimals) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 7),
            None => (text, 9),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 3 || fraction.len() > decimals || !digits(whole) || !digits(fraction) {
            return Err(wrong());
        }
        let parts: u64 = format!("{whole}{fraction:0<decimals$}").parse().map_err(|_| wrong())?;
        match u32::try_from(parts) {
            Ok(parts @ 1..=Share::WHOLE) => Ok(Share(parts)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:07}", self.0 / 10_000_000, self.0 % 10_000_000);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Share, String> {
        text.parse()
    }
}

impl From<Share> for String {
    fn from(share: Share) -> String {
        share.to_string()
    }
}

impl Count {
    /// The number, with these values; `None` where it is none.
    pub fn number(&self, values: &Values) -> Option<u64> {
        match self {
            Count::Number(number) => Some(*number),
            Count::Of(text) => text.fill(values).ok()?.parse().ok().filter(|number| *number > 0),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Number(number) => write!(f, "{number}"),
            Count::Of(text) => f.write_str(text.as_str()),
        }
    }
}

impl FromStr for FirstIs {
    type Err = String;

    fn from_str(text: &str) -> Result<FirstIs, String> {
        match text {
            "byte" => Ok(FirstIs::Byte),
            "line" => Ok(FirstIs::Line),
            _ => Err("expected \"byte\" or \"line\"".to_string()),
        }
    }
}

impl FromStr for Mapped {
    type Err = String;

    fn from_str(text: &str) -> Result<Mapped, String> {
        match text {
            "any" => Ok(Mapped::Any),
            "all" => Ok(Mapped::All),
            _ => Err("expected \"any\" or \"all\"".to_string()),
        }
    }
}

impl FromStr for ExitIs {
    type Err = String;

    fn from_str(text: &str) -> Result<ExitIs, String> {
        match text {
            "any" => Ok(ExitIs::Any),
            code => {
                code.parse().map(ExitIs::Code).map_err(|_| "expected \"any\" or a status from 0 to 255".to_string())
            }
        }
    }
}

impl ExitIs {
    /// Whether an end with this status is meant.
    pub fn is(self, code: Option<i32>) -> bool {
        match self {
            ExitIs::Any => true,
            ExitIs::Code(expected) => code == Some(i32::from(expected)),
        }
    }
}

impl LogLine {
    /// Whether a line of this stream can be meant.
    pub fn is_on(&self, stream: Stream) -> bool {
        stream == Stream::Both || self.stream.is_none_or(|expected| expected == stream)
    }
}

impl Quiet {
    /// What must not come, in words.
    pub fn of(self) -> &'static str {
        match (self.faults, self.reads) {
            (true, false) => "new faults",
            (false, true) => "new reads",
            _ => "new faults and reads",
        }
    }
}

/// A time for people: exact, in the largest unit that leaves no fraction.
fn span(ns: u64) -> String {
    let unit =
        [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")].into_iter().find(|(size, _)| ns.is_multiple_of(*size));
    let (size, name) = unit.unwrap_or((1, "ns"));
    format!("{} {name}", ns / size)
}

impl fmt::Display for Condition {
    /// In words, after "until" or "without".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = |f: &mut fmt::Formatter<'_>, word: &str, parts: &[Condition]| {
            parts.iter().enumerate().try_for_each(|(index, part)| {
                if index > 0 {
                    write!(f, " {word} ")?;
                }
                match part {
                    Condition::All(_) | Condition::Any(_) => write!(f, "({part})"),
                    _ => write!(f, "{part}"),
                }
            })
        };
        match self {
            Condition::Mapping(Mapped::Any) => write!(f, "an artifact mapped"),
            Condition::Mapping(Mapped::All) => write!(f, "every artifact mapped"),
            Condition::Log(line) => {
                match &line.count {
                    Count::Number(1) => write!(f, "a line matching {:?}", line.pattern)?,
                    count => write!(f, "{count} lines matching {:?}", line.pattern)?,
                }
                match line.stream {
                    Some(Stream::Stdout) => write!(f, " on standard output"),
                    Some(Stream::Stderr) => write!(f, " on standard error"),
                    Some(Stream::Both) | None => Ok(()),
                }
            }
            Condition::Residency(share) => write!(f, "{share} of the payload resident"),
            Condition::Exit(ExitIs::Any) => write!(f, "the end of the command"),
            Condition::Exit(ExitIs::Code(code)) => write!(f, "the command's exit with status {code}"),
            Condition::Notify(name) => write!(f, "a notification `{name}`"),
            Condition::Http(http) => http.fmt(f),
            Condition::Work(work) => work.fmt(f),
            Condition::Tcp(tcp) => tcp.fmt(f),
            Condition::Unix(unix) => unix.fmt(f),
            Condition::File(file) => file.fmt(f),
            Condition::FirstOutput(FirstOutput { what, stream }) => {
                let what = match what {
                    FirstIs::Byte => "output",
                    FirstIs::Line => "a line",
                };
                match stream {
                    Stream::Stderr => write!(f, "{what} on standard error"),
                    Stream::Stdout | Stream::Both => write!(f, "{what} on standard output"),
                }
            }
            Condition::Unmap(share) => write!(f, "{share} of the mapped extent unmapped"),
            Condition::Quiet(quiet) => write!(f, "no {} for {}", quiet.of(), span(quiet.time_ns)),
            Condition::Device(Plateau { rise_bytes, still_ns }) => {
                write!(f, "device memory up by {} and then still for {}", units::bytes(*rise_bytes), span(*still_ns))
            }
            Condition::Anon(Growth { rise, still_ns }) => {
                let still = span(*still_ns);
                write!(f, "anonymous memory up by {rise} of the payload and then still for {still}")
            }
            Condition::All(conditions) => parts(f, "and", conditions),
            Condition::Any(conditions) => parts(f, "or", conditions),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact() {
        let share = |text: &str| text.parse::<Share>();
        assert_eq!(share("99%"), share("0.99"));
        assert_eq!(share("100%"), share("1"));
        assert_eq!(share("99.5%").unwrap().to_string(), "99.5%");
        assert_eq!(share("0.000000001").unwrap().to_string(), "0.0000001%");
        for wrong in ["", "0", "0%", "1.1", "101%", "-1", "1e-3", "nan", "50", "0.0000000001", "%", "+1", ".5"] {
            assert!(share(wrong).is_err(), "{wrong:?} was taken");
        }
        // One byte less than the share is not the share, at any size.
        let third = share("33.3333333%").unwrap();
        assert!(!third.is_reached(333_333_332, 1_000_000_000) && third.is_reached(333_333_333, 1_000_000_000));
        let whole = share("100%").unwrap();
        assert!(whole.is_reached(u64::MAX, u64::MAX) && !whole.is_reached(u64::MAX - 1, u64::MAX));
        assert!(!whole.is_reached(0, 0));
    }

    #[test]
    fn patterns_are_bounded_and_match_bytes() {
        assert!(Pattern::new("x{1000}{1000}").unwrap_err().contains("too large"));
        assert!(!Pattern::new("(").unwrap_err().contains('\n'));
        assert!(Pattern::new("loaded (?<n>[0-9]+)").unwrap().regex().is_match(b"\xff\xfe loaded 12 \xff"));
    }

    #[test]
    fn conditions_read_as_words() {
        let log =
            |stream| Condition::Log(LogLine { pattern: Pattern::new("a b").unwrap(), count: Count::Number(1), stream });
        let any = Condition::Any(vec![Condition::Mapping(Mapped::Any), log(Some(Stream::Stderr))]);
        let all = Condition::All(vec![any, Condition::Exit(ExitIs::Code(0))]);
        assert_eq!(
            all.to_string(),
            "(an artifact mapped or a line matching /a b/ on standard error) and the command's exit with status 0"
        );
    }
}
