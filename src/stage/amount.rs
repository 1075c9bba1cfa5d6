//! Times and sizes as a stage file writes them: a number and a unit.

const TIMES: Units = Units {
    of: &[
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    expected: "expected a time, as \"200 ms\" (ns, us, ms, s, min, h)",
    smallest: "nanoseconds",
};

const SIZES: Units = Units {
    of: &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ],
    expected: "expected a size, as \"64 MiB\" (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)",
    smallest: "bytes",
};

/// A time in nanoseconds, from `"200 ms"`, `"1.5s"`, `"2 min"`: units ns, us, ms, s, min, h.
pub fn time(text: &str) -> Result<u64, String> {
    TIMES.exact(text)
}

/// A size in bytes, from `"64 MiB"`, `"1.5 GiB"`, `"500 kB"`, `"4096 B"`.
pub fn size(text: &str) -> Result<u64, String> {
    SIZES.exact(text)
}

/// The most that a time may be, in whole nanoseconds: what is counted whole and is no more than this is no more than the
/// time that is written.
pub fn most_time(text: &str) -> Result<u64, String> {
    TIMES.whole(text).map(|(whole, _)| whole)
}

/// The same of a size, in whole bytes: `"2.18 GiB"` is 2340757176.32 of them.
pub fn most_size(text: &str) -> Result<u64, String> {
    SIZES.whole(text).map(|(whole, _)| whole)
}

/// Units by their names, each in smallest ones.
struct Units {
    of: &'static [(&'static str, u64)],
    expected: &'static str,
    smallest: &'static str,
}

impl Units {
    /// The amount in smallest units, if it is a whole number of them.
    fn exact(&self, text: &str) -> Result<u64, String> {
        match self.whole(text)? {
            (whole, true) => Ok(whole),
            (whole, false) => Err(format!("no whole number of {}: more than {whole}", self.smallest)),
        }
    }

    /// The whole smallest units in it, and whether that is all of it.
    fn whole(&self, text: &str) -> Result<(u64, bool), String> {
        self.scaled(text).ok_or_else(|| self.expected.to_owned())
    }

    fn scaled(&self, text: &str) -> Option<(u64, bool)> {
        let text = text.trim();
        let number_ends = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at(number_ends);
        let unit = self.of.iter().find(|(name, _)| *name == unit.trim_start())?.1;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || whole.len() > 15 || fraction.len() > 12 || (number.contains('.') && fraction.is_empty())
        {
            return None;
        }
        let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
        let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        let scaled = digits * u128::from(unit);
        Some((u64::try_from(scaled / scale).ok()?, scaled.is_multiple_of(scale)))
    }
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
        assert_eq!(most_size("2.18 GiB"), Ok(2_340_757_176));
        assert_eq!(size("2.18 GiB"), Err("no whole number of bytes: more than 2340757176".to_owned()));
        assert_eq!(
            (most_size("1.5 KiB"), most_time("0.5 ns"), most_time("1.5 s")),
            (Ok(1536), Ok(0), Ok(1_500_000_000))
        );
        assert!(most_size("12 gib").unwrap_err().starts_with("expected a size"));
        for wrong in ["", "64", "64 mib", "1 TiB 1", "999999999999999 TiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
