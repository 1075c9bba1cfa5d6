//! Work that was put off until after a mark, and a mark that came before its data: the log says "loaded", and the
//! payload is still to come, or is in memory and still to be touched.
//!
//! Evidence: what came after the mark, of two kinds. Data: the rise of the resident payload, or, where all was resident
//! already, of the tree's file pages. And the work that it takes: page faults and storage reads. A mark by a mapping
//! promises addresses and no more: of that [`super::early`] speaks.

use super::{Figure, Finding, Ground, Rule, at, derived, share};
use crate::account::StageRow;
use crate::event::Evidence;
use crate::metric::Metric::{self, *};
use crate::units;

pub(super) const RULE: Rule = Rule {
    id: "deferred",
    about: "data and faults that came after a mark, by residency or file pages, and by the counters of faults and \
            reads",
    find,
};

/// So much of the payload, in percent, came after the mark.
const MUCH: u64 = 25;
/// So much was resident at a mark on a warm mapping.
const WARM: u64 = 90;
/// A fault maps no more than so much of a file at once (fault-around, or a large folio).
const MOST_A_FAULT: u64 = 2 << 20;

/// Of the last mark of which it holds: from there to the end nothing more was put off.
fn find(ground: &Ground) -> Vec<Finding> {
    let Some(stop) = ground.table.stopping_row() else { return Vec::new() };
    ground.rows.iter().rev().find_map(|row| of(ground, row, stop)).into_iter().collect()
}

fn of(ground: &Ground, row: &StageRow, stop: &StageRow) -> Option<Finding> {
    let by = row.outcome.mark.as_ref()?.2.evidence;
    if row.outcome.stage == stop.outcome.stage || by == Evidence::Mapping {
        return None;
    }
    let payload = ground.payload()?;
    let after = |metric: Metric| row.rise_to(Some(stop), metric).and_then(|rise| u64::try_from(rise).ok());
    let mapped = row.values.get(MappedPayloadBytes)?;
    let (came, held) = (after(ResidentPayloadBytes), after(RssFileBytes));
    let faults = after(MinorFaults)?.checked_add(after(MajorFaults)?)?;
    let read = after(ReadBytes);
    let much = share(payload, MUCH);
    let faulted = |bytes: u64| faults >= (bytes / MOST_A_FAULT).max(2);
    // Files may have joined the set since the mark.
    let of_payload = if row.values.get(PayloadBytes) == Some(payload) { row } else { stop };
    let mut figures = vec![at(of_payload, PayloadBytes, payload), at(row, MappedPayloadBytes, mapped)];
    let after_figure = |metric: Metric, value| Figure {
        name: format!("after_{}", metric.name()),
        ..derived("", super::Quantity::of(metric, value), "from the mark's sample to the stopping event's")
    };
    let stage = &row.outcome.stage;
    let until = &stop.outcome.stage;
    let (title, meaning);
    match (came.filter(|came| *came >= much), held.filter(|held| *held >= much && mapped >= much)) {
        // Others may have brought it in; then it was not this launch's work that was put off.
        (Some(came), _) if faulted(came) || read.is_some_and(|read| read >= came / 2) => {
            let resident = row.values.get(ResidentPayloadBytes)?;
            figures.extend([at(row, ResidentPayloadBytes, resident), after_figure(ResidentPayloadBytes, came)]);
            title = format!(
                "{stage} was marked before its data: {} of {} of payload came in after it",
                units::bytes(came),
                units::bytes(payload)
            );
            meaning = format!(
                "At {stage} {} was resident and {} mapped; until {until} the launch took {} page faults{} for the \
                 rest.",
                units::bytes(resident),
                units::bytes(mapped),
                units::count(faults),
                read.map(|read| format!(" and read {} from storage", units::bytes(read))).unwrap_or_default()
            );
        }
        // In memory already, so that nothing had to come in.
        (_, Some(held)) if faulted(held) && row.values.get(ResidentPayloadBytes)? >= share(payload, WARM) => {
            figures.push(at(row, ResidentPayloadBytes, row.values.get(ResidentPayloadBytes)?));
            figures.push(after_figure(RssFileBytes, held));
            title = format!(
                "{stage} was marked before its pages were touched: {} of the mapping faulted in after it",
                units::bytes(held)
            );
            meaning = format!(
                "The payload was in the page cache, and hardly in the tree's page tables: until {until} {} page \
                 faults mapped it, and the tree's file pages grew by {}.",
                units::count(faults),
                units::bytes(held)
            );
        }
        _ => return None,
    }
    let known = [(MinorFaults, after(MinorFaults)), (MajorFaults, after(MajorFaults)), (ReadBytes, read)];
    figures.extend(known.into_iter().filter_map(|(metric, value)| Some(after_figure(metric, value?))));
    Some(Finding {
        rule: RULE.id,
        title,
        sentences: vec![
            meaning,
            format!(
                "Whoever takes {stage} for the end of the load leaves this out; the next to use the model pays for it."
            ),
        ],
        figures,
        settles: format!(
            "Compare launches at {until}. To pay before {stage}: load without lazy mapping, or read the files ahead \
             (MAP_POPULATE, MADV_POPULATE_READ, cat FILE > /dev/null)."
        ),
        place: ground.since(row),
    })
}
