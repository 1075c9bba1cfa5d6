//! What `--faults` adds to `stagemark run`: a load of the reference loader, profiled without and with fault samples in
//! turn.
//!
//! `cargo bench --bench faults [-- PAIRS [N [CASE]]]`, 20 pairs and one sample in 64 unless said, and of the cases those
//! whose name contains CASE. Loads that are bound by mapped faults: of pages in memory (each fault maps its neighbours
//! too, so that 4 mappings of 1 GiB take 65,536), of pages that are written and so copied one by one, and of pages that
//! lie on the disk, each a major fault and a sample; and one that reads into the heap. For each: the median, the middle
//! half, the smallest and the largest ratio of the times from the first mapping, or opening the model, to the end of the
//! load; the same of the loader's processor time, in which a busy machine shows less, and least in the smallest of all
//! launches; its faults, the samples, and what was lost. Counting faults, which every run does, is on both sides. It needs 2.5 GiB of memory, and 128 MiB of a disk.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use stagemark::run::Run;

const STAGEMARK: &str = env!("CARGO_BIN_EXE_stagemark");
const BYTES: u64 = 1 << 30;
const ON_DISK: u64 = 128 << 20;

/// One load: the arguments of the reference loader, without the truth's file; the truth's lines between which it lies.
struct Case {
    name: &'static str,
    arguments: Vec<String>,
    between: (&'static str, &'static str),
    truth: Option<&'static str>,
    /// To be taken out of the page cache before each launch.
    evict: Option<PathBuf>,
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let mut number = |default: u64| words.next().map_or(default, |word| word.parse().unwrap());
    let (pairs, period) = (number(20).max(1), number(64));
    let wanted = words.next().unwrap_or_default();
    let folder = tempfile::tempdir().unwrap();
    for case in cases(folder.path()).iter().filter(|case| case.name.contains(&wanted)) {
        println!("{}: {pairs} pairs without and with --faults={period}", case.name);
        let (mut times, mut cpus, mut last) = (Vec::new(), Vec::new(), String::new());
        let mut least = (f64::MAX, f64::MAX);
        for pair in 0..pairs {
            // Whichever comes first finds the machine as the other left it, so they change places.
            let first = load(case, (pair % 2 == 1).then_some(period));
            let second = load(case, (pair % 2 == 0).then_some(period));
            let (without, with) = if pair % 2 == 0 { (first, second) } else { (second, first) };
            times.push(with.time / without.time);
            cpus.push(with.cpu / without.cpu);
            least = (least.0.min(without.cpu), least.1.min(with.cpu));
            last = format!("the last took {:.0} ms, {:.0} ms of CPU; {}", with.time, with.cpu, with.samples);
        }
        for (what, mut ratios) in [("time", times), ("CPU time", cpus)] {
            ratios.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share) as usize];
            println!(
                "  ratio of {what}: median {:.3}, middle half {:.3} to {:.3}, smallest {:.3}, largest {:.3}",
                at(0.5),
                at(0.25),
                at(0.75),
                at(0.0),
                at(1.0)
            );
        }
        println!("  ratio of the smallest CPU times: {:.3}; {last}", least.1 / least.0);
    }
}

fn cases(folder: &Path) -> Vec<Case> {
    let model = folder.join("model.bin");
    File::create(&model).unwrap().set_len(BYTES).unwrap();
    // In memory from here on, its holes read into the page cache page by page: a fault maps more of larger folios.
    let mut file = File::open(&model).unwrap();
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).unwrap();
    let mut page = [0; 4096];
    while file.read(&mut page).unwrap() > 0 {}
    let cold = folder.join("cold.bin");
    let mut file = File::create(&cold).unwrap();
    (0..ON_DISK >> 20).for_each(|_| file.write_all(&vec![7; 1 << 20]).unwrap());
    let (warm, disk) = (model.display(), cold.display());
    let mapped = |name: &str, script: String, evict| {
        let path = folder.join(name);
        std::fs::write(&path, script).unwrap();
        let arguments = vec!["acts".to_owned(), path.to_str().unwrap().to_owned()];
        (arguments, ("mapped", "done"), None, evict)
    };
    let touches: String = (0..4)
        .map(|number| format!("map m{number} f 0 1G shared ro\nadvise m{number} 0 1G random\ntouch m{number} 0 1G\n"))
        .collect();
    let read = format!("open f {warm}\n{touches}mark done\n");
    let written = format!("open f {warm}\nmap m f 0 512M private rw\nwrite m 0 512M\nmark done\n");
    let major = format!("open f {disk}\nmap m f 0 128M shared ro\nadvise m 0 128M random\ntouch m 0 128M\nmark done\n");
    let heap = ["--mode", "read-heap", "--model"].map(str::to_owned).into_iter().chain([warm.to_string()]).collect();
    [
        ("mapped, in memory", mapped("read", read, None)),
        ("mapped, written", mapped("written", written, None)),
        ("mapped, on disk", mapped("major", major, Some(cold))),
        ("read into the heap", (heap, ("opened", "first_response"), Some("--truth"), None)),
    ]
    .map(|(name, (arguments, between, truth, evict))| Case { name, arguments, between, truth, evict })
    .into()
}

/// Milliseconds from the one line to the other.
struct Load {
    time: f64,
    cpu: f64,
    samples: String,
}

fn load(case: &Case, period: Option<u64>) -> Load {
    if let Some(path) = &case.evict {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let (truth, out) = (folder.path().join("truth"), folder.path().join("run"));
    let mut command = Command::new(STAGEMARK);
    command.args(["run", "--quiet", "--out"]).arg(&out);
    command.args(period.map(|period| format!("--faults={period}")));
    command.args(["--", STAGEMARK, "reference-loader"]).args(&case.arguments).args(case.truth).arg(&truth);
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let text = std::fs::read_to_string(truth).unwrap();
    let step = |name: &str| {
        let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let line = lines.find(|line| line["name"] == name).unwrap();
        let number = |field: &str| line[field].as_u64().unwrap() as f64;
        let faults = number("minor_faults") + number("major_faults");
        (number("t_ns") / 1e6, (number("user_us") + number("system_us")) / 1e3, faults)
    };
    let (from, to) = (step(case.between.0), step(case.between.1));
    let samples = Run::load(&out).unwrap().meta.faults.map_or_else(String::new, |samples| {
        let all = samples.all();
        let faults = to.2 - from.2;
        format!("{faults} faults, {} minor and {} major samples; lost {}", all.minor, all.major, samples.lost_records)
    });
    Load { time: to.0 - from.0, cpu: to.1 - from.1, samples }
}
