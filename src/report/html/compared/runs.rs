//! The runs: their folders, when they were started, and their commands.

use super::super::first::command;
use super::super::markup::{Cell, Html, Table};
use crate::compare::{Arm, parties};
use crate::event::text_of;
use crate::report::text::{elide, plain};

/// So many have a row.
const MOST: usize = 200;
/// So much of a command line.
const COMMAND: usize = 200;

/// `1 run`, `5 runs`.
pub fn count(runs: usize) -> String {
    format!("{runs} run{}", if runs == 1 { "" } else { "s" })
}

/// A row a run.
pub fn table(arms: &[Arm]) -> Html {
    let mut table = Table::new(
        Some("processes"),
        vec![Cell::text("run"), Cell::text("folder"), Cell::figure(Some("started".to_owned())), Cell::text("command")],
    );
    let all = parties(arms);
    let row = |party: &crate::compare::Party| {
        vec![
            Cell::text(plain(&party.label())),
            Cell::text(elide(&plain(&text_of(&party.run.folder)), COMMAND)),
            Cell::figure(Some(elide(&plain(&party.run.meta.started), 60))),
            Cell::text(elide(&command(party.run), COMMAND)),
        ]
    };
    table.group("", all.iter().take(MOST).map(row).collect());
    let mut html = table.html();
    if all.len() > MOST {
        html.element("p", Some("small"), &format!("{} more are in compare.json.", count(all.len() - MOST)));
    }
    html
}
