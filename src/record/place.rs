//! Whether the prefix stands in the wrong place: a command that only talks to a daemon or another machine loads nothing
//! in its own tree, and a report of it would be about nothing.

use crate::stage::StageFile;
use crate::stage::elsewhere::client;

/// What to tell of a launch in whose tree no artifact was seen opened. `argvs` are the command lines that ran in it;
/// `named` says whether any artifact was named before it started.
pub fn nothing_opened<'a>(argvs: impl IntoIterator<Item = &'a [String]>, named: bool) -> String {
    let place = argvs.into_iter().find_map(|argv| {
        let client = client(argv)?;
        Some(format!("`{}` has others do the loading; the prefix belongs {}", client.program, client.place))
    });
    let place = place.unwrap_or_else(|| {
        let elsewhere = "if it is loaded by a daemon or on another machine, the prefix belongs in front of the command \
                         that loads it";
        if named { elsewhere.to_owned() } else { format!("{elsewhere}; if here, name its file with --artifact") }
    });
    let what = if named { "none of the model files named" } else { "no model file" };
    format!("{what} was seen opened in this process tree: {place}")
}

/// So many phrases of a stage file are named.
const PHRASES: usize = 4;

/// What to tell of a stage file that was followed because it was named, and that no program of the launch fits. `None`
/// where one does (`has_fitted`).
pub fn fits_nothing(file: &StageFile, has_fitted: bool) -> Option<String> {
    if has_fitted || file.argv.is_empty() {
        return None;
    }
    let (first, rest) = file.argv.split_at(file.argv.len().min(PHRASES));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let phrases: Vec<String> = first.iter().map(|phrase| format!("`{phrase}`")).collect();
    let vars = match file.vars.is_empty() {
        true => "",
        false => ": its variables have no value, and what needs one was not asked or counted",
    };
    let (name, phrases) = (&file.name, phrases.join(", "));
    Some(format!("no program of this launch fits the `argv` of the stage file `{name}` ({phrases}{more}){vars}"))
}

/// What to tell where `--then stop` was asked for and the command ended otherwise; `until` is the stopping event.
pub fn never_stopped(until: Option<&str>) -> String {
    let why = match until {
        Some(stage) => format!("the stopping event, `{stage}`, did not come before the command's own end"),
        None => "there was no stopping event".to_owned(),
    };
    format!("--then stop ended nothing: {why}; --until STAGE names another stage of the launch")
}

/// So many processes are named.
const NAMED: usize = 4;

/// What to tell of processes that outlived the command, by their names; `stopped` says whether they were sent SIGTERM, as
/// the command was. `None` where there are none.
pub fn survivors(names: &[String], stopped: bool) -> Option<String> {
    let (first, rest) = names.split_at(names.len().min(NAMED));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    let who = match names.len() {
        0 => return None,
        1 => format!("{} outlived the command", first[0]),
        _ => format!("{}{more} outlived the command", first.join(", ")),
    };
    Some(match stopped {
        true if names.len() == 1 => format!("{who}, and was sent SIGTERM too (--then stop)"),
        true => format!("{who}, and were sent SIGTERM too (--then stop)"),
        false => format!("{who}: what it does from then on is not in this run"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_are_named_up_to_a_number() {
        let names: Vec<String> = (1..=6).map(|pid| format!("process {pid} (x)")).collect();
        assert_eq!(survivors(&[], true), None);
        assert!(survivors(&names[..1], false).unwrap().starts_with("process 1 (x) outlived the command: what"));
        let told = survivors(&names, true).unwrap();
        assert!(told.contains("process 4 (x) and 2 more outlived") && told.contains("SIGTERM"), "{told}");
    }

    #[test]
    fn a_stage_file_that_fits_no_program_is_told_of() {
        let file = |argv: &str, vars: &str| {
            StageFile::parse(&format!("name = 't'\nargv = [{argv}]\n{vars}\n[[stage]]\nname = 's'"), "t").unwrap()
        };
        assert_eq!(fits_nothing(&file("", ""), false), None, "it fits every command");
        assert_eq!(fits_nothing(&file("'serve'", ""), true), None);
        let told = fits_nothing(&file("'my serve', 'a'", ""), false).unwrap();
        assert!(told.ends_with("the stage file `t` (`my serve`, `a`)"), "{told}");
        let told =
            fits_nothing(&file("'a', 'b', 'c', 'd', 'e'", "vars = { p = { flag = '-p', default = '1' } }"), false);
        assert!(told.as_ref().unwrap().contains("`d` and 1 more): its variables have no value"), "{told:?}");
    }

    #[test]
    fn a_client_is_told_where_the_prefix_belongs() {
        let argvs = [vec!["sh".to_owned(), "x".to_owned()], vec!["/usr/bin/docker".to_owned(), "run".to_owned()]];
        let told = nothing_opened(argvs.iter().map(Vec::as_slice), false);
        assert!(told.contains("`docker`") && told.contains("inside the container"), "{told}");
        assert!(nothing_opened([], false).contains("--artifact"));
        assert!(!nothing_opened([], true).contains("--artifact"));
    }
}
