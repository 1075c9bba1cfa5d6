//! What the command is made of: its program, the interpreter, the packages that load models, and the commit of the
//! working directory.
//!
//! All of it by looking: nothing is executed. A `--version` would run foreign code before the launch and warm its files.
//! What looking cannot tell (a version compiled in, a working directory with changes) is absent.

mod git;
mod program;
mod python;

use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use git::Git;
pub use program::Program;
pub use python::Python;

/// What was found for one command line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Software {
    /// The file that the command's first word stands for.
    pub program: Option<Program>,
    /// What the program's first line names (`#!`), if it is a script.
    pub interpreter: Option<Program>,
    /// The Python that will run, where the command is one, is a script of one, or starts one through a wrapper such as
    /// `env` or `numactl`.
    pub python: Option<Python>,
    /// The repository that the working directory lies in.
    pub git: Option<Git>,
}

/// The variables by which a command finds its files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub path: Option<OsString>,
    pub home: Option<OsString>,
    pub python_path: Option<OsString>,
    pub pyenv_version: Option<OsString>,
}

impl Surroundings {
    fn now() -> Surroundings {
        let variable = |name| std::env::var_os(name);
        Surroundings {
            path: variable("PATH"),
            home: variable("HOME"),
            python_path: variable("PYTHONPATH"),
            pyenv_version: variable("PYENV_VERSION"),
        }
    }
}

impl Software {
    /// Looks at what `argv` would run in `directory`, with this process's environment.
    pub fn look(argv: &[String], directory: &Path) -> Software {
        Software::look_in(&Surroundings::now(), argv, directory)
    }

    pub(crate) fn look_in(around: &Surroundings, argv: &[String], directory: &Path) -> Software {
        let (program, interpreter) = match argv.first() {
            Some(word) => program::look(around, word, directory),
            None => (None, None),
        };
        Software { program, interpreter, python: python::look(around, argv, directory), git: Git::look(directory) }
    }
}
