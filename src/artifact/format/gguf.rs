//! GGUF, versions 2 and 3, little-endian: key-values, tensor descriptions, padding, then the tensors' bytes.
//!
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Key-values are passed over, not kept: the vocabulary
//! alone is hundreds of thousands of strings. Shapes are as the file has them, the innermost dimension first.
//!
//! Quantisation types come faster than parsers: a tensor of a type that is not in the table below ends where the next
//! one begins, or with the file. For the types in the table the size is exact, so that padding is not called payload.

use super::super::header::{Cursor, HeaderReader};
use super::super::{ArtifactError, Layout, Tensor};
use super::{Parsed, TENSORS, quoted};

/// Alignment of tensors where the file does not say.
const ALIGNMENT: u64 = 32;

/// Arrays within arrays that are followed.
const DEPTH: u32 = 8;

/// The most dimensions that are believed; ggml has four.
const DIMENSIONS: u32 = 64;

/// The fewest bytes that describe a tensor: name length, dimensions, type, offset.
const SMALLEST_DESCRIPTION: u64 = 8 + 4 + 4 + 8;

/// Reads the header of a GGUF file.
pub fn read(reader: &mut HeaderReader) -> Result<Parsed, ArtifactError> {
    let size = reader.size();
    let mut cursor = Cursor::new(reader, 0..size);
    if cursor.u32()? != u32::from_le_bytes(*b"GGUF") {
        return Err(cursor.reader.malformed(0, "no GGUF file by its first bytes"));
    }
    let version = cursor.u32()?;
    if version != 0 && version & 0xffff == 0 {
        return Err(cursor.reader.malformed(4, "a big-endian GGUF file, which is not read here"));
    }
    if version != 2 && version != 3 {
        return Err(cursor.reader.malformed(4, format!("GGUF version {version}; 2 and 3 are read here")));
    }
    let tensors = cursor.u64()?;
    let pairs = cursor.u64()?;
    if tensors > cursor.left() / SMALLEST_DESCRIPTION {
        return Err(cursor
            .reader
            .malformed(8, format!("{tensors} tensors are more than the file has room to describe")));
    }
    if tensors > TENSORS {
        return Err(cursor.reader.malformed(8, format!("{tensors} tensors; more than {TENSORS} are not believed")));
    }

    let mut alignment = ALIGNMENT;
    for _ in 0..pairs {
        let length = cursor.u64()?;
        let key = cursor.text(length)?;
        let (at, kind) = (cursor.at(), cursor.u32()?);
        if key == "general.alignment" && kind == 4 {
            alignment = u64::from(cursor.u32()?);
            if alignment == 0 {
                return Err(cursor.reader.malformed(at + 4, "an alignment of 0"));
            }
        } else {
            skip_value(&mut cursor, kind, DEPTH)?;
        }
    }

    // Not reserved by the count: each description is read before there is one more.
    let mut described = Vec::new();
    for _ in 0..tensors {
        described.push(describe(&mut cursor)?);
    }
    let header_end = cursor.at();
    let digest = cursor.digest();
    let data = header_end
        .checked_next_multiple_of(alignment)
        .filter(|&data| data <= size || tensors == 0)
        .ok_or_else(|| reader.malformed(header_end, "the file ends before its tensors begin"))?;
    let (tensors, notes) = place(reader, data, described)?;
    Ok(Parsed { layout: Layout::of(tensors, notes), digest })
}

/// A tensor as described: where the description stands, and an offset into the data.
struct Described {
    at: u64,
    name: String,
    shape: Vec<u64>,
    kind: u32,
    offset: u64,
}

fn describe(cursor: &mut Cursor) -> Result<Described, ArtifactError> {
    let at = cursor.at();
    let length = cursor.u64()?;
    let name = cursor.text(length)?;
    let dimensions = cursor.u32()?;
    if dimensions > DIMENSIONS {
        return Err(cursor.malformed(format!("tensor {} with {dimensions} dimensions", quoted(&name))));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(cursor.u64()?);
    }
    Ok(Described { at, name, shape, kind: cursor.u32()?, offset: cursor.u64()? })
}

/// Passes over a value of a type, by the format's numbering of types.
fn skip_value(cursor: &mut Cursor, kind: u32, depth: u32) -> Result<(), ArtifactError> {
    match kind {
        8 => {
            let length = cursor.u64()?;
            cursor.skip(length)
        }
        9 => {
            let (element, count) = (cursor.u32()?, cursor.u64()?);
            if let Some(bytes) = value_bytes(element) {
                let length = count
                    .checked_mul(bytes)
                    .ok_or_else(|| cursor.malformed(format!("an array of {count} values of {bytes} bytes")))?;
                return cursor.skip(length);
            }
            if depth == 0 {
                return Err(cursor.malformed(format!("arrays nested more than {DEPTH} deep")));
            }
            // Each turn passes at least eight bytes, or fails.
            (0..count).try_for_each(|_| skip_value(cursor, element, depth - 1))
        }
        _ => match value_bytes(kind) {
            Some(bytes) => cursor.skip(bytes),
            None => Err(cursor.malformed(format!("a value of type {kind}, which the format does not have"))),
        },
    }
}

/// Bytes of a value of fixed size.
fn value_bytes(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// Finds each tensor's end.
fn place(
    reader: &HeaderReader,
    data: u64,
    mut described: Vec<Described>,
) -> Result<(Vec<Tensor>, Vec<String>), ArtifactError> {
    let room = reader.size().saturating_sub(data);
    described.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = described.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(
            reader.malformed(pair[0].at.max(pair[1].at), format!("two tensors are called {}", quoted(&pair[0].name)))
        );
    }

    described.sort_by_key(|tensor| tensor.offset);
    let mut tensors: Vec<Tensor> = Vec::with_capacity(described.len());
    let mut unknown = 0u64;
    let mut next_start = room;
    // From the last to the first: what a tensor may reach is where the next one that begins later begins.
    for index in (0..described.len()).rev() {
        let this = &described[index];
        if let Some(next) = described.get(index + 1).filter(|next| next.offset > this.offset) {
            next_start = next.offset;
        }
        if this.offset > room {
            return Err(reader.malformed(
                this.at,
                format!(
                    "tensor {} begins at {} of the {room} bytes that the file has for data",
                    quoted(&this.name),
                    this.offset
                ),
            ));
        }
        let gap = next_start - this.offset;
        let length = match kind_of(this.kind) {
            Some(kind) => {
                let bytes = kind.bytes(&this.shape).ok_or_else(|| {
                    reader.malformed(
                        this.at,
                        format!("tensor {}: {} has no size for shape {:?}", quoted(&this.name), kind.name, this.shape),
                    )
                })?;
                if bytes > gap {
                    let problem = if next_start == room { "the file ends" } else { "the next tensor begins" };
                    return Err(reader.malformed(
                        this.at,
                        format!("tensor {} takes {bytes} bytes, but {problem} after {gap}", quoted(&this.name)),
                    ));
                }
                bytes
            }
            None => {
                unknown += 1;
                gap
            }
        };
        tensors.push(Tensor {
            name: this.name.clone(),
            dtype: kind_of(this.kind).map_or_else(|| format!("type {}", this.kind), |kind| kind.name.to_owned()),
            shape: this.shape.clone(),
            offset: data + this.offset,
            length,
        });
    }
    // Two tensors may be one and the same bytes, but not lie across each other.
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.length));
    for pair in tensors.windows(2) {
        let [first, second] = pair else { continue };
        let shared = (first.offset, first.length) == (second.offset, second.length);
        if second.offset < first.offset + first.length && !shared {
            return Err(reader.malformed(
                second.offset,
                format!("tensor {} begins within tensor {}", quoted(&second.name), quoted(&first.name)),
            ));
        }
    }
    let notes = (unknown > 0)
        .then(|| format!("{unknown} tensors are of a type that is not known here; each is taken to end where the next begins, padding included"));
    Ok((tensors, notes.into_iter().collect()))
}

/// A ggml type: elements are stored in blocks.
struct Kind {
    name: &'static str,
    /// Elements in a block.
    elements: u64,
    /// Bytes of a block.
    bytes: u64,
}

impl Kind {
    /// Bytes of a tensor: whole blocks along the innermost dimension, as ggml stores rows.
    fn bytes(&self, shape: &[u64]) -> Option<u64> {
        let (&inner, outer) = shape.split_first().unwrap_or((&1, &[]));
        if inner % self.elements != 0 {
            return None;
        }
        outer.iter().try_fold((inner / self.elements).checked_mul(self.bytes)?, |bytes, &side| bytes.checked_mul(side))
    }
}

/// The types of `enum ggml_type` (ggml.h) and the sizes of their blocks (ggml-common.h). Not Q8_1, which is no type of
/// stored tensors and whose size ggml and its Python package state differently.
fn kind_of(number: u32) -> Option<Kind> {
    let (name, elements, bytes) = match number {
        0 => ("F32", 1, 4),
        1 => ("F16", 1, 2),
        2 => ("Q4_0", 32, 18),
        3 => ("Q4_1", 32, 20),
        6 => ("Q5_0", 32, 22),
        7 => ("Q5_1", 32, 24),
        8 => ("Q8_0", 32, 34),
        10 => ("Q2_K", 256, 84),
        11 => ("Q3_K", 256, 110),
        12 => ("Q4_K", 256, 144),
        13 => ("Q5_K", 256, 176),
        14 => ("Q6_K", 256, 210),
        15 => ("Q8_K", 256, 292),
        16 => ("IQ2_XXS", 256, 66),
        17 => ("IQ2_XS", 256, 74),
        18 => ("IQ3_XXS", 256, 98),
        19 => ("IQ1_S", 256, 50),
        20 => ("IQ4_NL", 32, 18),
        21 => ("IQ3_S", 256, 110),
        22 => ("IQ2_S", 256, 82),
        23 => ("IQ4_XS", 256, 136),
        24 => ("I8", 1, 1),
        25 => ("I16", 1, 2),
        26 => ("I32", 1, 4),
        27 => ("I64", 1, 8),
        28 => ("F64", 1, 8),
        29 => ("IQ1_M", 256, 56),
        30 => ("BF16", 1, 2),
        34 => ("TQ1_0", 256, 54),
        35 => ("TQ2_0", 256, 66),
        39 => ("MXFP4", 32, 17),
        40 => ("NVFP4", 64, 36),
        41 => ("Q1_0", 128, 18),
        _ => return None,
    };
    Some(Kind { name, elements, bytes })
}
