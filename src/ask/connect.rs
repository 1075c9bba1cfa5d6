//! Attempts at connections and at files.

use std::io::Read;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::{Attempt, MOST_MATCHED, words};
use crate::event::text_of;
use crate::stage::asked::{self, Values, at_home};
use crate::stage::condition::Pattern;

/// Whether a host is this machine by its loopback address, as far as its name or number says.
pub(super) fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => bare.eq_ignore_ascii_case("localhost") || bare.to_ascii_lowercase().ends_with(".localhost"),
    }
}

/// The sentence for a variable without a value.
pub(super) fn no_value(name: String) -> String {
    format!("the variable `{name}` has no value")
}

pub(super) struct Tcp {
    pub address: String,
    pub poll: Duration,
    timeout: Duration,
}

impl Tcp {
    pub fn of(tcp: &asked::Tcp, values: &Values) -> Result<Tcp, String> {
        Ok(Tcp {
            address: tcp.address.fill_address(values).map_err(no_value)?,
            poll: Duration::from_nanos(tcp.poll_ns),
            timeout: Duration::from_nanos(tcp.connect_timeout_ns),
        })
    }

    pub fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or("", |(host, _)| host)
    }

    /// Connects and hangs up. A connection that the kernel accepts for a listener is one, whether the program takes it yet
    /// or not.
    pub fn attempt(&self) -> Attempt {
        let addresses = match self.address.to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(_) => return Attempt::not_yet("no such host or port"),
        };
        let mut wrong = "the host has no address".to_string();
        for address in addresses {
            match TcpStream::connect_timeout(&address, self.timeout) {
                // A port that nobody listens on may be given to the very socket that looks for it.
                Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => wrong = "refused".to_string(),
                Ok(_) => return Attempt::accepted(),
                Err(error) => wrong = words(&error),
            }
        }
        Attempt::not_yet(wrong)
    }
}

pub(super) struct Unix {
    pub path: String,
    pub poll: Duration,
}

impl Unix {
    pub fn of(unix: &asked::Unix, values: &Values) -> Result<Unix, String> {
        Ok(Unix { path: unix.path.fill(values).map_err(no_value)?, poll: Duration::from_nanos(unix.poll_ns) })
    }

    /// The path by which the socket was bound, where it is one that is there; an abstract name with its `@`.
    pub fn bound(&self) -> Option<PathBuf> {
        if self.path.starts_with('@') {
            return Some(PathBuf::from(&self.path));
        }
        let path = std::path::absolute(at_home(&self.path)).ok()?;
        std::fs::metadata(&path).ok()?.file_type().is_socket().then_some(path)
    }

    /// Connects and hangs up, without waiting for a listener whose queue is full.
    pub fn attempt(&self) -> Attempt {
        let address = match self.path.strip_prefix('@') {
            Some(name) => UnixAddr::new_abstract(name.as_bytes()),
            None => UnixAddr::new(&at_home(&self.path)),
        };
        let connected = address.and_then(|address| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
            connect(socket.as_raw_fd(), &address)
        });
        match connected {
            Ok(()) => Attempt::accepted(),
            Err(Errno::EAGAIN) => Attempt::not_yet("its queue is full"),
            Err(Errno::EPROTOTYPE) => Attempt::not_yet("no stream socket"),
            Err(errno) => Attempt::not_yet(words(&errno.into())),
        }
    }
}

pub(super) struct File<'a> {
    path: PathBuf,
    matches: Option<&'a Pattern>,
    pub poll: Duration,
}

impl<'a> File<'a> {
    pub fn of(file: &'a asked::FileIs, values: &Values) -> Result<File<'a>, String> {
        Ok(File {
            path: at_home(&file.path.fill(values).map_err(no_value)?),
            matches: file.matches.as_ref(),
            poll: Duration::from_nanos(file.poll_ns),
        })
    }

    pub fn shown(&self) -> String {
        text_of(&self.path)
    }

    pub fn attempt(&self) -> Attempt {
        let Some(pattern) = self.matches else {
            return match std::fs::metadata(&self.path) {
                Ok(_) => Attempt::accepted(),
                Err(error) => Attempt::not_yet(words(&error)),
            };
        };
        match beginning(&self.path) {
            Ok(Some(bytes)) if pattern.regex().is_match(&bytes) => {
                Attempt { bytes: Some(bytes.len() as u64), ..Attempt::accepted() }
            }
            Ok(Some(_)) => Attempt::not_yet("does not match"),
            Ok(None) => Attempt::not_yet("no regular file"),
            Err(error) => Attempt::not_yet(words(&error)),
        }
    }
}

/// The first bytes of a regular file. A pipe is opened without waiting for its other side, and not read.
fn beginning(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MOST_MATCHED as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
