//! Each way from the file to the destination, its two parts timed apart: what is done before a copy, and the copy.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::counters::Taken;
use super::destination::{Destination, From, Staging};
use super::rank::Pass;
use super::way::{Mapped, Regime, Way};
use crate::artifact::hexadecimal;
use crate::clock::Mono;
use crate::event::Pid;
use crate::proc::maps;
use crate::sys::cache::page_size;
use crate::sys::memory::{Buffer, FileMapping};

/// A tensor: bytes of one of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub file: usize,
    pub offset: u64,
    pub length: u64,
}

impl Span {
    pub fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }
}

/// The files, and what of them is copied.
#[derive(Debug)]
pub struct Opened {
    files: Vec<File>,
    tensors: Vec<Span>,
}

impl Opened {
    pub fn new(files: Vec<File>, tensors: Vec<Span>) -> anyhow::Result<Opened> {
        for tensor in &tensors {
            anyhow::ensure!(tensor.file < files.len(), "a tensor of file {}, of {}", tensor.file, files.len());
            anyhow::ensure!(tensor.offset.checked_add(tensor.length).is_some(), "a tensor beyond all files");
        }
        Ok(Opened { files, tensors })
    }

    pub fn tensors(&self) -> &[Span] {
        &self.tensors
    }

    fn largest(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.length as usize).max().unwrap_or(0)
    }

    /// SHA-256 of all tensors' bytes, read with pread(2).
    pub fn digest(&self) -> anyhow::Result<String> {
        let mut digest = Sha256::new();
        let mut piece = vec![0; 1 << 20];
        for tensor in &self.tensors {
            let mut at = tensor.offset;
            while at < tensor.offset + tensor.length {
                let length = piece.len().min((tensor.offset + tensor.length - at) as usize);
                self.files[tensor.file].read_exact_at(&mut piece[..length], at)?;
                digest.update(&piece[..length]);
                at += length as u64;
            }
        }
        Ok(hexadecimal(&digest.finalize()))
    }
}

/// The two clocks of a pass.
#[derive(Default)]
struct Clocks {
    prepare_ns: u64,
    copy_ns: u64,
}

impl Clocks {
    fn prepare<T>(&mut self, what: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        timed(&mut self.prepare_ns, what)
    }

    fn copy<T>(&mut self, what: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        timed(&mut self.copy_ns, what)
    }
}

fn timed<T>(clock: &mut u64, what: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let begin = Mono::now().0;
    let done = what()?;
    *clock += Mono::now().0 - begin;
    Ok(done)
}

/// All tensors by one way.
pub fn pass(way: Way, opened: &Opened, to: &mut Destination) -> anyhow::Result<Pass> {
    let mut clocks = Clocks::default();
    let source = match (way.regime, way.mapped) {
        (Regime::Heap, _) => by_reading(opened, &opened.files, 1, to, &mut clocks),
        (Regime::Direct, _) => directly(opened, to, &mut clocks),
        (regime, Some(mapped)) if regime.copies_out_of_the_mapping() => {
            out_of_mappings(regime, mapped, opened, to, &mut clocks)
        }
        (regime, Some(mapped)) => through_memory(regime, mapped, opened, to, &mut clocks),
        (regime, None) => anyhow::bail!("{} without a kind of mapping", regime.name()),
    }?;
    Ok(Pass { prepare_ns: clocks.prepare_ns, copy_ns: clocks.copy_ns, taken: Taken::default(), source, verified: None })
}

/// Every tensor is mapped before the first is copied, as a loader maps its file.
fn out_of_mappings(
    regime: Regime,
    mapped: Mapped,
    opened: &Opened,
    to: &mut Destination,
    clocks: &mut Clocks,
) -> anyhow::Result<String> {
    let mappings = clocks.prepare(|| {
        let map = |tensor: &Span| {
            let mapping = map(opened, tensor, mapped, regime == Regime::Populated)?;
            if regime == Regime::Prefaulted {
                mapping.touch();
            }
            anyhow::Ok(mapping)
        };
        opened.tensors.iter().map(map).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut classes = Classes::default();
    for (index, mapping) in mappings.iter().enumerate() {
        clocks.copy(|| to.copy(index, From::Mapping(mapping)))?;
    }
    mappings.first().into_iter().chain(mappings.last()).for_each(|mapping| classes.add(mapping.address()));
    Ok(classes.text())
}

/// Out of a mapping into anonymous memory, pinned or not, and out of that.
fn through_memory(
    regime: Regime,
    mapped: Mapped,
    opened: &Opened,
    to: &mut Destination,
    clocks: &mut Clocks,
) -> anyhow::Result<String> {
    let mappings = clocks.prepare(|| {
        opened.tensors.iter().map(|tensor| map(opened, tensor, mapped, false)).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut kept = match regime {
        Regime::PinnedOnce => Some(clocks.prepare(|| to.pinned(opened.largest()))?),
        _ => None,
    };
    let mut classes = Classes::default();
    for (index, mapping) in mappings.iter().enumerate() {
        let length = mapping.length();
        let mut own = None;
        let buffer = clocks.prepare(|| {
            let buffer = match &mut kept {
                Some(kept) => kept,
                None if regime == Regime::PinnedEach => own.insert(to.pinned(length)?),
                None => own.insert(Staging::Memory(memory(length)?)),
            };
            mapping.copy_to(buffer.bytes_mut())?;
            Ok(buffer)
        })?;
        clocks.copy(|| to.copy(index, From::Memory(&buffer.bytes()[..length])))?;
        if index == 0 || index + 1 == mappings.len() {
            classes.add(buffer.address());
        }
    }
    Ok(classes.text())
}

/// pread(2) into fresh memory, and out of that. `align` is what offset, length and memory must be multiples of.
fn by_reading(
    opened: &Opened,
    files: &[File],
    align: u64,
    to: &mut Destination,
    clocks: &mut Clocks,
) -> anyhow::Result<String> {
    let mut classes = Classes::default();
    for (index, tensor) in opened.tensors.iter().enumerate() {
        let begin = tensor.offset - tensor.offset % align;
        let skip = (tensor.offset - begin) as usize;
        let end = skip + tensor.length as usize;
        let buffer = clocks.prepare(|| {
            let mut buffer = memory(end.next_multiple_of(align as usize))?;
            let room = &mut buffer.bytes_mut()[..end.next_multiple_of(align as usize)];
            read(&files[tensor.file], room, begin, end)?;
            Ok(buffer)
        })?;
        clocks.copy(|| to.copy(index, From::Memory(&buffer.bytes()[skip..end])))?;
        if index == 0 || index + 1 == opened.tensors.len() {
            classes.add(buffer.address());
        }
    }
    Ok(classes.text())
}

fn directly(opened: &Opened, to: &mut Destination, clocks: &mut Clocks) -> anyhow::Result<String> {
    let again = |file: &File| {
        // Opened anew by its descriptor: the file may have no name any more.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
    };
    let files: Vec<File> =
        opened.files.iter().map(again).collect::<io::Result<_>>().context("no O_DIRECT on this filesystem")?;
    by_reading(opened, &files, page_size(), to, clocks).context("O_DIRECT")
}

/// Reads at least `needed` bytes, and as many as there is room for; a file may end between.
fn read(file: &File, room: &mut [u8], offset: u64, needed: usize) -> io::Result<()> {
    let mut done = 0;
    while done < needed {
        match file.read_at(&mut room[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn map(opened: &Opened, tensor: &Span, mapped: Mapped, populate: bool) -> anyhow::Result<FileMapping> {
    FileMapping::new(&opened.files[tensor.file], tensor.bytes(), mapped.sharing(), populate).context("mmap")
}

fn memory(length: usize) -> anyhow::Result<Buffer> {
    Buffer::new(length).context("anonymous memory")
}

/// What lies at the addresses that were copied from.
#[derive(Default)]
struct Classes(Vec<String>);

impl Classes {
    fn add(&mut self, address: u64) {
        let class = class(address);
        if !self.0.contains(&class) {
            self.0.push(class);
        }
    }

    fn text(self) -> String {
        if self.0.is_empty() { "unknown".to_owned() } else { self.0.join(", ") }
    }
}

/// `file rw-p`, `anonymous rw-p`: asked of the kernel, so that a regime is what it is called.
fn class(address: u64) -> String {
    let mut text = Vec::new();
    if maps::read(std::process::id() as Pid, &mut text).is_err() {
        return "unknown".to_owned();
    }
    let at = maps::Mapping::all(&text).find(|mapping| (mapping.start..mapping.end).contains(&address));
    match at {
        Some(mapping) => {
            let what = if mapping.is_of_file() { "file" } else { "anonymous" };
            format!("{what} {}", String::from_utf8_lossy(&mapping.permissions))
        }
        None => "unknown".to_owned(),
    }
}
