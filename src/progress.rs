//! How far a verb is: one line on standard error that is written over, where that is a terminal, and that goes away.

use std::io::{IsTerminal, Write};

use crate::report::text::{elide, plain};

/// To the beginning of the line, and all of it wiped.
const WIPE: &str = "\r\x1b[K";

/// A line of so many columns stays one on any terminal.
const WIDTH: usize = 79;

/// The line.
pub struct StatusLine {
    is_terminal: bool,
    shown: bool,
}

impl StatusLine {
    /// None is shown where it is to be quiet, nor where nobody looks.
    pub fn unless(quiet: bool) -> StatusLine {
        StatusLine { is_terminal: !quiet && std::io::stderr().is_terminal(), shown: false }
    }

    /// Shows a text in place of the one before.
    pub fn show(&mut self, text: &str) {
        if self.is_terminal {
            self.shown = true;
            // Standard error may be closed; there is nowhere else to say so.
            let _ = write!(std::io::stderr(), "{WIPE}{}", elide(&plain(text), WIDTH));
        }
    }

    /// Takes it away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "{WIPE}");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}
