//! The launch: the command as the caller would have run it, and the whole tree that grows from it.
//!
//! The command is sacred: same bytes, same terminal, same signals, same exit status, and unharmed whatever happens to
//! the profiler, SIGKILL of any of its processes included.
//!
//! In order: [`signals::hold`] before any thread is started, [`Outputs::prepare`], [`start`], [`supervise()`]
//! on the main thread until the command has ended, [`Outputs::drain`].

pub mod beside;
pub mod child;
pub mod ending;
pub mod finals;
pub mod group;
pub mod helpers;
pub mod line;
pub mod modes;
pub mod output;
pub mod pump;
pub mod signals;
pub mod supervise;
pub mod tree;
pub mod witness;

pub use child::{Command, StartError, Started, start};
pub use finals::{FinalReading, Finals};
pub use group::OwnGroup;
pub use helpers::Helpers;
pub use line::{LiveLine, Waited};
pub use output::{LogSource, Outputs, Upstream};
pub use supervise::{Control, Ended, supervise};
