//! The files of one control group that has the memory controller, of either version (Documentation/admin-guide/
//! cgroup-v2.rst and cgroup-v1/memory.rst).
//!
//! Only reading is here, and only what the files say. Files are kept open, as every group's are made anew at each reading
//! from their start.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::look;

/// Longer than `memory.stat` and `memory.numa_stat` of a large machine.
const CAP: usize = 64 << 10;

/// A control group's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFiles {
    /// 1 or 2.
    pub version: u8,
    /// As this machine names it.
    pub shown: PathBuf,
    /// Where to read it: the same but in recorded trees.
    pub directory: PathBuf,
}

impl GroupFiles {
    /// The text of one of its files; `None` where there is none, or it cannot be read.
    pub fn text(&self, file: &str) -> Option<String> {
        look::text(&self.directory.join(file), CAP as u64)
    }

    /// The number that is a file's whole text; `None` also where it says that there is no limit (`max`).
    pub fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.trim().parse().ok()
    }

    /// The number behind a key of a file of `key value` lines (`memory.stat`, `memory.events`, `memory.oom_control`).
    pub fn field(&self, file: &str, key: &str) -> Option<u64> {
        field(self.text(file)?.as_bytes(), key)
    }

    /// The file that holds what is charged now, what ever was, and what it is charged for: their names differ by version.
    pub fn names(&self) -> &'static Names {
        if self.version == 2 { &V2 } else { &V1 }
    }

    /// The group's directory as text.
    pub fn path(&self) -> String {
        self.shown.display().to_string()
    }

    /// Opens one of its files for repeated reading.
    pub fn open(&self, file: &str) -> std::io::Result<GroupFile> {
        GroupFile::open(&self.directory.join(file))
    }
}

/// The names that a version has for the same figures.
#[derive(Debug)]
pub struct Names {
    pub current: &'static str,
    pub peak: &'static str,
    /// Keys of `memory.stat`.
    pub anon: &'static str,
    pub file: &'static str,
}

const V2: Names = Names { current: "memory.current", peak: "memory.peak", anon: "anon", file: "file" };

/// `total_…`: with the groups below it, as the other figures are.
const V1: Names = Names {
    current: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    anon: "total_rss",
    file: "total_cache",
};

/// One file, open.
#[derive(Debug)]
pub struct GroupFile {
    file: File,
    buffer: Vec<u8>,
}

impl GroupFile {
    fn open(path: &Path) -> std::io::Result<GroupFile> {
        Ok(GroupFile { file: File::open(path)?, buffer: vec![0; 8192] })
    }

    /// Around a file that is open already.
    pub fn of(file: File) -> GroupFile {
        GroupFile { file, buffer: vec![0; 8192] }
    }

    /// The whole text now.
    pub fn read(&mut self) -> std::io::Result<&[u8]> {
        loop {
            let mut length = 0;
            // A long text comes in several parts.
            loop {
                match self.file.read_at(&mut self.buffer[length..], length as u64) {
                    Ok(0) => break,
                    Ok(more) => length += more,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if length < self.buffer.len() || length >= CAP {
                return Ok(&self.buffer[..length]);
            }
            self.buffer.resize(length * 2, 0);
        }
    }

    /// The number that is the whole text.
    pub fn number(&mut self) -> Result<u64, String> {
        let text = self.read().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(text);
        text.trim().parse().map_err(|_| format!("not a number: `{}`", text.trim()))
    }

    /// Writes to it, where it was opened for that.
    pub fn write(&self, text: &[u8]) -> std::io::Result<()> {
        self.file.write_at(text, 0).map(drop)
    }
}

/// The number behind a key, in a text of `key value` lines.
pub fn field(text: &[u8], key: &str) -> Option<u64> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(key.as_bytes())?.strip_prefix(b" ")?;
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_whole_words() {
        let stat = b"anon_thp 1\nanon 4096\nfile 8192\ninactive_anon 7\n";
        assert_eq!(field(stat, "anon"), Some(4096));
        assert_eq!(field(stat, "file"), Some(8192));
        assert_eq!(field(stat, "inactive"), None);
        assert_eq!(field(b"oom_kill_disable 0\nunder_oom 0\noom_kill 2", "oom_kill"), Some(2));
    }

    #[test]
    fn a_long_file_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..2000).map(|line| format!("key{line} {line}\n")).collect();
        std::fs::write(folder.path().join("memory.stat"), &text).unwrap();
        let files = GroupFiles { version: 2, shown: folder.path().into(), directory: folder.path().into() };
        assert_eq!(files.open("memory.stat").unwrap().read().unwrap(), text.as_bytes());
        assert_eq!(files.field("memory.stat", "key1999"), Some(1999));
        assert_eq!(files.number("memory.current"), None);
    }
}
