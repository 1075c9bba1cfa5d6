//! The rules on constructed runs: which of them fire, what they say, and where they must be silent.

use stagemark::account::StageTable;
use stagemark::finding::{self, RULES};
use stagemark::metric::Metric;
use stagemark::report::findings;

use super::reports::{self, golden, load};

/// The runs, and the rules that find something in each, in order.
const RUNS: [(&str, &[&str]); 14] = [
    ("ml-216", &["early-residency"]),
    ("lazy", &["deferred", "early-residency", "source"]),
    ("heap", &["source"]),
    ("fifteen-stages", &["deferred", "early-residency", "source"]),
    ("absent", &[]),
    ("near-misses", &["source"]),
    ("serial", &["serial", "silence", "source"]),
    ("copied", &["copied", "early-residency", "source"]),
    ("evicted", &["evicted", "early-residency"]),
    ("peaks", &["host-peak", "device-peak", "source"]),
    ("random", &["readahead", "early-residency", "source"]),
    ("overtaken", &["readahead", "early-residency", "source"]),
    ("direct", &["source"]),
    ("untouched", &["deferred", "source"]),
];

#[test]
fn each_rule_fires_where_it_should_and_nowhere_else() {
    let mut wrong = Vec::new();
    for (name, wanted) in RUNS {
        let (run, table) = load(name);
        let found: Vec<_> = finding::findings(&run, &table).iter().map(|finding| finding.rule).collect();
        if found != wanted {
            wrong.push(format!("{name}: {found:?}, not {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for rule in RULES {
        assert!(RUNS.iter().any(|(_, found)| found.contains(&rule.id)), "no run has {}", rule.id);
        assert!(RUNS.iter().any(|(_, found)| !found.contains(&rule.id)), "no run is without {}", rule.id);
    }
}

#[test]
fn what_is_said_of_each_run() {
    for (name, _) in RUNS {
        let (run, table) = load(name);
        let found = finding::findings(&run, &table);
        let text = findings::text(&run, &table, &found);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}: {text}");
        golden(&format!("{name}.findings.txt"), &text);
        golden(&format!("{name}.findings.json"), &findings::json(&run, &table, &found).unwrap());
    }
}

/// The figures of the published incident: of a load that one core carries for twenty minutes.
#[test]
fn a_serial_load_is_told_with_its_figures() {
    let (run, table) = load("serial");
    let found = finding::findings(&run, &table);
    let serial = &found[0];
    assert!(
        serial.title.contains("1.3 of 72 cores busy for 1180 s, no disk I/O: a serial load, bound by page faults"),
        "{}",
        serial.title
    );
    let json: serde_json::Value = serde_json::from_str(&findings::json(&run, &table, &found).unwrap()).unwrap();
    let figures = json["findings"][0]["figures"].as_array().unwrap();
    let figure = |name: &str| figures.iter().find(|figure| figure["name"] == name).unwrap();
    assert_eq!((&figure("cores")["value"], &figure("cores")["unit"]), (&72.0.into(), &"ratio".into()));
    assert_eq!(
        (&figure("delta_read_bytes")["value"], &figure("delta_read_bytes")["unit"]),
        (&0.into(), &"bytes".into())
    );
    assert_eq!(figure("length_ns")["value"], 1_180_000_000_000u64);
}

/// Names and log lines in any writing, or meant to harm: 80 columns, and nothing that acts on a terminal, in JSON as well.
/// A few pages of a mapping were faulted in, and other files' pages went in the meantime: that is no sign of another way.
#[test]
fn pages_whose_access_does_not_show_came_by_no_other_one() {
    let (mut run, _) = load("lazy");
    let few = 4 << 20;
    for sample in &mut run.samples {
        let caps = [
            (Metric::ResidentPayloadBytes, few),
            (Metric::RssFileBytes, 138_600_448),
            (Metric::ReadBytes, few),
            (Metric::RcharBytes, 1 << 20),
        ];
        for (metric, most) in caps {
            let value = sample.values.get(metric).map(|value| value.min(most));
            sample.values.set(metric, value);
        }
    }
    let table = StageTable::build(reports::outcomes(&run), &run);
    let found = finding::findings(&run, &table);
    assert!(found.iter().all(|finding| !finding.title.contains("neither by read()")), "{found:?}");
}

#[test]
fn no_name_breaks_the_findings() {
    use unicode_width::UnicodeWidthStr;
    let evil = ["模型".repeat(90), "\u{202e}\u{1b}[2J\u{9b}x\u{200b}".repeat(30), "x".repeat(10_000)];
    for name in &evil {
        for of in ["lazy", "serial", "evicted", "untouched"] {
            let (mut run, _) = load(of);
            run.meta.stages.stages.iter_mut().for_each(|stage| stage.name.push_str(name));
            run.meta.until.iter_mut().for_each(|until| until.push_str(name));
            if let Some(limit) = &mut run.meta.host.cgroups.memory_limit {
                limit.file.push_str(name);
            }
            for event in &mut run.events {
                if let stagemark::event::What::Mark(mark) = &mut event.what {
                    mark.stage.push_str(name);
                }
            }
            let table = stagemark::account::StageTable::build(super::reports::outcomes(&run), &run);
            let found = finding::findings(&run, &table);
            assert!(!found.is_empty());
            let text = findings::text(&run, &table, &found);
            let json = findings::json(&run, &table, &found).unwrap();
            let acts = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202e}' | '\u{200b}');
            assert!(text.lines().all(|line| line.width() <= 80), "{text}");
            assert!(!text.contains(acts) && !json.contains(acts), "{text}");
        }
    }
}
