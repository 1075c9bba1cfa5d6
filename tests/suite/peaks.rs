//! The largest memory of a launch, held against what the launch itself knew of it.
//!
//! Ticks are half a minute apart, and what is looked for lies between two: no sample has it but those of the stages.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::folder::{RunFolder, Stage};
use crate::support::{finish, folder, stagemark};

const MIB: u64 = 1 << 20;

/// What every script begins with: a stage that waits until it was looked at, what the kernel says of this process, and
/// memory that is there and gone.
const HEAD: &str = r#"
import array, os, resource, socket, sys

def stage(name):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = os.environ["NOTIFY_SOCKET"]
    s.connect("\0" + address[1:] if address.startswith("@") else address)
    s.send(b"X_STAGE=" + name.encode())
    ours, theirs = socket.socketpair()
    s.sendmsg([b"BARRIER=1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))])
    theirs.close()
    ours.recv(1)

def spike(mib):
    b = b"x" * (mib << 20)
    del b

def status(key):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(key + ":"))

def tell(**values):
    with open(os.environ["TRUTH"], "a") as f:
        f.write(__import__("json").dumps(values) + "\n")
"#;

struct Launch {
    folder: tempfile::TempDir,
    options: Vec<&'static str>,
}

impl Launch {
    fn new(options: &[&'static str]) -> Launch {
        Launch { folder: folder(), options: options.to_vec() }
    }

    fn truth(&self) -> PathBuf {
        self.folder.path().join("truth")
    }

    /// Runs a script; `None`, and said, where there is no python3.
    fn run(self, script: &str) -> Option<Run> {
        let path = self.folder.path().join("script.py");
        std::fs::write(&path, format!("{HEAD}{script}")).unwrap();
        self.run_command(&[&python()?, path.to_str().unwrap()])
    }

    fn run_command(self, command: &[&str]) -> Option<Run> {
        let out = self.folder.path().join("run");
        let mut run = stagemark();
        run.args(["run", "--interval", "30s", "--out"]).arg(&out).args(&self.options);
        for stage in ["a", "b", "c"] {
            run.args(["--stage", &format!("{stage}=notify")]);
        }
        run.args(["--stage", "over=exit:any", "--"]).args(command).env("TRUTH", self.truth());
        let output = finish(&mut run);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{told}");
        let text = std::fs::read_to_string(self.truth()).unwrap_or_default();
        let truth = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Some(Run { folder: RunFolder::at(out), truth, told, _scratch: self.folder })
    }
}

/// The interpreter itself: `python3` may be a script that runs others before it.
fn python() -> Option<String> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let path = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    if path.is_none() {
        eprintln!("SKIPPED: there is no python3, whose memory this is about");
    }
    Some(String::from_utf8(path?).unwrap().trim().to_owned())
}

struct Run {
    folder: RunFolder,
    truth: Vec<Value>,
    told: String,
    _scratch: tempfile::TempDir,
}

impl Run {
    /// What VmHWM of one image may be off by.
    fn error(&self) -> u64 {
        self.folder.json()["peaks"]["counter_error_bytes"].as_u64().unwrap()
    }

    fn stage(&self, stage: &str) -> Stage {
        self.folder.stage(stage)
    }

    /// Why a metric is absent, as far as the run says at its end.
    fn absent(&self, metric: &str) -> String {
        let json = self.folder.json();
        let absent = json["absent"].as_array().unwrap().iter().find(|absent| absent["metric"] == metric);
        absent.map(|absent| absent["reason"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    fn knows_births(&self) -> bool {
        self.folder.json()["sources"]["births"]["used"] == "perf stream"
    }

    fn truth(&self, key: &str) -> Vec<u64> {
        self.truth.iter().filter_map(|line| line[key].as_u64()).collect()
    }
}

struct Peak {
    low: u64,
    high: Option<u64>,
    basis: String,
}

fn peak(stage: &Stage, prefix: &str, gauge: &str) -> Peak {
    Peak {
        low: stage.known(&format!("{prefix}_{gauge}_low")),
        high: stage.number(&format!("{prefix}_{gauge}_high")),
        basis: stage.text(&format!("{prefix}_{gauge}_basis")).to_owned(),
    }
}

impl Peak {
    #[track_caller]
    fn contains(&self, truth: u64) {
        assert!(
            self.low <= truth && self.high.is_none_or(|high| truth <= high),
            "{} {:?} {truth}",
            self.low,
            self.high
        );
    }
}

#[test]
fn memory_that_came_and_went_between_two_samples_is_the_kernels() {
    let script = r#"
stage("a")
spike(512)
tell(peak=status("VmHWM"))
stage("b")
stage("c")
"#;
    let Some(run) = Launch::new(&[]).run(script) else { return };
    let error = run.error();
    let truth = run.truth("peak")[0];
    assert!(truth > 512 * MIB);
    assert!(run.folder.largest("rss_bytes").unwrap() < 256 * MIB, "a sample happened to see it");
    for (stage, prefix) in [("b", "peak"), ("b", "span_peak"), ("c", "peak"), ("over", "peak")] {
        let peak = peak(&run.stage(stage), prefix, "rss_bytes");
        assert!(peak.low >= truth - error && peak.high.unwrap() <= truth + 2 * error, "{stage} {prefix}");
        peak.contains(truth);
        assert_eq!(peak.basis, "kernel", "{stage} {prefix}");
    }
    assert!(peak(&run.stage("a"), "peak", "rss_bytes").high.unwrap() < 256 * MIB, "what came later is not in it");
    // From b to c nothing rose: what it was is between the samples and the mark.
    let quiet = peak(&run.stage("c"), "span_peak", "rss_bytes");
    assert!(quiet.low < 256 * MIB && quiet.high.unwrap() >= truth && quiet.basis == "bounds");
    let anon = peak(&run.stage("b"), "peak", "rss_anon_bytes");
    assert!(anon.high.unwrap() >= 512 * MIB && anon.basis == "bounds");
    assert!(run.told.contains("by the kernel's own mark."), "{}", run.told);
}

#[test]
fn reset_marks_make_each_interval_the_kernels_and_keep_the_whole() {
    let script = r#"
stage("a")
spike(512)
tell(first=status("VmHWM"))
stage("b")
spike(128)
tell(second=status("VmHWM"), told=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
stage("c")
"#;
    let Some(run) = Launch::new(&["--reset-peaks"]).run(script) else { return };
    let (error, first, second) = (run.error(), run.truth("first")[0], run.truth("second")[0]);
    assert!(first > 512 * MIB && (128 * MIB..512 * MIB).contains(&second), "{first} {second}");
    for (stage, truth) in [("b", first), ("c", second)] {
        let span = peak(&run.stage(stage), "span_peak", "rss_bytes");
        span.contains(truth);
        assert!(span.low >= truth - error && span.basis == "kernel", "{stage}");
        peak(&run.stage(stage), "peak", "rss_bytes").contains(first);
    }
    // It is what the launch itself is told, and so is said.
    assert!(run.truth("told")[0] < 512 * MIB);
    assert!(run.told.contains("--reset-peaks lowers"), "{}", run.told);
    assert!(run.folder.json()["warnings"].to_string().contains("--reset-peaks lowers"));
    assert_eq!(run.folder.events("peaks_reset").len(), 4, "one a stage");
}

#[test]
fn an_exec_to_a_small_program_keeps_the_large_ones_peak() {
    let script = r#"
if len(sys.argv) == 1:
    spike(256)
    tell(peak=status("VmHWM"))
    stage("a")
    os.execv(sys.executable, [sys.executable, sys.argv[0], "small"])
stage("b")
tell(peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"#;
    let Some(run) = Launch::new(&[]).run(script) else { return };
    let truth = run.truth("peak")[1];
    assert!(truth >= 256 * MIB);
    let small = peak(&run.stage("b"), "peak", "rss_bytes");
    small.contains(truth);
    assert!(small.low >= truth - run.error());
    assert_eq!(small.basis, "bounds");
    assert!(run.absent("rss_high_water_high_bytes").contains("changed its program between two looks"));
    // The profiler reaped it, and ru_maxrss is of both.
    let whole = peak(&run.stage("over"), "peak", "rss_bytes");
    whole.contains(truth);
    assert!(whole.high.unwrap() <= truth + 2 * run.error());
}

#[test]
fn forked_workers_are_between_the_largest_and_the_sum_of_their_peaks() {
    let script = r#"
ours, theirs = socket.socketpair()
for mib in (64, 128, 192):
    if os.fork() == 0:
        ours.close()
        spike(mib)
        tell(peak=status("VmHWM"))
        theirs.send(b"x")
        theirs.recv(1)
        os._exit(0)
theirs.close()
for _ in range(3):
    ours.recv(1)
tell(own=status("VmHWM"))
stage("a")
ours.close()
for _ in range(3):
    os.wait()
stage("b")
"#;
    let Some(run) = Launch::new(&[]).run(script) else { return };
    let (peaks, own) = (run.truth("peak"), run.truth("own")[0]);
    assert_eq!(peaks.len(), 3);
    let (largest, sum) = (*peaks.iter().max().unwrap(), own + peaks.iter().sum::<u64>());
    let at = peak(&run.stage("a"), "peak", "rss_bytes");
    // The tree's own peak is somewhere between: its largest process was there, and no process had more than its peak.
    assert!(at.low >= largest - run.error(), "{} {largest}", at.low);
    let high = at.high.unwrap_or_else(|| panic!("{}", run.absent("rss_high_water_high_bytes")));
    assert!((sum..=sum + 8 * run.error() + 8 * MIB).contains(&high), "{high} {sum}");
    assert_eq!(at.basis, "bounds");
    // By then they have ended, and nobody could read them at their end.
    assert_eq!(peak(&run.stage("b"), "peak", "rss_bytes").high, None);
    let reason = run.absent("rss_high_water_high_bytes");
    assert!(reason.contains("between two looks"), "{reason}");
    assert!(run.told.contains("no upper bound is known"), "{}", run.told);
}

#[test]
fn a_child_that_nobody_saw_takes_the_high_away() {
    let script = r#"
stage("a")
pid = os.fork()
if pid == 0:
    spike(64)
    os._exit(0)
os.wait()
stage("b")
"#;
    let Some(run) = Launch::new(&[]).run(script) else { return };
    assert!(peak(&run.stage("a"), "peak", "rss_bytes").high.is_some());
    assert_eq!(peak(&run.stage("b"), "peak", "rss_bytes").high, None);
    let reason = run.absent("rss_high_water_high_bytes");
    if run.knows_births() {
        assert!(reason.contains("was born and gone between two looks"), "{reason}");
    } else {
        assert!(reason.contains("between two looks"), "{reason}");
    }
}

/// Beside a parent whose children the kernel reaps, others on this host come and go between two looks.
const DEAF: &str = r#"
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ours, theirs = socket.socketpair()
for _ in range(2):
    if os.fork() == 0:
        ours.close()
        theirs.recv(1)
        os._exit(0)
theirs.close()
stage("a")
"#;

fn amid_strangers(script: &str) -> Option<Run> {
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                Command::new("true").status().unwrap();
            }
        });
        let run = Launch::new(&[]).run(&format!("{DEAF}{script}"));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        run
    })
}

#[test]
fn strangers_take_no_high_away_where_the_tree_s_own_births_are_recorded() {
    let script = r#"
# Until somebody else was given a number and is gone.
last = lambda: int(open("/proc/loadavg").read().split()[-1])
first = last()
while last() in (first, first + 1):
    pass
stage("b")
"#;
    let Some(run) = amid_strangers(script) else { return };
    if !run.knows_births() {
        return eprintln!("NOT TESTED HERE: no perf events");
    }
    for stage in ["a", "b"] {
        let high = peak(&run.stage(stage), "peak", "rss_bytes").high;
        assert!(high.is_some(), "{stage}: {}", run.absent("rss_high_water_high_bytes"));
    }
}

#[test]
fn a_child_that_nobody_saw_and_nobody_waited_for_takes_the_high_away() {
    let script = r#"
pid = os.fork()
if pid == 0:
    spike(64)
    os._exit(0)
try:
    # Both children go on until this process has ended.
    while os.waitid(os.P_PID, pid, os.WEXITED):
        pass
except ChildProcessError:
    pass
stage("b")
"#;
    let Some(run) = amid_strangers(script) else { return };
    if !run.knows_births() {
        return eprintln!("NOT TESTED HERE: no perf events");
    }
    assert!(peak(&run.stage("a"), "peak", "rss_bytes").high.is_some());
    assert_eq!(peak(&run.stage("b"), "peak", "rss_bytes").high, None);
    let reason = run.absent("rss_high_water_high_bytes");
    assert!(reason.contains("was born and gone between two looks"), "{reason}");
}

#[test]
fn a_shell_before_it_is_bounded_at_the_end() {
    let launch = Launch::new(&[]);
    let path = launch.folder.path().join("script.py");
    std::fs::write(&path, format!("{HEAD}\nspike(64)\nstage(\"a\")\n")).unwrap();
    let Some(python) = python() else { return };
    let line = format!("exec {python} {}", path.display());
    let Some(run) = launch.run_command(&["sh", "-c", &line]) else { return };
    assert!(peak(&run.stage("a"), "peak", "rss_bytes").low >= 64 * MIB);
    let over = peak(&run.stage("over"), "peak", "rss_bytes");
    assert!(over.high.unwrap() < 192 * MIB && over.low >= 64 * MIB);
    // It may have been absent for another reason in between.
    let told = run.folder.events("absent");
    let mut reasons = told.iter().filter(|row| row["name"] == "rss_high_water_high_bytes").map(|row| &row["detail"]);
    assert!(reasons.any(|reason| reason.contains("changed its program")), "{told:?}");
}

#[test]
fn a_control_group_of_its_own_is_made_read_and_removed() {
    let script = r#"
tell(group=1)
spike(256)
stage("a")
if os.fork() == 0:
    spike(512)
    os._exit(0)
os.wait()
stage("b")
stage("c")
"#;
    let Some(run) = Launch::new(&["--cgroup", "auto"]).run(script) else { return };
    let json = run.folder.json();
    let group = &json["cgroup"];
    if group.is_null() {
        let reason = run.absent("cgroup_peak_bytes");
        assert!(reason.contains("no control group of its own"), "{reason}");
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let path = group["path"].as_str().unwrap();
    assert!(path.contains("/stagemark-") && !std::path::Path::new(path).exists(), "{path}");
    assert_eq!(group["left"], Value::Null);
    // The child that no sample and no mark of a process could show.
    let at = peak(&run.stage("b"), "peak", "cgroup_bytes");
    assert!(at.basis == "kernel" && at.low >= 512 * MIB && at.high.unwrap() < 900 * MIB, "{} {:?}", at.low, at.high);
    let span = peak(&run.stage("b"), "span_peak", "cgroup_bytes");
    assert_eq!((span.basis.as_str(), span.low), ("kernel", at.low));
    let quiet = peak(&run.stage("c"), "span_peak", "cgroup_bytes");
    assert!(quiet.basis == "bounds" && quiet.low < 256 * MIB && quiet.high == at.high);
    let row = run.stage("c");
    let (all, anon, file) = (row.known("cgroup_bytes"), row.known("cgroup_anon_bytes"), row.known("cgroup_file_bytes"));
    // The anonymous memory of the one process that is left, to the memory that processors hold in advance.
    assert!(anon + file <= all + 8 * MIB && anon > 2 * MIB, "{all} {anon} {file}");
}

#[test]
fn a_group_with_somebody_in_it_is_left_to_them() {
    let launch = Launch::new(&["--cgroup", "auto"]);
    let Some(run) = launch.run("if os.fork() == 0:\n    os.setsid()\n    for fd in (0, 1, 2): os.close(fd)\n    tell(pid=os.getpid())\n    import signal\n    signal.pause()\nimport time\nwhile not os.path.exists(os.environ['TRUTH']): time.sleep(0.001)\nstage(\"a\")\n") else { return };
    let pid = i32::try_from(run.truth("pid")[0]).unwrap();
    let group = run.folder.json()["cgroup"].clone();
    crate::support::signal(pid, nix::sys::signal::Signal::SIGKILL);
    if group.is_null() {
        eprintln!("SKIPPED: {}", run.absent("cgroup_peak_bytes"));
        return;
    }
    let left = group["left"].as_str().unwrap().to_owned();
    assert!(left.contains("1 process is still in the control group"), "{left}");
    assert!(run.told.contains("still in the control group"), "{}", run.told);
    let path = group["path"].as_str().unwrap();
    crate::support::eventually("the group is empty", || std::fs::remove_dir(path).ok());
}

#[test]
fn without_being_asked_no_group_is_made() {
    let Some(run) = Launch::new(&[]).run("stage(\"a\")\n") else { return };
    assert!(run.folder.json()["cgroup"].is_null());
    assert!(run.absent("cgroup_bytes").contains("--cgroup auto"));
    assert!(run.absent("rss_span_high_water_low_bytes").contains("--reset-peaks"));
}
