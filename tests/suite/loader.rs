//! The reference loader's modes, held against its own truth.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use stagemark_fixtures::models::{Fill, uniform};
use tempfile::TempDir;

use crate::support::reference_loader;

const PAYLOAD: u64 = 32 << 20;
const PAGE: u64 = 4096;
const ALL_STAGES: [&str; 3] = ["mapping_available", "module_populated", "first_response"];
const HEAP_STAGES: [&str; 2] = ["module_populated", "first_response"];

/// A model file and a place for the truth.
struct Bench {
    _folder: TempDir,
    model: PathBuf,
    size: u64,
    header: u64,
    truth: PathBuf,
}

impl Bench {
    fn new() -> Bench {
        let folder = TempDir::new().unwrap();
        let model = folder.path().join("model.safetensors");
        let written = uniform(&model, PAYLOAD, 8, Fill::Pattern).unwrap();
        Bench {
            truth: folder.path().join("truth.jsonl"),
            size: written.size,
            header: written.payload[0].start,
            _folder: folder,
            model,
        }
    }

    fn command(&self, arguments: &str) -> Command {
        let [program, verb] = reference_loader();
        let mut command = Command::new(program);
        command.args([verb, "--model"]).arg(&self.model).arg("--truth").arg(&self.truth).arg("--mode");
        command.args(arguments.split_whitespace()).stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
        command
    }

    fn run(&self, arguments: &str) -> Load {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
        Load::new(&output, &self.truth)
    }
}

/// What a load printed and what it wrote down.
struct Load {
    lines: Vec<String>,
    truth: Vec<Value>,
}

impl Load {
    fn new(output: &Output, truth: &Path) -> Load {
        let lines = String::from_utf8(output.stdout.clone()).unwrap().lines().map(String::from).collect();
        let truth = std::fs::read_to_string(truth).unwrap();
        Load { lines, truth: truth.lines().map(|line| serde_json::from_str(line).unwrap()).collect() }
    }

    /// The stages in the order in which they were printed. Their times never fall.
    fn stages(&self) -> Vec<&str> {
        let mut last = 0;
        let mut stages = Vec::new();
        for line in &self.lines {
            let Some((stage, time)) = line.strip_prefix("stage ").and_then(|line| line.split_once(" t=")) else {
                continue;
            };
            let time: u64 = time.replace('.', "").parse().unwrap();
            assert!(time >= last, "{:?}", self.lines);
            last = time;
            stages.push(stage);
        }
        stages
    }

    fn checksum(&self) -> &str {
        self.lines.iter().find_map(|line| line.strip_prefix("answer ")).expect("an answer")
    }

    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.truth.iter().filter(|line| line["truth"] == kind).collect()
    }

    fn mark(&self, stage: &str, field: &str) -> u64 {
        let marks = self.of_kind("mark");
        let mark = marks.iter().find(|mark| mark["name"] == stage).expect("a mark");
        mark[field].as_u64().unwrap()
    }

    fn total(&self, field: &str) -> u64 {
        let totals = self.of_kind("total");
        assert_eq!(totals.len(), 1);
        let sum: u64 = self.of_kind("process").iter().map(|process| process[field].as_u64().unwrap()).sum();
        assert_eq!(totals[0][field].as_u64().unwrap(), sum, "the total of {field} is not the processes' sum");
        sum
    }
}

#[test]
fn lazy_mapping_touches_what_it_was_told_and_the_rest_at_first_use() {
    let bench = Bench::new();
    let load = bench.run("mmap-lazy --touch 8MiB --advice random");
    assert_eq!(load.stages(), ALL_STAGES);
    assert_eq!(load.mark("mapping_available", "touched_bytes"), 0);
    assert_eq!(load.mark("module_populated", "touched_bytes"), 8 << 20);
    assert_eq!(load.mark("first_response", "touched_bytes"), PAYLOAD);
    for stage in ALL_STAGES {
        assert_eq!(load.mark(stage, "mapped_bytes"), bench.size);
    }
    assert_eq!(load.total("ever_mapped_bytes"), bench.size);
    assert_eq!(load.total("ever_anonymous_bytes"), 0);
    assert!(load.total("read_bytes") < PAGE, "the header's start alone is read");
}

#[test]
fn every_way_in_gives_the_same_weights() {
    let bench = Bench::new();
    let reference = bench.run("mmap-lazy").checksum().to_owned();
    let modes = [
        "mmap-populate --shared",
        "read-heap",
        "read-heap --touch 5000",
        "odirect",
        "odirect --touch 5000",
        "prefetch-then-map",
        "map-and-clone",
        "map-and-clone --drop-mapping",
        "map-and-clone --touch 5000",
        "log-early",
    ];
    for mode in modes {
        assert_eq!(bench.run(mode).checksum(), reference, "{mode}");
    }
}

#[test]
fn a_populated_mapping_is_all_there_at_once() {
    let load = Bench::new().run("mmap-populate");
    assert_eq!(load.stages(), ALL_STAGES);
    assert_eq!(load.mark("mapping_available", "touched_bytes"), PAYLOAD);
    assert_eq!(load.total("touched_bytes"), PAYLOAD);
}

#[test]
fn reading_to_the_heap_maps_nothing_and_fills_anonymous_memory() {
    let load = Bench::new().run("read-heap");
    assert_eq!(load.stages(), HEAP_STAGES);
    assert_eq!(load.total("ever_mapped_bytes"), 0);
    assert_eq!(load.total("filled_bytes"), PAYLOAD);
    assert_eq!(load.total("ever_anonymous_bytes"), PAYLOAD);
    let read = load.total("read_bytes");
    assert!((PAYLOAD..PAYLOAD + PAGE).contains(&read), "{read}");
    assert!(load.total("read_syscalls") >= PAYLOAD >> 20);
    assert!(load.total("minor_faults") + load.total("major_faults") > 0);
}

#[test]
fn direct_reads_pass_the_page_cache_by_in_whole_pages() {
    let bench = Bench::new();
    let load = bench.run("odirect");
    assert_eq!(load.stages(), HEAP_STAGES);
    let direct = load.total("direct_bytes");
    assert_eq!(direct, bench.size - bench.header / PAGE * PAGE);
    assert!(load.total("read_bytes") < PAGE);
    assert_eq!(load.total("ever_mapped_bytes"), 0);
}

#[test]
fn prefetching_reads_and_then_maps() {
    let load = Bench::new().run("prefetch-then-map --touch 4096");
    assert_eq!(load.stages(), ALL_STAGES);
    let read = load.mark("mapping_available", "read_bytes");
    assert!((PAYLOAD..PAYLOAD + PAGE).contains(&read), "{read}");
    assert_eq!(load.mark("module_populated", "touched_bytes"), 4096);
    assert_eq!(load.total("touched_bytes"), PAYLOAD);
    assert_eq!(load.mark("module_populated", "anonymous_bytes"), 0);
}

#[test]
fn a_clone_keeps_or_drops_its_mapping() {
    let bench = Bench::new();
    let kept = bench.run("map-and-clone");
    assert_eq!(kept.stages(), ALL_STAGES);
    assert_eq!(kept.mark("module_populated", "mapped_bytes"), bench.size);
    assert_eq!(kept.total("filled_bytes"), PAYLOAD);
    std::fs::remove_file(&bench.truth).unwrap();
    let dropped = bench.run("map-and-clone --drop-mapping");
    assert_eq!(dropped.stages(), ALL_STAGES);
    assert_eq!(dropped.mark("mapping_available", "mapped_bytes"), bench.size);
    assert_eq!(dropped.mark("module_populated", "mapped_bytes"), 0);
    assert_eq!(dropped.mark("module_populated", "anonymous_bytes"), PAYLOAD);
    assert_eq!(dropped.total("touched_bytes"), PAYLOAD);
}

#[test]
fn an_early_log_line_is_not_a_load() {
    let load = Bench::new().run("log-early");
    assert_eq!(load.stages(), ALL_STAGES);
    assert_eq!(load.mark("module_populated", "touched_bytes"), 0);
    let steps = load.of_kind("step");
    let populated = steps.iter().find(|step| step["name"] == "really populated").unwrap();
    assert_eq!(populated["touched_bytes"], PAYLOAD);
    assert!(populated["t_ns"].as_u64().unwrap() >= load.mark("module_populated", "t_ns"));
}

#[test]
fn silence_is_silent_and_its_truth_is_kept() {
    let load = Bench::new().run("silent");
    assert_eq!(load.lines, Vec::<String>::new());
    assert_eq!(load.mark("module_populated", "touched_bytes"), PAYLOAD);
}

#[test]
fn ranks_share_the_payload_and_reach_stages_together() {
    let bench = Bench::new();
    let load = bench.run("mmap-lazy --touch 1GiB --fork 3");
    assert_eq!(load.stages(), ALL_STAGES);
    assert_eq!(load.total("touched_bytes"), PAYLOAD);
    assert_eq!(load.total("ever_mapped_bytes"), 3 * bench.size);
    let ranks = load.of_kind("process").into_iter().filter(|process| process["name"] == "rank");
    let pids: std::collections::HashSet<u64> = ranks.map(|rank| rank["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    // Each rank's mark and then the leader's: no rank is past a stage before all are there.
    let marks: Vec<&str> = load.of_kind("mark").iter().map(|mark| mark["name"].as_str().unwrap()).collect();
    let expected: Vec<&str> = ALL_STAGES.into_iter().flat_map(|stage| [stage; 4]).collect();
    assert_eq!(marks, expected);
    for direct in ["read-heap", "odirect"] {
        std::fs::remove_file(&bench.truth).unwrap();
        let load = bench.run(&format!("{direct} --fork 3"));
        assert_eq!(load.stages(), HEAP_STAGES);
        assert!((PAYLOAD..PAYLOAD + 3 * 2 * PAGE).contains(&load.total("filled_bytes")));
    }
}

#[test]
fn short_lived_children_read_and_are_waited_for_or_not() {
    for reaping in ["", "--ignore-sigchld"] {
        let load = Bench::new().run(&format!("mmap-lazy --short-children 4 --child-bytes 3MiB {reaping}"));
        let children = load.of_kind("process").into_iter().filter(|process| process["name"] == "short-child");
        assert_eq!(children.map(|child| child["read_bytes"].as_u64().unwrap()).collect::<Vec<_>>(), [3 << 20; 4]);
        let read = load.total("read_bytes");
        assert!((12 << 20..(12 << 20) + PAGE).contains(&read), "{read}");
        assert_eq!(load.stages(), ALL_STAGES);
    }
}

#[test]
fn a_daemonised_grandchild_does_the_loading() {
    let bench = Bench::new();
    let child = bench.command("map-and-clone --double-fork").stdout(Stdio::piped()).spawn().unwrap();
    let root = u64::from(child.id());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let load = Load::new(&output, &bench.truth);
    assert_eq!(load.stages(), ALL_STAGES);
    assert_eq!(load.total("filled_bytes"), PAYLOAD);
    assert_ne!(load.of_kind("process")[0]["pid"], root);
    assert_eq!(load.of_kind("total")[0]["pid"], root);
}

#[test]
fn the_first_request_is_the_first_use() {
    let bench = Bench::new();
    let mut server = Server::start(bench.command("mmap-lazy --serve 0 --hold until-stdin-closes"));
    let address = server.listening();
    assert!(!server.seen.iter().any(|line| line.starts_with("stage first_response")));
    let (status, body) = ask(&address);
    assert_eq!(status, 200);
    server.until("stage first_response");
    assert_eq!(ask(&address), (status, body.clone()), "it stays up and says the same");
    let output = server.end();
    assert!(output.status.success());
    let load = Load::new(&output, &bench.truth);
    assert_eq!(load.mark("module_populated", "touched_bytes"), 0);
    assert_eq!(load.mark("first_response", "touched_bytes"), PAYLOAD);
    std::fs::remove_file(&bench.truth).unwrap();
    assert!(body.contains(bench.run("read-heap").checksum()));
}

#[test]
fn an_early_listener_says_503_until_it_is_populated() {
    let bench = Bench::new();
    // Slow enough that the first request comes long before the end.
    let command = bench.command("mmap-lazy --touch 32MiB --pace 8MiB --serve 0 --listen-early");
    let mut server = Server::start(command);
    let address = server.listening();
    assert_eq!(ask(&address).0, 503);
    server.until("stage module_populated");
    assert_eq!(ask(&address).0, 200);
    assert!(server.end().status.success());
}

#[test]
fn ranks_serve_through_their_leader() {
    let bench = Bench::new();
    let mut server = Server::start(bench.command("read-heap --fork 2 --serve 0"));
    let address = server.listening();
    assert_eq!(ask(&address).0, 200);
    assert!(server.end().status.success());
}

#[test]
fn a_bound_port_that_does_not_listen_refuses() {
    let bench = Bench::new();
    // A port that was free a moment ago, as nothing prints the one that is only bound.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hold = "--hold until-stdin-closes";
    let mut server = Server::start(bench.command(&format!("mmap-lazy --serve {port} --bind-without-listen {hold}")));
    server.until("stage first_response");
    let refused = TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(std::net::TcpListener::bind(("127.0.0.1", port)).is_err(), "the port is held");
    assert!(server.end().status.success());
}

#[test]
fn failures_have_their_exit_statuses() {
    let bench = Bench::new();
    assert_eq!(bench.command("mmap-lazy --exit-status 7").output().unwrap().status.code(), Some(7));
    let wrong = bench.command("mmap-sideways").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("mmap-lazy"));
    std::fs::remove_file(&bench.model).unwrap();
    for shape in ["", "--fork 2", "--short-children 1", "--double-fork"] {
        let missing = bench.command(&format!("mmap-lazy {shape}")).output().unwrap();
        assert_eq!(missing.status.code(), Some(1), "{shape}");
        assert!(String::from_utf8(missing.stderr).unwrap().contains("model.safetensors"), "{shape}");
    }
}

/// A loader that runs while the test talks to it.
struct Server {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    seen: Vec<String>,
}

impl Server {
    fn start(mut command: Command) -> Server {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Server { child, lines, seen: Vec::new() }
    }

    /// Reads output up to a line with this start; the rest of that line.
    fn until(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "no line {start:?} in {:?}", self.seen);
            self.seen.push(line.trim_end().to_owned());
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn listening(&mut self) -> String {
        self.until("listening on http://")
    }

    /// Closes its stdin and waits for its end; all that it printed.
    fn end(&mut self) -> Output {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        self.seen.extend(rest.lines().map(String::from));
        let status = self.child.wait().unwrap();
        Output { status, stdout: self.seen.join("\n").into_bytes(), stderr: Vec::new() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where the test has failed; after `end` there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One HTTP request; status and body.
fn ask(address: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = r#"{"prompt":"hi"}"#;
    write!(stream, "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
