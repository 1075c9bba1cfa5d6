//! Conditions: when a stage is reached, as values that can be compared, written down and read again.

use std::fmt;
use std::str::FromStr;

use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::event::Stream;

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
    /// Each of these holds: reached with the last of them.
    All(Vec<Condition>),
    /// One of these holds: reached with the first of them.
    Any(Vec<Condition>),
}

impl Condition {
    /// Whether a mapping may decide it.
    pub fn needs_mapping(&self) -> bool {
        match self {
            Condition::Mapping(_) => true,
            Condition::All(parts) | Condition::Any(parts) => parts.iter().any(Condition::needs_mapping),
            Condition::Log(_) | Condition::Residency(_) | Condition::Exit(_) => false,
        }
    }
}

impl Condition {
    /// What of it the command's output alone can show: the rest is left out of an `all` or `any`, as if it held, or
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
            Condition::Mapping(_) | Condition::Residency(_) | Condition::Exit(_) => None,
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
    pub count: u64,
    /// On this stream alone. Where both streams are one and the same file, lines of either count.
    pub stream: Option<Stream>,
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
pub struct Pattern(Regex);

/// A share of the payload: more than 0, at most all, in exact parts of a thousand million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(u32);

impl Pattern {
    /// Compiles a pattern. The error is a sentence of one line.
    pub fn new(text: &str) -> Result<Pattern, String> {
        RegexBuilder::new(text).size_limit(LARGEST_PATTERN).build().map(Pattern).map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => format!("the pattern is too large: over {limit} bytes compiled"),
            // The crate draws the pattern over several lines; its last one says what is wrong.
            error => error.to_string().lines().last().unwrap_or("not a pattern").trim().replace("error: ", ""),
        })
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The compiled pattern.
    pub fn regex(&self) -> &Regex {
        &self.0
    }
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
                match line.count {
                    1 => write!(f, "a line matching {:?}", line.pattern)?,
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
        let log = |stream| Condition::Log(LogLine { pattern: Pattern::new("a b").unwrap(), count: 1, stream });
        let any = Condition::Any(vec![Condition::Mapping(Mapped::Any), log(Some(Stream::Stderr))]);
        let all = Condition::All(vec![any, Condition::Exit(ExitIs::Code(0))]);
        assert_eq!(
            all.to_string(),
            "(an artifact mapped or a line matching /a b/ on standard error) and the command's exit with status 0"
        );
    }
}
