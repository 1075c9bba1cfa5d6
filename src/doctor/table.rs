//! The answer for people: plain text, at most 80 columns. Pure.

use super::place::{File, Place};
use super::who::Who;
use super::{Finding, Section, State};
use crate::artifact::Format;
use crate::report::text::{elide, padded, plain, wrap};
use crate::units;

const WIDTH: usize = 80;
const STATE: usize = 9;
const FIGURE: usize = 32;
/// Where reasons and remedies stand.
const INDENT: usize = STATE + 7;

/// The whole table.
pub(super) fn table(who: &Who, sections: &[Section], places: &[Place]) -> String {
    let mut lines = vec![elide(&header(who), WIDTH)];
    let findings = || sections.iter().flat_map(|(_, findings)| findings);
    let count = |state| findings().filter(|finding| finding.state == state).count();
    lines.push(format!(
        "{} figures can be had in full, {} bounded or by the next best source, {} not.",
        count(State::Yes),
        count(State::Bounded),
        count(State::No)
    ));
    lines.push(String::new());
    lines.push(format!("{}{}{}", padded("STATE", STATE), padded("FIGURE", FIGURE), "HOW"));
    for (heading, findings) in sections {
        lines.push(String::new());
        lines.push((*heading).to_owned());
        findings.iter().for_each(|finding| push_finding(&mut lines, finding));
    }
    for place in places {
        lines.push(String::new());
        push_place(&mut lines, place);
    }
    let mut text = String::new();
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn header(who: &Who) -> String {
    let mut header =
        format!("stagemark {} · Linux {} · uid {}", env!("CARGO_PKG_VERSION"), plain(&who.kernel), who.uid);
    let signs = [
        (!who.container.is_empty(), "container"),
        (who.user_namespace, "user namespace"),
        (who.seccomp_filter, "seccomp filter"),
        (!who.proc, "no /proc"),
    ];
    for (_, sign) in signs.iter().filter(|(so, _)| *so) {
        header.push_str(" · ");
        header.push_str(sign);
    }
    header
}

fn word(state: State) -> &'static str {
    match state {
        State::Yes => "yes",
        State::Bounded => "bounded",
        State::No => "no",
    }
}

fn push_finding(lines: &mut Vec<String>, finding: &Finding) {
    let source = plain(&finding.source);
    let line = format!("{}{}{source}", padded(word(finding.state), STATE), padded(finding.figure, FIGURE));
    lines.push(elide(&line, WIDTH));
    push_notes(lines, finding.state, finding.reason.as_deref(), &finding.remedies);
}

fn push_notes(lines: &mut Vec<String>, state: State, reason: Option<&str>, remedies: &[String]) {
    let label = if state == State::Yes { "note" } else { "why" };
    reason.into_iter().for_each(|reason| push_note(lines, label, reason));
    for (nth, remedy) in remedies.iter().enumerate() {
        push_note(lines, if nth == 0 { "do" } else { "or" }, remedy);
    }
}

fn push_note(lines: &mut Vec<String>, label: &str, text: &str) {
    let label_at = " ".repeat(STATE);
    for (nth, part) in wrap(&plain(text), WIDTH - INDENT).into_iter().enumerate() {
        let label = if nth == 0 { label } else { "" };
        lines.push(format!("{label_at}{}{part}", padded(label, INDENT - STATE)));
    }
}

fn push_place(lines: &mut Vec<String>, place: &Place) {
    lines.push(elide(&plain(&place.path), WIDTH));
    if let Some(problem) = &place.problem {
        push_note(lines, "why", problem);
    }
    place.behind.iter().for_each(|way| push_note(lines, "lies", way));
    place.warnings.iter().for_each(|warning| push_note(lines, "note", warning));
    place.artifacts.iter().for_each(|file| push_file(lines, file));
    if place.left_out > 0 {
        push_note(lines, "", &format!("… and {} more", place.left_out));
    }
}

fn push_file(lines: &mut Vec<String>, file: &File) {
    let by = match file.residency_by.as_deref() {
        Some("none") | None => "residency: not to be had",
        Some(by) => by,
    };
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    let figure = elide(&plain(name), FIGURE - 1);
    lines.push(format!("{}{}{by}", padded(word(file.residency_state), STATE), padded(&figure, FIGURE)));
    let payload = match (file.payload_bytes, &file.payload_reason) {
        (Some(bytes), _) => format!("payload {} of {}", units::bytes(bytes), units::bytes(file.size_bytes)),
        (None, Some(why)) => format!("{}, payload unknown: {why}", units::bytes(file.size_bytes)),
        (None, None) => units::bytes(file.size_bytes),
    };
    let format = match file.format {
        Some(Format::Safetensors) => "safetensors, ",
        Some(Format::Gguf) => "GGUF, ",
        Some(Format::TorchZip) => "PyTorch zip, ",
        Some(Format::TorchLegacy) => "PyTorch pickle, ",
        Some(Format::Onnx) => "ONNX, ",
        Some(Format::OnnxData) => "ONNX external data, ",
        Some(Format::Npy) => "NumPy array, ",
        Some(Format::Npz) => "NumPy archive, ",
        Some(Format::Raw) | Some(Format::Unknown) | None => "",
    };
    let may = if file.writable { "you may write it" } else { "you may not write it" };
    push_note(lines, "file", &format!("{format}{payload}; owner uid {}, mode {}, {may}", file.owner_uid, file.mode));
    let reason = (file.residency_state != State::Yes).then_some(file.residency_reason.as_str());
    push_notes(lines, file.residency_state, reason, &file.remedies);
}
