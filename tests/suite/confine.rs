//! Places with less than this one: another user, a system call that is denied, a mount namespace where `/proc` is not
//! what it should be. Most of it needs root, and is skipped loudly without.
#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program;

/// A user that owns nothing (user_namespaces(7), the overflow user).
pub const NOBODY: u32 = 65_534;

/// Whether this is root; says loudly what is skipped where it is not.
pub fn is_root(what: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: {what}: only root can set that up");
    }
    root
}

/// A folder that anybody may walk through, with the program under test in it: where the build lies may be closed to
/// others.
pub struct Open {
    folder: tempfile::TempDir,
    pub stagemark: PathBuf,
}

impl Open {
    pub fn new() -> Open {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let stagemark = folder.path().join("stagemark");
        let built = env!("CARGO_BIN_EXE_stagemark");
        // A copy would wait for the disk, and linking is as good where it is possible.
        std::fs::hard_link(built, &stagemark).unwrap_or_else(|_| program::copy(Path::new(built), &stagemark));
        Open { folder, stagemark }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `stagemark VERB…` there.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(&self.stagemark);
        command.args(arguments).current_dir(self.path());
        command.env_remove("NOTIFY_SOCKET").env_remove("STAGEMARK_SOCKET");
        command
    }

    /// The same as the argument list of a shell script, run by root in a mount namespace of its own: `"$@"` in it is
    /// the program with its arguments.
    pub fn in_mounts<S: AsRef<OsStr>>(&self, script: &str, arguments: &[S]) -> Command {
        let mut command = Command::new("unshare");
        let program: OsString = self.stagemark.clone().into();
        command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]).arg(program).args(arguments);
        command.current_dir(self.path()).env_remove("NOTIFY_SOCKET").env_remove("STAGEMARK_SOCKET");
        command
    }
}

/// Makes a command another user's.
pub fn as_nobody(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY)
}

/// Makes the kernel refuse one system call to a command and all its descendants, with an error (seccomp(2)).
pub fn deny(command: &mut Command, call: libc::c_long, errno: i32) -> &mut Command {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let filter = [
        // The call's number is the first field of struct seccomp_data.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let hook = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: two plain system calls between fork and exec; the filter outlives them.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the hook allocates nothing and makes only calls that are safe after fork.
    unsafe { command.pre_exec(hook) }
}
