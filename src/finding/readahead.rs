//! Reads from storage by page faults that are too small, and prefetching that the faults overtake.
//!
//! Evidence: the counter of major faults, and the counter of bytes read, of which each fault had little while read(2)
//! asked for none of it; or read(2) and page faults both went through the payload while it came from storage, and
//! faults still had to wait.

use super::{Finding, Ground, Quantity, Rule, Span, delta, derived, share};
use crate::account::source::Behind;
use crate::metric::Metric::*;
use crate::units;

pub(super) const RULE: Rule = Rule {
    id: "readahead",
    about: "many major faults of few bytes each, or a prefetch that faults overtook: by faults, and by bytes read \
            and asked for",
    find,
};

/// As many faults had to wait.
const MANY: u64 = 1_000;
/// So much a fault is small: read-ahead gives 128 KiB and more.
const SMALL: u64 = 32 << 10;
/// So much of the payload, in percent, was read from storage.
const READ: u64 = 10;
/// And asked for by read(2), for a prefetch.
const HALF: u64 = 50;

/// Of the interval with the most major faults of which it holds.
fn find(ground: &Ground) -> Vec<Finding> {
    let found = ground.spans().into_iter().filter_map(|span| Some((span.delta(MajorFaults)?, of(ground, &span)?)));
    found
        .reduce(|most, other| if other.0 > most.0 { other } else { most })
        .map(|(_, found)| found)
        .into_iter()
        .collect()
}

fn of(ground: &Ground, span: &Span) -> Option<Finding> {
    if Behind::of(&ground.run.meta) != Behind::ReadBytes {
        return None;
    }
    let payload = ground.payload()?;
    let major = span.delta(MajorFaults).filter(|major| *major >= MANY)?;
    let read = span.delta(ReadBytes).filter(|read| *read >= share(payload, READ))?;
    let asked = span.delta(RcharBytes)?;
    let each = read / major;
    let mapped = span.row.values.get(MappedPayloadBytes)?;
    let used = match span.before {
        Some(before) => ground.used(&before.values, span.begin(), span.end())?,
        None => ground.used_since_start(span.end())?,
    };
    let place = span.place();
    let (title, sentence, settles);
    if each <= SMALL && asked <= read / 2 && mapped > 0 {
        title = format!(
            "{place}: read-ahead is ineffective, {} major faults for {}, {} each",
            units::count(major),
            units::bytes(read),
            units::bytes(each)
        );
        sentence =
            "Each of these faults waited for storage on its own; read-ahead would bring in 128 KiB or more at once.";
        settles = "MADV_SEQUENTIAL or MADV_NORMAL instead of MADV_RANDOM, MADV_POPULATE_READ or readahead(2) before \
                   the use, reading in the files' order; read_ahead_kb of the device.";
    } else if asked >= share(payload, HALF) && used >= share(payload, HALF) && read >= share(payload, HALF) {
        title = format!(
            "{place}: page faults overtook the prefetch, {} of them waited for storage while read() asked for {}",
            units::count(major),
            units::bytes(asked)
        );
        sentence = "The payload is read twice over, by read(2) into the page cache and by faults of the mapping, and \
                    each of the major faults was there first.";
        settles = "Start the prefetch before the mapping is used, let it go in the order of the use and with enough \
                   in flight; or do without it and compare at the same stopping event.";
    } else {
        return None;
    }
    let mut figures = vec![
        delta(MajorFaults, major),
        delta(ReadBytes, read),
        derived("read_bytes_per_major_fault", Quantity::Bytes(each), "read_bytes by major_faults, over the interval"),
        delta(RcharBytes, asked),
        derived("file_pages_used_bytes", Quantity::Bytes(used), "growth of rss_file_bytes while payload was mapped"),
    ];
    let mut sentences = vec![sentence.to_owned()];
    if let Some(waited) = span.delta(IoWaitNs) {
        figures.push(delta(IoWaitNs, waited));
        sentences.push(format!("Threads waited for storage for {} at least.", units::duration(waited)));
    }
    Some(Finding { rule: RULE.id, title, sentences, figures, settles: settles.to_owned(), place })
}
