//! The host account in what it prints, and where no two processes share; ranks; deaths. Its figures are held against
//! loaders that hold memory in one known way by `tests/truth`, cases/account.rs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::folder::{RunFolder, Stage};
use crate::memory_group::Group;
use crate::support::{finish, stagemark};

const MIB: u64 = 1 << 20;

/// What a Python interpreter holds by itself: 7 MiB of its own, 5 MiB of files, and its page tables are what it is.
const OWN: u64 = 24 * MIB;

struct Bench {
    scratch: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { scratch: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn command(&self, argv: &[&str]) -> Command {
        let mut command = stagemark();
        command.args(["run", "--out"]).arg(self.path("run")).args(["--", "python3"]).arg(loader()).args(argv);
        command
    }

    fn run(&self, argv: &[&str]) -> RunFolder {
        let output = finish(&mut self.command(argv));
        assert!(output.status.success(), "{}", text(&output.stderr));
        RunFolder::at(self.path("run"))
    }
}

fn loader() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/host/loader.py")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Low and high of a part, which must be there, in order.
fn bounds(row: &Stage, part: &str) -> (u64, u64) {
    let (low, high) = (row.known(&format!("{part}_low")), row.known(&format!("{part}_high")));
    assert!(low <= high, "{part}: {low} to {high}");
    (low, high)
}

#[track_caller]
fn assert_holds((low, high): (u64, u64), truth: u64, own: u64, what: &str) {
    assert!(high >= truth, "{what}: at most {high}, and {truth} was held");
    assert!(low <= truth + own, "{what}: at least {low}, and {truth} + {own} was held");
}

#[test]
fn programs_that_were_executed_share_no_heap() {
    let bench = Bench::new();
    let run = bench.run(&["exec"]);
    let row = run.stage("held");
    assert!(row.known("processes") >= 5);
    // Their interpreter lies at other addresses in each, and so no PSS is needed to know.
    assert!(row.text("host_basis").starts_with("unshared"), "{}", row.text("host_basis"));
    let anonymous = bounds(&row, "host_anon_bytes");
    assert_eq!(anonymous.0, anonymous.1);
    assert_eq!(anonymous.0, row.known("rss_anon_bytes"));
    assert_holds(anonymous, 4 * 64 * MIB, 5 * OWN, "anonymous");
}

#[test]
fn the_account_is_printed_within_80_columns_and_adds_up() {
    let bench = Bench::new();
    let output = finish(&mut bench.command(&["exec"]));
    let page = text(&output.stderr);
    assert!(page.contains("\nhost memory at held "), "{page}");
    assert!(page.contains("Anonymous memory is as counted: no two processes can share it."), "{page}");
    assert!(page.contains("MemAvailable of the host "), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(!page.contains("contradiction"), "{page}");
}

#[test]
fn ranks_have_rows_of_their_own() {
    let bench = Bench::new();
    let script = "for rank in 0 1; do \
            RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 python3 \"$1\" hold $((32 * (rank + 1))) \"$2/$rank\" & \
            pids=\"$pids $!\"; \
        done; \
        until [ -e \"$2/0\" ] && [ -e \"$2/1\" ]; do sleep 0.05; done; \
        \"$3\" mark held; kill $pids; wait";
    let mut command = stagemark();
    command.args(["run", "--out"]).arg(bench.path("run")).args(["--", "sh", "-c", script, "sh"]).arg(loader());
    command.arg(bench.scratch.path()).arg(env!("CARGO_BIN_EXE_stagemark"));
    // What the profiler itself was started with is the launch's own rank, and none within it.
    let output = finish(command.env("SLURM_PROCID", "7"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = RunFolder::at(bench.path("run"));
    let at = run.stage("held").text("sampled_ns").to_owned();
    let figure = |rank: &str, metric: &str| -> Option<u64> {
        let rows = run.rows("detail.csv");
        let row = rows
            .iter()
            .find(|row| row["t_ns"] == at && row["scope"] == "rank" && row["id"] == rank && row["metric"] == metric)?;
        row["value"].parse().ok()
    };
    for (rank, held) in [("0", 32 * MIB), ("1", 64 * MIB)] {
        let anonymous = figure(rank, "rss_anon_bytes").unwrap();
        assert!((held..held + OWN).contains(&anonymous), "rank {rank}: {anonymous}");
        assert_eq!(figure(rank, "processes"), Some(1));
        assert_eq!(figure(rank, "world_size"), Some(2));
        assert!(figure(rank, "cpu_ns").is_some());
    }
    assert_eq!(figure("7", "rss_bytes"), None);
    let page = text(&output.stderr);
    assert!(
        page.contains("2 ranks: the largest resident set is ") && page.contains("(rank 1), the smallest"),
        "{page}"
    );
}

fn death(bench: &Bench) -> Value {
    RunFolder::at(bench.path("run")).json()["death"].clone()
}

fn assert_oom(bench: &Bench, group: &Group, output: &Output) {
    let page = text(&output.stderr);
    assert_eq!(group.kills(), 1, "{page}");
    assert_eq!(output.status.code(), Some(137), "{page}");
    let death = death(bench);
    assert_eq!(death["cause"], "oom_kill", "{death}");
    assert_eq!((&death["signal"], &death["stage"]), (&Value::from(9), &Value::from("begun")));
    let told = death["groups"].as_array().unwrap().iter().find(|told| told["group"] == group.0.to_str().unwrap());
    let told = told.unwrap_or_else(|| panic!("{death}"));
    assert_eq!((told["oom_kill_after"].as_u64(), told["limit_bytes"].as_u64()), (Some(1), Some(64 * MIB)));
    assert!(told["peak_bytes"].as_u64().unwrap() > 60 * MIB);
    // Paths are long, and lines are wrapped.
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("The command ended by SIGKILL after "), "{page}");
    assert!(flat.contains("Likely cause: the kernel's out-of-memory killer: oom_kill rose by 1 in "), "{page}");
    assert!(flat.contains("limit 64 MiB, most ever in use 6"), "{page}");
    assert!(flat.contains("Host memory of the launch ") && flat.contains(" before: at least "), "{page}");
}

#[test]
fn a_command_that_put_itself_into_a_group_and_was_killed_in_it() {
    let Some(group) = Group::or_skip(64 * MIB) else { return };
    let bench = Bench::new();
    let script = "echo $$ >\"$1/cgroup.procs\" && exec python3 \"$2\" grow";
    let mut command = stagemark();
    command.args(["run", "--out"]).arg(bench.path("run")).args(["--", "sh", "-c", script, "sh"]).arg(&group.0);
    let output = finish(command.arg(loader()));
    assert_oom(&bench, &group, &output);
}

#[test]
fn a_profiler_within_the_group_tells_of_it_too() {
    // The profiler has its own 20 MiB in it.
    let Some(group) = Group::or_skip(64 * MIB) else { return };
    let bench = Bench::new();
    let procs = group.0.join("cgroup.procs");
    let mut command = bench.command(&["grow"]);
    // SAFETY: between fork and exec it opens and writes one file, which needs no lock of another thread.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || std::fs::write(&procs, "0"))
    };
    let output = finish(&mut command);
    assert_oom(&bench, &group, &output);
}

#[test]
fn a_worker_that_was_killed_counts_though_the_root_lived_on() {
    let Some(group) = Group::or_skip(64 * MIB) else { return };
    let bench = Bench::new();
    let script = "sh -c 'echo $$ >\"$1/cgroup.procs\" && exec python3 \"$2\" grow' sh \"$1\" \"$2\"; \
        echo the worker is gone; exit 3";
    let mut command = stagemark();
    command.args(["run", "--out"]).arg(bench.path("run")).args(["--", "sh", "-c", script, "sh"]).arg(&group.0);
    let output = finish(command.arg(loader()));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let death = death(&bench);
    assert_eq!((&death["cause"], &death["is_root"]), (&Value::from("oom_kill"), &Value::from(false)), "{death}");
    assert!(text(&output.stderr).contains(", and the command ended with exit status 3"), "{}", text(&output.stderr));
}

#[test]
fn other_deaths_are_told_apart_and_a_good_end_is_none() {
    let bench = |script: &str| {
        let bench = Bench::new();
        let mut command = stagemark();
        command.args(["run", "--out"]).arg(bench.path("run")).args(["--", "sh", "-c", script]);
        let output = finish(&mut command);
        (death(&bench), text(&output.stderr), output.status.code())
    };
    let (death, page, status) = bench("kill -KILL $$");
    assert_eq!((&death["cause"], status), (&Value::from("signal"), Some(137)));
    // Elsewhere on the host something may have been killed meanwhile, which is not this.
    assert!(page.contains("SIGKILL"), "{page}");
    let (death, page, status) = bench("kill -SEGV $$");
    assert_eq!((&death["signal"], status), (&Value::from(11), Some(139)));
    assert!(page.contains("Likely cause: SIGSEGV"), "{page}");
    let (death, page, status) = bench("echo reading weights; echo no such file >&2; exit 1");
    assert_eq!((&death["cause"], status), (&Value::from("exit"), Some(1)));
    assert!(page.contains("Likely cause: exit status 1.") && page.contains("  no such file\n"), "{page}");
    let (death, page, status) = bench("exit 0");
    assert_eq!((death, status), (Value::Null, Some(0)));
    assert!(!page.contains("Likely cause"), "{page}");
}
