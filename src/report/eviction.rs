//! What left memory again, and what was read more than once, in words for the terminal.

use std::collections::BTreeMap;

use crate::account::ratios::{Thousandths, reread};
use crate::account::{StageRow, StageTable};
use crate::clock::At;
use crate::event::{ArtifactId, What};
use crate::metric::Metric;
use crate::run::Run;

use super::text::plain;
use super::units;

/// A ratio that is worth a sentence: what lies below is the loader's own program and libraries.
const MUCH: Thousandths = Thousandths(1_100);

/// One sentence for evictions up to the last stage, and one for what was read more than once up to it.
pub fn sentences(run: &Run, table: &StageTable) -> Vec<String> {
    let Some(last) = table.last_stage_reached() else { return Vec::new() };
    evicted(run, last).into_iter().chain(read_again(last)).collect()
}

/// Falls of one artifact: how many, of how many bytes in all, and the last.
#[derive(Default)]
struct Falls {
    count: u64,
    bytes: u64,
    last: Option<(u64, u64, At)>,
}

fn evicted(run: &Run, last: &StageRow) -> Option<String> {
    let until = last.sampled.max(last.at())?;
    let mut falls: BTreeMap<ArtifactId, Falls> = BTreeMap::new();
    for event in run.events.iter().filter(|event| event.at <= until) {
        if let What::Evicted { artifact, bytes, from, to } = event.what {
            let fall = falls.entry(artifact).or_default();
            fall.count += 1;
            fall.bytes = fall.bytes.saturating_add(bytes);
            fall.last = Some((from, to, event.at));
        }
    }
    let bytes: u64 = falls.values().map(|fall| fall.bytes).fold(0, u64::saturating_add);
    let count: u64 = falls.values().map(|fall| fall.count).sum();
    let (artifact, fall) = falls.first_key_value()?;
    let of = match falls.len() {
        1 => {
            let path = run.meta.artifacts.get(artifact.0).map_or("the artifact", |artifact| artifact.path.as_str());
            plain(path.rsplit('/').next().unwrap_or(path))
        }
        several => format!("{several} artifacts"),
    };
    let how = match (falls.len(), fall.count, fall.last) {
        (1, 1, Some((from, to, at))) => {
            format!(": from {} resident to {}, by {}", units::bytes(from), units::bytes(to), units::time(at))
        }
        _ => format!(", in {count} falls"),
    };
    let stage = plain(&last.outcome.stage);
    Some(format!("Evicted from memory up to {stage}: {} of {of}{how}.", units::bytes(bytes)))
}

fn read_again(last: &StageRow) -> Option<String> {
    let ratio = reread(last).filter(|ratio| *ratio > MUCH)?;
    let read = last.values.get(Metric::ReadBytes)?;
    Some(format!(
        "Storage was read {}.{:02} times the payload up to {}, {} in all: other files, or payload that was evicted and read again.",
        ratio.0 / 1000,
        ratio.0 % 1000 / 10,
        plain(&last.outcome.stage),
        units::bytes(read)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Evidence, Mark};
    use crate::metric::Values;
    use crate::run::Meta;
    use crate::sample::Sample;
    use crate::stage::{Outcome, Status};

    fn said(read: u64, falls: &[(i64, usize, u64, u64)]) -> Vec<String> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs/ml-216");
        let meta = Meta::load(&folder).unwrap();
        let mut values = Values::ABSENT;
        values.set(Metric::PayloadBytes, 1 << 20);
        values.set(Metric::ReadBytes, read);
        let samples = vec![Sample { t: At(50), late_ns: 0, cost_ns: 0, values }];
        let event = |&(at, artifact, from, to): &(i64, usize, u64, u64)| {
            let what = What::Evicted { artifact: ArtifactId(artifact), bytes: from - to, from, to };
            Event { at: At(at), uncertainty_ns: None, what }
        };
        let events = falls.iter().map(event).collect();
        let run = Run {
            folder,
            meta,
            samples,
            events,
            details: Vec::new(),
            gaps: Vec::new(),
            tensors: None,
            responses: Vec::new(),
        };
        let mark =
            Mark { stage: "ready".into(), evidence: Evidence::Log, detail: String::new(), sampled: Some(At(50)) };
        let outcome = Outcome {
            stage: "ready".into(),
            status: Status::Reached,
            reason: String::new(),
            begin: None,
            mark: Some((At(40), Some(0), mark)),
        };
        sentences(&run, &StageTable::build(vec![outcome], &run))
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(said(1 << 20, &[]), Vec::<String>::new());
        assert_eq!(said((11 << 20) / 10, &[(60, 0, 9, 0)]), Vec::<String>::new());
    }

    #[test]
    fn a_fall_and_a_second_reading() {
        let said = said(5 << 19, &[(20, 0, 6 << 20, 2 << 20)]);
        assert!(
            said[0].contains("up to ready: 4 MiB of ") || said[0].contains("up to ready: 4.00 MiB of "),
            "{said:?}"
        );
        assert!(said[0].contains("resident to"), "{said:?}");
        assert!(said[1].starts_with("Storage was read 2.50 times the payload up to ready"), "{said:?}");
    }

    #[test]
    fn several_falls_are_added_up() {
        let said = said(0, &[(20, 0, 6 << 20, 2 << 20), (21, 0, 2 << 20, 0), (22, 1, 2 << 20, 0)]);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("2 artifacts, in 3 falls"), "{said:?}");
    }
}
