//! Receiving messages with file descriptors in them.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg};

/// The kernel passes at most this many descriptors in one message (SCM_MAX_FD, include/net/scm.h).
const MOST_DESCRIPTORS: usize = 253;

/// A message, received.
#[derive(Debug)]
pub struct Received {
    /// Bytes of it in the buffer.
    pub length: usize,
    /// It was longer than the buffer; the rest of it is gone.
    pub cut: bool,
    /// The sender's process id in this pid namespace, 0 where it has none, and only if SO_PASSCRED is set.
    pub pid: Option<i32>,
    /// The descriptors that came with it, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Receives one message, without waiting (recvmsg(2), MSG_DONTWAIT).
///
/// # Errors
/// EAGAIN when there is none, and whatever else recvmsg(2) says.
pub fn receive(socket: BorrowedFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    // Room for all that can come: of a control message that was cut, some descriptors would be open and not known.
    let mut control = nix::cmsg_space!([RawFd; MOST_DESCRIPTORS], UnixCredentials);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let mut received = Received {
        length: message.bytes,
        cut: message.flags.contains(MsgFlags::MSG_TRUNC),
        pid: None,
        descriptors: Vec::new(),
    };
    for control in message.cmsgs()? {
        match control {
            ControlMessageOwned::ScmCredentials(credentials) => received.pid = Some(credentials.pid()),
            ControlMessageOwned::ScmRights(descriptors) => {
                received.descriptors.extend(descriptors.into_iter().map(|descriptor| {
                    // SAFETY: the kernel has just opened it for this process in recvmsg, and nothing else knows it.
                    unsafe { OwnedFd::from_raw_fd(descriptor) }
                }));
            }
            _ => {}
        }
    }
    Ok(received)
}
