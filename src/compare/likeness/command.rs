//! What did the loading: the command line word by word, the program, its interpreter, Python and its packages, the
//! commit of the working directory, and the environment that matters.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::artifacts::Pairing;
use super::{Facts, Outcome, Party, Subject};
use crate::host::software::Program;
use crate::run::Meta;

pub(super) fn compare(facts: &mut Facts, pairing: &Pairing) {
    words(facts, pairing);
    if facts.parties.iter().any(|party| !party.run.meta.variables.is_empty()) {
        facts.needed(Subject::Argv, "variables", |party| {
            let variables = party.run.meta.variables.iter();
            let shown: Vec<String> = variables.map(|(name, value)| format!("{name}={value}")).collect();
            Some(if shown.is_empty() { "none".to_owned() } else { shown.join(" ") })
        });
    }
    let software = |party: &Party| party.run.meta.host.software.clone();
    facts.maybe(Subject::Program, "program", |party| software(party).program.as_ref().and_then(file));
    facts.maybe(Subject::Interpreter, "interpreter", |party| software(party).interpreter.as_ref().and_then(file));
    facts.maybe(Subject::Python, "version", |party| software(party).python.and_then(|python| python.version));
    packages(facts);
    facts.maybe(Subject::Commit, "commit", |party| software(party).git.and_then(|git| git.commit));
    environment(facts);
}

/// A program by what its file is, not by where it lies.
fn file(program: &Program) -> Option<String> {
    let name = super::artifacts::name(program.real_path.as_deref().unwrap_or(&program.path));
    let (size, modified) = (program.size_bytes?, program.modified_ns?);
    Some(format!("{name}, {size} bytes, modified {modified} ns"))
}

/// The command lines, word by word. A word that names an artifact stands for that artifact, wherever it lies.
fn words(facts: &mut Facts, pairing: &Pairing) {
    // Of an artifact that not all have, the path is what there is to compare.
    let everywhere =
        |number: usize| pairing.places.iter().all(|places| places.get(number).is_some_and(Option::is_some));
    let normal: Vec<Vec<String>> = facts
        .parties
        .iter()
        .zip(&pairing.places)
        .map(|(party, places)| {
            let meta = &party.run.meta;
            let places: Vec<Option<usize>> =
                places.iter().enumerate().map(|(number, place)| place.filter(|_| everywhere(number))).collect();
            let places = places.as_slice();
            meta.argv.iter().map(|word| named_artifact(word, meta, places)).collect()
        })
        .collect();
    let same = normal.windows(2).all(|pair| pair[0] == pair[1]);
    let Some(first) = normal.first() else { return };
    // Each run's words that are not the first one's; of the first one, those that are not everywhere.
    let differing = |words: &[String]| -> Vec<String> {
        let others = normal.iter().filter(|other| words == first.as_slice() || *other == first);
        let own: BTreeSet<usize> = others.flat_map(|other| unlike(words, other)).collect();
        own.into_iter().filter_map(|place| words.get(place).cloned()).collect()
    };
    let shown = |words: &Vec<String>| match same {
        true => words.join(" "),
        false => match differing(words) {
            none if none.is_empty() => "no other word".to_owned(),
            some => some.join(" "),
        },
    };
    let values: Vec<Option<String>> = normal.iter().map(|words| (!words.is_empty()).then(|| shown(words))).collect();
    let moved = facts.parties.windows(2).any(|pair| pair[0].run.meta.argv != pair[1].run.meta.argv);
    let note = match same {
        true if moved && first.iter().any(|word| word.contains(PLACE)) => {
            Some("the artifacts lie elsewhere".to_owned())
        }
        true => None,
        false => Some("the words that differ".to_owned()),
    };
    facts.push(Subject::Argv, "words", values, Outcome { same, note });
}

/// What stands for an artifact in a command line, or for a folder that it is in.
const PLACE: &str = "<artifact ";

/// A word, its path replaced where that is an artifact of the first run's too, or a folder of one.
fn named_artifact(word: &str, meta: &Meta, places: &[Option<usize>]) -> String {
    let (before, path) = match word.split_once('=') {
        Some((flag, path)) if flag.starts_with('-') => (&word[..=flag.len()], path),
        _ => ("", word),
    };
    // An option is no path, and neither is nothing.
    if path.is_empty() || path.starts_with('-') {
        return word.to_owned();
    }
    let absolute = tidy(&Path::new(&meta.directory).join(path));
    for (number, place) in (1..).zip(places) {
        let Some(artifact) = place.and_then(|place| meta.artifacts.get(place)) else { continue };
        for of in [&artifact.path, &artifact.real_path] {
            match tidy(Path::new(of)).strip_prefix(&absolute).map(Path::to_owned) {
                Ok(rest) if rest.as_os_str().is_empty() => return format!("{before}{PLACE}{number}>"),
                // The same folder only where the artifact lies in it as it does in the other's.
                Ok(rest) => return format!("{before}{PLACE}{number}'s folder, {} in it>", rest.display()),
                Err(_) => {}
            }
        }
    }
    word.to_owned()
}

/// A path without `.` and `..`, as far as the text goes.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(tidy.pop()),
            part => tidy.push(part),
        }
    }
    tidy
}

/// Longer command lines are told to differ, and not where.
const LONGEST: usize = 2_000;

/// The places of the words of `these` that are in no longest common order with `others` (as of diff(1)).
fn unlike(these: &[String], others: &[String]) -> Vec<usize> {
    // What is the same at both ends need not be looked at.
    let head = these.iter().zip(others).take_while(|(this, other)| this == other).count();
    let (left, right) = (these.get(head..).unwrap_or_default(), others.get(head..).unwrap_or_default());
    let tail = left.iter().rev().zip(right.iter().rev()).take_while(|(this, other)| this == other).count();
    let left = left.get(..left.len() - tail).unwrap_or_default();
    let right = right.get(..right.len() - tail).unwrap_or_default();
    if left.len().saturating_mul(right.len()) > LONGEST * LONGEST / 4 {
        return (head..head + left.len()).collect();
    }
    // common[i][j]: the length of the longest common order of left[i..] and right[j..].
    let width = right.len() + 1;
    let mut common = vec![0u32; (left.len() + 1) * width];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            common[i * width + j] = match left[i] == right[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut unlike) = (0, 0, Vec::new());
    while i < left.len() {
        if j < right.len() && left[i] == right[j] {
            (i, j) = (i + 1, j + 1);
        } else if j < right.len() && common[i * width + j + 1] >= common[(i + 1) * width + j] {
            j += 1;
        } else {
            unlike.push(head + i);
            i += 1;
        }
    }
    unlike
}

/// Every package that some run has, where a Python was found.
fn packages(facts: &mut Facts) {
    let python = |party: &Party<'_>| party.run.meta.host.software.python.clone().unwrap_or_default();
    let names: BTreeSet<String> = facts.parties.iter().flat_map(|party| python(party).packages.into_keys()).collect();
    for name in names {
        facts.needed(Subject::Package, &name, |party| {
            let python = party.run.meta.host.software.python.as_ref()?;
            match python.packages.get(&name) {
                Some(version) => Some(version.clone()),
                // Where looking was given up half-way it may be there.
                None => (!python.cut_short).then(|| "none".to_owned()),
            }
        });
    }
}

/// Every variable that some run has. What was masked in all of them is the same as far as can be told.
fn environment(facts: &mut Facts) {
    let names: BTreeSet<String> =
        facts.parties.iter().flat_map(|party| party.run.meta.environment.keys().cloned()).collect();
    for name in names {
        facts.needed(Subject::Env, &name, |party| {
            let value = party.run.meta.environment.get(&name);
            Some(value.map_or_else(|| "not set".to_owned(), |value| format!("`{value}`")))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_words_that_differ_are_found_wherever_they_stand() {
        for (these, others, unlike_ones) in [
            ("a b c", "a b c", ""),
            ("a b c", "a x c", "b"),
            ("serve --x 1 --model m", "serve --model m", "--x 1"),
            ("serve --model m", "serve --x 1 --model m", ""),
            ("a b", "b a", "b"),
            ("", "a", ""),
            ("a", "", "a"),
        ] {
            let these = words(these);
            let found: Vec<String> =
                unlike(&these, &words(others)).into_iter().map(|place| these[place].clone()).collect();
            assert_eq!(found.join(" "), unlike_ones, "{these:?} {others}");
        }
    }

    #[test]
    fn a_huge_command_line_takes_no_time() {
        let these: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let others: Vec<String> = (0..100_000).map(|n| (n * 2 + 1).to_string()).collect();
        assert_eq!(unlike(&these, &others).len(), 100_000);
    }

    #[test]
    fn paths_are_tidied_by_their_text() {
        assert_eq!(tidy(Path::new("/a/./b/../c")), Path::new("/a/c"));
    }
}
