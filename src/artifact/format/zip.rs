//! Zip files: the entries of the central directory, and where the bytes of those that are stored as they are lie.
//!
//! PKWARE APPNOTE 6.3.10, sections 4.3 and 4.5.3. Read here by hand, not by a library of archives: the usual one (zip
//! 9.8) reserves its table by the number of entries that the file states, which ends the process on a false one, and an
//! offset in each error is wanted.

use std::collections::HashMap;
use std::ops::Range;

use super::super::ArtifactError;
use super::super::header::{Cursor, HeaderReader};
use super::{TENSORS, quoted};

const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;

const END_BYTES: u64 = 22;
const LOCATOR_64_BYTES: u64 = 20;
const CENTRAL_BYTES: u64 = 46;
const LOCAL_BYTES: u64 = 30;

/// A 16- or 32-bit field that says: see the zip64 one.
const SEE_64: (u16, u32) = (u16::MAX, u32::MAX);

/// A central directory.
pub struct Directory {
    /// Where it stands, behind all that the entries hold.
    pub offset: u64,
    pub entries: Vec<Entry>,
    /// SHA-256 of it as it stands in the file.
    pub digest: String,
}

/// The central directory's place.
struct Place {
    offset: u64,
    bytes: u64,
    entries: u64,
}

/// An entry of the central directory.
pub struct Entry {
    /// Where its record stands in the central directory.
    pub at: u64,
    pub name: String,
    flags: u16,
    method: u16,
    stored: u64,
    original: u64,
    local: u64,
}

/// Reads the central directory of a zip file; of its entries those are kept that `keep` wants.
pub fn directory(reader: &mut HeaderReader, keep: impl Fn(&str) -> bool) -> Result<Directory, ArtifactError> {
    let place = find(reader)?;
    let mut cursor = Cursor::new(reader, place.offset..place.offset + place.bytes);
    let mut entries = Vec::new();
    // Not reserved by the count: each record is read before there is one more.
    for _ in 0..place.entries {
        let entry = record(&mut cursor)?;
        if keep(&entry.name) {
            entries.push(entry);
        }
    }
    Ok(Directory { offset: place.offset, entries, digest: cursor.digest() })
}

/// An error where two of these entries have one name.
pub fn all_differ<'a>(
    reader: &HeaderReader,
    entries: impl IntoIterator<Item = &'a Entry>,
) -> Result<(), ArtifactError> {
    let mut names = HashMap::new();
    for entry in entries {
        if names.insert(entry.name.as_str(), ()).is_some() {
            return Err(reader.malformed(entry.at, format!("two entries are called {}", quoted(&entry.name))));
        }
    }
    Ok(())
}

/// An error where the bytes of two entries lie across each other; each comes with its bytes.
pub fn none_overlap(reader: &HeaderReader, entries: &mut [(&Entry, Range<u64>)]) -> Result<(), ArtifactError> {
    entries.sort_by_key(|(_, bytes)| (bytes.start, bytes.end));
    for pair in entries.windows(2) {
        let [(first, before), (second, bytes)] = pair else { continue };
        if bytes.start < before.end {
            return Err(reader.malformed(
                second.at,
                format!("entry {} begins within entry {}", quoted(&second.name), quoted(&first.name)),
            ));
        }
    }
    Ok(())
}

/// Finds the central directory from the file's end.
fn find(reader: &mut HeaderReader) -> Result<Place, ArtifactError> {
    let size = reader.size();
    let at = find_end(reader)?;
    let mut cursor = Cursor::new(reader, at..size);
    cursor.skip(4)?;
    let (disk, directory_disk) = (cursor.u16()?, cursor.u16()?);
    let (_, entries) = (cursor.u16()?, cursor.u16()?);
    let (bytes, offset) = (cursor.u32()?, cursor.u32()?);
    let (mut end, mut directory) = (at, Place { offset: offset.into(), bytes: bytes.into(), entries: entries.into() });

    if (entries == SEE_64.0 || bytes == SEE_64.1 || offset == SEE_64.1) && at >= LOCATOR_64_BYTES {
        let locator = at - LOCATOR_64_BYTES;
        let mut cursor = Cursor::new(reader, locator..at);
        if cursor.u32()? == LOCATOR_64 {
            cursor.skip(4)?;
            let record = cursor.u64()?;
            let mut cursor = Cursor::new(reader, record..locator);
            if cursor.u32()? != END_64 {
                return Err(reader.malformed(record, "no zip64 end record where its locator says"));
            }
            // Its size, versions, two disk numbers, entries on this disk.
            cursor.skip(8 + 2 + 2 + 4 + 4 + 8)?;
            directory = Place { entries: cursor.u64()?, bytes: cursor.u64()?, offset: cursor.u64()? };
            end = record;
        }
    }
    if disk != directory_disk {
        return Err(reader.malformed(at + 4, "a zip file in several parts"));
    }
    if directory.offset.checked_add(directory.bytes).is_none_or(|after| after > end) {
        return Err(reader.malformed(
            at,
            format!(
                "a central directory of {} bytes at byte {}, which is not in the file before its end record",
                directory.bytes, directory.offset
            ),
        ));
    }
    if directory.entries > directory.bytes / CENTRAL_BYTES {
        return Err(reader.malformed(
            at,
            format!(
                "{} entries are more than a central directory of {} bytes holds",
                directory.entries, directory.bytes
            ),
        ));
    }
    if directory.entries > TENSORS {
        return Err(
            reader.malformed(at, format!("{} entries; more than {TENSORS} are not believed", directory.entries))
        );
    }
    Ok(directory)
}

/// The offset of the end record: the file's last bytes, unless a comment follows it.
fn find_end(reader: &mut HeaderReader) -> Result<u64, ArtifactError> {
    let size = reader.size();
    if let Some(at) = size.checked_sub(END_BYTES) {
        let mut last = [0; END_BYTES as usize];
        reader.read_at(at, &mut last)?;
        if last.starts_with(&END.to_le_bytes()) && last.ends_with(&[0, 0]) {
            return Ok(at);
        }
        let tail_start = at.saturating_sub(u64::from(u16::MAX));
        let mut tail = vec![0; (size - tail_start) as usize];
        reader.read_at(tail_start, &mut tail)?;
        let records = tail.windows(END_BYTES as usize).enumerate().rev();
        for (index, record) in records.filter(|(_, record)| record.starts_with(&END.to_le_bytes())) {
            let comment = usize::from(u16::from_le_bytes([record[20], record[21]]));
            if index + record.len() + comment == tail.len() {
                return Ok(tail_start + index as u64);
            }
        }
    }
    Err(reader.malformed(size, "a zip file without its end: the file was cut off, or is still being written"))
}

/// The next record of the central directory.
fn record(cursor: &mut Cursor) -> Result<Entry, ArtifactError> {
    let at = cursor.at();
    if cursor.u32()? != CENTRAL {
        return Err(cursor.reader.malformed(at, "no record of the central directory where one must be"));
    }
    cursor.skip(4)?;
    let (flags, method) = (cursor.u16()?, cursor.u16()?);
    cursor.skip(4 + 4)?;
    let (mut stored, mut original) = (u64::from(cursor.u32()?), u64::from(cursor.u32()?));
    let (name, extra, comment) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
    cursor.skip(2 + 2 + 4)?;
    let mut local = u64::from(cursor.u32()?);
    let name = cursor.text(name.into())?;

    let mut extra = u64::from(extra);
    while extra >= 4 {
        let (kind, length) = (cursor.u16()?, u64::from(cursor.u16()?));
        extra -= 4;
        if length > extra {
            return Err(cursor.malformed(format!("an extra field of {length} bytes where {extra} are left")));
        }
        extra -= length;
        let mut left = length;
        if kind == 1 {
            // The zip64 field holds, in this order, those values only whose own fields say so.
            for value in [&mut original, &mut stored, &mut local] {
                if *value == u64::from(SEE_64.1) && left >= 8 {
                    *value = cursor.u64()?;
                    left -= 8;
                }
            }
        }
        cursor.skip(left)?;
    }
    cursor.skip(extra + u64::from(comment))?;
    Ok(Entry { at, name, flags, method, stored, original, local })
}

/// Finds an entry's bytes behind its local header, before the directory at this offset.
pub fn place(reader: &mut HeaderReader, entry: &Entry, directory: u64) -> Result<Range<u64>, ArtifactError> {
    const ENCRYPTED: u16 = 1;
    const SIZES_FOLLOW: u16 = 1 << 3;
    let Entry { at, ref name, flags, method, stored, original, local } = *entry;
    let shown = quoted(name);
    if flags & ENCRYPTED != 0 {
        return Err(reader.malformed(at, format!("entry {shown} is encrypted")));
    }
    if method != 0 {
        return Err(
            reader.malformed(at, format!("entry {shown} is compressed, so its tensors are nowhere in the file"))
        );
    }
    if stored != original {
        return Err(
            reader.malformed(at, format!("entry {shown} is not compressed, yet {original} bytes take {stored}"))
        );
    }

    let mut cursor = Cursor::new(reader, local..directory.min(local.saturating_add(LOCAL_BYTES)));
    if cursor.u32()? != LOCAL {
        return Err(reader.malformed(local, format!("no local header of entry {shown} where the directory says")));
    }
    cursor.skip(2)?;
    let (local_flags, local_method) = (cursor.u16()?, cursor.u16()?);
    cursor.skip(4 + 4)?;
    let (local_stored, _) = (cursor.u32()?, cursor.u32()?);
    let (name_bytes, extra_bytes) = (cursor.u16()?, cursor.u16()?);
    if local_method != method {
        return Err(
            reader.malformed(local, format!("local header and directory differ on the method of entry {shown}"))
        );
    }
    let says = local_flags & SIZES_FOLLOW == 0 && local_stored != SEE_64.1;
    if says && u64::from(local_stored) != stored {
        return Err(reader.malformed(
            local,
            format!("entry {shown} has {local_stored} bytes by its local header, {stored} by the directory"),
        ));
    }
    let offset = local + LOCAL_BYTES + u64::from(name_bytes) + u64::from(extra_bytes);
    if offset.checked_add(stored).is_none_or(|end| end > directory) {
        return Err(reader.malformed(at, format!("entry {shown} of {stored} bytes runs into the central directory")));
    }
    Ok(offset..offset + stored)
}
