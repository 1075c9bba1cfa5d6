//! The page of runs that are not compared: why, which stages each reached, and of a series what was produced. No figures.

use super::super::markup::{Cell, Html, Table};
use super::super::{STYLE, framed, said, section};
use super::{first, listed, runs, series};
use crate::compare::{Arm, Refusal};
use crate::report::compare::paired::Paired;
use crate::report::text::{elide, plain};

/// So many stages of a run are named.
const MOST: usize = 60;

/// Why nothing is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    pub why: String,
    /// The stages of each run.
    pub reached: Vec<(String, Vec<String>)>,
    /// What all share, where that is known.
    pub shared: Option<String>,
}

impl From<&Refusal> for Refused {
    fn from(refusal: &Refusal) -> Refused {
        let names = |stages: &Vec<(String, crate::clock::At)>| stages.iter().map(|(stage, _)| stage.clone()).collect();
        Refused {
            why: refusal.why.sentence(),
            reached: refusal.reached.iter().map(|(run, stages)| (run.clone(), names(stages))).collect(),
            shared: Some(refusal.shared_words()),
        }
    }
}

/// The page.
pub fn refusal(arms: &[Arm], refused: &Refused, series: Option<&Paired>) -> String {
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let title = format!("{}: not compared", listed(&names));
    let mut body = Html::default();
    body.raw("<header>\n<p class=\"over\">stagemark · launches side by side</p>\n");
    body.element("h1", None, &title).raw("\n").piece(&first::who(arms));
    body.raw("<div class=\"box marked\" role=\"note\">\n<p>");
    body.element("strong", None, &format!("Not compared: {}.", refused.why.trim_end_matches('.'))).raw("</p>\n");
    body.paragraphs(&refused.shared.iter().cloned().collect::<Vec<_>>());
    body.raw("</div>\n</header>\n<main>\n");
    section(&mut body, "reached", "What each run reached", &reached(refused));
    section(&mut body, "outputs", "What the runs produced", &series::outputs(series));
    section(&mut body, "runs", "Runs", &runs::table(arms));
    said(&mut body, "notes", "Warnings", series.map(|series| series.notes.as_slice()).unwrap_or_default());
    body.raw("</main>\n");
    framed(&title, &[STYLE], &body, None, &[])
}

fn reached(refused: &Refused) -> Html {
    let mut table = Table::new(Some("facts"), ["run", "stages, in the order of their marks"].map(Cell::text).to_vec());
    let row = |(run, stages): &(String, Vec<String>)| {
        let shown: Vec<String> = stages.iter().take(MOST).map(|stage| elide(&plain(stage), 80)).collect();
        let told = match stages.len() {
            0 => "none".to_owned(),
            count if count > MOST => format!("{}, and {} more", shown.join(", "), count - MOST),
            _ => shown.join(", "),
        };
        vec![Cell::text(plain(run)), Cell::text(told)]
    };
    table.group("", refused.reached.iter().map(row).collect());
    table.html()
}
