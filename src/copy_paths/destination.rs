//! Where tensors are copied to: host memory, or a CUDA device's. It is allocated, and its pages are there, before the first
//! copy; a copy has completed when it returns.

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::source::Span;
use crate::artifact::hexadecimal;
use crate::sys::cuda::{self, DeviceMemory, Driver, PinnedMemory};
use crate::sys::memory::{Buffer, FileMapping};

/// Which destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Host,
    /// The device of this number, as CUDA counts them.
    Cuda(u32),
}

impl Kind {
    /// As tables and files name it.
    pub fn name(&self) -> String {
        match self {
            Kind::Host => "host".to_owned(),
            Kind::Cuda(ordinal) => format!("cuda:{ordinal}"),
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
    memory: Memory,
    /// Where each tensor begins; the end of the last.
    offsets: Vec<usize>,
}

#[derive(Debug)]
enum Memory {
    Host(Buffer),
    Cuda { context: cuda::Context, memory: DeviceMemory },
}

/// What the destination is filled with before its bytes are compared, so that those of an earlier copy prove nothing.
const SPOILT: u8 = 0xa5;

/// How much of a device's memory is written or read at a time where it is not measured.
const PIECE: usize = 4 << 20;

impl Destination {
    /// Allocates the place, and brings its pages in. `library` is the CUDA driver's, where it is not the loader's usual one.
    pub fn new(kind: Kind, library: Option<&Path>, tensors: &[Span]) -> anyhow::Result<Destination> {
        let mut offsets = vec![0usize];
        for tensor in tensors {
            let end = usize::try_from(tensor.length).ok().and_then(|length| offsets.last()?.checked_add(length));
            offsets.push(end.context("the tensors have more bytes than an address space")?);
        }
        let bytes = offsets.last().copied().unwrap_or(0);
        let memory = match kind {
            Kind::Host => Memory::Host(Buffer::new(bytes).context("memory for the destination")?),
            Kind::Cuda(ordinal) => {
                let told = |why: String| anyhow::anyhow!("CUDA device {ordinal}: {why}");
                let context = Driver::open_to_copy(library)
                    .and_then(|driver| driver.retain(i32::try_from(ordinal).unwrap_or(i32::MAX)))
                    .map_err(told)?;
                Memory::Cuda { context, memory: DeviceMemory::new(context, bytes).map_err(told)? }
            }
        };
        let mut destination = Destination { memory, offsets };
        destination.spoil()?;
        Ok(destination)
    }

    /// Copies a tensor; done when it returns.
    pub fn copy(&mut self, tensor: usize, from: From) -> anyhow::Result<()> {
        let (begin, end) = (self.offsets[tensor], self.offsets[tensor + 1]);
        anyhow::ensure!(from.length() == end - begin, "a tensor of another length");
        match (&mut self.memory, from) {
            (Memory::Host(memory), From::Mapping(mapping)) => mapping.copy_to(&mut memory.bytes_mut()[begin..end])?,
            (Memory::Host(memory), From::Memory(bytes)) => memory.bytes_mut()[begin..end].copy_from_slice(bytes),
            (Memory::Cuda { memory, .. }, From::Mapping(mapping)) => {
                memory.put_mapped(begin, mapping).map_err(anyhow::Error::msg)?;
            }
            (Memory::Cuda { memory, .. }, From::Memory(bytes)) => {
                memory.put(begin, bytes).map_err(anyhow::Error::msg)?
            }
        }
        Ok(())
    }

    /// Memory that a device can copy out of without a copy in between: locked, or pinned by its driver.
    pub fn pinned(&self, length: usize) -> anyhow::Result<Staging> {
        match &self.memory {
            Memory::Host(_) => {
                let mut buffer = Buffer::new(length).context("anonymous memory")?;
                buffer.lock().context("mlock (`ulimit -l` bounds it)")?;
                Ok(Staging::Memory(buffer))
            }
            Memory::Cuda { context, .. } => {
                let pinned = PinnedMemory::new(*context, length).map_err(anyhow::Error::msg);
                Ok(Staging::Pinned(pinned.context("pinned memory")?))
            }
        }
    }

    /// Overwrites all of it.
    pub fn spoil(&mut self) -> anyhow::Result<()> {
        match &mut self.memory {
            Memory::Host(memory) => memory.bytes_mut().fill(SPOILT),
            Memory::Cuda { memory, .. } => {
                let piece = vec![SPOILT; PIECE];
                for (at, length) in pieces(self.offsets.last().copied().unwrap_or(0)) {
                    memory.put(at, &piece[..length]).map_err(anyhow::Error::msg)?;
                }
            }
        }
        Ok(())
    }

    /// SHA-256 of all tensors' bytes.
    pub fn digest(&self) -> anyhow::Result<String> {
        let end = self.offsets.last().copied().unwrap_or(0);
        let mut digest = Sha256::new();
        match &self.memory {
            Memory::Host(memory) => digest.update(&memory.bytes()[..end]),
            Memory::Cuda { memory, .. } => {
                let mut piece = vec![0; PIECE];
                for (at, length) in pieces(end) {
                    memory.get(at, &mut piece[..length]).map_err(anyhow::Error::msg)?;
                    digest.update(&piece[..length]);
                }
            }
        }
        Ok(hexadecimal(&digest.finalize()))
    }
}

/// Offsets and lengths that cover so many bytes.
fn pieces(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes).step_by(PIECE).map(move |at| (at, PIECE.min(bytes - at)))
}

/// Memory that is filled on the way.
#[derive(Debug)]
pub enum Staging {
    Memory(Buffer),
    Pinned(PinnedMemory),
}

impl Staging {
    pub fn address(&self) -> u64 {
        match self {
            Staging::Memory(buffer) => buffer.address(),
            Staging::Pinned(pinned) => pinned.address(),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Staging::Memory(buffer) => buffer.bytes(),
            Staging::Pinned(pinned) => pinned.bytes(),
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Staging::Memory(buffer) => buffer.bytes_mut(),
            Staging::Pinned(pinned) => pinned.bytes_mut(),
        }
    }
}
