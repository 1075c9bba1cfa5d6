//! NumPy's files: an array behind a header (`.npy`, versions 1 to 3), and zip files of such (`.npz`).
//!
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. The header is a Python literal, which is
//! parsed and not evaluated ([`literal`]). Arrays of objects are a pickle, which is never read: how many bytes of it are
//! data is not known. An entry that is compressed has its array nowhere in the file.

mod literal;

use std::ops::Range;

use super::super::header::{Cursor, HeaderReader, sha256};
use super::super::{ArtifactError, Layout, Tensor};
use super::zip;
use super::{Parsed, bounded, quoted};
use literal::Value;

/// How every array begins.
pub const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// Bytes up to the header at most: magic number, version, length.
const PREFIX: u64 = 12;

/// The longest header that is read. NumPy itself believes one of 10,000 bytes.
const LONGEST: u64 = 1 << 20;

/// The most dimensions that are believed; NumPy has 64.
const DIMENSIONS: usize = 64;

/// Dtypes within dtypes that are followed.
const DEPTH: u32 = 16;

/// The most characters of a dtype that are kept: one of fields names them all.
const DTYPE: usize = 100;

/// Reads the header of a `.npy` file, whose array goes by this name.
pub fn read(reader: &mut HeaderReader, name: String) -> Result<Parsed, ArtifactError> {
    let size = reader.size();
    let (tensor, digest) = array(reader, 0..size, name)?;
    let end = tensor.offset + tensor.length;
    let notes =
        (end < size).then(|| format!("at byte {end}: {} bytes follow the array; they are no payload", size - end));
    Ok(Parsed { layout: Layout::of(vec![tensor], notes.into_iter().collect()), digest })
}

/// Reads a zip file of arrays; `None` if it is one of something else. Arrays go by their entries' names without `.npy`,
/// as in NumPy; entries of other kinds are none.
pub fn read_zip(reader: &mut HeaderReader) -> Result<Option<Parsed>, ArtifactError> {
    let directory = zip::directory(reader, |name| name.ends_with(".npy"))?;
    if directory.entries.is_empty() {
        return Ok(None);
    }
    zip::all_differ(reader, &directory.entries)?;
    let mut places = Vec::new();
    for entry in &directory.entries {
        places.push((entry, zip::place(reader, entry, directory.offset)?));
    }
    zip::none_overlap(reader, &mut places)?;
    let mut tensors = Vec::new();
    for (entry, bytes) in places {
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).to_owned();
        tensors.push(array(reader, bytes, name)?.0);
    }
    Ok(Some(Parsed { layout: Layout::of(tensors, Vec::new()), digest: directory.digest }))
}

/// The array in these bytes of the file, and its header's digest.
fn array(reader: &mut HeaderReader, bytes: Range<u64>, name: String) -> Result<(Tensor, String), ArtifactError> {
    let Range { start: begin, end } = bytes;
    // No more than the header is read: of many small arrays each would bring in a page of the next.
    let mut cursor = Cursor::new(reader, begin..end.min(begin + PREFIX));
    let mut prefix = [0; PREFIX as usize];
    cursor.bytes(&mut prefix[..8])?;
    if !prefix.starts_with(&MAGIC) {
        return Err(reader.malformed(begin, format!("array {}: no .npy by its first bytes", quoted(&name))));
    }
    let [.., major, minor, _, _, _, _] = prefix;
    let bytes = match major {
        1 => 2,
        2 | 3 => 4,
        _ => {
            let problem = format!("array {}: .npy version {major}.{minor}; 1 to 3 are read here", quoted(&name));
            return Err(reader.malformed(begin + 6, problem));
        }
    };
    cursor.bytes(&mut prefix[8..8 + bytes])?;
    let at = cursor.at();
    let length = u64::from(u32::from_le_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]));
    if length > LONGEST || length > end - at {
        let problem =
            format!("a header of {length} bytes; {} are left, and more than {LONGEST} are not believed", end - at);
        return Err(reader.malformed(begin + 8, format!("array {}: {problem}", quoted(&name))));
    }
    // Allocated by a length that lies within the file and within the bound.
    let mut header = vec![0; length as usize];
    reader.read_at(at, &mut header)?;
    let (data, digest) = (at + length, sha256(&[&prefix[..8 + bytes], &header]));

    let malformed = |problem: String| reader.malformed(at, format!("array {}: {problem}", quoted(&name)));
    // Before version 3 Latin-1.
    let header = match major {
        3 => String::from_utf8_lossy(&header).into_owned(),
        _ => header.into_iter().map(char::from).collect(),
    };
    let (dtype, descr, shape) = fields(&header).map_err(malformed)?;
    let bytes = match item_bytes(&descr, DEPTH).map_err(malformed)? {
        Item::Bytes(bytes) => bytes,
        Item::Objects => {
            return Err(malformed("its elements are Python objects, a pickle, which is never read".into()));
        }
    };
    let length = shape
        .iter()
        .try_fold(bytes, |length, &side| length.checked_mul(side))
        .ok_or_else(|| malformed(format!("{bytes} bytes an element have no size for shape {shape:?}")))?;
    if length > end - data {
        let problem = format!("takes {length} bytes, but {} are left of its {} in the file", end - data, end - begin);
        return Err(reader.malformed(at, format!("array {} {problem}", quoted(&name))));
    }
    Ok((Tensor { name, dtype, shape, offset: data, length }, digest))
}

/// What a header says: the dtype as it stands there, the same parsed, and the shape.
fn fields(header: &str) -> Result<(String, Value, Vec<u64>), String> {
    let pairs = literal::dict(header)?;
    let find = |key: &str| {
        let mut found = pairs.iter().filter(|(name, _, _)| name == key);
        match (found.next(), found.next()) {
            (Some((_, value, text)), None) => Ok((value, *text)),
            (None, _) => Err(format!("the header has no {key}")),
            _ => Err(format!("the header has two of {key}")),
        }
    };
    let (Value::Truth(_), _) = find("fortran_order")? else { return Err("fortran_order is not True or False".into()) };
    let (Value::Tuple(sides), _) = find("shape")? else { return Err("the shape is no tuple".into()) };
    if sides.len() > DIMENSIONS {
        return Err(format!("{} dimensions", sides.len()));
    }
    let side = |side: &Value| match side {
        Value::Number(side) => Ok(*side),
        _ => Err("a side of the shape is no number".to_owned()),
    };
    let shape = sides.iter().map(side).collect::<Result<_, _>>()?;
    let (descr, text) = find("descr")?;
    let dtype = if let Value::Text(word) = descr { word } else { text };
    Ok((bounded(dtype, DTYPE).into_owned(), descr.clone(), shape))
}

/// What an element takes.
enum Item {
    Bytes(u64),
    /// References into a pickle behind the header.
    Objects,
}

/// What an element of this dtype takes: a word, a list of fields `(name, dtype)` or `(name, dtype, shape)`, or a tuple
/// `(dtype, shape)` of an array in each element.
fn item_bytes(descr: &Value, depth: u32) -> Result<Item, String> {
    if depth == 0 {
        return Err(format!("dtypes nested more than {DEPTH} deep"));
    }
    match descr {
        Value::Text(word) => word_bytes(word).ok_or_else(|| format!("the dtype {} is not known", quoted(word))),
        Value::Tuple(parts) => match parts.as_slice() {
            [base, shape] => repeated(item_bytes(base, depth - 1)?, shape),
            _ => Err("a dtype that is a tuple, but not of a dtype and a shape".into()),
        },
        Value::List(fields) => {
            let mut sum = Item::Bytes(0);
            for field in fields {
                // A name is a word, or a title and a name.
                let parts = if let Value::Tuple(parts) = field { parts.as_slice() } else { &[] };
                let item = match parts {
                    [Value::Text(_) | Value::Tuple(_), descr] => item_bytes(descr, depth - 1)?,
                    [Value::Text(_) | Value::Tuple(_), descr, shape] => repeated(item_bytes(descr, depth - 1)?, shape)?,
                    _ => return Err("a field of the dtype is no tuple of name and dtype".into()),
                };
                sum = match (sum, item) {
                    (Item::Bytes(sum), Item::Bytes(bytes)) => Item::Bytes(sum.checked_add(bytes).ok_or(TOO_LARGE)?),
                    _ => Item::Objects,
                };
            }
            Ok(sum)
        }
        _ => Err("the dtype is no word and no list of fields".into()),
    }
}

const TOO_LARGE: &str = "an element is too large for any file";

/// An array of elements in an element; a shape is a number or a tuple of some.
fn repeated(item: Item, shape: &Value) -> Result<Item, String> {
    let sides = if let Value::Tuple(sides) = shape { sides } else { std::slice::from_ref(shape) };
    let mut bytes = if let Item::Bytes(bytes) = item { bytes } else { return Ok(Item::Objects) };
    for side in sides {
        let Value::Number(side) = side else { return Err("a shape within the dtype is not of numbers".into()) };
        bytes = bytes.checked_mul(*side).ok_or(TOO_LARGE)?;
    }
    Ok(Item::Bytes(bytes))
}

/// What an element of a plain dtype takes: a byte order, or none; a letter; and its bytes, in strings of text its
/// characters, or none for an object. Times have their unit behind (`<M8[ns]`).
fn word_bytes(word: &str) -> Option<Item> {
    let word = word.strip_prefix(['<', '>', '|', '=']).unwrap_or(word);
    let mut characters = word.chars();
    let (kind, rest) = (characters.next()?, characters.as_str());
    let digits = rest.split_once('[').filter(|_| matches!(kind, 'M' | 'm')).map_or(rest, |(digits, _)| digits);
    let number = || digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten();
    match kind {
        'O' => Some(Item::Objects),
        'b' | 'i' | 'u' | 'f' | 'c' | 'S' | 'a' | 'V' | 'M' | 'm' => number().map(Item::Bytes),
        'U' => number()?.checked_mul(4).map(Item::Bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn bytes(descr: &str) -> Result<u64, String> {
        let (_, descr, _) = fields(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (), }}"))?;
        match item_bytes(&descr, DEPTH)? {
            Item::Bytes(bytes) => Ok(bytes),
            Item::Objects => Err("objects".into()),
        }
    }

    #[test]
    fn elements_have_the_size_that_numpy_gives_them() {
        for (descr, expected) in [
            ("'<f4'", 4),
            ("'>f8'", 8),
            ("'|b1'", 1),
            ("'f2'", 2),
            ("'<c16'", 16),
            ("'<U10'", 40),
            ("'|S5'", 5),
            ("'|V2'", 2),
            ("'<M8[ns]'", 8),
            ("'<m8[25s]'", 8),
            ("[('a', '<f4'), ('', '|V4'), ('b', '<i8')]", 16),
            ("[('a', '<f4', (3, 2)), (('title', 'b'), '|u1', (2,))]", 26),
            ("[('a', [('x', '<f4'), ('y', '<f4')], (5,)), ('b', '|u1')]", 41),
            ("('<f4', (2, 3))", 24),
            ("[]", 0),
        ] {
            assert_eq!(bytes(descr), Ok(expected), "{descr}");
        }
        for descr in ["'|O'", "[('a', '<f4'), ('b', '|O')]", "[('a', 'O', (3,)), ('b', '<f4')]"] {
            assert_eq!(bytes(descr), Err("objects".into()), "{descr}");
        }
        for descr in ["'<x4'", "''", "'<f'", "'f-4'", "'<f4[ns]'", "3", "None", "[3]", "[('a',)]", "('<f4',)"] {
            assert!(bytes(descr).is_err(), "{descr}");
        }
        assert!(bytes("[('a', '|V9223372036854775807'), ('b', '|V9223372036854775807'), ('c', '|V2')]").is_err());
        assert!(bytes(&format!("{}'<f4'{}", "(".repeat(60), ", 1)".repeat(60))).is_err());
    }

    #[test]
    fn headers_say_all_three_and_nothing_twice() {
        let of = |header: &str| fields(header).map(|(dtype, _, shape)| (dtype, shape));
        let good = "{'descr': '<f4', 'fortran_order': True, 'shape': (2L, 3,), }   \n";
        assert_eq!(of(good), Ok(("<f4".into(), vec![2, 3])));
        assert_eq!(of("{\"shape\": (), 'fortran_order': False, 'descr': [('a', '<f4')]}").unwrap().0, "[('a', '<f4')]");
        for bad in [
            "",
            "{}",
            "{'descr': '<f4', 'fortran_order': True}",
            "{'descr': '<f4', 'fortran_order': 1, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': 3}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (-3,)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': ('3',)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (3,), 'shape': (4,)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (3,)} 1",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_header_is_too_strange(header in "[{}\\[\\]()',:0-9LTrueFalsdscnh_o<|f\\\\ -]{0,60}") {
            let _ = fields(&header);
        }
    }
}
