//! Launches on hosts that refuse: the command runs as it would alone, what is measured less is said with its reason,
//! and nothing fails.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use super::confine::{Open, as_nobody, deny, is_root};
use super::support::finish;

/// What the launched command prints, and how it ends: a shell with a child, so that there is a tree.
const COMMAND: [&str; 3] = ["sh", "-c", "echo out; echo err >&2; sh -c 'sleep 0.1; exit 3'; exit 7"];

/// A recorded run.
struct Ran {
    meta: serde_json::Value,
    absent: BTreeMap<String, String>,
    stages: Vec<BTreeMap<String, String>>,
    folder: std::path::PathBuf,
}

/// `run` with its folder below `open`, and the command.
fn arguments(open: &Open, options: &[&str], command: &[&str]) -> Vec<String> {
    let out = open.path().join("run").display().to_string();
    [&["run", "--quiet", "--out", &out], options, &["--"], command].concat().into_iter().map(str::to_owned).collect()
}

impl Ran {
    /// The command came through unharmed, and the folder is whole.
    fn of(open: &Open, output: &Output) -> Ran {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert_eq!((output.stdout.as_slice(), said.as_ref()), (&b"out\n"[..], "err\n"));
        Ran::folder(&open.path().join("run"))
    }

    fn folder(folder: &Path) -> Ran {
        let meta: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("run.json")).unwrap()).unwrap();
        let text = |one: &serde_json::Value, key: &str| one[key].as_str().unwrap().to_owned();
        let absent = meta["absent"].as_array().unwrap().iter();
        let absent = absent.map(|one| (text(one, "metric"), text(one, "reason"))).collect();
        let mut reader = csv::Reader::from_path(folder.join("stages.csv")).unwrap();
        let stages = reader.deserialize().map(|row| row.unwrap()).collect();
        for file in ["samples.csv", "events.csv", "timeline.svg", "timeline.png"] {
            assert!(folder.join(file).metadata().unwrap().len() > 0, "{file}");
        }
        Ran { meta, absent, stages, folder: folder.to_owned() }
    }

    fn reason(&self, metric: &str) -> &str {
        self.absent.get(metric).unwrap_or_else(|| panic!("{metric} is not absent: {:?}", self.absent))
    }

    fn exit_code(&self) -> Option<i64> {
        self.meta["exit"]["code"].as_i64()
    }

    fn warnings(&self) -> String {
        self.meta["warnings"].to_string()
    }

    /// The largest value of a column of samples.csv; absent where every cell is empty.
    fn largest(&self, column: &str) -> Option<u64> {
        let mut reader = csv::Reader::from_path(self.folder.join("samples.csv")).unwrap();
        let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(|row| row.unwrap()).collect();
        rows.iter().filter_map(|row| row[column].parse().ok()).max()
    }
}

fn run(open: &Open, command: &mut Command) -> Ran {
    Ran::of(open, &finish(command))
}

#[test]
fn perf_denied_by_a_filter() {
    let open = Open::new();
    let mut command = open.command(&arguments(&open, &[], &COMMAND));
    let ran = run(&open, deny(&mut command, libc::SYS_perf_event_open, libc::EPERM));
    for metric in ["perf_page_faults", "perf_task_clock_ns"] {
        assert!(ran.reason(metric).contains("perf_event_open"), "{}", ran.reason(metric));
        assert_eq!(ran.largest(metric), None);
    }
    assert!(ran.largest("minor_faults").unwrap() > 0, "procfs takes over");
    assert_eq!(ran.exit_code(), Some(7));
    assert!(ran.largest("processes") >= Some(2));
}

#[test]
fn cachestat_denied_by_a_filter() {
    let open = Open::new();
    let model = open.path().join("model.bin");
    std::fs::write(&model, vec![1; 1 << 20]).unwrap();
    let artifact = format!("raw:{}", model.display());
    let mut command = open.command(&arguments(&open, &["--artifact", &artifact], &COMMAND));
    let ran = run(&open, deny(&mut command, 451, libc::EPERM));
    assert_eq!(ran.meta["artifacts"][0]["trust"]["by"], "mincore");
    assert!(ran.largest("resident_payload_bytes").unwrap() > 0);
}

#[test]
fn no_pressure_files() {
    if !is_root("a mount over /proc/pressure") {
        return;
    }
    let open = Open::new();
    let script = "mount -t tmpfs none /proc/pressure; exec \"$@\"";
    let ran = run(&open, &mut open.in_mounts(script, &arguments(&open, &[], &COMMAND)));
    assert_eq!(ran.meta["condition"]["pressure"], serde_json::json!({}));
    let pressure = |(metric, _): &(&String, &String)| metric.starts_with("pressure_");
    for (metric, reason) in ran.absent.iter().filter(pressure) {
        assert!(!reason.is_empty() && ran.largest(metric).is_none(), "{metric}");
    }
    assert_eq!(ran.absent.iter().filter(pressure).count(), 5, "{:?}", ran.absent);
}

#[test]
fn a_proc_that_hides_others_processes() {
    if !is_root("a mount of /proc with hidepid") {
        return;
    }
    let open = Open::new();
    let script =
        "mount -t proc -o hidepid=2 proc /proc; exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\"";
    let ran = run(&open, &mut open.in_mounts(script, &arguments(&open, &[], &COMMAND)));
    assert!(ran.largest("processes") >= Some(2), "one's own processes are not hidden");
    assert!(ran.largest("rss_bytes").unwrap() > 0);
}

#[test]
fn no_proc_at_all() {
    if !is_root("an unmounted /proc") {
        return;
    }
    let open = Open::new();
    let ran = run(&open, &mut open.in_mounts("umount --lazy /proc; exec \"$@\"", &arguments(&open, &[], &COMMAND)));
    assert_eq!(ran.exit_code(), Some(7));
    for metric in ["rss_bytes", "minor_faults", "rchar_bytes"] {
        assert_eq!(ran.largest(metric), None, "{metric} cannot be known");
        assert!(!ran.reason(metric).is_empty());
    }
    assert!(ran.warnings().contains("/proc"), "the launch without /proc is said: {}", ran.warnings());
}

#[test]
fn few_descriptors() {
    for most in [16, 24, 48] {
        let open = Open::new();
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={most}:{most}")).arg(&open.stagemark).args(arguments(&open, &[], &COMMAND));
        let output = finish(command.current_dir(open.path()).env_remove("NOTIFY_SOCKET"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{most}: {said}");
        assert_eq!((output.stdout.as_slice(), said.as_ref()), (&b"out\n"[..], "err\n"), "{most}");
        let run = open.path().join("run");
        assert_eq!(Ran::folder(&run).exit_code(), Some(7), "{most}");
    }
}

/// Too few to start anything: the command is not started, the limit is named, and nothing is left behind. Where enough
/// begins depends on the descriptors that are open already, and from there on the command is whole.
#[test]
fn hardly_any_descriptors() {
    let mut refused = Vec::new();
    for most in 6..16 {
        let open = Open::new();
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={most}:{most}")).arg(&open.stagemark).args(arguments(&open, &[], &COMMAND));
        let output = finish(command.current_dir(open.path()).env_remove("NOTIFY_SOCKET"));
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(7) {
            assert_eq!((output.stdout.as_slice(), said.as_ref()), (&b"out\n"[..], "err\n"), "{most}");
            continue;
        }
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]), "{most}: {said}");
        assert!(said.contains("the command was not started"), "{most}: {said}");
        assert!(said.contains(&format!("(RLIMIT_NOFILE) is {most}; raise it: ulimit -n")), "{most}: {said}");
        assert!(!open.path().join("run").exists(), "{most}");
        refused.push(most);
    }
    assert!(!refused.is_empty() && refused.iter().copied().eq((6..16).take(refused.len())), "{refused:?}");
}

/// Each artifact takes a descriptor: where none is left to start the command it is not started, the limit is named and
/// nothing is left behind; else the run is whole.
#[test]
fn few_descriptors_and_several_artifacts() {
    let (mut refused, mut whole) = (0, 0);
    for most in (12..28).step_by(2) {
        let open = Open::new();
        let artifacts: Vec<String> = (0..6)
            .map(|number| {
                let path = open.path().join(format!("{number}.bin"));
                std::fs::write(&path, [1; 5000]).unwrap();
                format!("--artifact=raw:{}", path.display())
            })
            .collect();
        let options: Vec<&str> = artifacts.iter().map(String::as_str).collect();
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={most}:{most}")).arg(&open.stagemark).args(arguments(&open, &options, &COMMAND));
        let output = finish(command.current_dir(open.path()).env_remove("NOTIFY_SOCKET"));
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(125) {
            assert_eq!(output.stdout, b"", "{most}: {said}");
            assert!(said.contains(&format!("(RLIMIT_NOFILE) is {most}; raise it: ulimit -n")), "{most}: {said}");
            assert!(!open.path().join("run").exists(), "{most}");
            refused += 1;
        } else {
            assert_eq!(Ran::of(&open, &output).exit_code(), Some(7), "{most}");
            whole += 1;
        }
    }
    assert!(refused > 0 && whole > 0, "{refused} {whole}");
}

/// Wherever the profiler itself runs out of memory, the command's output and status are its own, once it was started.
#[test]
fn too_little_address_space_for_the_profiler() {
    let open = Open::new();
    let (mut died, mut named_of_dead) = (0, 0);
    for mebibytes in (20..64).step_by(2) {
        let ran = open.path().join(format!("ran-{mebibytes}"));
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={}", mebibytes << 20)).arg(&open.stagemark);
        command.args(["run", "--quiet", "--out"]).arg(open.path().join(mebibytes.to_string()));
        command
            .args(["--", "sh", "-c", r#"echo begun >"$0" && echo out && sleep 0.1 && echo more && exit 7"#])
            .arg(&ran);
        let output = finish(command.current_dir(open.path()).env_remove("NOTIFY_SOCKET"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if ran.exists() {
            // Whose words these are depends on who asked for the memory: the language's runtime, or the C library.
            let is_dead = said.contains("memory allocation of") || said.contains("Fatal glibc error");
            died += usize::from(is_dead);
            let told = [
                "the command goes on, and was not harmed: the address space (RLIMIT_AS) is limited",
                "the command had ended, and the status is its own: the address space (RLIMIT_AS) is limited",
            ];
            let named = told.iter().any(|told| said.contains(told));
            // One that fails while the profiler is ending may not come to its word.
            named_of_dead += usize::from(named);
            assert!(is_dead || !named, "{mebibytes} MiB: {said}");
            assert_eq!(output.status.code(), Some(7), "{mebibytes} MiB: {said}");
            assert_eq!(output.stdout, b"out\nmore\n", "{mebibytes} MiB: {said}");
        }
    }
    eprintln!("the profiler died in {died} of them, and named the limit in {named_of_dead}");
    assert!(named_of_dead * 2 >= died, "{named_of_dead} of {died}");
}

/// The recorder's thread finds no room: the command runs all the same, and the limit is named.
#[test]
fn hardly_any_address_space() {
    let open = Open::new();
    let built = std::fs::metadata(&open.stagemark).unwrap().len();
    let named = (16..96).step_by(2).find_map(|mebibytes| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={}", mebibytes << 20)).arg(&open.stagemark);
        command.args(["run", "--out"]).arg(open.path().join(mebibytes.to_string())).args(["--", "true"]);
        let output = finish(command.current_dir(open.path()).env_remove("NOTIFY_SOCKET"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.contains("the recorder failed").then_some((output.status.code(), said))
    });
    // Where it lies between too little to start and enough depends on the build.
    let Some((status, said)) = named else { return eprintln!("left out: no limit hits the thread ({built} bytes)") };
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the recorder failed: ") && said.contains("address space (RLIMIT_AS) is "), "{said}");
}

#[test]
fn no_locked_memory() {
    if !is_root("another user without locked memory") {
        return;
    }
    let open = Open::new();
    let mut command = Command::new("prlimit");
    command.arg("--memlock=0:0").arg(&open.stagemark).args(arguments(&open, &[], &COMMAND));
    let ran = run(&open, as_nobody(command.current_dir(open.path())));
    assert!(ran.largest("processes") >= Some(2));
    assert!(ran.largest("minor_faults").unwrap() > 0);
}

#[test]
fn an_artifact_that_may_not_be_read() {
    if !is_root("a file of another user's") {
        return;
    }
    let open = Open::new();
    let model = open.path().join("model.safetensors");
    std::fs::write(&model, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    std::fs::set_permissions(&model, PermissionsExt::from_mode(0o600)).unwrap();
    let artifact = model.display().to_string();
    let mut command = open.command(&arguments(&open, &["--artifact", &artifact], &COMMAND));
    let output = finish(as_nobody(&mut command));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert_eq!(output.stdout, b"out\n");
    let ran = Ran::folder(&open.path().join("run"));
    assert!(ran.warnings().contains("ermission denied"), "{}", ran.warnings());
    assert!(ran.warnings().contains("model.safetensors"));
    assert_eq!(ran.largest("resident_payload_bytes"), None);
    assert!(!ran.reason("resident_payload_bytes").is_empty());
}

#[test]
fn an_artifact_that_may_be_read_but_not_asked_about() {
    if !is_root("a file of another user's") {
        return;
    }
    let open = Open::new();
    let model = open.path().join("model.bin");
    std::fs::write(&model, vec![1; 1 << 20]).unwrap();
    std::fs::set_permissions(&model, PermissionsExt::from_mode(0o644)).unwrap();
    let artifact = format!("raw:{}", model.display());
    let mut command = open.command(&arguments(&open, &["--artifact", &artifact], &COMMAND));
    let ran = run(&open, as_nobody(&mut command));
    let trust = &ran.meta["artifacts"][0]["trust"];
    // Kernels from 6.5 on, before the check of permission came to cachestat, answer.
    if trust["by"] == "none" {
        assert_eq!(ran.largest("resident_payload_bytes"), None);
        assert!(ran.reason("resident_payload_bytes").contains("neither the file's owner"));
        assert_eq!(ran.meta["condition"]["artifacts"], "unverified");
    }
    assert_eq!(ran.largest("payload_bytes"), Some(1 << 20), "that much is known all the same");
    assert!(!ran.stages.is_empty());
}
