use super::*;
use crate::event::Found;
use crate::metric::{Metric, Values};
use crate::watch::LineEnd;

fn file(stages: &str) -> StageFile {
    StageFile::parse(&format!("name = 't'\n{stages}"), "t").unwrap()
}

fn stage(name: &str, when: &str) -> String {
    format!("[[stage]]\nname = '{name}'\nwhen = {when}\n")
}

fn one(when: &str) -> Matcher {
    Matcher::new(vec![file(&stage("s", when))])
}

fn event(at: i64, uncertainty_ns: impl Into<Option<u64>>, what: What) -> Event {
    Event { at: At(at), uncertainty_ns: uncertainty_ns.into(), what }
}

fn mapped(at: i64, artifact: usize) -> Event {
    event(at, 5, What::Mapped { pid: 7, artifact: ArtifactId(artifact), bytes: 64, permissions: "r--p".into() })
}

fn joined(artifact: usize) -> Event {
    event(0, 0, What::Artifact { artifact: ArtifactId(artifact), found: Found::Declared })
}

fn notify(at: i64, name: &str, verified: bool) -> Event {
    event(at, 2, What::Notify { pid: Some(9), stage: Some(name.into()), status: None, ready: false, verified })
}

fn exec(at: i64, argv: &str) -> Event {
    event(at, 1, What::Exec { pid: 7, argv: argv.split(' ').map(str::to_string).collect() })
}

fn exit(at: i64, code: i32) -> Event {
    event(at, 0, What::Exit { pid: 7, code: Some(code), signal: None })
}

fn line(stream: Stream, text: &[u8]) -> Line {
    Line { stream, bytes: text.to_vec(), end: LineEnd::Newline }
}

fn sample(t: i64, payload: impl Into<Option<u64>>, resident: impl Into<Option<u64>>, stale: u64) -> Sample {
    let mut values = Values::ABSENT;
    values.set(Metric::PayloadBytes, payload);
    values.set(Metric::ResidentPayloadBytes, resident);
    values.set(Metric::ResidentStaleNs, stale);
    Sample { t: At(t), late_ns: 0, cost_ns: 0, values }
}

/// The marks among events: stage, time, uncertainty, evidence, detail.
fn marks(events: &[Event]) -> Vec<(&str, i64, Option<u64>, Evidence, &str)> {
    let mut marks = Vec::new();
    for event in events {
        if let What::Mark(this) = &event.what {
            let (stage, detail) = (this.stage.as_str(), this.detail.as_str());
            marks.push((stage, event.at.0, event.uncertainty_ns, this.evidence, detail));
        }
    }
    marks
}

fn names(events: &[Event]) -> Vec<&str> {
    marks(events).iter().map(|mark| mark.0).collect()
}

#[test]
fn a_first_mapping_marks_any_and_the_last_marks_all() {
    let mut any = one("{ mapping = 'any' }");
    let mut all = one("{ mapping = 'all' }");
    for matcher in [&mut any, &mut all] {
        assert!(matcher.event(&joined(0)).is_empty());
        assert!(matcher.event(&joined(1)).is_empty());
    }
    let first = any.event(&mapped(100, 1));
    assert_eq!(marks(&first), [("s", 100, Some(5), Evidence::Mapping, "process 7 maps 64 bytes of artifact 1")]);
    assert!(any.event(&mapped(110, 0)).is_empty(), "only the first mark counts");
    assert!(all.event(&mapped(100, 1)).is_empty());
    assert!(all.event(&mapped(105, 1)).is_empty());
    let unmapped = event(107, 0, What::Unmapped { pid: 7, artifact: ArtifactId(1) });
    assert!(all.event(&unmapped).is_empty());
    assert_eq!(marks(&all.event(&mapped(110, 0)))[0].1, 110);
    assert!(any.reached("s") && all.reached("s") && !any.reached("t"));
}

#[test]
fn a_line_marks_with_its_text_and_named_groups() {
    let mut matcher = one("{ log = 'took (?<reported_seconds>[0-9.]+) s', stream = 'stderr' }");
    let text = b"\xff INFO loading took 3.25 seconds\x07";
    assert!(matcher.line(At(10), Some(4), &line(Stream::Stdout, text)).is_empty());
    let events = matcher.line(At(11), Some(4), &line(Stream::Stderr, text));
    assert!(matches!(&events[0].what, What::LogMatch { stream: Stream::Stderr, stage, .. } if stage == "s"));
    let detail = "\\xff INFO loading took 3.25 seconds\\x07 [reported_seconds=3.25]";
    assert_eq!(marks(&events), [("s", 11, Some(4), Evidence::Log, detail)]);
    assert_eq!(events.len(), 2);
}

#[test]
fn a_count_counts_and_one_stream_is_either() {
    let mut matcher = one("{ log = 'shard', count = 3, stream = 'stderr' }");
    for at in 0..2 {
        assert!(matcher.line(At(at), None, &line(Stream::Both, b"a shard")).is_empty());
    }
    assert_eq!(marks(&matcher.line(At(2), None, &line(Stream::Both, b"a shard")))[0].1, 2);
}

#[test]
fn a_long_line_is_shortened_between_characters() {
    let mut matcher = one("{ log = 'x' }");
    let text = format!("x{}", "ä".repeat(LONGEST_DETAIL));
    let events = matcher.line(At(0), None, &line(Stream::Stdout, text.as_bytes()));
    let detail = marks(&events)[0].4.to_string();
    assert!(detail.ends_with("ä…") && detail.len() <= LONGEST_DETAIL + 4, "{detail}");
}

#[test]
fn residency_is_exact_and_dated_back_to_the_look_before() {
    let mut matcher = one("{ residency = '50%' }");
    assert!(matcher.sample(&sample(1000, None, 10, 0)).is_empty());
    assert!(matcher.sample(&sample(2000, 100, None, 0)).is_empty());
    assert!(matcher.sample(&sample(2500, 0, 0, 0)).is_empty(), "no share of nothing");
    assert!(matcher.sample(&sample(3000, 101, 50, 400)).is_empty());
    let events = matcher.sample(&sample(4000, 101, 51, 300));
    // Part of the look at 3000 was 400 old: the share may have been reached from then on.
    let expected = ("s", 4000, Some(1400), Evidence::Residency, "51 of 101 payload bytes resident");
    assert_eq!(marks(&events), [expected]);
    let mut warm = one("{ residency = '50%' }");
    assert_eq!(marks(&warm.sample(&sample(5, 100, 100, 0)))[0].2, Some(5), "at the start, at the earliest");
}

#[test]
fn an_exit_is_any_or_a_status() {
    let mut any = one("{ exit = 'any' }");
    assert_eq!(marks(&any.event(&exit(9, 3))), [("s", 9, Some(0), Evidence::Exit, "exit 3")]);
    let mut zero = one("{ exit = 0 }");
    let killed = event(9, 0, What::Exit { pid: 7, code: None, signal: Some(9) });
    assert!(zero.event(&killed).is_empty());
    assert!(!zero.event(&exit(9, 0)).is_empty());
}

#[test]
fn all_takes_the_last_and_any_the_first() {
    let mut all = one("{ all = [ { mapping = 'any' }, { log = 'loaded' } ] }");
    assert!(names(&all.line(At(200), Some(150), &line(Stream::Stdout, b"loaded"))).is_empty());
    // The line is the later one but may be as old as 50; the mapping is not older than 95: so both hold not before 95.
    let events = all.event(&mapped(100, 0));
    let (name, at, uncertainty, evidence, detail) = marks(&events)[0];
    assert_eq!((name, at, uncertainty, evidence), ("s", 200, Some(105), Evidence::Several));
    assert_eq!(detail, "process 7 maps 64 bytes of artifact 0; loaded");
    let mut any = one("{ any = [ { mapping = 'any' }, { log = 'loaded' } ] }");
    assert_eq!(marks(&any.event(&mapped(100, 0)))[0].3, Evidence::Mapping);
    assert!(
        any.line(At(200), None, &line(Stream::Stdout, b"loaded"))
            .iter()
            .all(|event| !matches!(event.what, What::Mark(_)))
    );
}

#[test]
fn a_stage_waits_for_those_it_comes_after() {
    let after = stage("first", "{ log = 'first' }")
        + "[[stage]]\nname = 'second'\nafter = ['first']\nwhen = { log = 'second' }\n"
        + "[[stage]]\nname = 'third'\nafter = ['second']\nwhen = { mapping = 'any' }\n";
    let mut matcher = Matcher::new(vec![file(&after)]);
    matcher.event(&mapped(5, 0));
    matcher.line(At(10), Some(0), &line(Stream::Stdout, b"second"));
    // Read late, but printed between the two lines that say second.
    assert_eq!(names(&matcher.line(At(20), Some(1), &line(Stream::Stdout, b"first"))), ["first"]);
    let events = matcher.line(At(30), Some(2), &line(Stream::Stdout, b"second"));
    assert_eq!(names(&events), ["second", "third"]);
    // What was mapped long before is mapped still: reached with the stage that it waited for.
    assert_eq!(marks(&events)[1], ("third", 30, Some(2), Evidence::Mapping, "process 7 maps 64 bytes of artifact 0"));

    let mut matcher = Matcher::new(vec![file(&after)]);
    matcher.line(At(30), Some(0), &line(Stream::Stdout, b"second"));
    // The other watcher was slower: its line is older all the same.
    assert_eq!(names(&matcher.line(At(20), Some(0), &line(Stream::Stderr, b"first"))), ["first", "second"]);
    assert_eq!(names(&matcher.event(&notify(40, "third", true))), ["third"]);
}

#[test]
fn a_notification_counts_whichever_comes_first() {
    let stages = stage("s", "{ log = 'loaded' }") + "[[stage]]\nname = 'ready'\n";
    let mut matcher = Matcher::new(vec![file(&stages)]);
    assert_eq!(marks(&matcher.event(&notify(3, "s", true))), [("s", 3, Some(2), Evidence::Notify, "by process 9")]);
    assert!(matcher.line(At(4), None, &line(Stream::Stdout, b"loaded")).is_empty());
    let unknown = matcher.event(&notify(5, "not.in.the.file", false));
    assert!(marks(&unknown)[0].4.starts_with("unverified"));
    assert!(matcher.event(&notify(6, "not.in.the.file", true)).is_empty());
    let say = |stage: Option<&str>, status: Option<&str>, ready| {
        let (stage, status) = (stage.map(str::to_string), status.map(str::to_string));
        event(7, None, What::Notify { pid: None, stage, status, ready, verified: false })
    };
    assert!(matcher.event(&say(None, Some("loading"), false)).is_empty());
    let ready = matcher.event(&say(None, Some("loading"), true));
    assert_eq!(marks(&ready)[0].0, "ready");
    assert!(marks(&ready)[0].4.ends_with(": loading"));
    assert!(one("{ exit = 'any' }").event(&say(None, None, true)).is_empty(), "no stage `ready` in that file");
}

#[test]
fn stages_that_no_file_knows_are_bounded() {
    let mut matcher = one("{ exit = 'any' }");
    for number in 0..MOST_UNKNOWN_STAGES {
        assert_eq!(matcher.event(&notify(0, &format!("n{number}"), true)).len(), 1);
    }
    assert!(matches!(matcher.event(&notify(0, "more", true))[0].what, What::Warning { .. }));
    assert!(matcher.event(&notify(0, "still-more", true)).is_empty());
    assert!(!matcher.reached("more"));
    assert_eq!(matcher.event(&notify(0, "s", true)).len(), 1, "the file's own still count");
}

fn choice() -> Vec<StageFile> {
    let mut vllm = file(&(stage("loaded", "{ log = 'weights' }") + &stage("mapping_available", "{ mapping = 'all' }")));
    vllm.name = "vllm".into();
    vllm.argv = vec!["vllm serve".into()];
    let mut other = vllm.clone();
    other.name = "other".into();
    other.argv = vec!["vllm".into()];
    vec![vllm, other, StageFile::load("generic").unwrap()]
}

#[test]
fn the_first_file_that_fits_an_exec_is_followed() {
    let mut matcher = Matcher::new(choice());
    assert_eq!(matcher.stages().name, "generic");
    assert!(matcher.event(&exec(0, "/bin/bash ./start.sh")).is_empty());
    matcher.line(At(1), Some(1), &line(Stream::Stdout, b"weights"));
    let events = matcher.event(&exec(2, "/usr/bin/python3 /opt/vllm serve m"));
    assert_eq!(matcher.stages().name, "vllm");
    assert_eq!(names(&events), ["loaded"], "what was seen before is matched again");
    assert_eq!(marks(&events)[0].1, 1);
    assert!(!events.iter().any(|event| crate::stage::replaces_marks(&event.what)), "there was no mark before");
    assert!(matcher.event(&exec(3, "vllm bench")).is_empty());
    assert_eq!(matcher.stages().name, "vllm", "chosen once");
}

#[test]
fn marks_before_the_choice_are_replaced() {
    let mut matcher = Matcher::new(choice());
    matcher.event(&joined(0));
    matcher.event(&joined(1));
    assert_eq!(names(&matcher.event(&mapped(1, 0))), ["mapping_available"]);
    assert_eq!(names(&matcher.event(&notify(2, "own", true))), ["own"]);
    let events = matcher.event(&exec(3, "vllm serve m"));
    assert!(crate::stage::replaces_marks(&events[0].what));
    assert_eq!(names(&events), ["own"], "not every artifact is mapped, as this file wants it");
    assert!(!matcher.reached("mapping_available"));
    assert_eq!(names(&matcher.event(&mapped(4, 1))), ["mapping_available"]);
}

#[test]
fn what_is_kept_for_a_choice_is_bounded_and_its_loss_said() {
    let mut matcher = Matcher::new(choice());
    matcher.line(At(0), None, &line(Stream::Stdout, b"weights"));
    for at in 1..=KEPT_INPUTS as i64 {
        matcher.line(At(at), None, &line(Stream::Stdout, b"-"));
    }
    let events = matcher.event(&exec(3, "vllm serve m"));
    assert!(
        matches!(&events[..], [Event { what: What::Warning { text }, .. }] if text.contains(": 1 lines")),
        "{events:?}"
    );
    let mut matcher = Matcher::new(choice());
    for at in 0..100 {
        matcher.line(At(at), None, &line(Stream::Stdout, &vec![b'x'; KEPT_BYTES / 10]));
        assert!(matcher.kept.bytes <= KEPT_BYTES);
    }
}

#[test]
fn the_same_sequence_gives_the_same_marks() {
    let feed = || {
        let mut matcher = Matcher::new(choice());
        let mut events = matcher.event(&mapped(1, 0));
        events.extend(matcher.line(At(2), Some(1), &line(Stream::Stdout, b"weights")));
        events.extend(matcher.event(&exec(3, "vllm serve m")));
        events.extend(matcher.event(&exit(4, 0)));
        events
    };
    assert_eq!(feed(), feed());
}

#[test]
fn the_reference_loaders_log_marks_its_stages() {
    let log = include_str!("../../../fixtures/logs/reference-loader.log");
    let mut matcher = Matcher::new(vec![StageFile::load("reference-loader").unwrap()]);
    let mut reached = Vec::new();
    for (at, text) in log.lines().enumerate() {
        let events = matcher.line(At(at as i64), Some(0), &line(Stream::Stdout, text.as_bytes()));
        reached.extend(names(&events).into_iter().map(str::to_string));
    }
    assert_eq!(reached, ["mapping_available", "module_populated", "first_response"]);
}
