//! Joins the launch, the probes, the watchers and the matcher, and writes the run folder. The only room that knows all
//! the others below it.
//!
//! Threads, each sending what it saw with its own time over one channel; the recorder decides and writes:
//!
//! ```text
//! main      launch: start, signals, reaping            ─┐
//! log       one a stream: lines                         ├─► channel ─► recorder: ticks, marks, rows
//! notify    the notification socket                    ─┤
//! stream    the kernel's records wait to be taken      ─┘
//! faults    with `--faults`: drains the kernel's samples into files of its own
//! ```
//!
//! Nothing here can harm the command: a recorder that fails, panics or is killed leaves the main thread and the output
//! pump as they are.

mod absence;
mod blind;
mod cost;
mod death;
mod detail;
mod discover;
mod early;
mod faults;
mod folder;
mod kernel;
mod lacking;
mod live;
mod look;
mod options;
mod pace;
mod place;
mod profile;
mod recorder;
mod state;
mod surroundings;
mod tell;

pub use folder::FolderError;
pub(crate) use folder::{create_fresh, refuse_what_is_there};
pub use options::{Options, ProfileError, Then};
pub use profile::profile;
