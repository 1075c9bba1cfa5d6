//! `compare.html`: what it says of comparisons, of series and of refusals, and that nothing in a run can break out of it.
//! What a browser makes of it is tested in `tests/browser`.

use stagemark::account::StageTable;
use stagemark::clock::At;
use stagemark::compare::{Arm, Comparison, Options, Quantity};
use stagemark::event::{Evidence, What};
use stagemark::metric::Metric;
use stagemark::report::compare::paired::{Against, ArmValues, Figure, Output, Paired};
use stagemark::report::html::compared::{Refused, page, refusal};
use stagemark::report::plot::compared;

use crate::compare::{arms, at, compared_as, marks_of, refused, run, runs, varying};
use crate::html::{HOSTILE, holds_own_markup_alone, own_part};
use crate::reports::golden;
use crate::support::{finish, stagemark};

fn page_of(arms: &[Arm], comparison: &Comparison, series: Option<&Paired>) -> String {
    page(arms, comparison, series, &compared::svg(arms, comparison).unwrap())
}

#[test]
fn a_page_is_the_same_each_time_and_as_it_was_looked_at() {
    let published = arms(vec![run("pr-before"), run("pr-after")]);
    let comparison = compared_as(&published, &varying(&["commit"]));
    let made = page_of(&published, &comparison, None);
    assert_eq!(made, page_of(&published, &comparison, None));
    golden("compare.published.html", &own_part(&made));
    let apart = arms(vec![run("at-mapping"), run("after-placement")]);
    let made = refusal(&apart, &Refused::from(&refused(&apart, &Options::default())), None);
    golden("compare.refused.html", &own_part(&made));
}

#[test]
fn a_page_needs_nothing_and_lets_nothing_in() {
    let arms = arms(vec![run("mmap"), run("read")]);
    let page = page_of(&arms, &compared_as(&arms, &Options::default()), None);
    let (_, policy) = page.split_once("http-equiv=\"Content-Security-Policy\" content=\"").unwrap();
    let (policy, _) = policy.split_once("\">").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
    let body = own_part(&page);
    for means in ["http:", "https:", " style=", "<link", "<script", " on"] {
        assert!(!body.contains(&format!("<{means}")) && (means == " on" || !body.contains(means)), "{means}");
    }
    assert!(page.len() < 300_000, "{}", page.len());
}

/// Host memory, devices and time stand before everything else, and then what was not expected of the runs.
#[test]
fn what_a_reader_signs_for_stands_first() {
    let arms = arms(vec![run("mmap"), run("read"), run("mmap")]);
    let page = own_part(&page_of(&arms, &compared_as(&arms, &Options::default()), None));
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    let order = [
        "one definition, shown by http in all",
        "against A – host memory: at least 92% more · device memory, peak: samples: the same · time: at least 19% faster.",
        "Host memory at first_response",
        "Device memory, peak at first_response",
        "Time at first_response",
        "NOT LIKE FOR LIKE: 1 unexplained",
        "unexplained argv:words — A, C: --mmap · B: --read (the words that differ)",
        "<main>",
        "at first_response, the stopping event; + since module_populated",
        "at module_populated",
        "<section id=\"timeline\"",
        "unexplained: 1",
        "same: ",
        "A and C are one and the same run",
    ];
    let places: Vec<usize> = order.iter().map(|text| place(text)).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_declared_event_is_marked() {
    let mut other = run("mmap");
    marks_of(&mut other, |_, mark| {
        if mark.stage == "first_response" {
            mark.evidence = Evidence::Log;
        }
    });
    let arms = arms(vec![run("mmap"), other]);
    let declared = compared_as(&arms, &Options { same_event: true, ..Options::default() });
    let page = page_of(&arms, &declared, None);
    assert!(page.contains("<div class=\"box marked\" role=\"note\">\n<p>From the command&#39;s start to first_response, which was DECLARED to be the same event in all"), "{}", own_part(&page));
    assert!(page.contains("shown by log"));
}

#[test]
fn a_refusal_has_no_figures_and_leaves_no_others() {
    let scratch = tempfile::tempdir().unwrap();
    let ask = |folders: [&str; 2]| {
        let mut command = stagemark();
        command.current_dir(runs()).arg("compare").args(folders).arg("--out").arg(scratch.path());
        let output = finish(&mut command);
        (output.status.code(), std::fs::read_to_string(scratch.path().join("compare.html")).unwrap())
    };
    let (status, page) = ask(["at-mapping", "after-placement"]);
    assert_eq!(status, Some(3));
    // It, and the JSON that says the same.
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 2);
    assert!(scratch.path().join("compare.json").is_file());
    assert!(page.contains("A ends at mapping_available, B ends at gpu_placed: different finish lines"), "{page}");
    assert!(page.contains("<td>mapping_available, module_populated, gpu_placed</td>"), "{page}");
    let body = own_part(&page);
    for unit in [" s<", " s)", " s,", " s.", " ms", "MiB", "GiB", "KiB", " B<", "ns"] {
        let figure = body.match_indices(unit).find(|(at, _)| body[..*at].ends_with(|c: char| c.is_ascii_digit()));
        assert_eq!(figure, None, "{body}");
    }
    // The page of a comparison gives way to that of a refusal.
    let (status, page) = ask(["mmap", "read"]);
    assert_eq!((status, page.contains("GiB")), (Some(0), true));
    let (status, page) = ask(["at-mapping", "after-placement"]);
    assert_eq!((status, page.contains("GiB")), (Some(3), false));
}

/// A series' words, each of them what somebody else chose.
fn hostile_series() -> Paired {
    let text = || HOSTILE.to_owned();
    let values = ArmValues { arm: text(), values: text(), remarks: vec![text(), text()] };
    let against = Against { arm: text(), ratios: text(), verdict: text() };
    let digests = vec![(text(), Ok(text())), (text(), Err(text()))];
    Paired {
        figures: vec![Figure { of: Quantity::Time, all_same: None, arms: vec![values], against: vec![against] }],
        outputs: vec![Output { of: text(), verdict: text(), digests }],
        notes: vec![text()],
    }
}

#[test]
fn nothing_of_a_run_becomes_markup() {
    let hostile = || {
        let mut run = run("mmap");
        let meta = &mut run.meta;
        meta.argv = vec![HOSTILE.to_owned(), HOSTILE.to_owned()];
        meta.started = HOSTILE.to_owned();
        meta.losses = vec![HOSTILE.to_owned()];
        meta.environment.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
        meta.host.cpu_model = Some(HOSTILE.to_owned());
        meta.condition.state.insert(HOSTILE.to_owned(), 1);
        meta.stages.name = HOSTILE.to_owned();
        meta.stages.status = "unverified".to_owned();
        meta.until = meta.until.take().map(|until| until + HOSTILE);
        meta.absent.iter_mut().for_each(|absent| absent.reason = HOSTILE.to_owned());
        meta.stages.stages.iter_mut().for_each(|stage| stage.name.push_str(HOSTILE));
        run.folder = HOSTILE.into();
        run.gaps = vec![HOSTILE.to_owned()];
        marks_of(&mut run, |_, mark| {
            mark.stage.push_str(HOSTILE);
            mark.detail = HOSTILE.to_owned();
        });
        run
    };
    let mut other = hostile();
    other.meta.host.cpu_model = Some(format!("other {HOSTILE}"));
    other.meta.argv.push("more".to_owned());
    let mut both = arms(vec![hostile(), other]);
    both.iter_mut().for_each(|arm| arm.name.push_str(HOSTILE));
    let comparison = compared_as(&both, &Options::default());
    let series = hostile_series();
    for series in [None, Some(&series)] {
        let page = page_of(&both, &comparison, series);
        holds_own_markup_alone(&page, 0);
        assert!(page.contains("&lt;/script&gt;") && page.ends_with("</html>\n"));
        let why = Refused::from(&refused(&both, &at("no_such_stage")));
        holds_own_markup_alone(&refusal(&both, &why, series), 0);
    }
    let why = Refused { why: HOSTILE.to_owned(), ..Refused::default() };
    holds_own_markup_alone(&refusal(&[], &why, None), 0);
}

/// Odd runs give a page, not an error: any numbers, no samples, many arms, arms of several runs.
#[test]
fn a_page_can_be_made_of_any_comparison() {
    for extreme in [0, 1, u64::MAX] {
        let mut other = run("mmap");
        for sample in &mut other.samples {
            stagemark::metric::ALL.iter().for_each(|metric| sample.values.set(*metric, extreme));
        }
        let arms = arms(vec![run("mmap"), other.clone(), run("read"), other]);
        holds_own_markup_alone(&page_of(&arms, &compared_as(&arms, &Options::default()), None), 0);
    }
    let mut empty = run("mmap");
    empty.samples.clear();
    let mut all = arms(vec![run("mmap"), empty]);
    let page = page_of(&all, &compared_as(&all, &Options::default()), None);
    assert!(page.contains("Not known: "), "{}", own_part(&page));
    // Of several runs the median stands with the least and the most, and each run's own behind it.
    let mut slow = run("mmap");
    marks_of(&mut slow, |time, _| *time = At(time.0 + 1_000_000_000));
    slow.events.retain(|event| matches!(event.what, What::Mark(_)) || event.at < At(1));
    let table = StageTable::of(&slow);
    all[0].runs.push((slow, table));
    let comparison = compared_as(&all, &Options::default());
    let page = own_part(&page_of(&all, &comparison, None));
    assert!(page.contains("A: median of 2 runs, and range"), "{page}");
    let time = comparison.at_the_end().unwrap().figure(Quantity::Time).unwrap();
    let of_second = time.cells[0][1].as_ref().unwrap().high.unwrap();
    assert!(page.contains("run 2: ") && page.contains(&of_second.to_string()), "{page}");
    assert!(comparison.stages[0].figure(Quantity::Value(Metric::RssBytes)).is_some());
}
