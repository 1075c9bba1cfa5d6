//! A launch under the profiler, up to the folder it leaves.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::profile::Profile;
use crate::support::{ended, finish};

/// `stagemark run … -- COMMAND`, being put together.
pub struct Launch {
    command: Command,
    argv: Vec<std::ffi::OsString>,
    folder: PathBuf,
    payload: Option<u64>,
}

impl Launch {
    pub fn new<S: AsRef<OsStr>>(mut command: Command, folder: PathBuf, argv: impl IntoIterator<Item = S>) -> Launch {
        command.args(["run", "--quiet", "--out"]).arg(&folder);
        let argv = argv.into_iter().map(|word| word.as_ref().to_owned()).collect();
        Launch { command, argv, folder, payload: None }
    }

    /// Where the loader writes its truth.
    pub fn truth_path(&self) -> PathBuf {
        self.folder.with_extension("truth")
    }

    /// Further arguments of the command.
    pub fn arguments<S: AsRef<OsStr>>(&mut self, words: impl IntoIterator<Item = S>) -> &mut Launch {
        self.argv.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Options of `stagemark run`.
    #[allow(dead_code)]
    pub fn options<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Launch {
        self.command.args(words);
        self
    }

    /// `--artifact`.
    #[allow(dead_code)]
    pub fn artifact(mut self, path: impl AsRef<Path>) -> Launch {
        self.command.arg("--artifact").arg(path.as_ref());
        self
    }

    /// The whole launch, profiler and all, as another user.
    #[allow(dead_code)]
    pub fn by_user(mut self, id: u32) -> Launch {
        self.command.uid(id).gid(id);
        self
    }

    /// The profiler and all that it starts are refused one system call, with an error.
    pub fn denied(mut self, call: libc::c_long, errno: i32) -> Launch {
        crate::confine::deny(&mut self.command, call, errno);
        self
    }

    #[allow(dead_code)]
    pub fn environment(mut self, name: &str, value: impl AsRef<OsStr>) -> Launch {
        self.command.env(name, value);
        self
    }

    #[allow(dead_code)]
    pub fn directory(mut self, path: impl AsRef<Path>) -> Launch {
        self.command.current_dir(path);
        self
    }

    /// What `payload_bytes` must be in every sample.
    pub fn payload(self, bytes: u64) -> Launch {
        Launch { payload: Some(bytes), ..self }
    }

    /// What `payload_bytes` is, is not looked at: artifacts join the set as they are found.
    #[allow(dead_code)]
    pub fn any_payload(self) -> Launch {
        Launch { payload: None, ..self }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Profile {
        self.command.arg("--").args(&self.argv);
        let output = finish(&mut self.command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(self.folder.join("run.json").exists(), "no run: {:?}: {said}", output.status);
        self.profile(output.status.code(), &said)
    }

    /// Starts it with pipes on standard input and output.
    pub fn start(mut self, stdin: Stdio) -> Running {
        self.command.arg("--").args(&self.argv);
        let child = self.command.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
        Running { launch: self, child }
    }

    fn profile(&self, status: Option<i32>, said: &str) -> Profile {
        Profile::load(&self.folder, &self.truth_path(), self.payload, status, said)
    }
}

/// A launch that the case talks to. Where the case fails, the profiler is ended, and what it started too.
pub struct Running {
    launch: Launch,
    pub child: Child,
}

impl Running {
    /// Where the loader writes its truth.
    pub fn truth_path(&self) -> PathBuf {
        self.launch.truth_path()
    }

    /// The folder of the run.
    #[allow(dead_code)]
    pub fn folder(&self) -> &Path {
        &self.launch.folder
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Profile {
        let status = ended(&mut self.child).code();
        self.launch.profile(status, "")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SIGTERM goes on to the command; the profiler ends with it.
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(self.child.id() as i32),
                nix::sys::signal::Signal::SIGTERM,
            );
            let begun = std::time::Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed().as_secs() < 5 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
