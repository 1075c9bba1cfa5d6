//! How much of a file is resident now, by the probe that runs use, and by its trust.

use std::time::Duration;

use crate::artifact::{Artifact, ArtifactId};
use crate::clock::Mono;
use crate::probe::residency::{ResidencyProbe, Trust};

/// How long the kernel is asked about one file.
const LIMIT: Duration = Duration::from_secs(5);

/// One file, watched.
pub(super) struct Watch {
    probe: ResidencyProbe,
    trust: Trust,
    watched: u64,
}

impl Watch {
    pub fn new(artifact: &Artifact) -> Watch {
        let mut probe = ResidencyProbe::new();
        let trust = probe.add(artifact, LIMIT);
        Watch { probe, trust, watched: artifact.watched_ranges().len() }
    }

    /// Bytes that are watched: the payload, or the whole file where that is unknown.
    pub fn watched(&self) -> u64 {
        self.watched
    }

    /// How many of them are resident now.
    pub fn resident(&mut self) -> Result<u64, String> {
        self.probe.look(LIMIT);
        self.trust = self.probe.trust(ArtifactId(0)).unwrap_or_else(|| self.trust.clone());
        self.probe.files(Mono::now()).pop().map_or_else(|| Err("not looked at".to_owned()), |file| file.resident)
    }

    /// Who answered.
    pub fn trust(&self) -> Trust {
        self.trust.clone()
    }
}
