//! What every test needs: the program under test, and a folder that goes away.

use std::process::Command;

/// The program under test.
pub fn stagemark() -> Command {
    Command::new(env!("CARGO_BIN_EXE_stagemark"))
}

/// The reference loader, as the bundled verb.
pub fn reference_loader() -> [&'static str; 2] {
    [env!("CARGO_BIN_EXE_stagemark"), "reference-loader"]
}
