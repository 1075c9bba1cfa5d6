//! Where tensors are copied to: host memory, or a device's. It is allocated, and its pages are there, before the first
//! copy; a copy has completed when it returns.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::source::Span;
use crate::sys::memory::{Buffer, FileMapping};

/// Which destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Host,
}

impl Kind {
    pub fn name(&self) -> String {
        match self {
            Kind::Host => "host".to_owned(),
        }
    }
}

/// What a copy is out of.
#[derive(Clone, Copy)]
pub enum From<'s> {
    Mapping(&'s FileMapping),
    Memory(&'s [u8]),
}

impl From<'_> {
    fn length(&self) -> usize {
        match self {
            From::Mapping(mapping) => mapping.length(),
            From::Memory(bytes) => bytes.len(),
        }
    }
}

/// One place for all tensors, one after the other.
#[derive(Debug)]
pub struct Destination {
    memory: Buffer,
    /// Where each tensor begins; the end of the last.
    offsets: Vec<usize>,
}

/// What the destination is filled with before its bytes are compared, so that those of an earlier copy prove nothing.
const SPOILT: u8 = 0xa5;

impl Destination {
    /// Allocates the place, and brings its pages in.
    pub fn new(kind: &Kind, tensors: &[Span]) -> anyhow::Result<Destination> {
        let Kind::Host = kind;
        let mut offsets = vec![0usize];
        for tensor in tensors {
            let end = usize::try_from(tensor.length).ok().and_then(|length| offsets.last()?.checked_add(length));
            offsets.push(end.ok_or_else(|| anyhow::anyhow!("the tensors have more bytes than an address space"))?);
        }
        let memory = Buffer::new(offsets.last().copied().unwrap_or(0))
            .map_err(|error| anyhow::anyhow!("memory for the destination: {error}"))?;
        let mut destination = Destination { memory, offsets };
        destination.spoil()?;
        Ok(destination)
    }

    /// A tensor's place.
    pub fn memory(&mut self, tensor: usize) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.offsets[tensor]..self.offsets[tensor + 1]]
    }

    /// Copies a tensor; done when it returns.
    pub fn copy(&mut self, tensor: usize, from: From) -> anyhow::Result<()> {
        let to = self.memory(tensor);
        anyhow::ensure!(from.length() == to.len(), "a tensor of another length");
        match from {
            From::Mapping(mapping) => mapping.copy_to(to)?,
            From::Memory(bytes) => to.copy_from_slice(bytes),
        }
        Ok(())
    }

    /// Overwrites all of it.
    pub fn spoil(&mut self) -> anyhow::Result<()> {
        self.memory.bytes_mut().fill(SPOILT);
        Ok(())
    }

    /// SHA-256 of all tensors' bytes.
    pub fn digest(&self) -> anyhow::Result<String> {
        let end = self.offsets.last().copied().unwrap_or(0);
        Ok(hex(Sha256::digest(&self.memory.bytes()[..end])))
    }
}

/// A digest as text.
pub fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
