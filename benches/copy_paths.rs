//! Whether `copy-paths` copies at memory speed: `cargo bench --bench copy_paths [-- ROUNDS]`, 15 unless said.
//!
//! Each round makes one pass of the heap regime over a model file in the page cache, and one plain copy of as many bytes in
//! as many pieces, between two blocks of anonymous memory that are there, in turn which is first. Of each it takes the copies
//! alone, and prints the ratio round by round: median and extremes. What is promised is that the regime's copies take at
//! most 1.10 times as long as the plain ones.
#![allow(clippy::unwrap_used)]

use std::fs::File;

use stagemark::clock::Mono;
use stagemark::compare::series::Envelope;
use stagemark::copy_paths::destination::{Destination, Kind};
use stagemark::copy_paths::source::{Opened, Span, pass};
use stagemark::copy_paths::summary::Ratio;
use stagemark::copy_paths::way::Way;
use stagemark::sys::memory::Buffer;
use stagemark_fixtures::models::{self, Fill};

const PAYLOAD: u64 = 256 << 20;
const TENSORS: u64 = 16;

fn main() {
    let rounds: usize = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(15).max(3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    models::uniform(&path, PAYLOAD, TENSORS as u32, Fill::Pattern).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    let length = PAYLOAD / TENSORS;
    let tensors =
        (0..TENSORS).map(|tensor| Span { file: 0, offset: size - PAYLOAD + tensor * length, length }).collect();
    let opened = Opened::new(vec![File::open(&path).unwrap()], tensors).unwrap();
    let mut destination = Destination::new(Kind::Host, None, opened.tensors()).unwrap();
    let mut plain_destination = Buffer::new(PAYLOAD as usize).unwrap();
    plain_destination.bytes_mut().fill(1);
    let mut plain_source = Buffer::new(PAYLOAD as usize).unwrap();
    plain_source.bytes_mut().fill(2);

    let mut times = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=rounds {
        let mut regime = || pass(Way::HEAP, &opened, &mut destination).unwrap().copy_ns;
        let mut plain = || plain_copies(length as usize, &plain_source, &mut plain_destination);
        let (regime, plain) = if round % 2 == 0 {
            let regime = regime();
            (regime, plain())
        } else {
            let plain = plain();
            (regime(), plain)
        };
        if round > 0 {
            times.0.push(regime);
            times.1.push(plain);
        }
    }
    let gigabytes = |times: &[u64]| {
        let times = Envelope::of(times).unwrap();
        [times.median, times.max, times.min].map(|ns| format!("{:.2}", PAYLOAD as f64 / ns as f64))
    };
    let ([regime, plain], ratio) =
        ([&times.0, &times.1].map(|times| gigabytes(times)), Ratio::of(&times.0, &times.1).unwrap());
    println!(
        "{rounds} rounds of {} MiB in {TENSORS} pieces; GB/s, and ratios of times: median (least to most)",
        PAYLOAD >> 20
    );
    println!("heap regime, copies alone  {} ({} to {})", regime[0], regime[1], regime[2]);
    println!("plain copies               {} ({} to {})", plain[0], plain[1], plain[2]);
    let (least, most) = ratio.extremes();
    println!("regime ÷ plain             {} ({least} to {most}); promised: at most 1.10", ratio.middle());
}

/// Nanoseconds of the copies.
fn plain_copies(length: usize, from: &Buffer, to: &mut Buffer) -> u64 {
    let mut ns = 0;
    for (from, to) in from.bytes().chunks(length).zip(to.bytes_mut().chunks_mut(length)) {
        let begin = Mono::now();
        to.copy_from_slice(from);
        ns += Mono::now().since(begin);
    }
    ns
}
