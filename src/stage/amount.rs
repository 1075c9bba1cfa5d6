//! Times and sizes as a stage file writes them: a number and a unit.

/// A time in nanoseconds, from `"200 ms"`, `"1.5s"`, `"2 min"`: units ns, us, ms, s, min, h.
pub fn time(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    exact(text, UNITS).ok_or_else(|| "expected a time, as \"200 ms\" (ns, us, ms, s, min, h)".to_string())
}

/// A size in bytes, from `"64 MiB"`, `"1.5 GiB"`, `"500 kB"`, `"4096 B"`.
pub fn size(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    exact(text, UNITS)
        .ok_or_else(|| "expected a size, as \"64 MiB\" (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)".to_string())
}

/// The amount in whole smallest units, if it is one.
fn exact(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let number_ends = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(number_ends);
    let unit = units.iter().find(|(name, _)| *name == unit.trim_start())?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 15 || fraction.len() > 12 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = digits * u128::from(unit);
    scaled.is_multiple_of(scale).then(|| u64::try_from(scaled / scale).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_or_refused() {
        assert_eq!(time("200 ms"), Ok(200_000_000));
        assert_eq!(time("1.5s"), Ok(1_500_000_000));
        assert_eq!(time("2 min"), Ok(120_000_000_000));
        assert_eq!(time("0.5 us"), Ok(500));
        assert_eq!(size("64 MiB"), Ok(64 << 20));
        assert_eq!(size("1.5 KiB"), Ok(1536));
        assert_eq!(size("3 kB"), Ok(3000));
        for wrong in
            ["", "5", "ms", "-1 s", "1 year", "0.5 ns", "1. s", ".5 s", "1e3 s", "1..2 s", "9999999999999999 h"]
        {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "64", "64 mib", "1 TiB 1", "999999999999999 TiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
