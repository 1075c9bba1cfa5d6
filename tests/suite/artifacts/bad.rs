//! Files that lie, are cut off, or cannot be had: a reason with its place, and never a panic.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use stagemark::artifact::{Artifact, Format};
use stagemark::event::Found;
use stagemark_fixtures::models::{self, Fill, Gguf, TensorSpec};
use tempfile::TempDir;

use super::{mixed, open, reason};

/// Writes these bytes; the reason why their payload is unknown.
fn reason_of(name: &str, bytes: &[u8]) -> String {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    reason(&path)
}

/// A safetensors file of this header and this many bytes of data.
fn with_header(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

#[track_caller]
fn assert_says(reason: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| reason.contains(part)), "{reason:?} lacks one of {parts:?}");
}

#[test]
fn safetensors_that_lie_or_are_cut_off() {
    let name = "m.safetensors";
    assert_says(&reason_of(name, b""), &["at byte 0", "ends"]);
    assert_says(&reason_of(name, b"\x10\0\0"), &["at byte 3", "header's length"]);
    assert_says(&reason_of(name, &(1u64 << 63).to_le_bytes()), &["at byte 0", "9223372036854775808"]);
    assert_says(&reason_of(name, &[&(1u64 << 63).to_le_bytes()[..], b"{}"].concat()), &["9223372036854775808"]);
    assert_says(&reason_of(name, &[&900u64.to_le_bytes()[..], b"{}"].concat()), &["908", "ends at byte 10"]);
    assert_says(&reason_of(name, &with_header("{\"a\":", 0)), &["at byte 12", "JSON"]);
    assert_says(&reason_of(name, &with_header("{\n\"a\":\n[]}", 0)), &["at byte 16", "JSON"]);

    let tensor = |name: &str, begin: u64, end: u64| {
        format!(r#""{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#, end.saturating_sub(begin))
    };
    let at = |header: &str, name: &str| {
        let place = header.rfind(&format!("\"{name}\":{{")).unwrap();
        format!("at byte {}:", 8 + place + 1)
    };
    let two = |a: String, b: String| format!("{{{a},{b}}}");
    let overlapping = two(tensor("a", 0, 10), tensor("b", 9, 12));
    assert_says(
        &reason_of(name, &with_header(&overlapping, 12)),
        &[&at(&overlapping, "b"), "\"b\" begins within tensor \"a\""],
    );
    let outside = two(tensor("a", 0, 10), tensor("b", 10, 13));
    assert_says(&reason_of(name, &with_header(&outside, 12)), &[&at(&outside, "b"), "\"b\"", "12 bytes"]);
    let huge = format!("{{{}}}", tensor("a", 0, u64::MAX));
    assert_says(&reason_of(name, &with_header(&huge, 12)), &["at byte 10", "18446744073709551615"]);
    let backwards = r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[5,3]}}"#;
    assert_says(&reason_of(name, &with_header(backwards, 12)), &["at byte 10", "5 to 3"]);
    let twice = two(tensor("a", 0, 5), tensor("a", 5, 10));
    assert_says(&reason_of(name, &with_header(&twice, 10)), &[&at(&twice, "a"), "two tensors"]);
    let shape = r#"{"a":{"dtype":"F32","shape":[3,3],"data_offsets":[0,10]}}"#;
    assert_says(&reason_of(name, &with_header(shape, 10)), &["at byte 10", "[3, 3]"]);
    let overflow = r#"{"a":{"dtype":"F64","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}"#;
    assert_says(&reason_of(name, &with_header(overflow, 0)), &["at byte 10", "takes"]);
    let dimensions = format!(r#"{{"a":{{"dtype":"U8","shape":{:?},"data_offsets":[0,1]}}}}"#, vec![1; 65]);
    assert_says(&reason_of(name, &with_header(&dimensions, 1)), &["dimensions"]);
}

#[test]
fn deep_json_does_not_use_up_the_stack() {
    for opening in ["[", "{\"a\":"] {
        let deep = opening.repeat(1_000_000);
        for header in [deep.clone(), format!("{{\"__metadata__\":{deep}"), format!("{{\"a\":{{\"dtype\":{deep}")] {
            assert_says(&reason_of("m.safetensors", &with_header(&header, 0)), &["at byte", "JSON"]);
        }
    }
}

#[test]
fn a_header_past_the_formats_limit_is_not_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.safetensors");
    std::fs::write(&path, 100_000_001u64.to_le_bytes()).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert_says(&reason(&path), &["at byte 0", "100000001"]);
}

/// A small GGUF file's bytes.
fn gguf(about: &Gguf, tensors: &[(TensorSpec, u32)]) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.gguf");
    models::gguf(&path, about, tensors, Fill::Pattern).unwrap();
    std::fs::read(path).unwrap()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[test]
fn gguf_that_lie_or_are_cut_off() {
    let tensors = [(TensorSpec::flat("a", "F32", 64, 4), 0), (TensorSpec::flat("b", "F32", 64, 4), 0)];
    let good = gguf(&Gguf::default(), &tensors);
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        put(&mut bytes, at, value);
        reason_of("m.gguf", &bytes)
    };
    assert_says(&reason_of("m.gguf", b""), &["at byte 0"]);
    assert_says(&reason_of("m.gguf", b"GGUF\x03\0"), &["at byte 4", "ends at byte 6"]);
    assert_says(&changed(4, &3u32.to_be_bytes()), &["at byte 4", "big-endian"]);
    assert_says(&changed(4, &1u32.to_le_bytes()), &["at byte 4", "version 1"]);
    assert_says(&changed(8, &u64::MAX.to_le_bytes()), &["at byte 8", "tensors"]);
    assert_says(&changed(16, &u64::MAX.to_le_bytes()), &["at byte"]);
    assert_says(&changed(24, &(1u64 << 63).to_le_bytes()), &["at byte 32", "a name of"]);
    assert_says(&reason_of("m.gguf", &good[..good.len() - 300]), &["at byte", "begins at"]);
    assert_says(&reason_of("m.gguf", &good[..good.len() - 10]), &["at byte", "\"b\"", "the file ends"]);

    let second = good.windows(8).rposition(|window| window == 256u64.to_le_bytes()).unwrap();
    assert_says(&changed(second, &32u64.to_le_bytes()), &["\"a\"", "the next tensor begins after 32"]);
    assert_says(&changed(second, &(1u64 << 62).to_le_bytes()), &["\"b\" begins at 4611686018427387904"]);
    // The name of the second tensor: behind its length.
    let name = second - 4 - 8 - 4 - 1;
    assert_says(&changed(name, b"a"), &[&format!("at byte {}", name - 8), "two tensors are called \"a\""]);
    assert_says(&changed(name + 1, &65u32.to_le_bytes()), &["65 dimensions"]);
    assert_says(&changed(name + 5, &(1u64 << 62).to_le_bytes()), &["\"b\"", "no size"]);

    let deep = gguf(&Gguf { nested: 12, ..Gguf::default() }, &tensors);
    assert_says(&reason_of("m.gguf", &deep), &["at byte", "nested"]);
    let none = gguf(&Gguf { alignment: Some(32), ..Gguf::default() }, &tensors);
    let at = none.windows(21).position(|window| window == b"general.alignment\x04\0\0\0").unwrap() + 21;
    let mut none = none;
    put(&mut none, at, &[0; 4]);
    assert_says(&reason_of("m.gguf", &none), &[&format!("at byte {at}"), "alignment"]);
}

#[test]
fn gguf_arrays_are_not_believed_by_their_counts() {
    let about = Gguf { vocabulary: 4, ..Gguf::default() };
    let good = gguf(&about, &[(TensorSpec::flat("a", "F32", 64, 4), 0)]);
    for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.scores"] {
        let at = good.windows(key.len()).position(|window| window == key.as_bytes()).unwrap() + key.len() + 8;
        for count in [5u64, 1 << 40, 1 << 62, u64::MAX] {
            let mut bytes = good.clone();
            put(&mut bytes, at, &count.to_le_bytes());
            assert_says(&reason_of("m.gguf", &bytes), &["at byte"]);
        }
    }
}

#[test]
fn a_header_without_end_is_given_up_after_128_mib() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.gguf");
    // One array of bytes in a sparse file, longer than what may be read.
    let mut bytes = Vec::from(*b"GGUF\x03\0\0\0");
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(b"k\x09\0\0\0\0\0\0\0");
    bytes.extend((1u64 << 38).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 39).unwrap();
    assert_says(&reason(&path), &["134217728"]);
}

/// A small PyTorch zip file's bytes.
fn zip() -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.pt");
    models::torch_zip(&path, &mixed(), Fill::Pattern).unwrap();
    std::fs::read(path).unwrap()
}

/// Where a record of the central directory with this name stands in the file.
fn central(bytes: &[u8], name: &str) -> usize {
    let named = bytes.windows(name.len()).rposition(|window| window == name.as_bytes()).unwrap();
    assert_eq!(&bytes[named - 46..named - 42], b"PK\x01\x02");
    named - 46
}

#[test]
fn zips_that_lie_or_are_cut_off() {
    let good = zip();
    let record = central(&good, "m/data/0");
    let local = good.windows(8).position(|window| window == b"m/data/0").unwrap() - 30;
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        put(&mut bytes, at, value);
        reason_of("m.pt", &bytes)
    };
    let at = format!("at byte {record}");
    let size = |bytes: u32| [bytes.to_le_bytes(), bytes.to_le_bytes()].concat();
    assert_says(&changed(record + 20, &size(4001)), &["4000 bytes by its local header", "4001"]);
    assert_says(&changed(record + 20, &size(u32::MAX - 1)), &["4294967294"]);
    assert_says(&changed(record + 20, &4001u32.to_le_bytes()), &[&at, "not compressed"]);
    assert_says(&changed(record + 10, &8u16.to_le_bytes()), &[&at, "compressed"]);
    assert_says(&changed(record + 8, &1u16.to_le_bytes()), &[&at, "encrypted"]);
    assert_says(&changed(record + 42, &1u32.to_le_bytes()), &["at byte 1", "local header"]);
    assert_says(&changed(local, b"XX"), &[&format!("at byte {local}"), "local header"]);
    assert_says(&changed(record, b"XX"), &[&at, "central directory"]);
    let other = central(&good, "m/data/1");
    assert_says(&changed(other + 46, b"m/data/0"), &[&format!("at byte {other}"), "two entries"]);

    // Both say more than there is, and the local headers agree.
    let mut bytes = good.clone();
    put(&mut bytes, record + 20, &size(4300));
    put(&mut bytes, local + 18, &size(4300));
    assert_says(&reason_of("m.pt", &bytes), &["begins within entry \"m/data/0\""]);
    put(&mut bytes, record + 20, &size(1 << 30));
    put(&mut bytes, local + 18, &size(1 << 30));
    assert_says(&reason_of("m.pt", &bytes), &[&at, "runs into the central directory"]);

    assert_says(&reason_of("m.pt", &good[..good.len() - 1]), &["cut off"]);
    assert_says(&reason_of("m.pt", &good[..good.len() / 2]), &["cut off"]);
    assert_says(&reason_of("m.pt", b"PK\x03\x04"), &["cut off"]);
}

#[test]
fn a_zips_counts_are_not_believed() {
    // The zip64 end record: entries, entries again, bytes of the directory, its offset.
    let good = zip();
    let record = good.windows(4).position(|window| window == b"PK\x06\x06").unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.pt");
    for (at, value) in [(32, 1u64 << 40), (40, 1 << 60), (48, 1 << 60), (40, u64::MAX), (48, u64::MAX)] {
        let mut bytes = good.clone();
        put(&mut bytes, record + at, &value.to_le_bytes());
        // Only the end record's saying so brings in the zip64 one.
        let end = bytes.len() - 22;
        put(&mut bytes, end + 8, &[0xff; 12]);
        std::fs::write(&path, bytes).unwrap();
        assert_says(&reason(&path), &[&format!("at byte {end}")]);
    }
    // A directory that a sparse file does have room for, and that states more entries than it has, or than any has.
    let directory = 1u64 << 30;
    for (entries, place, words) in
        [(1u64 << 19, Some(directory), "central directory"), (1 << 30, None, "are not believed")]
    {
        let end = directory + entries * 46;
        let mut tail = Vec::from(*b"PK\x06\x06");
        tail.extend([0; 20]);
        [entries, entries, entries * 46, directory].iter().for_each(|value| tail.extend(value.to_le_bytes()));
        tail.extend(b"PK\x06\x07\0\0\0\0");
        tail.extend(end.to_le_bytes());
        tail.extend(b"\x01\0\0\0PK\x05\x06\0\0\0\0");
        tail.extend([0xff; 12]);
        tail.extend([0; 2]);
        std::fs::write(&path, b"PK\x03\x04").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &tail, end).unwrap();
        let place = place.unwrap_or(end + 56 + 20);
        assert_says(&reason(&path), &[&format!("at byte {place}"), words]);
    }
}

/// A header of the longest form that describes more tensors than any model has: refused while it is read, so that it
/// does not take memory by the million.
#[test]
fn headers_of_millions_of_tensors_are_refused() {
    let mut header = String::from("{");
    for number in 0..1_000_001 {
        header.push_str(&format!("\"{number:x}\":{{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,0]}},"));
    }
    header.pop();
    header.push('}');
    assert_says(&reason_of("m.safetensors", &with_header(&header, 0)), &["more than 1000000 tensors", "at byte"]);
    let counts = [&b"GGUF\x03\0\0\0"[..], &1_000_001u64.to_le_bytes(), &0u64.to_le_bytes()].concat();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, counts).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
    assert_says(&reason(&path), &["at byte 8", "1000001 tensors"]);
}

#[test]
fn a_zip_that_torch_did_not_write_is_no_model() {
    let mut bytes = zip();
    let record = central(&bytes, "m/data.pkl");
    put(&mut bytes, record + 46, b"m/code.txt");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.zip");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(open(&path).format, Format::Unknown);
    assert_says(&reason(&path), &["zip", "data.pkl"]);
}

#[test]
fn onnx_that_lies_or_is_cut_off() {
    use models::{onnx_field as field, onnx_model as model, onnx_outside as outside};
    let name = "m.onnx";
    let of = |graph: &[u8]| reason_of(name, &model(graph));
    assert_says(&reason_of(name, b""), &["at byte 0", "without a graph"]);
    assert_says(&reason_of(name, b"\x08\x0a"), &["without a graph"]);
    assert_says(&reason_of(name, b"onnx"), &["at byte 0", "wire type 7"]);
    assert_says(&reason_of(name, b"\x02\x00"), &["at byte 0", "field of number 0"]);
    assert_says(&reason_of(name, b"\x3a\x05\x2a"), &["at byte 0", "5 bytes", "ends at byte 3"]);
    assert_says(&reason_of(name, b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), &["18446744073709551615 bytes"]);
    assert_says(&reason_of(name, &[0xff; 20]), &["more than ten bytes"]);
    // A tensor within a graph that is shorter than it.
    assert_says(&of(b"\x2a\x7f\x08\x01"), &["at byte 4", "127 bytes"]);
    assert_says(&of(&field(5, b"\x08")), &["ends within a number"]);
    assert_says(&of(&field(5, b"\x25\0")), &["ends within its last field"]);
    assert_says(&of(&field(5, &[&b"\x08"[..], &[0xff; 9], b"\x01"].concat())), &["negative side"]);
    assert_says(&of(&field(5, &[8, 1].repeat(65))), &["dimensions"]);
    let spec = TensorSpec::flat("w", "", 4, 4);
    assert_says(&of(&field(5, &outside(&spec, 1, &[("offset", "0")]))), &["\"w\"", "not said in which"]);
    for number in ["-1", "", "1e3", "99999999999999999999"] {
        let place = [("location", "d"), ("offset", number)];
        assert_says(&of(&field(5, &outside(&spec, 1, &place))), &["offset", "no number of bytes"]);
    }

    // Loops within loops: graph, node, attribute, graph…
    let mut graph = Vec::new();
    for _ in 0..2000 {
        graph = field(1, &field(5, &field(6, &graph)));
    }
    assert_says(&of(&graph), &["nested more than 100 deep"]);
    assert_says(&of(&[0x2a, 0].repeat(1_000_001)), &["more than 1000000 tensors"]);
    assert_says(&of(&field(5, &[0x22, 0, 0x32, 0].repeat(500_001))), &["more than 1000000 tensors"]);
    let files: Vec<u8> =
        (0..10_001).flat_map(|index| field(5, &outside(&spec, 1, &[("location", &format!("d{index}"))]))).collect();
    assert_says(&of(&files), &["more than 10000 other files"]);
}

#[test]
fn what_onnx_says_of_lengths_is_held_against_types_and_shapes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.onnx");
    let mut short = TensorSpec::flat("short", "", 4, 4);
    short.length = 15;
    // Of an unknown type nothing is known, and of a shape past all numbers no size.
    let future = TensorSpec::flat("future", "", 3, 1);
    let huge = TensorSpec { name: "huge".into(), dtype: String::new(), shape: vec![1 << 62; 8], length: 2 };
    models::onnx(&path, &[(short.clone(), 1), (short, 1), (future, 99), (huge, 1)], Fill::Pattern).unwrap();
    let layout = open(&path).layout.unwrap();
    assert_eq!(layout.payload.len(), 15 + 15 + 3 + 2);
    assert_eq!(layout.by_dtype["type 99"], 3);
    assert_says(&layout.notes.join(""), &["\"short\" has 15 bytes", "take 16", "1 other"]);
}

#[test]
fn npy_that_lie_or_are_cut_off() {
    let name = "m.npy";
    let spec = TensorSpec { dtype: "'<f4'".into(), ..TensorSpec::flat("a", "", 10, 4) };
    let good = [models::npy_header(1, &spec), vec![0; 40]].concat();
    let with = |dtype: &str, shape: &[u64]| {
        let spec = TensorSpec { name: "a".into(), dtype: dtype.into(), shape: shape.into(), length: 0 };
        reason_of(name, &[models::npy_header(1, &spec), vec![0; 40]].concat())
    };
    assert_says(&reason_of(name, b"\x93NUMPY\x01\0"), &["at byte 8"]);
    assert_says(&reason_of(name, b"\x93NUMPY\x09\0\0\0\0\0"), &["at byte 6", "version 9.0"]);
    assert_says(&reason_of(name, b"\x93NUMPY\x02\0\xff\xff\xff\xff"), &["at byte 8", "4294967295"]);
    assert_says(&reason_of(name, &good[..60]), &["at byte 8", "are left"]);
    assert_says(&reason_of(name, &good[..good.len() - 1]), &["at byte 10", "takes 40 bytes, but 39 are left"]);
    assert_says(&with("'<f4'", &[1 << 63, 1 << 63]), &["no size for shape"]);
    assert_says(&with("'<f4'", &[1; 65]), &["65 dimensions"]);
    assert_says(&with("'O'", &[1]), &["Python objects"]);
    assert_says(&with("__import__('os')", &[1]), &["no value where one must be"]);
    assert_says(&with("'<q4'", &[1]), &["\"<q4\"", "not known"]);
    assert_says(&with(&"[(".repeat(10_000), &[1]), &["nested too deep"]);
    // Nothing of a compressed file is believed to be tensor data, and an archive of something else is none.
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.npz");
    models::npz(&path, &[spec]).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let record = central(&bytes, "a.npy");
    put(&mut bytes, record + 10, &8u16.to_le_bytes());
    assert_says(&reason_of("m.npz", &bytes), &["compressed"]);
    assert_says(&reason_of("m.npz", b"nothing"), &["no zip file"]);
}

#[test]
fn what_is_no_model_file_is_an_error_that_names_it() {
    let folder = TempDir::new().unwrap();
    let error = |path: &Path| {
        let error = Artifact::open(path, Found::Declared).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        error
    };
    assert_says(&error(folder.path()), &["directory"]);
    assert_says(&error(&folder.path().join("missing")), &["No such file"]);
    assert_says(&error(Path::new("/dev/null")), &["not a regular file"]);
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_says(&error(&pipe), &["not a regular file"]);
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    symlink(&here, &there).unwrap();
    symlink(&there, &here).unwrap();
    assert_says(&error(&here), &["symbolic links"]);
}

/// Runs something without the right to read what others own.
#[allow(unsafe_code)]
fn unprivileged<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: asks; takes no pointer.
            if unsafe { libc::geteuid() } == 0 {
                // SAFETY: changes the credentials for file access of this thread alone, which ends behind this.
                unsafe { libc::setfsuid(65534) };
            }
            what()
        });
        thread.join().unwrap()
    })
}

#[test]
fn an_unreadable_file_is_an_error_that_names_it() {
    let folder = TempDir::new().unwrap();
    let locked = folder.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    let path = locked.join("m.safetensors");
    models::uniform(&path, 100, 1, Fill::Pattern).unwrap();
    for mode in [0o000, 0o700] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = unprivileged(|| Artifact::open(&path, Found::Declared).unwrap_err().to_string());
        assert_says(&error, &[&path.display().to_string(), "Permission denied"]);
    }
}

/// The bytes of a good file of each format, by the name under which each is written.
static SAMPLES: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m");
    models::safetensors(&path, &mixed(), Fill::Pattern).unwrap();
    let safetensors = std::fs::read(&path).unwrap();
    let tensors: Vec<_> = mixed().into_iter().zip([0, 30, 24, 0]).collect();
    let about = Gguf { vocabulary: 5, nested: 3, alignment: Some(64), ..Gguf::default() };
    let numbered: Vec<_> = mixed().into_iter().zip([1, 16, 3, 1]).collect();
    models::onnx(&path, &numbered, Fill::Pattern).unwrap();
    let onnx = std::fs::read(&path).unwrap();
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models");
    let real = |name: &str| std::fs::read(real.join(name)).unwrap();
    vec![
        ("m.safetensors", safetensors),
        ("m.gguf", gguf(&about, &tensors)),
        ("m.pt", zip()),
        ("m.onnx", onnx),
        ("inline.onnx", real("inline.onnx")),
        ("external.onnx", real("external.onnx")),
        ("fields.npy", real("fields.npy")),
        ("arrays.npz", real("arrays.npz")),
    ]
});

/// Opens a damaged file: whatever it says now, nothing that is claimed lies outside of it.
fn check(path: &PathBuf, bytes: &[u8]) -> Result<(), TestCaseError> {
    std::fs::write(path, bytes).unwrap();
    let artifact = open(path);
    if let Ok(layout) = &artifact.layout {
        let size = bytes.len() as u64;
        for file in layout.external.iter().flat_map(|external| external.layout(1000)) {
            prop_assert!(file.payload.iter().all(|range| range.end <= 1000));
            prop_assert_eq!(file.by_dtype.values().sum::<u64>(), file.payload.len());
        }
        prop_assert!(layout.payload.iter().all(|range| range.end <= size));
        prop_assert!(layout.tensors.iter().all(|tensor| tensor.offset + tensor.length <= size));
        prop_assert_eq!(layout.by_dtype.values().sum::<u64>(), layout.payload.len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_headers_are_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<u64>(), 1usize..9), 1..5),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = TempDir::new().unwrap();
        for (name, good) in SAMPLES.iter() {
            let mut bytes = good.clone();
            for (place, at_end, value, width) in &changes {
                // Headers are at the front, and in zip files at the end too.
                let reach = bytes.len().min(700);
                let at = place.index(reach - 8) + if *at_end { bytes.len() - reach } else { 0 };
                bytes[at..at + width.min(&8)].copy_from_slice(&value.to_le_bytes()[..*width.min(&8)]);
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            check(&folder.path().join(name), &bytes)?;
        }
    }

    #[test]
    fn values_at_the_edges_are_survived(
        place in any::<prop::sample::Index>(),
        edge in prop::sample::select(vec![0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32, (1 << 32) - 1, 0xffff]),
        width in prop::sample::select(vec![2usize, 4, 8]),
    ) {
        let folder = TempDir::new().unwrap();
        for (name, good) in SAMPLES.iter() {
            let mut bytes = good.clone();
            let at = place.index(bytes.len() - 8);
            bytes[at..at + width].copy_from_slice(&edge.to_le_bytes()[..width]);
            check(&folder.path().join(name), &bytes)?;
        }
    }
}
