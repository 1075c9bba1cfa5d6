//! `report.html`: one file that shows a run to whoever is handed it, in any browser, on paper, on a telephone.
//!
//! First what was launched, on what, from which start condition, to which stopping event, the figures to sign for, and
//! one line a stage; then the timeline, and all that stands behind the figures. It needs no network and no other file,
//! and lets the browser use none (`policy`). What a run holds is text that nobody vouches for: it goes into the page
//! by `markup` alone, or as JSON into a block that is not run.
//!
//! The page shows nothing that other reports do not have: figures come from the account, sentences from the same rooms
//! as the terminal's. What only the browser can do, showing values under the pointer and figures of an interval, is
//! made by the script from `chart`'s columns, and says that it is of samples. Where no script runs, and on paper, the
//! picture of `timeline.svg` stands in the place of the interactive one.

mod accounts;
mod chart;
pub mod compared;
mod files;
mod findings;
mod first;
mod glossary;
mod known;
mod markup;
mod policy;
mod processes;
mod stages;

use super::plot;
use crate::account::StageTable;
use crate::run::Run;
use markup::Html;

const TEMPLATE: &str = include_str!("../../../reports/html/template.html");
const STYLE: &str = include_str!("../../../reports/html/style.css");
const SCRIPT: &str = include_str!("../../../reports/html/script.js");
const CHART_STYLE: &str = include_str!("../../../reports/vendor/uplot/uPlot.min.css");
const CHART_SCRIPT: &str = include_str!("../../../reports/vendor/uplot/uPlot.iife.min.js");

/// A larger picture stays a file of its own.
const LARGEST_PICTURE: usize = 512 << 10;

/// The pictures of a run that the page holds.
#[derive(Clone, Copy, Debug)]
pub struct Pictures<'a> {
    /// `timeline.svg`.
    pub timeline: &'a str,
    /// `touched.svg`, where there is one.
    pub touched: Option<&'a str>,
}

/// The page of a run.
pub fn page(run: &Run, table: &StageTable, pictures: Pictures) -> anyhow::Result<String> {
    let data = chart::json(run, table)?;
    let body = body(run, table, pictures);
    Ok(framed(&plot::title(run), &[CHART_STYLE, STYLE], &body, Some(&data), &[CHART_SCRIPT, SCRIPT]))
}

/// A page around its body: the styles and scripts in it are all that its policy lets a browser use. `data`: what the
/// scripts read, with nothing in it that could end a script element.
fn framed(title: &str, styles: &[&'static str], body: &Html, data: Option<&str>, scripts: &[&'static str]) -> String {
    let mut head = Html::default();
    head.text(title);
    let policy = policy::policy(scripts, styles);
    let styles: String = styles.iter().map(|style| format!("<style>{style}</style>\n")).collect();
    let data = data.map(|data| format!("<script id=\"data\" type=\"application/json\">{data}</script>\n"));
    let scripts = scripts.iter().map(|script| format!("<script>{script}</script>\n"));
    let scripts: String = data.into_iter().chain(scripts).collect();
    filled(TEMPLATE, |name| match name {
        "policy" => &policy,
        "title" => head.as_str(),
        "styles" => &styles,
        "body" => body.as_str(),
        "scripts" => &scripts,
        _ => "",
    })
}

fn body(run: &Run, table: &StageTable, pictures: Pictures) -> Html {
    let mut page = Html::default();
    page.piece(&first::screen(run, table));
    page.raw("<main>\n");
    said(&mut page, "summary", "In words", &first::sentences(run, table));
    section(&mut page, "findings", "Findings", &findings::told(run, table));
    section(&mut page, "timeline", "Timeline", &timeline(run, pictures));
    said(&mut page, "work", "What the time went to", &super::work::lines(run, table));
    section(&mut page, "stages", "Every figure at every stage", &stages::table(run, table));
    section(&mut page, "host", "Host memory", &accounts::host(run, table));
    section(&mut page, "devices", "Device memory", &accounts::devices(run, table));
    section(&mut page, "files", "Artifacts", &files::artifacts(run, table, pictures));
    section(&mut page, "processes", "Processes and ranks", &processes::tables(run));
    section(&mut page, "conditions", "Conditions at start", &known::conditions(run));
    section(&mut page, "known", "How the figures are known", &known::sources(run));
    said(&mut page, "notes", "Warnings", &super::words::notes(run, table));
    section(&mut page, "cost", "What the profiling itself took", &known::cost(run));
    section(&mut page, "glossary", "Glossary", &glossary::table());
    page.raw("</main>\n");
    page
}

/// A part of the page under a heading; one without anything in it is left out.
fn section(page: &mut Html, id: &'static str, heading: &str, content: &Html) {
    if content.is_empty() {
        return;
    }
    page.open("section", &[("id", Some(id)), ("aria-labelledby", Some(&format!("{id}-heading")))]).raw("\n");
    page.open("h2", &[("id", Some(&format!("{id}-heading")))]).text(heading).close("h2").raw("\n");
    page.piece(content).raw("</section>\n");
}

/// A part of the page that is paragraphs.
fn said(page: &mut Html, id: &'static str, heading: &str, paragraphs: &[String]) {
    let mut content = Html::default();
    content.paragraphs(paragraphs);
    section(page, id, heading, &content);
}

fn timeline(run: &Run, pictures: Pictures) -> Html {
    let mut html = Html::default();
    let alt = format!("Timeline of {}: payload mapped and resident, resident set, faults and reads", plot::title(run));
    html.raw("<div id=\"live\" hidden></div>\n<figure class=\"static\">");
    picture(&mut html, pictures.timeline, &alt, "timeline.svg");
    html.raw("</figure>\n");
    html
}

/// A picture in the page, or where it is if it is too large for that.
fn picture(html: &mut Html, svg: &str, alt: &str, file: &str) {
    if svg.len() > LARGEST_PICTURE {
        html.element("p", None, &format!("The picture is in {file}."));
        return;
    }
    html.open("img", &[("alt", Some(alt)), ("src", Some(&policy::picture(svg)))]);
}

/// The template with each `{{name}}` replaced once: what is put in is not looked through again.
fn filled<'a>(template: &str, part: impl Fn(&str) -> &'a str) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else { break };
        filled.push_str(before);
        filled.push_str(part(name));
        rest = after;
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_not_filled_again() {
        assert_eq!(filled("a{{x}}b{{y}}c", |name| if name == "x" { "{{y}}" } else { "Y" }), "a{{y}}bYc");
    }

    #[test]
    fn the_scripts_end_where_they_should() {
        for text in [SCRIPT, CHART_SCRIPT] {
            let text = text.to_ascii_lowercase();
            assert!(!text.contains("</script") && !text.contains("<!--"));
        }
        for text in [STYLE, CHART_STYLE] {
            assert!(!text.to_ascii_lowercase().contains("</style"));
        }
        for name in ["policy", "title", "styles", "body", "scripts"] {
            assert_eq!(TEMPLATE.matches(&format!("{{{{{name}}}}}")).count(), 1, "{name}");
        }
    }
}
