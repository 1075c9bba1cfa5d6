use std::path::Path;

use super::*;
use crate::stage::{Outcome, Status};

/// A run folder of `fixtures/runs`, with its table.
fn load(name: &str) -> (Run, StageTable) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs").join(name);
    let run = Run::load(&folder).unwrap();
    let table = table(&run);
    (run, table)
}

fn table(run: &Run) -> StageTable {
    let outcome = |name: &str| {
        let mark = run.events.iter().find_map(|event| match &event.what {
            What::Mark(mark) if mark.stage == name => Some((event.at, event.uncertainty_ns, mark.clone())),
            _ => None,
        });
        let status = if mark.is_some() { Status::Reached } else { Status::NotReached };
        Outcome { stage: name.to_owned(), status, reason: String::new(), begin: None, mark }
    };
    StageTable::build(run.meta.stages.stages.iter().map(|stage| outcome(&stage.name)).collect(), run)
}

#[test]
#[ignore = "writes pictures to look at into the folder PICTURES names"]
fn pictures_to_look_at() {
    let Some(folder) = std::env::var_os("PICTURES") else { return };
    for name in ["lazy", "heap", "fifteen-stages", "absent", "ml-216"] {
        let (run, table) = load(name);
        let began = std::time::Instant::now();
        let bytes = png(&run, &table).unwrap();
        eprintln!("{name} png {:?} {} bytes", began.elapsed(), bytes.len());
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
        let began = std::time::Instant::now();
        let text = svg(&run, &table).unwrap();
        eprintln!("{name} svg {:?} {} bytes", began.elapsed(), text.len());
        std::fs::write(Path::new(&folder).join(format!("{name}.svg")), text).unwrap();
    }
    let (mut run, _) = load("lazy");
    run.samples.drain(0..100);
    run.samples.truncate(1);
    std::fs::write(Path::new(&folder).join("one-sample.png"), png(&run, &table(&run)).unwrap()).unwrap();
}

/// Half a million samples: the picture is as fast as that of a hundred, and no peak is lost.
#[test]
fn a_long_run_is_thinned() {
    let (mut run, _) = load("lazy");
    let pattern = run.samples.clone();
    run.samples = (0..500_000)
        .map(|index| {
            let mut sample = pattern[index * pattern.len() / 500_000].clone();
            sample.t = At(index as i64 * 20_000_000);
            sample
        })
        .collect();
    run.samples[250_001].values.set(Metric::RssBytes, 5 << 30);
    run.meta.until = None;
    run.meta.exit = None;
    let began = std::time::Instant::now();
    let table = table(&run);
    eprintln!("accounted in {:?}", began.elapsed());
    let began = std::time::Instant::now();
    let picture = compose(&run, &table);
    eprintln!("composed in {:?}", began.elapsed());
    let began = std::time::Instant::now();
    let bytes = picture.svg().unwrap().len();
    eprintln!("{bytes} bytes of svg in {:?}", began.elapsed());
    let points: usize = picture
        .shapes
        .iter()
        .map(|shape| match shape {
            scene::Shape::Area { points, .. } | scene::Shape::Line { points, .. } => points.len(),
            _ => 0,
        })
        .sum();
    assert!(points < 150_000, "{points}");
    assert!(picture.svg().unwrap().contains("4 GiB"), "the axis reaches to the one high sample");
}
