//! A death before its time, for a terminal: first on the page, since it is what the reader wants to know.

use crate::account::host::{Bounds, account_at};
use crate::run::death::{Cause, Death, signal_name};
use crate::run::{LoggedLine, Run};

use super::terminal::{Page, WIDTH};
use super::text::{elide, plain};
use super::units;

/// So many of the command's last lines are shown.
const LINES: usize = 5;

/// What ended it, the last stage, the account at death, and the command's last lines.
pub(super) fn section(page: &mut Page, run: &Run) {
    let Some(death) = &run.meta.death else { return };
    page.line(&headline(death));
    let cause = match death.cause {
        Cause::OomKill => "the kernel's out-of-memory killer: ",
        Cause::Signal | Cause::Exit => "",
    };
    page.line(&format!("Likely cause: {cause}{}.", plain(&death.evidence)));
    if let Some(line) = held(run, death) {
        page.line(&line);
    }
    let lines = last_lines(run);
    if !lines.is_empty() {
        page.raw("Its last lines:");
        lines.iter().for_each(|line| page.raw(&format!("  {}", elide(line, WIDTH - 2))));
    }
    page.blank();
}

fn headline(death: &Death) -> String {
    let how = match (death.code, death.signal) {
        (Some(code), _) => format!("with exit status {code}"),
        (None, Some(signal)) => format!("by {}", signal_name(signal)),
        (None, None) => "in a way that is not known".to_owned(),
    };
    let at = units::time(death.at);
    let what = match death.pid {
        _ if death.is_root => format!("The command ended {how} after {at}"),
        Some(pid) => format!("Process {pid} was killed by {at}, and the command ended {how}"),
        None => format!("A process was killed, and the command ended {how} after {at}"),
    };
    match &death.stage {
        Some(stage) => format!("{what}; the last stage reached was {}.", plain(stage)),
        None => format!("{what}; no stage had been reached."),
    }
}

/// The account at death: that of the last sample with a process in it.
fn held(run: &Run, death: &Death) -> Option<String> {
    let sampled = death.sampled?;
    let sample = run.samples.iter().find(|sample| sample.t == sampled)?;
    let before = u64::try_from(death.at.0.saturating_sub(sampled.0)).unwrap_or(0);
    let when = format!("Host memory of the launch {} before", units::duration(before));
    match account_at(run, sample).total {
        Bounds { low: Some(low), high: Some(high) } => {
            Some(format!("{when}: at least {}, at most {}.", units::bytes(low), units::bytes(high)))
        }
        Bounds { low: Some(low), high: None } => {
            Some(format!("{when}: at least {}; no upper bound is known.", units::bytes(low)))
        }
        _ => None,
    }
}

/// The last lines that a command printed which ended by itself before its time.
pub(super) fn last_lines(run: &Run) -> Vec<String> {
    let Some(until) = run.meta.death.as_ref().filter(|death| death.cause == Cause::Exit).map(|death| death.at) else {
        return Vec::new();
    };
    // Without a log of the output there is nothing to show.
    let Ok(output) = run.output() else { return Vec::new() };
    let heard = |logged: &&LoggedLine| {
        // What it printed last may be heard just after its end.
        logged.at.0 <= until.0.saturating_add(1_000_000_000) && !logged.line.bytes.trim_ascii().is_empty()
    };
    let mut lines: Vec<&LoggedLine> = output.iter().rev().filter(heard).take(LINES).collect();
    lines.reverse();
    lines.iter().map(|logged| plain(&String::from_utf8_lossy(&logged.line.bytes))).collect()
}
