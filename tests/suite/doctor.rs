//! `stagemark doctor`, as several users and in several confinements.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use super::confine::{Open, as_nobody, deny, is_root};
use super::support::{finish, stagemark};

/// Findings by name, and the rest of the answer.
struct Answer {
    findings: BTreeMap<String, serde_json::Value>,
    all: serde_json::Value,
}

fn answer(output: &Output) -> Answer {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = all["findings"].as_array().unwrap();
    let findings = findings.iter().map(|one| (one["item"].as_str().unwrap().to_owned(), one.clone())).collect();
    Answer { findings, all }
}

fn ask(command: &mut Command) -> Answer {
    answer(&finish(command))
}

impl Answer {
    fn state(&self, item: &str) -> &str {
        self.findings[item]["state"].as_str().unwrap()
    }

    fn reason(&self, item: &str) -> &str {
        self.findings[item]["reason"].as_str().unwrap_or_default()
    }

    fn remedies(&self, item: &str) -> String {
        let remedies = self.findings[item]["remedies"].as_array().unwrap();
        remedies.iter().map(|one| one.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    }

    /// What must hold of any answer.
    fn assert_sound(&self) {
        for (item, finding) in &self.findings {
            let full = finding["state"] == "yes";
            assert!(full || finding["reason"].is_string(), "{item}: {finding}");
            assert!(!full || finding["remedies"].as_array().unwrap().is_empty(), "{item}: {finding}");
        }
    }
}

#[test]
fn the_table_is_narrow_and_leaves_nothing_behind() {
    let open = Open::new();
    let temporary = open.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let output = finish(open.command(&["doctor"]).env("TMPDIR", &temporary).env("XDG_RUNTIME_DIR", &temporary));
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("devices' memory"));
    assert_eq!(temporary.read_dir().unwrap().count(), 0);
    assert_eq!(open.path().read_dir().unwrap().count(), 2, "the program, and the folder for temporary files");
    assert_eq!(finish(stagemark().args(["doctor", "--loud"])).status.code(), Some(2));
}

#[test]
fn it_agrees_with_a_run_of_the_same_user() {
    let open = Open::new();
    let doctor = ask(&mut open.command(&["doctor", "--json"]));
    doctor.assert_sound();
    let out = open.path().join("run");
    let run = finish(open.command(&["run", "--quiet", "--out"]).arg(&out).args(["--", "true"]));
    assert!(run.status.success());
    let meta: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let absent = |metric: &str| meta["absent"].as_array().unwrap().iter().any(|one| one["metric"] == metric);
    for (item, metric) in [("fault_counter", "perf_page_faults"), ("task_clock", "perf_task_clock_ns")] {
        assert_eq!(doctor.state(item) == "yes", !absent(metric), "{item}");
    }
}

#[test]
fn an_ordinary_user_is_told_what_would_help() {
    if !is_root("doctor as another user") {
        return;
    }
    let open = Open::new();
    let model = open.path().join("model.bin");
    std::fs::write(&model, vec![1; 1 << 16]).unwrap();
    std::fs::set_permissions(&model, PermissionsExt::from_mode(0o644)).unwrap();
    let path = format!("raw:{}", model.display());
    let user = ask(as_nobody(&mut open.command(&["doctor", "--json", &path])));
    user.assert_sound();
    assert_eq!(user.all["uid"], 65_534);
    assert_eq!(user.state("residency_own"), "yes");
    assert_eq!(user.state("high_water"), "yes");
    // pid 1 is root's.
    assert_eq!(user.state("others_processes"), "bounded");
    assert!(user.remedies("others_processes").contains("CAP_SYS_PTRACE"));
    let file = &user.all["paths"][0]["artifacts"][0];
    assert_eq!((&file["owner_uid"], &file["writable"]), (&0.into(), &false.into()), "{file}");
    let root = ask(&mut open.command(&["doctor", "--json", &path]));
    let as_root = &root.all["paths"][0]["artifacts"][0];
    assert_eq!((&as_root["writable"], &as_root["residency_state"]), (&true.into(), &"yes".into()), "{as_root}");
    assert_eq!(as_root["payload_bytes"], 1 << 16);
    // Kernels from 6.5 on, before the check of permission came to cachestat, answer others too.
    if file["residency_by"] == "none" {
        assert_eq!(file["residency_state"], "bounded");
        assert!(file["residency_reason"].as_str().unwrap().contains("neither the file's owner"), "{file}");
        assert!(file["remedies"][0].as_str().unwrap().contains("chown"), "{file}");
        assert_eq!(user.state("residency_others"), "bounded");
    }
    // With the right to write it, it may be asked about.
    std::fs::set_permissions(&model, PermissionsExt::from_mode(0o666)).unwrap();
    let user = ask(as_nobody(&mut open.command(&["doctor", "--json", &path])));
    assert_eq!(user.all["paths"][0]["artifacts"][0]["residency_state"], "yes");
}

#[test]
fn a_filter_that_denies_perf_is_named() {
    let open = Open::new();
    let mut command = open.command(&["doctor", "--json"]);
    let filtered = ask(deny(&mut command, libc::SYS_perf_event_open, libc::EPERM));
    filtered.assert_sound();
    assert_eq!(filtered.all["seccomp_filter"], true);
    for (item, state) in
        [("event_stream", "bounded"), ("fault_samples", "no"), ("fault_counter", "bounded"), ("task_clock", "bounded")]
    {
        assert_eq!(filtered.state(item), state, "{item}");
        assert!(filtered.reason(item).contains("perf_event_open"), "{}", filtered.reason(item));
    }
    if nix::unistd::geteuid().is_root() {
        assert!(filtered.reason("event_stream").contains("seccomp filter"), "{}", filtered.reason("event_stream"));
        assert!(filtered.remedies("event_stream").contains("--security-opt seccomp="));
    }
    let mut command = open.command(&["doctor", "--json"]);
    let filtered = ask(deny(&mut command, 451, libc::EPERM));
    assert_eq!(filtered.findings["residency_own"]["source"], "mincore", "cachestat(2) is denied");
}

#[test]
fn a_proc_that_hides_or_is_not_there_is_named() {
    if !is_root("mounts") {
        return;
    }
    let open = Open::new();
    let hide =
        "mount -t proc -o hidepid=2 proc /proc; exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$@\"";
    let hidden = ask(&mut open.in_mounts(hide, &["doctor", "--json"]));
    hidden.assert_sound();
    assert_eq!(hidden.state("tree"), "bounded");
    assert!(hidden.reason("tree").contains("hidepid="), "{}", hidden.reason("tree"));
    assert!(hidden.remedies("tree").contains("hidepid=0"));
    assert_eq!(hidden.state("high_water"), "yes");
    // Root sees all the same.
    let root = ask(&mut open.in_mounts("mount -t proc -o hidepid=2 proc /proc; exec \"$@\"", &["doctor", "--json"]));
    assert_eq!(root.state("tree"), "yes");

    let none = ask(&mut open.in_mounts("umount --lazy /proc; exec \"$@\"", &["doctor", "--json"]));
    none.assert_sound();
    assert_eq!(none.all["proc"], false);
    for item in ["tree", "high_water", "io", "pressure", "page_tables"] {
        assert_eq!(none.state(item), "no", "{item}");
    }
    assert!(none.remedies("tree").contains("mount -t proc"));

    let still = ask(&mut open.in_mounts("mount -t tmpfs none /proc/pressure; exec \"$@\"", &["doctor", "--json"]));
    assert_eq!(still.state("pressure"), "no");
    assert!(still.remedies("pressure").contains("CONFIG_PSI"));
}

#[test]
fn roots_of_a_user_namespace_are_not_the_hosts() {
    if !is_root("a user namespace of another user's") {
        return;
    }
    let open = Open::new();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).arg(&open.stagemark).args(["doctor", "--json"]);
    let output = finish(as_nobody(command.current_dir(open.path())));
    if !output.status.success() {
        eprintln!("skipped: no user namespaces here: {output:?}");
        return;
    }
    let mapped = answer(&output);
    mapped.assert_sound();
    assert_eq!((&mapped.all["uid"], &mapped.all["user_namespace"]), (&0.into(), &true.into()));
    let level = mapped.all["perf_event_paranoid"].as_i64();
    if level == Some(2) {
        assert_eq!(mapped.state("event_stream"), "yes");
        assert_eq!(mapped.state("fault_samples"), "bounded");
        assert!(mapped.remedies("fault_samples").contains("kernel.perf_event_paranoid=1"));
    }
}

#[test]
fn a_path_that_cannot_be_looked_at_is_no_answer() {
    let open = Open::new();
    let output = finish(&mut open.command(&["doctor", "nowhere"]));
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stdout).unwrap().contains("No such file or directory"));
}
