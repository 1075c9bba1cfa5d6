//! The first screen: the arms, the stopping event and whether it was declared, what host memory, devices and time say,
//! and whether the runs were alike.

use super::super::first::command;
use super::super::markup::Html;
use super::{arm_name, figures, runs, title};
use crate::compare::likeness::{State, Verdict};
use crate::compare::{Arm, Comparison, Figure};
use crate::report::compare::paired::Paired;
use crate::report::compare::{terminal, words};
use crate::report::terminal::Page;
use crate::report::text::{elide, plain};

/// So many facts that are not the same stand here; the table below has all.
const MOST: usize = 8;
/// So much of a command line.
const COMMAND: usize = 400;

/// The head of the page.
pub fn screen(arms: &[Arm], comparison: &Comparison, series: Option<&Paired>) -> Html {
    let mut html = Html::default();
    html.raw("<header>\n<p class=\"over\">stagemark · launches side by side</p>\n");
    html.element("h1", None, &title(comparison)).raw("\n");
    html.piece(&who(arms)).piece(&event(comparison)).piece(&verdict(comparison));
    html.raw("<div class=\"cards\">\n");
    for figure in first_figures(comparison) {
        html.piece(&card(comparison, figure, series));
    }
    html.raw("</div>\n").piece(&alike(comparison));
    let mut page = Page::default();
    terminal::limits(&mut page, comparison, |stage| stage.figures.iter().collect());
    html.raw("<div class=\"small\">\n").paragraphs(&page.paragraphs()).raw("</div>\n</header>\n");
    html
}

/// Each arm and its command.
pub fn who(arms: &[Arm]) -> Html {
    let mut html = Html::default();
    html.raw("<dl class=\"arms\">\n");
    for (index, arm) in arms.iter().enumerate() {
        html.raw("<div><dt>");
        arm_name(&mut html, index, &arm.name);
        html.raw("</dt><dd>");
        let commands: Vec<String> = arm.runs.iter().map(|(run, _)| command(run)).collect();
        if let Some((first, rest)) = commands.split_first() {
            html.element("code", None, &elide(first, COMMAND));
            let mut more = if rest.is_empty() { String::new() } else { runs::count(commands.len()) };
            if rest.iter().any(|other| other != first) {
                more.push_str(", not all of this command");
            }
            if !more.is_empty() {
                html.element("span", Some("small"), &format!(" · {more}"));
            }
        }
        html.raw("</dd></div>\n");
    }
    html.raw("</dl>\n");
    html
}

fn event(comparison: &Comparison) -> Html {
    let mut page = Page::default();
    terminal::event(&mut page, comparison);
    let mut html = Html::default();
    let class = if comparison.event.declared.is_empty() { "box" } else { "box marked" };
    html.open("div", &[("class", Some(class)), ("role", Some("note"))]).raw("\n");
    html.paragraphs(&page.paragraphs()).raw("</div>\n");
    html
}

/// Host memory, devices and time at the stopping event.
fn first_figures(comparison: &Comparison) -> impl Iterator<Item = &Figure> {
    comparison.at_the_end().into_iter().flat_map(|end| end.figures.iter().take(3))
}

/// How each arm stands to the first, in a line.
fn verdict(comparison: &Comparison) -> Html {
    let mut html = Html::default();
    for (arm, (name, _)) in comparison.arms.iter().enumerate().skip(1) {
        let told = first_figures(comparison).map(|figure| {
            let standing = words::standing(figure.of, &figure.of_arm(0), &figure.of_arm(arm));
            let standing = if standing.is_empty() { "not known".to_owned() } else { standing };
            format!("{}: {standing}", terminal::name(figure.of))
        });
        html.raw("<p class=\"verdict\">");
        arm_name(&mut html, arm, name);
        html.text(&format!(
            " against {} – {}.",
            elide(&reference(comparison), 40),
            told.collect::<Vec<_>>().join(" · ")
        ));
        html.raw("</p>\n");
    }
    html
}

fn reference(comparison: &Comparison) -> String {
    comparison.arms.first().map(|(name, _)| plain(name)).unwrap_or_default()
}

/// A figure of every arm, how it stands, and what the pairs of a series say of it.
fn card(comparison: &Comparison, figure: &Figure, series: Option<&Paired>) -> Html {
    let mut html = Html::default();
    let mut what = terminal::name(figure.of);
    if let Some(first) = what.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let what = format!("{what} at {}", elide(&plain(&comparison.event.stage), 60));
    html.raw("<div class=\"card\">").element("h2", None, &what);
    let first = figure.of_arm(0);
    for (arm, (name, count)) in comparison.arms.iter().enumerate() {
        let this = figure.of_arm(arm);
        let exact = figures::exact(figure, arm);
        html.open("p", &[("class", Some("figure")), ("title", Some(&exact))]);
        arm_name(&mut html, arm, name);
        let (shown, range) = words::of_runs(figure.of, &this, *count);
        html.raw(" ").text(&shown).raw("</p>");
        if let Some(range) = range {
            html.element("p", Some("said"), &format!("median of {}: {range}", runs::count(*count)));
        }
        if let Err(why) = &this {
            html.element("p", Some("said"), &format!("Not known: {why}."));
        }
        let standing = if arm == 0 { String::new() } else { words::standing(figure.of, &first, &this) };
        let verdict = series.filter(|_| arm > 0).and_then(|series| series.verdict(figure.of, name));
        if !standing.is_empty() {
            html.element("p", Some("standing"), &standing);
        }
        if let Some(verdict) = verdict {
            html.element("p", Some("said"), verdict);
        }
    }
    html.raw("</div>\n");
    html
}

/// Whether the runs were alike, and what differs; what was not expected first.
fn alike(comparison: &Comparison) -> Html {
    let likeness = &comparison.likeness;
    let mut html = Html::default();
    let class = if likeness.verdict() == Verdict::LikeForLike { "box" } else { "box marked" };
    html.open("div", &[("class", Some(class)), ("role", Some("note"))]).raw("\n<p>");
    html.element("strong", None, &terminal::alike(likeness)).raw("</p>\n");
    let mut differences: Vec<_> = likeness.differences().collect();
    differences.sort_by_key(|field| match field.state {
        State::Unexplained => 0,
        State::Unknown => 1,
        State::Expected | State::Same => 2,
    });
    let more = differences.len().saturating_sub(MOST);
    let shown: Vec<String> = differences.into_iter().take(MOST).map(terminal::difference).collect();
    html.paragraphs(&shown);
    if more > 0 {
        html.element("p", None, &format!("… and {more} more, in the table of all facts below."));
    }
    html.raw("</div>\n");
    html
}
