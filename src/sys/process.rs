//! Processes, signals and file descriptors beyond what nix wraps.

use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::ftruncate;

use super::startup::{Given, Signals};
use crate::event::Pid;

nix::ioctl_read_bad!(terminal_get_size, libc::TIOCGWINSZ, libc::winsize);
nix::ioctl_write_ptr_bad!(terminal_set_size, libc::TIOCSWINSZ, libc::winsize);
nix::ioctl_read_bad!(bytes_to_read, libc::FIONREAD, libc::c_int);
nix::ioctl_read!(terminal_get_device, b'T', 0x32, libc::c_uint);

/// How many values a [`SharedPage`] has.
const SLOTS: usize = 8;

/// A few counters that several processes share (memfd_create(2), mmap(2) with MAP_SHARED).
#[derive(Debug)]
pub struct SharedPage {
    slots: NonNull<[AtomicU64; SLOTS]>,
    fd: OwnedFd,
}

// SAFETY: all that is behind the pointer is atomics, and the mapping lives as long as the value.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// A new page, all zeroes; its descriptor is closed on exec.
    pub fn new() -> io::Result<SharedPage> {
        let fd = memfd_create(c"stagemark", MFdFlags::MFD_CLOEXEC)?;
        ftruncate(&fd, size_of::<[AtomicU64; SLOTS]>() as i64)?;
        SharedPage::open(fd)
    }

    /// The page behind a descriptor that another process made with [`SharedPage::new`].
    pub fn open(fd: OwnedFd) -> io::Result<SharedPage> {
        let length = size_of::<[AtomicU64; SLOTS]>();
        // A page mapped past the end of its file kills by SIGBUS when touched.
        if nix::sys::stat::fstat(&fd)?.st_size < length as i64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no other memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let slots = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedPage { slots, fd })
    }

    /// One of the page's values; the index is taken modulo their number.
    pub fn slot(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the mapping holds initialised atomics (zeroes at first) until `self` is dropped.
        let slots = unsafe { self.slots.as_ref() };
        &slots[index % SLOTS]
    }
}

impl AsFd for SharedPage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this value and no reference into it outlives it.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), size_of::<[AtomicU64; SLOTS]>()) };
    }
}

/// Makes `command`, once forked, give back what this process was given: signal dispositions and mask, and closed
/// standard descriptors; and gives it an environment, in which its program is looked up too. The moment just before exec goes
/// to the page's slot `slot` (CLOCK_MONOTONIC, nanoseconds). `enter` is a control group's `cgroup.procs`, which it enters; an
/// error number goes to the slot behind, and nothing else comes of it.
pub fn hand_on(
    command: &mut Command,
    given: Given,
    environment: Environment,
    page: Option<Arc<SharedPage>>,
    slot: usize,
    enter: Option<Arc<File>>,
) {
    let hook = move || {
        // The Rust runtime touches SIGPIPE, the launch SIGCHLD and SIGXFSZ, the C library its own two. What has a handler now has
        // its default action after exec(3) by itself.
        for signal in Signals::NUMBERS {
            let ignore = given.ignored.contains(signal);
            if ignore || [libc::SIGPIPE, libc::SIGCHLD, libc::SIGXFSZ].contains(&signal) {
                set_disposition(signal, ignore);
            }
        }
        for fd in 0..3 {
            if given.was_closed(fd) {
                // SAFETY: in a forked child that is about to exec, nothing else uses the descriptor: the runtime put
                // /dev/null there, and the command is to find it closed.
                unsafe { libc::close(fd) };
            }
        }
        if let Some(group) = &enter {
            // SAFETY: the descriptor is open, and the kernel reads one byte: 0 stands for the writer (cgroups(7)).
            let written = unsafe { libc::write(group.as_raw_fd(), c"0".as_ptr().cast(), 1) };
            if let Some(page) = page.as_ref().filter(|_| written < 0) {
                // SAFETY: errno is the thread's own, and always there.
                page.slot(slot + 1).store(unsafe { *libc::__errno_location() } as u64, SeqCst);
            }
        }
        // SAFETY: this is the only thread after fork, and exec comes next.
        unsafe { environment.install() };
        set_mask(given.blocked);
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to the structure only.
        let told = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } == 0;
        if let Some(page) = page.as_ref().filter(|_| told) {
            page.slot(slot).store(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64, SeqCst);
        }
        Ok(())
    };
    // SAFETY: the hook allocates nothing, takes no lock, and makes only calls that are safe after fork
    // (signal-safety(7)); it cannot panic.
    unsafe { command.pre_exec(hook) };
}

unsafe extern "C" {
    /// environ(7).
    static mut environ: *const *const libc::c_char;
}

/// An environment for a command: this process's own, entry for entry and in order, whatever the entries are, but for
/// variables that are set anew.
#[derive(Debug)]
pub struct Environment {
    /// Points into `_entries`, with a null pointer at the end; as numbers, for pointers may not change threads.
    pointers: Vec<usize>,
    _entries: Vec<CString>,
}

impl Environment {
    /// This process's environment with `changes` made to it. A change whose name is empty or holds `=`, or which holds
    /// a zero byte, is left out: no environment can hold it.
    pub fn with(changes: &[(OsString, OsString)]) -> Environment {
        let mut entries = Vec::new();
        // SAFETY: `environ` is null or points to strings with a null pointer behind the last (environ(7)). This crate
        // never changes its environment, so nobody does so while it is read.
        unsafe {
            let mut entry = environ;
            while !entry.is_null() && !(*entry).is_null() {
                entries.push(CStr::from_ptr(*entry).to_owned());
                entry = entry.add(1);
            }
        }
        for (name, value) in changes {
            let name = name.as_bytes();
            let entry = [name, b"=", value.as_bytes()].concat();
            if name.is_empty() || name.contains(&b'=') {
                continue;
            }
            let Ok(entry) = CString::new(entry) else { continue };
            entries.retain(|old| old.as_bytes().strip_prefix(name).is_none_or(|rest| rest.first() != Some(&b'=')));
            entries.push(entry);
        }
        let pointers = entries.iter().map(|entry| entry.as_ptr() as usize).chain([0]).collect();
        Environment { pointers, _entries: entries }
    }

    /// Makes it the calling process's own, for good.
    ///
    /// # Safety
    ///
    /// Only one thread may be running (as after fork), and it must exec, or end, before `self` is dropped.
    unsafe fn install(&self) {
        // SAFETY: by the caller's promise nobody else reads or writes it, and what it points to stays.
        unsafe { environ = self.pointers.as_ptr().cast() };
    }
}

/// Makes `command` start with these signals blocked.
pub fn start_with_blocked(command: &mut Command, blocked: Signals) {
    let hook = move || {
        set_mask(blocked);
        Ok(())
    };
    // SAFETY: as in `hand_on`.
    unsafe { command.pre_exec(hook) };
}

/// Makes `command`, once forked, a process that survives this one's session: in a session of its own, every signal
/// blocked that can be, and `keep` open through exec.
pub fn detach(command: &mut Command, keep: Vec<RawFd>) {
    let hook = move || {
        // SAFETY: plain system calls on this process and on descriptors that it owns.
        unsafe {
            libc::setsid();
            for fd in &keep {
                libc::fcntl(*fd, libc::F_SETFD, 0);
            }
        }
        set_mask(Signals(u64::MAX));
        Ok(())
    };
    // SAFETY: as in `hand_on`; the vector is only read.
    unsafe { command.pre_exec(hook) };
}

/// Sets a signal to be ignored, or to its default action; also one that the C library keeps for itself.
pub fn set_disposition(signal: i32, ignore: bool) {
    // The kernel's own structure begins with the action; no flags, no restorer, an empty mask follow.
    let mut action: KernelAction = [0; 8];
    action[0] = if ignore { libc::SIG_IGN as u64 } else { libc::SIG_DFL as u64 };
    // SAFETY: neither action is code that could run at a wrong moment; the kernel reads no further than the array.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &action, std::ptr::null::<KernelAction>(), 8) };
}

/// Whether a signal is ignored, also one that the C library keeps for itself.
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut action: KernelAction = [0; 8];
    // SAFETY: the kernel writes no further than the array.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, std::ptr::null::<KernelAction>(), &mut action, 8) };
    result == 0 && action[0] == libc::SIG_IGN as u64
}

/// At least as large as `struct sigaction` of the kernel (include/linux/signal_types.h) on every 64-bit architecture
/// that Rust has: action first.
type KernelAction = [u64; 8];

/// The status to exit with in place of an abort; none while it is not known yet.
static EXIT_STATUS: AtomicI32 = AtomicI32::new(-1);

/// The command's process, for which an abort of the main thread waits.
static ROOT: AtomicI32 = AtomicI32::new(0);

/// Whether an abort has been told, and whether a limit of the address space may be behind it.
static ABORT_IS_TOLD: AtomicBool = AtomicBool::new(false);
static ADDRESSES_ARE_LIMITED: AtomicBool = AtomicBool::new(false);

const ABORTED: &str = "stagemark: the profiler fails by this; the command goes on, and was not harmed";
const ABORTED_AFTER: &str = "stagemark: the profiler fails by this; the command had ended, and the status is its own";
const UNDER_A_LIMIT: &str = ": the address space (RLIMIT_AS) is limited; raise it: ulimit -v unlimited";

/// Makes an abort (an allocation refused, a stack overflowed) in any thread but the main one wait until the exit status
/// is known, and end the process with it then: the command's status is worth more than a core dump of the profiler.
/// An abort of the main thread ends the process as ever, until the status is known or the command is
/// ([`await_on_abort`]).
///
/// What is said of it, beside the runtime's own words, is that the command goes on, or had ended, and which limit may be
/// behind it.
pub fn outlive_aborts() {
    let limited = getrlimit(Resource::RLIMIT_AS).is_ok_and(|(soft, _)| soft != RLIM_INFINITY);
    ADDRESSES_ARE_LIMITED.store(limited, SeqCst);
    extern "C" fn on_abort(_signal: libc::c_int) {
        loop {
            // Looked at each time: a thread may fail while the command is being started.
            if ROOT.load(SeqCst) > 0 && !ABORT_IS_TOLD.swap(true, SeqCst) {
                let what = if EXIT_STATUS.load(SeqCst) < 0 { ABORTED } else { ABORTED_AFTER };
                let why = if ADDRESSES_ARE_LIMITED.load(SeqCst) { UNDER_A_LIMIT } else { "" };
                for part in [what, why, "\n"] {
                    // SAFETY: write(2) may be called in a signal handler, and only reads what is as long as the program
                    // lives.
                    unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
                }
            }
            let status = EXIT_STATUS.load(SeqCst);
            // SAFETY: each of these calls may be made in a signal handler (signal-safety(7)), and none touches memory.
            // A handler that returns lets abort(3) go on.
            unsafe {
                if status >= 0 {
                    libc::_exit(status);
                }
                if libc::gettid() == libc::getpid() {
                    let root = ROOT.load(SeqCst);
                    let mut ended = 0;
                    let found = if root > 0 { libc::waitpid(root, &mut ended, 0) } else { 0 };
                    match found > 0 {
                        true if libc::WIFEXITED(ended) => libc::_exit(libc::WEXITSTATUS(ended)),
                        true => libc::_exit(128 + libc::WTERMSIG(ended)),
                        false if found < 0 && *libc::__errno_location() == libc::EINTR => continue,
                        // There is none yet; or it was reaped already, and its status is lost.
                        false => return,
                    }
                }
                libc::poll(std::ptr::null_mut(), 0, 10);
            }
        }
    }
    // SAFETY: the handler is as it may be (above), and lives as long as the program.
    unsafe { libc::signal(libc::SIGABRT, on_abort as extern "C" fn(libc::c_int) as libc::sighandler_t) };
}

/// Says which process the main thread is to wait for should it abort from now on ([`outlive_aborts`]), to end with its
/// status.
pub fn await_on_abort(root: Pid) {
    ROOT.store(root, SeqCst);
}

/// Says with which status the process is to end should it abort from now on ([`outlive_aborts`]).
pub fn exit_on_abort(status: u8) {
    EXIT_STATUS.store(i32::from(status), SeqCst);
}

/// Ends the process at once: no destructor of any library runs.
pub fn leave(status: i32) -> ! {
    // SAFETY: the call touches no memory of this process.
    unsafe { libc::_exit(status) }
}

/// Sets the calling thread's signal mask.
pub fn set_mask(signals: Signals) {
    // SAFETY: the set is plain data, initialised by sigemptyset.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        for signal in Signals::NUMBERS.filter(|signal| signals.contains(*signal)) {
            libc::sigaddset(&mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
    }
}

/// Takes over a descriptor that was inherited under a known number; `None` if nothing is open there.
///
/// For a process's very beginning: the caller says that nothing else in it owns the descriptor.
pub fn adopt(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: asking for flags touches nothing; the descriptor is open, and by the contract above nobody's yet.
    unsafe {
        if fd < 0 || libc::fcntl(fd, libc::F_GETFD) < 0 {
            return None;
        }
        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        Some(OwnedFd::from_raw_fd(fd))
    }
}

/// Closes every descriptor above 2 but those in `keep`: for a process's very beginning, to be rid of what it
/// inherited without wanting it.
pub fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<RawFd> = keep.iter().copied().filter(|fd| *fd > 2).collect();
    keep.sort_unstable();
    let mut first = 3u32;
    for last in keep.iter().map(|fd| *fd as u32).chain([u32::MAX]) {
        if last > first || last == u32::MAX {
            let end = if last == u32::MAX { last } else { last - 1 };
            // SAFETY: by the contract above, nothing in this process owns these descriptors. Before Linux 5.9 the
            // call is refused and they stay open, which costs their other holders an end of file only.
            unsafe { libc::syscall(libc::SYS_close_range, first, end, 0u32) };
        }
        first = last.saturating_add(1);
    }
}

/// A child process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    pub pid: Pid,
    /// The exit status, if it exited.
    pub code: Option<i32>,
    /// The signal's number, if one killed it; any number that the kernel knows.
    pub signal: Option<i32>,
}

/// A child that has ended and was not reaped yet, without waiting for one; it stays a zombie (waitid(2), WNOWAIT).
/// An error of ECHILD: there are no children.
pub fn find_dead_child() -> io::Result<Option<Death>> {
    wait(libc::P_ALL, 0, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
}

/// Reaps one child, waiting for its end only if asked to.
pub fn reap(pid: Pid, block: bool) -> io::Result<Option<Death>> {
    wait(libc::P_PID, pid as libc::id_t, libc::WEXITED | if block { 0 } else { libc::WNOHANG })
}

/// The largest resident set, in bytes, that any program of a child that has ended had, or of the children that it waited
/// for (getrusage(2), ru_maxrss); the child stays a zombie. `None` if it is no such child.
pub fn max_rss_of_dead(pid: Pid) -> Option<u64> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: both structures are plain data, and the kernel writes to them only. The C library's waitid(3) lacks the
    // system call's last argument (waitid(2)).
    let (result, found, usage) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let mut usage: libc::rusage = std::mem::zeroed();
        let result = libc::syscall(libc::SYS_waitid, libc::P_PID, pid, &mut info, flags, &mut usage);
        (result, info.si_pid(), usage)
    };
    // Kilobytes, whatever the page size.
    (result == 0 && found == pid).then(|| u64::try_from(usage.ru_maxrss).ok()?.checked_mul(1024)).flatten()
}

/// The signal that has stopped a child, told once for each stop; `None` if it runs (waitid(2), WSTOPPED).
pub fn find_stop(pid: Pid) -> Option<i32> {
    wait(libc::P_PID, pid as libc::id_t, libc::WSTOPPED | libc::WNOHANG).ok()??.signal
}

fn wait(kind: libc::idtype_t, id: libc::id_t, flags: i32) -> io::Result<Option<Death>> {
    loop {
        // SAFETY: the structure is plain data, and the kernel writes to it only; its fields are those of a SIGCHLD,
        // which waitid always fills in (or leaves zero where no child is ready).
        let (result, pid, code, status) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let result = libc::waitid(kind, id, &mut info, flags);
            (result, info.si_pid(), info.si_code, info.si_status())
        };
        if result == 0 {
            return Ok((pid != 0).then_some(match code {
                libc::CLD_EXITED => Death { pid, code: Some(status), signal: None },
                _ => Death { pid, code: None, signal: Some(status) },
            }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A terminal's size in characters and pixels; `None` for what is no terminal.
pub fn window_size(fd: BorrowedFd<'_>) -> Option<libc::winsize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one such structure (ioctl_tty(2)).
    unsafe { terminal_get_size(fd.as_raw_fd(), &mut size) }.ok()?;
    Some(size)
}

/// Sets a terminal's size.
pub fn set_window_size(fd: BorrowedFd<'_>, size: &libc::winsize) -> io::Result<()> {
    // SAFETY: the kernel reads one such structure (ioctl_tty(2)).
    unsafe { terminal_set_size(fd.as_raw_fd(), size) }?;
    Ok(())
}

/// The device number of the terminal itself, also where the descriptor came from `/dev/tty` (TIOCGDEV).
pub fn terminal_device(fd: BorrowedFd<'_>) -> Option<u32> {
    let mut device = 0;
    // SAFETY: the kernel writes one unsigned integer (ioctl_tty(2)).
    unsafe { terminal_get_device(fd.as_raw_fd(), &mut device) }.ok()?;
    Some(device)
}

/// How many bytes a pipe holds; 0 if that cannot be said (ioctl FIONREAD, pipe(7)).
pub fn pipe_content(pipe: BorrowedFd<'_>) -> u32 {
    let mut bytes = 0;
    // SAFETY: the kernel writes one integer.
    match unsafe { bytes_to_read(pipe.as_raw_fd(), &mut bytes) } {
        Ok(_) => u32::try_from(bytes).unwrap_or(0),
        Err(_) => 0,
    }
}

/// Opens the slave of a pty master, whatever is mounted on `/dev/pts` here (TIOCGPTPEER, Linux ≥ 4.13).
pub fn pty_slave(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes its argument by value and returns a new descriptor.
    let fd = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_shared_through_its_descriptor() {
        let page = SharedPage::new().unwrap();
        let other = SharedPage::open(page.as_fd().try_clone_to_owned().unwrap()).unwrap();
        page.slot(3).store(7, SeqCst);
        assert_eq!(other.slot(3).load(SeqCst), 7);
        assert_eq!(other.slot(2).load(SeqCst), 0);
    }

    #[test]
    fn a_descriptor_that_is_no_page_is_refused() {
        let (read, _write) = nix::unistd::pipe().unwrap();
        assert!(SharedPage::open(read).is_err());
    }

    #[test]
    fn an_environment_keeps_its_order_and_takes_changes() {
        let own = Environment::with(&[]);
        let changed = Environment::with(&[("STAGEMARK_X".into(), "1=2".into()), ("A=B".into(), "".into())]);
        let (last, before) = changed._entries.split_last().unwrap();
        assert_eq!(last.as_bytes(), b"STAGEMARK_X=1=2");
        assert_eq!(before, own._entries);
        assert_eq!(changed.pointers.len(), own.pointers.len() + 1);
        assert_eq!(changed.pointers.last(), Some(&0));
    }

    #[test]
    fn a_dead_child_stays_until_it_is_reaped() {
        #[allow(clippy::zombie_processes)]
        // Only this child is asked for: other tests of the process have children of their own.
        let child = Command::new("/bin/sh").args(["-c", "kill -40 $$"]).spawn().unwrap();
        let pid = child.id() as Pid;
        let kept = wait(libc::P_PID, pid as libc::id_t, libc::WEXITED | libc::WNOWAIT).unwrap();
        let max_rss = max_rss_of_dead(pid).unwrap();
        assert!((64 << 10..1 << 40).contains(&max_rss), "{max_rss}");
        let reaped = reap(pid, false).unwrap();
        assert_eq!(kept, reaped);
        assert_eq!(reaped, Some(Death { pid, code: None, signal: Some(40) }));
        assert!(reap(pid, false).is_err());
        assert_eq!(max_rss_of_dead(pid), None);
    }
}
