//! Who may be asked how much of a file is in memory: by the residency probe's own trust, on a file of this user's own
//! and on one that another owns.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{AccessFlags, access};

use super::Finding;
use super::who::Who;
use crate::artifact::{Artifact, Found};
use crate::probe::residency::{ResidencyProbe, Trust};

/// How long one file may be asked about.
const LIMIT: Duration = Duration::from_millis(100);

/// What the probe said of a file, or why there was none to ask about.
pub(super) type Answer = Result<Trust, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    pub own: Answer,
    /// A file that this user neither owns nor may write; absent where no such file is at hand, as for root.
    pub others: Option<(PathBuf, Answer)>,
}

/// What would let a user ask about a file of another's.
pub(super) fn remedies(path: Option<&Path>) -> Vec<String> {
    let path = path.map_or("FILE".to_owned(), |path| path.display().to_string());
    vec![
        format!("chown \"$USER\" {path}   (as root), or a copy of your own"),
        format!("setfacl -m u:\"$USER\":rw {path}   (the right to write it is enough)"),
        "run with CAP_FOWNER, or as root".into(),
    ]
}

impl Tried {
    pub fn here() -> Tried {
        Tried { own: own(), others: another_owners().map(|path| (path.clone(), ask(&path))) }
    }

    /// `page_tables`: whether the launched processes' page tables can be read, which gives a lower bound.
    pub fn findings(&self, _who: &Who, page_tables: bool) -> Vec<Finding> {
        let (item, figure) = ("residency_own", "residency of your own files");
        let own = match &self.own {
            Ok(trust) if trust.by != "none" => Finding::yes(item, figure, trust.by.clone()),
            Ok(trust) => Finding::no(item, figure).because(trust.because.clone()),
            Err(why) => Finding::no(item, figure).because(format!("could not be tried: {why}")),
        };
        let (item, figure) = ("residency_others", "residency of others' files");
        let others = match (&self.others, &self.own) {
            // Whoever may write every file may ask about every file, as about their own.
            (None, Ok(trust)) if trust.by != "none" => Finding::yes(item, figure, trust.by.clone())
                .because("no file is at hand that you may not write; `stagemark doctor PATH` tells of one file"),
            (None, _) => Finding::no(item, figure).because("could not be tried: no such file at hand"),
            (Some((_, Ok(trust))), _) if trust.by != "none" => Finding::yes(item, figure, trust.by.clone()),
            (Some((_, outcome)), _) => {
                let why = outcome.as_ref().map_or_else(Clone::clone, |trust| trust.because.clone());
                let finding = match page_tables {
                    true => Finding::bounded(item, figure, "page tables: a lower bound"),
                    false => Finding::no(item, figure),
                };
                finding.because(why).remedied_by(remedies(None))
            }
        };
        vec![own, others]
    }
}

/// What the residency probe says of a file.
pub(super) fn ask(path: &Path) -> Answer {
    let artifact = Artifact::open_raw(path, Found::Declared).map_err(|error| error.reason())?;
    Ok(ResidencyProbe::new().add(&artifact, LIMIT))
}

/// A new file of our own, with some pages in the cache, gone again afterwards.
fn own() -> Answer {
    let mut why = String::from("no folder to write to");
    for folder in [std::env::temp_dir(), "/tmp".into(), "/dev/shm".into(), ".".into()] {
        let path = folder.join(format!("stagemark-doctor-{}", std::process::id()));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made.and_then(|mut file| file.write_all(&[1; 1 << 16])) {
            Ok(()) => {
                let answer = ask(&path);
                let _ = std::fs::remove_file(&path);
                return answer;
            }
            Err(error) => {
                why = format!("{}: {error}", folder.display());
                if error.kind() != std::io::ErrorKind::AlreadyExists {
                    // Half written, on a full filesystem.
                    let _ = std::fs::remove_file(&path);
                }
            }
        }
    }
    Err(why)
}

/// A file of another owner's that this process may not write: one of those that every host has.
fn another_owners() -> Option<PathBuf> {
    let own = nix::unistd::geteuid().as_raw();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| Some(PathBuf::from(line.get(line.find('/')?..)?)));
    let usual = ["/bin/sh", "/usr/bin/env", "/etc/passwd"].map(PathBuf::from);
    mapped.chain(usual).find(|path| {
        let foreign = std::fs::metadata(path).is_ok_and(|stat| stat.is_file() && stat.uid() != own && stat.len() > 0);
        foreign && access(path, AccessFlags::W_OK).is_err() && access(path, AccessFlags::R_OK).is_ok()
    })
}
