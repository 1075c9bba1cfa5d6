//! Model files that the tree was seen to open or map and nobody had named: opened and read on a thread of their own, so
//! that a large header delays no tick.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::statfs::{FUSE_SUPER_MAGIC, statfs};

use crate::artifact::{Artifact, set};

/// What became of a file that was found.
pub enum Discovered {
    Artifact(Box<Artifact>),
    /// It is one by its name, and must not be opened; the reason is for people.
    Unopened(Box<Artifact>, String),
    /// It is none, or it must not be looked at; the reason is for people and empty where it needs no telling.
    Left(String),
}

/// Opens what is found.
pub struct Discovery {
    sender: Sender<Discovered>,
    receiver: Receiver<Discovered>,
    /// Held by each thread that reads one.
    readers: Arc<()>,
    /// Whether something may have been missing from the last [`Discovery::ready`].
    is_busy: bool,
}

impl Discovery {
    pub fn new() -> Discovery {
        let (sender, receiver) = channel();
        Discovery { sender, receiver, readers: Arc::new(()), is_busy: false }
    }

    /// Begins to look at a file; the answer comes out of [`Discovery::ready`] later.
    pub fn look(&mut self, path: PathBuf) {
        self.is_busy = true;
        let (sender, reader) = (self.sender.clone(), Arc::clone(&self.readers));
        let looked = std::thread::Builder::new().name("discover".into()).spawn(move || {
            // The recorder may be gone by now; then nobody needs the answer.
            open(path).into_iter().for_each(|found| drop(sender.send(found)));
            drop(reader);
        });
        drop(looked);
    }

    /// Whether there may be an answer that was not taken yet.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// What was found since the last call.
    pub fn ready(&mut self) -> Vec<Discovered> {
        // Asked first: whoever has ended by now has sent its answer.
        self.is_busy = Arc::strong_count(&self.readers) > 1;
        self.receiver.try_iter().collect()
    }
}

/// What a file is, and what belongs to it.
fn open(path: PathBuf) -> Vec<Discovered> {
    // A second open() of a file on FUSE empties its page cache under the loader.
    if statfs(&path).is_ok_and(|filesystem| filesystem.filesystem_type() == FUSE_SUPER_MAGIC) {
        let why = "found after start on a FUSE file system, where opening it would empty its page cache";
        let told = format!("{}: {why}: name it with --artifact", path.display());
        return vec![match set::discover_unopened(&path, why.to_owned()) {
            Ok(Some(artifact)) => Discovered::Unopened(Box::new(artifact), told),
            _ => Discovered::Left(told),
        }];
    }
    match set::discover(&path) {
        Ok(Some(artifact)) => {
            let (files, warnings) = set::discover_named_by(&artifact);
            let mut found = vec![Discovered::Artifact(Box::new(artifact))];
            found.extend(files.into_iter().map(|file| Discovered::Artifact(Box::new(file))));
            found.extend(warnings.into_iter().map(Discovered::Left));
            found
        }
        Ok(None) => vec![Discovered::Left(String::new())],
        Err(error) => vec![Discovered::Left(error.to_string())],
    }
}
