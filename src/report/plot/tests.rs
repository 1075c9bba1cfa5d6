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
