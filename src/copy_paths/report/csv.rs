//! Every rank's pass of every repeat, a row each; RFC 4180, numbers bare, empty for absent.

use std::io::Write;

use csv::{Terminator, WriterBuilder};

use crate::copy_paths::record::Record;
use crate::report::csv::text;
use crate::report::text::plain;

const HEADER: [&str; 20] = [
    "directory",
    "is_copy",
    "filesystem",
    "destination",
    "ranks",
    "regime",
    "mapping",
    "repeat",
    "position",
    "rank",
    "bytes",
    "prepare_ns",
    "copy_ns",
    "total_ns",
    "minor_faults",
    "major_faults",
    "read_bytes",
    "source",
    "resident_before_bytes",
    "verified",
];

/// Writes the rows. Repeat 0 is the warm-up.
pub fn write(record: &Record, out: &mut dyn Write) -> csv::Result<()> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
    writer.write_record(HEADER)?;
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    for place in &record.places {
        for series in &place.series {
            for measured in &series.passes {
                let pass = &measured.pass;
                let mapping = series.way.mapped.map(|mapped| mapped.permissions().to_owned());
                writer.write_record([
                    text(&plain(&place.directory)),
                    place.is_copy.to_string(),
                    text(&plain(place.filesystem.as_deref().unwrap_or_default())),
                    series.destination.name(),
                    series.ranks.to_string(),
                    series.way.regime.name().to_owned(),
                    mapping.unwrap_or_default(),
                    measured.repeat.to_string(),
                    measured.position.to_string(),
                    measured.rank.to_string(),
                    record.tensors.bytes.to_string(),
                    pass.prepare_ns.to_string(),
                    pass.copy_ns.to_string(),
                    pass.total_ns().to_string(),
                    number(pass.taken.minor_faults),
                    number(pass.taken.major_faults),
                    number(pass.taken.read_bytes),
                    text(&plain(&pass.source)),
                    number(measured.resident_before_bytes),
                    pass.verified.map(|equal| equal.to_string()).unwrap_or_default(),
                ])?;
            }
        }
    }
    writer.flush()?;
    Ok(())
}
