//! What the parts of a tick cost, each alone: `cargo bench --bench parts`. Whole ticks are in the other benchmarks.
#![allow(clippy::unwrap_used)]

use divan::{Bencher, black_box};
use stagemark::clock::At;
use stagemark::event::Stream;
use stagemark::metric::{self, Values};
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
