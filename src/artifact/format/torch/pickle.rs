//! What number type each storage of a PyTorch file has, as its pickle says, without running the pickle.
//!
//! A pickle is a program for a stack machine. Here its instructions are passed over one after the other, and only the
//! few values are followed of which a reference to a storage consists: `("storage", torch.FloatStorage, "0", "cpu",
//! 1000)`. Nothing is looked up, built or called. An instruction that is not known ends the reading, and what was not
//! read is unknown; what was read is believed only where it agrees with the size of the storage.
//!
//! Instructions: CPython, Lib/pickletools.py. References: PyTorch, torch/serialization.py, `persistent_id`.

use std::collections::HashMap;

/// The most values that the stack or the memo may hold; a model of 100,000 tensors stays far below.
const VALUES: usize = 1 << 20;

/// A value, as far as it is followed.
#[derive(Clone, Copy)]
enum Value<'a> {
    Mark,
    Text(&'a str),
    Number(u64),
    Class(Kind),
    Storage { key: &'a str, kind: Kind, elements: u64 },
    Other,
}

/// A number type: PyTorch's word and bytes of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub dtype: &'static str,
    bytes: u64,
}

/// What is said of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    pub kind: Kind,
    elements: u64,
}

impl Storage {
    /// Bytes that it takes.
    pub fn bytes(&self) -> Option<u64> {
        self.elements.checked_mul(self.kind.bytes)
    }
}

/// The storages that a pickle refers to, by key.
pub fn storages(pickle: &[u8]) -> HashMap<String, Storage> {
    let mut machine = Machine { rest: pickle, stack: Vec::new(), memo: HashMap::new(), found: HashMap::new() };
    while machine.stack.len() < VALUES && machine.memo.len() < VALUES && machine.step().is_some() {}
    machine.found
}

struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Value<'a>>,
    memo: HashMap<u32, Value<'a>>,
    found: HashMap<String, Storage>,
}

impl<'a> Machine<'a> {
    /// Passes over one instruction; `None` at the end, or where it is not known.
    fn step(&mut self) -> Option<()> {
        let [instruction] = self.take()?;
        match instruction {
            // PROTO, FRAME.
            0x80 => drop(self.bytes(1)?),
            0x95 => drop(self.bytes(8)?),
            b'(' => self.stack.push(Value::Mark),
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
            0x8d => self.text(8)?,
            b'K' => self.number(1)?,
            b'M' => self.number(2)?,
            b'J' => self.number(4)?,
            // LONG1: a length, then as many bytes. A negative or larger number comes out wrong, and fits no storage.
            0x8a => {
                let [length] = self.take()?;
                let bytes = self.bytes(length.into())?;
                let number = bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
                self.stack.push(Value::Number(number));
            }
            b'G' => self.other(8)?,
            // Bytes and byte strings: a length, then as many bytes.
            b'B' | b'T' => self.counted(4)?,
            b'C' | b'U' => self.counted(1)?,
            0x8e => self.counted(8)?,
            // NONE, true, false, the empty containers.
            b'N' | 0x88 | 0x89 | b'}' | b']' | b')' | 0x8f => self.stack.push(Value::Other),
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.stack.push(class(module, name));
            }
            // STACK_GLOBAL.
            0x93 => {
                let (name, module) = (self.stack.pop()?, self.stack.pop()?);
                self.stack.push(match (module, name) {
                    (Value::Text(module), Value::Text(name)) => class(module, name),
                    _ => Value::Other,
                });
            }
            b'q' => self.put(1)?,
            b'r' => self.put(4)?,
            // MEMOIZE.
            0x94 => {
                let index = u32::try_from(self.memo.len()).ok()?;
                self.memo.insert(index, *self.stack.last()?);
            }
            b'h' => self.get(1)?,
            b'j' => self.get(4)?,
            b't' => self.tuple()?,
            0x85 => self.replace(1)?,
            0x86 | b'R' | 0x81 => self.replace(2)?,
            0x87 => self.replace(3)?,
            // BUILD, APPEND and SETITEM change what lies below.
            b'b' | b'a' | b'0' => self.drop(1)?,
            b's' => self.drop(2)?,
            // SETITEMS, APPENDS, ADDITEMS, POP_MARK.
            b'u' | b'e' | 0x90 | b'1' => drop(self.pop_mark()?),
            b'Q' => {
                if let Value::Storage { key, kind, elements } = self.stack.pop()? {
                    self.found.insert(key.to_owned(), Storage { kind, elements });
                }
                self.stack.push(Value::Other);
            }
            // STOP, and what torch.save does not write.
            _ => return None,
        }
        Some(())
    }

    fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(count).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N as u64)?.try_into().ok()
    }

    /// A little-endian number of at most eight bytes.
    fn integer(&mut self, width: u64) -> Option<u64> {
        let bytes = self.bytes(width).filter(|bytes| bytes.len() <= 8)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn line(&mut self) -> Option<&'a str> {
        let length = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = self.bytes(length as u64)?;
        self.bytes(1)?;
        std::str::from_utf8(line).ok()
    }

    fn text(&mut self, width: u64) -> Option<()> {
        let length = self.integer(width)?;
        let text = std::str::from_utf8(self.bytes(length)?).map_or(Value::Other, Value::Text);
        self.stack.push(text);
        Some(())
    }

    fn number(&mut self, width: u64) -> Option<()> {
        let number = self.integer(width)?;
        self.stack.push(Value::Number(number));
        Some(())
    }

    fn other(&mut self, bytes: u64) -> Option<()> {
        self.bytes(bytes)?;
        self.stack.push(Value::Other);
        Some(())
    }

    fn counted(&mut self, width: u64) -> Option<()> {
        let length = self.integer(width)?;
        self.other(length)
    }

    /// Only what can be a part of a reference is kept: anything else comes back as `Other` without being kept.
    fn put(&mut self, width: u64) -> Option<()> {
        let index = self.integer(width)? as u32;
        match *self.stack.last()? {
            Value::Mark | Value::Other => self.memo.remove(&index),
            value => self.memo.insert(index, value),
        };
        Some(())
    }

    fn get(&mut self, width: u64) -> Option<()> {
        let index = self.integer(width)? as u32;
        self.stack.push(self.memo.get(&index).copied().unwrap_or(Value::Other));
        Some(())
    }

    fn drop(&mut self, count: usize) -> Option<()> {
        let left = self.stack.len().checked_sub(count)?;
        self.stack.truncate(left);
        Some(())
    }

    fn replace(&mut self, count: usize) -> Option<()> {
        self.drop(count)?;
        self.stack.push(Value::Other);
        Some(())
    }

    /// Takes everything above the last mark, and the mark.
    fn pop_mark(&mut self) -> Option<Vec<Value<'a>>> {
        let mark = self.stack.iter().rposition(|value| matches!(value, Value::Mark))?;
        let above = self.stack.split_off(mark + 1);
        self.stack.pop();
        Some(above)
    }

    fn tuple(&mut self) -> Option<()> {
        let tuple = match self.pop_mark()?[..] {
            [Value::Text("storage"), Value::Class(kind), Value::Text(key), Value::Text(_), Value::Number(elements)] => {
                Value::Storage { key, kind, elements }
            }
            _ => Value::Other,
        };
        self.stack.push(tuple);
        Some(())
    }
}

/// The number type that a storage's class stands for. An `UntypedStorage` does not say.
fn class<'a>(module: &str, name: &str) -> Value<'a> {
    let (dtype, bytes) = match (module, name) {
        ("torch", "FloatStorage") => ("float32", 4),
        ("torch", "HalfStorage") => ("float16", 2),
        ("torch", "BFloat16Storage") => ("bfloat16", 2),
        ("torch", "DoubleStorage") => ("float64", 8),
        ("torch", "LongStorage") => ("int64", 8),
        ("torch", "IntStorage") => ("int32", 4),
        ("torch", "ShortStorage") => ("int16", 2),
        ("torch", "CharStorage") => ("int8", 1),
        ("torch", "ByteStorage") => ("uint8", 1),
        ("torch", "BoolStorage") => ("bool", 1),
        ("torch", "ComplexFloatStorage") => ("complex64", 8),
        ("torch", "ComplexDoubleStorage") => ("complex128", 16),
        _ => return Value::Other,
    };
    Value::Class(Kind { dtype, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `("storage", torch.FloatStorage, "0", "cpu", 1000)` as a reference, as protocol 2 writes it.
    const REFERENCE: &[u8] =
        b"\x80\x02}q\x00((X\x07\x00\x00\x00storageq\x01ctorch\nFloatStorage\nq\x02X\x01\x00\x00\x000q\x03X\x03\x00\x00\x00cpuq\x04M\xe8\x03tq\x05Q.";

    #[test]
    fn a_reference_is_read() {
        let found = storages(REFERENCE);
        assert_eq!(found.len(), 1);
        assert_eq!(found["0"].kind.dtype, "float32");
        assert_eq!(found["0"].bytes(), Some(4000));
    }

    #[test]
    fn the_memo_is_followed() {
        let second = b"((h\x01h\x02X\x01\x00\x00\x001h\x04K\x07tQ.";
        let found = storages(&[&REFERENCE[..REFERENCE.len() - 1], second].concat());
        assert_eq!(found["1"].bytes(), Some(28));
    }

    #[test]
    fn calls_are_passed_over() {
        // os.system("true"), then a reference.
        let call = b"cos\nsystem\n(X\x04\x00\x00\x00truetR";
        assert_eq!(storages(&[call, REFERENCE].concat()).len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            storages(&bytes);
        }

        #[test]
        fn damage_is_survived(at in 0..REFERENCE.len(), byte in any::<u8>()) {
            let mut bytes = REFERENCE.to_vec();
            bytes[at] = byte;
            prop_assert!(storages(&bytes).len() <= 1);
        }
    }
}
