//! How the figures are known: two that come from different sources may differ for that alone.

use std::collections::BTreeSet;

use super::{Facts, Party, Subject};
use crate::event::word_of;

pub(super) fn compare(facts: &mut Facts) {
    let subject = Subject::Source;
    facts.needed(subject, "stagemark", |party| Some(party.run.meta.stagemark.clone()));
    facts.needed(subject, "interval_ns", |party| Some(party.run.meta.interval_ns.to_string()));
    let kinds: BTreeSet<String> =
        facts.parties.iter().flat_map(|party| party.run.meta.sources.keys().cloned()).collect();
    for kind in kinds {
        facts.needed(subject, &kind, |party| party.run.meta.sources.get(&kind).map(|source| source.used.clone()));
    }
    facts.maybe(subject, "residency", |party| {
        let artifacts = &party.run.meta.artifacts;
        let mut by: Vec<&str> = artifacts.iter().map(|artifact| artifact.trust.by.as_str()).collect();
        by.sort_unstable();
        by.dedup();
        (!by.is_empty()).then(|| by.join(", "))
    });
    facts.maybe(subject, "device_memory", |party: &Party| {
        let sources = &party.run.meta.device_probe.sources;
        (!sources.is_empty()).then(|| sources.join(", "))
    });
    facts.maybe(subject, "device_launch", |party: &Party| {
        party.run.meta.device_probe.launch_basis.map(|basis| word_of(&basis))
    });
    let yes = |answer: bool| Some(if answer { "yes" } else { "no" }.to_owned());
    facts.needed(subject, "peaks_reset", |party| yes(party.run.meta.peaks.reset));
    facts.needed(subject, "faults_sampled", |party| match &party.run.meta.faults {
        Some(faults) => Some(format!("one in {}", faults.asked)),
        None => yes(false),
    });
}
