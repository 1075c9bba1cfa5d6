//! Where the artifact lies: where it is, or in a folder to which it is copied for the time of the measurement.
//!
//! A copy has no name (open(2), `O_TMPFILE`; where a filesystem has no such files, its name is taken away at once), so that
//! it is gone with the last process that holds it, whatever ends that process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use crate::artifact::Artifact;
use crate::event::text_of;
use crate::host::storage::behind;
use crate::host::{Mounts, Roots};
use crate::launch::ending::Ending;

/// The artifact at one place, opened.
pub struct Lying {
    pub directory: PathBuf,
    pub is_copy: bool,
    pub files: Vec<Arc<File>>,
}

/// What stays free on a filesystem that a copy is made on.
const LEFT_FREE: u64 = 64 << 20;

/// So much is copied between two looks at what signals came.
const PIECE: u64 = 64 << 20;

/// Whether files there are memory.
pub fn is_memory(directory: &Path) -> bool {
    let Ok(directory) = std::fs::canonicalize(directory) else { return false };
    let mount = Mounts::read(Path::new("/proc")).of(&directory);
    mount.is_some_and(|mount| matches!(mount.fs_type.as_str(), "tmpfs" | "ramfs" | "hugetlbfs"))
}

impl Lying {
    /// Where it is.
    pub fn as_found(artifacts: &[Artifact]) -> Lying {
        let first = artifacts.first().and_then(|artifact| artifact.real_path.parent());
        Lying {
            directory: first.unwrap_or(Path::new("/")).to_owned(),
            is_copy: false,
            files: artifacts.iter().map(|artifact| artifact.file.clone()).collect(),
        }
    }

    /// A copy in a folder. The space is looked at first. A signal ends it.
    pub fn copied(artifacts: &[Artifact], directory: &Path, signals: &mut Ending) -> anyhow::Result<Lying> {
        let told = || format!("--on {}", text_of(directory));
        let directory = std::fs::canonicalize(directory).with_context(told)?;
        let needed: u64 = artifacts.iter().map(|artifact| artifact.size).fold(0, u64::saturating_add);
        let free = nix::sys::statvfs::statvfs(&directory).with_context(told)?;
        let free = (free.blocks_available() as u64).saturating_mul(free.fragment_size() as u64);
        anyhow::ensure!(
            needed.saturating_add(LEFT_FREE) <= free,
            "{}: a copy has {needed} bytes, and {free} are free there ({LEFT_FREE} of which are left)",
            told()
        );
        let mut copy = |artifact: &Artifact| {
            let from = File::open(&artifact.real_path).with_context(|| text_of(&artifact.real_path))?;
            copy(from, artifact.size, &directory, signals).with_context(told)
        };
        let files = artifacts.iter().map(&mut copy).collect::<anyhow::Result<_>>()?;
        Ok(Lying { directory, is_copy: true, files })
    }

    /// The filesystem's type, and what lies behind it, in words.
    pub fn storage(&self) -> (Option<String>, Vec<String>) {
        let mounts = Mounts::read(Path::new("/proc"));
        let filesystem = mounts.of(&self.directory).map(|mount| mount.fs_type);
        let chains = behind(&self.directory, &Roots::default(), &mounts).into_iter().map(|leaf| leaf.chain.join(" → "));
        (filesystem, chains.collect())
    }
}

/// Writes a copy of so many bytes, all of it on storage when it returns, so that its pages can be let go.
fn copy(mut from: File, length: u64, directory: &Path, signals: &mut Ending) -> anyhow::Result<Arc<File>> {
    let file = nameless(directory)?;
    let mut to = &file;
    let mut left = length;
    while left > 0 {
        signals.check()?;
        let copied = io::copy(&mut (&mut from).take(left.min(PIECE)), &mut to)?;
        anyhow::ensure!(copied > 0, "the artifact has become shorter");
        left -= copied;
    }
    to.flush()?;
    file.sync_all()?;
    // Opened anew for reading alone, as a loader opens its file.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let read = File::open(path)?;
    let same = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    anyhow::ensure!(same(read.metadata()?) == same(file.metadata()?), "the copy could not be opened again");
    Ok(Arc::new(read))
}

fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE).open(directory) {
        Ok(file) => return Ok(file),
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT | libc::EINVAL)) => {}
        Err(error) => return Err(error),
    }
    let path = directory.join(format!(".stagemark-copy-{}", std::process::id()));
    let file = options.create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
