//! What a stage file would have matched in output that was saved: the matcher that is used live, fed with lines alone.
//!
//! Only what lines can show is tried. The other parts of a condition are taken to hold beside it, stages that no line
//! can show are told as such, and nobody waits for them. Memory is bounded whatever is fed: of a long line its beginning
//! is kept, as live.

use std::collections::BTreeMap;
use std::io::Read;

use super::condition::Condition;
use super::file::{Definition, StageFile};
use super::matcher::Matcher;
use crate::clock::At;
use crate::event::{Event, Stream, What};
use crate::run::rows;
use crate::watch::Line;
use crate::watch::log::{LONGEST_LINE, SavedOutput};

/// Bytes that one read asks for.
const READ: usize = 64 * 1024;

/// A line of `output.log` is a line and what stands before it: two numbers and two words.
const LONGEST_ROW: usize = LONGEST_LINE + 256;

/// Times of lines that are remembered, for those that count only when a later one has come.
const KEPT_TIMES: usize = 100_000;

/// A line that met a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Counted from 1 by `\n`, as editors do: a progress bar that is drawn over with `\r` is one line.
    pub line: u64,
    /// When it was printed, where the log says.
    pub at: Option<At>,
    /// Its text as a mark's detail has it.
    pub text: String,
}

/// What became of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Reached with this line, as far as lines decide; `with` are the lines that were needed before it.
    Matched { by: Hit, with: Vec<Hit> },
    /// Not by these lines alone.
    Partly(Vec<Hit>),
    /// No line, though one could.
    Missed,
    /// A line cannot show it.
    NotByOutput,
}

/// One stage of the file, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    pub stage: String,
    /// With the variables' values in it. `None`: by notification alone.
    pub when: Option<Condition>,
    /// Whether lines decide all of `when`.
    pub whole: bool,
    /// Stages that a line must come after, of those that lines can show.
    pub after: Vec<String>,
    pub found: Found,
}

/// How the log is written.
enum Form {
    /// Its first line, as far as it was read.
    Unknown(Vec<u8>),
    /// As the command printed it.
    Plain(Box<SavedOutput>),
    /// As a run folder keeps it; the line that has no end yet.
    Kept(Vec<u8>),
}

/// Why a log was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file begins as a run folder's output and does not go on as such.
    #[error("line {line}: {problem}")]
    Row { line: u64, problem: String },
}

/// A stage file that is tried on a log.
pub struct Trial {
    stages: StageFile,
    form: Form,
    /// Lines that have ended.
    ended: u64,
    feed: Feed,
}

/// The matcher, and what it has found.
struct Feed {
    matcher: Matcher,
    conditions: Vec<Condition>,
    hits: Vec<(String, Hit)>,
    marks: BTreeMap<String, u64>,
    times: BTreeMap<u64, At>,
}

impl Trial {
    /// With the stages of this file, its variables taken from this command line; from none where it does not fit, so that
    /// they have their defaults.
    pub fn new(stages: StageFile, argv: &[String]) -> Trial {
        let by_output = |stage: &Definition| stage.when.as_ref().and_then(Condition::by_output);
        let shown: Vec<Definition> = stages
            .stages
            .iter()
            .filter_map(|stage| {
                let begin = stage.begin.as_ref().and_then(Condition::by_output);
                Some(Definition { when: Some(by_output(stage)?), begin, ..stage.clone() })
            })
            .collect();
        let names: Vec<String> = shown.iter().map(|stage| stage.name.clone()).collect();
        let mut followed = StageFile { stages: shown, ..stages.clone() };
        for stage in &mut followed.stages {
            stage.after.retain(|name| names.contains(name));
        }
        let conditions = followed.stages.iter().filter_map(|stage| stage.when.clone()).collect();
        let argv = match stages.argv.first().filter(|_| !stages.fits(argv)) {
            Some(phrase) => phrase.split_whitespace().map(str::to_string).collect(),
            None => argv.to_vec(),
        };
        let mut matcher = Matcher::new(vec![followed]);
        matcher.event(&Event { at: At(0), uncertainty_ns: Some(0), what: What::Exec { pid: 1, argv } });
        let feed = Feed { matcher, conditions, hits: Vec::new(), marks: BTreeMap::new(), times: BTreeMap::new() };
        Trial { stages, form: Form::Unknown(Vec::new()), ended: 0, feed }
    }

    /// A log to its end: plain text, or the `output.log` of a run folder.
    ///
    /// # Errors
    /// The log cannot be read, or begins as `output.log` and is none.
    pub fn read(&mut self, mut log: impl Read) -> Result<(), TrialError> {
        let mut buffer = vec![0; READ];
        loop {
            let length = match log.read(&mut buffer) {
                Ok(0) => return self.finish(),
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            for piece in buffer[..length].split_inclusive(|&byte| byte == b'\n') {
                self.push(piece)?;
            }
        }
    }

    /// A line that is known as such, with the number that it is to be told by.
    pub fn line(&mut self, number: u64, line: &Line) {
        self.feed.line(number, None, line);
        self.ended = self.ended.max(number);
    }

    /// How many lines the log has.
    pub fn lines(&self) -> u64 {
        self.ended
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), TrialError> {
        let number = self.ended + 1;
        let ends = piece.ends_with(b"\n");
        match &mut self.form {
            Form::Unknown(first) => {
                let (now, rest) = piece.split_at(piece.len().min(LONGEST_ROW - first.len()));
                first.extend_from_slice(now);
                if !ends && first.len() < LONGEST_ROW {
                    return Ok(());
                }
                self.begin(ends && rest.is_empty())?;
                // A line of a run folder is not as long: the rest goes on as text.
                return if rest.is_empty() { Ok(()) } else { self.push(rest) };
            }
            Form::Plain(output) => output.push(number, piece, &mut |number, line| self.feed.line(number, None, &line)),
            Form::Kept(row) => {
                row.extend_from_slice(&piece[..piece.len().min(LONGEST_ROW - row.len())]);
                if ends {
                    let row = std::mem::take(row);
                    self.row(&row)?;
                }
            }
        }
        self.ended += u64::from(ends);
        Ok(())
    }

    /// The first line tells how the log is written.
    fn begin(&mut self, ends: bool) -> Result<(), TrialError> {
        let Form::Unknown(first) = &mut self.form else { return Ok(()) };
        let first = std::mem::take(first);
        if ends && rows::logged_line(trimmed(&first)).is_ok() {
            self.form = Form::Kept(Vec::new());
            self.row(&first)?;
        } else {
            let mut output = Box::new(SavedOutput::new(Stream::Both));
            output.push(1, &first, &mut |number, line| self.feed.line(number, None, &line));
            self.form = Form::Plain(output);
        }
        self.ended += u64::from(ends);
        Ok(())
    }

    fn row(&mut self, row: &[u8]) -> Result<(), TrialError> {
        let number = self.ended + 1;
        let logged = rows::logged_line(trimmed(row)).map_err(|problem| TrialError::Row { line: number, problem })?;
        self.feed.line(number, Some(logged.at), &logged.line);
        Ok(())
    }

    /// What has no end yet ends here. A torn last line of a run folder's output is none.
    fn finish(&mut self) -> Result<(), TrialError> {
        if matches!(&self.form, Form::Unknown(first) if !first.is_empty()) {
            self.begin(false)?;
        }
        if let Form::Plain(output) = &mut self.form {
            let number = self.ended + 1;
            output.finish(number, &mut |at, line| {
                self.ended = self.ended.max(at);
                self.feed.line(at, None, &line);
            });
        }
        self.form = Form::Unknown(Vec::new());
        Ok(())
    }

    /// What became of each stage, in the file's order.
    pub fn found(&self) -> Vec<Tried> {
        let (followed, values) = (self.feed.matcher.stages(), self.feed.matcher.values());
        let tried = self.stages.stages.iter().map(|stage| {
            let shown = followed.stage(&stage.name);
            let hits: Vec<Hit> =
                self.feed.hits.iter().filter(|(name, _)| *name == stage.name).map(|(_, hit)| hit.clone()).collect();
            let found = match (shown, self.feed.marks.get(&stage.name)) {
                (None, _) => Found::NotByOutput,
                (Some(_), Some(line)) => {
                    // Where it waited for another stage, the line that it was reached with is that one's.
                    let by = hits.iter().rposition(|hit| hit.line == *line).or(hits.len().checked_sub(1));
                    match by {
                        Some(by) => Found::Matched { by: hits[by].clone(), with: without(hits, by) },
                        None => Found::Missed,
                    }
                }
                (Some(_), None) if hits.is_empty() => Found::Missed,
                (Some(_), None) => Found::Partly(hits),
            };
            Tried {
                stage: stage.name.clone(),
                when: stage.when.as_ref().map(|when| when.shown(values)),
                whole: shown.is_some_and(|shown| shown.when == stage.when),
                after: shown.map(|shown| shown.after.clone()).unwrap_or_default(),
                found,
            }
        });
        tried.collect()
    }
}

impl Feed {
    /// The matcher is told the line's number as its time: lines are in their order whatever their times are.
    fn line(&mut self, number: u64, at: Option<At>, line: &Line) {
        if let Some(at) = at
            && self.conditions.iter().any(|condition| may_match(condition, line))
        {
            self.times.insert(number, at);
            if self.times.len() > KEPT_TIMES {
                self.times.pop_first();
            }
        }
        let moment = At(i64::try_from(number).unwrap_or(i64::MAX));
        for Event { at, what, .. } in self.matcher.line(moment, Some(0), line) {
            let line = at.0.unsigned_abs();
            match what {
                What::LogMatch { stage, line: text, .. } => {
                    self.hits.push((stage, Hit { line, at: self.times.get(&line).copied(), text }));
                }
                What::Mark(mark) => {
                    self.marks.entry(mark.stage).or_insert(line);
                }
                _ => {}
            }
        }
    }
}

fn without(mut hits: Vec<Hit>, index: usize) -> Vec<Hit> {
    hits.remove(index);
    hits
}

fn may_match(condition: &Condition, line: &Line) -> bool {
    match condition {
        Condition::Log(log) => log.is_on(line.stream) && log.pattern.regex().is_match(&line.bytes),
        Condition::All(parts) | Condition::Any(parts) => parts.iter().any(|part| may_match(part, line)),
        _ => false,
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Gives so many bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let (now, rest) = self.0.split_at(self.0.len().min(self.1).min(buffer.len()));
            buffer[..now.len()].copy_from_slice(now);
            self.0 = rest;
            Ok(now.len())
        }
    }

    fn tried(log: &[u8], step: usize) -> (u64, Vec<Tried>) {
        let file = "name = 't'\n[[stage]]\nname = 'a'\nwhen = { log = 'a$' }\n[[stage]]\nname = 'b'\nafter = ['a']\n\
                    when = { any = [ { log = '^b', stream = 'stderr' }, { exit = 0 } ] }\n";
        let mut trial = Trial::new(StageFile::parse(file, "t").unwrap(), &[]);
        trial.read(Slow(log, step)).unwrap();
        (trial.lines(), trial.found())
    }

    #[test]
    fn a_log_reads_the_same_in_whatever_pieces() {
        let long = [&b"x".repeat(LONGEST_ROW + 7)[..], b"a\nb\na\rb\r\n\nb"].concat();
        let kept = b"5\t\tstdout\tnewline\ta\n6\t1\tstderr\treturn\tb\n7\t\tstderr\tcut\ta";
        for (log, lines) in
            [(&long[..], 5), (kept, 2), (b"", 0), (b"a", 1), (b"\r\r", 1), (b"1\t\tstdout\tnewline\ta", 1)]
        {
            let whole = tried(log, usize::MAX);
            assert_eq!(whole.0, lines, "{}", log.escape_ascii());
            for step in [1, 2, 3, 1000] {
                assert_eq!(tried(log, step), whole, "{} in steps of {step}", log.escape_ascii());
            }
        }
        let by = |log: &[u8]| tried(log, 3).1.into_iter().map(|tried| (tried.found, tried.whole)).collect::<Vec<_>>();
        let hit = |line, at: Option<i64>, text: &str| Hit { line, at: at.map(At), text: text.into() };
        let matched = |by| Found::Matched { by, with: Vec::new() };
        assert_eq!(by(kept), [(matched(hit(1, Some(5), "a")), true), (matched(hit(2, Some(6), "b")), false)]);
        // What is behind the longest line that is kept is passed over, as live.
        assert_eq!(by(&long), [(matched(hit(3, None, "a")), true), (matched(hit(3, None, "b")), false)]);
    }

    #[test]
    fn what_no_line_shows_is_waited_for_by_nobody() {
        let file = "name = 't'\n[[stage]]\nname = 'm'\nwhen = { mapping = 'any' }\n[[stage]]\nname = 'n'\n[[stage]]\nname = 'a'\n\
                    after = ['m', 'n']\nwhen = { log = 'a' }\n";
        let mut trial = Trial::new(StageFile::parse(file, "t").unwrap(), &[]);
        trial.read(&b"a\n"[..]).unwrap();
        let found: Vec<_> = trial.found().into_iter().map(|tried| tried.found).collect();
        assert!(matches!(&found[..], [Found::NotByOutput, Found::NotByOutput, Found::Matched { .. }]), "{found:?}");
    }
}
