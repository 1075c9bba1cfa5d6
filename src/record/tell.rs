//! The end of a run: reports made from its folder, and the table for whoever launched it.

use std::io::Write;

use super::recorder::Recorded;
use crate::report;

/// Makes the reports and tells the user, on standard error: the command's own output is not ours to add to.
pub fn tell(recorded: Option<Recorded>, quiet: bool) {
    let mut told = String::new();
    let mut say = |text: &str| told.push_str(&format!("stagemark: {text}\n"));
    match recorded {
        None => say("the recorder failed; the command was not harmed"),
        Some(Recorded { folder: None, meta }) => meta.warnings.iter().for_each(|warning| say(warning)),
        Some(Recorded { folder: Some(folder), .. }) => {
            let losses = folder.losses();
            match report::folder::load(folder.path()) {
                Ok((run, table)) => {
                    if let Err(error) = report::folder::write(&run, &table, folder.path()) {
                        say(&format!("a report could not be written: {error:#}"));
                    }
                    losses.iter().for_each(|loss| say(loss));
                    told.push_str(&report::terminal::text(&run, &table));
                }
                Err(error) => {
                    losses.iter().for_each(|loss| say(loss));
                    say(&format!("the run could not be read: {error:#}"));
                }
            }
        }
    }
    if !quiet {
        // Standard error may be closed by now; there is nowhere else to say so.
        let _ = std::io::stderr().write_all(told.as_bytes());
    }
}
