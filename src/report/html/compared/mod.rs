//! `compare.html`: runs side by side for whoever is handed the file, or why they are not compared.
//!
//! In the frame of `report.html`, without a script: nothing in it is made by the browser. It shows what `compare.csv`,
//! `compare.json` and the terminal have, in the same words. A page of a refusal has no figure at all: what each run
//! reached is said, and when is not, since times up to different events invite to be held against each other.

mod figures;
mod first;
mod likeness;
mod refused;
mod runs;
mod series;

use super::markup::Html;
use super::{STYLE, framed, glossary, picture, said, section};
use crate::compare::{Arm, Comparison};
use crate::report::compare::paired::Paired;
use crate::report::text::elide;
pub use refused::{Refused, refusal};

/// The page of a comparison. `svg`: the text of `compare.svg`.
pub fn page(arms: &[Arm], comparison: &Comparison, series: Option<&Paired>, svg: &str) -> String {
    let title = title(comparison);
    let mut body = first::screen(arms, comparison, series);
    body.raw("<main>\n");
    section(&mut body, "figures", "Every figure at each shared stage", &figures::table(comparison));
    section(&mut body, "pairs", "Pair by pair", &series::pairs(comparison, series));
    section(&mut body, "timeline", "Timelines", &timelines(&title, svg));
    section(&mut body, "likeness", "Like for like, fact by fact", &likeness::table(&comparison.likeness));
    section(&mut body, "outputs", "What the runs produced", &series::outputs(series));
    section(&mut body, "runs", "Runs", &runs::table(arms));
    let mut notes = comparison.notes.clone();
    notes.extend(series.iter().flat_map(|series| series.notes.iter().cloned()));
    said(&mut body, "notes", "Warnings", &notes);
    section(&mut body, "glossary", "Glossary", &glossary::table());
    body.raw("</main>\n");
    framed(&title, &[STYLE], &body, None, &[])
}

fn title(comparison: &Comparison) -> String {
    let names: Vec<&str> = comparison.arms.iter().map(|(name, _)| name.as_str()).collect();
    format!("{} up to {}", listed(&names), elide(&comparison.event.stage, 80))
}

/// Names as a sentence has them; of many the first ones.
fn listed(names: &[&str]) -> String {
    const MOST: usize = 6;
    let short: Vec<String> = names.iter().take(MOST).map(|name| elide(name, 40)).collect();
    match short.split_last() {
        _ if names.len() > MOST => format!("{} and {} more", short.join(", "), names.len() - MOST),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
        None => String::new(),
    }
}

fn timelines(title: &str, svg: &str) -> Html {
    let mut html = Html::default();
    html.raw("<figure>");
    let alt =
        format!("{title}: payload and resident set of each run, from the start and with the stopping event aligned");
    picture(&mut html, svg, &alt, "compare.svg");
    html.raw("</figure>\n");
    html
}

/// An arm's name in the colour of its lines.
fn arm_name(html: &mut Html, arm: usize, name: &str) {
    const COLOURS: [&str; 8] =
        ["arm blue", "arm vermilion", "arm green", "arm purple", "arm orange", "arm sky", "arm ink", "arm frame"];
    html.element("span", Some(COLOURS[arm % COLOURS.len()]), &elide(name, 40));
}
