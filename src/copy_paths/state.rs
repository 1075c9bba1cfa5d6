//! What of the tensors the page cache holds before a pass: made, and then looked at.
//!
//! Of each file only the tensors' own pages are let go or brought in (and what shares a large folio with them: the kernel
//! lets go of whole ones only), and of no other file any. What lies behind the
//! page cache (a device's own cache, a server's, that of a virtual machine's host) is not reached.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::source::Span;
use crate::artifact::{Artifact, Layout};
use crate::cache::drop_pages;
use crate::clock::Mono;
use crate::event::text_of;
use crate::launch::ending::Ending;
use crate::probe::residency::ResidencyProbe;

/// How long the kernel is asked about one file.
const LIMIT: Duration = Duration::from_secs(2);

/// The largest folio of a page cache, in bytes, and more: mm/filemap.c takes no more than a PMD's 2 MiB.
const FOLIO: u64 = 4 << 20;

/// How often pages that stay are let go again: what another process is just reading comes back once.
const TRIES: usize = 3;

/// The tensors' pages, by file.
pub struct State {
    /// Each file with the chosen tensors as its payload.
    files: Vec<Artifact>,
    tensors: Vec<Span>,
}

impl State {
    pub fn new(files: &[Arc<File>], artifacts: &[Artifact], tensors: &[Span]) -> State {
        let narrowed = |(index, artifact): (usize, &Artifact)| {
            let payload = tensors.iter().filter(|tensor| tensor.file == index).map(Span::bytes).collect();
            let layout = Layout { payload, ..Layout::default() };
            Artifact { file: files[index].clone(), layout: Ok(Arc::new(layout)), ..artifact.clone() }
        };
        let files = artifacts.iter().enumerate().map(narrowed).collect();
        State { files, tensors: tensors.to_vec() }
    }

    /// Lets the tensors' pages go (posix_fadvise(2)), or brings them in; then says how many of their bytes are resident, or
    /// why that is not known. A signal ends it.
    pub fn make(&self, cold: bool, signals: &mut Ending) -> anyhow::Result<Result<u64, String>> {
        if !cold {
            self.warm(signals)?;
            return Ok(self.resident());
        }
        for _ in 1..TRIES {
            self.evict(signals)?;
            if let Ok(0) | Err(_) = self.resident() {
                break;
            }
        }
        Ok(self.resident())
    }

    fn evict(&self, signals: &mut Ending) -> anyhow::Result<()> {
        for tensor in &self.tensors {
            signals.check()?;
            let file = &self.files[tensor.file];
            let begin = tensor.offset - tensor.offset % FOLIO;
            let end = tensor.bytes().end.next_multiple_of(FOLIO);
            drop_pages(&file.file, begin..end).with_context(|| text_of(&file.path))?;
        }
        Ok(())
    }

    fn warm(&self, signals: &mut Ending) -> anyhow::Result<()> {
        let mut piece = vec![0; 4 << 20];
        for tensor in &self.tensors {
            let end = tensor.offset + tensor.length;
            let mut at = tensor.offset;
            while at < end {
                signals.check()?;
                let length = piece.len().min((end - at) as usize);
                let read = self.files[tensor.file].file.read_at(&mut piece[..length], at)?;
                anyhow::ensure!(read > 0, "{}: cut short", self.files[tensor.file].path.display());
                at += read as u64;
            }
        }
        Ok(())
    }

    /// Resident bytes of the tensors.
    fn resident(&self) -> Result<u64, String> {
        let mut probe = ResidencyProbe::new();
        for file in &self.files {
            probe.add(file, LIMIT);
        }
        probe.files(Mono::now()).into_iter().map(|file| file.resident).sum()
    }
}
