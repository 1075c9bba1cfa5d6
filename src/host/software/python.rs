//! A Python installation by its files: version, environment, and the packages that load models.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Surroundings, program};
use crate::event::text_of;
use crate::host::look;

/// A Python, as far as its files tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Python {
    /// The interpreter as the command names it.
    pub path: String,
    /// Symlinks resolved.
    pub real_path: Option<String>,
    /// The virtual environment, if it is in one.
    pub environment: Option<String>,
    /// As exact as the files are: `3.12.4`, or `3.12`.
    pub version: Option<String>,
    /// The folders of packages, in the order in which Python searches them.
    pub site_packages: Vec<String>,
    /// Packages that have a part in loading models: normalised name → version.
    pub packages: BTreeMap<String, String>,
    /// How many `nvidia-*` packages there are; absent if no folder of packages could be read.
    pub nvidia_packages: Option<usize>,
    /// Whether looking was given up half-way, for its time or the number of packages.
    pub cut_short: bool,
}

/// Packages of interest, names normalised (lower case, `_` between words).
const OF_INTEREST: &[&str] = &[
    "accelerate",
    "bitsandbytes",
    "ctranslate2",
    "diffusers",
    "fastsafetensors",
    "flash_attn",
    "flashinfer_python",
    "gguf",
    "hf_transfer",
    "hf_xet",
    "huggingface_hub",
    "llama_cpp_python",
    "numpy",
    "onnxruntime",
    "onnxruntime_gpu",
    "optimum",
    "runai_model_streamer",
    "safetensors",
    "sentence_transformers",
    "sglang",
    "tensorrt_llm",
    "tokenizers",
    "torch",
    "transformers",
    "triton",
    "vllm",
    "xformers",
];

/// Programs that run the command in their arguments.
const WRAPPERS: &[&str] = &[
    "chrt", "conda", "env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "sudo", "taskset", "time",
    "timeout", "uv",
];

const ENTRIES_CAP: usize = 20_000;
/// The launch waits meanwhile. The tests are about what is found, on however busy a machine.
const TIME_CAP: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 20 });
const FOLDERS_CAP: usize = 12;

/// The Python that a command line runs.
pub(super) fn look(around: &Surroundings, argv: &[String], directory: &Path) -> Option<Python> {
    interpreter(around, argv, directory).map(|interpreter| Python::of(around, &interpreter, directory))
}

fn interpreter(around: &Surroundings, argv: &[String], directory: &Path) -> Option<PathBuf> {
    let first = argv.first()?;
    let wrapped = Path::new(first).file_name().is_some_and(|name| WRAPPERS.iter().any(|wrapper| name == *wrapper));
    // uv runs the project's own environment, whichever is active.
    if Path::new(first).file_name().is_some_and(|name| name == "uv") {
        let project =
            directory.ancestors().take(64).map(|above| above.join(".venv/bin/python")).find(|path| path.is_file());
        if project.is_some() {
            return project;
        }
    }
    let reach = if wrapped { 16 } else { 1 };
    argv.iter().take(reach).filter(|word| !word.starts_with('-')).find_map(|word| {
        let path = program::resolve(around, word, directory)?;
        let path = behind_pyenv(around, &path, directory).unwrap_or(path);
        if is_python(&path) {
            return Some(path);
        }
        program::interpreter(around, &path, directory).filter(|path| is_python(path))
    })
}

/// `python`, `python3`, `python3.12`, `pypy3`; not `python3-config`.
fn is_python(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let rest = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b't'))
}

/// pyenv puts a shell script in the place of each interpreter and installed program, which chooses by PYENV_VERSION, by a `.python-version` here or
/// above, and by its own `version` file.
fn behind_pyenv(around: &Surroundings, shim: &Path, directory: &Path) -> Option<PathBuf> {
    let shims = shim.parent()?;
    if shims.file_name()? != "shims" {
        return None;
    }
    let root = shims.parent()?;
    let chosen = match around.pyenv_version.as_ref().and_then(|version| version.to_str()) {
        Some(versions) => versions.split(':').next()?.to_owned(),
        None => directory
            .ancestors()
            .take(64)
            .find_map(|above| look::line(&above.join(".python-version")))
            .or_else(|| look::line(&root.join("version")))?,
    };
    let chosen = chosen.split_whitespace().next()?;
    if chosen.contains('/') || chosen.starts_with('.') {
        return None;
    }
    Some(root.join("versions").join(chosen).join("bin").join(shim.file_name()?)).filter(|path| path.is_file())
}

impl Python {
    fn of(around: &Surroundings, interpreter: &Path, directory: &Path) -> Python {
        let real = std::fs::canonicalize(interpreter).ok();
        let mut python =
            Python { path: text_of(interpreter), real_path: real.as_ref().map(text_of), ..Python::default() };
        let configuration = prefix(interpreter).and_then(|prefix| {
            let text = look::text(&prefix.join("pyvenv.cfg"), look::SMALL_CAP)?;
            Some((prefix.to_path_buf(), text))
        });
        let base = real.as_deref().and_then(prefix).map(Path::to_path_buf);
        let setting = |name: &str| {
            configuration.as_ref().and_then(|(_, text)| {
                text.lines().find_map(|line| {
                    let (left, right) = line.split_once('=')?;
                    (left.trim().eq_ignore_ascii_case(name)).then(|| right.trim().to_owned())
                })
            })
        };
        let short = real.as_deref().and_then(version_in_name).or_else(|| only_library(base.as_deref()?));
        // venv writes `version`, virtualenv and uv `version_info` (`3.12.4.final.0`).
        let said = setting("version").or_else(|| setting("version_info")).map(|text| three_parts(&text));
        let exact = base.as_deref().zip(short.as_deref()).and_then(|(base, short)| patch_level(base, short));
        python.version = said.clone().or(exact).or_else(|| short.clone());
        let short = short.or_else(|| said.map(|said| said.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")));

        let mut folders = Vec::new();
        // An installed `python script` does see PYTHONPATH, in an environment or not.
        if let Some(path) = &around.python_path {
            folders.extend(
                std::env::split_paths(path)
                    .filter(|path| !path.as_os_str().is_empty())
                    .map(|path| directory.join(path)),
            );
        }
        if let Some(short) = &short {
            let libraries = |prefix: &Path| {
                let major = short.split('.').next().unwrap_or_default();
                ["lib", "lib64", "local/lib"]
                    .map(|lib| prefix.join(lib))
                    .into_iter()
                    .flat_map(move |lib| {
                        [
                            lib.join(format!("python{short}/site-packages")),
                            lib.join(format!("python{short}/dist-packages")),
                            lib.join(format!("python{major}/dist-packages")),
                        ]
                    })
                    .collect::<Vec<_>>()
            };
            let isolated = match &configuration {
                Some((environment, _)) => {
                    python.environment = Some(text_of(environment));
                    folders.extend(libraries(environment));
                    !setting("include-system-site-packages").is_some_and(|value| value.eq_ignore_ascii_case("true"))
                }
                None => false,
            };
            if !isolated {
                if let Some(home) = &around.home {
                    folders.push(Path::new(home).join(format!(".local/lib/python{short}/site-packages")));
                }
                folders.extend(base.as_deref().map(libraries).unwrap_or_default());
            }
        } else if let Some((environment, _)) = &configuration {
            python.environment = Some(text_of(environment));
        }
        python.read_packages(folders);
        python
    }

    fn read_packages(&mut self, folders: Vec<PathBuf>) {
        let began = Instant::now();
        let mut seen: Vec<PathBuf> = Vec::new();
        let mut left = ENTRIES_CAP;
        for folder in folders {
            // lib64 is often a symlink to lib.
            let Ok(real) = std::fs::canonicalize(&folder) else { continue };
            if seen.contains(&real) {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(&real) else { continue };
            if seen.len() == FOLDERS_CAP {
                self.cut_short = true;
                return;
            }
            seen.push(real);
            self.site_packages.push(text_of(&folder));
            let count = self.nvidia_packages.get_or_insert(0);
            for entry in entries {
                if left == 0 || began.elapsed() > TIME_CAP {
                    self.cut_short = true;
                    return;
                }
                left -= 1;
                let Some((name, version)) = entry.ok().and_then(|entry| distribution(&entry.file_name())) else {
                    continue;
                };
                if name.starts_with("nvidia_") {
                    *count += 1;
                }
                if OF_INTEREST.contains(&name.as_str()) {
                    // The folder searched first is the one imported from.
                    self.packages.entry(name).or_insert(version);
                }
            }
        }
    }
}

/// The prefix of `PREFIX/bin/python`.
fn prefix(interpreter: &Path) -> Option<&Path> {
    interpreter.parent()?.parent()
}

/// `3.12` of `python3.12`.
fn version_in_name(path: &Path) -> Option<String> {
    let version = path.file_name()?.to_str()?.strip_prefix("python")?;
    is_version(version).then(|| version.to_owned())
}

fn is_version(text: &str) -> bool {
    let mut parts = text.split('.');
    let mut number =
        || parts.next().is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    number() && number() && parts.next().is_none()
}

/// The one `lib/pythonX.Y` under a prefix.
fn only_library(prefix: &Path) -> Option<String> {
    let entries = std::fs::read_dir(prefix.join("lib")).ok()?.take(ENTRIES_CAP);
    let mut versions = entries.filter_map(|entry| version_in_name(Path::new(&entry.ok()?.file_name())));
    let only = versions.next()?;
    versions.next().is_none().then_some(only)
}

fn three_parts(text: &str) -> String {
    text.split('.').take(3).collect::<Vec<_>>().join(".")
}

/// The exact version, where the headers were installed too, or conda's record of itself.
fn patch_level(prefix: &Path, short: &str) -> Option<String> {
    let header = prefix.join(format!("include/python{short}/patchlevel.h"));
    let from_header = look::text(&header, look::SMALL_CAP).and_then(|text| {
        let rest = text.lines().find_map(|line| line.strip_prefix("#define PY_VERSION"))?;
        // `+` marks a build of no release.
        Some(rest.trim().trim_matches('"').trim_end_matches('+').to_owned())
    });
    from_header.or_else(|| {
        let wanted = format!("python-{short}.");
        std::fs::read_dir(prefix.join("conda-meta")).ok()?.take(ENTRIES_CAP).find_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let rest = name.strip_prefix("python-")?;
            let (version, _) = rest.split_once('-')?;
            (name.starts_with(&wanted) && name.ends_with(".json")).then(|| version.to_owned())
        })
    })
}

/// Name and version of `Some.Name-1.2+cu12.dist-info`, the name normalised.
fn distribution(file_name: &std::ffi::OsStr) -> Option<(String, String)> {
    let text = std::str::from_utf8(file_name.as_bytes()).ok()?;
    let stem = text.strip_suffix(".dist-info").or_else(|| text.strip_suffix(".egg-info"))?;
    let (name, version) = stem.split_once('-')?;
    // egg-info goes on with the Python it was made by.
    let version = version.split_once("-py").map_or(version, |(version, _)| version);
    let name = name.chars().map(|c| if matches!(c, '-' | '.') { '_' } else { c.to_ascii_lowercase() }).collect();
    (!version.is_empty()).then(|| (name, text_of(version)))
}

#[cfg(test)]
mod tests {
    use super::super::Software;
    use super::super::program::tests::executable;
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn packages(folder: &Path, names: &[&str]) {
        for name in names {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
    }

    fn found(around: &Surroundings, argv: &[&str], directory: &Path) -> Option<Python> {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        Software::look_in(around, &argv, directory).python
    }

    /// A base installation and a virtual environment over it.
    fn installation() -> (tempfile::TempDir, Surroundings) {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        executable(&top.join("base/bin/python3.12"), "\x7fELF");
        packages(&top.join("base/lib/python3.12/site-packages"), &["numpy-1.0.dist-info", "torch-1.0.dist-info"]);
        fs::create_dir_all(top.join("base/include/python3.12")).unwrap();
        fs::write(top.join("base/include/python3.12/patchlevel.h"), "/* */\n#define PY_VERSION      \t\"3.12.4+\"\n")
            .unwrap();
        fs::create_dir_all(top.join("venv/bin")).unwrap();
        symlink(top.join("base/bin/python3.12"), top.join("venv/bin/python")).unwrap();
        symlink("lib", top.join("venv/lib64")).unwrap();
        packages(
            &top.join("venv/lib/python3.12/site-packages"),
            &[
                "torch-2.15.0+cu128.dist-info",
                "safetensors-0.8.0.dist-info",
                "Llama.cpp-python-9.dist-info",
                "llama_cpp_python-0.3.9.dist-info",
                "nvidia_nccl_cu12-2.1.dist-info",
                "nvidia_cublas_cu12-12.8.dist-info",
                "requests-2.0.dist-info",
                "torch",
            ],
        );
        fs::write(top.join("venv/pyvenv.cfg"), "home = /x\ninclude-system-site-packages = false\nversion = 3.12.3\n")
            .unwrap();
        executable(&top.join("venv/bin/vllm"), &format!("#!{}\nimport sys\n", top.join("venv/bin/python").display()));
        let around = Surroundings { path: Some(top.join("venv/bin").into_os_string()), ..Surroundings::default() };
        (folder, around)
    }

    #[test]
    fn a_script_in_an_environment() {
        let (folder, around) = installation();
        let python = found(&around, &["vllm", "serve", "m"], folder.path()).unwrap();
        assert_eq!(python.version.as_deref(), Some("3.12.3"));
        assert_eq!(python.environment, Some(text_of(folder.path().join("venv"))));
        assert_eq!(python.site_packages.len(), 1, "lib64 is lib");
        let packages: Vec<(&str, &str)> = python.packages.iter().map(|(name, version)| (&**name, &**version)).collect();
        assert_eq!(packages, [("llama_cpp_python", "0.3.9"), ("safetensors", "0.8.0"), ("torch", "2.15.0+cu128")]);
        assert_eq!((python.nvidia_packages, python.cut_short), (Some(2), false));
    }

    #[test]
    fn the_base_beneath_an_environment_that_asks_for_it() {
        let (folder, around) = installation();
        let configuration = "version_info = 3.12.3.final.0\ninclude-system-site-packages = true\n";
        fs::write(folder.path().join("venv/pyvenv.cfg"), configuration).unwrap();
        let python = found(&around, &["numactl", "-N", "0", "python", "x.py"], folder.path()).unwrap();
        assert_eq!(python.version.as_deref(), Some("3.12.3"));
        assert_eq!(python.packages["torch"], "2.15.0+cu128", "the environment's own comes first");
        assert_eq!(python.packages["numpy"], "1.0");
    }

    #[test]
    fn an_installation_of_its_own() {
        let (folder, mut around) = installation();
        around.python_path = Some("extra".into());
        packages(&folder.path().join("extra"), &["torch-3.0.egg-info"]);
        let path = text_of(folder.path().join("base/bin/python3.12"));
        let python = found(&around, &[&path, "x.py"], folder.path()).unwrap();
        assert_eq!((python.version.as_deref(), python.environment), (Some("3.12.4"), None));
        assert_eq!(python.packages["torch"], "3.0", "PYTHONPATH comes first");
    }

    #[test]
    fn a_pyenv_shim_is_seen_through() {
        let (folder, mut around) = installation();
        let top = folder.path();
        executable(&top.join("env/shims/python3"), "#!/usr/bin/env bash\n");
        executable(&top.join("env/versions/3.9.18/bin/python3.9"), "\x7fELF");
        symlink("python3.9", top.join("env/versions/3.9.18/bin/python3")).unwrap();
        fs::write(top.join("env/version"), "3.9.18\n").unwrap();
        around.path = Some(top.join("env/shims").into_os_string());
        let python = found(&around, &["python3", "x.py"], top).unwrap();
        assert_eq!(python.version.as_deref(), Some("3.9"));
        assert!(python.path.ends_with("versions/3.9.18/bin/python3"));
        assert_eq!(python.nvidia_packages, None, "no folder of packages");
        let real = top.join("env/versions/3.9.18/bin");
        executable(&top.join("env/shims/serve"), "#!/usr/bin/env bash\n");
        executable(&real.join("serve"), &format!("#!{}\n", real.join("python3.9").display()));
        assert_eq!(found(&around, &["serve"], top).unwrap().version.as_deref(), Some("3.9"));
    }

    #[test]
    fn uv_runs_the_projects_environment() {
        let (folder, mut around) = installation();
        symlink("venv", folder.path().join(".venv")).unwrap();
        executable(&folder.path().join("bin/uv"), "\x7fELF");
        executable(&folder.path().join("bin/python"), "\x7fELF");
        around.path = Some(folder.path().join("bin").into_os_string());
        fs::create_dir_all(folder.path().join("src")).unwrap();
        let python = found(&around, &["uv", "run", "python", "x.py"], &folder.path().join("src")).unwrap();
        assert_eq!(python.version.as_deref(), Some("3.12.3"));
    }

    #[test]
    fn other_programs_are_no_python() {
        let (folder, around) = installation();
        executable(&folder.path().join("venv/bin/python3-config"), "#!/bin/sh\n");
        for argv in [&["python3-config"][..], &["sh", "-c", "python"], &["absent"], &[]] {
            assert_eq!(found(&around, argv, folder.path()), None, "{argv:?}");
        }
    }

    #[test]
    fn names_of_distributions() {
        let parse = |name: &str| distribution(name.as_ref());
        assert_eq!(parse("Foo.Bar-1.2-py3.11.egg-info"), Some(("foo_bar".to_owned(), "1.2".to_owned())));
        for odd in ["torch", "torch.dist-info", "torch-.dist-info", ".dist-info"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
