//! Comparisons: of constructed run folders, byte for byte, with each refusal and each difference; and of real launches.
//! A missing golden file fails; `UPDATE_GOLDEN=1 cargo test --test suite compare` writes them anew.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stagemark::account::StageTable;
use stagemark::clock::At;
use stagemark::compare::event::Why;
use stagemark::compare::likeness::{State, Verdict};
use stagemark::compare::{Arm, Comparison, Options, Quantity, Refusal, Subject, Told, Vary};
use stagemark::event::{Evidence, Found, What};
use stagemark::host::limits::Ceiling;
use stagemark::metric::Metric;
use stagemark::report::compare::{csv, folder, terminal};
use stagemark::report::plot::compared;
use stagemark::run::{Meta, Run};
use stagemark_fixtures::models::{self, Fill};
use unicode_width::UnicodeWidthStr;

use crate::reports::golden;
use crate::support::{finish, reference_loader, stagemark};

pub fn runs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs")
}

/// A constructed run under the path that a reader in its folder would give.
pub fn run(name: &str) -> Run {
    let mut run = Run::load(&runs().join(name)).unwrap();
    run.folder = PathBuf::from(name);
    run
}

pub fn arms(runs: Vec<Run>) -> Vec<Arm> {
    let named = |(run, name): (Run, char)| {
        let table = StageTable::of(&run);
        Arm { name: name.to_string(), runs: vec![(run, table)] }
    };
    runs.into_iter().zip('A'..).map(named).collect()
}

pub fn varying(what: &[&str]) -> Options {
    Options { vary: what.iter().map(|what| Vary::parse(what).unwrap()).collect(), ..Options::default() }
}

pub fn at(stage: &str) -> Options {
    Options { at: Some(stage.to_owned()), ..Options::default() }
}

pub fn compared_as(arms: &[Arm], options: &Options) -> Comparison {
    Comparison::of(arms, options).unwrap_or_else(|refusal| panic!("{refusal}"))
}

pub fn refused(arms: &[Arm], options: &Options) -> Refusal {
    Comparison::of(arms, options).expect_err("it was to be refused")
}

/// The comparison for a terminal, which stays within it.
#[track_caller]
fn page(arms: &[Arm], comparison: &Comparison) -> String {
    let page = terminal::text(arms, comparison);
    assert!(page.lines().all(|line| line.width() <= 80), "{page}");
    page
}

/// Text without its line breaks.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn csv_of(comparison: &Comparison) -> String {
    let mut bytes = Vec::new();
    csv::write(comparison, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The facts that are not the same, each as `SUBJECT:NAME state`.
fn differences(comparison: &Comparison) -> Vec<String> {
    let told = |field: &stagemark::compare::likeness::Field| {
        format!("{}:{} {}", field.subject.name(), field.name, field.state.name())
    };
    comparison.likeness.differences().map(told).collect()
}

pub fn marks_of(run: &mut Run, mut change: impl FnMut(&mut At, &mut stagemark::event::Mark)) {
    for event in &mut run.events {
        if let What::Mark(mark) = &mut event.what {
            change(&mut event.at, mark);
        }
    }
}

#[test]
fn two_ways_of_loading_side_by_side() {
    let arms = arms(vec![run("mmap"), run("read")]);
    let comparison = compared_as(&arms, &varying(&["argv"]));
    golden("compare.mmap-read.txt", &page(&arms, &comparison));
    golden("compare.mmap-read.csv", &csv_of(&comparison));
    golden("compare.mmap-read.svg", &compared::svg(&arms, &comparison).unwrap());
    // What host memory and devices take stands first, and then time.
    for stage in &comparison.stages {
        let first: Vec<Quantity> = stage.figures.iter().take(3).map(|figure| figure.of).collect();
        assert_eq!(first, [Quantity::Host, Quantity::Peak(Metric::DeviceLaunchBytes), Quantity::Time]);
    }
    // Only the stages that both have are compared, and the last of them is the stopping event.
    let names: Vec<&str> = comparison.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["module_populated", "first_response"]);
    assert_eq!(comparison.left_out[0].stage, "mapping_available");
    assert_eq!(differences(&comparison), ["argv:words expected"]);
    assert_eq!(comparison.likeness.verdict(), Verdict::LikeForLike);
    // The one that is ready first at the first stage is behind at the second.
    let told = |stage: usize| comparison.stages[stage].figure(Quantity::Time).unwrap().judged(1).told;
    assert_eq!((told(0), told(1)), (Told::More, Told::Less));
}

#[test]
fn intervals_are_between_shared_stages() {
    // One has a stage more between two that both have.
    let arms = arms(vec![run("read"), run("mmap")]);
    let comparison = compared_as(&arms, &varying(&["argv"]));
    let first = &comparison.stages[0];
    assert_eq!((first.name.as_str(), first.before.as_deref()), ("module_populated", None));
    let own = arms[1].runs[0].1.rows.iter().find(|row| row.outcome.stage == "module_populated").unwrap();
    let since_start = first.figure(Quantity::Delta(Metric::MinorFaults)).unwrap().cells[1][0].as_ref().unwrap();
    assert_eq!(since_start.value, own.values.get(Metric::MinorFaults));
    assert!(own.deltas.get(Metric::MinorFaults) < since_start.value, "its own interval begins at the mapping");
}

#[test]
fn a_report_that_ends_at_the_mapping_is_not_held_against_one_that_ends_on_the_device() {
    let arms = arms(vec![run("at-mapping"), run("after-placement")]);
    let mut words = String::new();
    let mut say = |options: &Options| {
        let refusal = refused(&arms, options);
        words.push_str(&terminal::refusal(&refusal));
        words.push('\n');
        assert_eq!(refusal.latest_shared.as_deref(), Some("mapping_available"));
        refusal.why
    };
    let ends = [("A", "mapping_available"), ("B", "gpu_placed")].map(|(run, end)| (run.to_owned(), end.to_owned()));
    assert_eq!(say(&Options::default()), Why::Several { ends: ends.into() });
    assert!(matches!(say(&at("gpu_placed")), Why::NotReached { runs, .. } if runs.len() == 1 && runs[0].0 == "A"));
    // A declaration makes two definitions one; it makes nobody arrive.
    assert!(matches!(say(&Options { same_event: true, ..at("gpu_placed") }), Why::NotReached { .. }));
    assert!(matches!(say(&at("no_such_stage")), Why::NotReached { runs, .. } if runs.len() == 2));
    golden("compare.refused.txt", &words);
    // At the stage that both reached it is judged.
    let comparison = compared_as(&arms, &at("mapping_available"));
    assert_eq!(comparison.stages.len(), 1);
    let told = comparison.stages[0].figure(Quantity::Time).unwrap().judged(1).told;
    assert_eq!(told, Told::More, "400 ms and 410 ms, known to 0.2 ms");
}

#[test]
fn a_published_change_is_so_many_times_faster_and_says_what_was_not_published() {
    let arms = arms(vec![run("pr-before"), run("pr-after")]);
    let comparison = compared_as(&arms, &varying(&["commit"]));
    let page = page(&arms, &comparison);
    assert!(page.contains(" 1184 s           67 s  17.7 times faster\n"), "{page}");
    golden("compare.published.txt", &page);
    golden("compare.published.csv", &csv_of(&comparison));
    golden("compare.published.json", &folder::json_text(&arms, &comparison));
    let ratio = comparison.stages[0].figure(Quantity::Time).unwrap().judged(1).ratio.unwrap();
    assert_eq!(ratio.to_string(), "0.0565878");
    assert_eq!(comparison.likeness.verdict(), Verdict::CannotBeTold);
}

#[test]
fn other_definitions_and_other_evidence_are_no_event_unless_declared() {
    let with = |change: &dyn Fn(&mut Run)| {
        let mut other = run("mmap");
        change(&mut other);
        other.meta.argv.push("--other".to_owned());
        arms(vec![run("mmap"), other])
    };
    let redefined = with(&|run| {
        let condition = serde_json::from_str(r#"{"log": {"pattern": "ready", "stream": null, "count": 1}}"#);
        let stage = run.meta.stages.stages.iter_mut().find(|stage| stage.name == "first_response").unwrap();
        stage.when = Some(condition.unwrap());
    });
    let otherwise = with(&|run| {
        marks_of(run, |_, mark| {
            if mark.stage == "first_response" {
                mark.evidence = Evidence::Log;
            }
        });
    });
    let mut words = String::new();
    for (arms, is_definition) in [(&redefined, true), (&otherwise, false)] {
        let refusal = refused(arms, &Options::default());
        assert_eq!(matches!(refusal.why, Why::OtherDefinition { .. }), is_definition);
        assert_eq!(matches!(refusal.why, Why::OtherEvidence { .. }), !is_definition);
        assert_eq!(refusal.latest_shared.as_deref(), Some("module_populated"));
        words.push_str(&terminal::refusal(&refusal));
        words.push('\n');

        let declared = Options { same_event: true, ..varying(&["argv"]) };
        let comparison = compared_as(arms, &declared);
        assert!(!comparison.event.declared.is_empty());
        // Every report repeats it.
        let page = page(arms, &comparison);
        assert!(unwrapped(&page).contains("DECLARED to be the same event"), "{page}");
        assert!(folder::json_text(arms, &comparison).contains("\"declared\": [\n"));
        assert!(compared::svg(arms, &comparison).unwrap().contains("declared to be one event"));
        words.push_str(page.split("\n\n").nth(1).unwrap());
        words.push_str("\n\n");
    }
    golden("compare.declared.txt", &words);
    // Where nothing differs there is nothing to declare.
    let same = arms(vec![run("mmap"), run("read")]);
    let comparison = compared_as(&same, &Options { same_event: true, ..Options::default() });
    assert_eq!(comparison.event.declared, [""; 0]);
}

#[test]
fn without_a_stopping_event_one_has_to_be_named() {
    let mut open = run("mmap");
    open.meta.until = None;
    let arms = arms(vec![run("mmap"), open]);
    let refusal = refused(&arms, &Options::default());
    assert_eq!(refusal.why, Why::NoStoppingEvent { runs: vec!["B".to_owned()] });
    assert!(terminal::refusal(&refusal).contains("B was recorded without a stopping event"));
    assert!(Comparison::of(&arms, &at("first_response")).is_ok());
}

#[test]
fn runs_that_share_nothing_say_so() {
    let arms = arms(vec![run("mmap"), run("pr-after"), run("lazy")]);
    let refusal = refused(&arms, &Options::default());
    assert_eq!(refusal.latest_shared, None);
    assert!(terminal::refusal(&refusal).ends_with("They share no stage with one definition.\n"));
}

/// A change of what a run recorded, and the fact that it changes.
type Change = (&'static str, fn(&mut Meta));

const CHANGES: &[Change] = &[
    ("artifact:identity", |meta| meta.artifacts[0].size_bytes += 1),
    ("artifact:identity", |meta| meta.artifacts[0].header_digest = Some("00".repeat(32))),
    ("artifact:identity", |meta| {
        let mut more = meta.artifacts[0].clone();
        more.payload_bytes = Some(0);
        more.bytes_by_dtype.clear();
        meta.artifacts.push(more);
    }),
    ("representation:dtypes", |meta| {
        let bytes = meta.artifacts[0].bytes_by_dtype.remove("F32").unwrap();
        meta.artifacts[0].bytes_by_dtype.insert("BF16".to_owned(), bytes);
    }),
    ("argv:words", |meta| meta.argv.push("--eager".to_owned())),
    ("argv:variables", |meta| drop(meta.variables.insert("port".to_owned(), "8001".to_owned()))),
    ("program:program", |meta| meta.host.software.program.as_mut().unwrap().modified_ns = Some(5)),
    ("python:version", |meta| meta.host.software.python.as_mut().unwrap().version = Some("3.13.1".to_owned())),
    ("package:torch", |meta| {
        drop(meta.host.software.python.as_mut().unwrap().packages.insert("torch".to_owned(), "2.9.1".to_owned()));
    }),
    ("package:vllm", |meta| {
        drop(meta.host.software.python.as_mut().unwrap().packages.insert("vllm".to_owned(), "0.12".to_owned()));
    }),
    ("commit:commit", |meta| meta.host.software.git.as_mut().unwrap().commit = Some("2c".repeat(20))),
    ("env:HF_HOME", |meta| drop(meta.environment.insert("HF_HOME".to_owned(), "/models".to_owned()))),
    ("env:CUDA_VISIBLE_DEVICES", |meta| drop(meta.environment.remove("CUDA_VISIBLE_DEVICES"))),
    ("host:kernel_release", |meta| meta.host.kernel_release = Some("6.9.1".to_owned())),
    ("host:cpu_model", |meta| meta.host.cpu_model = Some("Other CPU".to_owned())),
    ("host:memory_total_bytes", |meta| meta.host.memory_total_bytes = Some(1 << 30)),
    ("host:numa_nodes", |meta| meta.host.numa_nodes = Some(2)),
    ("host:transparent_huge_pages.enabled", |meta| {
        meta.host.transparent_huge_pages.enabled = Some("always".to_owned());
    }),
    ("host:container", |meta| meta.host.container.push("/.dockerenv".to_owned())),
    ("storage:filesystem", |meta| meta.artifacts[0].filesystem = Some("nfs4".to_owned())),
    ("device:devices", |meta| meta.devices[0].name = "Other GPU".to_owned()),
    ("device:driver", |meta| meta.devices[0].driver = Some("590.1".to_owned())),
    ("limit:nofile", |meta| meta.host.limits.nofile.soft = Some(Ceiling::Unlimited)),
    ("limit:memory", |meta| meta.host.cgroups.memory_limit = None),
    ("condition:residency", |meta| meta.artifacts[0].resident_at_start_bytes = meta.artifacts[0].payload_bytes),
    ("condition:state./srv/cache/loader", |meta| meta.condition.state.clear()),
    ("condition:pressure.io", |meta| {
        drop(meta.condition.pressure.insert("io".to_owned(), "some avg10=42.00 avg60=1.0".to_owned()));
    }),
    ("condition:load", |meta| meta.condition.load = Some("7.31 0.2 0.1 1/2 3".to_owned())),
    ("condition:memory_available_bytes", |meta| meta.condition.memory_available_bytes = Some(1 << 30)),
    ("source:stagemark", |meta| meta.stagemark = "0.0.9".to_owned()),
    ("source:births", |meta| meta.sources.get_mut("births").unwrap().used = "procfs".to_owned()),
    ("source:residency", |meta| meta.artifacts[0].trust.by = "mincore".to_owned()),
    ("source:device_launch", |meta| {
        meta.device_probe.launch_basis = serde_json::from_str("\"rise\"").unwrap();
    }),
    ("source:interval_ns", |meta| meta.interval_ns = 5_000_000),
];

#[test]
fn each_difference_is_found_alone_and_may_be_declared() {
    for (fact, change) in CHANGES {
        let mut other = run("mmap");
        change(&mut other.meta);
        let arms = arms(vec![run("mmap"), other]);
        let comparison = compared_as(&arms, &Options::default());
        assert_eq!(differences(&comparison), [format!("{fact} unexplained")]);
        assert_eq!(comparison.likeness.verdict(), Verdict::NotLikeForLike);
        let subject = fact.split(':').next().unwrap();
        let page = page(&arms, &comparison);
        assert!(page.contains("\nNOT LIKE FOR LIKE: 1 unexplained\n"));
        assert!(page.contains(&format!("\n  what was meant to differ is declared: --vary {subject}\n")), "{page}");
        for vary in [fact, subject] {
            let declared = compared_as(&arms, &varying(&[vary]));
            assert_eq!(differences(&declared), [format!("{fact} expected")]);
            assert_eq!(declared.likeness.verdict(), Verdict::LikeForLike);
        }
        let other = if subject == "host" { "commit" } else { "host" };
        assert_eq!(differences(&compared_as(&arms, &varying(&[other]))).len(), 1);
    }
    let known: std::collections::BTreeSet<&str> =
        CHANGES.iter().map(|(fact, _)| fact.split(':').next().unwrap()).collect();
    let all: Vec<&str> = Subject::ALL.into_iter().map(Subject::name).filter(|name| *name != "interpreter").collect();
    assert_eq!(known.len(), all.len(), "a subject has no test: {known:?}");
}

#[test]
fn what_one_side_did_not_record_cannot_be_told() {
    const LACKS: &[Change] = &[
        ("artifact:identity", |meta| meta.artifacts[0].header_digest = None),
        ("program:program", |meta| meta.host.software.program = None),
        ("commit:commit", |meta| meta.host.software.git = None),
        ("host:kernel_version", |meta| meta.host.kernel_version = None),
        ("limit:nofile", |meta| meta.host.limits.nofile = Default::default()),
        ("condition:load", |meta| meta.condition.load = None),
        ("condition:residency", |meta| meta.artifacts[0].resident_at_start_bytes = None),
        ("package:torch", |meta| {
            let python = meta.host.software.python.as_mut().unwrap();
            python.packages.remove("torch");
            python.cut_short = true;
        }),
    ];
    for (fact, lack) in LACKS {
        let mut other = run("mmap");
        lack(&mut other.meta);
        let arms = arms(vec![run("mmap"), other]);
        let comparison = compared_as(&arms, &Options::default());
        assert_eq!(differences(&comparison), [format!("{fact} unknown")]);
        assert_eq!(comparison.likeness.verdict(), Verdict::CannotBeTold);
        assert!(page(&arms, &comparison).contains("CANNOT BE TOLD: 1 unknown"));
    }
}

#[test]
fn what_wavers_by_itself_is_the_same_within_its_tolerance() {
    let mut other = run("mmap");
    let meta = &mut other.meta;
    meta.artifacts[0].resident_at_start_bytes = Some(meta.artifacts[0].payload_bytes.unwrap() / 200);
    meta.condition.load = Some("1.40 0.2 0.1 1/2 3".to_owned());
    meta.condition.pressure.insert("io".to_owned(), "some avg10=4.50 avg60=1.0".to_owned());
    meta.condition.memory_available_bytes = meta.condition.memory_available_bytes.map(|bytes| bytes - (3 << 30));
    *meta.condition.state.values_mut().next().unwrap() += 100;
    let comparison = compared_as(&arms(vec![run("mmap"), other]), &Options::default());
    assert_eq!(differences(&comparison), [""; 0]);
}

#[test]
fn a_file_is_what_is_in_it_wherever_it_lies() {
    let digest = "ab".repeat(32);
    // The same file in two caches, named in the command line by its path and by its folder.
    let mut here = run("mmap");
    let mut there = run("mmap");
    for (run, root, option) in
        [(&mut here, "/a", "--model=/a/x.safetensors"), (&mut there, "/b/c", "--model=x.safetensors")]
    {
        let artifact = &mut run.meta.artifacts[0];
        artifact.path = format!("{root}/x.safetensors");
        artifact.real_path = format!("{root}/blobs/{digest}");
        artifact.header_digest = None;
        run.meta.directory = root.to_owned();
        run.meta.argv = vec!["serve".to_owned(), option.to_owned(), "--from".to_owned(), root.to_owned()];
    }
    let comparison = compared_as(&arms(vec![here.clone(), there.clone()]), &Options::default());
    assert_eq!(differences(&comparison), [""; 0]);
    let contents = comparison.likeness.of(Subject::Artifact).find(|field| field.name == "contents").unwrap();
    assert_eq!((contents.state, contents.values[1].1.as_deref()), (State::Same, Some(digest.as_str())));
    // Other contents of the same size are another file, whatever the header says.
    there.meta.artifacts[0].real_path = format!("/b/c/blobs/{}", "cd".repeat(32));
    for run in [&mut here, &mut there] {
        run.meta.artifacts[0].header_digest = Some("5a".repeat(32));
    }
    let comparison = compared_as(&arms(vec![here, there]), &Options::default());
    let told = differences(&comparison);
    assert!(told.contains(&"artifact:identity unexplained".to_owned()), "{told:?}");
    assert!(told.contains(&"artifact:contents unexplained".to_owned()), "{told:?}");
}

#[test]
fn a_revision_differs_only_where_the_contents_may() {
    let of = |revision: &str, blob: Option<&str>| {
        let mut run = run("mmap");
        let artifact = &mut run.meta.artifacts[0];
        artifact.found = Found::HubCache { repository: "org/model".to_owned(), revision: revision.to_owned() };
        artifact.real_path = blob.map_or_else(|| artifact.path.clone(), |blob| format!("/c/blobs/{}", blob.repeat(32)));
        run
    };
    let told = |one, other| differences(&compared_as(&arms(vec![one, other]), &Options::default()));
    assert_eq!(told(of("aa", None), of("bb", None)), ["artifact:revision unexplained"]);
    assert_eq!(told(of("aa", None), of("aa", None)), [""; 0]);
    assert_eq!(told(of("aa", Some("ab")), of("bb", Some("ab"))), [""; 0]);
    // A copy elsewhere has no revision, and is no other file for it.
    assert_eq!(told(of("aa", None), run("mmap")), [""; 0]);
}

#[test]
fn contents_that_were_asked_for_have_to_be_known() {
    let wanted = Options { contents: true, ..Options::default() };
    let mut other = run("mmap");
    other.meta.artifacts[0].content_reason = Some("the file is not what it was at the run (stat)".to_owned());
    let arms = arms(vec![run("mmap"), other]);
    let comparison = compared_as(&arms, &wanted);
    assert_eq!(differences(&comparison), ["artifact:contents unknown"]);
    let page = page(&arms, &comparison);
    let page = unwrapped(&page);
    assert!(page.contains("A: not hashed") && page.contains("B: the file is not what it was"), "{page}");
}

#[test]
fn one_run_twice_is_said_and_is_alike() {
    let arms = arms(vec![run("mmap"), run("mmap")]);
    let comparison = compared_as(&arms, &Options::default());
    assert_eq!(comparison.likeness.verdict(), Verdict::LikeForLike);
    assert!(comparison.notes.contains(&"A and B are one and the same run".to_owned()));
    let told = |of| comparison.at_the_end().unwrap().figure(of).unwrap().judged(1).told;
    assert_eq!(told(Quantity::Value(Metric::RssBytes)), Told::Same);
    assert_eq!(told(Quantity::Time), Told::NotApart, "it is known to 9 ms");
}

#[test]
fn three_arms_stand_below_each_other() {
    let arms = arms(vec![run("mmap"), run("mmap"), run("read")]);
    let comparison = compared_as(&arms, &varying(&["argv"]));
    golden("compare.three.txt", &page(&arms, &comparison));
    assert!(compared::svg(&arms, &comparison).unwrap().trim_end().ends_with("</svg>"));
}

#[test]
fn an_arm_of_several_runs_has_a_median_and_each_run_its_row() {
    let with = |times: &[i64]| -> Vec<(Run, StageTable)> {
        let made = times.iter().map(|seconds| {
            let mut run = run("pr-before");
            marks_of(&mut run, |at, _| *at = At(seconds * 1_000_000_000));
            run.meta.exit.as_mut().unwrap().at = At(seconds * 1_000_000_000);
            let table = StageTable::of(&run);
            (run, table)
        });
        made.collect()
    };
    let arms = vec![
        Arm { name: "before".to_owned(), runs: with(&[434, 431, 440]) },
        Arm { name: "after".to_owned(), runs: with(&[429, 430, 490]) },
    ];
    let comparison = compared_as(&arms, &Options::default());
    let page = page(&arms, &comparison);
    assert!(page.contains("434 s (431–440 s)"), "{page}");
    assert!(page.contains("430 s (429–490 s)  cannot be told apart"), "{page}");
    let csv = csv_of(&comparison);
    let rows: Vec<&str> = csv.lines().filter(|row| row.contains(",t_ns,")).collect();
    assert_eq!(rows.len(), 6);
    assert!(rows[5].starts_with("first_response,t_ns,after,3,490000000000,http,ns,"), "{}", rows[5]);
    assert!(rows[5].contains(",more,50000000000,") && rows[5].contains(",1.11364,"), "{}", rows[5]);
    assert!(rows[0].ends_with(",,,,,,,"), "the first arm is held to nobody: {}", rows[0]);
}

/// A figure that is cut is another figure.
#[test]
fn figures_are_shown_whole_however_long_they_are() {
    let with = |read: [u64; 2]| -> Vec<(Run, StageTable)> {
        let made = read.into_iter().map(|bytes| {
            let mut run = run("mmap");
            run.samples.iter_mut().for_each(|sample| sample.values.set(Metric::RssBytes, Some(bytes)));
            let table = StageTable::of(&run);
            (run, table)
        });
        made.collect()
    };
    let name = "an-arm-12345".to_owned();
    let arms = vec![
        Arm { name: "A".to_owned(), runs: with([4096, 16 << 20]) },
        Arm { name, runs: with([(9 << 20) + 999_999, (16 << 20) + 99_999]) },
    ];
    let page = page(&arms, &compared_as(&arms, &Options::default()));
    let figure = "8.00 MiB (<0.01–16 MiB)";
    let row = page.lines().position(|line| line.contains(figure)).unwrap_or_else(|| panic!("no {figure} in {page}"));
    let next = page.lines().nth(row + 1).unwrap();
    assert!(next.ends_with("an-arm-12345 13.0 MiB (9.95–16.1 MiB)  cannot be told apart"), "{page}");
    // Where there is no room beside the figure, how it stands is below it.
    assert!(page.lines().any(|line| line.trim() == "samples: 2548 times as much"), "{page}");
}

#[test]
fn nothing_that_a_folder_names_moves_a_cursor_or_becomes_a_formula() {
    let name = "=x\u{1b}[31m\u{202e}\r\n,\"<b>".to_owned();
    let with = || {
        let mut run = run("mmap");
        marks_of(&mut run, |_, mark| {
            mark.stage = mark.stage.replace("module_populated", &name);
            mark.stage = mark.stage.replace("first_response", &format!("{name}2"));
        });
        for stage in &mut run.meta.stages.stages {
            stage.name = stage.name.replace("module_populated", &name).replace("first_response", &format!("{name}2"));
        }
        run.meta.until = Some(format!("{name}2"));
        run.meta.argv.push(name.clone());
        run.meta.environment.insert(name.clone(), name.clone());
        run.folder = PathBuf::from(&name);
        run
    };
    let mut other = with();
    other.meta.environment.insert(name.clone(), format!("{name}3"));
    other.meta.losses.push(name.clone());
    let mut arms = arms(vec![with(), other]);
    arms[0].name = name.clone();
    let comparison = compared_as(&arms, &Options::default());
    let acts = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    let page = page(&arms, &comparison);
    assert!(!page.contains(acts), "{page:?}");
    assert!(!folder::json_text(&arms, &comparison).contains(acts));
    let svg = compared::svg(&arms, &comparison).unwrap();
    assert!(!svg.contains(acts) && !svg.contains("<b>"));
    let csv = csv_of(&comparison);
    assert!(!csv.contains(|c: char| acts(c) && c != '\r'));
    for row in ::csv::Reader::from_reader(csv.as_bytes()).records() {
        assert!(row.unwrap().iter().all(|cell| !cell.starts_with(['=', '@', '+'])));
    }
    let refusal = refused(&arms, &at(&format!("{name}4")));
    assert!(!terminal::refusal(&refusal).contains(acts));
}

#[test]
fn any_numbers_give_a_comparison() {
    for extreme in [0, 1, u64::MAX / 3, u64::MAX] {
        let mut other = run("mmap");
        for sample in &mut other.samples {
            for metric in stagemark::metric::ALL {
                sample.values.set(*metric, extreme);
            }
        }
        for time in [i64::MIN, -1, 0, i64::MAX] {
            let mut other = other.clone();
            marks_of(&mut other, |at, mark| {
                if mark.stage == "first_response" {
                    *at = At(time);
                }
            });
            let arms = arms(vec![run("mmap"), other.clone()]);
            let comparison = compared_as(&arms, &Options::default());
            page(&arms, &comparison);
            csv_of(&comparison);
            let text = folder::json_text(&arms, &comparison);
            assert!(serde_json::from_str::<Value>(&text).is_ok());
            assert!(compared::svg(&arms, &comparison).unwrap().trim_end().ends_with("</svg>"));
            if time < 0 {
                let time = comparison.at_the_end().unwrap().figure(Quantity::Time).unwrap();
                assert!(time.cells[1][0].is_err() && time.judged(1).told == Told::Unknown);
            }
        }
    }
}

#[test]
fn the_same_folders_give_the_same_bytes_and_files() {
    let scratch = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let out = scratch.path().join(name);
        let mut command = stagemark();
        command.current_dir(runs()).args(["compare", "mmap", "read", "--vary", "argv", "--strict", "--out"]).arg(&out);
        let output = finish(&mut command);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let files = ["compare.csv", "compare.json", "compare.svg", "compare.png", "compare.html"];
        files.map(|file| std::fs::read(out.join(file)).unwrap())
    };
    let (one, other) = (made("one"), made("other"));
    assert_eq!(one, other);
    assert!(one[3].starts_with(b"\x89PNG"));
    // A refusal in the same folder leaves no figure of the comparison before it; what is somebody else's stays.
    std::fs::write(scratch.path().join("one/notes.txt"), "mine").unwrap();
    let mut command = stagemark();
    command.current_dir(runs()).args(["compare", "at-mapping", "after-placement", "--json", "--out"]);
    let output = finish(command.arg(scratch.path().join("one")));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let names = |name: &str| {
        let entries = std::fs::read_dir(scratch.path().join(name)).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("one"), ["compare.html", "compare.json", "notes.txt"]);
    assert_eq!(std::fs::read(scratch.path().join("one/compare.json")).unwrap(), output.stdout);
    // And the other way round.
    made("one");
    assert_eq!(names("one").len(), 6);
}

/// Hundreds of stages, as a loader that notifies in a loop marks them, or somebody who forges: each is looked for by its
/// name, and people are told of the last.
#[test]
fn hundreds_of_stages_are_compared_and_the_last_are_told() {
    let with = || {
        let mut run = run("mmap");
        let at = run.events.iter().find_map(|event| match &event.what {
            What::Mark(mark) if mark.stage == "module_populated" => Some((event.clone(), mark.clone())),
            _ => None,
        });
        let (event, mark) = at.unwrap();
        for number in 0..600 {
            let mark = stagemark::event::Mark { stage: format!("step_{number:04}"), ..mark.clone() };
            run.events.push(stagemark::event::Event { what: What::Mark(mark), ..event.clone() });
        }
        run
    };
    let arms = arms(vec![with(), with()]);
    let comparison = compared_as(&arms, &Options::default());
    assert_eq!(comparison.stages.len(), 603);
    let page = page(&arms, &comparison);
    assert!(page.contains("\n562 earlier stages are in compare.csv and JSON alone.\n"), "{page}");
    assert!(page.contains("step_0599") && !page.contains("step_0400"), "{page}");
    let svg = compared::svg(&arms, &comparison).unwrap();
    let html = stagemark::report::html::compared::page(&arms, &comparison, None, &svg);
    assert!(html.len() < 4 << 20, "{}", html.len());
    assert!(html.contains("562 earlier stages are in compare.csv"));
    assert_eq!(csv_of(&comparison).lines().filter(|row| row.contains(",t_ns,")).count(), 1206);
    // Where the one never comes to the end of the other.
    let told = unwrapped(&terminal::refusal(&refused(&arms, &at("step_9999"))));
    assert!(told.contains("B reached 603 stages, the last of them step_0561 (0.520 s), "), "{told}");
}

/// `stagemark compare` in the folder of the constructed runs: status, standard output, standard error.
fn asked(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = finish(stagemark().current_dir(runs()).arg("compare").args(arguments));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_exit_status_says_what_came_of_it() {
    for (arguments, status, said) in [
        (&["mmap", "read"][..], 0, ""),
        (&["mmap", "read", "--strict"], 4, ""),
        (&["mmap", "read", "--strict", "--vary", "argv:words"], 0, ""),
        (&["pr-before", "pr-after", "--vary", "commit", "--strict"], 4, ""),
        (&["pr-before", "pr-after", "--vary", "commit"], 0, ""),
        (&["mmap", "read", "--at", "mapping_available"], 3, "mapping_available was not reached by B"),
        (&["mmap", "killed"], 3, "first_response was not reached by B"),
        (&["mmap", "newer"], 3, "newer: run.json is of schema 99"),
        (&["mmap", "nowhere"], 2, "nowhere: not a run folder"),
        (&["mmap"], 2, "one run has nothing to be compared with"),
        (&["nowhere"], 2, "nowhere: not a run folder"),
        (&["mmap", "read", "--vary", "comit"], 2, "did you mean `commit`?"),
        (&["mmap", "read", "--out", "mmap"], 2, "is the folder of a run"),
    ] {
        let (code, out, told) = asked(arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {out}{told}");
        assert!(told.contains(said), "{arguments:?}: {told}");
        assert_eq!(out.is_empty(), !matches!(status, 0 | 4), "{arguments:?}: {out}");
    }
    // What is left of a run whose profiler was killed is compared as far as it goes, and said.
    let (code, out, _) = asked(&["mmap", "killed", "--at", "module_populated"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("B: no exit was recorded") && out.contains("samples.csv ends in a torn line"), "{out}");
    // A refusal is JSON too, where that was asked for.
    let (code, out, told) = asked(&["at-mapping", "after-placement", "--json"]);
    assert_eq!(code, Some(3));
    let refusal: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(refusal["refused"]["why"], "several_stopping_events");
    assert_eq!(refusal["refused"]["latest_shared"], "mapping_available");
    assert!(unwrapped(&told).contains("different finish lines"), "{told}");
}

/// The reference loader on a model, mapped and read: its two runs.
fn launched(scratch: &Path) -> [PathBuf; 2] {
    let model = scratch.join("model.safetensors");
    models::uniform(&model, 32 << 20, 8, Fill::Pattern).unwrap();
    // Warm for both: what is compared is the way of loading.
    std::fs::read(&model).unwrap();
    ["mmap-lazy", "read-heap"].map(|mode| {
        let out = scratch.join(mode);
        let mut command = stagemark();
        command.args(["run", "--quiet", "--out"]).arg(&out).arg("--artifact").arg(&model).arg("--");
        command.args(reference_loader()).arg("--model").arg(&model);
        // So slow that the load is what takes the time, on however busy a machine.
        command.args(["--mode", mode, "--pace", "32MiB", "--notify", "--hold", "0.1"]);
        let output = finish(&mut command);
        assert!(output.status.success(), "{output:?}");
        out
    })
}

#[test]
fn a_lazy_loader_leads_at_the_first_stage_and_pays_at_the_second() {
    let scratch = tempfile::tempdir().unwrap();
    let folders = launched(scratch.path());
    let arms = folder::arms(&folders).unwrap();
    // One of them never maps.
    let refusal = refused(&arms, &at("mapping_available"));
    assert!(matches!(&refusal.why, Why::NotReached { runs, .. } if runs.len() == 1 && runs[0].0 == "B"), "{refusal}");

    let options = |stage: &str| Options { at: Some(stage.to_owned()), ..varying(&["argv", "condition"]) };
    let lead = |stage: &str| {
        let comparison = compared_as(&arms, &options(stage));
        assert_eq!(comparison.event.stage, stage);
        let time = comparison.at_the_end().unwrap().figure(Quantity::Time).unwrap();
        let time = |arm: usize| time.cells[arm][0].as_ref().unwrap().value.unwrap() as i64;
        let told = comparison.at_the_end().unwrap().figure(Quantity::Time).unwrap().judged(1).told;
        (time(1) - time(0), told, comparison)
    };
    let (first, told, _) = lead("module_populated");
    assert_eq!(told, Told::More, "the reader is later at the first");
    let (second, _, comparison) = lead("first_response");
    assert!(second < first, "the lazy one's lead, {first} ns, is {second} ns at the first response");
    // The files and the machine are the same; what differs is how they were asked to load.
    let unexplained: Vec<String> =
        differences(&comparison).into_iter().filter(|told| told.contains("unexplained")).collect();
    assert_eq!(unexplained, [""; 0]);
    // The one copies the payload, the other does not.
    let anonymous = comparison.at_the_end().unwrap().figure(Quantity::Value(Metric::RssAnonBytes)).unwrap();
    assert!(anonymous.judged(1).difference.unwrap() > 24 << 20, "{anonymous:?}");
}

#[test]
fn contents_are_hashed_where_the_files_are_still_there() {
    let scratch = tempfile::tempdir().unwrap();
    let [lazy, heap] = launched(scratch.path());
    let ask = || {
        let mut command = stagemark();
        command.args(["compare", "--json", "--identity", "full", "--at", "module_populated"]).args([&lazy, &heap]);
        let output = finish(&mut command);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let fields = answer["likeness"].as_array().unwrap();
        fields.iter().find(|field| field["name"] == "contents").unwrap().clone()
    };
    let found = ask();
    assert_eq!(found["state"], "same");
    let model = scratch.path().join("model.safetensors");
    let (_, digest) = crate::support::sum_of_file(&model);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found["values"][0]["value"], digest);
    // A file that was written since is not what was loaded.
    let file = std::fs::File::options().append(true).open(&model).unwrap();
    file.set_len(1 << 20).unwrap();
    let found = ask();
    assert_eq!(found["state"], "unknown");
    assert!(found["note"].as_str().unwrap().contains("not what it was at the run"), "{found}");
}
