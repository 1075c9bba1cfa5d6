//! Reading the head of a model file without disturbing what is measured.
//!
//! Every read is a `pread` after random-access advice, so that the kernel brings in the pages that were asked for and
//! no read-ahead; a mapping or a plain read of a 5 kB header would leave megabytes of payload in the page cache.
//! What is read is counted, and refused past [`LIMIT`]. Nothing here allocates by a length that a file states.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use sha2::{Digest, Sha256};

use super::ArtifactError;

/// The most bytes that are read of any one file to understand it.
pub const LIMIT: u64 = 128 << 20;

/// Bytes of one read of a [`Cursor`]: few enough that the end of a header of unknown length drags in little payload.
const WINDOW: usize = 16 << 10;

/// Bytes of the first read behind a [`Cursor::jump`]: what is there may be little, with payload behind it again.
const LANDING: usize = 4 << 10;

/// Reads parts of one file, within its size and within [`LIMIT`].
pub struct HeaderReader<'a> {
    path: &'a Path,
    file: &'a File,
    size: u64,
    read: u64,
}

impl<'a> HeaderReader<'a> {
    /// A reader of a file of `size` bytes. Sets random-access advice on the open file.
    pub fn new(path: &'a Path, file: &'a File, size: u64) -> HeaderReader<'a> {
        // Some filesystems refuse advice. Then the reads below may bring in read-ahead, which is no reason to stop.
        let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
        HeaderReader { path, file, size, read: 0 }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// `Malformed` where the file ends before, or where it would be more than [`LIMIT`] in all; `Io` where the read
    /// failed, also because the file became shorter meanwhile.
    pub fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ArtifactError> {
        let length = buffer.len() as u64;
        if offset > self.size || length > self.size - offset {
            return Err(self.ends_within(offset, length));
        }
        if length > LIMIT - self.read {
            return Err(self.malformed(offset, format!("more than {LIMIT} bytes to read before the header ends")));
        }
        self.read += length;
        self.file.read_exact_at(buffer, offset).map_err(|source| {
            let source = match source.kind() {
                ErrorKind::UnexpectedEof => std::io::Error::other(format!("became shorter than {} bytes", self.size)),
                _ => source,
            };
            ArtifactError::Io { path: self.path.to_owned(), source }
        })
    }

    /// The first bytes of the file, at most `length`.
    pub fn head(&mut self, length: usize) -> Result<Vec<u8>, ArtifactError> {
        let mut head = vec![0; (length as u64).min(self.size) as usize];
        self.read_at(0, &mut head)?;
        Ok(head)
    }

    /// An error at a byte of this file.
    pub fn malformed(&self, offset: u64, problem: impl Into<String>) -> ArtifactError {
        ArtifactError::Malformed { path: self.path.to_owned(), offset, problem: problem.into() }
    }

    fn ends_within(&self, offset: u64, length: u64) -> ArtifactError {
        self.malformed(offset, format!("{length} bytes are wanted here, but the file ends at byte {}", self.size))
    }
}

/// Reads a stretch of a file from front to back, little-endian, and digests all that it passes.
pub struct Cursor<'r, 'a> {
    pub reader: &'r mut HeaderReader<'a>,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    /// Bytes of the next window.
    next: usize,
    digest: Sha256,
}

impl<'r, 'a> Cursor<'r, 'a> {
    /// A cursor over these bytes of the file, as far as the file goes.
    pub fn new(reader: &'r mut HeaderReader<'a>, bytes: Range<u64>) -> Cursor<'r, 'a> {
        let end = bytes.end.min(reader.size);
        Cursor {
            reader,
            at: bytes.start,
            end,
            window: Vec::new(),
            window_start: 0,
            next: WINDOW,
            digest: Sha256::new(),
        }
    }

    /// The offset in the file of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// SHA-256 of everything passed so far, in hexadecimal.
    pub fn digest(self) -> String {
        hexadecimal(&self.digest.finalize())
    }

    /// An error at the next byte.
    pub fn malformed(&self, problem: impl Into<String>) -> ArtifactError {
        self.reader.malformed(self.at, problem)
    }

    /// Fills `buffer` with the next bytes.
    pub fn bytes(&mut self, buffer: &mut [u8]) -> Result<(), ArtifactError> {
        let mut done = 0;
        self.pass(buffer.len() as u64, |part| {
            buffer[done..done + part.len()].copy_from_slice(part);
            done += part.len();
        })
    }

    /// Passes over the next `length` bytes. They are read, for the digest, but not kept.
    pub fn skip(&mut self, length: u64) -> Result<(), ArtifactError> {
        self.pass(length, |_| {})
    }

    fn within(&self, length: u64) -> Result<(), ArtifactError> {
        if length <= self.left() {
            return Ok(());
        }
        Err(self.malformed(format!("{length} bytes are wanted here, but what may be read ends at byte {}", self.end)))
    }

    fn pass(&mut self, length: u64, mut take: impl FnMut(&[u8])) -> Result<(), ArtifactError> {
        self.within(length)?;
        let mut left = length;
        while left > 0 {
            let passed = (self.at - self.window_start) as usize;
            if passed >= self.window.len() {
                self.fill()?;
                continue;
            }
            let take_now = ((self.window.len() - passed) as u64).min(left);
            let part = &self.window[passed..passed + take_now as usize];
            self.digest.update(part);
            take(part);
            self.at += take_now;
            left -= take_now;
        }
        Ok(())
    }

    /// Goes `length` bytes on without reading them: they are not in the digest.
    pub fn jump(&mut self, length: u64) -> Result<(), ArtifactError> {
        self.within(length)?;
        self.at += length;
        if self.at - self.window_start >= self.window.len() as u64 {
            self.next = LANDING;
        }
        Ok(())
    }

    /// The next window: up to a multiple of its size, so that the next one begins with a page.
    fn fill(&mut self) -> Result<(), ArtifactError> {
        let length = (self.next as u64 - self.at % self.next as u64).min(self.left());
        self.window.resize(length as usize, 0);
        self.window_start = self.at;
        self.next = (self.next * 2).min(WINDOW);
        self.reader.read_at(self.at, &mut self.window)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8, ArtifactError> {
        let mut bytes = [0; 1];
        self.bytes(&mut bytes)?;
        Ok(bytes[0])
    }

    pub fn u16(&mut self) -> Result<u16, ArtifactError> {
        let mut bytes = [0; 2];
        self.bytes(&mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub fn u32(&mut self) -> Result<u32, ArtifactError> {
        let mut bytes = [0; 4];
        self.bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64, ArtifactError> {
        let mut bytes = [0; 8];
        self.bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The next `length` bytes as text; what is no UTF-8 is replaced. At most 64 KiB.
    pub fn text(&mut self, length: u64) -> Result<String, ArtifactError> {
        if length > 1 << 16 {
            return Err(self.malformed(format!("a name of {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        self.bytes(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// SHA-256 of bytes, in hexadecimal.
pub fn sha256(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    parts.iter().for_each(|part| digest.update(part));
    hexadecimal(&digest.finalize())
}

/// Bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
