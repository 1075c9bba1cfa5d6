//! How long after a mapping the sample beside its mark is taken.
//!
//! `cargo bench --bench mark [-- LAUNCHES [early | late[=SECONDS]]]`, 200 unless said: each launch is a small program that
//! maps a file once, 30 to 70 ms after its start, while two stages wait for it. `early`: within its first 3 ms. `late`: so
//! many seconds later, 6 unless said; launches go on by eight at once then, of which each sleeps nearly all of the time.
//! Of each mark it prints the time from the mark to the sample that it names: median, 90th and 99th percentile, largest;
//! how many marks lay outside the two readings of the clock that the program itself took around its mmap(2); and the
//! processor time of the profiler as a share of a core. What is promised is 1 ms at the 99th percentile with a core free,
//! so the CPUs and the load are printed too.
//!
//! The program built by `cargo bench --no-run` can be taken to another machine; STAGEMARK names the profiler there.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use stagemark::clock::Mono;
use stagemark::event::{Event, What};
use stagemark::run::Run;

const BYTES: usize = 64 << 20;

fn main() {
    if let Some(file) = std::env::var_os("MARK_FILE") {
        return mapper(Path::new(&file));
    }
    let launches: u64 = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(200).max(1);
    // In the middle of the profiler's first look.
    let early = std::env::args().skip(1).any(|argument| argument == "early");
    let late = std::env::args().skip(1).find_map(|argument| {
        let seconds = argument.strip_prefix("late")?;
        Some(seconds.strip_prefix('=').map_or(6, |seconds| seconds.parse().unwrap()))
    });
    let folder = tempfile::tempdir().unwrap();
    let when = match (early, late) {
        (true, _) => ", each maps within 3 ms of its start".to_owned(),
        (_, Some(seconds)) => format!(", each maps {seconds} s after its start"),
        _ => String::new(),
    };
    println!("{launches} launches{when}, {} CPUs, load {}", cpus(), load());
    // Anywhere within a tick, and within a poll.
    let wait = |launch: u64| match early {
        true => launch * 371_233 % 3_000_000,
        false => late.unwrap_or(0) * 1_000_000_000 + 30_000_000 + launch * 7_317_113 % 40_000_000,
    };
    let mut seen = Vec::new();
    let at_once = if late.is_some() { 8 } else { 1 };
    for first in (0..launches).step_by(at_once) {
        let numbers = first..(first + at_once as u64).min(launches);
        std::thread::scope(|scope| {
            let folder = folder.path();
            // So that they do not map at once, either.
            let launches = numbers.map(|number| scope.spawn(move || launch(folder, number, wait(number))));
            let launches: Vec<_> = launches.collect();
            seen.extend(launches.into_iter().map(|launch| launch.join().unwrap()));
        });
    }
    let mut distances: Vec<i64> = seen.iter().flat_map(|seen| seen.distances.clone()).collect();
    let outside: usize = seen.iter().map(|seen| seen.outside).sum();
    let share = seen.iter().map(|seen| seen.share).sum::<f64>() / seen.len() as f64;
    let source = &seen[0].source;
    distances.sort_unstable();
    let at = |percent: usize| distances[(distances.len() * percent).div_ceil(100).max(1) - 1] as f64 / 1e3;
    println!("{} marks by {source}, {outside} of them outside the mapping itself; load {}", distances.len(), load());
    println!(
        "sampled − mark: median {:.0} µs, p90 {:.0} µs, p99 {:.0} µs, largest {:.0} µs",
        at(50),
        at(90),
        at(99),
        at(100)
    );
    println!("the profiler took {share:.2}% of a core, its beginning and end included");
}

/// What one launch showed.
struct Launch {
    /// From each mark to the sample that it names, ns.
    distances: Vec<i64>,
    /// Marks that lay outside of the mapping itself.
    outside: usize,
    source: String,
    /// Percent of a core.
    share: f64,
}

/// A launch that maps a file so many nanoseconds after its start.
fn launch(folder: &Path, number: u64, wait: u64) -> Launch {
    let profiler = std::env::var_os("STAGEMARK").unwrap_or_else(|| env!("CARGO_BIN_EXE_stagemark").into());
    let (out, truth) = (folder.join(format!("run-{number}")), folder.join(format!("truth-{number}")));
    let model = folder.join(format!("model-{number}.bin"));
    File::create(&model).unwrap().set_len(BYTES as u64).unwrap();
    let mut artifact = OsString::from("raw:");
    artifact.push(&model);
    let mut command = Command::new(profiler);
    command.args(["run", "--quiet", "--no-output-log", "--stages", "generic"]);
    command.args(["--stage", "any=mapping:any", "--stage", "all=mapping:all", "--out"]).arg(&out);
    command.arg("--artifact").arg(artifact).arg("--").arg(std::env::current_exe().unwrap());
    command.env("MARK_FILE", &model).env("MARK_TRUTH", &truth).env("MARK_WAIT", wait.to_string());
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let run = Run::load(&out).unwrap();
    let said = std::fs::read_to_string(&truth).unwrap();
    let mut said = said.split(' ').map(|word| word.parse::<i64>().unwrap() - run.meta.start_monotonic_ns as i64);
    let (before, after) = (said.next().unwrap(), said.next().unwrap());
    let (mut distances, mut outside) = (Vec::new(), 0);
    for Event { at, what, .. } in &run.events {
        if let What::Mark(mark) = what
            && ["any", "all"].contains(&mark.stage.as_str())
        {
            outside += usize::from(!(before..=after).contains(&at.0));
            distances.push(mark.sampled.unwrap().0 - at.0);
        }
    }
    std::fs::remove_dir_all(&out).unwrap();
    let exit = run.meta.exit.as_ref().unwrap().at.0 as f64;
    let share = 100.0 * run.meta.cost.as_ref().unwrap().cpu_ns as f64 / exit;
    Launch { distances, outside, source: run.meta.sources["mappings"].used.clone(), share }
}

/// Maps the file once, and goes on for a while.
fn mapper(path: &Path) {
    let file = File::open(path).unwrap();
    std::thread::sleep(Duration::from_nanos(std::env::var("MARK_WAIT").unwrap().parse().unwrap()));
    let before = Mono::now();
    let length = NonZeroUsize::new(BYTES).unwrap();
    // SAFETY: a new private mapping that nothing reads.
    #[allow(unsafe_code)]
    unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, &file, 0) }.unwrap();
    let after = Mono::now();
    std::fs::write(std::env::var_os("MARK_TRUTH").unwrap(), format!("{} {}", before.0, after.0)).unwrap();
    std::thread::sleep(Duration::from_millis(60));
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(0, NonZeroUsize::get)
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
