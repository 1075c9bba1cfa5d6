//! safetensors: eight bytes of header length, a JSON object, then the tensors' bytes.
//!
//! <https://huggingface.co/docs/safetensors>, section Format. Holes between tensors, or behind the last one, break the
//! format's rules too, but they are noted and not refused: the bytes of every tensor are still known exactly, older
//! writers left such files behind, and whether a loader takes them is the loader's business.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::header::{HeaderReader, sha256};
use super::super::{ArtifactError, Layout, Tensor};
use super::{Parsed, TENSORS, bounded, quoted};

/// The longest header that the format allows.
pub const HEADER_LIMIT: u64 = 100_000_000;

/// The most dimensions of a tensor that are believed; NumPy and PyTorch stop at 64.
const DIMENSIONS: usize = 64;

/// Reads the header of a safetensors file.
pub fn read(reader: &mut HeaderReader) -> Result<Parsed, ArtifactError> {
    let mut prefix = [0; 8];
    if reader.size() < 8 {
        let size = reader.size();
        return Err(reader.malformed(size, "the file ends within the eight bytes of the header's length"));
    }
    reader.read_at(0, &mut prefix)?;
    let length = u64::from_le_bytes(prefix);
    if length > HEADER_LIMIT {
        return Err(reader.malformed(0, format!("a header of {length} bytes; the format allows {HEADER_LIMIT}")));
    }
    let data = 8 + length;
    if data > reader.size() {
        let size = reader.size();
        return Err(reader.malformed(0, format!("a header up to byte {data}, but the file ends at byte {size}")));
    }
    // Allocated by a length that the file has and that the format's limit bounds.
    let mut json = vec![0; length as usize];
    reader.read_at(8, &mut json)?;

    let header: Header = serde_json::from_slice(&json).map_err(|error| {
        // It may quote a text of the header, however long.
        let said = error.to_string();
        let problem = format!("the header is no JSON of tensors: {}", bounded(&said, 300));
        reader.malformed(8 + offset_of(&error, &json), problem)
    })?;
    let tensors = place(reader, &json, data, header)?;
    let notes = holes(reader, data, &tensors);
    Ok(Parsed { layout: Layout::of(tensors, notes), digest: sha256(&[&prefix, &json]) })
}

/// Turns header entries into tensors, in file order, each within the file and none on another.
fn place(reader: &HeaderReader, json: &[u8], data: u64, header: Header) -> Result<Vec<Tensor>, ArtifactError> {
    let room = reader.size() - data;
    let mut seen: HashMap<&str, ()> = HashMap::new();
    for (name, _) in &header.0 {
        if seen.insert(name, ()).is_some() {
            return Err(reader.malformed(name_at(json, name), format!("two tensors are called {}", quoted(name))));
        }
    }
    drop(seen);

    let mut placed: Vec<(u64, Tensor)> = Vec::with_capacity(header.0.len());
    for (name, entry) in header.0 {
        let at = name_at(json, &name);
        let [begin, end] = entry.data_offsets;
        if begin > end || end > room {
            return Err(reader.malformed(
                at,
                format!(
                    "tensor {} lies at {begin} to {end} of the {room} bytes that the file has for data",
                    quoted(&name)
                ),
            ));
        }
        if let Some(bits) = dtype_bits(&entry.dtype) {
            let stated = entry
                .shape
                .0
                .iter()
                .try_fold(u128::from(bits), |product, &side| product.checked_mul(u128::from(side)))
                .filter(|bits| bits % 8 == 0)
                .map(|bits| bits / 8);
            if stated != Some(u128::from(end - begin)) {
                return Err(reader.malformed(
                    at,
                    format!(
                        "tensor {} has {} bytes, which is not what {} of shape {:?} takes",
                        quoted(&name),
                        end - begin,
                        quoted(&entry.dtype),
                        entry.shape.0
                    ),
                ));
            }
        }
        let (offset, length) = (data + begin, end - begin);
        let (name, dtype, shape) = (name.into_owned(), entry.dtype.into_owned(), entry.shape.0);
        placed.push((at, Tensor { name, dtype, shape, offset, length }));
    }

    placed.sort_by_key(|(_, tensor)| (tensor.offset, tensor.length));
    for pair in placed.windows(2) {
        let [(_, first), (at, second)] = pair else { continue };
        if second.offset < first.offset + first.length {
            return Err(reader.malformed(
                *at,
                format!("tensor {} begins within tensor {}", quoted(&second.name), quoted(&first.name)),
            ));
        }
    }
    Ok(placed.into_iter().map(|(_, tensor)| tensor).collect())
}

/// What of the data no tensor covers.
fn holes(reader: &HeaderReader, data: u64, tensors: &[Tensor]) -> Vec<String> {
    let (mut end, mut bytes, mut first) = (data, 0, None);
    let bounds = tensors.iter().map(|tensor| (tensor.offset, tensor.offset + tensor.length));
    for (start, next_end) in bounds.chain([(reader.size(), reader.size())]) {
        if start > end {
            bytes += start - end;
            first.get_or_insert(end);
        }
        end = next_end;
    }
    first
        .map(|first| {
            format!("at byte {first}: no tensor covers these bytes, {bytes} in all; loaders may refuse the file")
        })
        .into_iter()
        .collect()
}

/// Bits of an element; `None` for a dtype that this version does not know, whose offsets then stand alone.
fn dtype_bits(dtype: &str) -> Option<u32> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Where in the file a name stands, if it is a part of the header's bytes; one with escapes is a copy, and the
/// header's first byte must do.
fn name_at(json: &[u8], name: &str) -> u64 {
    let into = (name.as_ptr() as usize).wrapping_sub(json.as_ptr() as usize);
    if into < json.len() { 8 + into as u64 } else { 8 }
}

/// The byte of `json` at which serde_json stopped; it tells line and column.
fn offset_of(error: &serde_json::Error, json: &[u8]) -> u64 {
    let before: usize =
        json.split_inclusive(|&byte| byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    (before + error.column().saturating_sub(1)).min(json.len()) as u64
}

/// The entries in the order of the header; a plain map would hide a name that stands twice.
struct Header<'a>(Vec<(Cow<'a, str>, Entry<'a>)>);

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Shape,
    data_offsets: [u64; 2],
}

struct Shape(Vec<u64>);

/// A name that borrows from the header where it can; serde's own `Cow` always copies outside of derived structs.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Header<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header<'de>;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("an object with an entry for each tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else if entries.len() as u64 == TENSORS {
                        return Err(A::Error::custom(format!("more than {TENSORS} tensors")));
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sides;
        impl<'de> Visitor<'de> for Sides {
            type Value = Shape;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a list of sizes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut sides = Vec::new();
                while let Some(side) = list.next_element()? {
                    if sides.len() == DIMENSIONS {
                        return Err(A::Error::custom(format!("a shape of more than {DIMENSIONS} dimensions")));
                    }
                    sides.push(side);
                }
                Ok(Shape(sides))
            }
        }
        deserializer.deserialize_seq(Sides)
    }
}

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
