use super::*;
use crate::event::Stream;
use crate::event::{ArtifactId, Evidence as By};
use crate::metric::Values;
use crate::watch::{LineEnd, lost, not_heard, unseen};

/// Of a run of which nothing is known beside its events.
fn outcomes(stages: &StageFile, events: &[Event]) -> Vec<Outcome> {
    super::outcomes(stages, events, Beside::default())
}

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
fn a_stage_that_waits_is_what_the_awaited_one_is() {
    let after = |when: &str| {
        file(&format!(
            "[[stage]]\nname = 'a'\nwhen = {when}\n[[stage]]\nname = 'b'\nafter = ['a']\nwhen = {{ log = 'x' }}\n\
             [[stage]]\nname = 'c'\nafter = ['b']\nwhen = {{ exit = 'any' }}\n"
        ))
    };
    let told = |when: &str, events: &[Event]| {
        let outcomes = outcomes(&after(when), events).into_iter().skip(1);
        outcomes.map(|outcome| (outcome.status, outcome.reason)).collect::<Vec<_>>()
    };
    let both = |status, is: &str| {
        vec![(status, format!("waits for `a`, which {is}")), (status, format!("waits for `b`, which {is}"))]
    };
    assert_eq!(told("{ log = 'y' }", &[exit(9, 0)]), both(Status::NotReached, "was not reached"));
    assert_eq!(told("{ mapping = 'any' }", &[exit(9, 0)]), both(Status::Unknown, "is unknown"));
    let none =
        What::Absent { metric: Metric::DeviceLaunchBytes, reason: format!("{}: x", crate::probe::device::NO_DEVICE) };
    let device = "{ device = { rise = '1 B', still = '1 s' } }";
    assert_eq!(told(device, &[event(1, none), exit(9, 0)]), both(Status::NotApplicable, "does not apply"));
}

#[test]
fn a_tree_that_opens_no_artifact_could_not_have_shown_what_is_of_one() {
    for when in [
        "{ mapping = 'any' }",
        "{ residency = '99%' }",
        "{ unmap = '50%' }",
        "{ anon = { rise = '9%', still = '1 s' } }",
    ] {
        let outcome = outcomes(&one(when), &[exit(9, 0)]).remove(0);
        let wanted = (Status::Unknown, "no artifact was seen opened in this tree".to_string());
        assert_eq!((outcome.status, outcome.reason), wanted, "{when}");
    }
    // What it printed, did and how it ended was seen all the same.
    for when in ["{ exit = 1 }", "{ log = 'x' }", "{ first_output = 'line' }", "{ quiet = '1 s' }"] {
        let outcome = outcomes(&one(when), &[exit(9, 0)]).remove(0);
        assert_eq!(outcome.status, Status::NotReached, "{when}: {}", outcome.reason);
    }
    // But of a client it says nothing of where the work is done.
    let docker = event(0, What::Exec { pid: 7, argv: vec!["docker".into(), "run".into()] });
    for when in ["{ log = 'x' }", "{ quiet = '1 s' }", "{ mapping = 'any' }"] {
        let outcome = outcomes(&one(when), &[docker.clone(), exit(9, 0)]).remove(0);
        let wanted = "no artifact was seen opened in this tree: `docker` has others do the loading";
        assert_eq!((outcome.status, outcome.reason.as_str()), (Status::Unknown, wanted), "{when}");
    }
}

#[test]
fn what_was_stopped_did_not_end_by_itself() {
    let killed = event(9, What::Exit { pid: 7, code: None, signal: Some(15) });
    let told = |when: &str, stopped_at| {
        let events = [opened(0), killed.clone()];
        super::outcomes(&one(when), &events, Beside { stopped_at, values: None }).remove(0).reason
    };
    assert_eq!(told("{ log = 'x' }", None), "no line matched /x/; the command ended first: signal 15");
    assert_eq!(told("{ log = 'x' }", Some("ready")), "no line matched /x/; the run was stopped at ready first");
    assert_eq!(told("{ exit = 0 }", None), "the command ended otherwise: signal 15");
    assert_eq!(told("{ exit = 0 }", Some("ready")), "the run was stopped at ready first");
}

#[test]
fn notifications_that_could_not_be_heard_are_unknown() {
    let one_by = |when: &str, events: &[Event]| {
        let outcome = outcomes(&file(&format!("[[stage]]\nname = 's'\n{when}\n")), events).remove(0);
        (outcome.status, outcome.reason)
    };
    let deaf = event(0, What::warning(not_heard(&std::io::Error::from_raw_os_error(24))));
    for (when, none) in
        [("", "only by notification, and none came"), ("when = { notify = 'x' }", "no notification `x` came")]
    {
        let told = |events: &[Event]| one_by(when, events);
        assert_eq!(told(&[opened(0)]), (Status::NotReached, none.to_string()));
        let (status, reason) = told(&[opened(0), deaf.clone()]);
        assert!(status == Status::Unknown && reason.contains("could not be heard: Too many open files"), "{reason}");
        let nothing = format!("no artifact was seen opened in this tree; {none}");
        assert_eq!(told(&[]), (Status::Unknown, nothing));
    }
}

#[test]
fn reasons_have_values_in_them_or_say_why_not() {
    let stages = file(
        "argv = ['serve']\nvars = { n = { flag = '-n', default = '2' } }\n[[stage]]\nname = 'a'\n\
         when = { log = 'x', count = '{n}' }\n[[stage]]\nname = 'b'\nwhen = { file = '/tmp/{n}.done' }\n",
    );
    let told = |values: &[(&str, &str)]| {
        let values = values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let beside = Beside { stopped_at: None, values: Some(&values) };
        super::outcomes(&stages, &[opened(0)], beside).into_iter().map(|outcome| outcome.reason).collect::<Vec<_>>()
    };
    let known = told(&[("n", "3")]);
    assert_eq!(known[0], "fewer than 3 lines matched /x/");
    assert_eq!(known[1], "the file /tmp/3.done: no attempt by this definition is recorded");
    let unknown = told(&[]);
    let why = "its variables have no value, since no program ran that the stage file's `argv` fits";
    assert_eq!(unknown[0], format!("2 lines matching /x/: {why}"));
    assert_eq!(unknown[1], format!("the file /tmp/2.done: no attempt by this definition is recorded; {why}"));
    assert_eq!(told(&[("n", "all")])[0], "{n} lines matching /x/ cannot be counted: `all` is no number");
    let exec = event(0, What::Exec { pid: 7, argv: vec!["serve".into(), "-n5".into()] });
    assert_eq!(values(&stages, &[exec])["n"], "5");
}

#[test]
fn a_notification_is_a_part_of_a_condition() {
    let said = |at, name: &str| {
        event(at, What::Notify { pid: Some(7), stage: Some(name.into()), status: None, ready: false, verified: true })
    };
    let line =
        |at, text: &str| (At(at), Some(2), Line { stream: Stream::Stdout, bytes: text.into(), end: LineEnd::Newline });
    let stages = file(
        "[[stage]]\nname = 'both'\nwhen = { all = [ { notify = 'weights' }, { log = 'up' } ] }\n\
         [[stage]]\nname = 'one'\nwhen = { any = [ { notify = 'ready' }, { log = 'never' } ] }\n\
         [[stage]]\nname = 'later'\nafter = ['both']\nwhen = { notify = 'weights' }\n",
    );
    let ready = What::Notify { pid: None, stage: None, status: None, ready: true, verified: true };
    let events = [said(3, "weights"), event(5, ready), said(20, "weights"), said(25, "own")];
    let found = marks(&rematch(vec![stages.clone()], &events, &[line(8, "up")], &[]));
    let found: Vec<_> = found.iter().map(|(stage, at, _, by)| (stage.as_str(), *at, *by)).collect();
    assert_eq!(
        found,
        [("one", 5, By::Notify), ("both", 8, By::Several), ("later", 20, By::Notify), ("own", 25, By::Notify)],
        "what a condition names is no stage of its own"
    );
    // One that came before its stage opened counts if it tells of a time after that.
    let events = [said(30, "weights"), said(12, "both")];
    let found = marks(&rematch(vec![stages], &events, &[], &[]));
    assert_eq!(
        found.iter().map(|(stage, at, ..)| (stage.as_str(), *at)).collect::<Vec<_>>(),
        [("both", 12), ("later", 30)]
    );
}

#[test]
fn what_an_any_no_longer_needs_is_asked_no_more() {
    let text = "[[stage]]\nname = 's'\nwhen = { all = [ { any = [ { tcp = 'localhost:1' }, { residency = '50%' } ] }, \
                { file = 'a' } ] }\n[[stage]]\nname = 'm'\nwhen = { all = [ { any = [ { unix = 'b' }, { mapping = 'any' } ] }, \
                { log = 'x' } ] }\n";
    let mut matcher = Matcher::new(vec![file(text)]);
    let wanted =
        |matcher: &Matcher| matcher.wanted().into_iter().map(|wanted| (wanted.stage, wanted.part)).collect::<Vec<_>>();
    let at = |stage: &str, part| (stage.to_string(), part);
    assert_eq!(wanted(&matcher), [at("s", 0), at("s", 2), at("m", 0)]);
    let before = matcher.changes();
    assert!(
        matcher
            .sample(&samples(&[(5, &[(Metric::PayloadBytes, 100), (Metric::ResidentPayloadBytes, 60)])])[0])
            .is_empty()
    );
    assert_ne!(matcher.changes(), before, "nothing is marked, and yet something else is asked");
    assert_eq!(wanted(&matcher), [at("s", 2), at("m", 0)]);
    let before = matcher.changes();
    matcher.event(&mapped(6));
    assert_ne!(matcher.changes(), before);
    assert_eq!(wanted(&matcher), [at("s", 2)]);
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

fn answered(at: i64, began: i64, stage: &str, when: &str) -> Event {
    let condition = one(when).stages[0].when.clone().unwrap();
    let leaf = condition.leaves().into_iter().find(|leaf| leaf.is_asked()).unwrap().digest();
    let probe = crate::event::Probe {
        stage: stage.into(),
        by: By::Http,
        condition: leaf,
        target: "http://127.0.0.1:1/".into(),
        attempt: 3,
        began: At(began),
        accepted: true,
        outcome: "accepted".into(),
        first_byte: None,
        bytes: Some(2),
        is_cut: false,
        without_row: 0,
    };
    Event { at: At(at), uncertainty_ns: Some(7), what: What::Probe(probe) }
}

fn refused(at: i64, attempt: u64, when: &str) -> Event {
    let mut event = answered(at, at - 1, "s", when);
    if let What::Probe(probe) = &mut event.what {
        (probe.accepted, probe.outcome, probe.attempt) = (false, "refused".into(), attempt);
    }
    event
}

fn marks(events: &[Event]) -> Vec<(String, i64, Option<u64>, By)> {
    let found = events.iter().filter_map(|event| match &event.what {
        What::Mark(mark) => Some((mark.stage.clone(), event.at.0, event.uncertainty_ns, mark.evidence)),
        _ => None,
    });
    found.collect()
}

const GET: &str = "{ http = 'http://127.0.0.1:1/' }";

#[test]
fn an_accepted_answer_marks_the_stage_that_asked_for_it() {
    let events = [refused(4, 1, GET), answered(10, 3, "s", GET)];
    assert_eq!(marks(&rematch(vec![one(GET)], &events, &[], &[])), [("s".to_string(), 10, Some(7), By::Http)]);
    // The same request with another acceptance is another condition.
    let other = "{ http = { url = 'http://127.0.0.1:1/', status = 204 } }";
    assert_eq!(marks(&rematch(vec![one(other)], &events, &[], &[])), []);
    let outcome = outcomes(&one(other), &events).remove(0);
    assert_eq!(outcome.status, Status::Unknown);
    assert!(outcome.reason.contains("no attempt by this definition is recorded"), "{}", outcome.reason);
    let outcome = outcomes(&one(GET), &[refused(4, 1, GET), refused(5, 12, GET), exit(6, 1)]).remove(0);
    assert_eq!(outcome.status, Status::NotReached, "a client of a server needs no artifact in its tree");
    assert!(outcome.reason.contains("was not seen in 12 attempts; the last: refused"), "{}", outcome.reason);
}

#[test]
fn what_is_asked_depends_on_what_is_open() {
    let text = "argv = ['serve']\nvars = { port = { flag = '--port', env = ['PORT'], default = '1' } }\n\
                [[stage]]\nname = 'up'\nwhen = { any = [ { tcp = 'localhost:{port}' }, { log = 'up' } ] }\n\
                [[stage]]\nname = 'answers'\nafter = ['up']\nwhen = { http = 'http://localhost/' }\n\
                [[stage]]\nname = 'span'\nbegin = { file = 'a' }\nwhen = { all = [ { log = 'x' }, { unix = 'b' } ] }\n";
    let mut matcher = Matcher::new(vec![file(text)]);
    let wanted = |matcher: &Matcher| {
        let wanted = matcher.wanted().into_iter().map(|wanted| (wanted.stage, wanted.part));
        wanted.collect::<Vec<_>>()
    };
    let at = |stage: &str, part| (stage.to_string(), part);
    assert_eq!(wanted(&matcher), [at("span", 0)], "the port is not known yet");
    let exec = |argv: &[&str]| {
        event(1, What::Exec { pid: 7, argv: argv.iter().map(|argument| argument.to_string()).collect() })
    };
    matcher.event(&exec(&["sh", "--port", "5"]));
    assert!(matcher.values().is_empty(), "no program of this file");
    assert_eq!(matcher.environment_of(&["serve".to_string()]), ["PORT"]);
    matcher.event(&event(1, What::Environment { pid: 7, name: "PORT".into(), value: "2".into() }));
    let before = matcher.changes();
    matcher.event(&exec(&["serve"]));
    assert_ne!(matcher.changes(), before);
    assert_eq!(matcher.values()["port"], "2");
    matcher.event(&exec(&["serve", "--port=3"]));
    assert_eq!(matcher.values()["port"], "2", "the first that says it");
    assert_eq!(wanted(&matcher), [at("up", 0), at("span", 0)]);
    matcher.event(&event(
        5,
        What::Notify { pid: None, stage: Some("up".into()), status: None, ready: false, verified: true },
    ));
    assert_eq!(wanted(&matcher), [at("answers", 0), at("span", 0)]);
    let began = matcher.event(&answered(9, 8, "span", "{ file = 'a' }"));
    assert!(matches!(&began[..], [Event { at: At(9), what: What::Began { .. }, .. }]));
    assert_eq!(wanted(&matcher), [at("answers", 0), at("span", 2)]);
    matcher.event(&answered(10, 9, "span", "{ unix = 'b' }"));
    assert_eq!(wanted(&matcher), [at("answers", 0)]);
}

#[test]
fn a_span_has_a_begin_and_an_end() {
    let stages = file(
        "[[stage]]\nname = 'a'\nbegin = { log = 'begin a' }\nwhen = { log = 'end' }\n\
         [[stage]]\nname = 'b'\nbegin = { log = 'begin b' }\nwhen = { log = 'end b' }\n",
    );
    let line =
        |at, text: &str| (At(at), Some(2), Line { stream: Stream::Stdout, bytes: text.into(), end: LineEnd::Newline });
    // The first end stands before any beginning; the spans overlap.
    let lines = [line(1, "end"), line(5, "begin a"), line(6, "begin b"), line(9, "end a"), line(12, "end b")];
    let matched = rematch(vec![stages.clone()], &[opened(0)], &lines, &[]);
    let events = with_marks(&[opened(0)], matched);
    let table: Vec<_> = outcomes(&stages, &events)
        .iter()
        .map(|outcome| (outcome.begin.unwrap().0, outcome.mark.as_ref().unwrap().0.0))
        .collect();
    assert_eq!(table, [(5, 9), (6, 12)]);
    let never = outcomes(&stages, &[opened(0)]).remove(0);
    assert_eq!((never.status, never.reason.as_str()), (Status::NotReached, "not begun: no line matched /begin a/"));
    let matched = rematch(vec![stages.clone()], &[], &[line(5, "begin a")], &[]);
    let open = outcomes(&stages, &with_marks(&[opened(0)], matched)).remove(0);
    assert_eq!(
        (open.begin, open.reason.as_str()),
        (Some(At(5)), "begun at 0.000 s, and not ended: no line matched /end/")
    );
}

#[test]
fn lines_are_counted_up_to_a_number_from_the_command_line() {
    let stages = file(
        "vars = { ranks = { flag = '--tp', default = '1' } }\n[[stage]]\nname = 's'\nwhen = { log = 'x', count = '{ranks}' }\n",
    );
    let line = |at| (At(at), Some(0), Line { stream: Stream::Stdout, bytes: b"x".into(), end: LineEnd::Newline });
    let marked = |argv: &[&str]| {
        let argv = argv.iter().map(|argument| argument.to_string()).collect();
        let matched =
            rematch(vec![stages.clone()], &[event(0, What::Exec { pid: 1, argv })], &[line(1), line(2), line(3)], &[]);
        marks(&matched).first().map(|(_, at, ..)| *at)
    };
    assert_eq!(marked(&["serve"]), Some(1));
    assert_eq!(marked(&["serve", "--tp", "3"]), Some(3));
    assert_eq!(marked(&["serve", "--tp", "4"]), None);
    assert_eq!(marked(&["serve", "--tp", "all"]), None);
}

#[test]
fn first_output_is_a_byte_or_a_line_of_its_stream() {
    let stages = file(
        "[[stage]]\nname = 'byte'\nwhen = { first_output = 'byte' }\n[[stage]]\nname = 'line'\nwhen = { first_output = 'line' }\n\
         [[stage]]\nname = 'error'\nwhen = { first_output = 'line', stream = 'stderr' }\n",
    );
    let line = |at, stream, text: &str| (At(at), Some(2), Line { stream, bytes: text.into(), end: LineEnd::Newline });
    let events = [
        event(1, What::FirstOutput { stream: Stream::Stderr }),
        event(3, What::FirstOutput { stream: Stream::Stdout }),
    ];
    let lines = [line(2, Stream::Stderr, "oh"), line(4, Stream::Stdout, " "), line(5, Stream::Stdout, "token")];
    let found = marks(&rematch(vec![stages], &events, &lines, &[]));
    let found: Vec<_> = found.iter().map(|(stage, at, ..)| (stage.as_str(), *at)).collect();
    assert_eq!(found, [("error", 2), ("byte", 3), ("line", 5)]);
}

fn samples(of: &[(i64, &[(Metric, u64)])]) -> Vec<Sample> {
    let sample = |(t, figures): &(i64, &[(Metric, u64)])| {
        let mut values = Values::ABSENT;
        values.set(Metric::Processes, 1);
        figures.iter().for_each(|(metric, value)| values.set(*metric, *value));
        Sample { t: At(*t), late_ns: 0, cost_ns: 0, values }
    };
    of.iter().map(sample).collect()
}

#[test]
fn quiet_is_marked_where_it_began() {
    use Metric::{MajorFaults, MinorFaults, ReadBytes};
    const MS: i64 = 1_000_000;
    let figures = |t: i64, minor, read| (t * MS, [(MinorFaults, minor), (MajorFaults, 0), (ReadBytes, read)]);
    let all = [
        figures(10, 5, 0),
        figures(20, 5, 0),
        figures(30, 5, 7),
        figures(40, 6, 7),
        figures(50, 6, 7),
        figures(70, 6, 7),
        figures(90, 9, 7),
    ];
    let samples = samples(&all.iter().map(|(t, figures)| (*t, &figures[..])).collect::<Vec<_>>());
    let quiet = |when: &str| {
        let found = rematch(vec![one(when)], &[], &[], &samples);
        let sampled = found.iter().find_map(|event| match &event.what {
            What::Mark(mark) => mark.sampled.map(|at| at.0 / MS),
            _ => None,
        });
        marks(&found)
            .first()
            .map(|(_, at, uncertainty, _)| (at / MS, uncertainty.unwrap() as i64 / MS, sampled.unwrap()))
    };
    assert_eq!(quiet("{ quiet = '20 ms' }"), Some((40, 10, 40)));
    assert_eq!(quiet("{ quiet = { time = '20 ms', of = 'faults' } }"), Some((10, 10, 10)));
    assert_eq!(quiet("{ quiet = { time = '60 ms', of = 'reads' } }"), Some((30, 10, 30)));
    assert_eq!(quiet("{ quiet = '100 ms' }"), None);
    let absent = event(1, What::Absent { metric: ReadBytes, reason: "denied".into() });
    assert_eq!(lack("{ quiet = '1 s' }", &[absent]).0, Status::Unknown);
    // Quiet is counted from where the stage opens.
    let after = file("[[stage]]\nname = 'a'\n[[stage]]\nname = 's'\nafter = ['a']\nwhen = { quiet = '20 ms' }\n");
    let said = What::Notify { pid: None, stage: Some("a".into()), status: None, ready: false, verified: true };
    let found = marks(&rematch(vec![after], &[event(45 * MS, said)], &[], &samples));
    assert_eq!(found.iter().map(|(_, at, ..)| at / MS).collect::<Vec<_>>(), [45, 45]);
}

#[test]
fn what_was_unmapped_is_a_share_of_the_most_that_was_mapped() {
    let figures = |t, mapped| (t, [(Metric::MappedBytes, mapped)]);
    let all = [figures(1, 0), figures(2, 50), figures(3, 100), figures(4, 51), figures(5, 50), figures(6, 0)];
    let mut samples = samples(&all.iter().map(|(t, figures)| (*t, &figures[..])).collect::<Vec<_>>());
    samples[5].values.set(Metric::Processes, 0);
    let marked = |when: &str| marks(&rematch(vec![one(when)], &[], &[], &samples)).first().map(|(_, at, ..)| *at);
    assert_eq!(marked("{ unmap = '49%' }"), Some(4));
    assert_eq!(marked("{ unmap = '50%' }"), Some(5));
    assert_eq!(marked("{ unmap = '51%' }"), None, "the end of the processes is no unmapping");
}

#[test]
fn an_unmapping_has_the_time_of_the_reading_that_told_of_it() {
    let figures = |t, mapped| (t, [(Metric::MappedBytes, mapped)]);
    let all = [figures(10, 100), figures(20, 100), figures(500, 100), figures(900, 0)];
    let samples = samples(&all.iter().map(|(t, figures)| (*t, &figures[..])).collect::<Vec<_>>());
    let unmapped = |at, uncertainty_ns| {
        let what = What::Unmapped { pid: 7, artifact: ArtifactId(0) };
        Event { at: At(at), uncertainty_ns, what }
    };
    let marked = |events: &[Event]| {
        let found = rematch(vec![one("{ unmap = '50%' }")], events, &[], &samples);
        let sampled = found.iter().find_map(|event| match &event.what {
            What::Mark(mark) => mark.sampled,
            _ => None,
        });
        let (_, at, uncertainty, _) = marks(&found).remove(0);
        (at, uncertainty, sampled.unwrap().0)
    };
    assert_eq!(marked(&[]), (900, Some(900), 900), "since the extent was last seen to change");
    assert_eq!(marked(&[unmapped(517, Some(30))]), (517, Some(30), 900));
    assert_eq!(marked(&[unmapped(517, Some(30)), unmapped(600, Some(5))]), (600, Some(113), 900), "either of them");
    assert_eq!(marked(&[unmapped(15, Some(1)), unmapped(517, Some(30))]), (517, Some(30), 900), "seen by a look since");
    assert_eq!(marked(&[unmapped(517, None)]), (517, Some(517), 900));
}

#[test]
fn a_plateau_is_a_rise_and_then_nothing() {
    const MS: i64 = 1_000_000;
    let figures = |t: i64, used| (t * MS, [(Metric::DeviceLaunchBytes, used)]);
    let all = [
        figures(10, 100),
        figures(100, 100),
        figures(110, 150),
        figures(120, 200),
        figures(130, 200),
        figures(160, 200),
    ];
    let samples = samples(&all.iter().map(|(t, figures)| (*t, &figures[..])).collect::<Vec<_>>());
    let marked = |when: &str| {
        let found = marks(&rematch(vec![one(when)], &[], &[], &samples));
        found.first().map(|(_, at, uncertainty, _)| (at / MS, uncertainty.unwrap() as i64 / MS))
    };
    // What the first look saw was the launch's already.
    assert_eq!(marked("{ device = { rise = '100 B', still = '40 ms' } }"), Some((10, 10)));
    assert_eq!(marked("{ device = { rise = '200 B', still = '40 ms' } }"), Some((120, 10)));
    assert_eq!(marked("{ device = { rise = '201 B', still = '40 ms' } }"), None);
    let used = |(t, [(_, used)]): &(i64, [(Metric, u64); 1])| (*t, [(Metric::DeviceUsedBytes, *used)]);
    let used: Vec<_> = all.iter().map(used).collect();
    let samples = self::samples(&used.iter().map(|(t, figures)| (*t, &figures[..])).collect::<Vec<_>>());
    let marked = |when: &str| {
        let found = marks(&rematch(vec![one(when)], &[], &[], &samples));
        found.first().map(|(_, at, ..)| at / MS)
    };
    // Of what is in use, others may have had that.
    assert_eq!(marked("{ device = { rise = '100 B', still = '40 ms' } }"), Some(120));
    assert_eq!(marked("{ device = { rise = '101 B', still = '40 ms' } }"), None);
    let (status, reason) = lack("{ device = { rise = '1 B', still = '1 s' } }", &[]);
    assert_eq!((status, reason.contains("no device probe")), (Status::Unknown, true));
    let known = What::Present { metric: Metric::DeviceUsedBytes };
    let known = Event { at: At(1), uncertainty_ns: Some(0), what: known };
    let with = |used| {
        let what = What::DeviceUse { used, reason: "why".into() };
        let events = [known.clone(), Event { at: At(2), uncertainty_ns: Some(0), what }];
        lack("{ device = { rise = '1 B', still = '1 s' } }", &events)
    };
    assert_eq!(with(Some(false)), (Status::NotApplicable, "why".to_owned()));
    assert_eq!([with(Some(true)).0, with(None).0], [Status::NotReached, Status::Unknown]);
    assert_eq!(lack("{ device = { rise = '1 B', still = '1 s' } }", &[known]).0, Status::NotReached);
    let without = |reason: &str| {
        let what = What::Absent { metric: Metric::DeviceLaunchBytes, reason: reason.to_owned() };
        let when = "{ all = [ { device = { rise = '1 B', still = '1 s' } }, { log = 'x' } ] }";
        lack(when, &[Event { at: At(1), uncertainty_ns: Some(0), what }]).0
    };
    assert_eq!(without("no device was found: NVML: x"), Status::NotApplicable);
    assert_eq!(without("devices cannot be seen"), Status::Unknown);
}

#[test]
fn a_slow_driver_is_waited_for_and_no_other_figure_taken() {
    const MS: i64 = 1_000_000;
    let both = |launch, used| [(Metric::DeviceLaunchBytes, launch), (Metric::DeviceUsedBytes, used)];
    let only_used = [(Metric::DeviceUsedBytes, 900)];
    let (first, then) = (both(100, 500), both(300, 900));
    let when = "{ device = { rise = '200 B', still = '100 ms' } }";
    let marked = |without: &[i64], with: &[i64]| {
        let mut all: Vec<(i64, &[(Metric, u64)])> = vec![(10 * MS, &first), (20 * MS, &then)];
        all.extend(without.iter().map(|t| (t * MS, &only_used[..])));
        all.extend(with.iter().map(|t| (t * MS, &then[..])));
        all.sort_by_key(|(t, _)| *t);
        marks(&rematch(vec![one(when)], &[], &[], &samples(&all))).first().map(|(_, at, ..)| at / MS)
    };
    assert_eq!(marked(&[30, 40, 50, 60], &[130]), Some(20), "without the share for less than half of the time");
    // And for longer: two answers alike do not tell what was between them, three in a row are that pace's stillness.
    assert_eq!(marked(&[30, 60, 90, 120], &[130]), None);
    assert_eq!(marked(&[30, 60, 90, 120], &[130, 160]), Some(20));
    assert_eq!(marked(&[30, 90, 400, 800], &[410, 1_300]), Some(20), "no more than a second apart");
    assert_eq!(marked(&[30, 90, 1_000, 1_100], &[1_200, 1_250]), None, "a driver that was silent");
    // A first answer without the list of processes, when all had been taken already: what is in use rises no more.
    let all: [(i64, &[(Metric, u64)]); 4] =
        [(10 * MS, &only_used), (20 * MS, &then), (70 * MS, &then), (130 * MS, &then)];
    let found = marks(&rematch(vec![one(when)], &[], &[], &samples(&all)));
    assert_eq!(found.first().map(|(_, at, ..)| at / MS), Some(20), "the share counts from nothing");
}
