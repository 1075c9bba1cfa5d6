//! A watcher's thread, and how it is told to come to its end.

use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::eventfd::EventFd;

/// A thread that goes on until it is told to end. Dropped, it is told and not waited for.
pub(super) struct Ending {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Ending {
    /// Of a thread that ends once `stop` can be read; of none where there was nothing to watch.
    pub fn of(stop: Arc<EventFd>, thread: Option<JoinHandle<()>>) -> Ending {
        Ending { stop, thread }
    }

    /// Tells it to end, and waits until it has.
    pub fn finish(mut self) {
        self.tell();
        if let Some(thread) = self.thread.take() {
            // The thread's own panic has been printed; there is nothing to add to it here.
            let _ = thread.join();
        }
    }

    fn tell(&self) {
        // Fails only when 2^64 − 1 ends have been asked for.
        let _ = self.stop.write(1);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.tell();
    }
}
