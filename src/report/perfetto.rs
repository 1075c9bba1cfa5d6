//! A run as a trace that opens in the Perfetto UI (ui.perfetto.dev) or chrome://tracing: Chrome's Trace Event Format,
//! JSON.
//!
//! - The launch is a process of its own, with counters (the payload mapped and resident, the resident set in its parts,
//!   devices, the read rate, CPU), with each stage as an instant at its mark, the stretches between marks, and spans;
//! - each process of the launch is a track with its life, from its birth to its end.
//!
//! Times are microseconds since start with three decimals, so nothing is rounded. What is absent has no event: the
//! format knows no gap, and a viewer draws the last value on until the next one; the run folder says where it was
//! absent. A counter has an event where it changed. What the launch named is text, never more.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::account::{StageRow, StageTable};
use crate::clock::At;
use crate::event::{Pid, What};
use crate::metric::Metric;
use crate::run::Run;
use crate::sample::Sample;

use super::text::plain;

/// The launch's own number among the processes: one more than any that Linux gives (PID_MAX_LIMIT).
const LAUNCH: i64 = 4_194_305;
/// Its threads, which are tracks. A viewer knows a thread by its number alone, whatever its process is, so that no process
/// of a launch may have these either.
const STAGES: i64 = LAUNCH + 1;
const STRETCHES: i64 = LAUNCH + 2;
/// The first of the spans' tracks, which are the last: a viewer drops a slice that overlaps another of its track.
const SPANS: i64 = LAUNCH + 3;
/// So many words of a command line name a process.
const WORDS: usize = 4;

/// A counter's track, and the metrics in it, each under a word.
const COUNTERS: [(&str, &[(&str, Metric)]); 5] = [
    (
        "payload (bytes)",
        &[
            ("mapped", Metric::MappedPayloadBytes),
            ("resident", Metric::ResidentPayloadBytes),
            ("of", Metric::PayloadBytes),
        ],
    ),
    (
        "resident set (bytes)",
        &[("anonymous", Metric::RssAnonBytes), ("file", Metric::RssFileBytes), ("shmem", Metric::RssShmemBytes)],
    ),
    ("devices (bytes)", &[("launch", Metric::DeviceLaunchBytes), ("in use", Metric::DeviceUsedBytes)]),
    ("page faults", &[("minor", Metric::MinorFaults), ("major", Metric::MajorFaults)]),
    ("processes", &[("processes", Metric::Processes)]),
];

/// What a counter did in each second: the track, its word, and what it is divided by.
const RATES: [(&str, &str, &[Metric], f64); 2] = [
    ("storage read (bytes/s)", "read", &[Metric::ReadBytes], 1.0),
    ("cores busy", "cores", &[Metric::CpuUserNs, Metric::CpuSystemNs], 1e9),
];
/// A rate is of so long at least: counters of CPU time have a resolution of 10 ms.
const RATE_NS: i64 = 100_000_000;

/// One event of the trace.
#[derive(Serialize)]
struct TraceEvent {
    name: String,
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Micros>,
    pid: i64,
    tid: i64,
    /// Of an instant: in its own track.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    args: Map<String, Value>,
}

/// Nanoseconds, written as microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Micros(i64);

impl Serialize for Micros {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Exact for 2^53 ns, 104 days; as near as a reader's own numbers beyond.
        serializer.serialize_f64(self.0 as f64 / 1e3)
    }
}

/// The trace, an event a line.
///
/// # Errors
/// None that is known: every key is text, and every number is finite.
pub fn text(run: &Run, table: &StageTable) -> serde_json::Result<String> {
    let mut events = Vec::new();
    counters(&run.samples, &mut events);
    rates(&run.samples, &mut events);
    stages(table, &mut events);
    let tracks = spans(table, &mut events);
    let lives = lives(run);
    let names = names(run, &lives, tracks, &mut events);
    // A viewer wants them in order; those of one time keep theirs.
    events.sort_by_key(|event| event.ts);
    let mut text = String::from("{\"displayTimeUnit\":\"ms\",\"otherData\":");
    text.push_str(&serde_json::to_string(&json!({
        "stagemark": plain(&run.meta.stagemark),
        "command": plain(&run.meta.argv.join(" ")),
        "started": plain(&run.meta.started),
        "start": plain(&run.meta.condition.artifacts),
        "stopping event": table.stopping_event.as_deref().map(plain),
    }))?);
    text.push_str(",\"traceEvents\":[");
    for (index, event) in names.iter().chain(&events).enumerate() {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        text.push_str(&serde_json::to_string(event)?);
    }
    text.push_str("\n]}\n");
    Ok(text)
}

/// What was before the exec is drawn at it.
fn micros(at: At) -> Micros {
    Micros(at.0.max(0))
}

fn counter(name: &str, at: At, args: Map<String, Value>) -> TraceEvent {
    TraceEvent {
        name: name.to_owned(),
        ph: "C",
        ts: Some(micros(at)),
        pid: LAUNCH,
        tid: LAUNCH,
        s: None,
        cat: None,
        args,
    }
}

fn counters(samples: &[Sample], events: &mut Vec<TraceEvent>) {
    for (name, parts) in COUNTERS {
        let mut before: Option<Vec<Option<u64>>> = None;
        for sample in samples {
            let values: Vec<Option<u64>> = parts.iter().map(|(_, metric)| sample.values.get(*metric)).collect();
            if values.iter().all(Option::is_none) || before.as_ref() == Some(&values) {
                continue;
            }
            let known =
                parts.iter().zip(&values).filter_map(|((word, _), value)| Some(((*word).to_owned(), json!((*value)?))));
            events.push(counter(name, sample.t, known.collect()));
            before = Some(values);
        }
    }
}

/// The rate over a stretch stands at its beginning, where the viewer's step begins.
fn rates(samples: &[Sample], events: &mut Vec<TraceEvent>) {
    for (name, word, metrics, by) in RATES {
        let total = |sample: &Sample| metrics.iter().map(|metric| sample.values.get(*metric)).sum::<Option<u64>>();
        let mut begin: Option<(At, u64)> = None;
        let mut before: Option<u64> = None;
        let mut end = None;
        for sample in samples.iter().filter(|sample| sample.t >= At(0)) {
            let Some(now) = total(sample) else { continue };
            let Some((from, was)) = begin else {
                begin = Some((sample.t, now));
                continue;
            };
            let length = sample.t.0.saturating_sub(from.0);
            if length < RATE_NS {
                continue;
            }
            // One that falls says nothing of a rate.
            if let Some(grew) = now.checked_sub(was) {
                let rate = grew as f64 * 1e9 / length as f64 / by;
                if before != Some(rate.to_bits()) {
                    events.push(counter(name, from, Map::from_iter([(word.to_owned(), json!(rate))])));
                }
                before = Some(rate.to_bits());
                end = Some(sample.t);
            }
            begin = Some((sample.t, now));
        }
        if let Some(end) = end {
            events.push(counter(name, end, Map::from_iter([(word.to_owned(), json!(0))])));
        }
    }
}

/// A slice, as its begin and its end. With a length in the place of the end, a viewer that cuts each number to nanoseconds
/// would see one end after the next begins, and drop that.
fn slice(
    name: String,
    cat: &'static str,
    from: At,
    to: At,
    track: (i64, i64),
    args: Map<String, Value>,
) -> [TraceEvent; 2] {
    let (begin, end) = (micros(from), micros(to.max(from)));
    let event = |name: String, ph: &'static str, at: Micros, args| TraceEvent {
        name,
        ph,
        ts: Some(at),
        pid: track.0,
        tid: track.1,
        s: None,
        cat: Some(cat),
        args,
    };
    [event(name.clone(), "B", begin, args), event(name, "E", end, Map::new())]
}

fn stages(table: &StageTable, events: &mut Vec<TraceEvent>) {
    let mut from = At(0);
    for (row, interval) in table.reached().zip(table.interval_names()) {
        let Some(at) = row.at() else { continue };
        events.push(TraceEvent {
            name: plain(&row.outcome.stage),
            ph: "i",
            ts: Some(micros(at)),
            pid: LAUNCH,
            tid: STAGES,
            s: Some("t"),
            cat: Some("stage"),
            args: shown_by(row),
        });
        events.extend(slice(plain(&interval), "interval", from, at, (LAUNCH, STRETCHES), Map::new()));
        from = from.max(at);
    }
}

/// What shows a stage, and its figures.
fn shown_by(row: &StageRow) -> Map<String, Value> {
    let mut args = Map::new();
    if let Some((_, uncertainty, mark)) = &row.outcome.mark {
        args.insert("evidence".into(), serde_json::to_value(mark.evidence).unwrap_or(Value::Null));
        args.insert("detail".into(), plain(&mark.detail).into());
        // None is no bound, and not 0.
        args.insert("uncertainty_ns".into(), json!(uncertainty));
        args.insert("sampled_ns".into(), json!(row.sampled));
        args.extend(figures(row));
    }
    args
}

/// The spans, each in the first track that is free when it begins; gives how many tracks there are, one at least.
fn spans(table: &StageTable, events: &mut Vec<TraceEvent>) -> i64 {
    let mut spans: Vec<(At, At, &StageRow)> =
        table.reached().filter_map(|row| Some((row.outcome.begin?, row.at()?, row))).collect();
    spans.sort_by_key(|(begin, ..)| *begin);
    // The end of the last span of each.
    let mut tracks: Vec<At> = Vec::new();
    for (begin, end, row) in spans {
        let free = tracks.iter().position(|until| *until <= begin).unwrap_or(tracks.len());
        match tracks.get_mut(free) {
            Some(until) => *until = end,
            None => tracks.push(end),
        }
        let (name, track) = (plain(&row.outcome.stage), (LAUNCH, SPANS + free as i64));
        events.extend(slice(name, "span", begin, end, track, shown_by(row)));
    }
    tracks.len().max(1) as i64
}

/// The figures of a stage that a reader looks for first; an absent one is left out.
fn figures(row: &StageRow) -> impl Iterator<Item = (String, Value)> + '_ {
    let wanted =
        [Metric::MappedPayloadBytes, Metric::ResidentPayloadBytes, Metric::RssBytes, Metric::DeviceLaunchBytes];
    wanted.into_iter().filter_map(|metric| Some((metric.name().to_owned(), json!(row.values.get(metric)?))))
}

/// A process's time, from its birth to its end; `None` where it was not seen to end.
struct Life {
    pid: Pid,
    born: At,
    gone: Option<At>,
    argv: Vec<String>,
}

fn lives(run: &Run) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    // The place of each number's last life.
    let mut last: BTreeMap<Pid, usize> = BTreeMap::new();
    let mut births = |pid: Pid, at: At, lives: &mut Vec<Life>, again: bool| -> usize {
        match last.get(&pid) {
            Some(&index) if !again => index,
            _ => {
                lives.push(Life { pid, born: at, gone: None, argv: Vec::new() });
                last.insert(pid, lives.len() - 1);
                lives.len() - 1
            }
        }
    };
    for event in &run.events {
        match &event.what {
            What::Born { pid, .. } => drop(births(*pid, event.at, &mut lives, true)),
            What::Exec { pid, argv } => {
                let index = births(*pid, event.at, &mut lives, false);
                lives[index].argv.clone_from(argv);
            }
            What::Gone { pid, .. } | What::Exit { pid, .. } => {
                let index = births(*pid, At(0), &mut lives, false);
                // The supervisor and the tree both tell of the root's end.
                let life = &mut lives[index];
                life.gone = Some(life.gone.map_or(event.at, |gone| gone.min(event.at)));
            }
            _ => {}
        }
    }
    lives
}

/// The names of the tracks, and each process's life in its own.
fn names(run: &Run, lives: &[Life], tracks: i64, events: &mut Vec<TraceEvent>) -> Vec<TraceEvent> {
    let mut names = Vec::new();
    let mut name = |what: &str, pid: i64, tid: i64, key: &str, value: Value| {
        names.push(TraceEvent {
            name: what.to_owned(),
            ph: "M",
            ts: None,
            pid,
            tid,
            s: None,
            cat: None,
            args: Map::from_iter([(key.to_owned(), value)]),
        });
    };
    let program = run.meta.argv.first().map_or("launch", |program| program.rsplit('/').next().unwrap_or(program));
    name("process_name", LAUNCH, LAUNCH, "name", format!("launch: {}", plain(program)).into());
    name("process_sort_index", LAUNCH, LAUNCH, "sort_index", json!(-1));
    for (tid, track) in [(STAGES, "stages"), (STRETCHES, "between stages")] {
        name("thread_name", LAUNCH, tid, "name", track.into());
    }
    for track in 0..tracks {
        name("thread_name", LAUNCH, SPANS + track, "name", "spans".into());
    }
    let end =
        run.samples.last().map(|sample| sample.t).into_iter().chain(run.meta.exit.as_ref().map(|exit| exit.at)).max();
    for life in lives {
        let words: Vec<String> = life.argv.iter().take(WORDS).map(|word| plain(word)).collect();
        let label = if words.is_empty() { "process".to_owned() } else { words.join(" ") };
        let pid = i64::from(life.pid);
        name("process_name", pid, pid, "name", label.clone().into());
        let gone = life.gone.or(end).unwrap_or(life.born);
        let mut args = Map::new();
        args.insert("argv".into(), plain(&life.argv.join(" ")).into());
        args.insert("end seen".into(), life.gone.is_some().into());
        events.extend(slice(label, "process", life.born, gone, (pid, pid), args));
    }
    names
}
