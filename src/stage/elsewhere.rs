//! Programs that have others do the loading: a daemon, another machine. A launch of one says nothing of the model itself.

/// A program that only asks for a model to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    pub program: &'a str,
    /// Where the prefix belongs instead.
    pub place: &'static str,
    /// What it starts is never in its own tree.
    pub is_remote: bool,
}

/// Names, where the prefix belongs instead, and whether what they start is never in their own tree.
const CLIENTS: &[(&[&str], &str, bool)] = &[
    (
        &["docker", "docker-compose", "podman", "nerdctl", "ctr", "crictl"],
        "inside the container: in front of the image's own command",
        true,
    ),
    (
        &["kubectl", "oc", "helm", "k3s", "microk8s"],
        "in the pod's specification: in front of the container's command",
        true,
    ),
    (&["ollama"], "in front of `ollama serve`, where the models are loaded", true),
    (&["srun", "pdsh", "flux", "jsrun", "aprun"], "behind it: in front of the command that each rank runs", true),
    (&["sbatch"], "in the batch script: in front of the command that each rank runs", true),
    (&["mpirun", "mpiexec", "prun", "salloc"], "behind it: in front of the command that each rank runs", false),
    (&["ray", "raylet", "gcs_server"], "in front of the command that each worker runs", true),
    (&["ssh"], "on the serving machine: in front of the server's command", true),
    (&["curl", "wget", "http", "https"], "on the serving machine: in front of the server's command", false),
    (&["systemctl", "systemd-run", "supervisorctl"], "in the unit's own command (ExecStart=)", true),
];

/// Programs that run what their first argument names.
const INTERPRETERS: &[&str] = &["sh", "bash", "dash", "ksh", "zsh", "python", "perl", "ruby", "node"];

/// The verbs of a client's own that are no client.
const SERVERS: &[(&str, &[&str])] = &[("ollama", &["serve", "start", "runner"])];

/// The client that a command line is of, if it is one.
pub fn client(argv: &[String]) -> Option<Client<'_>> {
    let (program, rest) = program(argv)?;
    let (_, place, is_remote) = CLIENTS.iter().find(|(names, _, _)| names.contains(&program))?;
    let serves = SERVERS.iter().any(|(name, verbs)| {
        *name == program
            && rest.iter().find(|word| !word.starts_with('-')).is_some_and(|verb| verbs.contains(&verb.as_str()))
    });
    (!serves).then_some(Client { program, place, is_remote: *is_remote })
}

/// The file name of the program, or of the script that an interpreter runs, and the arguments behind it.
fn program(argv: &[String]) -> Option<(&str, &[String])> {
    let (first, rest) = argv.split_first()?;
    // A program whose arguments could not be read stands in brackets.
    let name = file_name(first.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(first));
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if INTERPRETERS.contains(&plain)
        && let Some((script, behind)) = rest.split_first()
        && !script.starts_with('-')
    {
        return Some((file_name(script), behind));
    }
    Some((name, rest))
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        client(&argv).map(|client| client.program.to_owned())
    }

    #[test]
    fn clients_are_known_by_their_program() {
        assert_eq!(of("/usr/bin/docker run vllm/vllm-openai").as_deref(), Some("docker"));
        assert_eq!(of("/usr/bin/python3.11 /usr/local/bin/ray job submit").as_deref(), Some("ray"));
        assert_eq!(of("/bin/sh /opt/kubectl apply").as_deref(), Some("kubectl"));
        assert_eq!(of("ollama run llama3").as_deref(), Some("ollama"));
        assert_eq!(of("[docker]").as_deref(), Some("docker"));
        assert_eq!(of("ollama"), Some("ollama".to_owned()));
        for none in [
            "ollama serve",
            "/usr/bin/ollama runner --port 1",
            "python -m ray",
            "python train.py",
            "sh -c docker",
            "vllm serve docker",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(client(&[]), None);
    }
}
