//! Stage files, notification and marks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use stagemark::clock::Mono;
use stagemark::event::{Stream, What};
use stagemark::launch::{LogSource, Upstream};
use stagemark::stage::StageFile;
use stagemark::watch::log::{LONGEST_LINE, LogWatch, MOST_QUEUED, watch};
use stagemark::watch::notify::{Notify, NotifyWatch};
use stagemark::watch::{Line, LineEnd, Observed, Seen};

use super::support::stagemark;

/// Long enough for the slowest machine; no test waits for it to pass.
const LIMIT: Duration = Duration::from_secs(60);

struct Heard {
    path: PathBuf,
    watch: NotifyWatch,
    seen: Receiver<Seen>,
}

impl Heard {
    fn next(&self) -> Seen {
        self.seen.recv_timeout(LIMIT).unwrap()
    }

    fn event(&self) -> What {
        match self.next().what {
            Observed::Event(what) => what,
            other => panic!("not an event: {other:?}"),
        }
    }

    fn barrier(&self) -> OwnedFd {
        match self.next().what {
            Observed::Barrier(barrier) => barrier,
            other => panic!("not a barrier: {other:?}"),
        }
    }

    /// Everything else that comes until the end.
    fn finish(self) -> Vec<Seen> {
        self.watch.finish();
        self.seen.iter().collect()
    }
}

fn hear(forward: Option<&Path>, is_ours: impl Fn(i32) -> Option<bool> + Send + 'static) -> Heard {
    let notify = Notify::bind(forward).unwrap();
    let environment: BTreeMap<_, _> = notify.environment().into_iter().collect();
    assert_eq!(
        environment[std::ffi::OsStr::new("NOTIFY_SOCKET")],
        environment[std::ffi::OsStr::new("STAGEMARK_SOCKET")]
    );
    let path = PathBuf::from(&environment[std::ffi::OsStr::new("NOTIFY_SOCKET")]);
    let (sender, seen) = channel();
    Heard { path, watch: notify.watch(sender, Box::new(is_ours)).unwrap(), seen }
}

fn mark(stage: &str, variable: &str, path: &Path) -> Child {
    let mut command = stagemark();
    command.args(["mark", stage]).env_remove("NOTIFY_SOCKET").env_remove("STAGEMARK_SOCKET").env(variable, path);
    command.stderr(Stdio::piped()).spawn().unwrap()
}

fn send(path: &Path, text: &str, barrier: Option<&PipeWriter>) {
    let socket = UnixDatagram::unbound().unwrap();
    let descriptors: Vec<_> = barrier.iter().map(|barrier| barrier.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() { &[] } else { &rights[..] };
    let address = UnixAddr::new(path).unwrap();
    let bytes = [IoSlice::new(text.as_bytes())];
    sendmsg(socket.as_raw_fd(), &bytes, control, MsgFlags::empty(), Some(&address)).unwrap();
}

#[test]
fn mark_waits_until_it_was_heard() {
    for variable in ["STAGEMARK_SOCKET", "NOTIFY_SOCKET"] {
        let heard = hear(None, |_| Some(true));
        let before = Mono::now();
        let mut child = mark("weights.loaded-1", variable, &heard.path);
        let seen = heard.next();
        let Observed::Event(what) = seen.what else { panic!("not an event") };
        let stage = Some("weights.loaded-1".to_string());
        let pid = Some(child.id() as i32);
        assert_eq!(what, What::Notify { pid, stage, status: None, ready: false, verified: true });
        // The client's own time, to the microsecond.
        assert!(seen.at.since(before) > 0 && seen.at <= Mono::now());
        assert!(seen.uncertainty_ns.is_some_and(|ns| ns <= 1000));
        let barrier = heard.barrier();
        assert!(child.try_wait().unwrap().is_none(), "it did not wait");
        drop(barrier);
        assert!(child.wait().unwrap().success());
        assert!(heard.finish().is_empty());
    }
}

#[test]
fn a_sender_outside_the_tree_is_refused_and_told_so() {
    let heard = hear(None, |_| Some(false));
    let child = mark("loaded", "STAGEMARK_SOCKET", &heard.path);
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("refused"), "{text}");
    let What::Warning { text } = heard.event() else { panic!("not a warning") };
    assert!(text.contains(&format!("process {pid}")) && text.contains("refused"), "{text}");
    // A pipe as the barrier, as sd_notify_barrier(3) has it: let go at once, and never a barrier for the recorder.
    let (mut reader, writer) = std::io::pipe().unwrap();
    send(&heard.path, "BARRIER=1", Some(&writer));
    drop(writer);
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    assert!(heard.finish().iter().all(|seen| matches!(seen.what, Observed::Event(What::Warning { .. }))));
}

#[test]
fn many_refusals_are_counted_not_repeated() {
    let heard = hear(None, |_| Some(false));
    for _ in 0..500 {
        send(&heard.path, "X_STAGE=a", None);
    }
    let texts: Vec<String> = heard
        .finish()
        .into_iter()
        .map(|seen| match seen.what {
            Observed::Event(What::Warning { text }) => text,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(texts.len() < 30 && texts.last().unwrap().contains("500 notifications"), "{texts:?}");
}

#[test]
fn a_sender_that_could_not_be_told_is_recorded_as_unverified() {
    let heard = hear(None, |_| None);
    send(&heard.path, "X_STAGE=a\nSTATUS=half way", None);
    let What::Notify { pid, stage, status, verified, .. } = heard.event() else { panic!("not a notification") };
    assert_eq!((pid, verified), (Some(std::process::id() as i32), false));
    assert_eq!((stage.as_deref(), status.as_deref()), (Some("a"), Some("half way")));
    heard.finish();
}

#[test]
fn a_barrier_comes_after_its_messages_events() {
    let heard = hear(None, |_| Some(true));
    let (mut reader, writer) = std::io::pipe().unwrap();
    send(&heard.path, "BARRIER=1\nX_STAGE=a\nX_STAGE=b\nREADY=1", Some(&writer));
    drop(writer);
    let stages = [heard.event(), heard.event()].map(|what| match what {
        What::Notify { stage, ready, .. } => (stage.unwrap(), ready),
        other => panic!("{other:?}"),
    });
    assert_eq!(stages, [("a".to_string(), true), ("b".to_string(), false)]);
    drop(heard.barrier());
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    heard.finish();
}

#[test]
fn a_message_with_an_impossible_time_has_that_of_its_receipt() {
    let heard = hear(None, |_| Some(true));
    let before = Mono::now();
    for usec in [0, u64::MAX] {
        send(&heard.path, &format!("X_STAGE=a\nMONOTONIC_USEC={usec}"), None);
        let seen = heard.next();
        assert!(seen.at >= before && seen.at <= Mono::now());
        assert!(seen.at.since(before) + 60_000_000_000 > seen.uncertainty_ns.unwrap());
    }
    heard.finish();
}

#[test]
fn what_no_stage_can_be_called_is_refused_with_a_warning() {
    let heard = hear(None, |_| Some(true));
    send(&heard.path, "X_STAGE=../etc\nX_STAGE=good", None);
    assert!(matches!(heard.event(), What::Warning { text } if text.contains("../etc")));
    assert!(matches!(heard.event(), What::Notify { stage: Some(stage), .. } if stage == "good"));
    let long = format!("STATUS={}", "x".repeat(70_000));
    send(&heard.path, &long, None);
    assert!(matches!(heard.event(), What::Warning { text } if text.contains("longer")));
    heard.finish();
}

#[test]
fn the_socket_is_private_and_goes_away() {
    use std::os::unix::fs::PermissionsExt;
    let heard = hear(None, |_| Some(true));
    let (path, directory) = (heard.path.clone(), heard.path.parent().unwrap().to_path_buf());
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    heard.finish();
    assert!(!directory.exists());
    let output = mark("late", "STAGEMARK_SOCKET", &path).wait_with_output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("is it over?"));
    // Bound and never watched: gone as well.
    let unused = Notify::bind(None).unwrap();
    let path = PathBuf::from(&unused.environment()[0].1);
    assert!(path.exists());
    drop(unused);
    assert!(!path.exists());
}

#[test]
fn mark_outside_a_run_says_so() {
    let output =
        stagemark().args(["mark", "a"]).env_remove("NOTIFY_SOCKET").env_remove("STAGEMARK_SOCKET").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("not inside a `stagemark run`"));
}

#[test]
fn a_socket_that_was_set_already_gets_every_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manager");
    let abstract_name = format!("stagemark-test-{}", std::process::id());
    let managers = [
        (UnixDatagram::bind(&path).unwrap(), path.clone()),
        (
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap(),
            PathBuf::from(format!("@{abstract_name}")),
        ),
    ];
    for (manager, address) in managers {
        let heard = hear(Some(&address), |_| Some(true));
        let (mut reader, writer) = std::io::pipe().unwrap();
        let messages = ["READY=1\nMAINPID=1", "X_STAGE=a\nSTATUS=s", "WATCHDOG=1"];
        for message in messages {
            send(&heard.path, message, None);
        }
        send(&heard.path, "BARRIER=1", Some(&writer));
        drop(writer);
        manager.set_read_timeout(Some(LIMIT)).unwrap();
        let mut buffer = [0; 1024];
        for message in messages {
            let length = manager.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], message.as_bytes());
        }
        let (control, text) = receive_with_descriptors(&manager);
        assert_eq!((text.as_str(), control.len()), ("BARRIER=1", 1));
        // The sender is let go when both have let go.
        heard.event();
        heard.event();
        drop(heard.barrier());
        let mut fds = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&reader), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut fds, 0u8).unwrap(), 0, "the manager holds it still");
        drop(control);
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
        assert!(heard.finish().is_empty());
    }
}

fn receive_with_descriptors(socket: &UnixDatagram) -> (Vec<OwnedFd>, String) {
    let mut buffer = [0; 1024];
    let mut fds = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(socket), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut fds, 60_000u16).unwrap();
    let received = stagemark::sys::socket::receive(std::os::fd::AsFd::as_fd(socket), &mut buffer).unwrap();
    (received.descriptors, String::from_utf8(buffer[..received.length].to_vec()).unwrap())
}

#[test]
fn a_manager_that_is_gone_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let heard = hear(Some(&folder.path().join("nobody")), |_| Some(true));
    for _ in 0..3 {
        send(&heard.path, "X_STAGE=a", None);
    }
    let seen = heard.finish();
    let warnings = seen.iter().filter(|seen| matches!(&seen.what, Observed::Event(What::Warning { .. }))).count();
    assert_eq!((seen.len(), warnings), (4, 1));
    let heard = hear(Some(Path::new("vsock:2:1")), |_| Some(true));
    assert!(matches!(heard.event(), What::Warning { text } if text.contains("vsock:2:1")));
    heard.finish();
}

#[test]
fn no_message_of_a_hundred_thousand_is_lost() {
    const COUNT: u64 = 100_000;
    let heard = hear(None, |_| Some(true));
    let path = heard.path.clone();
    let sending = std::thread::spawn(move || {
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect(path).unwrap();
        for number in 0..COUNT {
            socket.send(format!("X_STAGE=n{number}").as_bytes()).unwrap();
        }
    });
    let mut next = 0;
    while next < COUNT {
        if let Observed::Event(What::Notify { stage, .. }) = heard.next().what {
            assert_eq!(stage.unwrap(), format!("n{next}"));
            next += 1;
        }
    }
    sending.join().unwrap();
    heard.finish();
}

/// A watched pipe: where to write, the watcher, what it sees.
fn piped(stream: Stream) -> (PipeWriter, LogWatch, Receiver<Seen>) {
    let (reader, writer): (PipeReader, PipeWriter) = std::io::pipe().unwrap();
    let (sender, seen) = channel();
    let watch = watch(LogSource::Pipe { stream, fd: reader.into(), upstream: Upstream::default() }, sender).unwrap();
    (writer, watch, seen)
}

fn next_line(seen: &Receiver<Seen>) -> (Mono, Option<u64>, Line) {
    let is_first = |seen: &Seen| matches!(seen.what, Observed::Event(What::FirstOutput { .. }));
    let mut heard = std::iter::repeat_with(|| seen.recv_timeout(LIMIT).unwrap());
    let Seen { at, uncertainty_ns, what } = heard.find(|seen| !is_first(seen)).unwrap();
    match what {
        Observed::Line(line) => (at, uncertainty_ns, line.into_line()),
        other => panic!("not a line: {other:?}"),
    }
}

fn text(line: &Line) -> (&[u8], LineEnd) {
    (&line.bytes, line.end)
}

#[test]
fn lines_of_a_pipe_with_progress_bars_and_odd_bytes() {
    let (mut writer, watch, seen) = piped(Stream::Stderr);
    writer.write_all(b"\rloading 10%\rloading 90%\r\n\xff\xfe\nno end").unwrap();
    drop(writer);
    let expected: [(&[u8], LineEnd); 5] = [
        (b"", LineEnd::Return),
        (b"loading 10%", LineEnd::Return),
        (b"loading 90%", LineEnd::Newline),
        (b"\xff\xfe", LineEnd::Newline),
        (b"no end", LineEnd::Eof),
    ];
    for expected in expected {
        let (_, _, line) = next_line(&seen);
        assert_eq!((text(&line), line.stream), (expected, Stream::Stderr));
    }
    assert!(seen.recv_timeout(LIMIT).is_err(), "the end of the stream ends the thread");
    watch.finish();
}

#[test]
fn a_lines_time_and_uncertainty_hold_the_moment_of_its_writing() {
    let (mut out, out_watch, out_seen) = piped(Stream::Stdout);
    let (mut err, err_watch, err_seen) = piped(Stream::Stderr);
    for number in 0..50 {
        let (writer, seen) = if number % 2 == 0 { (&mut out, &out_seen) } else { (&mut err, &err_seen) };
        let before = Mono::now();
        writer.write_all(b"half ").unwrap();
        writer.write_all(format!("{number}\n").as_bytes()).unwrap();
        let after = Mono::now();
        let (at, uncertainty_ns, line) = next_line(seen);
        assert_eq!(text(&line), (format!("half {number}").as_bytes(), LineEnd::Newline));
        assert!(at >= before, "read before it was written");
        assert!(at.since(after) <= uncertainty_ns.unwrap(), "the bound leaves out the moment of writing");
    }
    drop((out, err));
    out_watch.finish();
    err_watch.finish();
}

#[test]
fn a_return_is_a_line_before_anything_follows_it() {
    let (mut writer, watch, seen) = piped(Stream::Stdout);
    writer.write_all(b"50%\r").unwrap();
    assert_eq!(text(&next_line(&seen).2), (&b"50%"[..], LineEnd::Return));
    writer.write_all(b"\nnext\n").unwrap();
    assert_eq!(text(&next_line(&seen).2), (&b"next"[..], LineEnd::Newline));
    drop(writer);
    watch.finish();
}

#[test]
fn a_gibibyte_without_an_end_is_one_cut_line() {
    let (mut writer, watch, seen) = piped(Stream::Stdout);
    let writing = std::thread::spawn(move || {
        let block = vec![b'x'; 1 << 20];
        (0..1024).for_each(|_| writer.write_all(&block).unwrap());
        writer.write_all(b"\nnext\n").unwrap();
    });
    let (_, _, line) = next_line(&seen);
    assert_eq!((line.bytes.len(), line.end), (LONGEST_LINE, LineEnd::Cut));
    assert_eq!(text(&next_line(&seen).2), (&b"next"[..], LineEnd::Newline));
    writing.join().unwrap();
    watch.finish();
}

#[test]
fn lines_that_nobody_takes_are_bounded_and_their_loss_is_counted() {
    let (mut writer, watch, seen) = piped(Stream::Stdout);
    let line = [b'y'; 1000];
    let total = 2 * (MOST_QUEUED / line.len()) as u64;
    let mut block = line.to_vec();
    block.push(b'\n');
    // Nobody takes any line while all of them are written: the writer must come to its end all the same.
    for _ in 0..total {
        writer.write_all(&block).unwrap();
    }
    drop(writer);
    watch.finish();
    let (mut kept, mut lost) = (0, 0);
    for seen in seen {
        match seen.what {
            Observed::Event(What::FirstOutput { .. }) => {}
            Observed::Line(kept_line) => {
                assert_eq!(kept_line.bytes, line);
                kept += 1;
            }
            Observed::Lost { stream: Stream::Stdout, lines, bytes } => {
                assert_eq!(bytes, lines * line.len() as u64);
                lost += lines;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(kept + lost, total);
    assert!(kept > 0 && kept * line.len() as u64 <= MOST_QUEUED as u64);
}

#[test]
fn losses_are_told_of_once_a_second_however_often_they_happen() {
    let (mut writer, watch, seen) = piped(Stream::Stdout);
    let begun = std::time::Instant::now();
    let line = [b'z'; 1000];
    let total = 3 * (MOST_QUEUED / line.len()) as u64;
    let (full, may_take) = channel();
    // From when no more fits one line is taken for each that comes: kept and lost by turns.
    let taker = std::thread::spawn(move || {
        may_take.recv().unwrap();
        let (mut kept, mut lost, mut told) = (0, 0, 0);
        for seen in seen {
            match seen.what {
                Observed::Event(What::FirstOutput { .. }) => {}
                Observed::Line(_) => kept += 1,
                Observed::Lost { lines, .. } => (lost, told) = (lost + lines, told + 1),
                other => panic!("{other:?}"),
            }
        }
        (kept, lost, told)
    });
    let mut block = line.to_vec();
    block.push(b'\n');
    for number in 0..total {
        if number == total / 2 {
            full.send(()).unwrap();
        }
        writer.write_all(&block).unwrap();
    }
    drop(writer);
    watch.finish();
    let (kept, lost, told) = taker.join().unwrap();
    assert_eq!(kept + lost, total);
    assert!(lost > 0 && told <= begun.elapsed().as_secs() + 2, "{told} times");
}

#[test]
fn finish_does_not_wait_for_an_orphan_that_holds_the_pipe() {
    let (mut writer, watch, seen) = piped(Stream::Stdout);
    writer.write_all(b"last\nhalf").unwrap();
    watch.finish();
    assert_eq!(text(&next_line(&seen).2), (&b"last"[..], LineEnd::Newline));
    assert_eq!(text(&next_line(&seen).2), (&b"half"[..], LineEnd::Eof));
    assert!(seen.recv().is_err());
    drop(writer);
}

fn followed(path: &Path, offset: u64) -> (LogWatch, Receiver<Seen>) {
    let (sender, seen) = channel();
    let source = LogSource::File { stream: Stream::Both, file: File::open(path).unwrap(), offset };
    (watch(source, sender).unwrap(), seen)
}

#[test]
fn a_file_is_followed_from_where_it_stood() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, "before\n").unwrap();
    let (watch, seen) = followed(&path, 7);
    let mut file = File::options().append(true).open(&path).unwrap();
    for number in 0..5 {
        let before = Mono::now();
        writeln!(file, "line {number}").unwrap();
        let after = Mono::now();
        let (at, uncertainty_ns, line) = next_line(&seen);
        assert_eq!(text(&line), (format!("line {number}").as_bytes(), LineEnd::Newline));
        assert!(at >= before && at.since(after) <= uncertainty_ns.unwrap());
    }
    write!(file, "no end").unwrap();
    watch.finish();
    assert_eq!(text(&next_line(&seen).2), (&b"no end"[..], LineEnd::Eof));
    assert!(seen.recv().is_err());
}

#[test]
fn a_file_that_was_cut_is_read_from_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, "a long first line\nhalf").unwrap();
    let (watch, seen) = followed(&path, 0);
    let (_, uncertainty_ns, line) = next_line(&seen);
    assert_eq!(text(&line), (&b"a long first line"[..], LineEnd::Newline));
    assert_eq!(uncertainty_ns, None, "it stood there already, nobody knows since when");
    File::options().write(true).truncate(true).open(&path).unwrap().write_all(b"new\n").unwrap();
    assert_eq!(text(&next_line(&seen).2), (&b"half"[..], LineEnd::Eof));
    assert!(matches!(seen.recv().unwrap().what, Observed::Event(What::Warning { text }) if text.contains("cut to")));
    assert_eq!(text(&next_line(&seen).2), (&b"new"[..], LineEnd::Newline));
    watch.finish();
}

#[test]
fn no_line_of_a_file_is_lost_to_a_slow_recorder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (filling, total) = ([b'y'; 4000], 20_000u32);
    let mut block = Vec::new();
    for number in 0..total {
        block.extend_from_slice(&number.to_be_bytes().map(|byte| byte | 0x80));
        block.extend_from_slice(&filling);
        block.push(b'\n');
    }
    assert!(block.len() > 2 * MOST_QUEUED);
    std::fs::write(&path, block).unwrap();
    let (watch, seen) = followed(&path, 0);
    for number in 0..total {
        let line = next_line(&seen).2;
        assert_eq!(line.bytes[..4], number.to_be_bytes().map(|byte| byte | 0x80));
        assert_eq!(line.bytes.len(), 4 + filling.len());
    }
    watch.finish();
}

#[test]
fn a_stream_that_cannot_be_seen_is_said() {
    let (sender, seen) = channel();
    watch(LogSource::Unseen { stream: Stream::Stderr, why: "it is closed".into() }, sender).unwrap().finish();
    let Observed::Event(What::Warning { text }) = seen.recv().unwrap().what else { panic!("not a warning") };
    assert_eq!(stagemark::watch::unseen_stream(&text), Some(Stream::Stderr));
}

/// The whole form as it is documented is read, and what is wrong in it is named with its place.
#[test]
fn the_documented_form_is_read_and_mistakes_have_a_place() {
    let stage = |name: &str, when: &str| format!("[[stage]]\nname = \"{name}\"\nwhen = {when}\n");
    let head = "name = \"vllm\"\nstatus = \"verified\"\nargv = [\"vllm serve\"]\nuntil = \"first_response\"\n\
        vars = { port = { flag = \"--port\", default = \"8000\" } }\nstate = [\"~/.cache/vllm\", \"env:CACHE_DIR\"]\n";
    let mapped = stage("mapping_available", "{ mapping = \"any\" }");
    let populated = stage("module_populated", "{ log = 'took (?<reported_seconds>[0-9.]+) seconds', count = 1 }");
    let placed = "{ all = [ { device = { rise = \"64 MiB\", still = \"200 ms\" } }, { log = 'took' } ] }";
    let response = "{ http = { method = \"POST\", url = \"http://127.0.0.1:{port}/v1\", json = { prompt = \"hi\" } } }";
    let file = |placed: &str, response: &str| {
        let text =
            format!("{head}{mapped}{populated}{}{}", stage("gpu_placed", placed), stage("first_response", response));
        StageFile::parse(&text, "vllm.toml")
    };
    let problem = |placed, response| file(placed, response).unwrap_err().to_string();
    assert_eq!(file(placed, response).unwrap().stages.len(), 4);
    let device = problem("{ all = [ { device = { rise = \"64\", still = \"1 s\" } }, { log = 'took' } ] }", response);
    assert!(device.starts_with("vllm.toml:15:38: `rise`: expected a size"), "{device}");
    let http = problem("{ log = 'took' }", "{ http = { url = \"http://127.0.0.1:{prot}/v1\" } }");
    assert!(http.starts_with("vllm.toml:18:25: `url`: there is no variable `prot`"), "{http}");
    assert!(http.contains("did you mean `port`?"), "{http}");
}
