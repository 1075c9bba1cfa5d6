//! Start conditions, made and verified: the page cache emptied of an artifact, or filled with it, file by file and without
//! privilege.
//!
//! What counts is the condition *reached*, which the residency probe finds by the same trust as in a run: a file that may
//! not be asked about is `unverified`, whatever was done to it. Called `artifact-cold` and `artifact-warm`, since it is of
//! these files' pages in this kernel's page cache and of nothing else: what else may hold the same bytes is named
//! ([`elsewhere`]), and left alone.
//!
//! It refuses to touch any other file's cache (there is no `drop_caches` here), to fill memory beyond what there is, and
//! to end whoever holds a page; it says who does.

mod evict;
mod holders;
mod look;
mod table;
mod warm;

pub mod elsewhere;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::artifact::Artifact;
use crate::artifact::set::{self, Resolution};
use crate::event::text_of;
use crate::host::Mounts;
use crate::probe::residency::Trust;
use crate::report::text::plain;
use crate::run::meta::{UNVERIFIED, residency_word, wished};

pub use evict::{WHOLE, drop_pages};
pub use holders::Holder;
use look::Watch;
pub use warm::{OnTerminal, Progress, Room};

/// The condition that a file is to be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Cold,
    Warm,
    /// Only looked at.
    AsIs,
}

impl Wish {
    /// The word of the command line and of files.
    pub fn word(self) -> &'static str {
        match self {
            Wish::Cold => "cold",
            Wish::Warm => "warm",
            Wish::AsIs => "as-is",
        }
    }

    /// The condition's word where it was reached; any will do for what is only looked at.
    fn condition(self) -> Option<&'static str> {
        wished(self.word())
    }
}

/// What became of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub path: String,
    pub filesystem: Option<String>,
    pub size: u64,
    /// The payload; absent where it is unknown, and then all of the file is watched.
    pub payload: Option<u64>,
    /// Bytes that are watched: the payload, or the file.
    pub watched: u64,
    /// Resident bytes of those before and after; `Err` is the reason why they are not known.
    pub before: Result<u64, String>,
    pub after: Result<u64, String>,
    pub trust: Trust,
    /// What is odd, or stands in the way.
    pub notes: Vec<String>,
    /// Processes that map the file, where it did not become cold.
    pub holders: Vec<Holder>,
    /// What else may hold its bytes.
    pub elsewhere: Vec<String>,
}

impl Outcome {
    /// The condition that it is in now.
    pub fn condition(&self) -> &'static str {
        match (self.watched, &self.after) {
            // Nothing is both; nobody waits for it.
            (0, Ok(_)) => UNVERIFIED,
            (watched, after) => residency_word(Some(watched), after.as_ref().ok().copied()),
        }
    }
}

/// Whether what was wished for is so, of all files together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// It cannot be known of some file, and is not "no" of another.
    Unknown,
}

/// The answer of several files.
pub fn answer(wish: Wish, outcomes: &[Outcome]) -> Answer {
    let mut answer = Answer::Yes;
    for outcome in outcomes {
        match (outcome.condition(), wish.condition()) {
            (UNVERIFIED, _) => answer = if answer == Answer::No { Answer::No } else { Answer::Unknown },
            (is, Some(wanted)) if is != wanted => answer = Answer::No,
            _ => {}
        }
    }
    answer
}

/// The condition that all files together are in: as a run calls it, which cannot know it where a payload is unknown.
pub fn reached(outcomes: &[Outcome]) -> &'static str {
    let payload: Option<u64> = outcomes.iter().map(|outcome| outcome.payload).sum();
    let resident: Option<u64> = outcomes.iter().map(|outcome| outcome.after.as_ref().ok().copied()).sum();
    residency_word(payload, resident)
}

/// Makes the condition, file by file. `stop` is asked again and again while a file is read: once it says so, nothing more
/// is read.
pub fn make(wish: Wish, artifacts: &[Artifact], progress: &mut dyn Progress, stop: &dyn Fn() -> bool) -> Vec<Outcome> {
    let mounts = Mounts::read(Path::new("/proc"));
    let mut watches: Vec<Watch> = artifacts.iter().map(Watch::new).collect();
    let before: Vec<Result<u64, String>> = watches.iter_mut().map(Watch::resident).collect();
    let mut notes: Vec<Vec<String>> = match wish {
        Wish::AsIs => vec![Vec::new(); artifacts.len()],
        Wish::Cold => std::iter::zip(artifacts, &mut watches).map(|(file, watch)| evict::evict(file, watch)).collect(),
        Wish::Warm => warm::warm(artifacts, &before, progress, stop),
    };
    let looked = artifacts.iter().zip(watches).zip(before).zip(&mut notes);
    looked
        .map(|(((artifact, mut watch), before), notes)| {
            let after = if wish == Wish::AsIs { before.clone() } else { watch.resident() };
            let mount = mounts.of_resolved(&artifact.real_path);
            let mut outcome = Outcome {
                path: text_of(&artifact.path),
                elsewhere: elsewhere::of(mount.as_ref()),
                filesystem: mount.map(|mount| mount.fs_type),
                size: artifact.size,
                payload: artifact.payload_bytes(),
                watched: watch.watched(),
                before,
                after,
                trust: watch.trust(),
                notes: std::mem::take(notes),
                holders: Vec::new(),
            };
            if wish == Wish::Warm && outcome.filesystem.as_deref().is_some_and(|kind| kind.starts_with("fuse")) {
                outcome
                    .notes
                    .push("on FUSE the next open may empty its page cache again (open(2) by the command)".into());
            }
            if wish == Wish::Cold && outcome.after != Ok(0) {
                let (found, unread) = holders::of(artifact);
                outcome.holders = found;
                if unread > 0 {
                    outcome.notes.push(format!(
                        "processes whose mappings may not be read, so that it is not known whether they hold it: {unread}"
                    ));
                }
            }
            outcome
        })
        .collect()
}

/// `stagemark cache`: makes the condition of the files that the paths name (as [`crate::inspect`] finds them) and says
/// what became of each.
///
/// # Errors
/// The answer could not be written.
pub fn cache(
    wish: Wish,
    paths: &[PathBuf],
    json: bool,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<Answer> {
    let directory = std::env::current_dir()?;
    let Resolution { artifacts, warnings, failures } = set::resolve(paths, &[], &BTreeMap::new(), &directory);
    for warning in &warnings {
        // Standard error may be closed; the answer is on standard output.
        let _ = writeln!(errors, "{}", plain(warning));
    }
    let outcomes = make(wish, &artifacts, &mut OnTerminal::unless(false), &|| false);
    let answer = match answer(wish, &outcomes) {
        Answer::Yes if failures > 0 || outcomes.is_empty() => Answer::Unknown,
        answer => answer,
    };
    let text = if json { table::json(wish, answer, &outcomes, &warnings)? } else { table::text(wish, &outcomes) };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(answer)
}

/// Of a condition that a run asked for: the lines that say what stands in its way, for people. Empty where it was reached.
pub fn warnings(wish: Wish, outcomes: &[Outcome]) -> Vec<String> {
    let Some(wanted) = wish.condition() else { return Vec::new() };
    let asked = format!("--cache {}", wish.word());
    if outcomes.is_empty() {
        return vec![format!(
            "{asked}: no artifact is known before the start, so none was made so; --artifact names it"
        )];
    }
    let missed = outcomes.iter().filter(|outcome| outcome.condition() != wanted);
    missed
        .map(|outcome| {
            let mut text = format!("{asked}: {} is {}", outcome.path, outcome.condition());
            table::reasons(outcome).iter().for_each(|reason| text.push_str(&format!("; {reason}")));
            text
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::artifact::Found;
    use crate::run::meta::{COLD, WARM};

    /// No progress.
    pub(super) struct Silent;

    impl Progress for Silent {
        fn at(&mut self, _done: u64, _of: u64) {}
    }

    fn outcome(watched: u64, after: Result<u64, String>) -> Outcome {
        Outcome {
            path: "/m".into(),
            filesystem: None,
            size: watched,
            payload: Some(watched),
            watched,
            before: Ok(0),
            after,
            trust: Trust { by: "mincore".into(), because: String::new() },
            notes: Vec::new(),
            holders: Vec::new(),
            elsewhere: Vec::new(),
        }
    }

    #[test]
    fn what_cannot_be_known_is_neither_yes_nor_no() {
        let unknown = || outcome(100, Err("another user's".into()));
        assert_eq!(answer(Wish::Cold, &[outcome(100, Ok(1))]), Answer::Yes);
        assert_eq!(answer(Wish::Cold, &[outcome(100, Ok(2))]), Answer::No);
        assert_eq!(answer(Wish::Warm, &[outcome(100, Ok(99))]), Answer::Yes);
        assert_eq!(answer(Wish::Warm, &[outcome(100, Ok(98))]), Answer::No);
        assert_eq!(answer(Wish::Cold, &[outcome(100, Ok(0)), unknown()]), Answer::Unknown);
        assert_eq!(answer(Wish::Cold, &[unknown(), outcome(100, Ok(50)), unknown()]), Answer::No);
        assert_eq!(answer(Wish::AsIs, &[outcome(100, Ok(50))]), Answer::Yes);
        assert_eq!(answer(Wish::AsIs, &[unknown()]), Answer::Unknown);
        assert_eq!(reached(&[outcome(100, Ok(0)), outcome(100, Ok(100))]), "partial");
        assert_eq!(reached(&[outcome(100, Ok(0)), unknown()]), UNVERIFIED);
        assert_eq!(reached(&[]), UNVERIFIED);
    }

    #[test]
    fn a_run_is_told_what_stands_in_the_way() {
        let mut held = outcome(100, Ok(50));
        held.holders = vec![Holder { pid: 7, name: "x".into(), bytes: 100, locked: true }];
        held.notes = vec!["odd".into()];
        let told = warnings(Wish::Cold, &[outcome(100, Ok(0)), held]);
        assert_eq!(told, ["--cache cold: /m is partial; odd; process 7 (x) maps 100 B of it, locked in memory"]);
        assert!(warnings(Wish::Cold, &[])[0].contains("--artifact"));
        assert!(warnings(Wish::AsIs, &[]).is_empty());
    }

    #[test]
    fn a_file_is_made_cold_and_warm_and_cold_again_and_no_other_is() {
        let folder = tempfile::tempdir().unwrap();
        let artifact = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![7; 5 << 20]).unwrap();
            Artifact::open_raw(&path, Found::Declared).unwrap()
        };
        let (one, other) = (artifact("one"), artifact("other"));
        let make = |wish| make(wish, std::slice::from_ref(&one), &mut Silent, &|| false).remove(0);
        // Written just now: all of it is there, and dirty.
        assert_eq!(make(Wish::AsIs).condition(), WARM);
        let cold = make(Wish::Cold);
        assert_eq!((cold.condition(), cold.after), (COLD, Ok(0)), "{:?}", cold.notes);
        // Some hosts evict clean pages on their own: a few may be gone again.
        let warm = make(Wish::Warm);
        assert_eq!((warm.condition(), warm.before), (WARM, Ok(0)), "{:?}", warm.notes);
        assert_eq!(make(Wish::Cold).condition(), COLD);
        assert!(Watch::new(&other).resident().unwrap() > 4 << 20);
    }
}
