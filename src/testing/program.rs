//! Programs that a test makes in order to execute them.
//!
//! A child process writes each of them. While anybody has a program open for writing, nobody can execute it (ETXTBSY), and
//! a process that another test's thread forks has this one's descriptors until it executes something itself.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A copy of a program.
pub fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("--").args([from, to]).status().unwrap();
    assert!(status.success(), "{} to {}: {status}", from.display(), to.display());
}

/// A file with this text that anybody may execute.
#[allow(dead_code, reason = "the ground truth shares this file and makes no script")]
pub fn script(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", r#"cat >"$0" && chmod 755 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // Dropped when written: the end of the text.
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let status = writer.wait().unwrap();
    assert!(status.success(), "{}: {status}", path.display());
}
