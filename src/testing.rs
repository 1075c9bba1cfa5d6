//! For unit tests.

use std::time::{Duration, Instant};

pub mod program;

/// Looks again and again until something is so, and fails where it does not become so: a test that cannot fail would hold
/// up all the others.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::yield_now();
    }
}
