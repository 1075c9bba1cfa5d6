//! Start conditions made by the program, and what is said where one was not reached.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use stagemark_fixtures::models::{self, Fill};

use super::support::{LIMIT, ended, eventually, finish, folder, reference_loader, run_arguments, stagemark};

const PAYLOAD: u64 = 8 << 20;

fn model(folder: &Path) -> PathBuf {
    let path = folder.join("model.safetensors");
    models::uniform(&path, PAYLOAD, 8, Fill::Pattern).unwrap();
    path
}

/// `stagemark cache VERB PATH --json`: exit status and answer.
fn cache(verb: &str, path: &Path) -> (i32, Value) {
    let output = finish(stagemark().args(["cache", verb, "--json"]).arg(path));
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), answer)
}

#[test]
fn a_file_is_evicted_warmed_and_looked_at() {
    let folder = folder();
    let path = model(folder.path());
    let (status, evicted) = cache("evict", &path);
    assert_eq!((status, evicted["reached"].as_str()), (0, Some("artifact-cold")), "{evicted}");
    assert_eq!((&evicted["asked"], &evicted["answer"]), (&"cold".into(), &"yes".into()));
    let file = &evicted["files"][0];
    assert_eq!((&file["payload_bytes"], &file["resident_of"]), (&PAYLOAD.into(), &"payload".into()));
    assert_eq!(file["resident_bytes"], 0);
    assert!(!file["not_touched"].as_array().unwrap().is_empty());
    let (status, warmed) = cache("warm", &path);
    assert_eq!((status, warmed["reached"].as_str()), (0, Some("artifact-warm")), "{warmed}");
    let (status, looked) = cache("status", folder.path());
    assert_eq!((status, looked["reached"].as_str()), (0, Some("artifact-warm")), "{looked}");
    let text = finish(stagemark().args(["cache", "status"]).arg(&path));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("\n  artifact-warm: ") && text.contains("of 8 MiB payload resident"), "{text}");
    // The answer is that of the exit status.
    let (status, missing) = cache("status", &folder.path().join("none"));
    assert_eq!((status, missing["answer"].as_str()), (3, Some("unknown")), "{missing}");
    let warning = missing["warnings"][0].as_str().unwrap();
    assert!(warning.ends_with("none: No such file or directory (os error 2)"), "no command is run: {warning}");
}

#[test]
fn what_stays_is_said_with_who_holds_it() {
    let folder = folder();
    let path = model(folder.path());
    let [program, verb] = reference_loader();
    let mut holder = Command::new(program)
        .args([verb, "--mode", "mmap-populate", "--shared", "--hold", "until-stdin-closes", "--model"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let maps = || std::fs::read_to_string(format!("/proc/{}/smaps", holder.id())).unwrap_or_default();
    // All of it is mapped and there.
    eventually("the loader has all of it", || {
        let smaps = maps();
        let rest = smaps.split_once("model.safetensors")?.1;
        let rss = rest.lines().find_map(|line| line.strip_prefix("Rss:"))?;
        let kib: u64 = rss.trim().strip_suffix(" kB")?.parse().ok()?;
        (kib * 1024 >= PAYLOAD).then_some(())
    });
    let (status, evicted) = cache("evict", &path);
    let holders = evicted["files"][0]["holders"].as_array().unwrap().clone();
    drop(holder.stdin.take());
    assert!(ended(&mut holder).success(), "within {LIMIT:?}");
    assert_eq!((status, evicted["answer"].as_str()), (1, Some("no")), "{evicted}");
    assert_eq!(evicted["files"][0]["condition"], "artifact-warm");
    assert_eq!(holders.len(), 1, "{evicted}");
    assert_eq!(holders[0]["pid"], holder.id());
    assert_eq!(cache("evict", &path).0, 0, "nobody holds it any more");
}

#[test]
fn memory_itself_cannot_be_evicted() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    if nix::sys::statfs::statfs(folder.path()).unwrap().filesystem_type() != nix::sys::statfs::TMPFS_MAGIC {
        return;
    }
    let path = model(folder.path());
    let (status, evicted) = cache("evict", &path);
    assert_eq!(status, 1, "{evicted}");
    let note = evicted["files"][0]["notes"][0].as_str().unwrap();
    assert!(note.starts_with("cannot be evicted: it lies on tmpfs"), "{note}");
    assert_eq!(cache("warm", &path).0, 0);
}

#[test]
fn a_run_begins_in_the_condition_that_was_asked_for() {
    let folder = folder();
    let path = model(folder.path());
    for (asked, reached) in [("cold", "artifact-cold"), ("warm", "artifact-warm")] {
        let arguments = run_arguments(&folder);
        let out = PathBuf::from(&arguments[3]);
        let mut command = stagemark();
        command.args(&arguments[..4]).args(["--cache", asked, "--artifact"]).arg(&path).args(["--", "true"]);
        assert!(finish(&mut command).status.success());
        let meta: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
        let condition = &meta["condition"];
        let words = ["asked", "reached", "artifacts"].map(|key| condition[key].as_str().unwrap().to_owned());
        assert_eq!(words, [asked, reached, reached]);
        assert!(!condition["not_touched"].as_array().unwrap().is_empty());
    }
    let arguments = run_arguments(&folder);
    let mut command = stagemark();
    command.args(&arguments[..4]).args(["--cache", "cold", "--", "true"]);
    assert!(finish(&mut command).status.success());
    let meta = std::fs::read(PathBuf::from(&arguments[3]).join("run.json")).unwrap();
    let meta: Value = serde_json::from_slice(&meta).unwrap();
    assert_eq!(meta["condition"]["reached"], "unverified");
    let warnings = meta["warnings"].to_string();
    assert!(warnings.contains("--cache cold: no artifact is known before the start"), "{warnings}");
}
