//! The end of a run: reports made from its folder, and the table for whoever launched it.

use std::io::{IsTerminal, Write};

use super::recorder::Recorded;
use crate::event::text_of;
use crate::report;
use crate::report::color::Color;

/// Makes the reports and tells the user, on standard error: the command's own output is not ours to add to.
pub fn tell(recorded: Result<Recorded, String>, quiet: bool, color: Color) {
    let mut told = String::new();
    let mut say = |text: &str| told.push_str(&format!("stagemark: {text}\n"));
    match recorded {
        Err(why) => say(&format!("the recorder failed: {why}; the command was not harmed")),
        Ok(Recorded { folder: None, meta }) => meta.warnings.iter().for_each(|warning| say(warning)),
        Ok(Recorded { folder: Some(folder), .. }) => {
            let losses = folder.losses();
            let (place, shown) = (folder.place(), folder.path_now());
            // An error names the way there; people know the folder by its own name.
            let named = |error: &anyhow::Error| {
                let (place, shown) = (text_of(&place), text_of(&shown));
                format!("{error:#}").replace(&place, &shown)
            };
            match report::folder::load(&place) {
                Ok((mut run, table)) => {
                    run.folder = shown.clone();
                    if shown != folder.path() {
                        let (was, is) = (text_of(folder.path()), text_of(&shown));
                        say(&format!("the run folder was moved while the command ran: from {was} to {is}"));
                    }
                    if let Err(error) = report::folder::write(&run, &table, &place) {
                        say(&format!("a report could not be written: {}", named(&error)));
                    }
                    losses.iter().for_each(|loss| say(loss));
                    let table = report::terminal::text(&run, &table);
                    let colored = color.is_wanted(std::io::stderr().is_terminal());
                    told.push_str(&if colored { report::color::painted(&table) } else { table });
                }
                Err(error) => {
                    losses.iter().for_each(|loss| say(loss));
                    say(&format!("the run could not be read: {}", named(&error)));
                }
            }
        }
    }
    if !quiet {
        // Standard error may be closed by now; there is nowhere else to say so.
        let _ = std::io::stderr().write_all(told.as_bytes());
    }
}
