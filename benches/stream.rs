//! What the kernel's records cost the command: the same work under the profiler with and without them, in turn.
//!
//! `cargo bench --bench stream [-- PAIRS]`, 9 unless said: 2,000 forks; 100,000 mappings of a file that is of no interest;
//! 100,000 of an artifact while a stage waits for another one, so that the rings are polled often; and the reference
//! loader over a warm file of 256 MiB. Of each it prints the ratio of the times that the work itself took: median,
//! smallest, largest; and how many records were lost.
//!
//! The program built by `cargo bench --no-run` can be taken to another machine; STAGEMARK names the profiler there.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use stagemark::clock::Mono;
use stagemark::run::Run;

const FORKS: usize = 2_000;
const MAPPINGS: usize = 100_000;
const BYTES: u64 = 256 << 20;

fn main() {
    if let Ok(work) = std::env::var("STREAM_WORK") {
        return storm(&work);
    }
    let pairs = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(9).max(1);
    let folder = tempfile::tempdir().unwrap();
    for name in ["model.bin", "other.bin", "third.bin"] {
        File::create(folder.path().join(name)).unwrap().set_len(BYTES).unwrap();
    }
    // In memory from here on: its holes are read into the page cache.
    std::io::copy(&mut File::open(folder.path().join("model.bin")).unwrap(), &mut std::io::sink()).unwrap();
    println!("{pairs} pairs each; {} CPUs", std::thread::available_parallelism().map_or(0, NonZeroUsize::get));
    measure("2,000 forks", "forks", folder.path(), pairs);
    measure("100,000 mappings of another file", "third.bin", folder.path(), pairs);
    measure("100,000 mappings of an artifact, one awaited", "model.bin", folder.path(), pairs);
    measure("reference loader", "loader", folder.path(), pairs);
}

fn measure(name: &str, work: &str, folder: &Path, pairs: usize) {
    let (mut ratios, mut without_all, mut with_all) = (Vec::new(), Vec::new(), Vec::new());
    let mut lost = 0;
    for pair in 0..pairs {
        // Whichever comes first finds the machine as the other left it, so they change places.
        let order = if pair % 2 == 0 { [false, true] } else { [true, false] };
        let mut times = [0.0; 2];
        for with in order {
            let (time, losses) = run(work, folder, with);
            times[usize::from(with)] = time;
            lost += losses;
        }
        ratios.push(times[1] / times[0]);
        without_all.push(times[0]);
        with_all.push(times[1]);
    }
    let [ratio, without, with] = [ratios, without_all, with_all].map(|mut values| {
        values.sort_unstable_by(f64::total_cmp);
        (values[values.len() / 2], values[0], values[values.len() - 1])
    });
    println!("{name}: without {:.1} ms, with {:.1} ms (medians); {lost} records lost", without.0, with.0);
    println!("  ratio: median {:.3}, smallest {:.3}, largest {:.3}", ratio.0, ratio.1, ratio.2);
}

/// Milliseconds that the work took, and records lost.
fn run(work: &str, folder: &Path, with: bool) -> (f64, u64) {
    let profiler = std::env::var_os("STAGEMARK").unwrap_or_else(|| env!("CARGO_BIN_EXE_stagemark").into());
    let scratch = tempfile::tempdir().unwrap();
    let (out, truth) = (scratch.path().join("run"), scratch.path().join("truth"));
    let model = folder.join("model.bin");
    let artifact = |name: &str| {
        let mut artifact = OsString::from("raw:");
        artifact.push(folder.join(name));
        artifact
    };
    let mut command = Command::new(&profiler);
    command.args(["run", "--quiet", "--no-output-log", "--stages", "generic"]);
    command.args(["--stage", "every=mapping:all", "--out"]).arg(&out);
    command.arg("--artifact").arg(artifact("model.bin"));
    if work != "loader" {
        command.arg("--artifact").arg(artifact("other.bin"));
    }
    command.arg("--");
    if work == "loader" {
        command.arg(&profiler).args(["reference-loader", "--mode", "mmap-lazy", "--advice", "random", "--model"]);
        command.arg(&model).args(["--touch", &BYTES.to_string(), "--truth"]).arg(&truth);
    } else {
        command.arg(std::env::current_exe().unwrap()).env("STREAM_WORK", work);
        command.env("STREAM_FILE", folder.join(work)).env("STREAM_TRUTH", &truth);
    }
    if !with {
        command.env("STAGEMARK_STREAM", "off");
    }
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    let text = std::fs::read_to_string(truth).unwrap();
    let ns = if work == "loader" {
        let time = |name: &str| {
            let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            lines.find(|line| line["name"] == name).unwrap()["t_ns"].as_u64().unwrap()
        };
        time("first_response") - time("opened")
    } else {
        text.parse().unwrap()
    };
    let births = Run::load(&out).unwrap().meta.sources["births"].clone();
    assert_eq!(births.used == "perf stream", with, "{births:?}");
    (ns as f64 / 1e6, births.lost_records.unwrap_or(0))
}

/// The work, whose time is written down by itself.
fn storm(work: &str) {
    // The profiler has settled by then.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let begun = Mono::now();
    if work == "forks" {
        (0..FORKS).for_each(|_| fork_once());
    } else {
        let file = File::open(std::env::var_os("STREAM_FILE").unwrap()).unwrap();
        (0..MAPPINGS).for_each(|_| map_once(&file));
    }
    let took = Mono::now().since(begun);
    std::fs::write(std::env::var_os("STREAM_TRUTH").unwrap(), took.to_string()).unwrap();
}

fn fork_once() {
    // SAFETY: this program has one thread, and the child ends at once.
    #[allow(unsafe_code)]
    match unsafe { fork() }.unwrap() {
        // SAFETY: ends the process; takes an integer.
        ForkResult::Child => unsafe { libc::_exit(0) },
        ForkResult::Parent { child } => drop(waitpid(child, None).unwrap()),
    }
}

fn map_once(file: &File) {
    let page = NonZeroUsize::new(4096).unwrap();
    // SAFETY: a new private mapping that nothing reads, and its end.
    #[allow(unsafe_code)]
    unsafe {
        let start = mmap(None, page, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, file, 0).unwrap();
        munmap(start, page.get()).unwrap();
    }
}
