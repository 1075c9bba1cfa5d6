//! The artifacts, what lies behind them, and with `--faults` their tensors.

use super::markup::{Cell, Html, Table};
use super::{Pictures, picture};
use crate::account::StageTable;
use crate::event::{ArtifactId, Found, word_of};
use crate::report::text::plain;
use crate::report::{tensors, units};
use crate::run::Run;
use crate::run::faults::{Counts, Tensors};

/// So many files, and tensors, have a row.
const MOST_FILES: usize = 200;
const MOST_TENSORS: usize = 20;

/// All of them; what could be known of none says so.
pub fn artifacts(run: &Run, table: &StageTable, pictures: Pictures) -> Html {
    let mut html = Html::default();
    let all = &run.meta.artifacts;
    if all.is_empty() {
        html.element("p", None, "No model file was named, and none was seen opened or mapped.");
    }
    let figure = |text: &str| Cell::figure(Some(text.to_owned()));
    let mut files = Table::new(
        Some("files"),
        vec![
            Cell::text("file"),
            Cell::text("format"),
            figure("size"),
            figure("payload"),
            figure("resident at start"),
            figure("tensors"),
            Cell::text("stored as"),
            Cell::text("found"),
            Cell::text("came to be"),
            Cell::text("on"),
            Cell::text("residency by"),
        ],
    );
    let line = |artifact: &crate::run::meta::ArtifactMeta| {
        let or_why = |value: Option<u64>, why: &Option<String>| match (value, why) {
            (None, Some(why)) => Cell::bytes(None).exactly(plain(why)),
            (value, _) => Cell::bytes(value),
        };
        let mut dtypes: Vec<(&String, &u64)> = artifact.bytes_by_dtype.iter().collect();
        dtypes.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let dtypes: Vec<String> =
            dtypes.iter().take(4).map(|(dtype, bytes)| format!("{dtype} {}", units::bytes(**bytes))).collect();
        let found = match &artifact.found {
            Found::Declared => "declared",
            Found::CommandLine => "command line",
            Found::HubCache { .. } => "hub cache",
            Found::Discovered => "seen in use",
        };
        let on = [artifact.filesystem.as_deref(), artifact.mount.as_deref()];
        vec![
            Cell::text(artifact.path.clone()),
            Cell::text(word_of(&artifact.format)),
            Cell::bytes(Some(artifact.size_bytes)),
            or_why(artifact.payload_bytes, &artifact.payload_reason),
            or_why(artifact.resident_at_start_bytes, &artifact.resident_at_start_reason),
            Cell::value(artifact.tensors.map(|count| count as u64), units::count),
            Cell::text(dtypes.join(", ")),
            Cell::text(found),
            Cell::text(artifact.state.clone()),
            Cell::text(on.into_iter().flatten().collect::<Vec<_>>().join(" ")),
            Cell::text(word_of(&artifact.trust.by)).exactly(plain(&artifact.trust.because)),
        ]
    };
    files.group("", all.iter().take(MOST_FILES).map(line).collect());
    html.piece(&files.html());
    if all.len() > MOST_FILES {
        html.element("p", Some("small"), &format!("{} more files are in run.json.", all.len() - MOST_FILES));
    }
    let reasons = all.iter().filter_map(|artifact| {
        let name = artifact.path.rsplit('/').next().unwrap_or(&artifact.path);
        Some(format!("{name}: payload not known: {}", artifact.payload_reason.as_ref()?))
    });
    html.paragraphs(&reasons.take(MOST_TENSORS).collect::<Vec<_>>());
    if let Some(found) = &run.tensors {
        html.piece(&largest_tensors(run, found, table));
    }
    if let Some(svg) = pictures.touched {
        html.raw("<h3>What of the files was touched when</h3>\n<figure>");
        picture(&mut html, svg, "Which part of the files was touched when, by sampled page faults", "touched.svg");
        html.raw("</figure>\n");
    }
    html
}

/// The largest tensors, and what the fault samples say of them.
fn largest_tensors(run: &Run, found: &Tensors, table: &StageTable) -> Html {
    let mut html = Html::default();
    let touched = tensors::touched(found);
    let places = found.layouts.iter().flat_map(|(artifact, places)| {
        places.iter().enumerate().map(move |(number, place)| ((*artifact, number), place))
    });
    let mut all: Vec<_> = places.collect();
    let count = all.len();
    all.sort_by_key(|(key, place)| (std::cmp::Reverse(place.end.saturating_sub(place.begin)), *key));
    all.truncate(MOST_TENSORS);
    let last = table.last_stage_reached();
    let sampled = last.and_then(|row| row.sampled);
    let figure = |text: String| Cell::figure(Some(text));
    let mut rows = Table::new(
        None,
        vec![
            Cell::text("tensor"),
            Cell::text("dtype"),
            figure("bytes".to_owned()),
            figure(
                last.map_or_else(|| "resident".to_owned(), |row| format!("resident at {}", plain(&row.outcome.stage))),
            ),
            figure("touched no later than".to_owned()),
            figure("minor sampled".to_owned()),
            figure("major sampled".to_owned()),
        ],
    );
    let name_of = |ArtifactId(index): ArtifactId| {
        let path = run.meta.artifacts.get(index).map_or("", |artifact| artifact.path.as_str());
        path.rsplit('/').next().unwrap_or(path).to_owned()
    };
    let several = found.layouts.len() > 1;
    let has_samples = run.meta.faults.as_ref().is_some_and(|samples| samples.unavailable.is_none());
    let line = |(key, place): ((ArtifactId, usize), &crate::run::faults::TensorPlace)| {
        let known = touched.get(&key);
        let counts = has_samples.then(|| known.map_or(Counts::default(), |touched| touched.samples));
        let resident = sampled.and_then(|at| found.resident.get(&at)?.get(&key).copied());
        let name = if several { format!("{} · {}", name_of(key.0), place.name) } else { place.name.clone() };
        vec![
            Cell::text(name),
            Cell::text(place.dtype.clone()),
            Cell::bytes(Some(place.end.saturating_sub(place.begin))),
            Cell::bytes(resident),
            Cell::figure(known.map(|touched| units::time(touched.first))),
            Cell::value(counts.map(|counts| counts.minor), units::count),
            Cell::value(counts.map(|counts| counts.major), units::count),
        ]
    };
    rows.group("", all.into_iter().map(line).collect());
    let table = rows.html();
    if table.is_empty() {
        return html;
    }
    html.raw("<h3>").text(if count > MOST_TENSORS { "The largest tensors" } else { "Tensors" }).raw("</h3>\n");
    html.piece(&table);
    let rest = if count > MOST_TENSORS { format!("{count} tensors in all. ") } else { String::new() };
    html.element(
        "p",
        Some("small"),
        &format!(
            "{rest}A tensor may have been touched before its first sampled fault, and without one; tensors.csv has every \
             tensor at every stage."
        ),
    );
    html
}
