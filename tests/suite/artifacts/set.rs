//! Which files a launch is about.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use stagemark::artifact::Format;
use stagemark::artifact::set::{Resolution, discover, discover_named_by, has_model_name, resolve};
use stagemark::event::Found;
use stagemark_fixtures::models::{self, Fill, TensorSpec};
use tempfile::TempDir;

use super::mixed;

fn declared(path: &Path) -> Resolution {
    resolve(&[path.to_owned()], &[], &BTreeMap::new(), Path::new("/"))
}

fn launched(line: &[&str], directory: &Path) -> Resolution {
    launched_with(line, &[], directory)
}

fn launched_with(line: &[&str], environment: &[(&str, &Path)], directory: &Path) -> Resolution {
    let argv: Vec<OsString> = line.iter().map(OsString::from).collect();
    let environment = environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
    resolve(&[], &argv, &environment, directory)
}

/// The names of the files found.
fn names(resolution: &Resolution) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    resolution.artifacts.iter().map(|artifact| name(&artifact.path)).collect()
}

fn model(path: PathBuf) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    models::safetensors(&path, &mixed(), Fill::Pattern).unwrap();
    path
}

fn torch(path: PathBuf) -> PathBuf {
    models::torch_zip(&path, &mixed(), Fill::Pattern).unwrap();
    path
}

#[track_caller]
fn assert_warns(resolution: &Resolution, parts: &[&str]) {
    let fits = |warning: &String| parts.iter().all(|part| warning.contains(part));
    assert!(resolution.warnings.iter().any(fits), "{:?} has none with all of {parts:?}", resolution.warnings);
    assert!(resolution.failures > 0);
}

#[track_caller]
fn assert_quiet(resolution: &Resolution) {
    assert!(resolution.warnings.is_empty(), "{:?}", resolution.warnings);
    assert_eq!(resolution.failures, 0);
}

#[test]
fn a_folder_is_what_its_index_names() {
    let folder = TempDir::new().unwrap();
    models::sharded(folder.path(), 2, &mixed(), Fill::Pattern).unwrap();
    model(folder.path().join("consolidated.safetensors"));
    model(folder.path().join("other.safetensors"));
    torch(folder.path().join("pytorch_model-00001-of-00001.bin"));
    std::fs::write(
        folder.path().join("pytorch_model.bin.index.json"),
        r#"{"weight_map":{"a":"pytorch_model-00001-of-00001.bin"}}"#,
    )
    .unwrap();
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    for path in [folder.path().to_owned(), folder.path().join("model.safetensors.index.json")] {
        let resolution = declared(&path);
        assert_eq!(names(&resolution), shards);
        assert!(resolution.artifacts.iter().all(|artifact| artifact.found == Found::Declared));
        assert_quiet(&resolution);
        let resolution = launched(&["serve-it", path.to_str().unwrap()], Path::new("/"));
        assert_eq!(names(&resolution), shards);
        assert!(resolution.artifacts.iter().all(|artifact| artifact.found == Found::CommandLine));
    }
}

#[test]
fn a_folder_without_an_index_is_the_files_that_loaders_take() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let now = || {
        let resolution = declared(folder.path());
        assert_quiet(&resolution);
        names(&resolution)
    };
    std::fs::write(at("config.json"), "{}").unwrap();
    std::fs::write(at("notes.bin"), "not a model").unwrap();
    std::fs::create_dir(at("deeper.safetensors")).unwrap();
    torch(at("training_args.bin"));
    torch(at("pytorch_model.bin"));
    models::torch_legacy(&at("old.pth"), 100).unwrap();
    assert_eq!(names(&declared(folder.path())), ["old.pth", "pytorch_model.bin"]);
    std::fs::remove_file(at("old.pth")).unwrap();
    torch(at("consolidated.00.pth"));
    assert_eq!(now(), ["pytorch_model.bin"]);
    let about = models::Gguf::default();
    models::gguf(&at("q4.gguf"), &about, &[(TensorSpec::flat("a", "F32", 8, 4), 0)], Fill::Pattern).unwrap();
    assert_eq!(now(), ["q4.gguf"]);
    model(at("consolidated.safetensors"));
    assert_eq!(now(), ["consolidated.safetensors"]);
    model(at("a.safetensors"));
    model(at("B.SAFETENSORS"));
    assert_eq!(now(), ["B.SAFETENSORS", "a.safetensors"]);
}

#[test]
fn an_index_leads_nowhere_else() {
    let folder = TempDir::new().unwrap();
    let outside = model(folder.path().join("outside.safetensors"));
    let inside = folder.path().join("inside");
    model(inside.join("sub/good.safetensors"));
    let index = inside.join("model.safetensors.index.json");
    let names_in = |shards: &[&str]| {
        let map: Vec<_> = shards.iter().enumerate().map(|(at, shard)| format!("\"t{at}\":{shard:?}")).collect();
        std::fs::write(&index, format!("{{\"metadata\":{{}},\"weight_map\":{{{}}}}}", map.join(","))).unwrap();
        declared(&index)
    };
    let good = "sub/good.safetensors";
    for shard in ["../outside.safetensors", outside.to_str().unwrap(), "sub/../../outside.safetensors", "./x", ""] {
        let resolution = names_in(&[good, shard]);
        assert_eq!(names(&resolution), ["good.safetensors"], "{shard:?}");
        assert_warns(&resolution, &["refuses", index.to_str().unwrap()]);
    }
    let resolution = names_in(&[good, "missing.safetensors"]);
    assert_eq!(names(&resolution), ["good.safetensors"]);
    assert_warns(&resolution, &["missing.safetensors", "cannot be had"]);

    for text in ["", "{", "[]", "{\"weight_map\":3}", "{\"weight_map\":{\"a\":3}}", "{}"] {
        std::fs::write(&index, text).unwrap();
        assert_warns(&declared(&index), &[index.to_str().unwrap(), "no index of shards"]);
    }
    std::fs::write(&index, "[".repeat(1 << 20)).unwrap();
    assert_warns(&declared(&index), &["no index of shards"]);
}

#[test]
fn one_part_of_a_split_file_brings_all() {
    let folder = TempDir::new().unwrap();
    let tensors = [(TensorSpec::flat("a", "F32", 8, 4), 0)];
    let parts = models::gguf_split(&folder.path().join("m"), 3, &tensors, Fill::Pattern).unwrap();
    let all = ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"];
    assert_eq!(names(&declared(&parts[1].path)), all);
    assert_eq!(names(&launched(&["llama-server", "-m", all[0]], folder.path())), all);
    std::fs::remove_file(&parts[2].path).unwrap();
    let resolution = declared(&parts[0].path);
    assert_eq!(names(&resolution), all[..2]);
    assert_warns(&resolution, &["m-00003-of-00003.gguf", "split"]);
}

#[test]
fn a_file_is_taken_once_however_often_it_is_named() {
    let folder = TempDir::new().unwrap();
    let path = model(folder.path().join("m.safetensors"));
    symlink(&path, folder.path().join("link.safetensors")).unwrap();
    std::fs::hard_link(&path, folder.path().join("hard.safetensors")).unwrap();
    let resolution = launched(
        &["x", "m.safetensors", "link.safetensors", "--also=hard.safetensors", "./m.safetensors"],
        folder.path(),
    );
    assert_eq!(names(&resolution), ["m.safetensors"]);
    let through = declared(&folder.path().join("link.safetensors"));
    assert_eq!(through.artifacts[0].path, folder.path().join("link.safetensors"));
    assert_eq!(through.artifacts[0].real_path, path.canonicalize().unwrap());
}

#[test]
fn loops_end() {
    let folder = TempDir::new().unwrap();
    model(folder.path().join("m.safetensors"));
    symlink(folder.path(), folder.path().join("loop")).unwrap();
    symlink("self.safetensors", folder.path().join("self.safetensors")).unwrap();
    let resolution = declared(&folder.path().join("loop/loop/loop"));
    assert_eq!(names(&resolution), ["m.safetensors"]);
    assert_warns(&resolution, &["self.safetensors", "symbolic links"]);
    assert_warns(&declared(&folder.path().join("self.safetensors")), &["symbolic links"]);
}

#[test]
fn raw_is_said() {
    let folder = TempDir::new().unwrap();
    models::raw(&folder.path().join("weights"), 5000, Fill::Pattern).unwrap();
    let resolution = resolve(&["raw:weights".into()], &[], &BTreeMap::new(), folder.path());
    assert_eq!(resolution.artifacts[0].format, Format::Raw);
    assert_eq!(resolution.artifacts[0].payload_bytes(), Some(5000));
    assert_quiet(&resolution);
    let resolution = resolve(&["weights".into()], &[], &BTreeMap::new(), folder.path());
    assert_eq!(resolution.artifacts[0].payload_bytes(), None);
    assert_warns(&resolution, &["weights", "unknown"]);
    assert_warns(&resolve(&["raw:none".into()], &[], &BTreeMap::new(), folder.path()), &["none", "No such file"]);
    assert_warns(&resolve(&[".".into()], &[], &BTreeMap::new(), folder.path()), &["no model files"]);
}

#[test]
fn a_bad_artifact_is_a_warning_and_is_still_one() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bad.safetensors");
    std::fs::write(&path, (1u64 << 63).to_le_bytes()).unwrap();
    let resolution = declared(&path);
    assert_eq!(names(&resolution), ["bad.safetensors"]);
    assert_warns(&resolution, &[path.to_str().unwrap(), "at byte 0", "9223372036854775808"]);
}

#[test]
fn only_models_of_a_command_line_are_artifacts() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    model(at("model.safetensors"));
    model(at("blob-without-extension"));
    model(at("script.py"));
    std::fs::write(at("data.bin"), "some bytes").unwrap();
    std::fs::write(at("text.txt"), "words").unwrap();
    std::fs::write(at("start.sh"), "#!/bin/sh").unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    torch(at("weights.bin"));
    std::fs::write(at("net.onnx"), "onnx").unwrap();
    let line = [
        "./start.sh",
        "script.py",
        "start.sh",
        "text.txt",
        "data.bin",
        "empty",
        "--config=text.txt",
        "--",
        "-",
        "--weights=weights.bin",
        "blob-without-extension",
        "model.safetensors",
        "https://example.org/a/b?c=d",
        "org/name",
        "--prompt",
        "tell me\nmore",
        "/dev/null",
        "",
        "--=",
        "=",
        "net.onnx",
    ];
    let resolution = launched(&line, folder.path());
    assert_eq!(names(&resolution), ["weights.bin", "blob-without-extension", "model.safetensors", "net.onnx"]);
    // Only the file whose format is not read gives a warning.
    assert_eq!(resolution.warnings.len(), 1, "{:?}", resolution.warnings);
    assert_warns(&resolution, &["net.onnx", "unknown"]);

    assert_quiet(&launched(&["python", "-c", "open('model.safetensors')", "x"], folder.path()));
    assert!(launched(&["python", "-c", "model.safetensors"], folder.path()).artifacts.is_empty());
    assert!(launched(&["convert", "--outfile", "model.safetensors"], folder.path()).artifacts.is_empty());
    assert!(launched(&[], folder.path()).artifacts.is_empty());
    let strange = vec!["x".into(), OsString::from_vec(b"\xff/\xfe".to_vec()), OsString::from("y".repeat(1 << 17))];
    assert_quiet(&resolve(&[], &strange, &BTreeMap::new(), folder.path()));
}

#[test]
fn several_files_may_stand_in_one_argument() {
    let folder = TempDir::new().unwrap();
    for name in ["a.safetensors", "b.safetensors", "c,d.safetensors"] {
        model(folder.path().join(name));
    }
    let of = |argument: &str| {
        let resolution = launched(&["mistral", argument], folder.path());
        assert_quiet(&resolution);
        names(&resolution)
    };
    let absolute = folder.path().join("b.safetensors");
    assert_eq!(of(&format!("a.safetensors,{}", absolute.display())), ["a.safetensors", "b.safetensors"]);
    assert_eq!(of("--weights=,a.safetensors,nothing.safetensors,"), ["a.safetensors"]);
    assert_eq!(of("c,d.safetensors"), ["c,d.safetensors"], "a file of this name goes before");
    assert_eq!(of("c,e.safetensors"), [""; 0]);
}

#[test]
fn declared_files_silence_the_command_line() {
    let folder = TempDir::new().unwrap();
    let path = model(folder.path().join("a.safetensors"));
    model(folder.path().join("b.safetensors"));
    let argv = ["x".into(), "b.safetensors".into()];
    assert_eq!(names(&resolve(&[path], &argv, &BTreeMap::new(), folder.path())), ["a.safetensors"]);
}

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A cache with two revisions of `org/name`, as links to blobs.
fn cache(folder: &Path) -> PathBuf {
    let model_folder = folder.join("models--org--name");
    let snapshot = model_folder.join("snapshots").join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(model_folder.join("refs/pr")).unwrap();
    std::fs::write(model_folder.join("refs/main"), COMMIT).unwrap();
    std::fs::write(model_folder.join("refs/pr/1"), format!("{COMMIT}\n")).unwrap();
    std::fs::write(model_folder.join("refs/evil"), "../../../..").unwrap();
    std::fs::write(model_folder.join("refs/gone"), "f".repeat(40)).unwrap();
    let blobs = model_folder.join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    models::sharded(&blobs, 2, &mixed(), Fill::Pattern).unwrap();
    for (blob, name) in [
        ("model-00001-of-00002.safetensors", "a".repeat(64)),
        ("model-00002-of-00002.safetensors", "b".repeat(64)),
        ("model.safetensors.index.json", "c".repeat(40)),
    ] {
        std::fs::rename(blobs.join(blob), blobs.join(&name)).unwrap();
        symlink(format!("../../blobs/{name}"), snapshot.join(blob)).unwrap();
    }
    blobs
}

#[test]
fn a_hub_id_is_resolved_where_the_loader_would_look() {
    let folder = TempDir::new().unwrap();
    let hub = folder.path().join("huggingface/hub");
    let blobs = cache(&hub);
    let home = folder.path().join("home");
    std::fs::create_dir_all(home.join(".cache")).unwrap();
    symlink(folder.path().join("huggingface"), home.join(".cache/huggingface")).unwrap();
    let hf_home = folder.path().join("huggingface");
    let expected = Found::HubCache { repository: "org/name".into(), revision: COMMIT.into() };
    let serve: &[&str] = &["vllm", "serve", "org/name"];
    for (line, name, value) in [
        (serve, "HF_HUB_CACHE", hub.as_path()),
        (serve, "HUGGINGFACE_HUB_CACHE", &hub),
        (serve, "HF_HOME", &hf_home),
        (serve, "HF_HOME", Path::new("huggingface")),
        (serve, "XDG_CACHE_HOME", folder.path()),
        (serve, "HOME", &home),
        (&["python", "-m", "server", "--model", "org/name"], "HF_HOME", &hf_home),
        (&["python", "-m", "server", "--model=org/name"], "HF_HOME", &hf_home),
        (&["server", "--model-path", "org/name", "--revision", "pr/1"], "HF_HOME", &hf_home),
        (&["server", "--revision=main", "--model-id", "org/name"], "HF_HOME", &hf_home),
        (&["server", "-m", "org/name", "--revision", COMMIT], "HF_HOME", &hf_home),
        (&["llama-server", "-hf", "org/name:Q4_K_M"], "HF_HOME", &hf_home),
    ] {
        let resolution = launched_with(line, &[(name, value)], folder.path());
        assert_quiet(&resolution);
        assert_eq!(names(&resolution).len(), 2, "{line:?} {name}");
        for artifact in &resolution.artifacts {
            assert_eq!(artifact.found, expected);
            assert_eq!(artifact.real_path.parent(), Some(blobs.canonicalize().unwrap().as_path()));
            assert!(has_model_name(artifact.real_path.as_os_str()));
        }
    }
    // HF_HUB_CACHE goes before HF_HOME.
    let empty = folder.path().join("empty");
    let both = [("HF_HUB_CACHE", empty.as_path()), ("HF_HOME", &hf_home)];
    assert_warns(&launched_with(serve, &both, folder.path()), &["org/name", empty.to_str().unwrap(), "--artifact"]);
}

#[test]
fn a_hub_id_that_is_not_cached_is_a_warning() {
    let folder = TempDir::new().unwrap();
    cache(folder.path());
    let with = |line: &[&str]| {
        let resolution = launched_with(line, &[("HF_HUB_CACHE", folder.path())], Path::new("/"));
        assert!(resolution.artifacts.is_empty());
        resolution
    };
    let place = folder.path().to_str().unwrap();
    assert_warns(&with(&["vllm", "serve", "org/other"]), &["org/other", place, "not in the local cache"]);
    for revision in ["evil", "gone", "../main", "/etc/hostname", "v9"] {
        let line = ["vllm", "serve", "org/name", "--revision", revision];
        assert_warns(&with(&line), &["org/name", place]);
    }
    assert_warns(&launched(&["vllm", "serve", "org/name"], Path::new("/")), &["HF_HOME"]);
    for no_id in ["../name", "org/../name", "a/b/c", "org/", "/name", "org/na me", "org/.."] {
        assert_quiet(&with(&["vllm", "serve", no_id]));
    }
}

#[test]
fn a_local_path_goes_before_a_hub_id() {
    let folder = TempDir::new().unwrap();
    cache(folder.path());
    model(folder.path().join("org/name/m.safetensors"));
    let environment = [("HF_HUB_CACHE", folder.path())];
    let resolution = launched_with(&["vllm", "serve", "org/name"], &environment, folder.path());
    assert_eq!(names(&resolution), ["m.safetensors"]);
    assert_eq!(resolution.artifacts[0].found, Found::CommandLine);
}

#[test]
fn what_is_discovered_is_looked_at() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    model(at("model.safetensors"));
    torch(at("weights.bin"));
    std::fs::write(at("data.bin"), "some bytes").unwrap();
    std::fs::write(at("net.onnx"), "onnx").unwrap();
    let found = |name: &str| discover(&at(name)).unwrap();
    assert_eq!(found("model.safetensors").unwrap().found, Found::Discovered);
    assert_eq!(found("weights.bin").unwrap().format, Format::TorchZip);
    assert_eq!(found("net.onnx").unwrap().payload_bytes(), None);
    assert!(found("data.bin").is_none());
    // Every Python start reads these; they are lists of paths.
    std::fs::write(at("distutils-precedence.pth"), "import os; var = 'SETUPTOOLS_USE_DISTUTILS'\n").unwrap();
    std::fs::write(at("short.pth"), "..\n").unwrap();
    assert!(found("distutils-precedence.pth").is_none());
    assert!(found("short.pth").is_none());
    models::torch_legacy(&at("old.pth"), 100).unwrap();
    assert_eq!(found("old.pth").unwrap().format, Format::TorchLegacy);
    assert!(discover(&at("missing.pt")).is_err());
}

#[test]
fn names_of_models() {
    for name in [
        "/a/m.safetensors",
        "m.GGUF",
        "x.pt",
        "x.bin",
        "/a.b/c.ckpt",
        "a.onnx_data",
        "w.npz",
        "w.npy",
        "a.onnx_data_2",
        "a.onnx.data",
    ] {
        assert!(has_model_name(OsStr::new(name)), "{name}");
    }
    let digest = "0123456789abcdef".repeat(4);
    assert!(has_model_name(OsStr::new(&format!("/c/blobs/{digest}"))));
    assert!(has_model_name(OsStr::new(&format!("/c/blobs/sha256-{digest}"))));
    for name in [
        "",
        "/",
        "safetensors",
        ".bin",
        "a.py",
        "a.so",
        "a.json",
        "/x.pt/y",
        "m.safetensors (deleted)",
        "a.data",
        ".onnx.data",
    ] {
        assert!(!has_model_name(OsStr::new(name)), "{name}");
    }
    assert!(!has_model_name(OsStr::new(&format!("/c/{digest}"))));
    assert!(!has_model_name(OsStr::new(&format!("/c/blobs/{}", &digest[1..]))));
}

#[test]
fn a_pipeline_is_the_parts_that_it_names() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for part in ["unet", "vae", "left_out"] {
        model(at(part).join("diffusion_pytorch_model.safetensors"));
        model(at(part).join("diffusion_pytorch_model.fp16.safetensors"));
        torch(at(part).join("diffusion_pytorch_model.bin"));
    }
    model(at("one-file-of-all.safetensors"));
    std::fs::create_dir(at("scheduler")).unwrap();
    let index = r#"{"_class_name":"P","unet":["diffusers","U"],"vae":["diffusers","V"],"scheduler":["diffusers","S"],
        "safety_checker":[null,null],"../left_out":["a","b"],"left_out":"no part"}"#;
    std::fs::write(at("model_index.json"), index).unwrap();
    let expected = ["unet", "vae"].map(|part| at(part).join("diffusion_pytorch_model.safetensors"));
    let path = folder.path().to_str().unwrap();
    for resolution in [
        declared(folder.path()),
        launched(&["x", path], Path::new("/")),
        launched(&["x", "--model", path], Path::new("/")),
    ] {
        assert_quiet(&resolution);
        let paths: Vec<PathBuf> = resolution.artifacts.into_iter().map(|artifact| artifact.path).collect();
        assert_eq!(paths, expected);
    }
    std::fs::write(at("model_index.json"), "[".repeat(1000)).unwrap();
    let resolution = declared(folder.path());
    assert_eq!(names(&resolution), ["one-file-of-all.safetensors"]);
    assert_warns(&resolution, &["model_index.json", "no index of a pipeline"]);
}

/// A folder of models: entered where it was named as the model, one level deep, and never from a mere argument.
#[test]
fn folders_of_a_folder_count_where_it_was_named() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    model(at("a/m.safetensors"));
    model(at("b/n.safetensors"));
    model(at("b/deeper/o.safetensors"));
    model(at(".hidden/p.safetensors"));
    symlink(".", at("loop")).unwrap();
    symlink("a", at("same")).unwrap();
    let path = folder.path().to_str().unwrap();
    for resolution in [declared(folder.path()), launched(&["x", "--model", path], Path::new("/"))] {
        assert_quiet(&resolution);
        assert_eq!(names(&resolution), ["m.safetensors", "n.safetensors"]);
    }
    assert!(launched(&["x", path, "--cache", path], Path::new("/")).artifacts.is_empty());
    // What lies in the folder itself goes before.
    model(at("own.safetensors"));
    assert_eq!(names(&declared(folder.path())), ["own.safetensors"]);
}

#[test]
fn a_shells_script_is_searched() {
    let folder = TempDir::new().unwrap();
    cache(&folder.path().join("hub"));
    model(folder.path().join("m/my model.safetensors"));
    model(folder.path().join("x.safetensors"));
    let hub = folder.path().join("hub");
    let of = |script: &str| {
        let environment = [("HF_HUB_CACHE", hub.as_path())];
        let resolution = launched_with(&["env", "A=1", "bash", "-lc", script], &environment, folder.path());
        assert_quiet(&resolution);
        names(&resolution)
    };
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    assert_eq!(of("vllm serve org/name --port 8000"), shards);
    assert_eq!(of("ulimit -l unlimited; A=b exec vllm serve 'org/name' | tee log"), shards);
    assert_eq!(of("cd \"$WHERE\" && vllm serve org/name x.safetensors"), shards);
    assert_eq!(of("cd m; serve --weights=my\\ model.safetensors"), ["my model.safetensors"]);
    assert_eq!(of("sh -c 'serve \"m/my model.safetensors\"'"), ["my model.safetensors"]);
    let nothing: [&str; 0] = [];
    assert_eq!(of("vllm serve $MODEL"), nothing);
    assert_eq!(of("cat < x.safetensors > /dev/null # org/name"), nothing);
    assert_eq!(of("echo 'x.safetensors"), nothing);
    assert_eq!(of("x.safetensors"), nothing);
}

#[test]
fn inputs_of_numpy_do_not_join_by_themselves() {
    let folder = TempDir::new().unwrap();
    let inputs = folder.path().join("inputs.npy");
    std::fs::write(&inputs, b"\x93NUMPY\x01\0").unwrap();
    assert_quiet(&launched(&["x", "inputs.npy", "--data=inputs.npy"], folder.path()));
    assert!(launched(&["x", "inputs.npy"], folder.path()).artifacts.is_empty());
    assert!(discover(&inputs).unwrap().is_none());
    assert_eq!(names(&declared(&inputs)), ["inputs.npy"]);
}

/// The same where they can be read, and where what they hold is not known.
#[test]
fn arrays_join_where_their_payload_is_known() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let spec = |dtype: &str| TensorSpec { dtype: dtype.into(), ..TensorSpec::flat("a", "", 8, 4) };
    models::npy(&at("a.npy"), 1, &spec("'<f4'"), Fill::Pattern).unwrap();
    models::npy(&at("objects.npy"), 1, &spec("'O'"), Fill::Pattern).unwrap();
    models::npz(&at("a.npz"), &[spec("'<f4'")]).unwrap();
    let resolution = launched(&["x", "a.npy", "objects.npy", "--weights=a.npz"], folder.path());
    assert_quiet(&resolution);
    assert_eq!(names(&resolution), ["a.npy", "a.npz"]);
    assert!(discover(&at("a.npz")).unwrap().is_some());
    assert!(discover(&at("objects.npy")).unwrap().is_none());
    assert_eq!(names(&declared(folder.path())), ["a.npz"]);
}

/// Their numbers in ONNX: FLOAT, BFLOAT16, INT8.
fn onnx(path: PathBuf, location: &str) -> [models::Model; 2] {
    let tensors: Vec<_> = mixed().into_iter().zip([1, 16, 3, 1]).collect();
    models::onnx_external(&path, location, 4096, &tensors, Fill::Pattern).unwrap()
}

#[test]
fn a_model_brings_the_files_of_its_data() {
    let folder = TempDir::new().unwrap();
    for location in ["model.onnx_data", "model.onnx.data", "model.bin", "anything at all"] {
        let [model, data] = onnx(folder.path().join("model.onnx"), location);
        for resolution in [
            declared(&model.path),
            declared(folder.path()),
            launched(&["x", "--model", "model.onnx"], folder.path()),
            launched(&["x", "model.onnx", location], folder.path()),
        ] {
            assert_quiet(&resolution);
            assert_eq!(names(&resolution), ["model.onnx", location]);
            let [own, other] = resolution.artifacts.as_slice() else { panic!() };
            assert_eq!((own.format, own.payload_bytes()), (Format::Onnx, Some(0)));
            assert_eq!(other.format, Format::OnnxData);
            assert_eq!(other.layout.as_ref().unwrap().payload, super::payload(&data));
        }
        // Found by itself, it is what the model says that has its name.
        if location != "anything at all" {
            let found = discover(&data.path).unwrap().unwrap();
            assert_eq!(found.payload_bytes(), Some(data.payload_bytes()), "{location}");
            assert_eq!(names(&declared(&data.path)), [location]);
        }
        let model = discover(&model.path).unwrap().unwrap();
        let (files, warnings) = discover_named_by(&model);
        assert_eq!((files.len(), files[0].found.clone(), warnings.len()), (1, Found::Discovered, 0));
        std::fs::remove_file(&data.path).unwrap();
        let resolution = declared(&folder.path().join("model.onnx"));
        assert_eq!(names(&resolution), ["model.onnx"]);
        assert_warns(&resolution, &[location, "cannot be had"]);
    }
}

#[test]
fn a_model_leads_nowhere_else() {
    let folder = TempDir::new().unwrap();
    let inside = folder.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let outside = folder.path().join("outside.bin");
    std::fs::write(&outside, [0; 100]).unwrap();
    std::fs::write(inside.join("d"), [0; 100]).unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    let path = inside.join("m.onnx");
    let spec = TensorSpec::flat("w", "", 4, 4);
    let named = |place: &[(&str, &str)]| {
        let tensor = models::onnx_outside(&spec, 1, place);
        std::fs::write(&path, models::onnx_model(&models::onnx_field(5, &tensor))).unwrap();
        declared(&path)
    };
    let absolute = outside.to_str().unwrap();
    for location in ["../outside.bin", absolute, "sub/../../outside.bin", ".//etc/hostname", "./../d", "", "a\0b", ".."]
    {
        let resolution = named(&[("location", location)]);
        assert_eq!(names(&resolution), ["m.onnx"], "{location:?}");
        assert_warns(&resolution, &["refuses", path.to_str().unwrap()]);
    }
    for missing in ["missing", "/", "."] {
        assert_eq!(names(&named(&[("location", missing)])), ["m.onnx"]);
        assert!(named(&[("location", missing)]).failures > 0);
    }
    // As shards are in a content-addressed cache.
    assert_quiet(&named(&[("location", "link")]));
    let resolution = named(&[("location", "./d"), ("offset", "84")]);
    assert_quiet(&resolution);
    assert_eq!(resolution.artifacts[1].payload_bytes(), Some(16));
    for (offset, length) in
        [("85", "16"), ("101", "0"), ("0", "101"), ("18446744073709551615", "16"), ("1", &u64::MAX.to_string())]
    {
        let resolution = named(&[("location", "d"), ("offset", offset), ("length", length)]);
        assert_eq!(resolution.artifacts[1].payload_bytes(), None);
        assert_warns(&resolution, &["the payload is unknown", "\"w\"", "of a file of 100"]);
    }
}

/// Tied weights, and two models with their data in one file: bytes count once, whoever has them.
#[test]
fn shared_external_data_counts_once() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("d"), [0; 100]).unwrap();
    let model = |name: &str, offsets: [&str; 2]| {
        let spec = TensorSpec::flat("w", "", 10, 4);
        let tensor =
            |offset| models::onnx_field(5, &models::onnx_outside(&spec, 1, &[("location", "d"), ("offset", offset)]));
        std::fs::write(folder.path().join(name), models::onnx_model(&offsets.map(tensor).concat())).unwrap();
    };
    model("a.onnx", ["0", "20"]);
    model("b.onnx", ["20", "55"]);
    let resolution = declared(&folder.path().join("a.onnx"));
    assert_eq!(resolution.artifacts[1].payload_bytes(), Some(60));
    let resolution = declared(folder.path());
    assert_quiet(&resolution);
    assert_eq!(names(&resolution), ["a.onnx", "d", "b.onnx"]);
    let layout = resolution.artifacts[1].layout.as_ref().unwrap();
    assert_eq!((layout.tensors.len(), layout.payload.len()), (3, 95));
    // One of them is wrong about the file.
    model("b.onnx", ["20", "90"]);
    let resolution = declared(folder.path());
    assert_eq!(resolution.artifacts[1].payload_bytes(), None);
    assert_warns(&resolution, &["/d: the payload is unknown", "at byte 90"]);
}

#[test]
fn conversions_do_not_count_beside_what_they_are_of() {
    let folder = TempDir::new().unwrap();
    for name in ["model", "model_q4", "model_fp16", "encoder", "decoder_int8"] {
        onnx(folder.path().join(format!("{name}.onnx")), &format!("{name}.onnx_data"));
    }
    let expected = [
        "decoder_int8.onnx",
        "decoder_int8.onnx_data",
        "encoder.onnx",
        "encoder.onnx_data",
        "model.onnx",
        "model.onnx_data",
    ];
    assert_eq!(names(&declared(folder.path())), expected);
    model(folder.path().join("m.safetensors"));
    assert_eq!(names(&declared(folder.path())), ["m.safetensors"]);
}

/// What is no file is told at once: no open waits for a writer, no device is read.
#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let fifo = |name: &str| nix::unistd::mkfifo(&at(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fifo("m.safetensors");
    fifo("model.safetensors.index.json");
    fifo("m-00001-of-00001.gguf");
    let _socket = std::os::unix::net::UnixListener::bind(at("s.gguf")).unwrap();
    for name in ["m.safetensors", "m-00001-of-00001.gguf", "s.gguf", "/dev/zero", "/dev/null"] {
        let resolution = declared(&at(name));
        assert!(resolution.artifacts.is_empty());
        assert_warns(&resolution, &[name, "is not a regular file"]);
    }
    assert_warns(&declared(&at("model.safetensors.index.json")), &["index.json", "is not a regular file"]);
    assert!(declared(folder.path()).artifacts.is_empty());
    assert!(launched(&["x", "m.safetensors", "s.gguf", "/dev/zero"], folder.path()).artifacts.is_empty());
}
