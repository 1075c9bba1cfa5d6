//! Exact integers as people read them: three significant digits and a unit. For what people read only; files keep the integers.

use crate::clock::At;

/// A binary unit of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteUnit {
    pub name: &'static str,
    pub bytes: u64,
}

const BYTE_UNITS: [ByteUnit; 6] = [
    ByteUnit { name: "B", bytes: 1 },
    ByteUnit { name: "KiB", bytes: 1 << 10 },
    ByteUnit { name: "MiB", bytes: 1 << 20 },
    ByteUnit { name: "GiB", bytes: 1 << 30 },
    ByteUnit { name: "TiB", bytes: 1 << 40 },
    ByteUnit { name: "PiB", bytes: 1 << 50 },
];

/// The unit in which a number of bytes has one to four digits before the point.
pub fn byte_unit(bytes: u64) -> ByteUnit {
    BYTE_UNITS.into_iter().rev().find(|unit| bytes >= unit.bytes).unwrap_or(BYTE_UNITS[0])
}

/// Bytes: `4 GiB` where that is exact, else `1.42 GiB`.
pub fn bytes(bytes: u64) -> String {
    let unit = byte_unit(bytes);
    format!("{} {}", bytes_in(bytes, unit), unit.name)
}

/// Bytes as a number of a given unit.
pub fn bytes_in(bytes: u64, unit: ByteUnit) -> String {
    if bytes.is_multiple_of(unit.bytes) {
        return (bytes / unit.bytes).to_string();
    }
    significant(bytes as f64 / unit.bytes as f64)
}

/// Three significant digits, at most two of them behind the point; what would show as nothing is said to be less.
pub fn significant(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v < 0.005 => "<0.01".to_owned(),
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// A count: `974`, `65.5k`, `1.31M`.
pub fn count(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..999_500 => format!("{}k", significant(count as f64 / 1e3)),
        999_500..999_500_000 => format!("{}M", significant(count as f64 / 1e6)),
        _ => format!("{}G", significant(count as f64 / 1e9)),
    }
}

/// A count of things, by their name in the singular: `1 page fault`, `974 page faults`.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// As [`counted`], to the last one: `1 line`, `12345 lines`.
pub fn exactly(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A time since start.
pub fn time(at: At) -> String {
    if at.0 < 0 { format!("-{}", duration(at.0.unsigned_abs())) } else { duration(at.0.unsigned_abs()) }
}

/// A unit of time: its nanoseconds, and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeUnit {
    pub name: &'static str,
    pub ns: u64,
}

/// The unit in which a length of time has one to three digits before the point; seconds beyond.
pub fn time_unit(ns: u64) -> TimeUnit {
    let (name, ns) = match ns {
        1..1_000 => ("ns", 1),
        1_000..999_500 => ("µs", 1_000),
        999_500..999_500_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    TimeUnit { name, ns }
}

/// A length of time in nanoseconds: `20 ms` where that is exact, else `12.3 ms`.
pub fn duration(ns: u64) -> String {
    let unit = time_unit(ns);
    format!("{} {}", duration_in(ns, unit), unit.name)
}

/// A length of time as a number of a given unit.
pub fn duration_in(ns: u64, unit: TimeUnit) -> String {
    if ns.is_multiple_of(unit.ns) { (ns / unit.ns).to_string() } else { significant(ns as f64 / unit.ns as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(
            [0, 1, 974].map(|number| counted(number, "page fault")),
            ["0 page faults", "1 page fault", "974 page faults"]
        );
    }

    #[test]
    fn bytes_keep_three_digits() {
        for (value, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (205 * 1024 + 1, "205 KiB"),
            (1_524_713_390, "1.42 GiB"),
            (4 << 30, "4 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(value), shown);
        }
        assert_eq!(bytes_in(205 * 1024, byte_unit(256 << 20)), "0.20");
        assert_eq!(bytes_in(1, byte_unit(256 << 20)), "<0.01");
    }

    #[test]
    fn times_and_counts_have_units() {
        assert_eq!(duration(12_345_678), "12.3 ms");
        assert_eq!(duration(999_900_000), "1.00 s");
        assert_eq!(time(At(-5_000)), "-5 µs");
        assert_eq!(count(974), "974");
        assert_eq!(count(65_537), "65.5k");
        assert_eq!(count(999_999), "1.00M");
    }
}
