//! `report.html` of the run folders of `fixtures/runs`: what it says, and that nothing in a run can break out of it. What a
//! browser makes of it is tested in `tests/browser`.

use stagemark::account::StageTable;
use stagemark::clock::At;
use stagemark::event::{Event, What};
use stagemark::metric::Metric;
use stagemark::probe::device::Device;
use stagemark::report::html::{Pictures, page};
use stagemark::report::plot;
use stagemark::run::{Detail, Run, Scope};

use crate::faults::made_up;
use crate::reports::{golden, load, outcomes};

const RUNS: [&str; 5] = ["ml-216", "lazy", "heap", "fifteen-stages", "absent"];

fn html(run: &Run, table: &StageTable) -> String {
    let timeline = plot::svg(run, table).unwrap();
    let touched = run.tensors.as_ref().map(|found| plot::touched::svg(run, found, table).unwrap());
    page(run, table, Pictures { timeline: &timeline, touched: touched.as_deref() }).unwrap()
}

/// What stands between two texts, and the rest.
fn between<'a>(text: &'a str, from: &str, to: &str) -> (&'a str, &'a str) {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from}"));
    rest.split_once(to).unwrap_or_else(|| panic!("no {to}"))
}

/// The part of a page that is of the run: without the styles, the scripts, the pictures and the glossary, which are the
/// same in every page or have goldens of their own.
pub fn own_part(page: &str) -> String {
    let end = if page.contains("<script>") { "<script>" } else { "</body>" };
    let (body, _) = between(page, "<body>\n", end);
    let mut part = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once("data:image/svg+xml;base64,") {
        part.push_str(before);
        part.push_str("PICTURE");
        rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "+/=".contains(c));
    }
    part.push_str(rest);
    if let Some((before, glossary)) = part.split_once("<section id=\"glossary\"") {
        let (_, after) = glossary.split_once("</section>\n").unwrap();
        part = format!("{before}{after}");
    }
    part.replace("],\"", "],\n\"").replace("},{", "},\n{")
}

/// The JSON block.
fn data(page: &str) -> serde_json::Value {
    let (json, _) = between(page, "<script id=\"data\" type=\"application/json\">", "</script>");
    assert!(!json.contains(['<', '>', '&']));
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_page_is_the_same_each_time_and_as_it_was_looked_at() {
    for name in RUNS {
        let (run, table) = load(name);
        assert_eq!(html(&run, &table), html(&run, &table), "{name}");
    }
    for name in ["ml-216", "absent"] {
        let (run, table) = load(name);
        golden(&format!("{name}.html"), &own_part(&html(&run, &table)));
    }
    let (run, table) = made_up();
    golden("lazy.html", &own_part(&html(&run, &table)));
}

/// Where a folder lies is in none of its files, and so not in the page.
#[test]
fn a_page_does_not_know_where_its_folder_is() {
    let (mut run, table) = load("lazy");
    let before = html(&run, &table);
    run.folder = "/somewhere/else".into();
    assert_eq!(html(&run, &table), before);
}

#[test]
fn a_page_needs_nothing_and_lets_nothing_in() {
    let (run, table) = load("lazy");
    let page = html(&run, &table);
    let (policy, _) = between(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\">");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
    assert_eq!(policy.matches("sha256-").count(), 4);
    let body = own_part(&page);
    assert!(
        !body.contains("http:") && !body.contains("https:") && !body.contains(" style=") && !body.contains("<link")
    );
    assert!(page.len() < 400_000, "{}", page.len());
}

/// The tags of a page, without the ones of its own scripts.
fn tags(page: &str) -> Vec<String> {
    let end = if page.contains("<script id=") { "<script id=" } else { "</body>" };
    let (body, _) = between(page, "<body>", end);
    body.split('<').skip(1).map(|rest| rest.split('>').next().unwrap().to_owned()).collect()
}

/// What would harm if it were markup.
pub const HOSTILE: &str =
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" onload='x' {{data}} \u{202e}\u{1b}[2J\0&lt;";

/// Every tag of the page is one that pages have, with attributes that they have, and nothing moves a cursor.
#[track_caller]
pub fn holds_own_markup_alone(page: &str, scripts: usize) {
    let known = [
        "header", "main", "section", "h1", "h2", "h3", "p", "span", "div", "dl", "dt", "dd", "table", "thead", "tbody",
        "tr", "th", "td", "figure", "img", "details", "summary", "pre", "code", "strong",
    ];
    let attributes = [
        "id",
        "class",
        "title",
        "scope",
        "colspan",
        "hidden",
        "tabindex",
        "role",
        "aria-label",
        "aria-labelledby",
        "alt",
        "src",
    ];
    for tag in tags(page) {
        let (tag, rest) = tag.split_once(' ').unwrap_or((&tag, ""));
        assert!(known.contains(&tag.trim_start_matches('/')), "<{tag} {rest}>");
        // Outside of their quotes attributes are names alone.
        let outside: String = rest.split('"').step_by(2).collect();
        for attribute in outside.split_whitespace() {
            assert!(attributes.contains(&attribute.trim_end_matches('=')), "<{tag} {rest}>");
        }
    }
    assert_eq!(page.matches("<script").count(), scripts);
    assert!(!page.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'));
}

#[test]
fn nothing_of_a_run_becomes_markup() {
    let hostile = HOSTILE;
    for name in RUNS {
        let (mut run, _) = load(name);
        run.meta.argv = vec![hostile.to_owned(), hostile.to_owned()];
        run.meta.directory = hostile.to_owned();
        run.meta.started = hostile.to_owned();
        run.meta.warnings = vec![hostile.to_owned()];
        run.meta.losses = vec![hostile.to_owned()];
        run.gaps = vec![hostile.to_owned()];
        run.meta.environment.insert(hostile.to_owned(), hostile.to_owned());
        run.meta.variables.insert(hostile.to_owned(), hostile.to_owned());
        run.meta.host.cpu_model = Some(hostile.to_owned());
        run.meta.host.container = vec![hostile.to_owned()];
        run.meta.condition.artifacts = hostile.to_owned();
        run.meta.condition.load = Some(hostile.to_owned());
        run.meta.condition.pressure.insert(hostile.to_owned(), hostile.to_owned());
        run.meta.condition.state.insert(hostile.to_owned(), 1);
        run.meta.sources.insert(hostile.to_owned(), Default::default());
        run.meta.stages.name = hostile.to_owned();
        run.meta.stages.status = "unverified".to_owned();
        run.meta.until = Some(hostile.to_owned());
        for artifact in &mut run.meta.artifacts {
            artifact.path = format!("/a/{hostile}");
            artifact.payload_reason = Some(hostile.to_owned());
            artifact.filesystem = Some(hostile.to_owned());
            artifact.state = hostile.to_owned();
            artifact.bytes_by_dtype.insert(hostile.to_owned(), 1);
        }
        run.meta.absent.iter_mut().for_each(|absent| absent.reason = hostile.to_owned());
        run.meta.stages.stages.iter_mut().for_each(|stage| stage.name.push_str(hostile));
        for event in &mut run.events {
            if let What::Mark(mark) = &mut event.what {
                mark.stage.push_str(hostile);
                mark.detail = hostile.to_owned();
            }
        }
        let argv = vec![hostile.to_owned()];
        run.events.push(Event { at: At(5), uncertainty_ns: None, what: What::Exec { pid: 7, argv } });
        let table = StageTable::build(outcomes(&run), &run);
        let page = html(&run, &table);
        holds_own_markup_alone(&page, 3);
        data(&page);
    }
}

/// Odd runs give a page, not an error: no samples, one, all at one instant, out of order, none with a value.
#[test]
fn a_page_can_be_made_of_any_run() {
    for name in RUNS {
        for kept in [0, 1, 2] {
            let (mut run, _) = load(name);
            run.samples.truncate(kept);
            for keep_marks in [true, false] {
                if !keep_marks {
                    run.events.clear();
                    run.meta.exit = None;
                    run.meta.cost = None;
                }
                let table = StageTable::build(outcomes(&run), &run);
                let page = html(&run, &table);
                assert_eq!(data(&page)["samples"], run.samples.len());
                assert!(page.ends_with("</html>\n"));
            }
        }
    }
    let (mut run, _) = load("lazy");
    run.samples.reverse();
    let table = StageTable::build(outcomes(&run), &run);
    data(&html(&run, &table));
    for sample in &mut run.samples {
        sample.t = At(0);
        Metric::gauges().for_each(|metric| sample.values.set(metric, 1 << 62));
    }
    run.meta.artifacts.clear();
    let table = StageTable::build(outcomes(&run), &run);
    data(&html(&run, &table));
}

#[test]
fn a_device_has_a_panel_and_none_has_none() {
    let (mut run, table) = load("lazy");
    let titles = |run: &Run, table: &StageTable| -> Vec<String> {
        let data = data(&html(run, table));
        data["panels"].as_array().unwrap().iter().map(|panel| panel["title"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(titles(&run, &table), ["Payload", "Resident set of the processes, summed", "Page faults", "Reads"]);

    let device: Device = serde_json::from_value(serde_json::json!({
        "uuid": null, "name": "<card>", "vendor": "nvidia", "source": "nvml", "driver": null, "pci": null,
        "total_bytes": 80u64 << 30, "is_unified": false, "parent": null, "instance": null, "is_divided": false,
        "is_counted": true,
    }))
    .unwrap();
    run.meta.devices = vec![device];
    for (index, sample) in run.samples.iter_mut().enumerate().filter(|(index, _)| index % 5 == 0) {
        sample.values.set(Metric::DeviceUsedBytes, (index as u64) << 20);
    }
    let table = StageTable::build(outcomes(&run), &run);
    assert_eq!(titles(&run, &table)[1], "Device memory");

    run.meta.devices.push(run.meta.devices[0].clone());
    for (device, at, value) in [(0, 10, 1u64 << 30), (1, 20, 2 << 30), (0, 30, 3 << 30)] {
        let (scope, metric) = (Scope::Device(device), "used_bytes".to_owned());
        run.details.push(Detail { at: At(at * 1_000_000), scope, metric, value });
    }
    let made = html(&run, &table);
    let panel = &data(&made)["panels"][1];
    assert_eq!(panel["title"], "Device memory in use, each device");
    assert_eq!(panel["t"], serde_json::json!([10_000_000, 10_000_000, 10_000_000]));
    assert_eq!(panel["series"][0]["own"], serde_json::json!([[0, 1u64 << 30], [2, 3u64 << 30]]));
    assert!(made.contains("<th scope=\"row\">device 1 (&lt;card&gt;)</th>"));
}

/// Half a million samples: the page stays small, and the largest of each gauge stays exact.
#[test]
fn a_long_run_is_thinned_and_keeps_its_peaks() {
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
    run.samples[250_002].values.set(Metric::SwapBytes, 7 << 30);
    let table = StageTable::build(outcomes(&run), &run);
    let page = page(&run, &table, Pictures { timeline: "", touched: None }).unwrap();
    assert!(page.len() < 3 << 20, "{}", page.len());
    let data = data(&page);
    assert_eq!(data["samples"], 500_000);
    assert!(data["kept"].as_u64().unwrap() <= 4_000, "{}", data["kept"]);
    for (name, wanted) in [("rss_bytes", 5u64 << 30), ("swap_bytes", 7 << 30)] {
        let column = data["columns"].as_array().unwrap().iter().find(|column| column["name"] == name).unwrap();
        let differences = column["values"].as_array().unwrap().iter().filter_map(serde_json::Value::as_i64);
        let values = differences.scan(0, |sum, difference| {
            *sum += difference;
            Some(*sum as u64)
        });
        let above = column["above"].as_array().into_iter().flatten().map(|pair| pair[1].as_u64().unwrap());
        assert_eq!(values.chain(above).max(), Some(wanted), "{name}");
    }
}
