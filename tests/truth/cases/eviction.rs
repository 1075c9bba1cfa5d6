//! Payload that the loader itself throws out of the page cache, in part, and reads again.

use serde_json::Value;
use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB, word};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::profile::{OWN_STORAGE, taken_back};

pub const CASES: &[Case] = &[Case::new("evicted_in_part_and_read_again", in_part)];

const PAYLOAD: u64 = 32 * MIB;
const PART: u64 = 16 * MIB;

fn in_part(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(PAYLOAD, Fill::Pattern);
    let read = "read f 0 33558528\n";
    let script = format!(
        "open f {}\n fadvise f 0 0 random\n {read} mark first\n step evicting\n fadvise f 8392704 16M dontneed\n \
         step evicted\n mark gone\n {read} mark again\n",
        word(&model.path)
    );
    let run = bench.acts(&script).artifact(&model.path).payload(model.payload).run();
    let noise = taken_back(PAYLOAD);
    // A fall that a look sees in the middle is told in parts, and a last part that is less than 1 MiB is not told.
    let untold = MIB - 1;
    let events = run.run.events("evicted");
    // Where the host evicts some by itself there may be more falls than one.
    let detail = |row: &crate::folder::Row| serde_json::from_str::<Value>(&row["detail"]).unwrap();
    let bytes: u64 = events.iter().map(|row| detail(row)["bytes"].as_u64().unwrap()).sum();
    let largest = events.iter().max_by_key(|row| detail(row)["bytes"].as_u64()).expect("an `evicted` event");
    let t: i64 = largest["t_ns"].parse().unwrap();
    let from = t - largest["uncertainty_ns"].parse::<i64>().unwrap();
    let (before, after) = (run.line("step", "evicting").unwrap().t, run.line("step", "evicted").unwrap().t);
    let ratio = |stage: &str| {
        let ratio: f64 = run.stage(stage).text("reread_ratio").parse().unwrap();
        Figure::Exact((ratio * 1_000.0).round() as u64)
    };
    let own = 1_000 * OWN_STORAGE / PAYLOAD;
    vec![
        run.resident("first", PAYLOAD, 0),
        run.within("gone", "resident_payload_bytes", PAYLOAD - PART - noise..=PAYLOAD - PART),
        Claim::between("bytes of `evicted` events", PART - noise - untold..=PART + noise, Figure::Exact(bytes)),
        Claim::holds("its time has room for fadvise", from <= after && t >= before, format!("{from} to {t}")),
        run.resident("again", PAYLOAD, 0),
        Claim::between("reread_ratio at first, in thousandths", 1_000..=1_000 + own, ratio("first")),
        Claim::between("reread_ratio at again, in thousandths", 1_500..=1_500 + own, ratio("again")),
        run.within("again", "delta_read_bytes", PART..=PART + noise),
    ]
}
