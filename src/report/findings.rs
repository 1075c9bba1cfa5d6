//! Findings for people and for programs: a short section of the terminal's table, and the whole of them as text or
//! JSON.

use std::path::Path;

use serde::Serialize;

use crate::account::StageTable;
use crate::event::text_of;
use crate::finding::{self, Finding, Place};
use crate::run::Run;

use super::terminal::{Page, WIDTH};
use super::text::{elide, plain, wrap};
use super::{folder, words};

/// So many findings stand in the table of a run, of so many lines each at most.
const SHOWN: usize = 3;
const LINES: usize = 2;

/// The most telling findings, each by its title; nothing where there is none.
pub(super) fn section(page: &mut Page, folder: &Path, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    page.blank();
    page.raw("findings");
    for finding in findings.iter().take(SHOWN) {
        let mut lines = wrap(&plain(&finding.title), WIDTH - 4);
        if lines.len() > LINES {
            let rest = lines.split_off(LINES - 1).join(" ");
            // The middle gives way: a title ends with its figures.
            lines.push(elide(&rest, WIDTH - 4));
        }
        lines
            .iter()
            .enumerate()
            .for_each(|(index, line)| page.raw(&format!("{}{line}", if index == 0 { "  " } else { "    " })));
    }
    let folder = plain(&text_of(folder));
    // The path is not broken, so that it can be copied.
    page.raw(&match findings.len().saturating_sub(SHOWN) {
        0 => format!("  their evidence: stagemark findings {folder}"),
        more => format!("  {more} more, and their evidence: stagemark findings {folder}"),
    });
}

/// What `stagemark findings` prints of a run folder.
///
/// # Errors
/// As of [`Run::load`].
pub fn answer(folder: &Path, as_json: bool) -> anyhow::Result<String> {
    let (run, table) = folder::load(folder)?;
    let findings = finding::findings(&run, &table);
    Ok(if as_json { json(&run, &table, &findings)? } else { text(&run, &table, &findings) })
}

/// A finding whose text is fit to be shown.
pub fn shown(finding: &Finding) -> Finding {
    let Finding { rule, title, sentences, figures, settles, place } = finding.clone();
    let figures = figures.into_iter().map(|figure| finding::Figure { name: plain(&figure.name), ..figure }).collect();
    Finding {
        rule,
        title: plain(&title),
        sentences: sentences.iter().map(|sentence| plain(sentence)).collect(),
        figures,
        settles: plain(&settles),
        place: Place { from: plain(&place.from), to: plain(&place.to) },
    }
}

/// All of them, in 80 columns.
pub fn text(run: &Run, table: &StageTable, findings: &[Finding]) -> String {
    let mut page = Page::default();
    page.line(&format!("{} · {}", words::condition(run), words::stopping_event(run, table)));
    for (number, finding) in (1..).zip(findings) {
        let finding = shown(finding);
        page.blank();
        page.line(&format!("{number}. {}.", finding.title));
        page.indented(3, &format!("{}, by the rule `{}`", finding.place, finding.rule));
        finding.sentences.iter().for_each(|sentence| page.indented(3, sentence));
        for figure in &finding.figures {
            page.indented(3, &format!("- {}: {} · {}", figure.name, figure.value, figure.source));
        }
        page.indented(3, &format!("To settle it: {}", finding.settles));
    }
    page.blank();
    let silent: Vec<&str> = finding::silent(findings).map(|rule| rule.id).collect();
    if !silent.is_empty() {
        page.line(&format!("Not found, or not to be told from this run: {}.", silent.join(", ")));
    }
    page.text()
}

/// All of them, figures exact, and the rules that were silent.
///
/// # Errors
/// None that is known: there is no map with keys that are no text in it.
pub fn json(run: &Run, table: &StageTable, findings: &[Finding]) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&document(run, table, findings))?;
    text.push('\n');
    Ok(text)
}

#[derive(Serialize)]
struct Document {
    run: String,
    /// Where the account ends; null where no stopping event was reached.
    stopping_event: Option<String>,
    findings: Vec<Finding>,
    silent: Vec<Silent>,
}

/// A rule that found nothing, or could not tell.
#[derive(Serialize)]
struct Silent {
    rule: &'static str,
    about: &'static str,
}

fn document(run: &Run, table: &StageTable, findings: &[Finding]) -> Document {
    Document {
        run: text_of(&run.folder),
        stopping_event: table.stopping_event.as_deref().map(plain),
        findings: findings.iter().map(shown).collect(),
        silent: finding::silent(findings).map(|rule| Silent { rule: rule.id, about: rule.about }).collect(),
    }
}
