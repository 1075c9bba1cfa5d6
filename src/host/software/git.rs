//! The commit that a working directory is at, read from git's own files (gitrepository-layout(5)).

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::event::text_of;
use crate::host::look;

/// A repository as it stands. Whether the files differ from the commit is not known: telling would mean reading all of
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Git {
    /// The top of the working tree.
    pub directory: String,
    /// The branch, in full (`refs/heads/main`); absent when none is checked out.
    pub reference: Option<String>,
    /// Absent before the first commit, and where references are kept in a form not read here (reftable).
    pub commit: Option<String>,
}

/// How far up a repository is looked for, and how many symbolic references are followed.
const LEVELS: usize = 64;
const SYMBOLIC: usize = 5;
/// Of packed-refs: some 100,000 references.
const PACKED_CAP: u64 = 8 << 20;

impl Git {
    /// The repository that `directory` lies in.
    pub fn look(directory: &Path) -> Option<Git> {
        let directory = std::fs::canonicalize(directory).ok()?;
        directory.ancestors().take(LEVELS).find_map(|top| {
            let git = git_directory(top)?;
            let mut head = look::line(&git.join("HEAD"))?;
            // A linked worktree has its own HEAD, and shares the rest.
            let common = look::line(&git.join("commondir")).map_or_else(|| git.clone(), |common| git.join(common));
            let mut reference = None;
            for _ in 0..SYMBOLIC {
                let Some(name) = head.strip_prefix("ref:").map(|name| name.trim().to_owned()) else { break };
                if !is_reference(&name) {
                    break;
                }
                let value = look::line(&git.join(&name))
                    .or_else(|| look::line(&common.join(&name)))
                    .or_else(|| packed(&common.join("packed-refs"), &name));
                head = value.unwrap_or_default();
                reference.get_or_insert(name);
            }
            // What reftable leaves in HEAD for those who read files.
            let reference = reference.filter(|name| name != "refs/heads/.invalid");
            Some(Git { directory: text_of(top), reference, commit: is_object(&head).then_some(head) })
        })
    }
}

/// `.git` itself, or where it points (`gitdir: …`, in linked worktrees and submodules).
fn git_directory(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let pointer = look::line(&git)?;
    Some(top.join(pointer.strip_prefix("gitdir:")?.trim()))
}

/// A name that stays inside the repository.
fn is_reference(name: &str) -> bool {
    name.starts_with("refs/") && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// An object's name, by SHA-1 or SHA-256.
fn is_object(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn packed(path: &Path, name: &str) -> Option<String> {
    let lines = BufReader::new(look::open(path)?.take(PACKED_CAP)).split(b'\n');
    lines.map_while(Result::ok).find_map(|line| {
        let line = std::str::from_utf8(&line).ok()?;
        let (object, packed) = line.split_once(' ')?;
        (packed == name).then(|| object.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(".git/refs/heads")).unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        folder
    }

    fn found(folder: &Path) -> (Option<String>, Option<String>) {
        let git = Git::look(folder).unwrap();
        (git.reference, git.commit)
    }

    #[test]
    fn loose_packed_and_detached() {
        let folder = repository();
        let git = folder.path().join(".git");
        let main = Some("refs/heads/main".to_owned());
        assert_eq!(found(folder.path()), (main.clone(), None), "no commit yet");
        let packed =
            format!("# pack-refs with: peeled\n{} refs/heads/main2\n{COMMIT} refs/heads/main\n^x\n", "f".repeat(40));
        fs::write(git.join("packed-refs"), packed).unwrap();
        assert_eq!(found(&folder.path().join("a/b")), (main.clone(), Some(COMMIT.to_owned())));
        let newer = "a".repeat(64);
        fs::write(git.join("refs/heads/main"), format!("{newer}\n")).unwrap();
        assert_eq!(found(folder.path()), (main, Some(newer)), "a loose reference is the newer one");
        fs::write(git.join("HEAD"), COMMIT).unwrap();
        assert_eq!(found(folder.path()), (None, Some(COMMIT.to_owned())));
    }

    #[test]
    fn a_linked_worktree() {
        let folder = repository();
        let linked = folder.path().join(".git/worktrees/w");
        fs::create_dir_all(&linked).unwrap();
        fs::write(linked.join("HEAD"), "ref: refs/heads/side\n").unwrap();
        fs::write(linked.join("commondir"), "../..\n").unwrap();
        fs::write(folder.path().join(".git/refs/heads/side"), COMMIT).unwrap();
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join(".git"), format!("gitdir: {}\n", linked.display())).unwrap();
        assert_eq!(found(tree.path()), (Some("refs/heads/side".to_owned()), Some(COMMIT.to_owned())));
    }

    #[test]
    fn odd_repositories_give_no_commit() {
        let folder = repository();
        let git = folder.path().join(".git");
        for odd in [
            "ref: ../../etc/passwd",
            "ref: refs/../HEAD",
            "ref: refs/heads/.invalid",
            "no commit",
            "ref: refs/heads/loop",
        ] {
            fs::write(git.join("HEAD"), odd).unwrap();
            fs::write(git.join("refs/heads/loop"), "ref: refs/heads/loop").unwrap();
            assert_eq!(Git::look(folder.path()).unwrap().commit, None, "{odd}");
        }
        fs::remove_file(git.join("HEAD")).unwrap();
        assert_eq!(
            Git::look(folder.path()).map(|git| git.directory),
            Git::look(folder.path().parent().unwrap()).map(|git| git.directory)
        );
    }
}
