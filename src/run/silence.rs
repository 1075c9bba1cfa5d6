//! The longest time for which the command printed nothing, by the times of `output.log`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;

use super::{OUTPUT, Run, RunError, open_file, rows};
use crate::clock::At;
use crate::event::text_of;

/// So much of a line is kept, in bytes.
const KEPT: usize = 200;

/// A stretch without output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    pub from: At,
    pub to: At,
    /// The line before it; `None` at the start.
    pub before: Option<String>,
    /// The line that ended it; `None` where nothing did until the end asked for.
    pub after: Option<String>,
    /// Lines up to the end asked for.
    pub lines: u64,
}

impl Silence {
    pub fn length_ns(&self) -> u64 {
        u64::try_from(self.to.0.saturating_sub(self.from.0)).unwrap_or(0)
    }
}

impl Run {
    /// The longest silence between start and `until`; of equal ones the first. `None` without a log, or without a line
    /// in it. Line by line: a log may be long.
    pub fn longest_silence(&self, until: At) -> Result<Option<Silence>, RunError> {
        let path = self.folder.join(OUTPUT);
        let mut file = match open_file(&path) {
            Ok(file) => BufReader::new(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RunError::Io { path, error }),
        };
        let mut longest: Option<Silence> = None;
        let mut keep = |silence: Silence| {
            if longest.as_ref().is_none_or(|longest| silence.length_ns() > longest.length_ns()) {
                longest = Some(silence);
            }
        };
        let mut last: (At, Option<String>) = (At(0), None);
        let mut line = Vec::new();
        let (mut number, mut lines) = (0, 0);
        loop {
            line.clear();
            file.read_until(b'\n', &mut line).map_err(|error| RunError::Io { path: path.clone(), error })?;
            // A torn last line is left out, as everywhere.
            let Some(whole) = line.strip_suffix(b"\n") else { break };
            number += 1;
            let logged = rows::logged_line(whole).map_err(|problem| RunError::Row {
                path: path.clone(),
                line: number,
                problem,
            })?;
            if logged.at > until {
                break;
            }
            lines += 1;
            let kept = &logged.line.bytes[..logged.line.bytes.len().min(KEPT)];
            let text = text_of(OsStr::from_bytes(kept));
            if logged.at > last.0 {
                keep(Silence {
                    from: last.0,
                    to: logged.at,
                    before: last.1.take(),
                    after: Some(text.clone()),
                    lines: 0,
                });
            }
            last = (logged.at.max(last.0), Some(text));
        }
        if lines > 0 && until > last.0 {
            keep(Silence { from: last.0, to: until, before: last.1, after: None, lines: 0 });
        }
        Ok(longest.filter(|_| lines > 0).map(|silence| Silence { lines, ..silence }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Meta;

    fn of(log: Option<&str>, until: i64) -> Option<Silence> {
        let folder = tempfile::tempdir().unwrap();
        let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs/ml-216");
        let meta = Meta::load(&fixture).unwrap();
        if let Some(log) = log {
            std::fs::write(folder.path().join(OUTPUT), log).unwrap();
        }
        let run = Run {
            folder: folder.path().to_owned(),
            meta,
            samples: Vec::new(),
            events: Vec::new(),
            details: Vec::new(),
            tensors: None,
            responses: Vec::new(),
            gaps: Vec::new(),
        };
        run.longest_silence(At(until)).unwrap()
    }

    #[test]
    fn between_two_lines_before_the_first_and_after_the_last() {
        let log = "10\t\tstdout\tnewline\ta\n50\t\tstdout\tnewline\tb\n60\t\tstdout\tnewline\tc\n61\t\tstd";
        let silence = of(Some(log), 70).unwrap();
        assert_eq!((silence.from, silence.to, silence.lines), (At(10), At(50), 3));
        assert_eq!((silence.before.as_deref(), silence.after.as_deref()), (Some("a"), Some("b")));
        let silence = of(Some(log), 200).unwrap();
        assert_eq!((silence.from, silence.to, silence.after), (At(60), At(200), None));
        let silence = of(Some(log), 12).unwrap();
        assert_eq!((silence.from, silence.to, silence.before), (At(0), At(10), None));
    }

    #[test]
    fn nothing_is_said_of_a_command_whose_output_was_not_seen() {
        assert_eq!(of(None, 70), None);
        assert_eq!(of(Some(""), 70), None);
        assert_eq!(of(Some("90\t\tstdout\tnewline\ta\n"), 70), None);
    }
}
