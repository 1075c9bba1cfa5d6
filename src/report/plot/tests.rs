use std::path::Path;

use super::*;
use crate::stage::{Outcome, Status};

/// A run folder of `fixtures/runs`, with its table.
fn load(name: &str) -> (Run, StageTable) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs").join(name);
    let run = Run::load(&folder).unwrap();
    let table = table(&run);
    (run, table)
}

fn table(run: &Run) -> StageTable {
    let outcome = |name: &str| {
        let mark = run.events.iter().find_map(|event| match &event.what {
            What::Mark(mark) if mark.stage == name => Some((event.at, event.uncertainty_ns, mark.clone())),
            _ => None,
        });
        let status = if mark.is_some() { Status::Reached } else { Status::NotReached };
        Outcome { stage: name.to_owned(), status, reason: String::new(), begin: None, mark }
    };
    StageTable::build(run.meta.stages.stages.iter().map(|stage| outcome(&stage.name)).collect(), run)
}

#[test]
#[ignore = "writes pictures to look at into the folder PICTURES names"]
fn pictures_to_look_at() {
    let Some(folder) = std::env::var_os("PICTURES") else { return };
    for name in ["lazy", "heap", "fifteen-stages", "absent", "ml-216"] {
        let (run, table) = load(name);
        let began = std::time::Instant::now();
        let bytes = png(&run, &table).unwrap();
        eprintln!("{name} png {:?} {} bytes", began.elapsed(), bytes.len());
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
        let began = std::time::Instant::now();
        let text = svg(&run, &table).unwrap();
        eprintln!("{name} svg {:?} {} bytes", began.elapsed(), text.len());
        std::fs::write(Path::new(&folder).join(format!("{name}.svg")), text).unwrap();
    }
    let (mut run, _) = load("lazy");
    run.samples.drain(0..100);
    run.samples.truncate(1);
    std::fs::write(Path::new(&folder).join("one-sample.png"), png(&run, &table(&run)).unwrap()).unwrap();
}

/// Half a million samples: the picture is as fast as that of a hundred, and no peak is lost.
#[test]
fn a_long_run_is_thinned() {
    let (mut run, _) = load("lazy");
    let pattern = run.samples.clone();
    run.samples = (0..500_000)
        .map(|index| {
            let mut sample = pattern[index * pattern.len() / 500_000].clone();
            sample.t = At(index as i64 * 20_000_000);
            sample
        })
        .collect();
    run.samples[250_001].values.set(Metric::RssBytes, 5 << 30);
    run.meta.until = None;
    run.meta.exit = None;
    let began = std::time::Instant::now();
    let table = table(&run);
    eprintln!("accounted in {:?}", began.elapsed());
    let began = std::time::Instant::now();
    let picture = compose(&run, &table);
    eprintln!("composed in {:?}", began.elapsed());
    let began = std::time::Instant::now();
    let bytes = picture.svg().unwrap().len();
    eprintln!("{bytes} bytes of svg in {:?}", began.elapsed());
    let points: usize = picture
        .shapes
        .iter()
        .map(|shape| match shape {
            scene::Shape::Area { points, .. } | scene::Shape::Line { points, .. } => points.len(),
            _ => 0,
        })
        .sum();
    assert!(points < 150_000, "{points}");
    assert!(picture.svg().unwrap().contains("4 GiB"), "the axis reaches to the one high sample");
}

/// Every text is inside the picture, and none lies over another, in every run at hand.
#[test]
fn no_text_leaves_the_picture_or_lies_over_another() {
    for name in ["lazy", "heap", "fifteen-stages", "absent", "ml-216"] {
        let (mut run, _) = load(name);
        // Once as it is, once with names that are far too long for everything.
        for long in [false, true] {
            if long {
                run.meta.argv = vec!["word".repeat(100); 5];
                run.meta.absent.iter_mut().for_each(|absent| absent.reason = "because ".repeat(60));
                run.meta.stages.stages.iter_mut().for_each(|stage| stage.name.push_str(&"_and_more".repeat(12)));
                for event in &mut run.events {
                    if let What::Mark(mark) = &mut event.what {
                        mark.stage.push_str(&"_and_more".repeat(12));
                    }
                }
            }
            let picture = compose(&run, &table(&run));
            let texts: Vec<&scene::Text> = picture
                .shapes
                .iter()
                .filter_map(|shape| match shape {
                    scene::Shape::Text(text) => Some(text),
                    _ => None,
                })
                .collect();
            assert!(texts.len() > 10);
            for (index, text) in texts.iter().enumerate() {
                let (left, top, right, bottom) = text.bounds();
                assert!(0 < left && right < WIDTH && 0 < top && bottom < scene::HEIGHT, "{name}: {text:?}");
                for other in &texts[..index] {
                    let (l, t, r, b) = other.bounds();
                    assert!(right <= l || r <= left || bottom <= t || b <= top, "{name}: {text:?} over {other:?}");
                }
            }
        }
    }
}

/// What is not known is not drawn: without residency there is no blue, and its panel says why.
#[test]
fn nothing_is_drawn_of_what_is_absent() {
    let (run, _) = load("absent");
    let svg = compose(&run, &table(&run)).svg().unwrap();
    assert!(svg.contains("payload, resident payload not measured: model.bin"), "the reason is there");
    assert!(!svg.contains("mapped, not resident"), "no key of a series that is not there");
    let (run, _) = load("ml-216");
    let svg = compose(&run, &table(&run)).svg().unwrap();
    assert!(svg.contains("minor faults, major faults not measured: not in the published figures"));
}

/// A file can say anything: times out of order and at the ends of their range, values at theirs.
#[test]
fn no_run_breaks_the_picture() {
    let (mut run, _) = load("lazy");
    let sample = run.samples[100].clone();
    let times = [5, i64::MAX, 3, i64::MIN, -7, 0, i64::MAX - 1, 2];
    run.samples = (0..30_000).map(|index| Sample { t: At(times[index % times.len()]), ..sample.clone() }).collect();
    for event in &mut run.events {
        event.at = At(i64::MIN);
        event.uncertainty_ns = Some(u64::MAX);
    }
    for length in [30_000, 100, 3] {
        run.samples.truncate(length);
        compose(&run, &table(&run)).svg().unwrap();
    }
    run.samples.iter_mut().for_each(|sample| Metric::counters().for_each(|metric| sample.values.set(metric, u64::MAX)));
    compose(&run, &table(&run)).png().unwrap();
}

/// The last slow samples: what processes hold falls when they are gone, not on the way there.
#[test]
fn what_processes_hold_is_held_to_their_end() {
    let (run, _) = load("lazy");
    let mut before = run.samples[100].clone();
    before.values.set(Metric::Processes, 2);
    before.values.set(Metric::RssBytes, 77);
    let mut over = before.clone();
    over.t = At(before.t.0 + 1_000_000_000);
    over.values.set(Metric::Processes, 0);
    over.values.set(Metric::RssBytes, 0);
    let held = series::held_to_the_end(&[before.clone(), over.clone(), over.clone()], None);
    let rss = series::stretches(&held, |values| values.get(Metric::RssBytes));
    assert_eq!(rss, [vec![(before.t.0, 77.0), (over.t.0, 77.0), (over.t.0, 0.0), (over.t.0, 0.0)]]);

    // Where the end is known, they hold it until then, and nothing is drawn of them later.
    let end = At(before.t.0 + 600_000_000);
    before.values.set(Metric::ResidentPayloadBytes, 1_000);
    over.values.set(Metric::ResidentPayloadBytes, 0);
    before.values.set(Metric::MinorFaults, 5);
    over.values.set(Metric::MinorFaults, 11);
    let held = series::held_to_the_end(&[before.clone(), over.clone()], Some(end));
    let of = |metric: Metric| series::stretches(&held, |values| values.get(metric)).remove(0);
    assert_eq!(of(Metric::RssBytes), [(before.t.0, 77.0), (end.0, 77.0), (end.0, 0.0), (over.t.0, 0.0)]);
    let resident = [(before.t.0, 1_000.0), (end.0, 400.0), (end.0, 400.0), (over.t.0, 0.0)];
    assert_eq!(of(Metric::ResidentPayloadBytes), resident);
    let rates = series::rates(series::until_the_end(&held, Some(end)), Metric::MinorFaults, 1);
    assert_eq!(rates, [vec![(before.t.0, 10.0), (end.0, 10.0)]]);
}

/// Where no sample was taken for long, the picture says so.
#[test]
fn a_pause_is_pale() {
    const WORDS: &str = "pale: no sample in between";
    let (mut run, _) = load("lazy");
    let tick = i64::try_from(run.meta.interval_ns).unwrap();
    assert!(series::pauses(&run).is_empty());
    assert!(!svg(&run, &table(&run)).unwrap().contains(WORDS));
    let at = run.samples[100].t;
    run.samples.retain(|sample| sample.t <= at || sample.t.0 > at.0 + 20 * tick);
    let next = run.samples.iter().find(|sample| sample.t > at).unwrap().t;
    assert_eq!(series::pauses(&run), [(at, next)]);
    assert!(svg(&run, &table(&run)).unwrap().contains(WORDS));
}

/// A minute of steady state behind a stopping event of the first second does not squeeze the way to it; the end, which
/// is not shown then, has a footnote.
#[test]
fn a_long_steady_state_is_cut() {
    let (mut run, _) = load("lazy");
    let way = compose(&run, &table(&run));
    let end = At(3_600_000_000_000);
    let exited = crate::event::Mark {
        stage: "exited".into(),
        evidence: crate::event::Evidence::Exit,
        detail: "exit 0".into(),
        sampled: None,
    };
    let definition = crate::stage::Definition { name: "exited".into(), after: Vec::new(), begin: None, when: None };
    run.meta.stages.stages.push(definition);
    run.events.push(crate::event::Event { at: end, uncertainty_ns: Some(0), what: What::Mark(exited) });
    let mut last = run.samples.last().unwrap().clone();
    last.t = end;
    run.samples.push(last);
    let svg = compose(&run, &table(&run)).svg().unwrap();
    assert!(svg.contains(" of 3600 s · exited at 3600 s"), "{svg}");
    assert!(svg.contains("shown to "));
    let ticks = |svg: &str| svg.matches(" s\n").count();
    assert!(ticks(&svg).abs_diff(ticks(&way.svg().unwrap())) < 10);
}

#[test]
fn scripts_in_a_title_stand_on_one_line() {
    assert_eq!(one_line("\\x0aimport time\\x0a\\x09x = 'a\\\\x0ab'\\xff"), "import time x = 'a\\\\x0ab'\\xff");
    assert_eq!(one_line("a\\"), "a\\");
    assert_eq!(one_line("a\\ä"), "a\\ä");
}

/// The foot has every word of what it says, in as many lines as that needs, and signs that stand in every panel are told.
#[test]
fn the_foot_is_whole_and_signs_have_a_legend() {
    let (mut run, _) = load("lazy");
    let mut table = table(&run);
    let before = compose(&run, &table).svg().unwrap();
    assert!(!before.contains("somewhere in the band") && !before.contains("a span, from"));
    let reason = (0..60).map(|n| format!("reason{n}")).collect::<Vec<_>>().join(" ");
    let begin = Some(At(10_000_000));
    if let Some((at, uncertainty, _)) = &mut table.rows[1].outcome.mark {
        *uncertainty = Some(at.0 as u64 / 2);
        table.rows[1].outcome.begin = begin;
    }
    let missed =
        Outcome { stage: "missed".into(), status: Status::NotReached, reason: reason.clone(), begin: None, mark: None };
    table.rows.push(StageTable::build(vec![missed], &run).rows.remove(0));
    // A sample without residency in the middle of the picture.
    let middle = run.samples.len() / 3;
    for sample in &mut run.samples[middle..middle + 20] {
        sample.values.set(Metric::ResidentPayloadBytes, None);
    }
    let picture = compose(&run, &table);
    let texts: String = picture
        .shapes
        .iter()
        .filter_map(|shape| match shape {
            scene::Shape::Text(text) => Some(format!("{} ", text.text)),
            _ => None,
        })
        .collect();
    for told in ["somewhere in the band", "not known", "a span, from its beginning", "0.010 s – 1.687 s", &reason] {
        assert!(texts.contains(told), "{told}: {texts}");
    }
    let spans = picture
        .shapes
        .iter()
        .filter(|shape| matches!(shape, scene::Shape::Rect { fill, .. } if *fill == Palette::SPAN));
    assert_eq!(spans.count(), 3, "a bar, its beginning, and the legend's");
    if let Some(folder) = std::env::var_os("PICTURES") {
        std::fs::write(Path::new(&folder).join("signs.png"), picture.png().unwrap()).unwrap();
    }
    table.rows.last_mut().unwrap().outcome.reason = reason.repeat(20);
    let svg = compose(&run, &table).svg().unwrap();
    assert!(svg.contains("reason") && svg.contains("… the rest is in stages.csv"));
}
