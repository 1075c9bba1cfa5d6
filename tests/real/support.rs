//! Where the loaders are, the models that they are given, and launches that end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::folder::{Row, RunFolder, Stage};

/// A launch that takes longer hangs. vLLM is ready after a minute where it has two cores for itself; machines that do
/// other work besides are given time.
const LIMIT: Duration = Duration::from_secs(900);
/// How long a launch that hangs has to end after a signal.
const END: Duration = Duration::from_secs(30);

pub fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real")
}

/// A program of a part that install.sh made.
pub fn program(part: &str, name: &str) -> PathBuf {
    let root = std::env::var_os("STAGEMARK_REAL_LOADERS").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real-loaders"));
    let program = root.join(part).join("bin").join(name);
    assert!(program.exists(), "{} is missing: run tests/real/install.sh {} {part}", program.display(), root.display());
    program
}

/// The interpreter of a part's virtual environment.
pub fn python(part: &str) -> PathBuf {
    program(part, "python")
}

/// A folder that a script of `loaders` fills, and what the script said.
pub fn made(name: &str, python: &Path, script: &str, arguments: &[&str]) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(python);
    command.arg(here().join("loaders").join(script)).arg(&folder).args(arguments);
    let output = output_of(&mut command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    (folder, text(&output.stdout))
}

/// The model that servers are given, written once for all tests of this process: `hf` and `llama.gguf`.
pub fn llama() -> &'static (PathBuf, Payloads) {
    static MADE: OnceLock<(PathBuf, Payloads)> = OnceLock::new();
    MADE.get_or_init(|| {
        let (folder, said) = made("llama", Path::new("python3"), "make_llama.py", &[]);
        let of = |form: &str| said.lines().find_map(|line| line.strip_prefix(form)?.trim().parse().ok()).unwrap();
        (folder, Payloads { hf: of("hf"), gguf: of("gguf") })
    })
}

/// The payload of each form of a model, in bytes.
pub struct Payloads {
    pub hf: u64,
    pub gguf: u64,
}

/// The files of a folder whose names end like this.
pub fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().ends_with(end)).collect()
}

/// Takes a file out of the page cache.
pub fn evict(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    // Dirty pages would stay.
    file.sync_all().unwrap();
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A port of the loopback that nobody listened on a moment ago.
pub fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Runs a command in a process group of its own, and ends that where it hangs.
pub fn output_of(command: &mut Command) -> Output {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let group = Pid::from_raw(child.id().try_into().unwrap());
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    if let Ok(output) = end.recv_timeout(LIMIT) {
        return output.unwrap();
    }
    // The profiler passes it on. Then what is left of the group goes, whatever it is at.
    let _ = kill(group, Signal::SIGTERM);
    let output = end.recv_timeout(END);
    let _ = killpg(group, Signal::SIGKILL);
    let output = output.or_else(|_| end.recv_timeout(END));
    let said = output.map(|output| output.unwrap()).map(|output| text(&output.stdout) + &text(&output.stderr));
    panic!("not over within {LIMIT:?}: {command:?}\n{}", said.unwrap_or_default());
}

/// A launch as a user types it, `stagemark run OPTIONS -- COMMAND`, which is over.
pub struct Launch {
    pub run: RunFolder,
    pub output: Output,
    scratch: TempDir,
}

impl Launch {
    /// The model files are evicted first: the launch finds them cold.
    pub fn of(artifacts: &[PathBuf], options: &[&str], command: &Command) -> Launch {
        artifacts.iter().for_each(|path| evict(path));
        let scratch = tempfile::tempdir().unwrap();
        let out = scratch.path().join("run");
        let mut stagemark = Command::new(env!("CARGO_BIN_EXE_stagemark"));
        stagemark.current_dir(scratch.path()).args(["run", "--quiet", "--out"]).arg(&out).args(options);
        stagemark.arg("--").arg(command.get_program()).args(command.get_args());
        // Caches, settings and statistics of the loaders stay out of the user's home.
        stagemark.env("HOME", scratch.path()).env_remove("XDG_CACHE_HOME").env_remove("XDG_CONFIG_HOME");
        stagemark.env("HF_HUB_OFFLINE", "1").env("DO_NOT_TRACK", "1").env("GLOO_SOCKET_IFNAME", "lo");
        stagemark.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = output_of(&mut stagemark);
        Launch { run: RunFolder::at(out), output, scratch }
    }

    /// What holds for every launch that went well, of a model of this payload.
    pub fn assert_sound(&self, stage_file: &str, payload: u64) {
        let said = || format!("{}\n{}", text(&self.output.stdout), text(&self.output.stderr));
        assert_eq!(self.output.status.code(), Some(0), "{}", said());
        let meta = self.run.json();
        assert_eq!(meta["stages"]["name"], stage_file, "{}", meta["stages"]);
        for row in self.run.rows("stages.csv").into_iter().filter(|row| row["status"] == "reached") {
            let stage = Stage::new(row);
            assert_eq!(stage.known("payload_bytes"), payload, "{}", stage.text("stage"));
            let parts = stage.known("resident_payload_bytes") + stage.known("nonresident_payload_bytes");
            assert_eq!(parts, payload, "{}", stage.text("stage"));
            assert!(stage.known("mapped_payload_bytes") <= payload, "a union, never a sum");
        }
        assert!(self.run.largest("mapped_payload_bytes") <= Some(payload), "a union, never a sum");
        self.assert_gone();
    }

    /// Whether a stage was not seen because another one's request ended the run first: each is asked for by itself, and
    /// what answers both from one moment on may answer the last before the first is asked again.
    pub fn was_overtaken(&self, stage: &str) -> bool {
        let stage = self.run.stage(stage);
        !stage.reached() && stage.text("reason").ends_with("the run was stopped at first_response first")
    }

    /// Each of these was reached, and none certainly before one that stands before it; but `ready`, which may have been
    /// overtaken.
    pub fn assert_in_order(&self, stages: &[&str]) {
        let mut last = i64::MIN;
        for name in stages {
            if *name == "ready" && self.was_overtaken(name) {
                continue;
            }
            let stage = self.run.stage(name);
            assert!(stage.reached(), "{name}: {} {}", stage.text("status"), stage.text("reason"));
            assert!(stage.time("t_ns") >= last, "{name} comes too early: {stages:?}");
            // The event lies in [t - u, t].
            if let Some(uncertainty) = stage.number("uncertainty_ns") {
                last = last.max(stage.time("t_ns") - i64::try_from(uncertainty).unwrap());
            }
        }
    }

    /// A stage that was reached by an acceptable response, the last of the attempts; it is kept, and has text here.
    pub fn assert_answered(&self, stage: &str, pointer: &str) {
        assert_eq!(self.run.stage(stage).text("evidence"), "http");
        let probes: Vec<Row> = self.run.events("probe").into_iter().filter(|row| row["name"] == stage).collect();
        let accepted: Vec<bool> = probes.iter().map(|row| detail(row, "accepted") == "true").collect();
        assert!(accepted.iter().filter(|accepted| **accepted).count() == 1, "one is enough: {probes:?}");
        assert_eq!(accepted.last(), Some(&true), "{probes:?}");
        let kept = text(&self.run.bytes(&format!("response-{stage}.txt")));
        let (_, body) = kept.split_once("\n\n").unwrap_or_else(|| panic!("no body: {kept}"));
        let body: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {kept}"));
        assert!(body.pointer(pointer).and_then(|text| text.as_str()).is_some_and(|text| !text.is_empty()), "{kept}");
    }

    pub fn at(&self, stage: &str, metric: &str) -> u64 {
        self.run.stage(stage).known(metric)
    }

    /// Which process each mapping event is of, and how far it is from the launched command: 0 is the command.
    pub fn mapping_generations(&self) -> Vec<usize> {
        let parents: std::collections::HashMap<String, String> =
            self.run.events("born").into_iter().map(|row| (row["pid"].clone(), detail(&row, "parent"))).collect();
        let command = &self.run.events("exit")[0]["pid"];
        let generation = |pid: &String| {
            let ancestry = std::iter::successors(Some(pid), |pid| parents.get(*pid));
            ancestry.take(100).position(|pid| pid == command).unwrap_or_else(|| panic!("{pid} is not of the tree"))
        };
        self.run.events("mapped").iter().map(|row| generation(&row["pid"])).collect()
    }

    /// Nothing of the tree runs on: what was told to end may take a moment for it.
    fn assert_gone(&self) {
        // A number that was taken again is another program's; what nobody waits for stays as a zombie, without one.
        let mine = format!("HOME={}\0", self.scratch.path().display());
        let born = self.run.events("born");
        let environment = |pid: &str| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let alive = || born.iter().map(|row| &row["pid"]).filter(|pid| text(&environment(pid)).contains(&mine));
        let begun = Instant::now();
        while alive().next().is_some() {
            assert!(begun.elapsed() < END, "still there: {:?}", alive().collect::<Vec<_>>());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A field of an event's detail, as text.
pub fn detail(row: &Row, field: &str) -> String {
    let detail: serde_json::Value = serde_json::from_str(&row["detail"]).unwrap();
    match &detail[field] {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
