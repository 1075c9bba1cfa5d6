//! What a run keeps of its surroundings and the launch need not wait for: gathered on a thread of its own from the
//! beginning of the preparation, and taken into `run.json` when that is first written.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::JoinHandle;

use crate::host::{self, Host};
use crate::run::Meta;

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
        let thread = std::thread::Builder::new().name("surroundings".into()).spawn(move || own.answer());
        Surroundings(thread.ok(), query)
    }

    /// Waits for the facts, and enters them.
    pub fn enter(self, meta: &mut Meta) {
        let Surroundings(thread, query) = self;
        // Where there was no thread to be had, or it failed, it is done here, late.
        let facts = thread.and_then(|thread| thread.join().ok()).unwrap_or_else(|| query.answer());
        (meta.argv, meta.environment, meta.host) = (facts.argv, facts.environment, facts.host);
    }
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
