//! The process tree, its counters and its mappings.
//!
//! Live trees of shells and of this test program itself, kept in step through their standard input and output: what a
//! tree has announced, one sweep must see.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid as NixPid;
use stagemark::artifact::{Artifact, ArtifactId, Found, Layout};
use stagemark::clock::Mono;
use stagemark::event::{Pid, What};
use stagemark::launch::tree::{ProcessKey, Sighting, Tree};
use stagemark::launch::{FinalReading, Finals};
use stagemark::metric::{Kind, Metric, Values};
use stagemark::probe::mapping::MappingProbe;
use stagemark::probe::process::ProcessProbe;
use stagemark::proc::stat::Stat;
use stagemark::proc::text::Io;

fn unmasked(argv: &[String]) -> Vec<String> {
    argv.to_vec()
}

/// A launched tree, spoken with line by line.
struct Launch {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    start: Mono,
}

impl Launch {
    fn of(command: &mut Command) -> Launch {
        let start = Mono::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Launch { child, stdin, stdout, start }
    }

    fn shell(script: &str) -> Launch {
        // This program, for scripts that start it as `"$HELPER" $AS`.
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("HELPER", std::env::current_exe().unwrap());
        Launch::of(command.env("AS", HELPER_ARGUMENTS.join(" ")))
    }

    fn helper(mode: &str) -> Launch {
        Launch::of(Command::new(std::env::current_exe().unwrap()).args(HELPER_ARGUMENTS).env("TREE_HELPER", mode))
    }

    fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    fn tree(&self) -> Tree {
        Tree::without_orphans(self.pid(), self.start, Finals::default(), unmasked)
    }

    /// The next line that begins with `word`, without it.
    fn line(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the launch ended before it said {word}");
            // The test harness of a helper writes its own words before the helper's first.
            if let Some(at) = line.find(word) {
                return line[at + word.len()..].trim().to_owned();
            }
        }
    }

    /// What an orphan says of its pid under `word`, and what the shell says when it has waited for the one between them,
    /// in any order.
    fn orphan_said(&mut self, word: &str) -> Pid {
        let (mut pid, mut alone) = (None, false);
        while pid.is_none() || !alone {
            let line = self.line("");
            match line.strip_prefix(word) {
                Some(said) => pid = said.trim().parse().ok(),
                None => alone |= line == "alone",
            }
        }
        pid.unwrap()
    }

    fn pid_said(&mut self, word: &str) -> Pid {
        self.line(word).parse().unwrap()
    }

    fn go(&mut self) {
        self.say("go\n");
    }

    fn say(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Closes its input, and waits for its end.
    fn finish(&mut self) {
        self.stdin = None;
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        self.stdin = None;
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn sweep(tree: &mut Tree) -> Vec<What> {
    let now = Mono::now();
    let sightings = tree.sweep(now);
    for (at, uncertainty, what) in &sightings {
        assert!(*at <= Mono::now() && uncertainty.is_some(), "{what:?}");
    }
    sightings.into_iter().map(|(_, _, what)| what).collect()
}

fn live(tree: &Tree) -> Vec<Pid> {
    tree.live().into_iter().map(|key| key.pid).collect()
}

fn born(events: &[What]) -> Vec<Pid> {
    events.iter().filter_map(|what| if let What::Born { pid, .. } = what { Some(*pid) } else { None }).collect()
}

fn programs(events: &[What], of: Pid) -> Vec<Vec<String>> {
    let argv = |what: &What| match what {
        What::Exec { pid, argv } if *pid == of => Some(argv.clone()),
        _ => None,
    };
    events.iter().filter_map(argv).collect()
}

fn gone(events: &[What], of: Pid) -> Vec<(Option<i32>, Option<i32>)> {
    let end = |what: &What| match what {
        What::Gone { pid, code, signal } if *pid == of => Some((*code, *signal)),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

fn stat_of(pid: Pid) -> Stat {
    Stat::parse(&std::fs::read(format!("/proc/{pid}/stat")).unwrap()).unwrap()
}

fn io_of(pid: Pid) -> Io {
    Io::parse(&std::fs::read(format!("/proc/{pid}/io")).unwrap()).unwrap()
}

const COUNTERS: [Metric; 9] = [
    Metric::MinorFaults,
    Metric::MajorFaults,
    Metric::RcharBytes,
    Metric::ReadBytes,
    Metric::WcharBytes,
    Metric::WriteBytes,
    Metric::ReadSyscalls,
    Metric::CpuUserNs,
    Metric::CpuSystemNs,
];

fn assert_no_counter_fell(before: &Values, after: &Values) {
    for metric in COUNTERS {
        assert!(after.get(metric) >= before.get(metric), "{metric:?}: {before:?} {after:?}");
    }
}

fn tick(probe: &mut ProcessProbe, tree: &mut Tree) -> Values {
    let reading = probe.tick(tree, Mono::now());
    // High-water marks depend on what no look came in time for.
    let of_counters = |(metric, _): &&(Metric, String)| metric.definition().kind != Kind::HighWater;
    assert_eq!(reading.absences.iter().find(of_counters), None);
    reading.values
}

#[test]
fn children_and_grandchildren_belong_to_it_in_any_session() {
    let mut launch =
        Launch::shell("exec 3<&0; sh -c 'setsid sh -c \"echo deep \\$\\$; exec cat\" <&3; :' & echo child $!; wait");
    let (mut child, mut deep) = (0, 0);
    for _ in 0..2 {
        let line = launch.line("");
        let (word, pid) = line.split_once(' ').unwrap();
        *(if word == "child" { &mut child } else { &mut deep }) = pid.parse().unwrap();
    }
    let mut tree = launch.tree();
    let view = tree.view();
    assert!(view.contains(deep) || !view.contains(1), "a view answers before the first sweep");
    let events = sweep(&mut tree);
    let root = launch.pid();
    for pid in [root, child, deep] {
        assert_eq!(born(&events).iter().filter(|born| **born == pid).count(), 1, "{events:?}");
        assert!(view.contains(pid) && tree.contains(pid));
    }
    let order = live(&tree);
    let place = |pid: Pid| order.iter().position(|member| *member == pid).unwrap();
    assert!(place(root) < place(child) && place(child) < place(deep), "{order:?}");
    assert!(!view.contains(std::process::id() as Pid) && !tree.contains(1));
    assert!(born(&sweep(&mut tree)).is_empty(), "nothing is born twice");

    launch.finish();
    let events = sweep(&mut tree);
    for pid in [root, child, deep] {
        assert_eq!(gone(&events, pid).len(), 1, "{events:?}");
        assert!(view.contains(pid), "what it sent may be heard later");
    }
    assert!(tree.live().is_empty());
}

#[test]
fn a_child_born_later_is_seen_at_the_next_sweep() {
    let mut launch = Launch::shell("echo up; read x; exec 3<&0; cat <&3 & echo child $!; wait");
    launch.line("up");
    let mut tree = launch.tree();
    assert_eq!(born(&sweep(&mut tree)), [launch.pid()]);
    launch.go();
    let child = launch.pid_said("child");
    assert!(tree.view().contains(child), "the view asks for its parents");
    let events = sweep(&mut tree);
    assert_eq!(born(&events), [child]);
    assert!(events.contains(&What::Born { pid: child, parent: launch.pid() }));
    launch.finish();
}

#[test]
fn an_exec_chain_is_one_process_with_several_programs() {
    let mut launch = Launch::shell("echo one; read x; exec sh -c 'echo two; read x; exec cat'");
    let pid = launch.pid();
    launch.line("one");
    let mut tree = launch.tree();
    let events = sweep(&mut tree);
    assert_eq!(programs(&events, pid).len(), 1);
    assert_eq!(programs(&events, pid)[0][..2], ["sh", "-c"]);
    launch.go();
    launch.line("two");
    assert_eq!(programs(&sweep(&mut tree), pid), [["sh", "-c", "echo two; read x; exec cat"]]);
    launch.go();
    launch.say("ping\n");
    launch.line("ping");
    let events = sweep(&mut tree);
    assert_eq!(programs(&events, pid), [["cat"]]);
    assert!(born(&events).is_empty());
    launch.finish();
}

#[test]
fn a_name_that_a_process_gives_itself_is_no_exec() {
    let mut launch = Launch::shell("echo one; read x; echo 'a) R 1 (b' >/proc/$$/comm; echo two; read x");
    launch.line("one");
    let mut tree = launch.tree();
    assert_eq!(programs(&sweep(&mut tree), launch.pid()).len(), 1);
    launch.go();
    launch.line("two");
    assert_eq!(sweep(&mut tree), []);
    assert_eq!(tree.processes().next().unwrap().stat.comm.as_bytes(), b"a) R 1 (b\n");
    launch.finish();
}

#[test]
fn secrets_are_masked_before_anybody_sees_them() {
    let mut launch = Launch::shell("echo one; read secret");
    launch.line("one");
    let mask = |argv: &[String]| argv.iter().map(|argument| argument.replace("secret", "***")).collect();
    let mut tree = Tree::without_orphans(launch.pid(), launch.start, Finals::default(), mask);
    let events = sweep(&mut tree);
    assert_eq!(programs(&events, launch.pid())[0][2], "echo one; read ***");
    launch.finish();
}

#[test]
fn threads_are_no_processes() {
    let mut launch = Launch::helper("threads");
    launch.line("ready");
    let mut tree = launch.tree();
    assert_eq!(born(&sweep(&mut tree)), [launch.pid()]);
    let values = tick(&mut ProcessProbe::new(), &mut tree);
    assert_eq!(values.get(Metric::Processes), Some(1));
    assert_eq!(values.get(Metric::Threads), Some(stat_of(launch.pid()).threads));
    assert!(values.get(Metric::Threads) >= Some(8));
    launch.finish();
}

#[test]
fn a_zombie_holds_nothing_and_still_counts() {
    let mut launch = Launch::shell("echo up; read x; head -c 1000000 /dev/zero | cat >/dev/null; exit 7");
    let pid = launch.pid();
    launch.line("up");
    let mut tree = launch.tree();
    let mut probe = ProcessProbe::new();
    sweep(&mut tree);
    let before = tick(&mut probe, &mut tree);
    assert!(before.get(Metric::RssBytes) > Some(0));
    let parts = [Metric::RssAnonBytes, Metric::RssFileBytes, Metric::RssShmemBytes];
    let sum: u64 = parts.into_iter().filter_map(|metric| before.get(metric)).sum();
    assert_eq!(before.get(Metric::RssBytes), Some(sum));
    // A zombie's is shown to an ordinary user only through a descriptor that was there before.
    let io = File::open(format!("/proc/{pid}/io")).unwrap();
    launch.go();
    waitid(Id::Pid(NixPid::from_raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    assert_eq!(gone(&sweep(&mut tree), pid), [(Some(7), None)]);
    let after = tick(&mut probe, &mut tree);
    assert_eq!(after.get(Metric::RssBytes), Some(0));
    assert_eq!(after.get(Metric::Processes), Some(0));
    assert!(probe.figures().is_empty());
    assert_no_counter_fell(&before, &after);
    let mut text = Vec::new();
    (&io).read_to_end(&mut text).unwrap();
    assert_eq!(after.get(Metric::RcharBytes), Some(Io::parse(&text).unwrap().rchar));
    launch.finish();
    assert!(gone(&sweep(&mut tree), pid).is_empty(), "told once");
    assert_no_counter_fell(&after, &tick(&mut probe, &mut tree));
}

#[test]
fn waited_for_children_count_once() {
    let mut launch = Launch::shell(
        "echo up; read x; i=0; while [ $i -lt 200 ]; do cat /bin/sh /bin/sh >/dev/null; i=$((i+1)); done; echo end; read x",
    );
    launch.line("up");
    let mut tree = launch.tree();
    let mut probe = ProcessProbe::new();
    sweep(&mut tree);
    let mut values = tick(&mut probe, &mut tree);
    launch.go();
    let pid = launch.pid();
    let mut highest = 1;
    let values = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| launch.line("end"));
        while !waiter.is_finished() {
            sweep(&mut tree);
            let next = tick(&mut probe, &mut tree);
            assert_no_counter_fell(&values, &next);
            highest = highest.max(next.get(Metric::Processes).unwrap());
            values = next;
            // Never more than the truth: the parent's account, and the one child that it has not waited for yet.
            let truth = io_of(pid).rchar;
            let child = std::fs::metadata("/bin/sh").unwrap().len() * 2 + 100_000;
            assert!(values.get(Metric::RcharBytes).unwrap() <= truth + child, "{values:?} {truth}");
            std::thread::sleep(Duration::from_micros(300));
        }
        waiter.join().unwrap();
        sweep(&mut tree);
        tick(&mut probe, &mut tree)
    });
    assert!(highest > 1, "some child was seen alive");
    let (io, stat) = (io_of(pid), stat_of(pid));
    assert!(io.rchar >= 400 * std::fs::metadata("/bin/sh").unwrap().len());
    assert_eq!(values.get(Metric::RcharBytes), Some(io.rchar));
    assert_eq!(values.get(Metric::ReadSyscalls), Some(io.read_syscalls));
    assert_eq!(values.get(Metric::ReadBytes), Some(io.read_bytes));
    assert_eq!(values.get(Metric::MinorFaults), Some(stat.minflt + stat.cminflt));
    assert_eq!(values.get(Metric::MajorFaults), Some(stat.majflt + stat.cmajflt));
    assert!(probe.caveats().is_empty(), "{:?}", probe.caveats());
    launch.finish();
}

#[test]
fn children_that_the_kernel_reaps_are_kept_as_last_seen() {
    let mut launch = Launch::helper("deaf");
    let child = launch.pid_said("child");
    launch.line("read");
    let mut tree = launch.tree();
    let mut probe = ProcessProbe::new();
    sweep(&mut tree);
    let before = tick(&mut probe, &mut tree);
    assert!(before.get(Metric::RcharBytes) > Some(4_000_000));
    assert!(live(&tree).contains(&child));
    launch.go();
    launch.line("over");
    let events = sweep(&mut tree);
    assert_eq!(gone(&events, child), [(None, None)], "nobody knows how it ended");
    let after = tick(&mut probe, &mut tree);
    assert_no_counter_fell(&before, &after);
    assert!(io_of(launch.pid()).rchar < 4_000_000, "its parent's account does not hold it");
    // What its parent did meanwhile comes on top.
    assert!(after.get(Metric::ReadSyscalls) > before.get(Metric::ReadSyscalls));
    let caveats = probe.caveats();
    assert_eq!(caveats.len(), 2, "{caveats:?}");
    assert!(caveats[0].starts_with("1 process ended that no process of the tree waited for"), "{caveats:?}");
    assert!(caveats[1].contains("ignores SIGCHLD"), "{caveats:?}");
    launch.finish();
}

/// In a process of its own, since a subreaper takes in every orphan beneath it.
#[test]
fn orphans_belong_to_it_and_their_end_is_exact() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(HELPER_ARGUMENTS)
        .env("TREE_HELPER", "orphans")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn orphans() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let mut helper = Command::new("sleep").arg("60").spawn().unwrap();
    let reading = "head -c 4000000 /dev/zero | cat >/dev/null";
    let mut launch = Launch::shell(&format!(
        "(sh -c '{reading}; echo orphan $$; exec sleep 60' &); echo alone; read x
         (sh -c '{reading}; echo brief $$; exit 3' &); echo alone; read x"
    ));
    let finals = Finals::default();
    let mut tree = Tree::new(launch.pid(), launch.start, finals.clone(), unmasked);
    tree.exclude(helper.id() as Pid);
    let view = tree.view();
    let orphan = launch.orphan_said("orphan");
    assert!(view.contains(orphan) && !view.contains(helper.id() as Pid));
    let own = std::process::id() as Pid;
    assert_eq!(stat_of(orphan).parent, own);
    let mut probe = ProcessProbe::new();
    let events = sweep(&mut tree);
    let before = tick(&mut probe, &mut tree);
    assert!(live(&tree).contains(&orphan) && !live(&tree).contains(&(helper.id() as Pid)), "{events:?}");
    assert!(before.get(Metric::RcharBytes) >= Some(8_000_000));

    let reap = |pid: Pid| {
        let id = NixPid::from_raw(pid);
        waitid(Id::Pid(id), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap();
        let io = std::fs::read(format!("/proc/{pid}/io")).ok();
        let key = ProcessKey { pid, start_time: Stat::parse(&stat).unwrap().start_time };
        // Withheld from an ordinary user.
        let rchar = io.as_deref().map(|io| Io::parse(io).unwrap().rchar);
        finals.insert(key, FinalReading { at: Mono::now(), stat, io, max_rss: None });
        waitpid(id, None).unwrap();
        rchar
    };
    kill(NixPid::from_raw(orphan), Signal::SIGKILL).unwrap();
    reap(orphan);
    assert_eq!(gone(&sweep(&mut tree), orphan), [(None, Some(9))]);
    let after = tick(&mut probe, &mut tree);
    assert_no_counter_fell(&before, &after);
    // Others of the tree may still read a little; the orphan's eight megabytes would show if they counted twice.
    let more = after.get(Metric::RcharBytes).unwrap() - before.get(Metric::RcharBytes).unwrap();
    assert!(more < 1_000_000, "{more}");
    let root = io_of(launch.pid()).rchar;

    // One that lived and was reaped between two sweeps.
    launch.go();
    let brief = launch.orphan_said("brief");
    let took = reap(brief);
    assert!(took.is_none_or(|took| took >= 8_000_000));
    let events = sweep(&mut tree);
    assert!(born(&events).contains(&brief), "{events:?}");
    assert_eq!(gone(&events, brief), [(Some(3), None)]);
    let last = tick(&mut probe, &mut tree);
    let expected = after.get(Metric::RcharBytes).unwrap() - root + io_of(launch.pid()).rchar + took.unwrap_or(0);
    assert!(last.get(Metric::RcharBytes).unwrap().abs_diff(expected) < 1_000_000, "{last:?} {expected}");
    assert_eq!(probe.caveats().len(), usize::from(took.is_none()), "{:?}", probe.caveats());
    helper.kill().unwrap();
    helper.wait().unwrap();
    launch.finish();
}

fn artifact(path: &Path, payload: std::ops::Range<u64>) -> Artifact {
    let layout = Layout { payload: std::iter::once(payload).collect(), ..Layout::default() };
    Artifact { layout: Ok(Arc::new(layout)), ..Artifact::open_raw(path, Found::Declared).unwrap() }
}

fn is_model(path: &OsStr) -> bool {
    path.as_bytes().ends_with(b".gguf")
}

/// Ample, so that every tick looks at whatever may have changed.
const AMPLE: Duration = Duration::from_millis(50);
const MIB: u64 = 1 << 20;

#[test]
fn the_mapped_extent_is_a_union_over_processes() {
    let folder = tempfile::tempdir().unwrap();
    // A name that maps has to write in its own way.
    let path = folder.path().join("a\nb  ");
    let other = folder.path().join("other.gguf");
    std::fs::write(&path, vec![1; (4 * MIB + 100) as usize]).unwrap();
    std::fs::write(&other, vec![1; 5000]).unwrap();
    let script = "exec 3<&0
        MAP_FROM=0 MAP_LENGTH=2097152 TREE_HELPER=map \"$HELPER\" $AS <&3 & first=$!
        MAP_FROM=1048576 MAP_LENGTH=3149000 TREE_HELPER=map \"$HELPER\" $AS <&3 &
        MAP_FILE=$OTHER MAP_FROM=0 MAP_LENGTH=5000 TREE_HELPER=map \"$HELPER\" $AS <&3 &
        echo first $first; wait $first; echo ended; wait";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("HELPER", std::env::current_exe().unwrap()).env("AS", HELPER_ARGUMENTS.join(" "));
    let mut launch = Launch::of(command.env("MAP_FILE", &path).env("OTHER", &other));
    // The lines of four processes, in any order.
    let (mut first, mut mapped) = (0, 0);
    while first == 0 || mapped < 3 {
        let line = launch.line("");
        if let Some(at) = line.find("first ") {
            first = line[at + 6..].parse().unwrap();
        }
        mapped += usize::from(line.contains("mapped"));
    }
    let mut artifacts = vec![artifact(&path, MIB / 2..4 * MIB)];
    let mut tree = launch.tree();
    sweep(&mut tree);
    let mut probe = MappingProbe::new(is_model);
    let found = probe.tick(&tree, &artifacts, AMPLE);
    assert!(found.reading.absences.is_empty(), "{:?}", found.reading.absences);
    assert_eq!(found.reading.values.get(Metric::MappedBytes), Some(4 * MIB + 100), "the page's rest is no file's");
    assert_eq!(found.reading.values.get(Metric::MappedPayloadBytes), Some(4 * MIB - MIB / 2));
    assert_eq!(found.discovered, [other.canonicalize().unwrap()]);
    let mapped = mappings(&found.changes);
    assert_eq!(mapped.len(), 2);
    assert_eq!(mapped[&first], (2 * MIB, "r--s".to_owned()));
    // What is open is looked at for a small part of the time, of which a look that others interrupt may take too much.
    let are_opened = |changes: &[Sighting]| {
        let opened = |(_, _, what): &&Sighting| matches!(what, What::Opened { .. });
        changes.iter().filter(opened).count()
    };
    let mut opened = are_opened(&found.changes);
    crate::support::eventually("two opened", || {
        opened += are_opened(&probe.tick(&tree, &artifacts, AMPLE).changes);
        (opened >= 2).then_some(())
    });
    assert_eq!(opened, 2);

    // It joins the set.
    artifacts.push(artifact(&other, 0..5000));
    let found = probe.look(&tree, &artifacts, Duration::from_secs(10));
    assert!(found.complete && found.discovered.is_empty());
    assert_eq!(found.reading.values.get(Metric::MappedBytes), Some(4 * MIB + 5100));
    let files = probe.files(&artifacts);
    assert_eq!((files[1].mapped_bytes, files[1].mapped_payload_bytes), (5000, Some(5000)));

    // One whose payload is unknown takes the total with it, and nothing else.
    artifacts[1].layout = Err("for a test".to_owned());
    let found = probe.look(&tree, &artifacts, Duration::from_secs(10));
    assert_eq!(found.reading.values.get(Metric::MappedBytes), Some(4 * MIB + 5100));
    assert_eq!(found.reading.values.get(Metric::MappedPayloadBytes), None);
    assert_eq!(found.reading.absences.len(), 1);
    assert_eq!(probe.files(&artifacts)[0].mapped_payload_bytes, Some(4 * MIB - MIB / 2));

    // A process that vanishes takes only its own with it.
    kill(NixPid::from_raw(first), Signal::SIGKILL).unwrap();
    launch.line("ended");
    sweep(&mut tree);
    let found = probe.tick(&tree, &artifacts, AMPLE);
    assert_eq!(found.reading.values.get(Metric::MappedBytes), Some(3 * MIB + 100 + 5000));
    assert!(found.changes.iter().any(|(_, _, what)| *what == What::Unmapped { pid: first, artifact: ArtifactId(0) }));
    launch.finish();
}

fn mappings(changes: &[Sighting]) -> HashMap<Pid, (u64, String)> {
    let of = |what: &What| match what {
        What::Mapped { pid, bytes, permissions, .. } => Some((*pid, (*bytes, permissions.clone()))),
        _ => None,
    };
    changes.iter().filter_map(|(_, _, what)| of(what)).collect()
}

#[test]
fn mappings_come_and_go_with_their_file_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, vec![1; MIB as usize]).unwrap();
    let artifacts = [artifact(&path, 0..MIB)];
    let mut launch = Launch::of(
        Command::new(std::env::current_exe().unwrap())
            .args(HELPER_ARGUMENTS)
            .env("TREE_HELPER", "map")
            .envs([("MAP_FROM", "0"), ("MAP_LENGTH", "1048576")])
            .env("MAP_FILE", &path),
    );
    let mut tree = launch.tree();
    let mut probe = MappingProbe::new(is_model);
    launch.line("mapped");
    sweep(&mut tree);
    let found = probe.tick(&tree, &artifacts, AMPLE);
    assert_eq!(found.reading.values.get(Metric::MappedBytes), Some(MIB));

    // Another file of that name is not what is mapped; what is mapped has no name any more.
    let replacement = folder.path().join("new");
    std::fs::write(&replacement, b"new").unwrap();
    std::fs::rename(&replacement, &path).unwrap();
    let found = probe.look(&tree, &artifacts, Duration::from_secs(10));
    assert_eq!(found.reading.values.get(Metric::MappedBytes), Some(MIB));
    assert!(found.changes.is_empty() && found.discovered.is_empty(), "{found:?}");

    launch.go();
    launch.line("halved");
    sweep(&mut tree);
    let found = probe.look(&tree, &artifacts, Duration::from_secs(10));
    assert_eq!(mappings(&found.changes)[&launch.pid()].0, MIB / 2);
    launch.go();
    launch.line("unmapped");
    sweep(&mut tree);
    let found = probe.look(&tree, &artifacts, Duration::from_secs(10));
    assert_eq!(found.reading.values.get(Metric::MappedBytes), Some(0));
    assert_eq!(
        found.changes.iter().map(|(_, _, what)| what.clone()).collect::<Vec<_>>(),
        [What::Unmapped { pid: launch.pid(), artifact: ArtifactId(0) }]
    );
    launch.finish();
}

#[test]
fn no_artifact_is_no_zero() {
    let mut launch = Launch::shell("echo up; read x");
    launch.line("up");
    let mut tree = launch.tree();
    sweep(&mut tree);
    let found = MappingProbe::new(is_model).tick(&tree, &[], AMPLE);
    assert_eq!(found.reading.values.get(Metric::MappedBytes), None);
    assert_eq!(found.reading.absences.len(), 2);
    launch.finish();
}

/// How this program is started as a helper: this one test of it.
const HELPER_ARGUMENTS: [&str; 4] = ["tree::helper", "--exact", "--ignored", "--nocapture"];

/// Not a test by itself: what the tests above start.
#[test]
#[ignore = "started by other tests"]
fn helper() {
    // Whether the test goes on.
    let step = || std::io::stdin().read_line(&mut String::new()).unwrap() > 0;
    match std::env::var("TREE_HELPER").as_deref() {
        Ok("threads") => {
            for _ in 0..6 {
                std::thread::spawn(|| {
                    loop {
                        std::thread::park();
                    }
                });
            }
            println!("ready");
            step();
        }
        Ok("deaf") => {
            let ignore = nix::sys::signal::SigAction::new(
                nix::sys::signal::SigHandler::SigIgn,
                nix::sys::signal::SaFlags::empty(),
                nix::sys::signal::SigSet::empty(),
            );
            // SAFETY: to ignore a signal runs no code of ours.
            #[allow(unsafe_code)]
            unsafe { nix::sys::signal::sigaction(Signal::SIGCHLD, &ignore) }.unwrap();
            let script = "dd if=/dev/zero of=/dev/null bs=4096 count=1; x=$(head -c 4000000 /dev/zero | wc -c); echo read $x; read x";
            // dash waits for its own: they must not be ignored there.
            let mut child = Command::new("env")
                .args(["--default-signal=CHLD", "sh", "-c", script])
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            println!("child {}", child.id());
            step();
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
            // Returns when there is no child left, which is all that it can tell.
            assert!(child.wait().is_err());
            println!("over");
            step();
        }
        Ok("map") => {
            let number = |name| std::env::var(name).unwrap().parse::<usize>().unwrap();
            let (from, length) = (number("MAP_FROM"), number("MAP_LENGTH"));
            let file = File::open(std::env::var_os("MAP_FILE").unwrap()).unwrap();
            let size = NonZeroUsize::new(length).unwrap();
            // SAFETY: a new mapping that nothing reads.
            #[allow(unsafe_code)]
            let address =
                unsafe { mmap(None, size, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, &file, from as i64) }.unwrap();
            println!("mapped");
            if !step() {
                return;
            }
            let half = length / 2;
            // SAFETY: the second half of the mapping made above, to which nothing refers.
            #[allow(unsafe_code)]
            unsafe { munmap(address.byte_add(half), length - half) }.unwrap();
            println!("halved");
            step();
            // SAFETY: its first half, likewise.
            #[allow(unsafe_code)]
            unsafe { munmap(address, half) }.unwrap();
            println!("unmapped");
            step();
        }
        Ok("orphans") => orphans(),
        _ => {}
    }
}
