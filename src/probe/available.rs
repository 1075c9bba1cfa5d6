//! MemAvailable of the host: what a new program could still take (`/proc/meminfo`). The kernel adds per-CPU counters up
//! for it, 2 µs on two CPUs, so that each tick can afford it.

use super::Reading;
use crate::metric::Metric;
use crate::proc::{Buffer, ProcFile};

/// Keeps the file open.
pub struct AvailableProbe {
    file: ProcFile,
    buffer: Buffer,
}

impl Default for AvailableProbe {
    fn default() -> AvailableProbe {
        AvailableProbe { file: ProcFile::at("/proc/meminfo".into()), buffer: Buffer::new() }
    }
}

impl AvailableProbe {
    /// The figure now.
    pub fn read(&mut self) -> Reading {
        let mut reading = Reading::default();
        let available = match self.file.read(&mut self.buffer) {
            Ok(text) => parse(text).ok_or_else(|| "/proc/meminfo has no MemAvailable".to_owned()),
            Err(error) => Err(format!("/proc/meminfo cannot be read: {error}")),
        };
        match available {
            Ok(bytes) => reading.values.set(Metric::HostAvailableBytes, bytes),
            Err(reason) => reading.absences.push((Metric::HostAvailableBytes, reason)),
        }
        reading
    }
}

fn parse(text: &[u8]) -> Option<u64> {
    // The third line, since Linux 3.14.
    let line = text.split(|&byte| byte == b'\n').take(8).find_map(|line| line.strip_prefix(b"MemAvailable:"))?;
    let number = std::str::from_utf8(line).ok()?.trim().strip_suffix(" kB")?;
    number.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        assert_eq!(parse(b"MemTotal:  9 kB\nMemFree: 4 kB\nMemAvailable:    7 kB\n"), Some(7 * 1024));
        assert_eq!(parse(b"MemTotal:  9 kB\n"), None);
        assert!(AvailableProbe::default().read().values.get(Metric::HostAvailableBytes).unwrap() > 0);
    }
}
