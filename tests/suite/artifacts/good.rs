//! Each format, as its generator writes it.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;

use stagemark::artifact::{External, Format};
use stagemark_fixtures::models::{self, Fill, Gguf, TensorSpec};
use tempfile::TempDir;

use super::{layout, mixed, open, payload, reason};

#[test]
fn safetensors_are_read_to_the_byte() {
    let folder = TempDir::new().unwrap();
    let model = models::safetensors(&folder.path().join("m.safetensors"), &mixed(), Fill::Pattern).unwrap();
    let layout = layout(&model.path, Format::Safetensors);
    assert_eq!(layout.payload, payload(&model));
    assert_eq!(layout.by_dtype, BTreeMap::from([("F32".into(), 4132), ("BF16".into(), 154)]));
    assert!(layout.notes.is_empty(), "{:?}", layout.notes);
    for (spec, range) in mixed().iter().zip(&model.payload) {
        let tensor = layout.tensors.iter().find(|tensor| tensor.name == spec.name).unwrap();
        assert_eq!((tensor.offset, tensor.offset + tensor.length), (range.start, range.end));
        assert_eq!((&tensor.dtype, &tensor.shape), (&spec.dtype, &spec.shape));
    }
}

#[test]
fn a_name_with_escapes_is_read() {
    let folder = TempDir::new().unwrap();
    let specs = [TensorSpec::flat("a\"b\\c\u{1}\u{e9}", "U8", 5, 1)];
    let model = models::safetensors(&folder.path().join("m.safetensors"), &specs, Fill::Pattern).unwrap();
    assert_eq!(layout(&model.path, Format::Safetensors).tensors[0].name, specs[0].name);
}

#[test]
fn a_model_is_known_without_its_extension() {
    let folder = TempDir::new().unwrap();
    let model = models::safetensors(&folder.path().join("blob"), &mixed(), Fill::Pattern).unwrap();
    assert_eq!(open(&model.path).format, Format::Safetensors);
    let model = models::torch_zip(&folder.path().join("pytorch_model.bin"), &mixed(), Fill::Pattern).unwrap();
    assert_eq!(open(&model.path).format, Format::TorchZip);
}

#[test]
fn holes_are_noted_with_their_place_and_are_no_payload() {
    let folder = TempDir::new().unwrap();
    let model = models::uniform(&folder.path().join("m.safetensors"), 4096, 2, Fill::Sparse).unwrap();
    std::fs::File::options().write(true).open(&model.path).unwrap().set_len(model.size + 1000).unwrap();
    let layout = layout(&model.path, Format::Safetensors);
    assert_eq!(layout.payload, payload(&model));
    assert_eq!(layout.notes.len(), 1);
    assert!(layout.notes[0].contains(&format!("at byte {}", model.size)), "{:?}", layout.notes);
    assert!(layout.notes[0].contains("1000"), "{:?}", layout.notes);
}

#[test]
fn a_dtype_of_the_future_is_taken_at_its_offsets() {
    let folder = TempDir::new().unwrap();
    let specs = [TensorSpec { name: "x".into(), dtype: "F3_E1M1".into(), shape: vec![8], length: 3 }];
    let model = models::safetensors(&folder.path().join("m.safetensors"), &specs, Fill::Pattern).unwrap();
    assert_eq!(layout(&model.path, Format::Safetensors).by_dtype, BTreeMap::from([("F3_E1M1".into(), 3)]));
}

/// Tensors of known types, one of them of blocks, that leave padding behind them.
fn ggml() -> Vec<(TensorSpec, u32)> {
    vec![
        (TensorSpec::flat("norm", "F32", 7, 4), 0),
        (TensorSpec { name: "attn".into(), dtype: "Q4_K".into(), shape: vec![512, 3], length: 6 * 144 }, 12),
        (TensorSpec { name: "experts".into(), dtype: "MXFP4".into(), shape: vec![64, 2], length: 4 * 17 }, 39),
        (TensorSpec::flat("out", "F16", 5, 2), 1),
    ]
}

#[test]
fn gguf_padding_is_no_payload_whatever_version_and_alignment() {
    let folder = TempDir::new().unwrap();
    for version in [2, 3] {
        for alignment in [None, Some(8), Some(64), Some(4096)] {
            let about = Gguf { version, alignment, vocabulary: 3000, nested: 3, ..Gguf::default() };
            let model = models::gguf(&folder.path().join("m.gguf"), &about, &ggml(), Fill::Pattern).unwrap();
            let layout = layout(&model.path, Format::Gguf);
            assert_eq!(layout.payload, payload(&model), "version {version}, alignment {alignment:?}");
            let by_dtype = [("F32", 28), ("Q4_K", 864), ("MXFP4", 68), ("F16", 10)];
            assert_eq!(layout.by_dtype, by_dtype.map(|(dtype, bytes)| (dtype.to_owned(), bytes)).into());
            assert_eq!(layout.tensors[1].shape, [512, 3]);
            assert!(layout.notes.is_empty());
        }
    }
}

#[test]
fn a_gguf_tensor_of_an_unknown_type_ends_where_the_next_begins() {
    let folder = TempDir::new().unwrap();
    let mut tensors = ggml();
    tensors[1].1 = 200;
    tensors[3].1 = 201;
    let model = models::gguf(&folder.path().join("m.gguf"), &Gguf::default(), &tensors, Fill::Pattern).unwrap();
    let layout = layout(&model.path, Format::Gguf);
    let ends: Vec<u64> = layout.tensors.iter().map(|tensor| tensor.offset + tensor.length).collect();
    assert_eq!(ends, [model.payload[0].end, model.payload[2].start, model.payload[2].end, model.size]);
    assert_eq!(layout.tensors[1].dtype, "type 200");
    assert_eq!(layout.notes.len(), 1);
}

#[test]
fn gguf_tensors_on_the_same_bytes_count_once() {
    let folder = TempDir::new().unwrap();
    let tensors = [(TensorSpec::flat("a", "F32", 64, 4), 0), (TensorSpec::flat("b", "F32", 64, 4), 0)];
    let model = models::gguf(&folder.path().join("m.gguf"), &Gguf::default(), &tensors, Fill::Pattern).unwrap();
    // The second description's offset, the last eight bytes before the padding, becomes the first one's.
    let mut bytes = std::fs::read(&model.path).unwrap();
    let at = bytes.windows(8).rposition(|window| window == 256u64.to_le_bytes()).unwrap();
    bytes[at..at + 8].fill(0);
    std::fs::write(&model.path, bytes).unwrap();
    let layout = layout(&model.path, Format::Gguf);
    assert_eq!(layout.tensors.len(), 2);
    assert_eq!(layout.payload.len(), 256);
    assert_eq!(layout.by_dtype, BTreeMap::from([("F32".into(), 256)]));
}

#[test]
fn the_storages_of_a_torch_zip_are_its_payload() {
    let folder = TempDir::new().unwrap();
    let model = models::torch_zip(&folder.path().join("m.pt"), &mixed(), Fill::Pattern).unwrap();
    let layout = layout(&model.path, Format::TorchZip);
    assert_eq!(layout.payload, payload(&model));
    assert_eq!(layout.tensors.len(), 4);
    assert_eq!(layout.tensors[0].name, "m/data/0");
    assert_eq!(layout.by_dtype, BTreeMap::from([("float32".into(), 4132), ("bfloat16".into(), 154)]));
    let dtypes: Vec<_> = layout.tensors.iter().map(|tensor| tensor.dtype.as_str()).collect();
    assert_eq!(dtypes, ["float32", "bfloat16", "int8", "float32"]);
}

#[test]
fn a_pickle_that_is_wrong_about_a_storage_is_not_believed() {
    let folder = TempDir::new().unwrap();
    let mut specs = mixed();
    specs[0].dtype = "I8".into();
    specs[1].dtype = "of the future".into();
    specs[3].length += 1;
    let model = models::torch_zip(&folder.path().join("m.pt"), &specs, Fill::Pattern).unwrap();
    let layout = layout(&model.path, Format::TorchZip);
    assert_eq!(layout.payload, payload(&model));
    // The first has a length that its type can have; the last does not.
    assert_eq!(layout.by_dtype, BTreeMap::from([("int8".into(), 4000), ("unknown".into(), 154 + 133)]));
}

#[test]
fn a_torch_zip_past_four_gigabytes_is_read() {
    let folder = TempDir::new().unwrap();
    let specs = [TensorSpec::flat("a", "F32", 5 << 28, 4), TensorSpec::flat("b", "F32", 9, 4)];
    let model = models::torch_zip(&folder.path().join("m.pt"), &specs, Fill::Sparse).unwrap();
    assert!(model.payload[1].start > u64::from(u32::MAX));
    assert_eq!(layout(&model.path, Format::TorchZip).payload, payload(&model));
}

#[test]
fn a_comment_behind_a_zip_is_passed_over() {
    let folder = TempDir::new().unwrap();
    let model = models::torch_zip(&folder.path().join("m.pt"), &mixed(), Fill::Pattern).unwrap();
    let mut bytes = std::fs::read(&model.path).unwrap();
    let comment = b"about PK\x05\x06 and more";
    let at = bytes.len() - 2;
    bytes[at..].copy_from_slice(&(comment.len() as u16).to_le_bytes());
    bytes.extend(comment);
    std::fs::write(&model.path, bytes).unwrap();
    assert_eq!(layout(&model.path, Format::TorchZip).payload, payload(&model));
}

/// What onnx and NumPy themselves wrote, and what they say that it holds (fixtures/models/make.py).
#[test]
fn files_of_other_writers_hold_what_they_say() {
    #[derive(serde::Deserialize)]
    struct Told {
        name: String,
        dtype: String,
        shape: Vec<u64>,
        /// The tensor's bytes, in hexadecimal.
        data: String,
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models");
    let truth = std::fs::read_to_string(folder.join("truth.json")).unwrap();
    let truth: BTreeMap<String, Vec<Told>> = serde_json::from_str(&truth).unwrap();
    assert_eq!(truth.len(), 12);
    for (file, told) in &truth {
        let path = folder.join(file);
        let bytes = std::fs::read(&path).unwrap();
        let layout = match file.strip_suffix("_data") {
            Some(model) => {
                let layout = open(&folder.join(model)).layout.unwrap();
                let [External { location, .. }] = layout.external.as_slice() else { panic!("{file}") };
                assert_eq!(location, file);
                layout.external[0].layout(bytes.len() as u64).unwrap().into()
            }
            None => open(&path).layout.unwrap_or_else(|reason| panic!("{file}: {reason}")),
        };
        assert!(layout.notes.is_empty(), "{file}: {:?}", layout.notes);
        assert_eq!(layout.tensors.len(), told.len(), "{file}");
        let mut sum = 0;
        for told in told {
            let tensor = layout.tensors.iter().find(|tensor| tensor.name == told.name).unwrap();
            let data = &bytes[tensor.offset as usize..(tensor.offset + tensor.length) as usize];
            let data: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!((&data, &tensor.shape), (&told.data, &told.shape), "{file}: {}", told.name);
            // A dtype of fields stands there as Python writes it, shortened.
            let begin: String = tensor.dtype.chars().take_while(|c| *c != '…').collect();
            assert!(told.dtype.starts_with(&begin), "{file}: {} is no {}", tensor.dtype, told.dtype);
            sum += tensor.length;
        }
        assert_eq!(layout.payload.len(), sum);
    }
    assert_eq!(open(&folder.join("inline.onnx")).format, Format::Onnx);
    assert_eq!(open(&folder.join("arrays.npz")).format, Format::Npz);
    assert_eq!(open(&folder.join("plain.npy")).format, Format::Npy);
    assert!(reason(&folder.join("objects.npy")).contains("Python objects"));
    assert!(reason(&folder.join("compressed.npz")).contains("compressed"));
}

/// With their numbers in ONNX.
fn numbered() -> Vec<(TensorSpec, u32)> {
    mixed().into_iter().zip([1, 16, 3, 1]).collect()
}

#[test]
fn onnx_is_read_to_the_byte_and_known_by_its_content() {
    let folder = TempDir::new().unwrap();
    for name in ["m.onnx", "blob"] {
        let model = models::onnx(&folder.path().join(name), &numbered(), Fill::Pattern).unwrap();
        let layout = layout(&model.path, Format::Onnx);
        assert_eq!(layout.payload, payload(&model));
        assert_eq!(layout.by_dtype, BTreeMap::from([("FLOAT".into(), 4132), ("BFLOAT16".into(), 154)]));
        assert!(layout.notes.is_empty() && layout.external.is_empty(), "{layout:?}");
    }
}

/// More than protobuf itself would take: its data is passed over unread, or this would take minutes and be refused.
#[test]
fn onnx_with_gigabytes_in_it_is_read_at_once() {
    let folder = TempDir::new().unwrap();
    let specs: Vec<_> = (0..20).map(|index| (TensorSpec::flat(format!("t{index}"), "F32", 1 << 28, 4), 1)).collect();
    let model = models::onnx(&folder.path().join("m.onnx"), &specs, Fill::Sparse).unwrap();
    assert!(model.size > 20 << 30);
    assert_eq!(layout(&model.path, Format::Onnx).payload, payload(&model));
}

#[test]
fn npy_and_npz_are_read_to_the_byte() {
    let folder = TempDir::new().unwrap();
    let specs: Vec<TensorSpec> = (0..40)
        .map(|index| TensorSpec { dtype: "'<f2'".into(), ..TensorSpec::flat(format!("a/{index}"), "", index * 90, 2) })
        .collect();
    for version in [1, 2, 3] {
        let model = models::npy(&folder.path().join("m.npy"), version, &specs[5], Fill::Pattern).unwrap();
        let layout = layout(&model.path, Format::Npy);
        assert_eq!((&layout.payload, layout.tensors[0].name.as_str()), (&payload(&model), "m"));
        assert_eq!(layout.by_dtype, BTreeMap::from([("<f2".into(), 900)]));
    }
    let model = models::npz(&folder.path().join("m.npz"), &specs).unwrap();
    let layout = layout(&model.path, Format::Npz);
    assert_eq!(layout.payload, payload(&model));
    assert!(layout.tensors.iter().any(|tensor| tensor.name == "a/39"));
    // What follows an array is none of it.
    let model = models::npy(&folder.path().join("m.npy"), 1, &specs[5], Fill::Pattern).unwrap();
    std::fs::File::options().write(true).open(&model.path).unwrap().set_len(model.size + 5).unwrap();
    let layout = super::layout(&model.path, Format::Npy);
    assert_eq!(layout.payload, payload(&model));
    assert!(layout.notes[0].contains("5 bytes follow"), "{:?}", layout.notes);
}

#[test]
fn a_legacy_pickle_is_recognised_and_not_read() {
    let folder = TempDir::new().unwrap();
    let model = models::torch_legacy(&folder.path().join("m.bin"), 1 << 16).unwrap();
    let artifact = open(&model.path);
    assert_eq!(artifact.format, Format::TorchLegacy);
    assert_eq!(artifact.payload_bytes(), None);
    assert_eq!(artifact.watched_ranges().len(), model.size);
    assert!(reason(&model.path).contains("pickle"));
}

#[test]
fn the_header_digest_follows_the_header_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("m.safetensors");
    let digest = |spec: &TensorSpec, fill| {
        models::safetensors(&path, std::slice::from_ref(spec), fill).unwrap();
        open(&path).header_digest.unwrap()
    };
    let spec = TensorSpec::flat("a", "F32", 100, 4);
    let first = digest(&spec, Fill::Pattern);
    assert_eq!(first.len(), 64);
    assert_eq!(digest(&spec, Fill::Sparse), first);
    assert_ne!(digest(&TensorSpec::flat("b", "F32", 100, 4), Fill::Pattern), first);
}

/// Pages of the file that are in the page cache (mincore(2)).
#[allow(unsafe_code)]
fn resident_pages(file: &std::fs::File, size: usize) -> usize {
    let mut pages = vec![0u8; size.div_ceil(4096)];
    // SAFETY: maps a file of at least `size` bytes anew, never reads through the mapping, asks about exactly its
    // pages, of which `pages` has room for one byte each, and unmaps it.
    unsafe {
        let map = libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(map, libc::MAP_FAILED);
        assert_eq!(libc::mincore(map, size, pages.as_mut_ptr()), 0);
        libc::munmap(map, size);
    }
    pages.iter().filter(|&&page| page & 1 == 1).count()
}

#[test]
fn opening_leaves_the_page_cache_nearly_as_it_was() {
    // Not in the usual temporary folder, which may be a tmpfs: there nothing can be evicted.
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let specs: Vec<TensorSpec> =
        (0..64).map(|index| TensorSpec::flat(format!("layer.{index}"), "F32", 1 << 18, 4)).collect();
    let ggml: Vec<_> = specs.iter().map(|spec| (spec.clone(), 0)).collect();
    let onnx: Vec<_> = specs.iter().map(|spec| (spec.clone(), 1)).collect();
    let paths = ["m.safetensors", "m.gguf", "m.pt", "m.onnx"].map(|name| folder.path().join(name));
    models::safetensors(&paths[0], &specs, Fill::Pattern).unwrap();
    models::gguf(&paths[1], &Gguf { vocabulary: 1000, ..Gguf::default() }, &ggml, Fill::Pattern).unwrap();
    models::torch_zip(&paths[2], &specs, Fill::Pattern).unwrap();
    models::onnx(&paths[3], &onnx, Fill::Pattern).unwrap();
    for path in paths {
        let file = std::fs::File::open(&path).unwrap();
        let size = file.metadata().unwrap().len() as usize;
        file.sync_all().unwrap();
        nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        let before = resident_pages(&file, size);
        assert!(before < 64, "{} could not be evicted", path.display());
        assert!(open(&path).layout.is_ok());
        let after = resident_pages(&file, size);
        // A zip's local headers stand before each storage, so that each costs a page; so do ONNX's descriptions.
        let storages = if path.ends_with("m.pt") || path.ends_with("m.onnx") { specs.len() } else { 0 };
        assert!(after < before + 16 + storages, "{}: {before}, then {after} pages", path.display());
        eprintln!("{}: {after} of {} pages after opening", path.display(), size / 4096);
    }
}
