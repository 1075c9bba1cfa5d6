//! Dispatch, print the error, exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|verb| verb.to_str()) {
        // The verbs that are not for people: the launch's own small processes, and the bundled reference loader.
        Some(stagemark::launch::pump::NAME) => stagemark::launch::pump::main(arguments),
        Some(stagemark::launch::witness::NAME) => stagemark::launch::witness::main(arguments),
        Some("reference-loader") => stagemark_fixtures::loader::main(arguments),
        Some("run") => run(arguments),
        _ => ExitCode::from(2),
    }
}

/// The launch alone, recording nothing.
fn run(arguments: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    use stagemark::launch::{Command, Control, Finals, LogSource, Outputs, start, supervise};
    let argv = arguments.skip_while(|argument| argument != "--").skip(1).collect();
    let launch = || -> anyhow::Result<u8> {
        let mut outputs = Outputs::prepare()?;
        let control = Control::new()?;
        for source in outputs.take_sources() {
            if let LogSource::Pipe { fd, .. } = source {
                std::thread::spawn(move || std::io::copy(&mut std::fs::File::from(fd), &mut std::io::sink()));
            }
        }
        let started = match start(&Command { argv, environment: Vec::new() }, &mut outputs) {
            Ok(started) => started,
            Err(error) => {
                eprintln!("stagemark: {error}");
                return Ok(error.status());
            }
        };
        let (sender, _seen) = std::sync::mpsc::channel();
        let ended = supervise(&started, &mut outputs, &Finals::new(), &control, &sender)?;
        outputs.drain(std::time::Duration::from_secs(5));
        Ok(ended.status())
    };
    launch().map_or_else(
        |error| {
            eprintln!("stagemark: {error:#}");
            ExitCode::from(125)
        },
        ExitCode::from,
    )
}
