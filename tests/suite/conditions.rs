//! Conditions that have to be asked, held against servers that are not ready, not right, or not there.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, setsockopt, socket, sockopt,
};
use stagemark::event::{Event, Evidence, Mark, Probe, What};
use stagemark::run::Run;

use super::support::{LIMIT, children_named, eventually, folder, signal, stagemark, state_of};

const MODE: &str = "STAGEMARK_TEST_SERVER";
const RUN: &str = "STAGEMARK_TEST_RUN";

/// The server of these tests, in a process that `stagemark run` launches: no test of its own. Its standard input is a
/// socket that is bound and does not listen yet.
#[test]
fn server() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let run = PathBuf::from(std::env::var_os(RUN).unwrap());
    if mode == "never" {
        // Bound, and nobody listens: until it was refused a few times.
        eventually("attempts", || (probe_rows(&run) >= 3).then_some(()));
        return;
    }
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    eventually("a refused attempt", || (probe_rows(&run) >= 1).then_some(()));
    listen(&socket, Backlog::new(16).unwrap()).unwrap();
    let listener = TcpListener::from(socket);
    let mut held = Vec::new();
    for number in 0.. {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = read_head(&mut stream);
        let first = number < 3;
        // A client that went away is none of our trouble.
        let _ = match mode.as_str() {
            "busy" if first => respond(&mut stream, "503 Service Unavailable", b"{}"),
            "wrong" if first => respond(&mut stream, "200 OK", b"{\"error\": \"loading\"}"),
            "wrong-type" if first => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"text\":1"),
            "hang" if number == 0 => {
                held.push(stream);
                continue;
            }
            "stall" if number == 0 => {
                let _ = begin_stream(&mut stream);
                held.push(stream);
                continue;
            }
            "stall" => begin_stream(&mut stream).and_then(|()| {
                // Long enough to be seen between the two times, whatever else the machine does.
                std::thread::sleep(Duration::from_millis(30));
                stream.write_all(b"6\r\n\"text\"\r\n0\r\n\r\n")
            }),
            "bytes" => respond(&mut stream, "200 OK", b"\xff\xfe \"text\" \xff"),
            "echo" => {
                let said = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authorization")).unwrap();
                respond(&mut stream, "200 OK", format!("\"text\" {said}").as_bytes())
            }
            "redirect" => stream.write_all(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"),
            _ => respond(&mut stream, "200 OK", b"{\"text\": \"hi\", \"n\": [1]}"),
        };
    }
}

fn begin_stream(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:\r\n")
}

fn respond(stream: &mut TcpStream, status: &str, body: &[u8]) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len())?;
    stream.write_all(body)
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0; 1];
    while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|length| length > 0) {
        text.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    // What is left unread when the connection is closed would make a reset of it, which may overtake the answer.
    let length =
        text.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let _ = stream.take(length.unwrap_or(0)).read_to_end(&mut Vec::new());
    text
}

/// The connection of a first request: the first of all, for nobody is connected to before the start.
fn asked_at(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    assert!(!read_head(&mut stream).is_empty(), "a connection without a request");
    stream
}

/// Attempts that are recorded so far.
fn probe_rows(run: &Path) -> usize {
    let text = std::fs::read_to_string(run.join("events.csv")).unwrap_or_default();
    text.lines().filter(|line| line.contains(",probe,")).count()
}

/// A port of the loopback that is taken and on which nobody listens.
fn bound() -> (OwnedFd, u16) {
    let own = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&own, sockopt::ReuseAddr, &true).unwrap();
    bind(own.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    let port = getsockname::<SockaddrIn>(own.as_raw_fd()).unwrap().port();
    (own, port)
}

struct Launch {
    folder: tempfile::TempDir,
    run: PathBuf,
    options: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
}

impl Launch {
    /// With these stages.
    fn with(stages: &str) -> Launch {
        let folder = folder();
        let run = folder.path().join("run");
        let file = folder.path().join("stages.toml");
        std::fs::write(&file, format!("name = \"t\"\n{stages}")).unwrap();
        let options = vec!["--stages".into(), file.into()];
        Launch { folder, run, options, environment: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn option(mut self, options: &[&str]) -> Launch {
        self.options.extend(options.iter().map(OsString::from));
        self
    }

    fn command<S: AsRef<std::ffi::OsStr>>(&self, argv: &[S], stdin: Stdio) -> Command {
        let mut command = stagemark();
        command.arg("run").arg("--out").arg(&self.run).args(&self.options).arg("--").args(argv);
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).env(RUN, &self.run);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Launches the server in a mode, behind a command line that names its port.
    fn serve(&self, mode: &str, (socket, port): (OwnedFd, u16)) -> Output {
        let own = std::env::current_exe().unwrap();
        let script = "own=$1; exec \"$own\" --exact conditions::server --nocapture --test-threads 1";
        let port = port.to_string();
        let argv = ["sh", "-c", script, "serve", own.to_str().unwrap(), "--port", &port];
        let mut command = self.command(&argv, socket.into());
        finish(command.env(MODE, mode).env("no_proxy", "").env("http_proxy", "http://127.0.0.1:9"))
    }

    fn run(&self) -> Run {
        Run::load(&self.run).unwrap()
    }

    /// The row of `stages.csv` of a stage: status, reason, time.
    fn row(&self, stage: &str) -> Vec<String> {
        row(&self.run.join("stages.csv"), stage)
    }
}

fn row(path: &Path, stage: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let header = reader.headers().unwrap().clone();
    let place = |name: &str| header.iter().position(|field| field == name).unwrap();
    let columns = [place("status"), place("reason"), place("t_ns"), place("evidence"), place("begin_ns")];
    let row = reader.records().map(Result::unwrap).find(|row| row[0] == *stage).unwrap();
    columns.iter().map(|index| row[*index].to_string()).collect()
}

/// To its end, which comes within [`LIMIT`].
fn finish(command: &mut Command) -> Output {
    let mut child = command.spawn().unwrap();
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = std::thread::spawn(move || super::support::read_all(out));
    let err = std::thread::spawn(move || super::support::read_all(err));
    let status = super::support::ended(&mut child);
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

const VARS: &str = "argv = [\"serve\"]\nvars = { port = { flag = \"--port\", default = \"1\" } }\nuntil = \"s\"\n";

/// One stage by a request with these other keys.
fn asked(keys: &str) -> Launch {
    let when = format!("when = {{ http = {{ url = \"http://127.0.0.1:{{port}}/v1\", poll = \"20 ms\"{keys} }} }}");
    Launch::with(&format!("{VARS}[[stage]]\nname = \"s\"\n{when}\n")).option(&["--then", "stop"])
}

fn probes(run: &Run) -> Vec<(&Event, &Probe)> {
    let probes = run.events.iter().filter_map(|event| match &event.what {
        What::Probe(probe) => Some((event, probe)),
        _ => None,
    });
    probes.collect()
}

fn mark<'r>(run: &'r Run, stage: &str) -> (&'r Event, &'r Mark) {
    let mark = run.events.iter().find_map(|event| match &event.what {
        What::Mark(mark) if mark.stage == stage => Some((event, mark)),
        _ => None,
    });
    mark.unwrap_or_else(|| panic!("no mark of {stage} in {:?}", run.events))
}

/// How the attempts ended, equal ones in a row once.
fn outcomes(run: &Run) -> Vec<&str> {
    let mut outcomes: Vec<&str> = probes(run).iter().map(|(_, probe)| probe.outcome.as_str()).collect();
    outcomes.dedup();
    outcomes
}

#[test]
fn refused_and_503_are_not_yet() {
    let launch = asked(", json = { prompt = \"hi\" }, body = '\"text\"', exists = \"/n/0\"");
    let output = launch.serve("busy", bound());
    assert!(output.status.success(), "{output:?}");
    let run = launch.run();
    assert_eq!(outcomes(&run), ["refused", "status 503", "accepted"]);
    let probes = probes(&run);
    let attempts: Vec<u64> = probes.iter().map(|(_, probe)| probe.attempt).collect();
    assert_eq!(attempts, (1..=attempts.len() as u64).collect::<Vec<_>>(), "each attempt has its row");
    let (marked, mark) = mark(&run, "s");
    let (accepted, probe) = probes.last().unwrap();
    let (_, last_refused) = probes[probes.len() - 2];
    assert_eq!((mark.evidence, marked.at), (Evidence::Http, accepted.at));
    assert_eq!(marked.at.0 - marked.uncertainty_ns.unwrap() as i64, last_refused.began.0);
    assert!(probe.began <= probe.first_byte.unwrap() && probe.first_byte.unwrap() <= accepted.at);
    assert!(last_refused.began < probe.began);
    let kept = std::fs::read_to_string(launch.run.join("response-s.txt")).unwrap();
    assert!(kept.contains("POST http://127.0.0.1") && kept.ends_with("{\"text\": \"hi\", \"n\": [1]}"), "{kept}");
    assert_eq!(run.meta.variables["port"], probe.target.rsplit(':').next().unwrap().trim_end_matches("/v1"));
    assert_eq!(run.meta.stage_digests["s"], run.meta.stages.stages[0].digest());

    // Matched again by the same definition the mark is the same; by another one it is not known.
    let again = |stages: &str, name: &str| {
        let file = launch.path(name);
        std::fs::write(&file, stages).unwrap();
        let out = launch.path(&format!("{name}.out"));
        let output =
            stagemark().arg("report").arg(&launch.run).arg("--stages").arg(&file).arg("--out").arg(&out).output();
        assert!(output.unwrap().status.success());
        row(&out.join("stages.csv"), "s")
    };
    let own = std::fs::read_to_string(launch.path("stages.toml")).unwrap();
    assert_eq!(again(&own, "same.toml"), launch.row("s"));
    let other = again(&own.replace("/v1", "/v2"), "other.toml");
    assert_eq!(other[0], "unknown");
    assert!(other[1].contains("no attempt by this definition is recorded"), "{other:?}");
}

#[test]
fn a_wrong_body_is_not_yet() {
    for (mode, wrong) in [
        ("wrong", "status 200, and the body does not match /\"text\"/"),
        ("wrong-type", "status 200, and the body is no JSON"),
    ] {
        let launch = asked(", body = '\"text\"', equals = { \"/n\" = [1] }");
        assert!(launch.serve(mode, bound()).status.success());
        assert_eq!(outcomes(&launch.run()), ["refused", wrong, "accepted"]);
    }
}

#[test]
fn a_port_on_which_nobody_listens_is_never_ready() {
    let launch = asked("");
    let output = launch.serve("never", bound());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(outcomes(&launch.run()), ["refused"]);
    let row = launch.row("s");
    assert_eq!(row[0], "not_reached");
    assert!(row[1].contains("attempts; the last: refused; the command ended first: exit 0"), "{row:?}");
}

#[test]
fn a_server_that_accepts_and_hangs_is_asked_again() {
    let launch = asked(", timeout = \"300 ms\"");
    assert!(launch.serve("hang", bound()).status.success());
    assert_eq!(outcomes(&launch.run()), ["refused", "timed out", "accepted"]);
}

#[test]
fn a_stream_that_stalls_is_not_yet_and_has_two_times() {
    let launch = asked(", timeout = \"2 s\", body = '^data:\"text\"$'");
    assert!(launch.serve("stall", bound()).status.success());
    let run = launch.run();
    assert_eq!(outcomes(&run), ["refused", "timed out in the body", "accepted"]);
    let probes = probes(&run);
    let (stalled, probe) = probes[probes.len() - 2];
    assert!(probe.first_byte.unwrap() < stalled.at);
    let (accepted, probe) = probes[probes.len() - 1];
    let between = accepted.at.0 - probe.first_byte.unwrap().0;
    assert!(between >= 25_000_000, "{between} ns from the first byte to the last");
    assert!(mark(&run, "s").1.detail.contains("first byte at "));
}

#[test]
fn a_body_that_is_no_text_is_matched_and_kept() {
    let launch = asked(", body = '(?-u)^\\xff\\xfe \"text\"'");
    assert!(launch.serve("bytes", bound()).status.success());
    assert_eq!(outcomes(&launch.run()), ["refused", "accepted"]);
    let kept = std::fs::read_to_string(launch.run.join("response-s.txt")).unwrap();
    assert!(kept.ends_with("\u{fffd}\u{fffd} \"text\" \u{fffd}"), "{kept}");
}

#[test]
fn a_redirect_is_not_followed() {
    let launch = asked(", status = 302");
    assert!(launch.serve("redirect", bound()).status.success());
    assert_eq!(outcomes(&launch.run()), ["refused", "accepted"]);
}

#[test]
fn a_secret_from_the_environment_is_in_no_file() {
    const SECRET: &str = "opensesame4711";
    let mut launch = asked(", body = 'text'").option(&["--header-env", "STAGEMARK_TEST_KEY"]);
    launch.environment.push(("STAGEMARK_TEST_KEY", SECRET.to_string()));
    let output = launch.serve("echo", bound());
    assert!(output.status.success(), "{output:?}");
    let kept = std::fs::read_to_string(launch.run.join("response-s.txt")).unwrap();
    assert!(kept.contains("uthorization: ***") && kept.contains("\"text\""), "{kept}");
    for entry in std::fs::read_dir(&launch.run).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(memchr::memmem::find(&bytes, SECRET.as_bytes()).is_none(), "it is in {}", path.display());
    }
    let unset = asked("").option(&["--header-env", "X-Key=STAGEMARK_TEST_UNSET"]);
    let output = unset.command(&["true"], Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("the environment variable `STAGEMARK_TEST_UNSET` is not set"), "{text}");
    assert!(!unset.run.exists());
}

#[test]
fn a_request_in_flight_does_not_hold_the_end_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let launch =
        Launch::with("[[stage]]\nname = \"x\"\n").option(&["--stage", &format!("s=http:http://127.0.0.1:{port}/")]);
    let mut child = launch.command(&["cat"], Stdio::piped()).spawn().unwrap();
    let stream = asked_at(&listener);
    let begun = Instant::now();
    drop(child.stdin.take());
    assert!(super::support::ended(&mut child).success());
    // The request may take 30 s, and the reports a while on a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    drop(stream);
    let row = launch.row("s");
    assert_eq!(row[0], "not_reached");
    assert!(row[1].contains("in one attempt: no answer before the asking ended"), "{row:?}");
}

#[test]
fn certificates_of_ones_own_are_trusted() {
    let script = "set -e; cd \"$1\"; \
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem; \
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -keyout own.key -out own.csr; \
        printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' >own.ext; \
        openssl x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile own.ext -out own.pem";
    let (own, port) = bound();
    let stage = |name: &str, ca: &str| {
        let http = format!("url = \"https://localhost:{port}/\", poll = \"20 ms\", body = \"(?i)cipher\"{ca}");
        format!("[[stage]]\nname = \"{name}\"\nwhen = {{ http = {{ {http} }} }}\n")
    };
    let folder = folder();
    let ca = folder.path().join("ca.pem");
    let stages = stage("s", &format!(", ca = \"{}\"", ca.display())) + &stage("stranger", "");
    let launch = Launch::with(&stages).option(&["--until", "s", "--then", "stop"]);
    let made = Command::new("sh").args(["-c", script, "sh"]).arg(folder.path()).output().unwrap();
    if !made.status.success() {
        eprintln!("SKIPPED: openssl makes no certificates here: {}", String::from_utf8_lossy(&made.stderr));
        return;
    }
    drop(own);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key, accept) = (at("own.pem"), at("own.key"), port.to_string());
    let argv = ["openssl", "s_server", "-accept", &accept, "-cert", &cert, "-key", &key, "-www", "-quiet"];
    let output = finish(&mut launch.command(&argv, Stdio::null()));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(launch.row("s")[3], "http");
    let run = launch.run();
    let stranger = probes(&run).into_iter().filter(|(_, probe)| probe.stage == "stranger");
    assert!(stranger.clone().count() > 0 && stranger.clone().all(|(_, probe)| !probe.accepted));
}

#[test]
fn ports_sockets_files_and_first_output_are_conditions() {
    let stages = |folder: &Path, port: u16| {
        format!(
            "until = \"all\"\n\
             [[stage]]\nname = \"tcp\"\nwhen = {{ tcp = {{ address = \"127.0.0.1:{port}\", poll = \"20 ms\" }} }}\n\
             [[stage]]\nname = \"file\"\nwhen = {{ file = {{ path = \"{0}/file\", matches = \"re+ady\", poll = \"20 ms\" }} }}\n\
             [[stage]]\nname = \"byte\"\nwhen = {{ first_output = \"byte\" }}\n\
             [[stage]]\nname = \"line\"\nwhen = {{ first_output = \"line\" }}\n\
             [[stage]]\nname = \"span\"\nbegin = {{ first_output = \"byte\" }}\nwhen = {{ file = \"{0}/file\" }}\n\
             [[stage]]\nname = \"all\"\nafter = [\"tcp\", \"file\", \"byte\", \"line\", \"span\"]\nwhen = {{ unix = \"{0}/socket\" }}\n",
            folder.display()
        )
    };
    let (own, port) = bound();
    let folder = folder();
    let launch = Launch::with(&stages(folder.path(), port)).option(&["--then", "stop"]);
    let mut child = launch.command(&["cat"], Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"no end").unwrap();
    let rows = |least: usize| eventually("attempts", || (probe_rows(&launch.run) >= least).then_some(()));
    rows(4);
    listen(&own, Backlog::new(4).unwrap()).unwrap();
    std::fs::write(folder.path().join("file"), "\u{e4} reeady").unwrap();
    stdin.write_all(b" yet\n").unwrap();
    let socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    assert!(super::support::ended(&mut child).success());
    drop((socket, stdin));
    let run = launch.run();
    for (stage, evidence) in [
        ("tcp", Evidence::Tcp),
        ("file", Evidence::File),
        ("byte", Evidence::Output),
        ("line", Evidence::Output),
        ("span", Evidence::File),
        ("all", Evidence::Unix),
    ] {
        assert_eq!(mark(&run, stage).1.evidence, evidence, "{stage}");
    }
    let at = |stage: &str| mark(&run, stage).0.at;
    assert!(at("byte") < at("line"));
    assert!(["tcp", "file", "line", "span"].iter().all(|stage| at(stage) <= at("all")));
    assert_eq!(launch.row("span")[4], at("byte").0.to_string(), "a span's beginning");
    let first_of_all = probes(&run).into_iter().find(|(_, probe)| probe.stage == "all").unwrap().1.began;
    assert!(first_of_all >= at("tcp") && first_of_all >= at("line"), "it was asked before it could matter");
}

#[test]
fn quiet_is_reached_and_a_device_is_not_known() {
    let stages = "[[stage]]\nname = \"quiet\"\nwhen = { quiet = \"200 ms\" }\n\
                  [[stage]]\nname = \"device\"\nwhen = { device = { rise = \"1 MiB\", still = \"100 ms\" } }\n";
    let launch = Launch::with(stages).option(&["--until", "quiet", "--then", "stop"]);
    // Its input stays open, and so it does nothing.
    let mut child = launch.command(&["cat"], Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    assert!(super::support::ended(&mut child).success());
    drop(stdin);
    let run = launch.run();
    let (marked, mark) = mark(&run, "quiet");
    assert_eq!((mark.evidence, mark.sampled), (Evidence::Quiet, Some(marked.at)));
    let end = run.meta.exit.as_ref().unwrap().at;
    assert!(end.0 - marked.at.0 >= 200_000_000, "marked where the quiet began");
    let device = launch.row("device");
    // By whether there is a device here, and whether it can be seen.
    assert_ne!(device[0], "reached");
    assert!(device[1].contains("device"), "{device:?}");
}

#[test]
fn a_workload_follows_the_first_response_and_has_its_latencies() {
    let stages = format!(
        "{}[[stage]]\nname = \"first_response\"\nwhen = {{ http = {{ url = \"http://127.0.0.1:{{port}}/\", poll = \"20 ms\" }} }}\n",
        VARS.replace("until = \"s\"", "until = \"first_response\"")
    );
    let launch = Launch::with(&stages);
    let work = launch.path("work.jsonl");
    let requests =
        (0..5).map(|n| format!("{{\"url\": \"http://127.0.0.1:{{port}}/{n}\", \"json\": {n}, \"body\": \"text\"}}\n"));
    std::fs::write(&work, requests.collect::<String>()).unwrap();
    let options = ["--workload", work.to_str().unwrap(), "--concurrency", "2", "--repeat-response", "3"];
    let launch = launch.option(&options).option(&["--until", "representative_work", "--then", "stop"]);
    // The first three answers are 503: some of the first response's.
    let output = launch.serve("busy", bound());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(launch.row("representative_work")[3], "http");
    let mut reader = csv::Reader::from_path(launch.run.join("responses.csv")).unwrap();
    let rows: Vec<Vec<String>> =
        reader.records().map(|row| row.unwrap().iter().map(str::to_string).collect()).collect();
    let of = |stage: &str| rows.iter().filter(|row| row[0] == stage).map(|row| row[1].as_str()).collect::<Vec<_>>();
    assert_eq!(of("first_response"), ["first", "repeat 1", "repeat 2", "repeat 3"]);
    let mut work = of("representative_work");
    work.sort_unstable();
    assert_eq!(work, ["1", "2", "3", "4", "5"]);
    let last_repeat = rows[3][5].parse::<i64>().unwrap();
    for row in &rows {
        let number = |index: usize| row[index].parse::<i64>().unwrap();
        assert_eq!((number(5) - number(3), row[8].as_str()), (number(6), "accepted"));
        assert!(row[0] == "first_response" || number(3) >= last_repeat, "a workload beside the repeated request");
    }
}

#[test]
fn a_variable_comes_from_the_programs_environment() {
    let stages = "argv = [\"serve\"]\nvars = { at = { env = \"STAGEMARK_TEST_AT\", default = \"/nonexistent\" } }\n\
                  until = \"s\"\n[[stage]]\nname = \"s\"\nwhen = { file = \"{at}\" }\n";
    let launch = Launch::with(stages).option(&["--then", "stop"]);
    let at = launch.path("stages.toml").display().to_string();
    let script = format!("export STAGEMARK_TEST_AT='{at}'; exec sh -c 'cat' serve");
    let mut child = launch.command(&["sh", "-c", &script], Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    assert!(super::support::ended(&mut child).success());
    drop(stdin);
    assert_eq!(launch.run().meta.variables["at"], at);
    assert_eq!(launch.row("s")[3], "file");
}

/// What the launch would be credited with, and was there before it, is said before the command runs.
#[test]
fn what_is_there_already_is_told_at_the_start() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let launch = Launch::with("[[stage]]\nname = \"x\"\n");
    let stale = launch.path("done");
    std::fs::write(&stale, "").unwrap();
    let options = [format!("done=file:{}", stale.display()), format!("up=http:http://127.0.0.1:{port}/health")];
    let launch = launch.option(&["--stage", &options[0], "--stage", &options[1]]);
    let mut child = launch.command(&["sh", "-c", "echo; read -r line"], Stdio::piped()).spawn().unwrap();
    // It runs by now, and waits: what was said before that is there already.
    let mut out = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut out).unwrap();
    let mut said = String::new();
    let mut err = child.stderr.take().unwrap();
    while !(said.contains("may be marked") && said.ends_with('\n')) {
        let mut buffer = [0; 4096];
        let length = super::support::read_some(&err, &mut buffer);
        assert!(length > 0, "{said}");
        said.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    let file =
        format!("stagemark: the file {} is there already, before the start: by it stage `done` would", stale.display());
    assert!(said.contains(&file), "{said}");
    let port = format!("somebody listens at 127.0.0.1:{port} already, before the start: stage `up` may be marked");
    assert!(said.contains(&port), "{said}");
    drop(child.stdin.take());
    err.read_to_string(&mut said).unwrap();
    assert!(super::support::ended(&mut child).code().is_some());
    assert!(launch.run().meta.warnings.iter().any(|warning| warning.contains("is there already")));
    drop(listener);
}

#[test]
fn a_notification_is_a_part_of_a_condition_live_and_from_a_saved_run() {
    let stages = "until = \"both\"\n[[stage]]\nname = \"both\"\n\
                  when = { all = [ { notify = \"weights\" }, { log = 'listening' } ] }\n\
                  [[stage]]\nname = \"either\"\nwhen = { any = [ { notify = \"weights\" }, { log = 'never' } ] }\n\
                  [[stage]]\nname = \"none\"\nwhen = { notify = \"other\" }\n";
    let launch = Launch::with(stages).option(&["--then", "stop"]);
    let script = "\"$0\" mark weights && echo listening && exec cat";
    let mut child =
        launch.command(&["sh", "-c", script, env!("CARGO_BIN_EXE_stagemark")], Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    assert!(super::support::ended(&mut child).success());
    drop(stdin);
    let run = launch.run();
    assert_eq!((mark(&run, "both").1.evidence, mark(&run, "either").1.evidence), (Evidence::Several, Evidence::Notify));
    assert!(mark(&run, "either").0.at < mark(&run, "both").0.at);
    let marked: Vec<&str> = run
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::Mark(mark) => Some(mark.stage.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(marked, ["either", "both"], "what a condition names is no stage");
    let none = launch.row("none");
    assert!(none[1].contains("no notification `other` came"), "{none:?}");
    // Matched again in what was recorded, by a file of another form.
    let other = launch.path("other.toml");
    let text = "name = \"t\"\n[[stage]]\nname = \"again\"\nwhen = { all = [ { log = 'listening' }, { notify = \"weights\" } ] }\n";
    std::fs::write(&other, text).unwrap();
    let out = launch.path("again");
    let output = stagemark().arg("report").arg(&launch.run).arg("--stages").arg(&other).arg("--out").arg(&out).output();
    assert!(output.unwrap().status.success());
    let again = row(&out.join("stages.csv"), "again");
    assert_eq!((again[0].as_str(), &again[2]), ("reached", &launch.row("both")[2]));
}

#[test]
fn a_stop_is_told_as_one_and_a_file_that_fits_nothing_is_told_of() {
    let stages = "argv = [\"my-server\", \"another\"]\nvars = { n = { flag = \"-n\", default = \"2\" } }\nuntil = \"s\"\n\
                  [[stage]]\nname = \"s\"\nwhen = { log = 'go' }\n\
                  [[stage]]\nname = \"counted\"\nwhen = { log = 'go', count = \"{n}\" }\n\
                  [[stage]]\nname = \"never\"\nwhen = { log = 'never' }\n\
                  [[stage]]\nname = \"ended\"\nwhen = { exit = 0 }\n";
    let launch = Launch::with(stages).option(&["--then", "stop"]);
    let mut child = launch.command(&["sh", "-c", "echo go; exec cat"], Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(super::support::ended(&mut child).success());
    drop(stdin);
    assert_eq!(launch.row("never")[1], "no line matched /never/; the run was stopped at s first");
    assert_eq!(launch.row("ended")[1], "the run was stopped at s first");
    let counted = launch.row("counted");
    assert_eq!(counted[0], "unknown");
    assert!(counted[1].starts_with("2 lines matching /go/: its variables have no value"), "{counted:?}");
    let told = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("no program of this launch fits the `argv` of the stage file `t` (`my-server`, `another`): its variables have no value"), "{said}");
}

#[test]
fn the_first_response_stands_beside_the_steady_ones_where_that_is_asked_for() {
    let stages = format!(
        "{}[[stage]]\nname = \"first_response\"\nwhen = {{ http = {{ url = \"http://127.0.0.1:{{port}}/\", poll = \"20 ms\" }} }}\n\
         [[stage]]\nname = \"over\"\nwhen = {{ quiet = \"300 ms\" }}\nafter = [\"first_response\"]\n",
        VARS.replace("until = \"s\"", "until = \"over\"")
    );
    let said = |options: &[&str]| {
        let launch = Launch::with(&stages).option(&["--then", "stop"]).option(options);
        let output = launch.serve("good", bound());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let told = said(&["--repeat-response", "5"]);
    assert!(
        told.contains("The request of first_response took ") && told.contains(" in the median of 5 repeats ("),
        "{told}"
    );
    assert!(told.contains("While the first was answered at most "), "{told}");
    assert!(!said(&[]).contains("The request of first_response"));
}

/// A request that hangs holds up neither a stop by the terminal's key, nor a signal, nor the end.
#[test]
fn a_launch_is_stopped_continued_and_signalled_while_a_request_hangs() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let folder = folder();
    let run = folder.path().join("run");
    let script = r#"set -m; "$@"; echo "<stopped $?>"; read line; fg >/dev/null; echo "<status $?>"; read line"#;
    let inner = "trap 'echo told; exit 3' INT; echo begun; while :; do read -r x || sleep 0.05; done";
    let mut arguments: Vec<OsString> =
        [env!("CARGO_BIN_EXE_stagemark"), "run", "--quiet", "--out"].map(OsString::from).into();
    arguments.push(run.clone().into());
    let stage = format!("s=http:http://127.0.0.1:{port}/");
    arguments.extend(["--stage", &stage, "--", "bash", "-c", inner].map(OsString::from));
    let terminal = super::support::Terminal::start("bash", script, &arguments, false, (24, 80));
    let (_, at) = terminal.wait_for("begun", 0);
    // The request is there, and is not answered.
    let stream = asked_at(&listener);
    let profilers = children_named(terminal.leader(), "stagemark");
    let commands = children_named(profilers[0], "bash");
    assert_eq!((profilers.len(), commands.len()), (1, 1));
    terminal.enter(b"\x1a");
    let (_, at) = terminal.wait_for("<stopped 148>", at);
    assert_eq!(state_of(profilers[0]), Some('T'));
    eventually("the command has stopped", || (state_of(commands[0]) == Some('T')).then_some(()));
    terminal.enter(b"\n");
    eventually("the command goes on", || (state_of(commands[0]) != Some('T')).then_some(()));
    eventually("the profiler goes on", || (state_of(profilers[0]) != Some('T')).then_some(()));
    signal(profilers[0], nix::sys::signal::Signal::SIGINT);
    let (_, at) = terminal.wait_for("told", at);
    terminal.wait_for("<status 3>", at);
    let row = row(&run.join("stages.csv"), "s");
    assert_eq!(row[0], "not_reached");
    assert!(row[1].contains("no answer before the asking ended"), "{row:?}");
    drop(stream);
}

#[test]
fn odd_workloads_are_refused_before_the_start_and_odd_line_ends_are_none() {
    let launch = Launch::with("[[stage]]\nname = \"x\"\n");
    let path = launch.path("work.jsonl");
    let refused = |text: &[u8]| {
        std::fs::write(&path, text).unwrap();
        let options = ["run", "--workload", path.to_str().unwrap(), "--", "true"];
        let output = stagemark().args(options).current_dir(launch.folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(!launch.path("stagemark-runs").exists());
        String::from_utf8(output.stderr).unwrap()
    };
    let deep = format!("{{\"url\": \"http://h\", \"json\": {}1{}}}", "[".repeat(500), "]".repeat(500));
    let mut many = b"{\"url\": \"http://h\"}\n".repeat(10_001);
    for (text, wrong) in [
        (&b""[..], "no request"),
        (b"\n\r\n \n", "no request"),
        (b"{\"url\": \"http://h\"}\ngarbage\n", "work.jsonl:2:1: expected value"),
        (b"[1, 2]\n", "work.jsonl:1:1: "),
        (b"{\"url\": \"http://h\"} {\"url\": \"http://h\"}", "work.jsonl:1:1: trailing characters"),
        (b"{\"url\": null}", "`url`: null is no value; leave the key out"),
        (b"{\"url\": 5}", "`url`: expected text"),
        (b"{\"url\": \"http://h:0/\"}", "expected a port from 1 to 65535"),
        (b"{\"url\": \"http://h\", \"ulr\": 1}", "unknown key `ulr`"),
        (b"{\"url\": \"http://h\", \"id\": [1]}", "`id`: expected a number or text"),
        (b"{\"url\": \"http://h\", \"status\": 99999999999999999999}", "work.jsonl:1:1: "),
        (b"\xff\xfe{\"url\": \"http://h\"}", "invalid utf-8"),
        (deep.as_bytes(), "recursion limit"),
        (&many, "work.jsonl:10001:1: more than 10000 requests"),
    ] {
        let said = refused(text);
        assert!(said.contains(wrong), "{:?} gave {said}", String::from_utf8_lossy(&text[..text.len().min(80)]));
    }
    many.resize((16 << 20) + 1, b'\n');
    assert!(refused(&many).contains("larger than"));
    let work = "\u{feff}{\"url\": \"http://h\", \"id\": \"a\"}\r\n\r\n{\"url\": \"http://h\"}";
    let work = stagemark::stage::asked::Work::parse(work, "w", 1).unwrap();
    assert_eq!(work.each.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["a", "2"]);
}

/// Values of variables come from command lines and environments: whatever is in them, a request goes to one host or none.
#[test]
fn odd_values_of_variables_break_nothing() {
    for (value, wrong) in [
        ("80 81", "no URL"),
        ("80\nx-evil: 1", "no URL"),
        ("80'\"`$(id)", "no URL"),
        ("{port}", "no URL"),
        ("80@example.org", "no URL"),
        ("80/../..//?#", "no URL"),
        ("99999", "no URL"),
    ] {
        let launch = asked(", timeout = \"1 s\"");
        let output = finish(&mut launch.command(&["sh", "-c", "sleep 0.4", "serve", "--port", value], Stdio::null()));
        assert!(output.status.success(), "{output:?}");
        let run = launch.run();
        let told = outcomes(&run);
        assert!(told.iter().all(|outcome| outcome.starts_with(wrong) || *outcome == "refused"), "{value:?}: {told:?}");
        let row = launch.row("s");
        assert_eq!(row[0], "not_reached", "{row:?}");
        assert!(!row[1].contains('\n'));
        assert!(probes(&run).iter().all(|(_, probe)| !probe.target.contains('\n') || probe.target.is_empty()));
    }
}

#[test]
fn two_stages_of_one_name_and_a_wrong_one_are_told_by_their_argument() {
    let launch = Launch::with("[[stage]]\nname = \"x\"\n");
    let said = |stages: &[&str]| {
        let options = stages.iter().flat_map(|stage| ["--stage", stage]).collect::<Vec<_>>();
        let mut command = stagemark();
        command.arg("run").arg("--out").arg(launch.path("other")).args(options).args(["--", "true"]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, text) = said(&["a=log:x", "b=lag:y"]);
    assert_eq!(status, Some(125));
    assert!(text.contains("--stage 'b=lag:y':1:3: unknown kind `lag`"), "{text}");
    let (status, text) = said(&["a=log:x", "a=log:y"]);
    assert_eq!(status, Some(125));
    assert!(text.contains("--stage 'a=log:y':1:1: --stage 'a=log:x' names that stage too"), "{text}");
}
