//! Colour in the table of a run, sparingly: its heads, and the words before what a reader must not miss. Only ever on
//! the way to a terminal, or where it was asked for; no file has any.

use std::ffi::OsStr;

/// When.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether text that goes to a terminal, or not, is to have colour; by the environment of this process.
    pub fn is_wanted(self, is_terminal: bool) -> bool {
        self.decide(is_terminal, std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref())
    }

    fn decide(self, is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
        match self {
            Color::Always => true,
            Color::Never => false,
            // An empty NO_COLOR is none (no-color.org).
            Color::Auto => {
                is_terminal
                    && no_color.is_none_or(OsStr::is_empty)
                    && term.is_none_or(|term| !term.is_empty() && term != "dumb")
            }
        }
    }
}

const BOLD: &str = "1";
const YELLOW: &str = "33";
const RED: &str = "31";

/// Heads of the table's parts: whole lines.
const HEADS: [&str; 3] = ["stage  ", "host memory at ", "device memory at "];
/// Words at the beginning of a line, up to and with their colon.
const WORDS: [(&str, &str); 4] = [("warning:", YELLOW), ("lost:", RED), ("not read:", YELLOW), ("contradiction:", RED)];

/// A table with colour. Its lines are as wide as before: what is added takes no column.
pub fn painted(text: &str) -> String {
    let mut painted = String::with_capacity(text.len() + 256);
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let word = WORDS.iter().find_map(|(word, color)| Some((*word, *color, line.strip_prefix(word)?)));
        match word {
            Some((word, color, rest)) => painted.push_str(&format!("{}{rest}", paint(word, color))),
            None if line == "findings" || HEADS.iter().any(|head| line.starts_with(head)) => {
                painted.push_str(&paint(line, BOLD));
            }
            None => painted.push_str(line),
        }
        painted.push_str(end);
    }
    painted
}

fn paint(text: &str, color: &str) -> String {
    format!("\u{1b}[{color}m{text}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_on_a_terminal_that_may_have_it_or_where_it_was_asked_for() {
        let some = |text: &'static str| Some(OsStr::new(text));
        let auto = |is_terminal, no_color, term| Color::Auto.decide(is_terminal, no_color, term);
        assert!(auto(true, None, some("xterm")));
        assert!(auto(true, some(""), None));
        assert!(!auto(false, None, some("xterm")));
        assert!(!auto(true, some("1"), some("xterm")));
        assert!(!auto(true, None, some("dumb")));
        assert!(Color::Always.decide(false, some("1"), some("dumb")));
        assert!(!Color::Never.decide(true, None, some("xterm")));
    }

    #[test]
    fn heads_and_warnings_and_nothing_else() {
        let text = "stage   time (s)\nready     1.000\nat warning: no\n\nfindings\n  a\nwarning: b\n  c\nlost: d";
        let wanted = "\u{1b}[1mstage   time (s)\u{1b}[0m\nready     1.000\nat warning: no\n\n\u{1b}[1mfindings\u{1b}[0m\n  a\n\
                      \u{1b}[33mwarning:\u{1b}[0m b\n  c\n\u{1b}[31mlost:\u{1b}[0m d";
        assert_eq!(painted(text), wanted);
        let bare: String = painted(text)
            .replace("\u{1b}[1m", "")
            .replace("\u{1b}[33m", "")
            .replace("\u{1b}[31m", "")
            .replace("\u{1b}[0m", "");
        assert_eq!(bare, text);
    }
}
