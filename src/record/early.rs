//! The reports of the stopping event, made while the launch goes on: whoever waits for the figures of readiness has them
//! then, and not only at the end.
//!
//! A thread that gives way to every other may get next to nothing of a busy machine, and the end of a launch must not wait
//! for it: what is not written by then is given up, and the reports of the end take its place.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::report::folder;

/// Reports in the making. Nothing is written any more once this is dropped.
pub(super) struct EarlyReports(Arc<Mutex<State>>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Wanted,
    GivenUp,
}

impl EarlyReports {
    /// Begins to make them of the folder at `place`; `None` where there is no thread to be had.
    pub(super) fn begin(place: PathBuf) -> Option<EarlyReports> {
        let state = Arc::new(Mutex::new(State::Wanted));
        let own = state.clone();
        let making = std::thread::Builder::new().name("reports".into()).spawn(move || {
            // The command has just become ready, and the next sample is due.
            crate::sys::thread::give_way();
            // Made again at the end, where a failure is told.
            let _ = make(&place, &own);
        });
        making.ok().map(|_| EarlyReports(state))
    }
}

impl Drop for EarlyReports {
    fn drop(&mut self) {
        *held(&self.0) = State::GivenUp;
    }
}

fn make(place: &Path, state: &Mutex<State>) -> anyhow::Result<()> {
    let (run, table) = folder::load(place)?;
    for report in folder::reports(&run, &table)? {
        // Held while one file is written, and not while anything is painted.
        let state = held(state);
        if *state == State::GivenUp {
            break;
        }
        report.write(place)?;
    }
    Ok(())
}

fn held(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A word is whole whatever became of who wrote it.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::run::STAGES;

    #[test]
    fn what_is_given_up_writes_nothing_and_what_is_not_writes_all() {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runs/evicted");
        let place = tempfile::tempdir().unwrap();
        for recorded in std::fs::read_dir(from).unwrap().flatten() {
            std::fs::copy(recorded.path(), place.path().join(recorded.file_name())).unwrap();
        }
        let state = Mutex::new(State::GivenUp);
        make(place.path(), &state).unwrap();
        assert!(!place.path().join(STAGES).exists());
        *state.lock().unwrap() = State::Wanted;
        make(place.path(), &state).unwrap();
        assert!(place.path().join(STAGES).exists());
    }

    #[test]
    fn whoever_lets_go_does_not_wait() {
        let place = tempfile::tempdir().unwrap();
        let early = EarlyReports::begin(place.path().join("not there")).unwrap();
        let state = early.0.clone();
        drop(early);
        assert!(*held(&state) == State::GivenUp);
    }
}
