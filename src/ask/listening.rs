//! Who listens on this machine, by the kernel's own tables (`/proc/net/tcp`, `tcp6`, `unix`). Nobody is connected to: a
//! server that serves one connection and goes would have served it.
//!
//! The tables are of this network namespace. They do not say whether a socket on `[::]` takes IPv4 as well, so it is
//! named as what it is; and of a Unix socket they have the path that it was bound by, which says nothing where it was
//! relative. What cannot be read is not guessed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// So much is read of a table: some 28,000 sockets. The kernel lists those that listen first.
const MOST: u64 = 4 << 20;
/// `TCP_LISTEN` (include/net/tcp_states.h).
const LISTEN: &[u8] = b"0A";
/// `__SO_ACCEPTCON` (include/uapi/linux/net.h): listen(2) was called.
const ACCEPTS: u32 = 1 << 16;
/// `SOCK_STREAM`.
const STREAM: &[u8] = b"0001";

/// The address of the socket that a connection to this one would reach; `net` is the folder of the tables.
pub(super) fn tcp(net: &Path, to: SocketAddr) -> Option<SocketAddr> {
    // A connection to the unspecified address goes to the loopback.
    let ip = match to.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip.to_canonical(),
    };
    let takes = |listener: &SocketAddr| {
        let at = listener.ip().to_canonical();
        let any = at.is_unspecified() && (at.is_ipv4() == ip.is_ipv4() || at.is_ipv6());
        listener.port() == to.port() && (at == ip || any)
    };
    ["tcp", "tcp6"].iter().find_map(|table| {
        let mut listener = None;
        lines(&net.join(table), |line| {
            listener = tcp_listener(line).filter(takes);
            listener.is_some()
        });
        listener.map(|listener| SocketAddr::new(listener.ip().to_canonical(), listener.port()))
    })
}

/// Whether a stream socket listens that was bound by this path, or, behind `@`, by this abstract name.
pub(super) fn unix(net: &Path, path: &Path) -> bool {
    let mut listens = false;
    lines(&net.join("unix"), |line| {
        listens = unix_listener(line) == Some(path.as_os_str().as_bytes());
        listens
    });
    listens
}

/// Reads a table until `found`. One that cannot be read has no lines.
fn lines(table: &Path, mut found: impl FnMut(&[u8]) -> bool) {
    let Ok(file) = File::open(table) else { return };
    let mut rows = BufReader::new(file.take(MOST));
    let mut line = Vec::new();
    while matches!(rows.read_until(b'\n', &mut line), Ok(1..)) {
        if found(line.strip_suffix(b"\n").unwrap_or(&line)) {
            return;
        }
        line.clear();
    }
}

/// `sl local_address rem_address st …`: tcp4_seq_show in net/ipv4/tcp_ipv4.c, tcp6_seq_show in net/ipv6/tcp_ipv6.c.
fn tcp_listener(line: &[u8]) -> Option<SocketAddr> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (local, state) = (words.nth(1)?, words.nth(1)?);
    if state != LISTEN {
        return None;
    }
    let (ip, port) = std::str::from_utf8(local).ok()?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words of 32 bits, each as the machine has it in memory.
    let bytes: Option<Vec<[u8; 4]>> = ip
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok().map(u32::to_ne_bytes))
        .collect();
    let ip = match bytes?.concat().as_slice() {
        bytes if ip.len() == 8 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        bytes if ip.len() == 32 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// `Num RefCount Protocol Flags Type St Inode Path`: unix_seq_show in net/unix/af_unix.c. A path may have blanks.
fn unix_listener(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_ascii_start();
        let (word, behind) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
        rest = behind;
        Some(word)
    };
    let flags = [word()?, word()?, word()?, word()?][3];
    let [kind, _, _] = [word()?, word()?, word()?];
    let accepts = u32::from_str_radix(std::str::from_utf8(flags).ok()?, 16).ok()? & ACCEPTS != 0;
    (accepts && kind == STREAM).then(|| rest.strip_prefix(b" ").unwrap_or(rest))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;

    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 439 1 00000000a4cbca2c 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 440 1 00000000a4cbca2d 100 0 0 10 0
   2: 0100007F:4948 0100007F:D734 06 00000000:00000000 03:000000B6 00000000     0        0 0 3 0000000071351fd0
";
    const TCP6: &str = "  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:2328 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 00000000000000000000000001000000:2329 00000000000000000000000000000000:0000 0A 00000000:00000000
   2: 0000000000000000FFFF00000100007F:232A 00000000000000000000000000000000:0000 0A 00000000:00000000
   3: 0000:232B 0:0 0A
   4: ZZZZZZZZ:232B 00000000:0000 0A
";

    #[test]
    #[cfg(target_endian = "little")]
    fn a_connection_reaches_the_same_address_or_any() {
        let net = tempfile::tempdir().unwrap();
        std::fs::write(net.path().join("tcp"), TCP).unwrap();
        std::fs::write(net.path().join("tcp6"), TCP6).unwrap();
        let to = |address: &str| tcp(net.path(), address.parse().unwrap()).map(|listener| listener.to_string());
        let same = |address: &str| assert_eq!(to(address).as_deref(), Some(address));
        same("127.0.0.1:8080");
        assert_eq!(to("0.0.0.0:8080").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(to("127.0.0.1:2024").as_deref(), Some("0.0.0.0:2024"));
        assert_eq!(to("127.0.0.1:9000").as_deref(), Some("[::]:9000"), "it may take IPv4 too");
        assert_eq!(to("[::1]:9000").as_deref(), Some("[::]:9000"));
        same("[::1]:9001");
        assert_eq!(to("[::]:9001").as_deref(), Some("[::1]:9001"));
        same("127.0.0.1:9002");
        // Another address, another family, a connection, and lines that make no sense.
        for nobody in ["127.0.0.2:8080", "[::1]:2024", "127.0.0.1:9001", "127.0.0.1:18760", "127.0.0.1:9003"] {
            assert_eq!(to(nobody), None, "{nobody}");
        }
        assert_eq!(tcp(Path::new("/nowhere"), "127.0.0.1:8080".parse().unwrap()), None);
    }

    #[test]
    fn a_unix_socket_is_found_by_its_path_if_it_listens() {
        let net = tempfile::tempdir().unwrap();
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path
00000000fd08630f: 00000003 00000000 00000000 0001 03 1575371
0000000000000000: 00000002 00000000 00010000 0001 01 20017 /run/a b
0000000000000000: 00000002 00000000 00000000 0001 01 20018 /run/bound
0000000000000000: 00000002 00000000 00010000 0005 01 20019 /run/packets
0000000000000000: 00000002 00000000 00010000 0001 01    20 @name
0000000000000000: 00000002 00000000 0001000";
        std::fs::write(net.path().join("unix"), table).unwrap();
        let listens = |path: &str| unix(net.path(), Path::new(path));
        assert!(listens("/run/a b") && listens("@name"));
        for path in ["/run/a", "/run/bound", "/run/packets", "", "name", "Path"] {
            assert!(!listens(path), "{path}");
        }
    }

    /// The kernel's own tables, and the one thing that is not to happen.
    #[test]
    fn a_listener_is_seen_and_is_not_connected_to() {
        let net = Path::new("/proc/net");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(tcp(net, address), Some(address));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a socket");
        let socket = UnixListener::bind(&path).unwrap();
        assert!(unix(net, &path));
        listener.set_nonblocking(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(socket.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        // A connection is no listener.
        let connection = TcpStream::connect(address).unwrap();
        let ours = connection.local_addr().unwrap();
        drop((listener, socket));
        assert_eq!((tcp(net, address), tcp(net, ours), unix(net, &path)), (None, None, false));
    }
}
