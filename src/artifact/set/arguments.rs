//! What of a command line may name a model.
//!
//! Knows the flags by which the usual servers take one, and which arguments are none: code, outputs, scripts. Whether
//! a candidate is a model is for the file system to say.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::folder::has_extension;
use super::shell;

/// An argument, or a flag's value, that may be a path or an id.
#[derive(Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    pub value: &'a OsStr,
    /// Whether it stands where a model stands, so that it may also be a Hugging Face id.
    pub names_model: bool,
}

/// Flags whose value is a model.
const MODEL_FLAGS: &[&str] = &[
    "--model",
    "--model-path",
    "--model_path",
    "--model-id",
    "--model_id",
    "--model-name-or-path",
    "--model_name_or_path",
    "--hf-repo",
    "--hf_repo",
    "-hf",
    "-hfr",
    "-m",
];

/// Flags whose value is written, or is code.
const OTHER_FLAGS: &[&str] = &["--output", "--out", "--outfile", "--output-dir", "--save", "-o"];

/// The candidates, in the order of the command line. The program itself is none.
pub fn candidates(argv: &[OsString]) -> Vec<Argument<'_>> {
    let mut candidates = Vec::new();
    let mut before = argv.first().map(OsString::as_os_str);
    let mut served = false;
    let script = shell::script_at(argv);
    for (index, argument) in argv.iter().enumerate().skip(1) {
        let argument = argument.as_os_str();
        let previous = before.replace(argument).unwrap_or_default();
        if is_one_of(previous, OTHER_FLAGS) || takes_code(&argv[..index]) || script == Some(index) {
            continue;
        }
        if let Some((flag, value)) = flag_with_value(argument) {
            if !is_one_of(flag, OTHER_FLAGS) {
                candidates.push(Argument { value, names_model: is_one_of(flag, MODEL_FLAGS) });
            }
            continue;
        }
        if argument.as_bytes().starts_with(b"-") || argument.is_empty() {
            continue;
        }
        // `vllm serve MODEL`: the first argument after the verb that is no flag's value, as far as can be told.
        let positional = !served
            && argv[..index].iter().any(|argument| argument == "serve")
            && (!previous.as_bytes().starts_with(b"-") || is_switch(previous));
        served |= positional;
        candidates.push(Argument { value: argument, names_model: positional || is_one_of(previous, MODEL_FLAGS) });
    }
    candidates
}

/// The value of `--revision`, if it is given.
pub fn revision(argv: &[OsString]) -> Option<&OsStr> {
    argv.iter().enumerate().find_map(|(index, argument)| match flag_with_value(argument) {
        Some((flag, value)) if flag == "--revision" => Some(value),
        None if argument == "--revision" => argv.get(index + 1).map(OsString::as_os_str),
        _ => None,
    })
}

/// The members of an argument that is a list with commas, as candle's `--weight-files a,b`; none of any other.
pub fn listed(value: &OsStr) -> impl Iterator<Item = &OsStr> {
    let bytes = value.as_bytes();
    let is_list = bytes.contains(&b',');
    bytes.split(|&byte| byte == b',').filter(move |part| is_list && !part.is_empty()).map(OsStr::from_bytes)
}

/// Whether a file is a program's text, which is never a model.
pub fn is_script(path: &Path) -> bool {
    has_extension(path, &["py", "sh", "bash", "rb", "pl", "js", "lua", "so"])
}

/// Whether the next argument is code: `python -c CODE`, `bash -c CODE`.
fn takes_code(before: &[OsString]) -> bool {
    let [.., program, flag] = before else { return false };
    let name = Path::new(program).file_name().map_or(&b""[..], OsStr::as_bytes);
    let interprets = [&b"python"[..], b"sh", b"bash", b"dash", b"zsh", b"perl", b"ruby", b"node"];
    // Other flags may stand between the two (`python -u -c`), so that a flag in the program's place will do.
    let fits = name.starts_with(b"-") || interprets.iter().any(|interpreter| name.starts_with(interpreter));
    let bytes = flag.as_bytes();
    fits && bytes.starts_with(b"-") && !bytes.starts_with(b"--") && bytes.ends_with(b"c") && bytes.len() <= 4
}

fn flag_with_value(argument: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = argument.as_bytes();
    let equals = bytes.iter().position(|&byte| byte == b'=').filter(|_| bytes.starts_with(b"-"))?;
    Some((OsStr::from_bytes(&bytes[..equals]), OsStr::from_bytes(&bytes[equals + 1..])))
}

/// Whether a flag is one that takes no value, by the habits of naming.
fn is_switch(flag: &OsStr) -> bool {
    let bytes = flag.as_bytes();
    bytes.contains(&b'=')
        || [&b"--enable-"[..], b"--disable-", b"--no-"].iter().any(|prefix| bytes.starts_with(prefix))
        || is_one_of(flag, &["--trust-remote-code", "--enforce-eager", "--"])
}

fn is_one_of(argument: &OsStr, flags: &[&str]) -> bool {
    flags.iter().any(|flag| argument == *flag)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn of(line: &[&str]) -> Vec<(String, bool)> {
        let argv: Vec<OsString> = line.iter().map(OsString::from).collect();
        candidates(&argv).iter().map(|c| (c.value.to_string_lossy().into_owned(), c.names_model)).collect()
    }

    fn models(line: &[&str]) -> Vec<String> {
        of(line).into_iter().filter(|(_, names_model)| *names_model).map(|(value, _)| value).collect()
    }

    #[test]
    fn models_stand_where_servers_take_them() {
        assert_eq!(models(&["vllm", "serve", "org/name", "--port", "8000"]), ["org/name"]);
        assert_eq!(models(&["vllm", "serve", "--port", "8000", "org/name"]), ["org/name"]);
        assert_eq!(models(&["vllm", "serve", "--trust-remote-code", "--seed=1", "org/name"]), ["org/name"]);
        assert_eq!(
            models(&["python", "-m", "vllm.entrypoints.openai.api_server", "--model=org/name"]).last().unwrap(),
            "org/name"
        );
        assert_eq!(models(&["python3", "-m", "sglang.launch_server", "--model-path", "org/name"])[1..], ["org/name"]);
        assert_eq!(models(&["llama-server", "-hf", "org/name:Q4_K_M"]), ["org/name:Q4_K_M"]);
        assert!(models(&["cat", "org/name"]).is_empty());
    }

    #[test]
    fn code_and_outputs_are_no_candidates() {
        assert!(of(&["python", "-c", "import torch"]).is_empty());
        assert_eq!(of(&["python", "-u", "-c", "print(1)", "model.pt"]), [("model.pt".into(), false)]);
        assert_eq!(
            of(&["convert", "in.gguf", "--outfile", "out.gguf", "--output=x.gguf"]),
            [("in.gguf".into(), false)]
        );
        assert!(of(&[]).is_empty());
        assert!(of(&["", "", "-", "--"]).is_empty());
    }

    #[test]
    fn revision_is_read_in_both_forms() {
        let argv = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(revision(&argv(&["x", "--revision", "v1"])), Some(OsStr::new("v1")));
        assert_eq!(revision(&argv(&["x", "--revision=v2"])), Some(OsStr::new("v2")));
        assert_eq!(revision(&argv(&["x", "--revision"])), None);
    }
}
