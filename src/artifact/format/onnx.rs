//! ONNX: a protobuf of graphs. Tensors stand in it, as raw bytes or in fields of numbers, or in files that it names.
//!
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>, <https://protobuf.dev/programming-guides/encoding/>. The
//! messages are walked field by field, those only in which there can be a tensor: initializers, attributes of nodes
//! (constants, the graphs of loops and branches), functions, training graphs. Tensors' data is passed over unread, so
//! that gigabytes within the file cost a seek each.
//!
//! The payload is what is stored: of packed fields of numbers the bytes of the numbers as they are encoded, of strings
//! those of all the strings, with the lengths between them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::header::{Cursor, HeaderReader};
use super::super::{ArtifactError, Layout, Tensor};
use super::{Parsed, TENSORS, quoted};

/// Messages within messages that are followed, as protobuf itself does.
const DEPTH: u32 = 100;

/// The most dimensions that are believed.
const DIMENSIONS: usize = 64;

/// The most files that a model may name.
const FILES: usize = 10_000;

/// What is longer than this, and no tensor's data, is passed over as that is: compiled graphs stand in attributes.
const LONG: u64 = 64 << 10;

/// What a model says of another file, which holds some of its tensors' data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// The file by its path from the model's folder, as the model has it: not to be trusted.
    pub location: String,
    pub tensors: Vec<ExternalTensor>,
}

/// A tensor whose data lies in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalTensor {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    /// First byte in the other file.
    pub offset: u64,
    /// Bytes in the other file; absent: all from there on.
    pub length: Option<u64>,
}

impl External {
    /// The layout of the file, if it has so many bytes.
    ///
    /// # Errors
    /// Where a tensor does not lie within it.
    pub fn layout(&self, size: u64) -> Result<Layout, String> {
        let mut tensors = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let ExternalTensor { name, dtype, shape, offset, length } = tensor.clone();
            let room = size.checked_sub(offset);
            let length =
                length.or(room).filter(|length| room.is_some_and(|room| *length <= room)).ok_or_else(|| {
                    let bytes = length.map_or(String::new(), |length| format!("{length} bytes "));
                    format!("tensor {} is said to be {bytes}at byte {offset} of a file of {size}", quoted(&name))
                })?;
            tensors.push(Tensor { name, dtype, shape, offset, length });
        }
        Ok(Layout::of(tensors, Vec::new()))
    }
}

/// Whether a file may be a model by its first bytes: protobuf has no others than those of its first fields, here the
/// version of the format and, in the order of numbers, another field of a model.
pub fn may_begin(head: &[u8]) -> bool {
    matches!(head, [0x08, 1..=0x40, 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42, ..])
}

/// Reads an ONNX model but for its tensors' data.
pub fn read(reader: &mut HeaderReader) -> Result<Parsed, ArtifactError> {
    let size = reader.size();
    let mut walk = Walk {
        cursor: Cursor::new(reader, 0..size),
        graph: false,
        count: 0,
        tensors: Vec::new(),
        external: BTreeMap::new(),
        odd: None,
    };
    walk.message(Message::Model, size, DEPTH)?;
    if !walk.graph {
        return Err(walk.cursor.reader.malformed(0, "no ONNX model: a protobuf without a graph"));
    }
    let Walk { cursor, tensors, external, odd, .. } = walk;
    let digest = cursor.digest();
    let notes = odd.map(|(count, first)| format!("{first}{}", and_others(count - 1)));
    let mut layout = Layout::of(tensors, notes.into_iter().collect());
    layout.external = external.into_iter().map(|(location, tensors)| External { location, tensors }).collect();
    Ok(Parsed { layout, digest })
}

fn and_others(count: u64) -> String {
    if count == 0 { String::new() } else { format!("; so are {count} others") }
}

/// The messages on the way to tensors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    Model,
    Training,
    Function,
    Graph,
    Node,
    Attribute,
    SparseTensor,
    Tensor,
}

impl Message {
    /// The message that a field of this one holds, if there can be a tensor in it.
    fn child(self, field: u64) -> Option<Message> {
        Some(match (self, field) {
            (Message::Model, 7) => Message::Graph,
            (Message::Model, 20) => Message::Training,
            (Message::Model, 25) => Message::Function,
            (Message::Training, 1 | 2) => Message::Graph,
            (Message::Function, 7) => Message::Node,
            (Message::Function, 11) => Message::Attribute,
            (Message::Graph, 1) => Message::Node,
            (Message::Graph, 5) => Message::Tensor,
            (Message::Graph, 15) => Message::SparseTensor,
            (Message::Node, 5) => Message::Attribute,
            (Message::Attribute, 5 | 10) => Message::Tensor,
            (Message::Attribute, 6 | 11) => Message::Graph,
            (Message::Attribute, 22 | 23) => Message::SparseTensor,
            (Message::SparseTensor, 1 | 2) => Message::Tensor,
            _ => return None,
        })
    }
}

/// A field of a message.
struct Field {
    /// Where it begins.
    at: u64,
    number: u64,
    value: Value,
}

enum Value {
    /// Passed already.
    Number(u64),
    /// So many bytes, which are next.
    Fixed(u64),
    /// These bytes, which are next: a message, a string, numbers one after the other.
    Bytes(Range<u64>),
}

struct Walk<'r, 'a> {
    cursor: Cursor<'r, 'a>,
    /// Whether there was a graph.
    graph: bool,
    /// Tensors in all, those in other files included.
    count: u64,
    tensors: Vec<Tensor>,
    external: BTreeMap<String, Vec<ExternalTensor>>,
    /// How many tensors are odd, and what is odd about the first.
    odd: Option<(u64, String)>,
}

/// A tensor as far as it was read.
#[derive(Default)]
struct Described {
    name: String,
    shape: Vec<u64>,
    kind: u64,
    outside: bool,
    raw: Option<Range<u64>>,
    /// Data in typed fields: the field, and the bytes.
    typed: Vec<(u64, Range<u64>)>,
    location: Option<String>,
    offset: Option<u64>,
    length: Option<u64>,
}

impl Walk<'_, '_> {
    /// Walks a message that ends at `end`.
    fn message(&mut self, message: Message, end: u64, depth: u32) -> Result<(), ArtifactError> {
        if depth == 0 {
            return Err(self.cursor.malformed(format!("messages nested more than {DEPTH} deep")));
        }
        while let Some(field) = self.field(end)? {
            match (message.child(field.number), field.value) {
                (Some(Message::Tensor), Value::Bytes(bytes)) => self.tensor(bytes)?,
                (Some(child), Value::Bytes(bytes)) => {
                    self.graph |= child == Message::Graph;
                    self.message(child, bytes.end, depth - 1)?;
                }
                (_, value) => self.pass(value)?,
            }
        }
        Ok(())
    }

    /// The next field of a message that ends at `end`.
    fn field(&mut self, end: u64) -> Result<Option<Field>, ArtifactError> {
        let at = self.cursor.at();
        if at >= end {
            return Ok(None);
        }
        let key = self.varint(end)?;
        let number = key >> 3;
        if number == 0 || number > (1 << 29) - 1 {
            return Err(self.cursor.reader.malformed(at, format!("no protobuf: a field of number {number}")));
        }
        let value = match key & 7 {
            0 => Value::Number(self.varint(end)?),
            1 => Value::Fixed(8),
            5 => Value::Fixed(4),
            2 => {
                let length = self.varint(end)?;
                let start = self.cursor.at();
                let bytes = start.checked_add(length).map(|end| start..end).filter(|bytes| bytes.end <= end);
                let outside = || {
                    let problem = format!("a field of {length} bytes in a message that ends at byte {end}");
                    self.cursor.reader.malformed(at, problem)
                };
                Value::Bytes(bytes.ok_or_else(outside)?)
            }
            kind => return Err(self.cursor.reader.malformed(at, format!("no protobuf: a field of wire type {kind}"))),
        };
        if let Value::Fixed(bytes) = value
            && bytes > end - self.cursor.at()
        {
            return Err(self
                .cursor
                .reader
                .malformed(at, format!("a message that ends within its last field, at {end}")));
        }
        Ok(Some(Field { at, number, value }))
    }

    /// A number of seven bits a byte, the lowest first.
    fn varint(&mut self, end: u64) -> Result<u64, ArtifactError> {
        let (at, mut number) = (self.cursor.at(), 0u64);
        for shift in (0..64).step_by(7) {
            if self.cursor.at() >= end {
                return Err(self.cursor.reader.malformed(at, format!("a message that ends within a number, at {end}")));
            }
            let byte = self.cursor.u8()?;
            // Bits past the 64th are dropped, as protobuf does.
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.cursor.reader.malformed(at, "no protobuf: a number of more than ten bytes"))
    }

    fn pass(&mut self, value: Value) -> Result<(), ArtifactError> {
        match value {
            Value::Number(_) => Ok(()),
            Value::Fixed(bytes) => self.cursor.skip(bytes),
            Value::Bytes(Range { start, end }) if end - start > LONG => self.cursor.jump(end - start),
            Value::Bytes(Range { start, end }) => self.cursor.skip(end - start),
        }
    }

    fn tensor(&mut self, bytes: Range<u64>) -> Result<(), ArtifactError> {
        let mut tensor = Described::default();
        while let Some(Field { at, number, value }) = self.field(bytes.end)? {
            match (number, value) {
                (1, Value::Number(side)) => self.side(&mut tensor, side)?,
                (1, Value::Bytes(sides)) => {
                    while self.cursor.at() < sides.end {
                        let side = self.varint(sides.end)?;
                        self.side(&mut tensor, side)?;
                    }
                }
                (2, Value::Number(kind)) => tensor.kind = kind,
                (8, Value::Bytes(name)) => tensor.name = self.cursor.text(name.end - name.start)?,
                (9, Value::Bytes(raw)) => {
                    self.cursor.jump(raw.end - raw.start)?;
                    tensor.raw = Some(raw);
                }
                (13, Value::Bytes(entry)) => self.entry(&mut tensor, entry.end)?,
                (14, Value::Number(place)) => tensor.outside = place == 1,
                (4..=7 | 10 | 11, value) => {
                    // Numbers one a field are followed from the first to the last, with the keys between them.
                    let data = match value {
                        Value::Bytes(bytes) => {
                            self.cursor.jump(bytes.end - bytes.start)?;
                            bytes
                        }
                        Value::Fixed(bytes) => {
                            let start = self.cursor.at();
                            self.cursor.jump(bytes)?;
                            start..start + bytes
                        }
                        Value::Number(_) => at + 1..self.cursor.at(),
                    };
                    match tensor.typed.last_mut() {
                        Some((field, before)) if *field == number && before.end == at => before.end = data.end,
                        _ => {
                            self.count_one()?;
                            tensor.typed.push((number, data));
                        }
                    }
                }
                (_, value) => self.pass(value)?,
            }
        }
        self.take(bytes.start, tensor)
    }

    fn side(&mut self, tensor: &mut Described, side: u64) -> Result<(), ArtifactError> {
        if tensor.shape.len() == DIMENSIONS || side > i64::MAX as u64 {
            let problem = if side > i64::MAX as u64 { "a negative side" } else { "more dimensions than are believed" };
            return Err(self.cursor.malformed(format!("tensor {} has {problem}", quoted(&tensor.name))));
        }
        tensor.shape.push(side);
        Ok(())
    }

    /// A pair of strings that says something about where the data lies.
    fn entry(&mut self, tensor: &mut Described, end: u64) -> Result<(), ArtifactError> {
        let (mut key, mut text, mut text_at) = (String::new(), String::new(), self.cursor.at());
        while let Some(field) = self.field(end)? {
            match (field.number, field.value) {
                (1, Value::Bytes(bytes)) => key = self.cursor.text(bytes.end - bytes.start)?,
                (2, Value::Bytes(bytes)) => {
                    text_at = bytes.start;
                    text = self.cursor.text(bytes.end - bytes.start)?;
                }
                (_, value) => self.pass(value)?,
            }
        }
        let number = || {
            let problem = || format!("the {key} of external data is {}, which is no number of bytes", quoted(&text));
            text.trim().parse().map(Some).map_err(|_| self.cursor.reader.malformed(text_at, problem()))
        };
        match key.as_str() {
            "offset" => tensor.offset = number()?,
            "length" => tensor.length = number()?,
            "location" => tensor.location = Some(text),
            // A checksum, and what writers of models put there for themselves.
            _ => {}
        }
        Ok(())
    }

    fn count_one(&mut self) -> Result<(), ArtifactError> {
        self.count += 1;
        if self.count > TENSORS {
            return Err(self.cursor.malformed(format!("more than {TENSORS} tensors are not believed")));
        }
        Ok(())
    }

    /// Takes in a tensor whose description stands at `at`.
    fn take(&mut self, at: u64, tensor: Described) -> Result<(), ArtifactError> {
        self.count_one()?;
        let kind = kind_of(tensor.kind);
        let stored = kind.and_then(|(_, bits)| bits).and_then(|bits| bytes_of(bits, &tensor.shape));
        let dtype = kind.map_or_else(|| format!("type {}", tensor.kind as i64), |(name, _)| name.to_owned());
        let Described { name, shape, outside, raw, typed, location, offset, length, .. } = tensor;
        if outside {
            let Some(location) = location else {
                let problem = format!("tensor {} lies in another file, and it is not said in which", quoted(&name));
                return Err(self.cursor.reader.malformed(at, problem));
            };
            if let (Some(length), Some(stored)) = (length, stored)
                && length != stored
            {
                self.odd(&name, length, stored);
            }
            if self.external.len() == FILES && !self.external.contains_key(&location) {
                return Err(self
                    .cursor
                    .reader
                    .malformed(at, format!("more than {FILES} other files are not believed")));
            }
            let length = length.or(stored);
            let tensor = ExternalTensor { name, dtype, shape, offset: offset.unwrap_or(0), length };
            self.external.entry(location).or_default().push(tensor);
            return Ok(());
        }
        if let (Some(raw), Some(stored)) = (&raw, stored)
            && raw.end - raw.start != stored
        {
            self.odd(&name, raw.end - raw.start, stored);
        }
        // One in well-formed models; none where the tensor is empty.
        let mut pieces: Vec<Range<u64>> = raw.into_iter().chain(typed.into_iter().map(|(_, bytes)| bytes)).collect();
        if pieces.is_empty() {
            if let Some(stored) = stored.filter(|stored| *stored > 0) {
                self.odd(&name, 0, stored);
            }
            pieces.push(at..at);
        }
        for piece in pieces {
            self.tensors.push(Tensor {
                name: name.clone(),
                dtype: dtype.clone(),
                shape: shape.clone(),
                offset: piece.start,
                length: piece.end - piece.start,
            });
        }
        Ok(())
    }

    fn odd(&mut self, name: &str, length: u64, stored: u64) {
        let first = || format!("tensor {} has {length} bytes, where type and shape take {stored}", quoted(name));
        self.odd.get_or_insert_with(|| (0, first())).0 += 1;
    }
}

/// Bytes of a tensor without gaps; those of less than a byte an element are packed.
fn bytes_of(bits: u64, shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(bits, |bits, &side| bits.checked_mul(side)).map(|bits| bits.div_ceil(8))
}

/// The types of `TensorProto.DataType`, and bits of an element where they all have the same.
fn kind_of(number: u64) -> Option<(&'static str, Option<u64>)> {
    let (name, bits) = match number {
        1 => ("FLOAT", 32),
        2 => ("UINT8", 8),
        3 => ("INT8", 8),
        4 => ("UINT16", 16),
        5 => ("INT16", 16),
        6 => ("INT32", 32),
        7 => ("INT64", 64),
        8 => return Some(("STRING", None)),
        9 => ("BOOL", 8),
        10 => ("FLOAT16", 16),
        11 => ("DOUBLE", 64),
        12 => ("UINT32", 32),
        13 => ("UINT64", 64),
        14 => ("COMPLEX64", 64),
        15 => ("COMPLEX128", 128),
        16 => ("BFLOAT16", 16),
        17 => ("FLOAT8E4M3FN", 8),
        18 => ("FLOAT8E4M3FNUZ", 8),
        19 => ("FLOAT8E5M2", 8),
        20 => ("FLOAT8E5M2FNUZ", 8),
        21 => ("UINT4", 4),
        22 => ("INT4", 4),
        23 => ("FLOAT4E2M1", 4),
        24 => ("FLOAT8E8M0", 8),
        25 => ("UINT2", 2),
        26 => ("INT2", 2),
        _ => return None,
    };
    Some((name, Some(bits)))
}
