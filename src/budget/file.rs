//! A budget file. Reading one is strict: a limit that is not understood would pass for one that was kept.

use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use super::{Key, TIME_S};
use crate::event::text_of;
use crate::metric::Unit;
use crate::stage::StageError;
use crate::stage::amount;
use crate::stage::file::{Reader, hint, read_text};

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub stage: String,
    /// As the file writes it.
    pub name: String,
    pub key: Key,
    /// The most that is allowed, in the figure's own unit; of a ratio, thousandths.
    pub most: u64,
}

/// A budget, parsed and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// In the file's order.
    pub limits: Vec<Limit>,
}

impl Budget {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no budget; then with line and column.
    pub fn load(path: &Path) -> anyhow::Result<Budget> {
        let shown = text_of(path);
        let text = read_text(path, &format!("--budget {shown}"), &shown, "a budget")?;
        Ok(Budget::parse(&text, &shown)?)
    }

    /// Parses a budget; `origin` names it in errors.
    pub fn parse(text: &str, origin: &str) -> Result<Budget, StageError> {
        let reader = Reader::new(text, origin);
        let table = reader.document()?;
        let mut limits: Vec<(usize, Limit)> = Vec::new();
        for (stage, value) in table.get_ref().iter() {
            let name = reader.name(stage.get_ref(), stage.span())?;
            if value.get_ref().as_table().is_none() {
                let problem = format!("`{name}`: a limit stands below its stage, as `time_s` below `[first_response]`");
                return Err(reader.error(stage.span(), problem));
            }
            let of_stage = reader.table(value, &name)?;
            if of_stage.is_empty() {
                return Err(reader.error(stage.span(), format!("`{name}` has no limit")));
            }
            for (key, value) in of_stage.iter() {
                limits.push((key.span().start, limit(&reader, &name, key, value)?));
            }
        }
        if limits.is_empty() {
            return Err(
                reader.error(0..0, "a budget needs at least one limit, as `time_s = 60` below `[first_response]`")
            );
        }
        limits.sort_by_key(|(place, _)| *place);
        Ok(Budget { limits: limits.into_iter().map(|(_, limit)| limit).collect() })
    }
}

fn limit(
    reader: &Reader,
    stage: &str,
    key: &Spanned<std::borrow::Cow<str>>,
    value: &Spanned<DeValue>,
) -> Result<Limit, StageError> {
    let name = key.get_ref().as_ref();
    let Some(of) = Key::of(name) else {
        let names = Key::names();
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = hint(name, &known);
        // All of them are too many to list.
        let hint = match hint.starts_with("; did you mean") {
            true => hint,
            false => {
                "; expected `time_s`, `host_bytes`, `device_peak`, or a column of stages.csv, peaks without `_low` and \
                      `_high`"
                    .to_owned()
            }
        };
        return Err(reader.error(key.span(), format!("unknown limit `{name}`{hint}")));
    };
    let most = most(reader, name, of, value)?;
    Ok(Limit { stage: stage.to_owned(), name: name.to_owned(), key: of, most })
}

/// The limit in the figure's own unit. Decimal numbers are read as they are written; what is beyond a whole unit is no
/// figure's, and left out.
fn most(reader: &Reader, name: &str, key: Key, value: &Spanned<DeValue>) -> Result<u64, StageError> {
    let problem = |problem: String| reader.error(value.span(), format!("`{name}`: {problem}"));
    let decimal = match value.get_ref() {
        DeValue::Integer(_) => Some(reader.whole(value, name)?.to_string()),
        DeValue::Float(float) => Some(float.as_str().replace('_', "")),
        _ => None,
    };
    if name == TIME_S {
        let number = decimal.ok_or_else(|| problem("expected seconds, as 60 or 0.5".into()))?;
        return amount::most_time(&format!("{number} s")).map_err(|_| problem("expected seconds, as 60 or 0.5".into()));
    }
    let text = value.get_ref().as_str();
    match (key.unit(), text, decimal) {
        (Some(Unit::Bytes), Some(text), _) => amount::most_size(text).map_err(problem),
        (Some(Unit::Nanoseconds), Some(text), _) => amount::most_time(text).map_err(problem),
        (None, _, Some(number)) => {
            thousandths(&number).ok_or_else(|| problem("expected a number of at most three decimals, as 1.05".into()))
        }
        (Some(_), _, Some(number)) => {
            number.parse().map_err(|_| problem("expected a whole number, not below 0".into()))
        }
        (Some(Unit::Bytes), ..) => Err(problem("expected a size, as \"12 GiB\", or a number of bytes".into())),
        (Some(Unit::Nanoseconds), ..) => {
            Err(problem("expected a time, as \"60 s\", or a number of nanoseconds".into()))
        }
        (Some(Unit::Count), ..) => Err(problem("expected a whole number".into())),
        (None, ..) => Err(problem("expected a number, as 1.05".into())),
    }
}

fn thousandths(number: &str) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 3 || fraction.bytes().any(|byte| !byte.is_ascii_digit()) {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(format!("{fraction:0<3}").parse().ok()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        Budget::parse(text, "b.toml").unwrap_err().to_string()
    }

    #[test]
    fn limits_are_read_in_their_units_and_order() {
        let text = "[first_response]\ntime_s = 60\nhost_bytes = \"12 GiB\"\ndevice_peak = \"70 GiB\"\n\
                    reread_ratio = 1.05\nminor_faults = 1_000\nperf_task_clock_ns = \"2 s\"\n[gpu_placed]\ntime_s = 0.5\n";
        let budget = Budget::parse(text, "b.toml").unwrap();
        let found: Vec<(&str, &str, u64)> =
            budget.limits.iter().map(|limit| (limit.stage.as_str(), limit.name.as_str(), limit.most)).collect();
        assert_eq!(
            found,
            [
                ("first_response", "time_s", 60_000_000_000),
                ("first_response", "host_bytes", 12 << 30),
                ("first_response", "device_peak", 70 << 30),
                ("first_response", "reread_ratio", 1050),
                ("first_response", "minor_faults", 1000),
                ("first_response", "perf_task_clock_ns", 2_000_000_000),
                ("gpu_placed", "time_s", 500_000_000),
            ]
        );
    }

    #[test]
    fn errors_say_where_and_what_was_probably_meant() {
        for (text, said) in [
            ("[up]\ntime = 60\nhost_byte = 1", "b.toml:3:1: unknown limit `host_byte`; did you mean `host_bytes`?"),
            (
                "[up]\nxyzzy = 1",
                "b.toml:2:1: unknown limit `xyzzy`; expected `time_s`, `host_bytes`, `device_peak`, or",
            ),
            ("[up]\nhost_bytes = \"12 gib\"", "b.toml:2:14: `host_bytes`: expected a size, as"),
            ("[up]\nhost_bytes = -1", "b.toml:2:14: `host_bytes`: expected a whole number, not below 0"),
            ("[up]\ntime_s = \"60\"", "b.toml:2:10: `time_s`: expected seconds"),
            ("[up]\ntime_s = -1", "b.toml:2:10: `time_s`: expected seconds"),
            ("[up]\ntime_s = inf", "b.toml:2:10: `time_s`: expected seconds"),
            ("[up]\nreread_ratio = 1.0005", "b.toml:2:16: `reread_ratio`: expected a number of at most three"),
            ("[up]\nminor_faults = true", "b.toml:2:16: `minor_faults`: expected a whole number"),
            ("time_s = 60", "b.toml:1:1: `time_s`: a limit stands below its stage"),
            ("[up]", "b.toml:1:2: `up` has no limit"),
            ("", "b.toml:1:1: a budget needs at least one limit"),
            ("[\"a b\"]\ntime_s = 1", "b.toml:1:2: `a b` cannot be a name"),
            ("[up]\ntime_s = 1\ntime_s = 2", "b.toml:3:1: duplicate key"),
            ("[up", "b.toml:1:4: "),
        ] {
            assert!(problem(text).starts_with(said), "{text}: {}", problem(text));
        }
    }
}
