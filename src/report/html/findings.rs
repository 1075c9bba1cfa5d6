//! Findings, each with what speaks for it, its figures, and what would settle it.

use super::markup::{Html, list};
use crate::account::StageTable;
use crate::finding::{self, Finding};
use crate::report::findings::shown;
use crate::run::Run;

/// All of them; nothing where there is none.
pub fn told(run: &Run, table: &StageTable) -> Html {
    let mut html = Html::default();
    let findings = finding::findings(run, table);
    findings.iter().map(shown).for_each(|finding| one(&mut html, &finding));
    if !findings.is_empty() {
        let silent: Vec<&str> = finding::silent(&findings).map(|rule| rule.id).collect();
        let silent = format!("Not found, or not to be told from this run: {}.", silent.join(", "));
        html.element("p", Some("small"), &silent);
    }
    html
}

fn one(html: &mut Html, finding: &Finding) {
    html.element("h3", None, &finding.title).raw("\n");
    html.element("p", Some("small"), &format!("{}, by the rule {}", finding.place, finding.rule)).raw("\n");
    html.paragraphs(&finding.sentences);
    let figure = |figure: &finding::Figure| (figure.name.clone(), format!("{} · {}", figure.value, figure.source));
    html.piece(&list(&finding.figures.iter().map(figure).collect::<Vec<_>>()));
    html.element("p", None, &format!("To settle it: {}", finding.settles)).raw("\n");
}
