//! What `report.html` takes to make, and how large it is: `cargo bench --bench html [-- SAMPLES]`, of half a million
//! samples unless said. A run is made up: each gauge is noise on a slope, each counter grows, and 8 devices change each
//! second. It fails where the page takes 2 s or more, or is 3 MiB or larger.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use stagemark::account::StageTable;
use stagemark::clock::At;
use stagemark::event::What;
use stagemark::metric::{ALL, Kind, Metric};
use stagemark::probe::device::Device;
use stagemark::report::{folder, html, plot};
use stagemark::run::{Detail, Run, Scope};

const LONGEST: Duration = Duration::from_secs(2);
const LARGEST: usize = 3 << 20;
const TICK_NS: i64 = 20_000_000;

fn main() {
    let samples = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(500_000);
    let run = made_up(samples);
    let began = Instant::now();
    let table = StageTable::of(&run);
    let account = began.elapsed();
    let began = Instant::now();
    let timeline = plot::svg(&run, &table).unwrap();
    let drawing = began.elapsed();
    let mut times = Vec::new();
    let mut size = 0;
    for _ in 0..5 {
        let began = Instant::now();
        size = html::page(&run, &table, html::Pictures { timeline: &timeline, touched: None }).unwrap().len();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let scratch = tempfile::tempdir().unwrap();
    let began = Instant::now();
    folder::write(&run, &table, scratch.path()).unwrap();
    let all = began.elapsed();
    println!("{samples} samples, {} rows of detail", run.details.len());
    println!("account {account:.1?}, timeline.svg {drawing:.1?} ({:.2} MiB)", timeline.len() as f64 / 1048576.0);
    println!("report.html: median {:.1?}, longest {:.1?}, {:.2} MiB", times[2], times[4], size as f64 / 1048576.0);
    println!("all reports of the folder {all:.1?}");
    assert!(times[2] < LONGEST, "report.html takes {:.1?}", times[2]);
    assert!(size < LARGEST, "report.html has {size} bytes");
}

fn made_up(count: usize) -> Run {
    let mut run = Run::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs/lazy")).unwrap();
    let mut noise = 1u64;
    let mut next = move || {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise >> 33
    };
    let pattern = run.samples[0].clone();
    let mut counters = vec![0u64; ALL.len()];
    run.samples = (0..count)
        .map(|index| {
            let mut sample = pattern.clone();
            sample.t = At(index as i64 * TICK_NS);
            for (place, metric) in ALL.iter().enumerate() {
                let value = match metric.definition().kind {
                    Kind::Gauge => (8 << 30) * index as u64 / count as u64 + next() % (64 << 20) * 4096,
                    Kind::Counter => {
                        counters[place] += next() % 1000;
                        counters[place]
                    }
                    Kind::MarkGauge | Kind::HighWater => continue,
                };
                // Devices are asked by a thread of their own: most samples have no answer.
                let is_known = !metric.name().starts_with("device_") || index % 5 == 0;
                sample.values.set(*metric, Some(value).filter(|_| is_known));
            }
            sample.values.set(Metric::Processes, 3);
            sample
        })
        .collect();
    let end = count as i64 * TICK_NS;
    let mut place = 0;
    for event in &mut run.events {
        if let What::Mark(mark) = &mut event.what {
            place += 1;
            event.at = At(end / 4 / TICK_NS * place * TICK_NS);
            mark.sampled = Some(event.at);
        } else if event.at > At(0) {
            event.at = At(end);
        }
    }
    run.meta.exit.as_mut().unwrap().at = At(end);
    let device: Device = serde_json::from_value(serde_json::json!({
        "uuid": null, "name": "card", "vendor": "nvidia", "source": "nvml", "driver": null, "pci": null,
        "total_bytes": null, "is_unified": false, "parent": null, "instance": null, "is_divided": false, "is_counted": true,
    }))
    .unwrap();
    run.meta.devices = vec![device; 8];
    for second in 0..end / 1_000_000_000 {
        for index in 0..8 {
            let (at, value) = (At(second * 1_000_000_000 + index as i64), next());
            run.details.push(Detail { at, scope: Scope::Device(index), metric: "used_bytes".to_owned(), value });
        }
    }
    run
}
