//! Which file a command's word stands for, and the interpreter that its first line names (execve(2)).

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use super::Surroundings;
use crate::event::text_of;
use crate::host::look;

/// A program's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// As it was found: by the search path, or as named.
    pub path: String,
    /// Symlinks resolved.
    pub real_path: Option<String>,
    pub size_bytes: Option<u64>,
    /// Last modification, nanoseconds since 1970.
    pub modified_ns: Option<i64>,
}

impl Program {
    pub(super) fn of(path: &Path) -> Program {
        let stat = std::fs::metadata(path).ok();
        Program {
            path: text_of(path),
            real_path: std::fs::canonicalize(path).ok().map(text_of),
            size_bytes: stat.as_ref().map(|stat| stat.size()),
            modified_ns: stat.and_then(|stat| stat.mtime().checked_mul(1_000_000_000)?.checked_add(stat.mtime_nsec())),
        }
    }
}

/// The program of a command, and its interpreter if it is a script.
pub(super) fn look(around: &Surroundings, word: &str, directory: &Path) -> (Option<Program>, Option<Program>) {
    let Some(path) = resolve(around, word, directory) else { return (None, None) };
    let interpreter = interpreter(around, &path, directory).map(|interpreter| Program::of(&interpreter));
    (Some(Program::of(&path)), interpreter)
}

/// The file that `word` stands for as a command in `directory`, by the rules of execvp(3): a word with a slash is a
/// path, any other is looked for along PATH.
pub(super) fn resolve(around: &Surroundings, word: &str, directory: &Path) -> Option<PathBuf> {
    if word.is_empty() {
        return None;
    }
    if word.contains('/') {
        return Some(directory.join(word)).filter(|path| is_executable(path));
    }
    let path = around.path.as_deref()?;
    // An empty entry means the working directory.
    std::env::split_paths(path).map(|entry| directory.join(entry).join(word)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|stat| stat.is_file()) && access(path, AccessFlags::X_OK).is_ok()
}

/// The interpreter of a script: what stands after `#!`, through `env` where that is what stands there.
pub(super) fn interpreter(around: &Surroundings, script: &Path, directory: &Path) -> Option<PathBuf> {
    // As much as the kernel reads of it (include/uapi/linux/binfmts.h), and a second line of installers.
    let start = look::bytes(script, 1024)?;
    let mut lines = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n');
    let first = std::str::from_utf8(lines.next()?).ok()?;
    let mut words = first.split_whitespace();
    let named = words.next()?;
    if let Some(python) = lines.next().and_then(behind_shell) {
        return Some(directory.join(python)).filter(|path| is_executable(path));
    }
    if Path::new(named).file_name().is_some_and(|name| name == "env") {
        let word = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return resolve(around, word, directory);
    }
    Some(directory.join(named)).filter(|path| is_executable(path))
}

/// Where the interpreter's path is too long or has spaces, pip writes a script for `/bin/sh` and Python both, whose
/// second line is `'''exec' "/long path/python" "$0" "$@"`.
fn behind_shell(second: &[u8]) -> Option<&Path> {
    let rest = second.strip_prefix(b"'''exec' ")?;
    let path = match rest.strip_prefix(b"\"") {
        Some(quoted) => quoted.split(|&byte| byte == b'"').next()?,
        None => rest.split(|&byte| byte == b' ').next()?,
    };
    Some(Path::new(std::ffi::OsStr::from_bytes(path)))
}

#[cfg(test)]
pub(in crate::host::software) mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    pub(in crate::host::software) fn executable(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn words_are_found_as_a_shell_would() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        executable(&top.join("one/serve"), "x");
        executable(&top.join("two/serve"), "x");
        fs::write(top.join("one/plain"), "x").unwrap();
        executable(&top.join("two/plain"), "x");
        let path = std::env::join_paths([top.join("absent"), top.join("one"), top.join("two")]).unwrap();
        let around = Surroundings { path: Some(path), ..Surroundings::default() };
        assert_eq!(resolve(&around, "serve", top), Some(top.join("one/serve")));
        assert_eq!(resolve(&around, "plain", top), Some(top.join("two/plain")), "not executable, passed over");
        assert_eq!(resolve(&around, "one/serve", top), Some(top.join("one/serve")));
        assert_eq!(resolve(&around, "one", top), None, "a folder is no program");
        assert_eq!(resolve(&around, "", top), None);
        let program = Program::of(&top.join("one/serve"));
        assert_eq!(program.size_bytes, Some(1));
        assert!(program.modified_ns.unwrap() > 0);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        let python = top.join("my venv/bin/python3");
        executable(&python, "\x7fELF");
        let around = Surroundings { path: Some(top.join("my venv/bin").into_os_string()), ..Surroundings::default() };
        let script = top.join("script");
        for (text, expected) in [
            ("#!/usr/bin/env python3\n".to_owned(), Some(&python)),
            ("#! /usr/bin/env -S A=1 python3 -u\n".to_owned(), Some(&python)),
            (format!("#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\n", python.display()), Some(&python)),
            ("#!/absent/python\n".to_owned(), None),
            ("#!\n".to_owned(), None),
            ("echo\n".to_owned(), None),
            ("".to_owned(), None),
        ] {
            executable(&script, &text);
            assert_eq!(interpreter(&around, &script, top).as_ref(), expected, "{text}");
        }
    }
}
