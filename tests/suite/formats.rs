//! `stagemark report --format`, `findings` and `columns`: that what other programs read is what it claims to be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stagemark::clock::At;
use stagemark::metric;
use stagemark::report::format::{self, Format};
use stagemark::report::{columns, markdown};

use super::reports::{golden, load, outcomes};
use super::support::{finish, folder, stagemark};

const RUNS: [&str; 8] = ["ml-216", "lazy", "heap", "fifteen-stages", "absent", "serial", "peaks", "evicted"];

fn made(name: &str, form: Format) -> String {
    let (run, table) = load(name);
    format::text(&run, &table, form).unwrap()
}

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs").join(name)
}

fn asked(arguments: &[&str], place: &Path) -> Output {
    let mut command: Command = stagemark();
    finish(command.args(arguments).current_dir(place))
}

#[test]
fn each_form_is_what_it_was() {
    for name in ["lazy", "absent"] {
        golden(&format!("{name}.report.json"), &made(name, Format::Json));
        golden(&format!("{name}.perfetto.json"), &made(name, Format::Perfetto));
    }
    for name in ["lazy", "absent", "fifteen-stages", "ml-216", "peaks"] {
        golden(&format!("{name}.md"), &made(name, Format::Md));
    }
}

/// Chrome's Trace Event Format, as far as it is used: what a viewer refuses or draws wrongly is refused here.
#[test]
fn a_trace_is_one_that_opens() {
    for name in RUNS {
        let trace: Value = serde_json::from_str(&made(name, Format::Perfetto)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let mut last = 0.0;
        let mut open: BTreeMap<(i64, i64), Vec<&Value>> = BTreeMap::new();
        for event in events {
            let phase = event["ph"].as_str().unwrap();
            assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()), "{name}: {event}");
            assert!(event["pid"].is_i64() && event["tid"].is_i64(), "{name}: {event}");
            let args = event["args"].as_object().unwrap();
            if phase == "M" {
                assert!(event.get("ts").is_none() && args.len() == 1, "{name}: {event}");
                continue;
            }
            let ts = event["ts"].as_f64().unwrap();
            assert!(ts >= last, "{name}: {ts} after {last}: {event}");
            last = ts;
            match phase {
                "C" => assert!(!args.is_empty() && args.values().all(Value::is_number), "{name}: {event}"),
                // One at a time in a track, and each has an end.
                "B" => {
                    let open = open.entry(track(event)).or_default();
                    assert!(open.is_empty(), "{name}: {event} in {open:?}");
                    open.push(event);
                }
                "E" => {
                    let begun = open.entry(track(event)).or_default().pop().unwrap();
                    assert_eq!((&begun["name"], &begun["cat"]), (&event["name"], &event["cat"]), "{name}");
                }
                "i" => assert_eq!(event["s"], "t", "{name}: {event}"),
                other => panic!("{name}: phase {other}: {event}"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "{name}: {open:?}");
        let (_, table) = load(name);
        let instants: Vec<_> = events.iter().filter(|event| event["ph"] == "i").collect();
        assert_eq!(instants.len(), table.reached().count(), "{name}");
        for (instant, row) in instants.iter().zip(table.reached()) {
            let at = row.at().unwrap().0 as f64 / 1e3;
            assert!((instant["ts"].as_f64().unwrap() - at).abs() < 1e-3, "{name}: {instant}");
        }
    }
}

/// The process and the thread of an event.
fn track(event: &Value) -> (i64, i64) {
    (event["pid"].as_i64().unwrap(), event["tid"].as_i64().unwrap())
}

/// The Perfetto UI drops a slice that overlaps another of its track.
#[test]
fn spans_that_overlap_have_tracks_of_their_own() {
    let (run, mut table) = load("fifteen-stages");
    let ends: Vec<At> = table.reached().filter_map(|row| row.at()).collect();
    // Each span begins before the last two ended.
    for (row, number) in table.rows.iter_mut().zip(0usize..).filter(|(row, _)| row.at().is_some()) {
        row.outcome.begin = Some(number.checked_sub(2).map_or(At(0), |before| At(ends[before].0 - 1)));
    }
    let trace: Value = serde_json::from_str(&stagemark::report::perfetto::text(&run, &table).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut tracks: BTreeMap<(i64, i64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "B" || event["ph"] == "E") {
        let at = event["ts"].as_f64().unwrap();
        let slices = tracks.entry(track(event)).or_default();
        match event["ph"] == "B" {
            true => slices.push((at, f64::NAN)),
            false => slices.last_mut().unwrap().1 = at,
        }
    }
    let tracks_of_spans: BTreeSet<i64> =
        events.iter().filter(|event| event["cat"] == "span").map(|event| track(event).1).collect();
    for (of, slices) in &tracks {
        assert!(slices.iter().all(|(begin, end)| begin <= end), "{of:?}: {slices:?}");
        assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{of:?}: {slices:?}");
        let named = events.iter().any(|event| event["name"] == "thread_name" && track(event) == *of);
        assert!(named || of.0 == of.1, "{of:?} has a name, or is a process's");
    }
    let spans: Vec<(f64, f64)> =
        tracks.iter().filter(|((_, tid), _)| tracks_of_spans.contains(tid)).flat_map(|(_, of)| of.clone()).collect();
    assert_eq!(spans.len(), ends.len());
    // No more tracks than spans at one time.
    let open = |at: f64| spans.iter().filter(|(begin, end)| *begin <= at && at < *end).count();
    let most = spans.iter().map(|(begin, _)| open(*begin)).max().unwrap();
    assert!(most >= 3 && tracks_of_spans.len() == most, "{most}: {tracks_of_spans:?}");
}

#[test]
fn what_is_absent_has_no_event_and_no_number() {
    let trace: Value = serde_json::from_str(&made("absent", Format::Perfetto)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["ph"] == "C"), "other counters are there");
    assert!(events.iter().all(|event| event["name"] != "payload (bytes)" && event["name"] != "storage read (bytes/s)"));
    let report: Value = serde_json::from_str(&made("absent", Format::Json)).unwrap();
    let stage = &report["stages"][0];
    assert_eq!(stage["values"]["read_bytes"], Value::Null);
    assert_eq!(stage["absent"]["read_bytes"], "/proc/4242/io: permission denied (another user's process)");
    assert_eq!(stage["values"]["major_faults"], 0);
    assert!(stage["absent"].get("major_faults").is_none());
}

/// The same figures as in `stages.csv`, under the same names, for every cell.
#[test]
fn the_json_report_has_every_cell_of_the_table() {
    for name in RUNS {
        let report: Value = serde_json::from_str(&made(name, Format::Json)).unwrap();
        let (_, table) = load(name);
        let stages = report["stages"].as_array().unwrap();
        assert_eq!(stages.len(), table.rows.len());
        for (stage, row) in stages.iter().zip(&table.rows) {
            for &metric in metric::ALL {
                let value = &stage["values"][metric.name()];
                assert_eq!(value.as_u64(), row.values.get(metric), "{name} {}", metric.name());
                let reason = stage["absent"].get(metric.name()).and_then(Value::as_str);
                assert_eq!(
                    reason.is_some_and(|reason| !reason.is_empty()),
                    value.is_null(),
                    "{name} {}",
                    metric.name()
                );
                let peak = &stage["peaks"][metric.name()];
                let wanted = row.peak(metric);
                assert_eq!(peak["low"].as_u64(), wanted.and_then(|peak| peak.low), "{name} {}", metric.name());
                assert_eq!(peak["basis"].as_str(), wanted.map(|peak| peak.basis.name()), "{name} {}", metric.name());
            }
            assert_eq!(stage["host"]["host_bytes"]["low"].as_u64(), row.host.total.low, "{name}");
        }
    }
}

/// A name that tries to be a cell, a link, a tag, a mention: the table keeps its columns and its rows.
#[test]
fn no_name_breaks_a_markdown_table() {
    let evil = "a|b <img src=x> [l](http://x) `c` **d** @team #1 \u{1b}[31m\n| x |";
    let (mut run, _) = load("lazy");
    run.meta.argv = vec![evil.to_owned()];
    run.meta.condition.artifacts = evil.to_owned();
    run.meta.stages.stages.iter_mut().for_each(|stage| stage.name.push_str(evil));
    for event in &mut run.events {
        if let stagemark::event::What::Mark(mark) = &mut event.what {
            mark.stage.push_str(evil);
        }
    }
    let table = stagemark::account::StageTable::build(outcomes(&run), &run);
    let text = markdown::text(&run, &table);
    let (rows, rest) = text.split_once("\n\n").unwrap();
    assert_eq!(rows.lines().count(), 2 + table.reached().count(), "{text}");
    for row in rows.lines() {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 10, "{row}");
    }
    assert!(!text.contains(['<', '\u{1b}', '@', '#', '`']) || text.contains("&#64;"), "{text}");
    assert!(!text.contains("<img") && !text.contains("http://") && !text.contains("**d**"), "{text}");
    assert!(rest.lines().all(|line| !line.starts_with('|')), "{rest}");
}

#[test]
fn the_verbs_print_what_the_library_makes() {
    let place = folder();
    let run = fixture("lazy");
    let run = run.to_str().unwrap();
    let trace = asked(&["report", run, "--format", "perfetto"], place.path());
    assert_eq!(trace.status.code(), Some(0));
    assert!(serde_json::from_slice::<Value>(&trace.stdout).is_ok());
    let to_file = asked(&["report", run, "--format", "perfetto", "--out", "trace.json"], place.path());
    assert_eq!((to_file.status.code(), to_file.stdout.len()), (Some(0), 0));
    assert_eq!(std::fs::read(place.path().join("trace.json")).unwrap(), trace.stdout);
    let found = asked(&["findings", run, "--json"], place.path());
    assert_eq!(found.status.code(), Some(0));
    assert_eq!(serde_json::from_slice::<Value>(&found.stdout).unwrap()["findings"][0]["rule"], "deferred");
    let found = asked(&["findings", run], place.path());
    assert!(String::from_utf8(found.stdout).unwrap().contains("To settle it: "));
    // Nothing else was written, and nothing into the run.
    assert_eq!(place.path().read_dir().unwrap().count(), 1);
    assert!(!fixture("lazy").join("stages.csv").exists());

    let wrong = asked(&["report", run, "--format", "xml"], place.path());
    assert_eq!(wrong.status.code(), Some(2));
    let wrong = asked(&["findings", "."], place.path());
    assert_eq!(wrong.status.code(), Some(2));
    let recorded = format!("{run}/samples.csv");
    let wrong = asked(&["report", run, "--format", "json", "--out", &recorded], place.path());
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("stays as it is"));
    std::fs::create_dir(place.path().join("torn")).unwrap();
    std::fs::copy(fixture("lazy").join("run.json"), place.path().join("torn/run.json")).unwrap();
    std::fs::write(place.path().join("torn/samples.csv"), "t_ns\nx\n").unwrap();
    assert_eq!(asked(&["findings", "torn"], place.path()).status.code(), Some(3));
}

#[test]
fn the_glossary_has_every_column_once() {
    let text = columns::answer(columns::Form::Text).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let json: Value = serde_json::from_str(&columns::answer(columns::Form::Json).unwrap()).unwrap();
    let rows = json.as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["column"].as_str().unwrap()).collect();
    let wanted: Vec<_> = metric::ALL.iter().map(|metric| metric.name()).collect();
    assert_eq!(names, wanted);
    assert!(rows.iter().all(|row| row["unit"].is_string() && row["kind"].is_string()));
    for name in wanted {
        assert_eq!(text.lines().filter(|line| line.starts_with(&format!("{name}  "))).count(), 1, "{name}");
    }
    let of = |name: &str| &rows.iter().find(|row| row["column"] == name).unwrap()["peak_basis"];
    assert_eq!(of("rss_bytes"), &serde_json::json!(["kernel", "bounds", "sampled"]));
    assert_eq!(of("resident_payload_bytes"), &serde_json::json!(["sampled"]));
    assert_eq!(of("minor_faults"), &serde_json::json!([]));
}
