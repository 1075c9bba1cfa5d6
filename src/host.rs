//! What this machine, its limits and the working directory are: all that a later comparison needs and cannot be had
//! later. What cannot be read is absent.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine and the limits on this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {}

impl Host {
    /// Looks at this machine; `argv` is the launch command, whose interpreter and packages are looked at too.
    pub fn look(argv: &[String], directory: &Path) -> Host {
        let _ = (argv, directory);
        todo!()
    }
}

/// The environment variables that matter to a launch, secrets masked.
pub fn environment_that_matters() -> BTreeMap<String, String> {
    todo!()
}

/// An argument vector with secrets masked (`--api-key VALUE`, `--token=VALUE`, `hf_…`).
pub fn mask_argv(argv: &[String]) -> Vec<String> {
    let _ = argv;
    todo!()
}
