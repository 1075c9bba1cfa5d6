//! Whether the prefix stands in the wrong place: a command that only talks to a daemon or another machine loads nothing
//! in its own tree, and a report of it would be about nothing.

/// Programs that have others do the loading, and where the prefix belongs instead.
const CLIENTS: &[(&[&str], &str)] = &[
    (&["docker", "podman", "nerdctl"], "inside the container: in front of the image's own command"),
    (&["kubectl", "oc", "helm"], "in the pod's specification: in front of the container's command"),
    (&["ollama"], "in front of `ollama serve`, where the models are loaded"),
    (&["srun", "sbatch", "mpirun", "mpiexec", "pdsh"], "behind it: in front of the command that each rank runs"),
    (&["ray"], "in front of the command that each worker runs"),
    (&["ssh", "curl", "wget", "http"], "on the serving machine: in front of the server's command"),
    (&["systemctl", "systemd-run"], "in the unit's ExecStart="),
];

/// What to tell of a launch in whose tree no artifact was seen opened. `argvs` are the command lines that ran in it;
/// `named` says whether any artifact was named before it started.
pub fn nothing_opened<'a>(argvs: impl IntoIterator<Item = &'a [String]>, named: bool) -> String {
    let place = argvs.into_iter().find_map(|argv| {
        let program = argv.first()?.rsplit('/').next()?;
        let (_, place) = CLIENTS.iter().find(|(names, _)| names.contains(&program))?;
        Some(format!("`{program}` has others do the loading; the prefix belongs {place}"))
    });
    let place = place.unwrap_or_else(|| {
        let elsewhere = "if it is loaded by a daemon or on another machine, the prefix belongs in front of the command \
                         that loads it";
        if named { elsewhere.to_owned() } else { format!("{elsewhere}; if here, name its file with --artifact") }
    });
    let what = if named { "none of the model files named" } else { "no model file" };
    format!("{what} was seen opened in this process tree: {place}")
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
        true => format!("{who}, and was sent SIGTERM too (--then stop)"),
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
    fn a_client_is_told_where_the_prefix_belongs() {
        let argvs = [vec!["sh".to_owned(), "x".to_owned()], vec!["/usr/bin/docker".to_owned(), "run".to_owned()]];
        let told = nothing_opened(argvs.iter().map(Vec::as_slice), false);
        assert!(told.contains("`docker`") && told.contains("inside the container"), "{told}");
        assert!(nothing_opened([], false).contains("--artifact"));
        assert!(!nothing_opened([], true).contains("--artifact"));
    }
}
