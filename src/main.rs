//! Dispatch, print the error, exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|verb| verb.to_str()) {
        // The two verbs that are not for people: the output pump's own process, and the bundled reference loader.
        Some("reference-loader") => stagemark_fixtures::loader::main(arguments),
        Some("mark") => match arguments.next().as_deref().and_then(|stage| stage.to_str()) {
            Some(stage) => match stagemark::watch::notify::mark(stage) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("stagemark: {error:#}");
                    ExitCode::FAILURE
                }
            },
            None => ExitCode::from(2),
        },
        _ => ExitCode::from(2),
    }
}
