//! The launch is sacred: bytes, terminal, signals, exit status, and nothing that happens to the profiler harms it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use stagemark::clock::Mono;
use stagemark::event::What;
use stagemark::launch::{Control, Ended, Finals, Outputs, start, supervise};
use stagemark::sys::process::{exit_on_abort, outlive_aborts};
use stagemark::watch::Observed;

use crate::program;
use crate::support::*;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stagemark");

/// A shell line in which `"$@"` is `stagemark run --quiet … --`.
fn shell(line: &str, folder: &tempfile::TempDir) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line, "sh", PROGRAM]).args(run_arguments(folder));
    command
}

/// The same line with nothing in the place of the prefix.
fn bare(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line, "sh"]);
    command
}

/// A line must print the same with and without the profiler.
fn assert_same(line: &str) -> Vec<u8> {
    let folder = folder();
    let (with, without) = (finish(&mut shell(line, &folder)), finish(&mut bare(line)));
    assert_eq!(String::from_utf8_lossy(&with.stderr), String::from_utf8_lossy(&without.stderr), "{line}");
    assert_eq!(String::from_utf8_lossy(&with.stdout), String::from_utf8_lossy(&without.stdout), "{line}");
    assert_eq!(with.status.code(), without.status.code(), "{line}");
    with.stdout
}

const TOLD: [&str; 7] = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"];

/// This test binary as a command that does one of the parts below.
fn helper(part: &str) -> Vec<OsString> {
    let blocked = if part == "launch" { &TOLD[..1] } else { &TOLD[..] };
    let own = std::env::current_exe().unwrap();
    let variable = format!("STAGEMARK_TEST_PART={part}");
    // Blocked from the first, in every thread: the test harness has one beside the test's own, and a signal to the
    // process would end it there.
    vec![
        "env".into(),
        format!("--block-signal=SIGCHLD,{}", blocked.join(",")).into(),
        variable.into(),
        own.into(),
        "launch::helper_process".into(),
        "--exact".into(),
        "--nocapture".into(),
        "--test-threads=1".into(),
    ]
}

/// Not a test of its own: what `helper` runs.
#[test]
fn helper_process() {
    match std::env::var("STAGEMARK_TEST_PART").as_deref() {
        Ok("signals") => tell_signals(),
        Ok("launch") => launch_by_hand(),
        Ok("one line") => {
            let mut out = std::io::stdout().lock();
            out.write_all(LINE_BEGINS).unwrap();
            (0..LINE_BLOCKS).for_each(|number| out.write_all(line_block(number)).unwrap());
            out.flush().unwrap();
            std::process::exit(0);
        }
        Ok("abort after the end") => {
            outlive_aborts();
            exit_on_abort(7);
            std::process::abort();
        }
        Ok("abort of a thread before the end") => {
            outlive_aborts();
            let thread = std::thread::spawn(|| std::process::abort());
            // It is in its handler once it sleeps there.
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!thread.is_finished());
            exit_on_abort(8);
            let _ = thread.join();
        }
        Ok("stubborn") => {
            // SIGTERM is blocked here and so in the command (a shell would unblock it).
            let (ended, _, _) = launch("exec sleep 600", true);
            assert_eq!(ended.status(), 128 + 9);
        }
        _ => {}
    }
}

/// A launch as the recorder makes one. In a process of its own, for every child of the process is reaped.
fn launch(line: &str, stop: bool) -> (Ended, Vec<What>, Finals) {
    let argv = ["sh", "-c", line].map(OsString::from).to_vec();
    let mut outputs = Outputs::prepare(&argv).unwrap();
    let before = Mono::now();
    let started =
        start(&stagemark::launch::Command { argv, environment: Vec::new(), group: None }, &mut outputs).unwrap();
    assert!(before < started.start && started.start <= Mono::now());
    let (finals, control) = (Finals::new(), Control::new().unwrap());
    if stop {
        control.stop();
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let ended = supervise(&started, &mut outputs, &finals, &control, &sender).unwrap();
    assert!(outputs.drain(LIMIT));
    assert_eq!(ended.pid, started.pid);
    let whats = receiver.try_iter().map(|seen| match seen.what {
        Observed::Event(what) => what,
        other => panic!("{other:?}"),
    });
    (ended, whats.collect(), finals)
}

/// What a launch tells its recorder.
fn launch_by_hand() {
    // It waits for its orphan to be reaped, by us.
    let line = "p=$( (sh -c 'exit 3' >/dev/null & echo $!) ); while test -e /proc/$p; do sleep 0.01; done; exit 5";
    let (ended, seen, finals) = launch(line, false);
    assert_eq!((ended.code, ended.signal, ended.status()), (Some(5), None, 5));
    let pid = ended.pid;
    assert_eq!(seen.last(), Some(&What::Exit { pid, code: Some(5), signal: None }));
    assert!(seen.contains(&What::Gone { pid, code: Some(5), signal: None }));
    assert!(seen.iter().any(|what| matches!(what, What::Gone { code: Some(3), signal: None, .. })), "{seen:?}");
    let readings = finals.drain();
    let (key, last) = readings.iter().find(|(key, _)| key.pid == pid).unwrap();
    let stat = String::from_utf8(last.stat.clone()).unwrap();
    assert!(stat.starts_with(&format!("{pid} (sh) Z ")), "{stat}");
    assert_eq!(stat.split(' ').nth(21), Some(key.start_time.to_string().as_str()));
    assert!(String::from_utf8(last.io.clone().unwrap()).unwrap().contains("rchar: "));

    let (ended, _, _) = launch("exec sleep 600", true);
    assert_eq!(ended.status(), 128 + 15);
}

/// Runs a helper with files as its streams: this binary is no output pump.
fn assert_helper_succeeds(part: &str) {
    let folder = folder();
    let log = folder.path().join("log");
    let file = File::create(&log).unwrap();
    let part = helper(part);
    let mut command = Command::new(&part[0]);
    command.args(&part[1..]).stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let status = ended(&mut command.spawn().unwrap());
    assert!(status.success(), "{}", std::fs::read_to_string(&log).unwrap());
}

#[test]
fn the_recorder_is_told_of_ends_and_can_stop_the_command() {
    assert_helper_succeeds("launch");
}

#[test]
fn what_does_not_heed_a_stop_is_killed() {
    assert_helper_succeeds("stubborn");
}

/// Prints each signal that comes, until SIGUSR2 comes; then exits with 9.
fn tell_signals() {
    use std::io::Write;
    let mut set = SigSet::empty();
    for signal in TOLD {
        set.add(signal.parse().unwrap());
    }
    let inbox = SignalFd::new(&set).unwrap();
    let mut out = File::from(std::io::stdout().as_fd().try_clone_to_owned().unwrap());
    writeln!(out, "<ready {}>", std::process::id()).unwrap();
    let mut count = 0;
    while let Ok(Some(info)) = inbox.read_signal() {
        count += 1;
        let signal = Signal::try_from(info.ssi_signo as i32).unwrap();
        if signal == Signal::SIGWINCH {
            count -= 1;
            let terminal = out.try_clone().unwrap();
            let size = Command::new("stty").arg("size").stdin(terminal).output().unwrap().stdout;
            writeln!(out, "<size {}>", String::from_utf8_lossy(&size).trim()).unwrap();
            continue;
        }
        writeln!(out, "<{count} {signal} code {}><from {}>", info.ssi_code, info.ssi_pid).unwrap();
        if signal == Signal::SIGUSR2 {
            std::process::exit(9);
        }
    }
}

/// The pid that a helper printed in `<ready PID>`.
fn ready_pid(all: &[u8]) -> i32 {
    let text = String::from_utf8_lossy(all);
    text.split("<ready ").nth(1).unwrap().split('>').next().unwrap().parse().unwrap()
}

/// Reads until a text has come.
fn wait_for(out: impl AsFd, seen: &mut Vec<u8>, text: &str) {
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(seen).contains(text) {
        let length = read_some(&out, &mut buffer);
        assert!(length > 0, "{text} in {}", String::from_utf8_lossy(seen));
        seen.extend_from_slice(&buffer[..length]);
    }
}

#[test]
fn arguments_arrive_byte_for_byte() {
    let folder = folder();
    let argv: Vec<&OsStr> = [&b"printf"[..], b"%s\\0", b"", b"a b", b"\xff\xfe", b"--", b"-x", b"new\nline", b"'\"$"]
        .into_iter()
        .map(OsStr::from_bytes)
        .collect();
    let output = finish(&mut run_of(&argv, &folder));
    assert_eq!(output.stdout, b"\0a b\0\xff\xfe\0--\0-x\0new\nline\0'\"$\0");
    let output = finish(&mut run_of(&["cat", "/proc/self/cmdline"], &folder));
    assert_eq!(output.stdout, b"cat\0/proc/self/cmdline\0");
}

#[test]
fn directory_limits_and_signals_are_inherited() {
    assert_same(r#""$@" pwd -P"#);
    assert_same(r#"cd /; "$@" pwd -P"#);
    assert_same(
        r#"umask 027; ulimit -n 77; "$@" sh -c 'umask; ulimit -n; ulimit -a; nice; cat /proc/self/oom_score_adj'"#,
    );
    assert_same(r#""$@" grep ^Sig.*[kn]: /proc/self/status"#);
    assert_same(r#"trap '' PIPE HUP; "$@" grep ^Sig.*[kn]: /proc/self/status"#);
    assert_same(r#"env --block-signal=USR1 --block-signal=TERM "$@" grep ^Sig.*[kn]: /proc/self/status"#);
    assert_same(r#"env --ignore-signal=INT --ignore-signal=QUIT "$@" grep ^Sig.*[kn]: /proc/self/status"#);
}

#[test]
fn everything_else_that_a_process_is_given_is_the_same() {
    // All that proc(5) tells of a process but its ids and what it has used, and what each descriptor leads to.
    let look = r#"cd /proc/self; cat limits oom_score_adj personality coredump_filter timerslack_ns cgroup;
        grep -E '^(Umask|Uid|Gid|Groups|NSpid|Sig(Blk|Ign)|Cap|NoNewPrivs|Seccomp|Cpus_allowed|Mems_allowed)' status |
            grep -v NSpid;
        for ns in ns/*; do readlink $ns; done; nice; ps -o sid=,tty=,cls=,rtprio=,ni= -p $$;
        for fd in 0 3 7 8 9; do readlink fd/$fd; grep -E 'flags|pos' fdinfo/$fd; done; umask"#;
    let line = format!(
        "umask 027; ulimit -c 5; ulimit -n 300; trap '' INT QUIT USR1 PIPE XFSZ TSTP; exec 7</dev/zero 9>>/dev/null && \
         nice -n 3 env --block-signal=USR2,HUP,TSTP,CONT setarch -R \"$@\" sh -c {} 2>/dev/null",
        shell_word(look)
    );
    let seen = String::from_utf8(assert_same(&line)).unwrap();
    assert!(seen.contains("Max open files            300"), "{seen}");
    // NOTIFY_SOCKET and STAGEMARK_SOCKET are all that is added, and `_` is the shell's own.
    let environment = |mut command: Command| {
        let output = finish(command.env("A", "1=2").env_remove("NOTIFY_SOCKET").env_remove("STAGEMARK_SOCKET"));
        let mut entries: Vec<_> = output.stdout.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        entries.retain(|entry| !entry.starts_with(b"_="));
        entries.sort_unstable();
        entries
    };
    let folder = folder();
    let mut with = environment(shell("exec \"$@\" env -0", &folder));
    let before = with.len();
    with.retain(|entry| !entry.starts_with(b"NOTIFY_SOCKET=") && !entry.starts_with(b"STAGEMARK_SOCKET="));
    assert_eq!(before - with.len(), 2);
    assert_eq!(with, environment(bare("exec env -0")));
}

/// A word that a shell takes as it is.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn where_descriptors_or_file_sizes_are_short_the_command_still_runs() {
    let say = "sh -c 'echo out; echo err >&2; exit 3'";
    for limit in ["-n 16", "-n 20", "-n 24", "-f 0", "-f 4"] {
        assert_same(&format!("ulimit {limit}; \"$@\" {say}"));
    }
    // The signal is the command's own to die by.
    let line = "ulimit -f 0; \"$@\" grep -E '^Sig(Ign|Blk)' /proc/self/status; \"$@\" sh -c 'echo > file'; echo $?";
    let folder = folder();
    let run = |mut command: Command| {
        let output = finish(command.current_dir(folder.path()));
        String::from_utf8(output.stdout).unwrap()
    };
    // Two runs, each in a folder of its own.
    let with = line.replacen("\"$@\" sh", "shift 4; \"$0\" run -q --out again -- sh", 1);
    let mut command = Command::new("sh");
    command.args(["-c", &with, PROGRAM, PROGRAM]).args(run_arguments(&folder));
    assert_eq!(run(command), run(bare(line)));
}

#[test]
fn an_abort_of_the_profiler_keeps_the_status() {
    for (part, status) in [("abort after the end", Some(7)), ("abort of a thread before the end", Some(8))] {
        let part = helper(part);
        let mut command = Command::new(&part[0]);
        command.args(&part[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert_eq!(ended(&mut command.spawn().unwrap()).code(), status);
    }
}

#[test]
fn the_environment_is_inherited() {
    // Sorted: what a run adds for notification is left out by name.
    let listed = |command: &mut Command| -> Vec<Vec<u8>> {
        let output = finish(command.env("STAGEMARK_TEST_X", OsStr::from_bytes(b"\xff\n=")).env("EMPTY", ""));
        let own = [&b"NOTIFY_SOCKET="[..], b"STAGEMARK_SOCKET="];
        output
            .stdout
            .split(|byte| *byte == 0)
            .filter(|entry| !own.iter().any(|name| entry.starts_with(name)))
            .map(<[u8]>::to_vec)
            .collect()
    };
    let folder = folder();
    let with = listed(&mut run_of(&["cat", "/proc/self/environ"], &folder));
    let without = listed(Command::new("cat").arg("/proc/self/environ"));
    assert_eq!(with, without);
}

#[test]
fn a_command_whose_sigchld_is_ignored_keeps_its_status() {
    let folder = folder();
    let line = r#"env --ignore-signal=CHLD "$@" sh -c 'grep ^SigIgn /proc/self/status; exit 5'"#;
    let with = finish(&mut shell(line, &folder));
    let without = finish(&mut bare(line));
    assert_eq!(with.status.code(), Some(5));
    assert_eq!(with.stdout, without.stdout);
}

#[test]
fn every_exit_status_is_passed_on() {
    let folder = folder();
    // Nothing, the plain ones, those that a shell or the profiler itself gives a meaning to, and the edges of a byte.
    for status in [0, 1, 2, 3, 42, 124, 125, 126, 127, 128, 129, 130, 137, 143, 192, 254, 255] {
        let line = format!("exit {status}");
        let mut command = run_of(&["sh", "-c", &line], &folder);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(ended(&mut child).code(), Some(status));
    }
}

#[test]
fn death_by_a_signal_is_told_as_a_shell_tells_it() {
    let folder = folder();
    // Those that users send, those of crashes, one that the profiler passes on, one that pumps meet, and real-time ones.
    for signal in [1, 2, 3, 6, 9, 10, 11, 13, 15, 34, 64] {
        let line = format!("ulimit -c 0; kill -{signal} $$");
        // Whoever runs the tests may have SIGHUP ignored, as nohup has, and a shell could not undo it.
        let output = finish(&mut run_of(&["env", "--default-signal", "sh", "-c", &line], &folder));
        assert_eq!(output.status.code(), Some(128 + signal), "signal {signal}");
    }
}

#[test]
fn what_cannot_be_started_has_a_shells_status() {
    let folder = folder();
    let output = finish(&mut run_of(&["no-such-program-anywhere"], &folder));
    assert_eq!(output.status.code(), Some(127));
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "x").unwrap();
    let output = finish(&mut run_of(&[&plain], &folder));
    assert_eq!(output.status.code(), Some(126));
    let output = finish(&mut run_of(&[folder.path()], &folder));
    assert_eq!(output.status.code(), Some(126));
}

#[test]
fn a_script_without_an_interpreter_line_runs() {
    let folder = folder();
    let script = folder.path().join("script");
    program::script(&script, "echo \"$1\"; exit 4\n");
    let output = finish(&mut run_of(&[script.as_os_str(), OsStr::new("one")], &folder));
    assert_eq!(output.stdout, b"one\n");
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn closed_descriptors_stay_closed() {
    let look = r#"sh -c 'for n in 0 1 2; do test -e /proc/$$/fd/$n && echo $n open || echo $n closed; done >"$0"'"#;
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-", "</dev/null >/dev/null"] {
        let seen = |prefix: &str, arguments: Vec<OsString>| {
            let folder = folder();
            let file = folder.path().join("seen");
            let line = format!("file=$1; shift; {prefix} {look} \"$file\" {closed}");
            let mut command = Command::new("sh");
            command.args(["-c", &line, "sh"]).arg(&file).args(arguments);
            assert_eq!(finish(&mut command).status.code(), Some(0));
            std::fs::read_to_string(&file).unwrap()
        };
        let folder = folder();
        let mut prefix = vec![OsString::from(PROGRAM)];
        prefix.extend(run_arguments(&folder));
        assert_eq!(seen("\"$@\"", prefix), seen("", Vec::new()), "{closed}");
    }
}

#[test]
fn other_descriptors_are_inherited_and_none_is_added() {
    let folder = folder();
    let file = folder.path().join("seven");
    std::fs::write(&file, "seven").unwrap();
    let line = format!(r#"exec 7<{}; "$@" sh -c 'cat <&7; ls /proc/$$/fd'"#, file.display());
    assert!(assert_same(&line).starts_with(b"seven"));
}

#[test]
fn two_streams_that_are_one_stay_in_order() {
    let folder = folder();
    let print = "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let expected: String = (0..3000).map(|i| format!("out {i}\nerr {i}\n")).collect();
    let output = finish(&mut shell(&format!("exec 2>&1; \"$@\" sh -c '{print}'"), &folder));
    assert!(output.stdout == expected.as_bytes(), "a pipe");
    let file = folder.path().join("both");
    let output = finish(&mut shell(&format!("\"$@\" sh -c '{print}' >{} 2>&1", file.display()), &folder));
    assert_eq!(output.status.code(), Some(0));
    assert!(std::fs::read(&file).unwrap() == expected.as_bytes(), "a file");
}

#[test]
fn two_streams_that_are_two_stay_apart() {
    let folder = folder();
    let output = finish(&mut run_of(&["sh", "-c", "echo out; echo err >&2; exit 7"], &folder));
    assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_file_and_a_device_are_passed_as_they_are() {
    let folder = folder();
    let file = folder.path().join("log");
    std::fs::write(&file, "before\n").unwrap();
    let line = format!(
        r#""$@" sh -c 'readlink /proc/$$/fd/1; echo after; readlink /proc/$$/fd/2' >>{} 2>/dev/null"#,
        file.display()
    );
    assert_eq!(finish(&mut shell(&line, &folder)).status.code(), Some(0));
    let path = std::fs::canonicalize(&file).unwrap();
    let expected = format!("before\n{}\nafter\n/dev/null\n", path.display());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
}

#[test]
fn a_socket_gets_every_byte() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    let folder = folder();
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let mut command = run_of(&["seq", "1", "3000000"], &folder);
    let mut child = command.stdin(Stdio::null()).stdout(theirs).stderr(Stdio::null()).spawn().unwrap();
    drop(command);
    let mut reader = Reader::default();
    reader.read(&ours, u64::MAX);
    assert_eq!(ended(&mut child).code(), Some(0));
    assert_eq!(reader.sum(), printed_by(&["seq", "1", "3000000"]));
}

#[test]
fn a_destination_that_does_not_block_gets_every_byte() {
    let folder = folder();
    let (ours, theirs) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
    nix::fcntl::fcntl(&theirs, flags).unwrap();
    let mut command = run_of(&["seq", "1", "3000000"], &folder);
    let mut child = command.stdin(Stdio::null()).stdout(theirs).stderr(Stdio::null()).spawn().unwrap();
    drop(command);
    let mut reader = Reader::default();
    reader.read(&ours, u64::MAX);
    assert_eq!(ended(&mut child).code(), Some(0));
    assert_eq!(reader.sum(), printed_by(&["seq", "1", "3000000"]));
}

#[test]
fn a_large_output_is_the_same() {
    let folder = folder();
    let expected = printed_by(&LONG);
    // Far past every buffer on the way.
    assert!(expected.0 > 48 << 20);
    let mut command = run_of(&LONG, &folder);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut reader = Reader::default();
    reader.read(child.stdout.take().unwrap(), u64::MAX);
    assert_eq!(ended(&mut child).code(), Some(0));
    assert_eq!(reader.sum(), expected);
}

/// A gibibyte, block by block, each of which is unlike its neighbours.
const LINE_BLOCKS: usize = 1 << 14;
const LINE_BEGINS: &[u8] = b"the line begins\n";

/// A block of a line without an end.
fn line_block(number: usize) -> &'static [u8] {
    const LENGTH: usize = 1 << 16;
    static PATTERN: std::sync::LazyLock<Vec<u8>> =
        std::sync::LazyLock::new(|| (0..LENGTH + 251).map(|index| b'0' + (index % 251 % 75) as u8).collect());
    let from = number % 251;
    &PATTERN[from..from + LENGTH]
}

/// Whatever is printed without an end, the profiler holds little of it at a time.
#[test]
fn a_gibibyte_without_a_newline_is_the_same_and_takes_no_memory() {
    const MOST: u64 = 96 << 20;
    let folder = folder();
    let run = folder.path().join("run");
    let mut command = stagemark();
    command.args(["run", "--quiet", "--out"]).arg(&run).arg("--").args(helper("one line"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let mut seen = Vec::new();
    let begins = loop {
        let mut buffer = [0; 4096];
        let length = read_some(&out, &mut buffer);
        assert!(length > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..length]);
        if let Some(at) = memchr::memmem::find(&seen, LINE_BEGINS) {
            break at + LINE_BEGINS.len();
        }
    };
    let (mut left, mut length) = (seen.split_off(begins), 0);
    let mut buffer = vec![0; 1 << 18];
    for number in 0..LINE_BLOCKS {
        let block = line_block(number);
        while left.len() - length < block.len() {
            left.drain(..std::mem::take(&mut length));
            let read = read_some(&out, &mut buffer);
            assert!(read > 0, "it ends in block {number}");
            left.extend_from_slice(&buffer[..read]);
        }
        assert!(left[length..length + block.len()] == *block, "block {number} is another one");
        length += block.len();
    }
    assert_eq!((left.len(), read_some(&out, &mut buffer)), (length, 0), "nothing more");
    assert!(ended(&mut child).success());
    let meta: serde_json::Value = serde_json::from_slice(&std::fs::read(run.join("run.json")).unwrap()).unwrap();
    let peak = meta["cost"]["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak < MOST, "{peak} bytes");
    let kept = std::fs::metadata(run.join("output.log")).unwrap().len();
    assert!(kept < 2 << 20, "{kept} bytes of it are kept");
}

#[test]
fn a_reader_that_leaves_ends_the_command_as_before() {
    let folder = folder();
    let line = r#""$@" sh -c 'yes; echo $? >"$0"' FILE | head -n 1"#;
    let file = folder.path().join("status");
    let output = finish(&mut shell(&line.replace("FILE", file.to_str().unwrap()), &folder));
    assert_eq!(output.stdout, b"y\n");
    let status =
        eventually("yes has ended", || std::fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n')));
    // yes dies by SIGPIPE.
    assert_eq!(status, "141\n");
}

#[test]
fn a_quiet_command_learns_that_its_reader_left() {
    let folder = folder();
    let mut command = run_of(&["sh", "-c", "echo one; read line; echo two; echo $? >&2"], &folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id() as i32;
    let mut buffer = [0; 16];
    let stdout = child.stdout.take().unwrap();
    assert_eq!(read_some(&stdout, &mut buffer), 4);
    eventually("both pumps have their name", || (children_named(pid, "output-pump").len() == 2).then_some(()));
    let command = children_named(pid, "sh")[0];
    let pipe = std::fs::read_link(format!("/proc/{command}/fd/1")).unwrap();
    drop(stdout);
    eventually("the pump has left", || (children_named(pid, "output-pump").len() == 1).then_some(()));
    // The profiler has a copy of the pipe's end for the next pump, until it hears that there will be none.
    eventually("the profiler has let go of the pipe", || {
        let held = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let mut held = held.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        (!held.any(|end| end == pipe)).then_some(())
    });
    drop(child.stdin.take());
    // The first write after that must fail, not a later one: the shell dies by SIGPIPE.
    assert_eq!(ended(&mut child).code(), Some(141));
}

fn terminal(script: &str, argv: &[OsString], raw: bool) -> (Terminal, tempfile::TempDir) {
    let folder = folder();
    let mut arguments = vec![OsString::from(PROGRAM)];
    arguments.extend(run_arguments(&folder));
    arguments.extend(argv.iter().cloned());
    (Terminal::start("bash", script, &arguments, raw, (31, 97)), folder)
}

/// Runs the command, says its status, and stays so that the session goes on.
const ONCE: &str = r#""$@"; echo "<status $?>"; read line"#;

fn words(text: &[&str]) -> Vec<OsString> {
    text.iter().map(OsString::from).collect()
}

#[test]
fn a_terminal_stays_a_terminal() {
    let look = "test -t 0 && test -t 1 && test -t 2 && echo three terminals; stty size; stty size <&1; stty size <&2; \
                tty </dev/tty >/dev/null && echo controlled; ps -o tpgid= -p $$ | tr -d ' '; exit 6";
    let (terminal, _folder) = terminal(ONCE, &words(&["sh", "-c", look]), false);
    let (all, _) = terminal.wait_for("<status 6>", 0);
    let text = String::from_utf8(all).unwrap();
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(lines[..5], ["three terminals", "31 97", "31 97", "31 97", "controlled"], "{text}");
    // The foreground group is the session's own, as without the profiler: bash without job control has one group.
    assert_eq!(lines[5], terminal.leader().to_string());
}

#[test]
fn modes_set_on_the_output_reach_the_terminal() {
    // ncurses sets the modes of standard output and reads keys from standard input.
    let line = "exec 3>&1; old=$(stty -g <&3); stty -icanon min 1 time 0 <&1; \
                until stty -a </dev/tty | grep -q -e -icanon; do sleep 0.01; done; \
                echo '<key?>'; key=$(head -c 1); echo \"<key $key>\"; stty $old <&1";
    let script = r#""$@"; echo "<status $?>"; stty -a; echo "<end>"; read line"#;
    let (terminal, _folder) = terminal(script, &words(&["sh", "-c", line]), false);
    let (_, at) = terminal.wait_for("<key?>", 0);
    // Without a newline.
    terminal.enter(b"x");
    let (_, at) = terminal.wait_for("<key x>", at);
    let (_, begin) = terminal.wait_for("<status 0>", at);
    let (all, end) = terminal.wait_for("<end>", begin);
    // Set back before the session's next command looks.
    let modes = String::from_utf8_lossy(&all[begin..end]).into_owned();
    let modes: Vec<&str> = modes.split_whitespace().collect();
    assert!(["icanon", "opost", "-echo"].iter().all(|mode| modes.contains(mode)), "{modes:?}");
}

#[test]
fn an_interactive_shell_has_job_control() {
    let script =
        r#"export PS1='<prompt>'; set -m; "$@"; echo "<stopped $?>"; read line; fg; echo "<status $?>"; read line"#;
    let (terminal, _folder) = terminal(script, &words(&["bash", "--norc", "--noprofile", "-i"]), false);
    terminal.enter(b"echo \"<jobs $-;>\"\n");
    let (_, begin) = terminal.wait_for("\n<jobs ", 0);
    let (all, at) = terminal.wait_for(";>", begin);
    assert!(all[begin..at].contains(&b'm'), "{}", String::from_utf8_lossy(&all[..at]));
    // It stops itself alone, and the shell before it takes the terminal back.
    terminal.enter(b"suspend\n");
    let (_, at) = terminal.wait_for("<stopped 147>", at);
    terminal.enter(b"\n");
    let (_, at) = terminal.wait_for("<prompt>", at);
    terminal.enter(b"exit 7\n");
    terminal.wait_for("<status 7>", at);
}

#[test]
fn what_does_not_stop_by_a_key_keeps_the_terminal() {
    let script = r#"set -m; "$@"; echo "<status $?>"; read line"#;
    let line = "trap '' TSTP; echo '<ready>'; read line; echo \"<read $line>\"; exit 5";
    let (terminal, _folder) = terminal(script, &words(&["sh", "-c", line]), false);
    let (_, at) = terminal.wait_for("<ready>", 0);
    terminal.enter(b"\x1ax\n");
    let (_, at) = terminal.wait_for("<read x>", at);
    terminal.wait_for("<status 5>", at);
}

#[test]
fn bytes_pass_a_terminal_once_and_unchanged() {
    let (terminal, _folder) = terminal(ONCE, &words(&["printf", "a\\nb\\r\\nc\\td\\001\\377e\\n"]), true);
    let (all, end) = terminal.wait_for("<status 0>", 0);
    assert_eq!(all[..end], b"a\nb\r\nc\td\x01\xffe\n<status 0>"[..]);
    let (terminal, _folder) = self::terminal(ONCE, &words(&["printf", "a\\nb\\n"]), false);
    let (all, end) = terminal.wait_for("<status 0>", 0);
    assert_eq!(all[..end], b"a\r\nb\r\n<status 0>"[..]);
}

#[test]
fn a_new_terminal_size_is_seen() {
    let (terminal, _folder) = terminal(ONCE, &helper("signals"), false);
    let (_, at) = terminal.wait_for("<ready ", 0);
    let (all, at) = terminal.wait_for(">", at);
    terminal.resize((44, 111));
    let (_, at) = terminal.wait_for("<size 44 111>", at);
    terminal.resize((45, 112));
    let (_, at) = terminal.wait_for("<size 45 112>", at);
    signal(ready_pid(&all), Signal::SIGUSR2);
    terminal.wait_for("<status 9>", at);
}

#[test]
fn a_key_at_the_terminal_signals_once() {
    let script = r#"trap : INT QUIT; "$@"; echo "<status $?>"; read line"#;
    let (terminal, _folder) = terminal(script, &helper("signals"), false);
    let (all, mut at) = terminal.wait_for("<ready ", 0);
    at = terminal.wait_for(">", at).1;
    let _ = all;
    for count in 1..=8 {
        let (key, name) = if count % 2 == 1 { (b"\x03", "SIGINT") } else { (b"\x1c", "SIGQUIT") };
        terminal.enter(key);
        // SI_KERNEL: the terminal's own, not one sent on.
        at = terminal.wait_for(&format!("<{count} {name} code 128>"), at).1;
    }
    let pid = ready_pid(&terminal.wait_for(">", 0).0);
    signal(pid, Signal::SIGUSR2);
    // The ninth: none was doubled.
    terminal.wait_for("<9 SIGUSR2 code 0>", at);
    terminal.wait_for("<status 9>", at);
}

#[test]
fn signals_sent_to_the_profiler_reach_the_command_once() {
    let folder = folder();
    let mut command = run_of(&helper("signals"), &folder);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let mut seen = Vec::new();
    wait_for(&out, &mut seen, "<ready ");
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
    for (count, sent) in signals.into_iter().enumerate() {
        signal(child.id() as i32, sent);
        wait_for(&out, &mut seen, &format!("<{} {sent} code 0>", count + 1));
    }
    assert_eq!(ended(&mut child).code(), Some(9));
}

/// The profiler and the command that tells its signals, alone in a group, once that is ready; and what was printed so far.
fn in_a_group_of_its_own(folder: &tempfile::TempDir) -> (Child, ChildStdout, Vec<u8>) {
    let mut command = Command::new("setsid");
    command.arg(PROGRAM).args(run_arguments(folder)).args(helper("signals"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (out, mut seen) = (child.stdout.take().unwrap(), Vec::new());
    wait_for(&out, &mut seen, "<ready ");
    (child, out, seen)
}

#[test]
fn a_signal_to_the_whole_group_reaches_the_command_once() {
    let folder = folder();
    let (mut child, out, mut seen) = in_a_group_of_its_own(&folder);
    let profiler = child.id() as i32;
    for (sent, count) in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGUSR1].into_iter().zip(1..) {
        nix::sys::signal::killpg(nix::unistd::Pid::from_raw(profiler), sent).unwrap();
        wait_for(&out, &mut seen, &format!("<{count} {sent} code 0>"));
    }
    // Handled after all of them.
    signal(profiler, Signal::SIGUSR2);
    wait_for(&out, &mut seen, " SIGUSR2 code 0>");
    assert!(String::from_utf8_lossy(&seen).contains("<5 SIGUSR2 code 0>"), "{}", String::from_utf8_lossy(&seen));
    assert_eq!(ended(&mut child).code(), Some(9));
}

/// Two of a kind may be one to a process that has not come to the first yet, and two to another: whichever they are to
/// the profiler and its witness, the command is given none of them again.
#[test]
fn two_of_a_kind_to_the_whole_group_are_not_given_again() {
    const ROUNDS: usize = 150;
    let folder = folder();
    let (mut child, out, mut seen) = in_a_group_of_its_own(&folder);
    let profiler = child.id() as i32;
    let told = |seen: &[u8]| memchr::memmem::find_iter(seen, " SIGUSR1 code 0><from ").count();
    for _ in 0..ROUNDS {
        let before = told(&seen);
        for _ in 0..2 {
            nix::sys::signal::killpg(nix::unistd::Pid::from_raw(profiler), Signal::SIGUSR1).unwrap();
        }
        let mut buffer = [0; 4096];
        while told(&seen) == before {
            let length = read_some(&out, &mut buffer);
            assert!(length > 0);
            seen.extend_from_slice(&buffer[..length]);
        }
    }
    // Handled after all of them; sent to the profiler alone, so that it is given by it.
    signal(profiler, Signal::SIGUSR2);
    wait_for(&out, &mut seen, &format!(" SIGUSR2 code 0><from {profiler}>"));
    let seen = String::from_utf8_lossy(&seen).into_owned();
    let given = seen.matches(&format!(" SIGUSR1 code 0><from {profiler}>")).count();
    assert_eq!(given, 0, "of {} that the command got", seen.matches(" SIGUSR1 ").count());
    assert_eq!(ended(&mut child).code(), Some(9));
}

#[test]
fn a_signal_before_the_command_is_ready_is_not_lost() {
    let folder = folder();
    let mut command = run_of(&["sleep", "600"], &folder);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id() as i32;
    // From here on the profiler itself no longer dies of it.
    eventually("the signals are held", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"))?;
        (u64::from_str_radix(blocked, 16).ok()? >> (libc::SIGTERM - 1) & 1 == 1).then_some(())
    });
    signal(pid, Signal::SIGTERM);
    assert_eq!(ended(&mut child).code(), Some(143));
}

#[test]
fn stopping_and_continuing_from_the_terminal_work() {
    let script = r#"set -m; "$@"; echo "<stopped $?>"; read line; fg >/dev/null; echo "<status $?>"; read line"#;
    let (terminal, _folder) = terminal(script, &helper("signals"), false);
    let (_, at) = terminal.wait_for("<ready ", 0);
    let (all, at) = terminal.wait_for(">", at);
    let command = ready_pid(&all);
    let profilers = children_named(terminal.leader(), "stagemark");
    assert_eq!(profilers.len(), 1);
    terminal.enter(b"\x1a");
    // 128 + SIGTSTP.
    let (_, at) = terminal.wait_for("<stopped 148>", at);
    assert_eq!(state_of(profilers[0]), Some('T'));
    eventually("the command has stopped", || (state_of(command) == Some('T')).then_some(()));
    terminal.enter(b"\n");
    eventually("the command goes on", || (state_of(command) != Some('T')).then_some(()));
    eventually("the profiler goes on", || (state_of(profilers[0]) != Some('T')).then_some(()));
    terminal.enter(b"\x03");
    let (_, at) = terminal.wait_for("<1 SIGINT code 128>", at);
    signal(profilers[0], Signal::SIGUSR2);
    terminal.wait_for("<status 9>", at);
}

const LONG: [&str; 3] = ["seq", "1", "8000000"];

/// Prints much, then leaves a file behind.
fn long_job(folder: &tempfile::TempDir) -> (Vec<OsString>, std::path::PathBuf) {
    let done = folder.path().join("done");
    let line = format!("{}; echo done >'{}'", LONG.join(" "), done.display());
    (words(&["sh", "-c", &line]), done)
}

#[test]
fn a_killed_profiler_leaves_the_command_and_its_pipe_whole() {
    let folder = folder();
    let (argv, done) = long_job(&folder);
    let mut command = run_of(&argv, &folder);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let mut reader = Reader::default();
    assert!(!reader.read(&out, 1 << 20));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(!done.exists());
    assert!(reader.read(&out, u64::MAX));
    assert_eq!(reader.sum(), printed_by(&LONG));
    eventually("the command has come to its end", || done.exists().then_some(()));
}

#[test]
fn a_killed_profiler_leaves_the_command_and_its_file_whole() {
    let folder = folder();
    let (argv, done) = long_job(&folder);
    let log = folder.path().join("log");
    let mut command = run_of(&argv, &folder);
    let mut child =
        command.stdin(Stdio::null()).stdout(File::create(&log).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    eventually("something is printed", || (std::fs::metadata(&log).unwrap().len() > 0).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the command has come to its end", || done.exists().then_some(()));
    assert_eq!(sum_of_file(&log), printed_by(&LONG));
}

#[test]
fn a_killed_profiler_leaves_the_command_and_its_terminal_whole() {
    let files = folder();
    let done = files.path().join("done");
    let line = format!("seq 1 300000; echo '<end>'; echo done >'{}'", done.display());
    let (terminal, _folder) = terminal(ONCE, &words(&["sh", "-c", &line]), true);
    terminal.wait_for("\n2000\n", 0);
    let profilers = children_named(terminal.leader(), "stagemark");
    assert_eq!(profilers.len(), 1);
    signal(profilers[0], Signal::SIGKILL);
    // The shell says at once that its job was killed, in the middle of what the job still prints.
    let (_, _) = terminal.wait_for("<status 137>", 0);
    let (all, end) = terminal.wait_for("<end>", 0);
    let mut rest = String::from_utf8(all[..end].to_vec()).unwrap();
    // Take out what the shell said in two writes, which may have split lines of the command's.
    for (from, to) in [("bash: line 1: ", "\n"), ("<status 137>", "\n")] {
        let from = rest.find(from).unwrap();
        let length = rest[from..].find(to).unwrap() + to.len();
        rest.replace_range(from..from + length, "");
    }
    let expected: String = (1..=300_000).map(|i| format!("{i}\n")).chain(["<end>".into()]).collect();
    assert!(rest == expected, "{} bytes instead of {}", rest.len(), expected.len());
    eventually("the command has come to its end", || done.exists().then_some(()));
}

#[test]
fn a_killed_pump_loses_and_doubles_nothing() {
    let folder = folder();
    let mut command = run_of(&LONG, &folder);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let mut reader = Reader::default();
    let mut killed = Vec::new();
    for _ in 0..10 {
        assert!(!reader.read(&out, 4 << 20), "the stream ended before the last kill");
        let pump = eventually("there is a pump", || {
            children_named(child.id() as i32, "output-pump").into_iter().find(|pid| !killed.contains(pid))
        });
        signal(pump, Signal::SIGKILL);
        killed.push(pump);
    }
    assert!(reader.read(&out, u64::MAX));
    assert_eq!(ended(&mut child).code(), Some(0));
    assert_eq!(reader.sum(), printed_by(&LONG));
}

#[test]
fn a_killed_pump_of_a_terminal_loses_and_doubles_nothing() {
    // It goes on until the last of them was killed, however late that is.
    let stop = folder();
    let stop = stop.path().join("stop");
    let script = r#"i=0; until [ -e "$0" ]; do seq $((i+1)) $((i+=10000)); done; echo last $i"#;
    let argv = ["sh", "-c", script, stop.to_str().unwrap()];
    let (terminal, _folder) = terminal(ONCE, &words(&argv), true);
    let mut killed = Vec::new();
    let mut profilers = Vec::new();
    let mut at = 0;
    for count in 1..=10 {
        at = terminal.wait_for(&format!("\n{}\n", count * 10_000), at).1;
        if profilers.is_empty() {
            profilers = children_named(terminal.leader(), "stagemark");
        }
        let pump = eventually("there is a pump", || {
            children_named(profilers[0], "output-pump").into_iter().find(|pid| !killed.contains(pid))
        });
        signal(pump, Signal::SIGKILL);
        killed.push(pump);
    }
    std::fs::write(&stop, "").unwrap();
    let (all, end) = terminal.wait_for("<status 0>", at);
    let all = &all[..end];
    let text = String::from_utf8_lossy(all);
    let last = text.lines().rev().find_map(|line| line.strip_prefix("last ")?.parse::<u32>().ok()).unwrap();
    let ending = [format!("last {last}\n"), "<status 0>".into()];
    let expected: String = (1..=last).map(|i| format!("{i}\n")).chain(ending).collect();
    assert!(all == expected.as_bytes(), "{} bytes instead of {}", all.len(), expected.len());
}

#[test]
fn orphans_are_adopted_and_do_not_steal_the_status() {
    let folder = folder();
    // The first orphan ends before the root, the second outlives its own parents and is seen with the profiler as
    // its parent.
    let line = "(setsid sh -c 'exit 3' &) ; (setsid sh -c 'exec sleep 600' & echo $! ) ; \
                sleep 0.2; exit 42";
    let mut command = run_of(&["sh", "-c", line], &folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let pid = child.id() as i32;
    let sleeper = eventually("the orphan is the profiler's child", || children_named(pid, "sleep").first().copied());
    assert_eq!(ended(&mut child).code(), Some(42));
    // It was not harmed by the end of the launch.
    assert!(matches!(state_of(sleeper), Some('S')));
    signal(sleeper, Signal::SIGKILL);
}

#[test]
fn adopted_orphans_are_reaped_while_the_command_runs() {
    let folder = folder();
    let line = "for i in 1 2 3 4 5 6 7 8; do (sh -c 'exit 1' & ); done; echo '<begun>'; read line; exit 11";
    let mut command = run_of(&["sh", "-c", line], &folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id() as i32;
    wait_for(child.stdout.as_ref().unwrap(), &mut Vec::new(), "<begun>");
    // Zombies too; the profiler's own two are none of the command's.
    let comm = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    eventually("only the root is left", || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let own = ["signal-witness\n", "output-pump\n"];
        let of_command = children.split_whitespace().filter(|pid| !own.contains(&comm(pid).as_str()));
        (of_command.count() == 1).then_some(())
    });
    drop(child.stdin.take());
    assert_eq!(ended(&mut child).code(), Some(11));
}

#[test]
fn as_the_first_process_of_a_container_it_forwards_and_reaps() {
    let can = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("left out: no pid namespace may be made here");
        return;
    }
    let folder = folder();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", PROGRAM]).args(run_arguments(&folder)).args(helper("signals"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out: OwnedFd = child.stdout.take().unwrap().into();
    let mut seen = Vec::new();
    wait_for(&out, &mut seen, "<ready ");
    let first = eventually("the first process", || children_named(child.id() as i32, "stagemark").first().copied());
    signal(first, Signal::SIGTERM);
    wait_for(&out, &mut seen, "<1 SIGTERM code 0>");
    signal(first, Signal::SIGUSR2);
    wait_for(&out, &mut seen, "<2 SIGUSR2 code 0>");
    assert_eq!(ended(&mut child).code(), Some(9));
}
