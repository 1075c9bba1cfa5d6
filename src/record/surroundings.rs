//! What a run keeps of its surroundings and the launch need not wait for: gathered on a thread of its own from the
//! beginning of the preparation, and taken into `run.json` when that is first written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::JoinHandle;

use nix::sys::resource::{Resource, getrlimit};

use crate::host::{self, Host};
use crate::run::Meta;

/// So many are never short: a launch takes some twenty.
const ENOUGH_DESCRIPTORS: u64 = 64;

/// The facts, or the thread that gathers them.
pub struct Surroundings(Option<JoinHandle<Facts>>, Query);

#[derive(Clone)]
struct Query {
    argv: Vec<String>,
    directory: PathBuf,
}

struct Facts {
    argv: Vec<String>,
    environment: BTreeMap<String, String>,
    host: Host,
}

impl Surroundings {
    /// Begins to look, for a command that will be run in `directory`.
    pub fn look(argv: Vec<String>, directory: PathBuf) -> Surroundings {
        let query = Query { argv, directory };
        let own = query.clone();
        let start = || std::thread::Builder::new().name("surroundings".into()).spawn(move || own.answer()).ok();
        Surroundings(descriptors_suffice().then(start).flatten(), query)
    }

    /// Waits for the facts, and enters them.
    pub fn enter(self, meta: &mut Meta) {
        let Surroundings(thread, query) = self;
        // Where there was no thread to be had, or it failed, it is done here, late.
        let facts = thread.and_then(|thread| thread.join().ok()).unwrap_or_else(|| query.answer());
        (meta.argv, meta.environment, meta.host) = (facts.argv, facts.environment, facts.host);
    }
}

/// Whether this may open files while the launch is being prepared. Where descriptors are short they are the launch's,
/// and the facts are gathered once it has started.
pub(super) fn descriptors_suffice() -> bool {
    getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(soft, _)| soft >= ENOUGH_DESCRIPTORS)
}

impl Query {
    fn answer(&self) -> Facts {
        Facts {
            // First, because the first look at the tree needs the masks too.
            argv: host::mask_argv(&self.argv),
            environment: host::environment_that_matters(),
            host: Host::look(&self.argv, &self.directory),
        }
    }
}
