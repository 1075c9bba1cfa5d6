//! The notification socket: sd_notify(3)'s protocol, with `X_STAGE=name` and `BARRIER=1`; and `stagemark mark`, its
//! client.

use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::Sender;

use super::Seen;

/// The socket, bound; messages wait in it until [`Notify::watch`].
pub struct Notify;

impl Notify {
    /// Binds a socket in a fresh private directory. `forward` is the NOTIFY_SOCKET that was set already: it gets every
    /// message too.
    pub fn bind(forward: Option<&Path>) -> std::io::Result<Notify> {
        let _ = forward;
        todo!()
    }

    /// The variables that the command needs to find it.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        todo!()
    }

    /// Starts the thread that hears the messages. A sender is in the tree if `is_ours` says so of its pid.
    pub fn watch(self, sender: Sender<Seen>, root: crate::event::Pid) -> std::io::Result<NotifyWatch> {
        let _ = (sender, root);
        todo!()
    }
}

/// The notification thread.
pub struct NotifyWatch;

impl NotifyWatch {
    /// Hears what was sent so far, then ends.
    pub fn finish(self) {
        todo!()
    }
}

/// `stagemark mark NAME`: sends a mark to the run that this process belongs to, and waits until it was heard.
pub fn mark(stage: &str) -> anyhow::Result<()> {
    let _ = stage;
    todo!()
}
