//! Whether the program that the launched process is first seen to run is the one that it was started with, or whether it
//! had run another before.

use std::io::Read;

/// The longest first line that the kernel reads of a script (BINPRM_BUF_SIZE, include/uapi/linux/binfmts.h).
const LONGEST_LINE: u64 = 256;

/// Whether a process with these arguments may be in its first image, having been started with `argv`: they are the
/// same, or a script's with its interpreter before them (execve(2)). One that runs itself again with the same arguments
/// is not told from one that did not.
pub fn is_first(arguments: &[String], argv: &[String]) -> bool {
    if arguments == argv {
        return true;
    }
    let (Some(program), Some(own)) = (argv.first(), argv.get(1..)) else { return false };
    let Some(script) = arguments.len().checked_sub(own.len() + 1) else { return false };
    let (before, rest) = arguments.split_at(script);
    let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
    if rest.get(1..) != Some(own) || rest.first().and_then(|path| name(path)) != name(program) {
        return false;
    }
    let Some(line) = rest.first().and_then(|path| first_line(path)) else { return false };
    interpreter(&line).is_some_and(|words| words == before)
}

fn first_line(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(LONGEST_LINE).read_to_end(&mut bytes).ok()?;
    let line = bytes.split(|&byte| byte == b'\n').next()?;
    String::from_utf8(line.to_vec()).ok()
}

/// The interpreter and its one argument, which may hold spaces (fs/binfmt_script.c).
fn interpreter(line: &str) -> Option<Vec<String>> {
    let blank = |c: char| c == ' ' || c == '\t';
    let line = line.strip_prefix("#!")?.trim_matches(blank);
    let (path, argument) = line.split_once(blank).unwrap_or((line, ""));
    let words = [path, argument.trim_start_matches(blank)].map(str::to_owned);
    Some(words.into_iter().filter(|word| !word.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_first(arguments: &[&str], argv: &[&str]) -> bool {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        super::is_first(&owned(arguments), &owned(argv))
    }

    #[test]
    fn the_same_arguments_and_a_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve");
        let script = path.to_str().unwrap();
        std::fs::write(&path, "#! /opt/venv/bin/python3 -u\nimport x\n").unwrap();
        assert!(is_first(&["sleep", "9"], &["sleep", "9"]));
        assert!(!is_first(&["python3", "a.py"], &["sh", "-c", "exec python3 a.py"]));
        assert!(is_first(&["/opt/venv/bin/python3", "-u", script, "--port", "1"], &["serve", "--port", "1"]));
        assert!(!is_first(&["python3", script, "--port", "1"], &["serve", "--port", "1"]), "env was first");
        assert!(!is_first(&["/opt/venv/bin/python3", "-u", script, "--port", "2"], &["serve", "--port", "1"]));
        assert!(!is_first(&[], &["serve"]));
        assert!(!is_first(&["a"], &["b"]));
    }

    #[test]
    fn lines_of_scripts() {
        let words = |line: &str| interpreter(line).map(|words| words.join("|"));
        assert_eq!(words("#!/bin/sh").as_deref(), Some("/bin/sh"));
        assert_eq!(words("#!\t/usr/bin/env  -S python3 -u ").as_deref(), Some("/usr/bin/env|-S python3 -u"));
        assert_eq!(words("\x7fELF"), None);
    }
}
