//! Switches of loaders that choose a way: named where a way is the faster one here, never set.

use crate::copy_paths::summary::{Group, Ratio};
use crate::copy_paths::way::{Mapped, Regime, Way};

/// What a loader calls it.
struct Switch {
    way: Way,
    name: &'static str,
}

/// As of the loaders' own documentation; older and newer versions may call them otherwise.
const SWITCHES: [Switch; 7] = [
    Switch { way: Way::HEAP, name: "llama.cpp --no-mmap" },
    Switch { way: Way::HEAP, name: "vLLM --safetensors-load-strategy eager" },
    Switch { way: Way::HEAP, name: "SGLang --weight-loader-disable-mmap" },
    Switch { way: Way::HEAP, name: "torch.load(mmap=False)" },
    Switch {
        way: Way { regime: Regime::Populated, mapped: Some(Mapped::Shared) },
        name: "llama.cpp's own mmap with prefetch",
    },
    Switch { way: Way { regime: Regime::Direct, mapped: None }, name: "llama.cpp --direct-io" },
    Switch { way: Way { regime: Regime::Direct, mapped: None }, name: "vLLM --load-format fastsafetensors" },
];

/// The switches for ways that beat the first touch of a mapping here, if it was measured.
pub fn of(group: &Group) -> Option<String> {
    let touch = [Mapped::Private, Mapped::Shared]
        .into_iter()
        .filter_map(|mapped| group.line(Way::mapping(Regime::FirstTouchWarm, mapped)))
        .collect::<Vec<_>>();
    let beats = |way: Way| {
        let line = group.line(way)?;
        let ratios: Vec<_> = touch.iter().filter_map(|touch| Ratio::of(&line.totals, &touch.totals)).collect();
        (!ratios.is_empty() && ratios.iter().all(Ratio::is_shorter)).then_some(())
    };
    let names: Vec<&str> =
        SWITCHES.iter().filter(|switch| beats(switch.way).is_some()).map(|switch| switch.name).collect();
    (!names.is_empty()).then(|| format!("switches of loaders that choose such a way: {}", names.join("; ")))
}
