//! What a run could not be told by the kernel's own records, in words.

use super::text::plain;
use crate::run::Meta;
use crate::run::sources::PROCFS;

/// A sentence where looking had to take the place of the kernel's records; none where they were had, or where the run does
/// not say.
pub fn sentence(meta: &Meta) -> Option<String> {
    let because = meta.sources.get("births").filter(|source| source.used == PROCFS)?.because.as_ref()?;
    Some(format!(
        "The kernel's own records could not be had ({}): processes and mappings are those that looking found, their times \
         are bounds, and short ones are missing.",
        plain(because)
    ))
}
