//! One file a format: header → layout.
//!
//! The format is told by content first: a file in a content-addressed cache has no extension, and a `.bin` may be
//! anything. The extension speaks only where the content does not, so that a damaged file is called by its name.

mod gguf;
mod npy;
mod onnx;
mod safetensors;
mod torch;
mod zip;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub use onnx::{External, ExternalTensor};

use super::header::HeaderReader;
use super::{ArtifactError, Format, Layout, Tensor};
use crate::event::text_of;

/// What by-dtype figures call payload whose dtype the header does not say.
pub const UNKNOWN_DTYPE: &str = "unknown";

/// What by-dtype figures call the payload of all further dtypes past `DTYPES`.
pub const OTHER_DTYPES: &str = "other";

/// The most tensors of one file that are believed, so that a hostile header cannot take all memory; the largest models
/// have some hundred thousand, in all their shards.
const TENSORS: u64 = 1_000_000;

/// The most dtypes that are told apart.
const DTYPES: usize = 1000;

/// What a header said.
pub struct Parsed {
    pub layout: Layout,
    /// SHA-256 of the header as it stands in the file.
    pub digest: String,
}

/// Whether a file begins as one of the formats does, whatever it is called.
pub fn is_known_content(file: &File) -> bool {
    let mut head = [0; 16];
    file.read_exact_at(&mut head, 0).is_ok() && by_content(&head).is_some()
}

/// Tells the format of a file and reads its header.
pub fn read(path: &Path, reader: &mut HeaderReader) -> (Format, Result<Parsed, ArtifactError>) {
    let head = match reader.head(16) {
        Ok(head) => head,
        Err(error) => return (by_extension(path), Err(error)),
    };
    match by_content(&head) {
        Some(Format::TorchZip) => match zip_of_arrays_or_storages(reader) {
            Ok(Some((format, parsed))) => (format, Ok(parsed)),
            Ok(None) => {
                let problem = "a zip file, but neither as torch.save writes it, with a data.pkl, nor one of .npy files";
                (Format::Unknown, Err(reader.malformed(0, problem)))
            }
            // A zip that cannot be read may be anything; one called `.pt` was meant for torch.
            Err(error) => (by_extension(path), Err(error)),
        },
        Some(format) => (format, parsed(format, path, reader)),
        None => match by_extension(path) {
            // Its first bytes are those of many files: it is one if all of it can be read so.
            Format::Unknown if onnx::may_begin(&head) => match onnx::read(reader) {
                Ok(parsed) => (Format::Onnx, Ok(parsed)),
                Err(_) => (Format::Unknown, parsed(Format::Unknown, path, reader)),
            },
            format => (format, parsed(format, path, reader)),
        },
    }
}

fn zip_of_arrays_or_storages(reader: &mut HeaderReader) -> Result<Option<(Format, Parsed)>, ArtifactError> {
    if let Some(parsed) = torch::read(reader)? {
        return Ok(Some((Format::TorchZip, parsed)));
    }
    Ok(npy::read_zip(reader)?.map(|parsed| (Format::Npz, parsed)))
}

/// Reads the header of a file of this format.
fn parsed(format: Format, path: &Path, reader: &mut HeaderReader) -> Result<Parsed, ArtifactError> {
    match format {
        Format::Safetensors => safetensors::read(reader),
        Format::Gguf => gguf::read(reader),
        Format::Onnx => onnx::read(reader),
        Format::Npy => npy::read(reader, text_of(path.file_stem().unwrap_or_default())),
        Format::TorchLegacy => {
            Err(reader.malformed(0, "a pickle from before torch.save wrote zip files; it is not read"))
        }
        Format::TorchZip => Err(reader.malformed(0, "neither a zip file nor the older format of torch.save")),
        Format::Npz => Err(reader.malformed(0, "no zip file by its first bytes")),
        Format::OnnxData | Format::Raw | Format::Unknown if reader.size() == 0 => {
            Err(reader.malformed(0, "the file is empty"))
        }
        Format::OnnxData | Format::Raw | Format::Unknown => {
            let known = "neither safetensors, GGUF, ONNX, of NumPy nor of torch.save, by its first bytes";
            Err(reader.malformed(0, known))
        }
    }
}

/// A name out of a header, for an error: quoted, with escapes, and bounded, since it may be as long as the header.
fn quoted(name: &str) -> String {
    format!("{:?}", bounded(name, 100))
}

/// At most so many characters; the middle gives way.
fn bounded(text: &str, most: usize) -> Cow<'_, str> {
    let Some((cut, _)) = text.char_indices().nth(most) else { return text.into() };
    let head = text.char_indices().nth(most / 2).map_or(cut, |(at, _)| at);
    let tail = text.char_indices().rev().nth(most / 2 - 2).map_or(cut, |(at, _)| at);
    format!("{}…{}", &text[..head], &text[tail..]).into()
}

/// A file without a header: all of it is payload.
pub fn raw(size: u64) -> Layout {
    Layout {
        payload: std::iter::once(0..size).collect(),
        by_dtype: BTreeMap::from([(UNKNOWN_DTYPE.to_owned(), size)]),
        ..Layout::default()
    }
}

/// The pickled number that `torch.save` put first before it wrote zip files, behind the protocol byte.
const LEGACY: [u8; 12] = [0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

fn by_content(head: &[u8]) -> Option<Format> {
    match head {
        [b'G', b'G', b'U', b'F', ..] => Some(Format::Gguf),
        // Or another's, by what is in it.
        [b'P', b'K', 3, 4, ..] => Some(Format::TorchZip),
        _ if head.starts_with(&npy::MAGIC) => Some(Format::Npy),
        [0x80, _, rest @ ..] if rest.starts_with(&LEGACY) => Some(Format::TorchLegacy),
        // The format demands that the JSON begins at once; a length past its limit is another format's bytes.
        [a, b, c, d, e, f, g, h, b'{', ..]
            if u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) <= safetensors::HEADER_LIMIT =>
        {
            Some(Format::Safetensors)
        }
        _ => None,
    }
}

fn by_extension(path: &Path) -> Format {
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    match extension.as_deref() {
        Some("safetensors") => Format::Safetensors,
        Some("gguf") => Format::Gguf,
        Some("pt" | "pth") => Format::TorchZip,
        Some("onnx") => Format::Onnx,
        Some("npy") => Format::Npy,
        Some("npz") => Format::Npz,
        _ => Format::Unknown,
    }
}

impl Layout {
    /// The layout of these tensors, in any order. Bytes that several share count once, for the first of them.
    pub fn of(mut tensors: Vec<Tensor>, notes: Vec<String>) -> Layout {
        tensors.sort_by(|a, b| (a.offset, a.length, &a.name).cmp(&(b.offset, b.length, &b.name)));
        let payload = tensors.iter().map(|tensor| tensor.offset..tensor.offset + tensor.length).collect();
        let mut by_dtype = BTreeMap::new();
        let mut covered = 0;
        for tensor in &tensors {
            let end = tensor.offset + tensor.length;
            let new = end.saturating_sub(covered.max(tensor.offset));
            covered = covered.max(end);
            if new > 0 {
                let dtype = if tensor.dtype.is_empty() { UNKNOWN_DTYPE } else { &tensor.dtype };
                let told = by_dtype.len() < DTYPES || by_dtype.contains_key(dtype);
                let dtype = if told { dtype } else { OTHER_DTYPES };
                *by_dtype.entry(dtype.to_owned()).or_insert(0) += new;
            }
        }
        Layout { tensors, payload, by_dtype, notes, external: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: &str, offset: u64, length: u64) -> Tensor {
        Tensor { name: format!("{dtype}@{offset}"), dtype: dtype.into(), shape: vec![], offset, length }
    }

    #[test]
    fn shared_bytes_count_once() {
        let layout = Layout::of(
            vec![tensor("F32", 100, 50), tensor("F16", 120, 80), tensor("F32", 100, 50), tensor("", 300, 7)],
            vec![],
        );
        assert_eq!(layout.payload.len(), 107);
        let by_dtype: Vec<_> = layout.by_dtype.iter().map(|(dtype, bytes)| (dtype.as_str(), *bytes)).collect();
        assert_eq!(by_dtype, [("F16", 50), ("F32", 50), (UNKNOWN_DTYPE, 7)]);
        assert!(layout.tensors.is_sorted_by_key(|tensor| tensor.offset));
    }

    #[test]
    fn dtypes_past_measure_count_together() {
        let tensors = (0..3000).map(|index| tensor(&format!("D{index}"), index * 8, 8)).collect();
        let layout = Layout::of(tensors, vec![]);
        assert_eq!(layout.by_dtype.len(), DTYPES + 1);
        assert_eq!(layout.by_dtype[OTHER_DTYPES], 2000 * 8);
        assert_eq!(layout.by_dtype.values().sum::<u64>(), layout.payload.len());
    }

    #[test]
    fn names_in_errors_are_bounded() {
        assert_eq!(quoted("a\u{1b}\u{202e}b"), r#""a\u{1b}\u{202e}b""#);
        assert_eq!(bounded("abc", 3), "abc");
        for long in ["x".repeat(10_000), "模".repeat(10_000)] {
            assert_eq!(bounded(&long, 100).chars().count(), 100);
        }
        assert_eq!(bounded("0123456789", 6), "012…89");
    }

    #[test]
    fn content_tells_before_the_name() {
        assert_eq!(by_content(b"GGUF\x03\0\0\0"), Some(Format::Gguf));
        assert_eq!(by_content(b"\x08\0\0\0\0\0\0\0{}      "), Some(Format::Safetensors));
        assert_eq!(by_content(b"\xff\xff\xff\xff\xff\xff\xff\x7f{}      "), None);
        assert_eq!(by_content(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."), Some(Format::TorchLegacy));
        assert_eq!(by_content(b""), None);
        assert_eq!(by_extension(Path::new("/x/MODEL.GGUF")), Format::Gguf);
        assert_eq!(by_extension(Path::new("/x/model.bin")), Format::Unknown);
    }
}
