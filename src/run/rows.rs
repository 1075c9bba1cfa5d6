//! The rows of a run folder's files as text, both ways. Columns are found by their names when read, so that files of
//! older and newer versions can be read: an unknown column is passed over, a missing one is absent.

use csv::ByteRecord;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::{Detail, LoggedLine, Scope};
use crate::clock::At;
use crate::event::{ArtifactId, Event, Stream, What};
use crate::metric::{self, Metric, Values};
use crate::sample::Sample;
use crate::watch::{Line, LineEnd};

/// A row that is none: which field, and what is wrong with it.
pub type RowResult<T> = Result<T, String>;

/// The header of `samples.csv`.
pub fn sample_header() -> ByteRecord {
    ["t_ns", "late_ns", "cost_ns"]
        .into_iter()
        .chain(metric::ALL.iter().map(|metric| metric.name()))
        .collect::<Vec<_>>()
        .into()
}

/// The header of `events.csv`. `detail` holds what is particular to a kind, as a JSON object.
pub const EVENT_HEADER: [&str; 6] = ["t_ns", "uncertainty_ns", "kind", "pid", "name", "detail"];

/// The header of `detail.csv`.
pub const DETAIL_HEADER: [&str; 5] = ["t_ns", "scope", "id", "metric", "value"];

fn cell(value: Option<u64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A sample as a row of `samples.csv`.
pub fn sample_row(sample: &Sample) -> ByteRecord {
    let mut row = ByteRecord::with_capacity(256, metric::COUNT + 3);
    row.push_field(sample.t.0.to_string().as_bytes());
    row.push_field(sample.late_ns.to_string().as_bytes());
    row.push_field(sample.cost_ns.to_string().as_bytes());
    for (_, value) in sample.values.iter() {
        row.push_field(cell(value).as_bytes());
    }
    row
}

/// Where the columns of `samples.csv` stand.
pub struct SampleColumns {
    t: usize,
    late: Option<usize>,
    cost: Option<usize>,
    metrics: Vec<(usize, Metric)>,
}

impl SampleColumns {
    /// From the header that a file has.
    pub fn of(header: &ByteRecord) -> RowResult<SampleColumns> {
        let place = |name: &str| header.iter().position(|field| field == name.as_bytes());
        Ok(SampleColumns {
            t: place("t_ns").ok_or("there is no column t_ns")?,
            late: place("late_ns"),
            cost: place("cost_ns"),
            metrics: metric::ALL.iter().filter_map(|&metric| Some((place(metric.name())?, metric))).collect(),
        })
    }

    /// A row as a sample.
    pub fn sample(&self, row: &ByteRecord) -> RowResult<Sample> {
        let own = |index: Option<usize>, name| match index {
            Some(index) => Ok(number(row, index, name)?.unwrap_or(0)),
            None => Ok::<u64, String>(0),
        };
        let mut values = Values::ABSENT;
        for &(index, metric) in &self.metrics {
            values.set(metric, number(row, index, metric.name())?);
        }
        Ok(Sample {
            t: time(row, self.t)?,
            late_ns: own(self.late, "late_ns")?,
            cost_ns: own(self.cost, "cost_ns")?,
            values,
        })
    }
}

fn text<'row>(row: &'row ByteRecord, index: usize, name: &str) -> RowResult<&'row str> {
    let field = row.get(index).ok_or_else(|| format!("the field {name} is missing"))?;
    std::str::from_utf8(field).map_err(|_| format!("the field {name} is not UTF-8"))
}

/// No figure is larger: 4 EiB, or 146 years in nanoseconds. What a damaged or forged file has beyond it would only make
/// sums and differences overflow.
const MOST: u128 = 1 << 62;

pub(super) fn number(row: &ByteRecord, index: usize, name: &str) -> RowResult<Option<u64>> {
    match text(row, index, name)? {
        "" => Ok(None),
        field => {
            let value = field.parse::<u64>().map_err(|_| format!("the field {name} is no number: `{field}`"))?;
            plausible(i128::from(value), name).map(|_| Some(value))
        }
    }
}

/// A figure that is no more than any can be.
pub(super) fn plausible(value: i128, name: &str) -> RowResult<i128> {
    if value.unsigned_abs() <= MOST {
        return Ok(value);
    }
    Err(format!("the field {name} is larger than any figure can be (2^62): `{value}`"))
}

/// A time in nanoseconds since start.
fn time_of(field: &str) -> RowResult<At> {
    let ns = field.parse::<i64>().map_err(|_| format!("the field t_ns is no number: `{field}`"))?;
    plausible(i128::from(ns), "t_ns").map(|_| At(ns))
}

pub(super) fn time(row: &ByteRecord, index: usize) -> RowResult<At> {
    time_of(text(row, index, "t_ns")?)
}

/// An event as a row of `events.csv`: `kind`, `pid` and `name` have columns of their own.
pub fn event_row(event: &Event) -> ByteRecord {
    let mut object = match serde_json::to_value(&event.what) {
        Ok(Value::Object(object)) => object,
        // Every variant serialises to an object of plain fields.
        other => unreachable!("an event is an object: {other:?}"),
    };
    let mut take = |key: &str| match object.remove(key) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    };
    let (kind, pid, name) = (take("kind"), take("pid"), take("name"));
    let detail = if object.is_empty() { String::new() } else { Value::Object(object).to_string() };
    vec![event.at.0.to_string(), cell(event.uncertainty_ns), kind, pid, name, detail].into()
}

/// A row of `events.csv` as an event. `Ok(None)` is a kind that this version does not know.
pub fn event(row: &ByteRecord) -> RowResult<Option<Event>> {
    let mut object: Map<String, Value> = match text(row, 5, "detail")? {
        "" => Map::new(),
        detail => {
            serde_json::from_str(detail).map_err(|error| format!("the field detail is no JSON object: {error}"))?
        }
    };
    let kind = text(row, 2, "kind")?;
    object.insert("kind".into(), kind.into());
    if let Some(pid) = number(row, 3, "pid")? {
        object.insert("pid".into(), pid.into());
    }
    let name = text(row, 4, "name")?;
    if !name.is_empty() {
        object.insert("name".into(), name.into());
    }
    if !KINDS.contains(&kind) {
        return Ok(None);
    }
    let what =
        What::deserialize(Value::Object(object)).map_err(|error| format!("not an event of kind {kind}: {error}"))?;
    Ok(Some(Event { at: time(row, 0)?, uncertainty_ns: number(row, 1, "uncertainty_ns")?, what }))
}

/// The kinds of [`What`], as they stand in the files.
const KINDS: &[&str] = &[
    "born",
    "exec",
    "gone",
    "artifact",
    "opened",
    "mapped",
    "unmapped",
    "evicted",
    "log_match",
    "notify",
    "probe",
    "first_output",
    "environment",
    "began",
    "mark",
    "absent",
    "present",
    "peaks_reset",
    "device_use",
    "warning",
    "exit",
];

/// A figure as a row of `detail.csv`.
pub fn detail_row(detail: &Detail) -> ByteRecord {
    let (scope, id) = match detail.scope {
        Scope::Process(pid) => ("process", pid.to_string()),
        Scope::Artifact(ArtifactId(index)) => ("artifact", index.to_string()),
        Scope::Storage(index) => ("storage", index.to_string()),
        Scope::Device(index) => ("device", index.to_string()),
        Scope::Rank(rank) => ("rank", rank.to_string()),
    };
    vec![detail.at.0.to_string(), scope.to_owned(), id, detail.metric.clone(), detail.value.to_string()].into()
}

/// A row of `detail.csv` as a figure. `Ok(None)` is a scope that this version does not know.
pub fn detail(row: &ByteRecord) -> RowResult<Option<Detail>> {
    let id = number(row, 2, "id")?.ok_or("the field id is empty")?;
    let scope = match text(row, 1, "scope")? {
        "process" => Scope::Process(id.try_into().map_err(|_| format!("the field id is no pid: `{id}`"))?),
        "artifact" => Scope::Artifact(ArtifactId(id as usize)),
        "storage" => Scope::Storage(id as usize),
        "device" => Scope::Device(id as usize),
        "rank" => Scope::Rank(id.try_into().map_err(|_| format!("the field id is no rank: `{id}`"))?),
        _ => return Ok(None),
    };
    let value = number(row, 4, "value")?.ok_or("the field value is empty")?;
    Ok(Some(Detail { at: time(row, 0)?, scope, metric: text(row, 3, "metric")?.to_owned(), value }))
}

fn stream_word(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Both => "both",
    }
}

fn end_word(end: LineEnd) -> &'static str {
    match end {
        LineEnd::Newline => "newline",
        LineEnd::Return => "return",
        LineEnd::Cut => "cut",
        LineEnd::Eof => "eof",
    }
}

/// A printed line as a line of `output.log`: time, uncertainty, stream, how it ended, and its bytes as they were,
/// separated by tabs. The bytes hold neither `\n` nor `\r`, by the way in which lines are split.
pub fn output_line(logged: &LoggedLine) -> Vec<u8> {
    let mut bytes = format!(
        "{}\t{}\t{}\t{}\t",
        logged.at.0,
        cell(logged.uncertainty_ns),
        stream_word(logged.line.stream),
        end_word(logged.line.end)
    )
    .into_bytes();
    bytes.extend_from_slice(&logged.line.bytes);
    bytes.push(b'\n');
    bytes
}

/// A line of `output.log`, its `\n` taken off, as a printed line.
pub fn logged_line(bytes: &[u8]) -> RowResult<LoggedLine> {
    let mut fields = bytes.splitn(5, |&byte| byte == b'\t');
    let mut field = |name: &str| fields.next().ok_or_else(|| format!("the field {name} is missing"));
    let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let t = word(field("t_ns")?);
    let uncertainty = word(field("uncertainty_ns")?);
    let stream = match field("stream")? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        b"both" => Stream::Both,
        other => return Err(format!("the field stream is no stream: `{}`", word(other))),
    };
    let end = match field("end")? {
        b"newline" => LineEnd::Newline,
        b"return" => LineEnd::Return,
        b"cut" => LineEnd::Cut,
        b"eof" => LineEnd::Eof,
        other => return Err(format!("the field end is no line end: `{}`", word(other))),
    };
    let uncertainty_ns = match uncertainty.as_str() {
        "" => None,
        field => {
            let ns: u64 = field.parse().map_err(|_| format!("the field uncertainty_ns is no number: `{field}`"))?;
            plausible(i128::from(ns), "uncertainty_ns").map(|_| Some(ns))?
        }
    };
    Ok(LoggedLine { at: time_of(&t)?, uncertainty_ns, line: Line { stream, bytes: field("text")?.to_vec(), end } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Evidence, Found, Mark, Probe};

    fn events() -> Vec<Event> {
        let whats = vec![
            What::Born { pid: 7, parent: 1 },
            What::Exec { pid: 7, argv: vec!["sh".into(), "a,\"b\"".into()] },
            What::Gone { pid: 7, code: None, signal: Some(9) },
            What::Artifact {
                artifact: ArtifactId(0),
                found: Found::HubCache { repository: "a/b".into(), revision: "main".into() },
            },
            What::Artifact { artifact: ArtifactId(1), found: Found::Declared },
            What::Opened { pid: 7, artifact: ArtifactId(0) },
            What::Mapped { pid: 7, artifact: ArtifactId(0), bytes: 10, permissions: "r--p".into() },
            What::Unmapped { pid: 7, artifact: ArtifactId(0) },
            What::Evicted { artifact: ArtifactId(0), bytes: 7, from: 10, to: 3 },
            What::LogMatch { stream: Stream::Both, stage: "loaded".into(), line: "=cmd,\u{1b}[0m".into() },
            What::Notify { pid: None, stage: Some("x".into()), status: None, ready: false, verified: false },
            What::Probe(Probe {
                stage: "up".into(),
                by: Evidence::Http,
                condition: "0123456789abcdef".into(),
                target: "http://127.0.0.1:1/".into(),
                attempt: 3,
                began: At(-1),
                accepted: true,
                outcome: "accepted".into(),
                first_byte: Some(At(4)),
                bytes: None,
                is_cut: true,
                without_row: 2,
            }),
            What::FirstOutput { stream: Stream::Stderr },
            What::Environment { pid: 7, name: "PORT".into(), value: "".into() },
            What::Began { stage: "x".into(), evidence: Evidence::Log, detail: "l".into() },
            What::Mark(Mark {
                stage: "loaded".into(),
                evidence: Evidence::Log,
                detail: "line".into(),
                sampled: Some(At(5)),
            }),
            What::Absent { metric: Metric::ReadBytes, reason: "denied".into() },
            What::Present { metric: Metric::ReadBytes },
            What::PeaksReset {},
            What::DeviceUse { used: Some(false), reason: "x".into() },
            What::DeviceUse { used: None, reason: "y".into() },
            What::warning("full"),
            What::Exit { pid: 7, code: Some(0), signal: None },
        ];
        let mut t = -3;
        whats
            .into_iter()
            .map(|what| {
                t += 2;
                Event { at: At(t), uncertainty_ns: (t > 5).then_some(t as u64), what }
            })
            .collect()
    }

    #[test]
    fn every_event_comes_back_as_it_was() {
        for wanted in events() {
            let row = event_row(&wanted);
            assert_eq!(row.len(), EVENT_HEADER.len());
            assert_eq!(event(&row), Ok(Some(wanted)));
        }
        let kinds: std::collections::HashSet<_> = events().iter().map(|event| event_row(event)[2].to_vec()).collect();
        assert_eq!(kinds, KINDS.iter().map(|kind| kind.as_bytes().to_vec()).collect(), "a kind is not tried here");
        let mut unknown = event_row(&events()[0]);
        unknown = unknown
            .iter()
            .enumerate()
            .map(|(index, field)| if index == 2 { b"later" as &[u8] } else { field })
            .collect();
        assert_eq!(event(&unknown), Ok(None));
    }

    #[test]
    fn a_sample_comes_back_as_it_was() {
        let mut values = Values::ABSENT;
        values.set(Metric::PayloadBytes, 0);
        values.set(Metric::MinorFaults, 1 << 62);
        let sample = Sample { t: At(-5), late_ns: 1, cost_ns: 2, values };
        let columns = SampleColumns::of(&sample_header()).unwrap();
        assert_eq!(columns.sample(&sample_row(&sample)), Ok(sample));
    }

    #[test]
    fn what_no_figure_can_be_is_refused_by_its_field() {
        let row = |value: &str| ByteRecord::from(vec!["1", "process", "4", "rss_bytes", value]);
        assert!(detail(&row("4611686018427387904")).is_ok());
        for value in ["4611686018427387905", "18446744073709551615"] {
            assert!(detail(&row(value)).unwrap_err().starts_with("the field value is larger"), "{value}");
        }
        let late = ByteRecord::from(vec!["-9223372036854775808", "process", "4", "rss_bytes", "1"]);
        assert!(detail(&late).unwrap_err().starts_with("the field t_ns is larger"));
        assert!(logged_line(b"9223372036854775807\t\tstdout\tnewline\tx").unwrap_err().contains("t_ns is larger"));
    }

    #[test]
    fn a_printed_line_comes_back_as_it_was() {
        let logged = LoggedLine {
            at: At(12),
            uncertainty_ns: None,
            line: Line { stream: Stream::Stderr, bytes: b"\xffa\tb".to_vec(), end: LineEnd::Return },
        };
        let bytes = output_line(&logged);
        assert_eq!(logged_line(bytes.strip_suffix(b"\n").unwrap()), Ok(logged));
    }

    #[test]
    fn a_figure_comes_back_as_it_was() {
        let artifact = Scope::Artifact(ArtifactId(2));
        for scope in [Scope::Process(4), artifact, Scope::Storage(1), Scope::Device(3), Scope::Rank(7)] {
            let figure = Detail { at: At(1), scope, metric: "rss_bytes".into(), value: 3 };
            assert_eq!(detail(&detail_row(&figure)), Ok(Some(figure)));
        }
    }
}
