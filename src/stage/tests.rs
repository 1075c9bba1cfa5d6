use super::*;
use crate::event::{ArtifactId, Evidence as By};
use crate::metric::Values;
use crate::watch::{LineEnd, lost, unseen};

fn event(at: i64, what: What) -> Event {
    Event { at: At(at), uncertainty_ns: Some(1), what }
}

fn mark(at: i64, stage: &str) -> Event {
    let mark = Mark { stage: stage.into(), evidence: By::Log, detail: String::new(), sampled: None };
    event(at, What::Mark(mark))
}

fn exit(at: i64, code: i32) -> Event {
    event(at, What::Exit { pid: 7, code: Some(code), signal: None })
}

fn mapped(at: i64) -> Event {
    event(at, What::Mapped { pid: 7, artifact: ArtifactId(0), bytes: 1, permissions: "r--p".into() })
}

fn file(stages: &str) -> StageFile {
    StageFile::parse(&format!("name = 't'\n{stages}"), "t").unwrap()
}

fn one(when: &str) -> StageFile {
    file(&format!("[[stage]]\nname = 's'\nwhen = {when}\n"))
}

fn opened(at: i64) -> Event {
    event(at, What::Opened { pid: 7, artifact: ArtifactId(0) })
}

/// Status and reason of the one stage, in a launch that opened an artifact.
fn lack(when: &str, events: &[Event]) -> (Status, String) {
    let events = [&[opened(0)], events].concat();
    let outcome = outcomes(&one(when), &events).remove(0);
    assert_eq!(outcome.mark, None);
    (outcome.status, outcome.reason)
}

#[test]
fn stages_stand_in_the_files_order_and_others_after_them() {
    let stages = file("[[stage]]\nname = 'a'\n[[stage]]\nname = 'b'\n[[stage]]\nname = 'c'\n");
    let events = [opened(0), mark(5, "c"), mark(9, "z"), mark(7, "y"), mark(6, "a"), mark(8, "a")];
    let outcomes = outcomes(&stages, &events);
    let names: Vec<_> = outcomes.iter().map(|outcome| outcome.stage.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "y", "z"]);
    assert_eq!(outcomes[0].mark.as_ref().unwrap().0, At(6), "the first mark counts");
    assert_eq!((outcomes[0].status, outcomes[0].reason.as_str()), (Status::Reached, ""));
    assert_eq!(outcomes[1].status, Status::NotReached);
    assert_eq!(outcomes[1].reason, "only by notification, and none came");
}

#[test]
fn marks_of_a_file_that_is_no_longer_followed_do_not_count() {
    let stages = file("[[stage]]\nname = 'a'\n[[stage]]\nname = 'b'\n");
    let events = [opened(0), mark(5, "a"), mark(6, "b"), event(7, replacing_marks("t")), mark(6, "b")];
    let status: Vec<_> = outcomes(&stages, &events).iter().map(|outcome| outcome.status).collect();
    assert_eq!(status, [Status::NotReached, Status::Reached]);
}

#[test]
fn a_missing_mark_has_a_reason() {
    use Status::*;
    let because = |status, reason: &str| (status, reason.to_string());
    let log = "{ log = 'loaded', stream = 'stdout' }";
    let ended = [exit(9, 1)];
    assert_eq!(lack(log, &ended), because(NotReached, "no line matched /loaded/; the command ended first: exit 1"));
    assert_eq!(lack(log, &[]), because(NotReached, "no line matched /loaded/"));
    let hidden = |stream| event(0, unseen(stream, "it is /dev/null"));
    let blind = lack(log, &[hidden(Stream::Stdout), exit(9, 1)]);
    assert_eq!(blind.0, Unknown);
    assert!(blind.1.contains("standard output cannot be read"), "{}", blind.1);
    assert_eq!(lack(log, &[hidden(Stream::Stderr)]).0, NotReached, "it would have been on the other stream");
    assert_eq!(lack(log, &[hidden(Stream::Both)]).0, Unknown);
    assert_eq!(lack("{ log = 'loaded' }", &[hidden(Stream::Stderr)]).0, Unknown);

    let (status, reason) = lack(log, &[event(3, lost("12 lines of Stdout"))]);
    assert_eq!(status, Unknown, "{reason}");

    let mapping = "{ mapping = 'any' }";
    assert_eq!(lack(mapping, &[]), because(NotReached, "no artifact was mapped"));
    assert_eq!(lack("{ mapping = 'all' }", &[mapped(1)]), because(NotReached, "not every artifact was mapped"));
    let denied = |metric| event(2, What::Absent { metric, reason: "permission denied".into() });
    assert_eq!(lack(mapping, &[denied(Metric::MappedBytes)]).0, Unknown);

    let residency = "{ residency = '99%' }";
    assert_eq!(lack(residency, &[]), because(NotReached, "no sample has 99% of the payload resident"));
    let absent = lack(residency, &[denied(Metric::ResidentPayloadBytes)]);
    assert_eq!(absent, because(Unknown, "the resident payload is not known: permission denied"));
    let again = event(3, What::Present { metric: Metric::ResidentPayloadBytes });
    assert_eq!(lack(residency, &[denied(Metric::ResidentPayloadBytes), again]).0, NotReached);
    assert_eq!(lack(residency, &[exit(1, 0), denied(Metric::ResidentPayloadBytes)]).0, NotReached);

    assert_eq!(lack("{ exit = 0 }", &ended).1, "the command ended otherwise: exit 1");
    let both = lack("{ all = [ { mapping = 'any' }, { log = 'x' } ] }", &[]);
    assert_eq!(both, because(NotReached, "without an artifact mapped and a line matching /x/"));
    let after = file("[[stage]]\nname = 'a'\n[[stage]]\nname = 'b'\nafter = ['a']\nwhen = { log = 'x' }\n");
    assert_eq!(outcomes(&after, &[opened(0)])[1].reason, "waits for `a`, which was not reached");
}

#[test]
fn a_tree_that_opens_no_artifact_could_not_have_shown_a_stage() {
    for when in ["{ mapping = 'any' }", "{ log = 'x' }", "{ residency = '99%' }"] {
        let outcome = outcomes(&one(when), &[exit(9, 0)]).remove(0);
        let wanted = (Status::Unknown, "no artifact was seen opened in this tree".to_string());
        assert_eq!((outcome.status, outcome.reason), wanted, "{when}");
    }
    assert_eq!(outcomes(&one("{ exit = 1 }"), &[exit(9, 0)])[0].status, Status::NotReached);
}

#[test]
fn what_a_client_prints_is_no_stage_of_its_own_tree() {
    let run = |argv: &[&str], events: &[Event]| {
        let exec = event(0, What::Exec { pid: 7, argv: argv.iter().map(|word| word.to_string()).collect() });
        let exited = Event {
            what: What::Mark(Mark { stage: "end".into(), evidence: By::Exit, detail: String::new(), sampled: None }),
            ..exit(9, 0)
        };
        let stages =
            file("[[stage]]\nname = 'a'\nwhen = { log = 'x' }\n[[stage]]\nname = 'end'\nwhen = { exit = 'any' }\n");
        let all = [&[exec], events, &[mark(5, "a"), exit(9, 0), exited]].concat();
        outcomes(&stages, &all).iter().map(|outcome| (outcome.status, outcome.reason.clone())).collect::<Vec<_>>()
    };
    let docker = run(&["docker", "run", "image"], &[]);
    assert_eq!((docker[0].0, docker[1].0), (Status::Unknown, Status::Reached));
    assert!(docker[0].1.contains("`docker` told of it after 0.000 s"), "{}", docker[0].1);
    // A daemonless client's work may be in the tree; a program that opened an artifact is none; others are no clients.
    assert_eq!(run(&["podman", "run", "image"], &[opened(1)])[0].0, Status::Reached);
    assert_eq!(run(&["mpirun", "-n", "2", "x"], &[])[0].0, Status::Reached);
    assert_eq!(run(&["python", "serve.py"], &[])[0].0, Status::Reached);
    let replaced = event(1, What::Exec { pid: 7, argv: vec!["kubectl".into()] });
    assert_eq!(run(&["sh", "start.sh"], &[replaced])[0].0, Status::Unknown, "a shell that became one");
    let child = event(1, What::Exec { pid: 8, argv: vec!["docker".into()] });
    assert_eq!(run(&["sh", "start.sh"], &[child])[0].0, Status::Reached, "one beside others");
}

#[test]
fn a_mark_heard_after_the_end_has_the_values_from_before() {
    let sample = |t, processes: u64| {
        let mut values = Values::ABSENT;
        values.set(Metric::Processes, processes);
        Sample { t: At(t), late_ns: 0, cost_ns: 0, values }
    };
    let samples = [sample(10, 1), sample(20, 2), sample(30, 0), sample(40, 0)];
    assert_eq!(sampled_beside(&samples, At(15), By::Log), Some(At(20)));
    assert_eq!(sampled_beside(&samples, At(25), By::Log), Some(At(20)));
    assert_eq!(sampled_beside(&samples, At(35), By::Log), Some(At(20)));
    assert_eq!(sampled_beside(&samples, At(25), By::Exit), Some(At(30)));
    assert_eq!(sampled_beside(&samples, At(25), By::Residency), Some(At(30)));
    assert_eq!(sampled_beside(&samples, At(41), By::Log), None);
}

type Logged = (At, Option<u64>, Line);

fn recorded() -> (Vec<Event>, Vec<Logged>, Vec<Sample>) {
    let line =
        |at, text: &str| (At(at), Some(2), Line { stream: Stream::Stdout, bytes: text.into(), end: LineEnd::Newline });
    let sample = |t, resident: u64| {
        let mut values = Values::ABSENT;
        values.set(Metric::PayloadBytes, 100);
        values.set(Metric::ResidentPayloadBytes, resident);
        Sample { t: At(t), late_ns: 0, cost_ns: 0, values }
    };
    let events = vec![
        event(1, What::Exec { pid: 7, argv: vec!["sh".into()] }),
        mapped(10),
        mark(10, "mapping_available"),
        event(30, What::Notify { pid: Some(7), stage: Some("own".into()), status: None, ready: false, verified: true }),
        mark(30, "own"),
        exit(90, 0),
    ];
    let lines = vec![line(20, "weights loaded"), line(95, "bye")];
    (events, lines, vec![sample(15, 0), sample(35, 50), sample(55, 100)])
}

#[test]
fn a_run_is_matched_again_with_other_definitions() {
    let (events, lines, samples) = recorded();
    let stages = file(
        "[[stage]]\nname = 'loaded'\nwhen = { log = 'loaded' }\n[[stage]]\nname = 'half'\nwhen = { residency = '50%' }\n\
         [[stage]]\nname = 'said'\nwhen = { log = 'bye' }\n",
    );
    let matched = rematch(vec![stages.clone()], &events, &lines, &samples);
    let found: Vec<_> = matched
        .iter()
        .filter_map(|event| match &event.what {
            What::Mark(mark) => Some((mark.stage.as_str(), event.at.0, event.uncertainty_ns, mark.sampled)),
            _ => None,
        })
        .collect();
    assert_eq!(
        found,
        [
            ("loaded", 20, Some(2), Some(At(35))),
            ("own", 30, Some(1), Some(At(35))),
            ("half", 35, Some(20), Some(At(35))),
            ("said", 95, Some(2), None),
        ]
    );
    assert_eq!(matched.iter().filter(|event| matches!(event.what, What::LogMatch { .. })).count(), 2);
    let all = with_marks(&events, matched);
    let status: Vec<_> = outcomes(&stages, &all).iter().map(|outcome| outcome.status).collect();
    assert_eq!(status, [Status::Reached; 4]);
    assert!(all.is_sorted_by_key(|event| event.at));
    assert!(!all.iter().any(|event| matches!(&event.what, What::Mark(mark) if mark.stage == "mapping_available")));
}

#[test]
fn matching_again_with_a_choice_leaves_only_the_chosen_ones_marks() {
    let (mut events, lines, samples) = recorded();
    events.insert(5, event(50, What::Exec { pid: 8, argv: vec!["loader".into()] }));
    let mut chosen = one("{ log = 'weights' }");
    chosen.argv = vec!["loader".into()];
    let matched = rematch(vec![chosen, StageFile::load("generic").unwrap()], &events, &lines, &samples);
    let names: Vec<_> = matched
        .iter()
        .filter_map(|event| match &event.what {
            What::Mark(mark) => Some(mark.stage.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["s", "own"]);
}

#[test]
fn matching_again_takes_events_in_the_order_in_which_they_came() {
    let said = |at, stage: &str| {
        event(at, What::Notify { pid: Some(7), stage: Some(stage.into()), status: None, ready: false, verified: true })
    };
    // The notification tells of a time before the mapping was seen, but came after it.
    let events = [mapped(60), said(40, "s"), said(70, "t")];
    let matched = rematch(vec![one("{ mapping = 'any' }")], &events, &[], &[]);
    let found: Vec<_> = matched
        .iter()
        .filter_map(|event| match &event.what {
            What::Mark(mark) => Some((mark.stage.as_str(), event.at.0, mark.evidence)),
            _ => None,
        })
        .collect();
    assert_eq!(found, [("s", 60, By::Mapping), ("t", 70, By::Notify)]);
    let mut matcher = Matcher::new(vec![one("{ mapping = 'any' }")]);
    let live: Vec<Event> = events.iter().flat_map(|event| matcher.event(event)).collect();
    assert_eq!(live, matched, "as it was matched live");
}

#[test]
fn what_is_heard_after_the_end_was_said_before_it() {
    let stages =
        file("[[stage]]\nname = 'a'\nwhen = { log = 'x' }\n[[stage]]\nname = 'end'\nwhen = { exit = 'any' }\n");
    let born = |pid| event(0, What::Born { pid, parent: 1 });
    let gone = |at, pid| event(at, What::Gone { pid, code: Some(0), signal: None });
    let marked = |at: i64, uncertainty_ns, events: &[Event]| {
        let heard = Event { uncertainty_ns, ..mark(at, "a") };
        let all = [&[opened(0), born(7)], events, &[exit(50, 0), heard]].concat();
        let (at, uncertainty_ns, _) = outcomes(&stages, &all).remove(0).mark.unwrap();
        (at.0, uncertainty_ns)
    };
    assert_eq!(marked(80, Some(70), &[gone(51, 7)]), (50, Some(40)), "the earlier of what is told of one end");
    assert_eq!(marked(80, None, &[gone(50, 7)]), (50, None));
    assert_eq!(marked(40, Some(5), &[gone(50, 7)]), (40, Some(5)));
    assert_eq!(marked(80, Some(10), &[gone(50, 7)]), (80, Some(10)), "known to have come later");
    assert_eq!(marked(80, Some(70), &[born(8), gone(50, 7), gone(60, 8)]), (60, Some(50)), "a child outlived it");
    assert_eq!(marked(80, Some(70), &[born(8), gone(50, 7)]), (80, Some(70)), "and may live still");
    let exited = Event {
        what: What::Mark(Mark { stage: "end".into(), evidence: By::Exit, detail: String::new(), sampled: None }),
        ..exit(50, 0)
    };
    let late = Event { uncertainty_ns: Some(70), ..mark(80, "a") };
    let table = outcomes(&stages, &[opened(0), born(7), exit(50, 0), exited, late]);
    assert_eq!(table.iter().map(|row| row.mark.as_ref().unwrap().0.0).collect::<Vec<_>>(), [50, 50]);
}
