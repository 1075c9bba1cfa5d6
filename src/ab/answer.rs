//! The answer of a series: its comparison with the verdicts below it, or the refusal, for a terminal or as JSON.

use std::path::Path;

use serde_json::Value;

use super::compared::{self, Loaded};
use super::series::Series;
use crate::compare::likeness::Verdict;
use crate::compare::{Comparison, Options};
use crate::report::compare::folder::{self, Beside};
use crate::report::compare::{json, terminal};
use crate::report::html::compared::Refused;
use crate::report::terminal::Page;
use crate::report::text::json_for_terminals;

/// What is to be said of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For standard output.
    pub text: String,
    /// Why there is no comparison, for standard error; empty where there is one.
    pub refusal: String,
    /// Whether the runs are like for like; absent where they are not compared.
    pub is_alike: Option<bool>,
}

/// Compares the runs of a series' folder, and writes the comparison's files into `out`.
///
/// # Errors
/// The series or one of its runs cannot be read, or a file not be written.
pub fn compare(series_folder: &Path, options: &Options, as_json: bool, out: Option<&Path>) -> anyhow::Result<Answer> {
    let series = Series::load(series_folder)?;
    let mut loaded = Loaded::of(series_folder, &series, options.at.as_ref())?;
    if options.contents {
        folder::hash_contents(&mut loaded.arms);
    }
    out.map(folder::prepare).transpose()?;
    let options = Options { at: options.at.clone().or_else(|| series.until.clone()), ..options.clone() };
    let has_runs = loaded.arms.iter().all(|arm| !arm.runs.is_empty());
    let compared = match has_runs {
        true => Comparison::of(&loaded.arms, &options)
            .map_err(|refusal| (json::refusal(&refusal), terminal::refusal(&refusal), Refused::from(&refusal))),
        false => {
            let why = "An arm has no run that came to the stopping event: nothing is compared.";
            let refused = Refused { why: why.to_owned(), ..Refused::default() };
            Err((serde_json::json!({"refused": {"why": "no_run", "words": why}}), format!("{why}\n"), refused))
        }
    };
    let comparison = match compared {
        Ok(comparison) => comparison,
        Err((value, words, refused)) => {
            let told = compared::told(&series, &loaded, None);
            let json = with_series(value, compared::json(&series, &loaded, None));
            if let Some(out) = out {
                folder::write_refusal(&loaded.arms, &refused, &Beside { series: Some(&told), json: &json }, out)?;
            }
            let mut page = Page::default();
            compared::end(&mut page, &told);
            let text = if as_json { json } else { String::new() };
            let refusal = format!("{words}{}", page.text());
            return Ok(Answer { text, refusal, is_alike: None });
        }
    };
    let told = compared::told(&series, &loaded, Some(&comparison));
    let json =
        with_series(json::comparison(&loaded.arms, &comparison), compared::json(&series, &loaded, Some(&comparison)));
    if let Some(out) = out {
        folder::write(&loaded.arms, &comparison, &Beside { series: Some(&told), json: &json }, out)?;
    }
    let text = match as_json {
        true => json,
        false => {
            let verdicts = compared::text(&told, &loaded, &comparison);
            format!("{}{verdicts}", folder::text(&loaded.arms, &comparison, out))
        }
    };
    let is_alike = comparison.likeness.verdict() == Verdict::LikeForLike;
    Ok(Answer { text, refusal: String::new(), is_alike: Some(is_alike) })
}

fn with_series(mut value: Value, series: Value) -> String {
    if let Value::Object(object) = &mut value {
        object.insert("series".to_owned(), series);
    }
    json_for_terminals(&format!("{value:#}\n"))
}
