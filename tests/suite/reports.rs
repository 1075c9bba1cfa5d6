//! Reports from the run folders of `fixtures/runs`, against the files of `tests/golden`. A golden file that is missing
//! fails; `UPDATE_GOLDEN=1 cargo test reports` writes them anew, for a person to look at before they are committed.

use std::path::{Path, PathBuf};

use stagemark::account::StageTable;
use stagemark::event::What;
use stagemark::metric::Metric::*;
use stagemark::metric::{self, Metric};
use stagemark::report::{csv, plot, terminal};
use stagemark::run::Run;
use stagemark::stage::{Outcome, Status};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A run folder, with what became of its stages taken from its own marks: reports are tested here, not matching.
pub fn load(name: &str) -> (Run, StageTable) {
    let mut run = Run::load(&root().join("fixtures/runs").join(name)).unwrap();
    // Where the checkout lies must not show in a golden file.
    run.folder = PathBuf::from("fixtures/runs").join(name);
    let table = StageTable::build(outcomes(&run), &run);
    (run, table)
}

pub fn outcomes(run: &Run) -> Vec<Outcome> {
    let outcome = |name: &str| {
        let mark = run.events.iter().find_map(|event| match &event.what {
            What::Mark(mark) if mark.stage == name => Some((event.at, event.uncertainty_ns, mark.clone())),
            _ => None,
        });
        let (status, reason) = match mark {
            Some(_) => (Status::Reached, String::new()),
            None => (Status::NotReached, "the command ended before it".to_owned()),
        };
        Outcome { stage: name.to_owned(), status, reason, begin: None, mark }
    };
    run.meta.stages.stages.iter().map(|stage| outcome(&stage.name)).collect()
}

fn stages_csv(table: &StageTable) -> String {
    let mut bytes = Vec::new();
    csv::write(table, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[track_caller]
pub fn golden(name: &str, made: &str) {
    let path = root().join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, made).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if wanted != made {
        let (line, (old, new)) =
            wanted.lines().zip(made.lines()).enumerate().find(|(_, (old, new))| old != new).unwrap();
        panic!("{name} differs from line {} on:\n  golden {old}\n  made   {new}", line + 1);
    }
}

/// The cell of a row, found by the header as a reader of the file would.
fn cell<'csv>(csv: &'csv str, stage: &str, column: &str) -> &'csv str {
    let mut lines = csv.split("\r\n");
    let place = lines.next().unwrap().split(',').position(|name| name == column).unwrap();
    let row = lines.find(|line| line.split(',').next() == Some(stage)).unwrap();
    row.split(',').nth(place).unwrap()
}

#[test]
fn the_figures_of_ml_216_come_out_exactly_and_nothing_else_does() {
    let (_, table) = load("ml-216");
    let csv = stages_csv(&table);
    let figures = [("mapping_available", 1_073_741_824u64, 3_221_225_472u64), ("first_use", 4_294_967_296, 0)];
    for (stage, resident, nonresident) in figures {
        for (column, value) in [
            ("payload_bytes", 4_294_967_296),
            ("mapped_payload_bytes", 4_294_967_296),
            ("resident_payload_bytes", resident),
            ("nonresident_payload_bytes", nonresident),
        ] {
            assert_eq!(cell(&csv, stage, column), value.to_string(), "{stage} {column}");
        }
    }
    assert_eq!(cell(&csv, "first_use", "change_resident_payload_bytes"), "3221225472");
    assert_eq!(cell(&csv, "first_use", "change_nonresident_payload_bytes"), "-3221225472");
    assert_eq!(cell(&csv, "first_use", "change_mapped_payload_bytes"), "0");
    assert_eq!(cell(&csv, "first_use", "peak_resident_payload_bytes_low"), "4294967296");
    assert_eq!(cell(&csv, "first_use", "peak_resident_payload_bytes_high"), "");

    let known = [PayloadBytes, MappedPayloadBytes, ResidentPayloadBytes, NonresidentPayloadBytes];
    for row in &table.rows {
        for &metric in metric::ALL {
            assert_eq!(row.values.get(metric).is_some(), known.contains(&metric), "{}", metric.name());
            assert_eq!(row.deltas.get(metric), None, "{}", metric.name());
            assert_eq!(row.peak(metric).is_some(), known.contains(&metric), "{}", metric.name());
        }
        assert_eq!((row.host.total.low, row.host.total.high), (None, None));
    }
    assert_eq!(table.problems, [""; 0]);
    golden("ml-216.stages.csv", &csv);
}

#[test]
fn a_lazy_load_reads_as_one() {
    let (run, table) = load("lazy");
    golden("lazy.stages.csv", &stages_csv(&table));
    golden("lazy.timeline.svg", &plot::svg(&run, &table).unwrap());
    golden("lazy.txt", &terminal::text(&run, &table));
    let page = terminal::text(&run, &table);
    assert!(
        page.contains("\nAt module_populated 0.20 of 256 MiB of the payload was resident, 256 mapped.\n"),
        "{page}"
    );
}

#[test]
fn a_load_into_the_heap_of_forked_workers_has_bounds_and_no_mapping() {
    let (run, table) = load("heap");
    golden("heap.txt", &terminal::text(&run, &table));
    let row = table.last_stage_reached().unwrap();
    let anon = row.values.get(RssAnonBytes).unwrap();
    assert_eq!(row.values.get(Processes), Some(4));
    // Four processes share one heap: the sum counts it four times, and the low bound once.
    assert!(row.host.total.low.unwrap() < row.host.total.high.unwrap() - anon / 2);
    assert_eq!(row.values.get(MappedPayloadBytes), Some(0));
}

#[test]
fn many_stages_keep_their_order_and_their_labels() {
    let (run, table) = load("fifteen-stages");
    golden("fifteen-stages.timeline.svg", &plot::svg(&run, &table).unwrap());
    golden("fifteen-stages.txt", &terminal::text(&run, &table));
    let times: Vec<_> = table.reached().map(|row| row.at().unwrap()).collect();
    assert!(times.is_sorted());
    let names: Vec<_> = table.rows.iter().map(|row| row.outcome.stage.as_str()).collect();
    // Three at one time, in the stage file's order; the one that was not reached is last.
    assert_eq!(names[1..4], ["imports_done", "config_read", "tokenizer_loaded"]);
    assert_eq!(names.last(), Some(&"steady"));
}

#[test]
fn what_is_absent_is_said_and_never_drawn() {
    let (run, table) = load("absent");
    golden("absent.stages.csv", &stages_csv(&table));
    golden("absent.timeline.svg", &plot::svg(&run, &table).unwrap());
    golden("absent.txt", &terminal::text(&run, &table));
}

#[test]
fn every_terminal_page_keeps_to_80_columns() {
    for name in ["ml-216", "lazy", "heap", "fifteen-stages", "absent"] {
        let (run, table) = load(name);
        for line in terminal::text(&run, &table).lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
            assert!(!line.chars().any(char::is_control), "{name}: {line:?}");
        }
    }
}

/// Names in any writing, or meant to harm: the page keeps its width in columns, and nothing acts on the terminal.
#[test]
fn no_name_breaks_a_page() {
    use unicode_width::UnicodeWidthStr;
    let names =
        ["模型".repeat(40), "e\u{301}".repeat(100), "\u{202e}\u{1b}[2J\u{9b}x\u{200b}".repeat(9), "x".repeat(10_000)];
    for name in &names {
        for run in ["lazy", "fifteen-stages", "absent"] {
            let (mut run, _) = load(run);
            run.meta.warnings = vec![name.clone(), format!("a {name} b")];
            run.meta.losses = vec![name.clone()];
            run.gaps = vec![name.clone()];
            run.meta.artifacts.iter_mut().for_each(|artifact| artifact.path = format!("/a/{name}"));
            run.meta.absent.iter_mut().for_each(|absent| absent.reason = name.clone());
            run.meta.until = Some(name.clone());
            run.meta.stages.stages.iter_mut().for_each(|stage| stage.name.push_str(name));
            for event in &mut run.events {
                if let What::Mark(mark) = &mut event.what {
                    mark.stage.push_str(name);
                    mark.detail = name.clone();
                }
            }
            let table = StageTable::build(outcomes(&run), &run);
            let page = terminal::text(&run, &table);
            let acts = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{200b}');
            assert!(!page.contains(acts), "{page:?}");
            assert!(page.lines().all(|line| line.width() <= 80), "{page}");
            let svg = plot::svg(&run, &table).unwrap();
            assert!(!svg.contains(acts));
            assert!(!stages_csv(&table).contains(|c: char| acts(c) && c != '\r'));
        }
    }
}

#[test]
fn a_picture_is_the_same_each_time_and_a_png_of_the_stated_size() {
    let (run, table) = load("lazy");
    let png = plot::png(&run, &table).unwrap();
    assert_eq!(png, plot::png(&run, &table).unwrap());
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!((&png[16..20], &png[20..24]), (&2400u32.to_be_bytes()[..], &1600u32.to_be_bytes()[..]));
}

#[test]
fn nothing_of_a_command_line_becomes_markup() {
    let (run, table) = load("fifteen-stages");
    let svg = plot::svg(&run, &table).unwrap();
    assert!(!svg.contains("<b>") && svg.contains("&lt;b&gt;&amp;amp;"));
    assert!(!svg.chars().any(|c| c.is_control() && c != '\n'));
}

/// Odd runs give a picture, not an error: no samples, one, all at one instant, none with a value.
#[test]
fn a_picture_can_be_made_of_any_run() {
    for name in ["ml-216", "lazy", "heap", "fifteen-stages", "absent"] {
        for kept in [0, 1, 2] {
            let (mut run, _) = load(name);
            run.samples.truncate(kept);
            for keep_marks in [true, false] {
                if !keep_marks {
                    run.events.clear();
                    run.meta.exit = None;
                }
                let table = StageTable::build(outcomes(&run), &run);
                assert!(plot::svg(&run, &table).unwrap().trim_end().ends_with("</svg>"));
                assert!(!terminal::text(&run, &table).is_empty());
            }
        }
    }
    let (mut run, _) = load("lazy");
    for sample in &mut run.samples {
        sample.t = stagemark::clock::At(0);
        Metric::gauges().for_each(|metric| sample.values.set(metric, u64::MAX));
    }
    let table = StageTable::build(outcomes(&run), &run);
    assert!(plot::svg(&run, &table).is_ok() && plot::png(&run, &table).is_ok());
    assert!(!table.problems.is_empty());
}
