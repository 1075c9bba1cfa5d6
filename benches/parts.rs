//! What the parts of a tick cost, each alone: `cargo bench --bench parts`. Whole ticks are in the other benchmarks.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use divan::{Bencher, black_box};
use stagemark::clock::{At, Mono};
use stagemark::event::Stream;
use stagemark::host::{Mounts, Roots};
use stagemark::launch::Finals;
use stagemark::launch::tree::Tree;
use stagemark::metric::{self, Values};
use stagemark::probe::pressure::{self, PressureProbe};
use stagemark::probe::wait::WaitProbe;
use stagemark::proc::maps::{self, Mapping};
use stagemark::proc::stat::Stat;
use stagemark::proc::{Buffer, ProcFile};
use stagemark::run::rows;
use stagemark::sample::Sample;
use stagemark::stage::{Matcher, StageFile};
use stagemark::watch::{Line, LineEnd};

fn main() {
    divan::main();
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

/// Pressure of the host and of a control group: six files, or three where the group has none.
#[divan::bench]
fn pressure(bencher: Bencher) {
    let mounts = Mounts::read(Path::new("/proc"));
    let mut probe = PressureProbe::new(pressure::group(&Roots::default(), &mounts));
    probe.begin();
    bencher.bench_local(|| black_box(probe.look()));
}

/// What one thread waited: the same, of a tree of one.
#[divan::bench]
fn wait(bencher: Bencher) {
    let mut tree = Tree::without_orphans(own_pid(), Mono::now(), Finals::default(), |argv| argv.to_vec());
    tree.sweep(Mono::now());
    let mut probe = WaitProbe::new();
    bencher.bench_local(|| black_box(probe.look(&tree, Mono::now(), false)));
}

/// One process's stat, kept open: read and parsed.
#[divan::bench]
fn stat(bencher: Bencher) {
    let (mut file, mut buffer) = (ProcFile::of(own_pid(), "stat"), Buffer::new());
    bencher.bench_local(|| file.read(&mut buffer).ok().and_then(Stat::parse).map(|stat| black_box(stat.start_time)));
}

/// The same for the dearest of the three files that a tick reads of a process.
#[divan::bench]
fn status(bencher: Bencher) {
    let (mut file, mut buffer) = (ProcFile::of(own_pid(), "status"), Buffer::new());
    bencher.bench_local(|| file.read(&mut buffer).map(|text| black_box(text.len())).ok());
}

/// One process's mappings: opened, read and parsed.
#[divan::bench]
fn mappings(bencher: Bencher) {
    let mut text = Vec::new();
    bencher.bench_local(|| {
        text.clear();
        maps::read(own_pid(), &mut text).ok();
        Mapping::all(black_box(&text)).count()
    });
}

/// A row of samples.csv.
#[divan::bench]
fn row(bencher: Bencher) {
    let mut values = Values::ABSENT;
    metric::ALL.iter().for_each(|&metric| values.set(metric, 4_294_967_296));
    let sample = Sample { t: At(1_234_567_890), late_ns: 1_000, cost_ns: 350_000, values };
    bencher.bench_local(|| rows::sample_row(black_box(&sample)));
}

/// A line that the command printed, matched against a stage file's patterns without a hit.
#[divan::bench]
fn line(bencher: Bencher) {
    let mut matcher = Matcher::new(vec![StageFile::load("reference-loader").unwrap()]);
    let bytes = b"Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.02s/it]".to_vec();
    let line = Line { stream: Stream::Stdout, bytes, end: LineEnd::Return };
    bencher.bench_local(|| matcher.line(At(1), Some(1), black_box(&line)));
}
