//! Whether the same files were loaded, wherever they lie: by size and header digest, by their contents where those are
//! known, by revision; and what numerical representation they store.
//!
//! Contents are known where they were hashed, and where a content-addressed cache names the file by its digest: the
//! blobs of a Hugging Face cache and of Ollama. The digest of a header says that two files have the same tensors of the
//! same shapes; contents may differ all the same.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Facts, Outcome, Party, Subject};
use crate::artifact::set::blob_digest;
use crate::artifact::sha256;
use crate::event::{Found, word_of};
use crate::run::meta::ArtifactMeta;

/// Which artifact of a run is which of the first run's.
pub struct Pairing {
    /// Of each run, the place in its set of each artifact of the first run.
    pub places: Vec<Vec<Option<usize>>>,
    /// Of each run, the places of those that pair with none of the first run's.
    pub others: Vec<Vec<usize>>,
}

/// How two artifacts are known to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pair {
    /// Same size, and a header is not known of both.
    Size,
    Header,
    Contents,
}

fn pair(one: &ArtifactMeta, other: &ArtifactMeta) -> Option<Pair> {
    if one.size_bytes != other.size_bytes {
        return None;
    }
    if let (Some(one), Some(other)) = (contents(one), contents(other)) {
        return (one == other).then_some(Pair::Contents);
    }
    match (&one.header_digest, &other.header_digest) {
        (Some(one), Some(other)) => (one == other).then_some(Pair::Header),
        _ => (one.format == other.format).then_some(Pair::Size),
    }
}

/// So many pairs are tried at most: two sets of a thousand files.
const MOST: usize = 1_000_000;

impl Pairing {
    pub fn of(parties: &[Party]) -> Pairing {
        let first = parties.first().map(|party| party.run.meta.artifacts.as_slice()).unwrap_or_default();
        let mut pairing = Pairing { places: Vec::new(), others: Vec::new() };
        for party in parties {
            let these = &party.run.meta.artifacts;
            let mut places: Vec<Option<usize>> = vec![None; first.len()];
            let mut left: Vec<usize> = (0..these.len()).collect();
            if first.len().saturating_mul(these.len()) > MOST {
                // Each would be held against each. Written down in one order, they stand in one order.
                for (number, place) in places.iter_mut().enumerate() {
                    let same = first.get(number).zip(these.get(number)).and_then(|(one, other)| pair(one, other));
                    *place = same.map(|_| number);
                }
                left.retain(|place| places.get(*place).is_none_or(Option::is_none));
                pairing.places.push(places);
                pairing.others.push(left);
                continue;
            }
            // The surest first: two shards may have the same size.
            for wanted in [Pair::Contents, Pair::Header, Pair::Size] {
                for (place, artifact) in places.iter_mut().zip(first).filter(|(place, _)| place.is_none()) {
                    let fits = |this: &usize| these.get(*this).is_some_and(|this| pair(artifact, this) == Some(wanted));
                    // Of several that fit, the one of the same name.
                    let named =
                        left.iter().position(|this| fits(this) && name(&these[*this].path) == name(&artifact.path));
                    if let Some(found) = named.or_else(|| left.iter().position(fits)) {
                        *place = Some(left.remove(found));
                    }
                }
            }
            pairing.places.push(places);
            pairing.others.push(left);
        }
        pairing
    }

    /// Whether each run has the first run's artifacts and no others, however surely that is known.
    fn is_whole(&self) -> bool {
        self.places.iter().flatten().all(Option::is_some) && self.others.iter().all(Vec::is_empty)
    }
}

/// The file's name, without its folders.
pub fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// SHA-256 of the file's contents, where it is known.
pub fn contents(artifact: &ArtifactMeta) -> Option<&str> {
    artifact.content_sha256.as_deref().or_else(|| blob_digest(Path::new(&artifact.real_path)))
}

/// The revision of a Hugging Face cache that an artifact is of.
fn revision(artifact: &ArtifactMeta) -> Option<String> {
    if let Found::HubCache { repository, revision } = &artifact.found {
        return Some(format!("{repository} at {revision}"));
    }
    // models--ORG--NAME/snapshots/COMMIT/…
    let mut parts = artifact.path.split('/').rev();
    parts.find(|part| *part == "snapshots")?;
    let model = parts.next()?.strip_prefix("models--")?.replace("--", "/");
    let commit = artifact.path.split("/snapshots/").last()?.split('/').next()?;
    Some(format!("{model} at {commit}"))
}

/// A list of digests as one; `None` where one is not known.
fn together<'a>(digests: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let mut digests: Vec<&str> = digests.collect::<Option<_>>()?;
    digests.sort_unstable();
    match digests.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        several => Some(sha256(&[several.join("\n").as_bytes()])),
    }
}

pub(super) fn compare(facts: &mut Facts, pairing: &Pairing, wanted: bool) {
    identity(facts, pairing);
    by_contents(facts, wanted);
    revisions(facts, pairing);
    facts.maybe(Subject::Representation, "dtypes", |party| {
        let mut dtypes: BTreeMap<&str, u64> = BTreeMap::new();
        for (dtype, bytes) in party.run.meta.artifacts.iter().flat_map(|artifact| &artifact.bytes_by_dtype) {
            let sum = dtypes.entry(dtype).or_insert(0);
            *sum = sum.saturating_add(*bytes);
        }
        let known = party.run.meta.artifacts.iter().all(|artifact| artifact.payload_bytes.is_some());
        let shown: Vec<String> = dtypes.iter().map(|(dtype, bytes)| format!("{dtype} {bytes} bytes")).collect();
        (known && !shown.is_empty()).then(|| shown.join(", "))
    });
    facts.maybe(Subject::Representation, "formats", |party| {
        let mut formats: Vec<String> =
            party.run.meta.artifacts.iter().map(|artifact| word_of(&artifact.format)).collect();
        formats.sort_unstable();
        formats.dedup();
        (!formats.is_empty()).then(|| formats.join(", "))
    });
}

/// Sizes and headers.
fn identity(facts: &mut Facts, pairing: &Pairing) {
    let described = |party: &Party| {
        let artifacts = &party.run.meta.artifacts;
        let bytes: u128 = artifacts.iter().map(|artifact| u128::from(artifact.size_bytes)).sum();
        let files = match artifacts.len() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        let headers = together(artifacts.iter().map(|artifact| artifact.header_digest.as_deref()));
        let headers =
            headers.map_or_else(|| "headers not known of all".to_owned(), |digest| format!("headers {digest}"));
        (!artifacts.is_empty()).then(|| format!("{files}, {bytes} bytes, {headers}"))
    };
    let mut values: Vec<Option<String>> = facts.parties.iter().map(described).collect();
    let (mut same, mut notes) = (pairing.is_whole(), Vec::new());
    let first = facts.parties.first().map(|party| party.run.meta.artifacts.as_slice()).unwrap_or_default();
    for ((party, places), others) in facts.parties.iter().zip(&pairing.places).zip(&pairing.others) {
        let lacking = first.iter().zip(places).filter(|(_, place)| place.is_none()).map(|(artifact, _)| artifact);
        let beyond = others.iter().filter_map(|place| party.run.meta.artifacts.get(*place));
        notes.extend(listed(&format!("not in {}", party.label()), lacking));
        notes.extend(listed(&format!("only in {}", party.label()), beyond));
    }
    let by_size = pairing.places.iter().zip(facts.parties).flat_map(|(places, party)| {
        let artifacts = &party.run.meta.artifacts;
        first.iter().zip(places).filter(move |(artifact, place)| {
            place.and_then(|place| artifacts.get(place)).is_some_and(|this| pair(artifact, this) == Some(Pair::Size))
        })
    });
    if same && by_size.count() > 0 {
        // Nothing contradicts it, and nothing shows it.
        same = false;
        notes.push("by size alone: a header is not known of all; --identity full hashes the contents".to_owned());
        values.iter_mut().skip(1).for_each(|value| *value = None);
    }
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    facts.push(Subject::Artifact, "identity", values, Outcome { same, note });
}

/// The most names of one note.
const NAMED: usize = 4;

fn listed<'a>(what: &str, artifacts: impl Iterator<Item = &'a ArtifactMeta>) -> Option<String> {
    let names: Vec<String> =
        artifacts.map(|artifact| format!("{} ({} bytes)", name(&artifact.path), artifact.size_bytes)).collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = names.get(..names.len().min(NAMED)).unwrap_or_default().join(", ");
    (!names.is_empty()).then(|| format!("{what}: {shown}{more}"))
}

/// Contents: left out where they are not known of all and nobody asked for them.
fn by_contents(facts: &mut Facts, wanted: bool) {
    let digest = |party: &Party| together(party.run.meta.artifacts.iter().map(contents));
    let values: Vec<Option<String>> = facts.parties.iter().map(digest).collect();
    if !wanted && values.iter().any(Option::is_none) {
        return;
    }
    let why = facts.parties.iter().filter_map(|party| {
        let reason = party.run.meta.artifacts.iter().filter(|artifact| contents(artifact).is_none());
        let reason = reason.map(|artifact| artifact.content_reason.as_deref().unwrap_or("not hashed")).next()?;
        Some(format!("{}: {reason}", party.label()))
    });
    let why: Vec<String> = why.collect();
    let same = values.windows(2).all(|pair| pair[0] == pair[1]);
    let note = (!why.is_empty()).then(|| why.join("; "));
    facts.push(Subject::Artifact, "contents", values, Outcome { same, note });
}

/// Revisions of a cache; of files whose contents are known to be the same they say nothing more.
fn revisions(facts: &mut Facts, pairing: &Pairing) {
    let of = |party: &Party| {
        let mut found: Vec<String> = party.run.meta.artifacts.iter().map(revision).collect::<Option<_>>()?;
        found.sort_unstable();
        found.dedup();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let values: Vec<Option<String>> = facts.parties.iter().map(of).collect();
    // A file that lies elsewhere has no revision, and is no other file for it.
    if values.iter().any(Option::is_none) {
        return;
    }
    let all_contents = pairing.is_whole()
        && facts
            .parties
            .iter()
            .all(|party| party.run.meta.artifacts.iter().all(|artifact| contents(artifact).is_some()));
    let equal = values.windows(2).all(|pair| pair[0] == pair[1]);
    let note = (all_contents && !equal).then(|| "the same contents".to_owned());
    facts.push(Subject::Artifact, "revision", values, Outcome { same: equal || all_contents, note });
}
