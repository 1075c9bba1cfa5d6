//! The kernel's records of a tree: what they tell, and what takes their place where they are denied or lost.
//!
//! What is launched is this test program itself, which writes down what it did and when.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mprotect, munmap};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use stagemark::clock::Mono;
use tempfile::TempDir;

use crate::folder::{Row, RunFolder};
use crate::support::{finish, stagemark};

const HELPER_ARGUMENTS: [&str; 6] =
    ["stream::helper", "--exact", "--nocapture", "--quiet", "--ignored", "--test-threads=1"];

/// A scratch folder, and what is launched in it.
struct Bench {
    scratch: TempDir,
}

/// A run and what the launched program said of itself, with times since start.
struct Profile {
    run: RunFolder,
    /// Words of each line; times are the last ones.
    truth: Vec<(String, Vec<i64>)>,
}

impl Bench {
    fn new() -> Bench {
        Bench { scratch: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// `stagemark run OPTIONS -- ` this program, acting as `act`.
    fn command(&self, options: &[&str], act: &str) -> Command {
        let mut command = stagemark();
        command.args(["run", "--quiet", "--out"]).arg(self.path("run")).args(options).arg("--");
        command.arg(std::env::current_exe().unwrap()).args(HELPER_ARGUMENTS);
        command.env("STREAM_HELPER", act).env("STREAM_FOLDER", self.scratch.path());
        command
    }

    fn run(&self, options: &[&str], act: &str) -> Profile {
        self.finish(&mut self.command(options, act))
    }

    fn finish(&self, command: &mut Command) -> Profile {
        let output = finish(command);
        assert!(output.status.success(), "{output:?}");
        let run = RunFolder::at(self.path("run"));
        let start = run.json()["start_monotonic_ns"].as_i64().unwrap();
        let text = std::fs::read_to_string(self.path("truth")).unwrap();
        let truth = text.lines().map(|line| {
            let (name, rest) = line.split_once(' ').unwrap();
            let number = |word: &str| {
                let number = word.parse::<i64>().unwrap();
                // Pids are smaller than any time since boot.
                if number > 1 << 30 { number - start } else { number }
            };
            (name.to_owned(), rest.split_whitespace().map(number).collect())
        });
        Profile { truth: truth.collect(), run }
    }
}

impl Profile {
    fn said(&self, name: &str) -> Vec<&[i64]> {
        self.truth.iter().filter(|(said, _)| said == name).map(|(_, numbers)| numbers.as_slice()).collect()
    }

    fn source(&self, kind: &str) -> serde_json::Value {
        self.run.json()["sources"][kind].clone()
    }

    /// Whether the kernel's records were to be had; said where not.
    fn has_records(&self) -> bool {
        let source = self.source("births");
        let has = source["used"] == "perf stream";
        if !has {
            eprintln!("NOT TESTED HERE: no perf events: {source}");
        }
        has
    }

    /// The moments of a kind of event by pid, each with its uncertainty.
    fn moments(&self, kind: &str) -> HashMap<i64, Vec<(i64, Option<u64>)>> {
        let mut moments: HashMap<i64, Vec<_>> = HashMap::new();
        for row in self.run.events(kind) {
            moments.entry(row["pid"].parse().unwrap()).or_default().push(moment(&row));
        }
        moments
    }
}

fn moment(row: &Row) -> (i64, Option<u64>) {
    (row["t_ns"].parse().unwrap(), row["uncertainty_ns"].parse().ok())
}

fn uncertainty_of(row: &Row) -> Option<u64> {
    row["uncertainty_ns"].parse().ok()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn every_child_however_short_is_born_and_ends_once() {
    let bench = Bench::new();
    let profile = bench.run(&[], "children 1000");
    if !profile.has_records() {
        return;
    }
    assert_eq!(profile.source("births")["lost_records"], 0);
    let (born, gone) = (profile.moments("born"), profile.moments("gone"));
    let children = profile.said("child");
    assert_eq!(children.len(), 1000);
    for child in children {
        let &[pid, before, after, ended] = child else { panic!("{child:?}") };
        let [(at, Some(0))] = born[&pid][..] else { panic!("{pid}: {:?}", born[&pid]) };
        assert!((before..=after).contains(&at), "{pid}: born {at}, forked between {before} and {after}");
        let [(end, Some(0))] = gone[&pid][..] else { panic!("{pid}: {:?}", gone.get(&pid)) };
        // It slept 1 ms after its birth and was reaped by `ended`.
        assert!((at + 1_000_000..=ended).contains(&end), "{pid}: gone {end}, born {at}, reaped {ended}");
    }
    // Whoever was born has ended, and no thread was taken for a process.
    assert_eq!(born.keys().collect::<HashSet<_>>(), gone.keys().collect::<HashSet<_>>());
    assert_eq!(born.len(), 1001);
}

#[test]
fn a_mapping_of_two_milliseconds_is_a_mark_with_its_own_time() {
    let bench = Bench::new();
    File::create(bench.path("model.bin")).unwrap().set_len(1 << 20).unwrap();
    let artifact = format!("raw:{}", bench.path("model.bin").display());
    let options = ["--artifact", &artifact, "--stage", "mapped=mapping:all", "--stage", "any=mapping:any"];
    let profile = bench.run(&options, "mapping");
    if !profile.has_records() {
        return;
    }
    let [&[pid, before, after, unmapped]] = profile.said("mapped")[..] else { panic!("{:?}", profile.truth) };
    for name in ["mapped", "any"] {
        let marks = profile.run.events("mark");
        let mark = marks.iter().find(|row| row["name"] == name).unwrap();
        let (at, uncertainty) = moment(mark);
        assert_eq!(uncertainty, Some(0));
        assert!((before..=after).contains(&at), "marked {at}, mapped between {before} and {after}");
        let detail: serde_json::Value = serde_json::from_str(&mark["detail"]).unwrap();
        assert_eq!(detail["evidence"], "mapping");
        // Where it was heard of when the launch was over, the last values of the launch stand beside it.
        let sampled = detail["sampled"].as_i64().unwrap();
        let later =
            profile.run.rows("samples.csv").into_iter().filter(|row| row["t_ns"].parse::<i64>().unwrap() > sampled);
        assert!(sampled >= at || later.into_iter().all(|row| row["processes"] == "0"), "{sampled} beside {at}");
    }
    let mapped = profile.run.events("mapped");
    let [row] = &mapped[..] else { panic!("{mapped:?}") };
    assert_eq!(row["pid"], pid.to_string());
    let detail: serde_json::Value = serde_json::from_str(&row["detail"]).unwrap();
    assert_eq!((&detail["bytes"], &detail["permissions"]), (&(1 << 20).into(), &"r--p".into()));
    // It was gone when it was looked for: after that, and by the end of the process at the latest.
    let unmapped_at = profile.run.events("unmapped");
    let [row] = &unmapped_at[..] else { panic!("{unmapped_at:?}") };
    let (at, uncertainty) = moment(row);
    assert!(at - uncertainty.unwrap() as i64 <= unmapped && unmapped <= at, "{row:?} {unmapped}");
    assert_eq!(profile.run.largest("mapped_bytes").unwrap_or(0) % (1 << 20), 0);
}

#[test]
fn a_second_protection_is_no_second_mapping_and_what_is_given_back_is_not_held() {
    let bench = Bench::new();
    File::create(bench.path("model.bin")).unwrap().set_len(4 << 20).unwrap();
    let artifact = format!("raw:{}", bench.path("model.bin").display());
    let profile = bench.run(&["--artifact", &artifact, "--stage", "any=mapping:any"], "protect");
    if !profile.has_records() {
        return;
    }
    let held = |row: &Row| serde_json::from_str::<serde_json::Value>(&row["detail"]).unwrap()["bytes"].clone();
    let mapped = profile.run.events("mapped");
    assert!(mapped.iter().all(|row| held(row).as_u64().unwrap() <= 4 << 20), "{mapped:?}");
    assert_eq!(profile.run.largest("mapped_bytes"), Some(4 << 20));
    // Three of four MiB were given back while it went on, and then it ended with the last.
    let last = mapped.last().unwrap();
    assert_eq!(held(last), 1 << 20, "{mapped:?}");
    let [&[_, given_back, looked_at]] = profile.said("given_back")[..] else { panic!("{:?}", profile.truth) };
    let (at, uncertainty) = moment(last);
    assert!(at >= given_back && at - uncertainty.unwrap() as i64 <= looked_at, "{last:?}");
    let unmapped = profile.run.events("unmapped");
    assert_eq!(unmapped.len(), 1, "{unmapped:?}");
    // With the end of the process, whose record has its time.
    let end = profile.moments("gone")[&unmapped[0]["pid"].parse().unwrap()][0];
    assert_eq!((moment(&unmapped[0]).0, end.1), (end.0, Some(0)), "{unmapped:?}");
    assert!(uncertainty_of(&unmapped[0]).is_some());
}

#[test]
fn a_chain_of_programs_is_told_in_order_each_once() {
    let bench = Bench::new();
    std::fs::write(bench.path("truth"), "").unwrap();
    let mut command = stagemark();
    command.args(["run", "--quiet", "--out"]).arg(bench.path("run")).arg("--");
    command.args(["env", "nice", "-n", "0", "env", "sh", "-c", "env true; exec sleep 0.1"]);
    let profile = bench.finish(&mut command);
    if !profile.has_records() {
        return;
    }
    let execs = profile.run.events("exec");
    let root = &profile.run.events("born")[0]["pid"];
    let of_root: Vec<String> = execs.iter().filter(|row| row["pid"] == *root).map(program).collect();
    // Where one took the other's place at once, only its name was left.
    let names: Vec<&str> = of_root.iter().map(|name| name.trim_matches(['[', ']'])).collect();
    assert_eq!(names, ["env", "nice", "env", "sh", "sleep"], "{execs:?}");
    assert_eq!(of_root.last().unwrap(), "sleep", "the last one was there to be read");
    assert!(execs.iter().all(|row| uncertainty_of(row) == Some(0)), "{execs:?}");
    let of_child: Vec<String> = execs.iter().filter(|row| row["pid"] != *root).map(program).collect();
    let names: Vec<&str> = of_child.iter().map(|name| name.trim_matches(['[', ']'])).collect();
    assert_eq!(names, ["env", "true"], "{execs:?}");
}

fn program(row: &Row) -> String {
    let detail: serde_json::Value = serde_json::from_str(&row["detail"]).unwrap();
    detail["argv"][0].as_str().unwrap().to_owned()
}

#[test]
fn where_the_kernel_denies_its_records_looking_takes_their_place_and_says_so() {
    for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
        let bench = Bench::new();
        File::create(bench.path("model.bin")).unwrap().set_len(1 << 20).unwrap();
        let artifact = format!("raw:{}", bench.path("model.bin").display());
        let options = ["--artifact", &artifact, "--stage", "any=mapping:any"];
        let launch = bench.command(&options, "mapping-until-seen");
        // A launcher of its own denies it to itself, and becomes the profiler.
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(HELPER_ARGUMENTS).env("STREAM_HELPER", format!("deny {errno}"));
        command.env("STREAM_FOLDER", bench.scratch.path());
        let argv: Vec<&str> =
            std::iter::once(launch.get_program()).chain(launch.get_args()).map(|word| word.to_str().unwrap()).collect();
        command.env("STREAM_LAUNCH", argv.join("\n"));
        let profile = bench.finish(&mut command);
        for kind in ["births", "mappings"] {
            let source = profile.source(kind);
            assert_eq!(source["used"], "procfs", "{source}");
            let because = source["because"].as_str().unwrap();
            assert!(because.starts_with("perf_event_open: "), "{because}");
            assert!(because.contains("kernel.perf_event_paranoid is"), "{because}");
        }
        let marks = profile.run.events("mark");
        let mark = marks.iter().find(|row| row["name"] == "any").unwrap();
        assert!(uncertainty_of(mark).is_none_or(|uncertainty| uncertainty > 0), "{mark:?}");
        assert!(profile.run.events("born").iter().all(|row| uncertainty_of(row) != Some(0)));
        let told =
            String::from_utf8(stagemark().arg("report").arg(bench.path("run")).output().unwrap().stdout).unwrap();
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("The kernel's own records could not be had (perf_event_open: "), "{told}");
    }
}

#[test]
fn rings_that_overflow_are_counted_and_answered_by_looking() {
    let bench = Bench::new();
    std::fs::write(bench.path("truth"), "").unwrap();
    let mut command = stagemark();
    command.args(["run", "--quiet", "--out"]).arg(bench.path("run")).arg("--").env("STAGEMARK_STREAM", "0");
    // Each `ls` maps more than a page of records has room for, and the profiler is stopped meanwhile: where others have the
    // processor it may else keep up with them.
    let script = "kill -STOP $PPID; for i in 1 2 3 4; do (ls / >/dev/null & ls / >/dev/null & wait); done; \
                  kill -CONT $PPID; sleep 0.5";
    command.args(["sh", "-c", script]);
    let profile = bench.finish(&mut command);
    if !profile.has_records() {
        return;
    }
    let lost = profile.source("births")["lost_records"].as_u64().unwrap();
    assert!(lost > 0);
    let meta = profile.run.json();
    let warnings: Vec<&str> = meta["warnings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let told = |text: &&&str| text.contains("had no room for");
    let last = warnings.iter().rfind(told).unwrap();
    assert!(last.contains(&format!("{lost} of its records in all")), "{warnings:?}");
    // Whatever was lost: the last child, which stayed, was seen to be born and to run its program.
    let sleeps: Vec<Row> = profile.run.events("exec").into_iter().filter(|row| program(row) == "sleep").collect();
    assert_eq!(sleeps.len(), 1, "{:?}", profile.run.events("exec"));
    let (born, gone) = (profile.moments("born"), profile.moments("gone"));
    let pid = sleeps[0]["pid"].parse().unwrap();
    assert_eq!((born[&pid].len(), gone[&pid].len()), (1, 1));
    for (pid, births) in &born {
        assert_eq!(births.len(), 1, "{pid}");
        assert!(gone.get(pid).is_none_or(|ends| ends.len() == 1), "{pid}");
    }
}

#[test]
fn a_number_that_is_given_again_is_another_process() {
    if !is_root() || File::options().write(true).open("/proc/sys/kernel/ns_last_pid").is_err() {
        eprintln!("NOT TESTED HERE: only root may choose the next pid");
        return;
    }
    let bench = Bench::new();
    let profile = bench.run(&[], "same-pid");
    if !profile.has_records() {
        return;
    }
    let children = profile.said("child");
    let mut by_pid: HashMap<i64, Vec<&[i64]>> = HashMap::new();
    for child in children {
        by_pid.entry(child[0]).or_default().push(child);
    }
    let Some((pid, lives)) = by_pid.iter().max_by_key(|(_, lives)| lives.len()).filter(|(_, lives)| lives.len() > 1)
    else {
        eprintln!("NOT TESTED HERE: other processes took every number first");
        return;
    };
    let (born, gone) = (&profile.moments("born")[pid], &profile.moments("gone")[pid]);
    assert_eq!((born.len(), gone.len()), (lives.len(), lives.len()), "{born:?} {gone:?}");
    let mut moments: Vec<_> = born.iter().chain(gone).copied().collect();
    moments.sort_unstable();
    for (life, pair) in lives.iter().zip(moments.chunks(2)) {
        let &[_, before, after, ended] = *life else { panic!("{life:?}") };
        let [(birth, Some(0)), (end, Some(0))] = *pair else { panic!("{pair:?}") };
        assert!((before..=after).contains(&birth) && (birth..=ended).contains(&end), "{life:?} {pair:?}");
    }
}

#[test]
fn the_earlier_of_a_line_and_a_mapping_marks_a_stage() {
    let bench = Bench::new();
    File::create(bench.path("model.bin")).unwrap().set_len(1 << 20).unwrap();
    let artifact = format!("raw:{}", bench.path("model.bin").display());
    let stages = bench.path("stages.toml");
    let text = "name = \"either\"\nabout = \"of a test\"\n[[stage]]\nname = \"ready\"\nwhen = { any = [ { log = \
                'now it is mapped' }, { mapping = \"any\" } ] }\n";
    std::fs::write(&stages, text).unwrap();
    let options = ["--artifact", &artifact, "--stages", stages.to_str().unwrap(), "--interval", "1s"];
    let profile = bench.run(&options, "mapping");
    if !profile.has_records() {
        return;
    }
    let [&[_, before, after, _]] = profile.said("mapped")[..] else { panic!("{:?}", profile.truth) };
    let marks = profile.run.events("mark");
    let mark = marks.iter().find(|row| row["name"] == "ready").unwrap();
    assert!((before..=after).contains(&moment(mark).0), "{mark:?} {before} {after}");
}

#[test]
fn ticks_that_are_left_for_mappings_lose_nothing_and_keep_the_order() {
    const SHARDS: usize = 40;
    let bench = Bench::new();
    let mut options = vec!["--interval".to_owned(), "1ms".to_owned()];
    for stage in ["any=mapping:any", "line=log:shard 20 is mapped", "all=mapping:all"] {
        options.extend(["--stage".to_owned(), stage.to_owned()]);
    }
    for shard in 0..SHARDS {
        let path = bench.path(&shard_name(shard));
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        options.extend(["--artifact".to_owned(), format!("raw:{}", path.display())]);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let profile = bench.run(&options, &format!("shards {SHARDS}"));
    if !profile.has_records() {
        return;
    }
    let truth = profile.said("mapped");
    assert_eq!(truth.len(), SHARDS);
    let mapped = profile.run.events("mapped");
    assert_eq!(mapped.len(), SHARDS, "{mapped:?}");
    for (row, said) in mapped.iter().zip(truth) {
        let &[before, after] = said else { panic!("{said:?}") };
        let (at, uncertainty) = moment(row);
        assert!((before..=after).contains(&at) && uncertainty == Some(0), "{row:?} {before} {after}");
    }
    let samples = profile.run.rows("samples.csv");
    let times: Vec<i64> = samples.iter().map(|row| row["t_ns"].parse().unwrap()).collect();
    assert!(times.is_sorted_by(|one, other| one < other), "{times:?}");
    for counter in ["minor_faults", "rchar_bytes", "read_syscalls", "cpu_user_ns", "cpu_system_ns"] {
        let values: Vec<u64> = samples.iter().filter_map(|row| row[counter].parse().ok()).collect();
        assert!(!values.is_empty() && values.is_sorted(), "{counter}: {values:?}");
    }
    let mut marks: Vec<(i64, i64)> = Vec::new();
    for name in ["any", "line", "all"] {
        let rows = profile.run.events("mark");
        let mark = rows.iter().find(|row| row["name"] == name).unwrap();
        let detail: serde_json::Value = serde_json::from_str(&mark["detail"]).unwrap();
        marks.push((moment(mark).0, detail["sampled"].as_i64().unwrap()));
    }
    assert_eq!((marks[0].0, marks[2].0), (moment(&mapped[0]).0, moment(&mapped[SHARDS - 1]).0));
    // The line may be read late.
    marks.sort_unstable();
    assert!(marks.is_sorted_by_key(|(_, sampled)| *sampled), "{marks:?}");
    for (at, sampled) in marks {
        assert!(sampled >= at && times.contains(&sampled), "{at} {sampled}");
    }
}

/// Not a test: what the tests launch.
#[test]
#[ignore]
fn helper() {
    let Ok(act) = std::env::var("STREAM_HELPER") else { return };
    let folder = PathBuf::from(std::env::var_os("STREAM_FOLDER").unwrap());
    let mut words = act.split(' ');
    let truth = match words.next().unwrap() {
        "children" => children(words.next().unwrap().parse().unwrap()),
        "same-pid" => same_pid(),
        "mapping" => mapping(&folder.join("model.bin"), || std::thread::sleep(Duration::from_millis(2))),
        "mapping-until-seen" => mapping(&folder.join("model.bin"), || until_sampled(&folder, 1 << 20)),
        "shards" => shards(&folder, words.next().unwrap().parse().unwrap()),
        "protect" => protect(&folder),
        "deny" => deny(words.next().unwrap().parse().unwrap()),
        other => panic!("{other}"),
    };
    std::fs::write(folder.join("truth"), truth).unwrap();
}

fn children(count: usize) -> String {
    let children: Vec<String> = (0..count).map(|_| child()).collect();
    children.concat()
}

/// A child that lives for 1 ms: its pid, moments before and after its birth, and when it was reaped.
fn child() -> String {
    let before = Mono::now().0;
    // SAFETY: the child sleeps and ends, and does nothing else.
    #[allow(unsafe_code)]
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            std::thread::sleep(Duration::from_millis(1));
            // SAFETY: ends the process; takes an integer.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(0)
            }
        }
        ForkResult::Parent { child } => {
            let after = Mono::now().0;
            waitpid(child, None).unwrap();
            format!("child {child} {before} {after} {}\n", Mono::now().0)
        }
    }
}

fn same_pid() -> String {
    let first = child();
    let pid: i32 = first.split(' ').nth(1).unwrap().parse().unwrap();
    let mut said = first;
    for _ in 0..20 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        said.push_str(&child());
    }
    said
}

const PAGE: usize = 4096;

fn map(file: &File, offset: usize, length: usize) -> std::ptr::NonNull<std::ffi::c_void> {
    let length = NonZeroUsize::new(length).unwrap();
    // SAFETY: a new private mapping that nothing reads.
    #[allow(unsafe_code)]
    unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, file, offset as i64) }.unwrap()
}

fn unmap(start: std::ptr::NonNull<std::ffi::c_void>, length: usize) {
    // SAFETY: a mapping made by `map`, to which nothing refers.
    #[allow(unsafe_code)]
    unsafe { munmap(start, length) }.unwrap();
}

fn mapping(model: &Path, meanwhile: impl FnOnce()) -> String {
    let file = File::open(model).unwrap();
    let before = Mono::now().0;
    let start = map(&file, 0, 1 << 20);
    let after = Mono::now().0;
    println!("now it is mapped");
    meanwhile();
    let unmapping = Mono::now().0;
    unmap(start, 1 << 20);
    format!("mapped {} {before} {after} {unmapping}\n", std::process::id())
}

fn shard_name(shard: usize) -> String {
    format!("shard-{shard}.bin")
}

/// Maps one after the other, and says so.
fn shards(folder: &Path, count: usize) -> String {
    let map_one = |shard| {
        let file = File::open(folder.join(shard_name(shard))).unwrap();
        let before = Mono::now().0;
        map(&file, 0, 1 << 20);
        let after = Mono::now().0;
        println!("shard {shard} is mapped");
        std::thread::sleep(Duration::from_micros(500));
        format!("mapped {before} {after}\n")
    };
    let said = (0..count).map(map_one).collect();
    // A mark that is heard of after the end has the values from before.
    let run = RunFolder::at(folder.join("run"));
    crate::support::eventually("the marks", || {
        let marks = if run.path.join("events.csv").exists() { run.events("mark") } else { Vec::new() };
        ["line", "all"].iter().all(|name| marks.iter().any(|mark| mark["name"] == *name)).then_some(())
    });
    said
}

/// Waits until the profiler has written a sample in which so much is mapped.
fn until_sampled(folder: &Path, bytes: u64) {
    let run = RunFolder::at(folder.join("run"));
    crate::support::eventually("a sample with the mapping in it", || {
        (run.path.join("samples.csv").exists() && run.latest("mapped_bytes") == Some(bytes)).then_some(())
    });
}

fn protect(folder: &Path) -> String {
    let file = File::open(folder.join("model.bin")).unwrap();
    let start = map(&file, 0, 4 << 20);
    // SAFETY: pages of the mapping made above, to which nothing refers.
    #[allow(unsafe_code)]
    unsafe { mprotect(start, 16 * PAGE, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE) }.unwrap();
    until_sampled(folder, 4 << 20);
    let before = Mono::now().0;
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unmap(unsafe { start.byte_add(1 << 20) }, 3 << 20);
    until_sampled(folder, 1 << 20);
    format!("given_back {} {before} {}\n", std::process::id(), Mono::now().0)
}

/// Denies perf_event_open(2) to itself with this error, as the seccomp profiles of container runtimes do (seccomp(2)),
/// and becomes what STREAM_LAUNCH says, acting as a mapper.
fn deny(errno: i32) -> String {
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let returns = |value| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: value };
    let mut program = [
        // The number of the call.
        load(0),
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_perf_event_open as u32 },
        returns(libc::SECCOMP_RET_ERRNO | errno as u32),
        returns(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: integers, and a program that outlives the call and is copied by it.
    #[allow(unsafe_code)]
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter, 0, 0), 0);
    }
    let launch = std::env::var("STREAM_LAUNCH").unwrap();
    let mut argv = launch.split('\n');
    let error = Command::new(argv.next().unwrap()).args(argv).env("STREAM_HELPER", "mapping-until-seen").exec();
    panic!("{error}");
}
