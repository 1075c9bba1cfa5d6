//! Dispatch, print the error, exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|verb| verb.to_str()) {
        // The two verbs that are not for people: the output pump's own process, and the bundled reference loader.
        Some("reference-loader") => stagemark_fixtures::loader::main(arguments),
        _ => ExitCode::from(2),
    }
}
