//! A case's scratch folder, its model files and mounts, all of which go away with it.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use stagemark_fixtures::models::{Fill, uniform};
use tempfile::TempDir;

use crate::run::Launch;
use crate::support::{reference_loader, stagemark};

pub const MIB: u64 = 1 << 20;
pub const PAGE: u64 = 4096;

/// Where one case happens.
pub struct Bench {
    scratch: TempDir,
    mounts: RefCell<Vec<PathBuf>>,
    runs: Cell<u32>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench { scratch: tempfile::tempdir().unwrap(), mounts: RefCell::default(), runs: Cell::new(0) }
    }

    /// A path in the scratch folder.
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.scratch.path().join(Path::new(name.as_ref()))
    }

    /// A new folder in the scratch folder.
    #[allow(dead_code)]
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// A safetensors file of eight tensors that is on the disk and not in the page cache. Its payload begins at a
    /// page's edge and ends with the file.
    pub fn model(&self, payload: u64, fill: Fill) -> Model {
        Model::write(self.path("model.safetensors"), payload, fill)
    }

    /// mount(8) with these arguments, over a new folder of this name; taken down with the bench.
    #[allow(dead_code)]
    pub fn mount(&self, name: &str, arguments: &[&OsStr]) -> PathBuf {
        let place = self.folder(name);
        let output = Command::new("mount").args(arguments).arg(&place).output().unwrap();
        assert!(output.status.success(), "mount {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        self.unmount_later(&place);
        place
    }

    /// Takes down what something else mounted there, when the bench goes.
    #[allow(dead_code)]
    pub fn unmount_later(&self, place: &Path) {
        self.mounts.borrow_mut().push(place.to_owned());
    }

    /// The reference loader on a model: its mode and further options.
    pub fn loader(&self, model: &Model, arguments: &str) -> Launch {
        let [program, verb] = reference_loader();
        let mut launch = self.command([program, verb]);
        let truth = launch.truth_path();
        launch.arguments(["--model".as_ref(), model.path.as_os_str(), "--truth".as_ref(), truth.as_os_str()]);
        launch.arguments(["--mode"]).arguments(arguments.split_whitespace());
        launch.payload(model.payload)
    }

    /// The reference loader with a script of acts (fixtures/src/loader/acts/mod.rs says which there are). Paths are
    /// written by [`word`]. The artifacts are declared by [`Launch::artifact`], or discovered.
    pub fn acts(&self, script: &str) -> Launch {
        let number = self.runs.get();
        let path = self.script(&format!("script-{number}"), script);
        let [program, verb] = reference_loader();
        let mut launch = self.command([program, verb, "acts"]);
        let truth = launch.truth_path();
        launch.arguments([path, truth]);
        launch
    }

    /// A script in a file, for `exec`.
    pub fn script(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, script).unwrap();
        path
    }

    /// Any command, `stagemark run --quiet` before it. Where it writes a truth, it does so at [`Launch::truth_path`].
    pub fn command<S: AsRef<OsStr>>(&self, argv: impl IntoIterator<Item = S>) -> Launch {
        let number = self.runs.get();
        self.runs.set(number + 1);
        let folder = self.path(format!("run-{number}"));
        Launch::new(stagemark(), folder, argv)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for place in self.mounts.borrow().iter().rev() {
            // Lazily: a case that failed may have left something in it.
            let _ = Command::new("umount").arg("--lazy").arg(place).output();
        }
    }
}

/// A path as a word of a script.
pub fn word(path: impl AsRef<Path>) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    let bytes = path.as_ref().as_os_str().as_bytes().iter();
    bytes.map(|&byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02x}") }).collect()
}

/// A model file.
#[derive(Clone, Debug)]
pub struct Model {
    pub path: PathBuf,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of tensor data, which end with the file.
    pub payload: u64,
    /// Where they begin.
    #[allow(dead_code)]
    pub start: u64,
}

impl Model {
    /// Writes one there, and takes it out of the page cache.
    pub fn write(path: PathBuf, payload: u64, fill: Fill) -> Model {
        let written = uniform(&path, payload, 8, fill).unwrap();
        let model = Model { path, size: written.size, payload, start: written.size - payload };
        model.evict();
        model
    }

    /// Writes it out to the disk and takes it out of the page cache.
    pub fn evict(&self) {
        let file = File::open(&self.path).unwrap();
        file.sync_all().unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    }

    /// Takes all of it into the page cache.
    pub fn warm(self) -> Model {
        std::io::copy(&mut File::open(&self.path).unwrap(), &mut std::io::sink()).unwrap();
        self
    }

    /// The most that one read of a mapped or read file brings in beyond what was asked for: a window of read-ahead, and
    /// the next one, which is begun when the first is reached (mm/readahead.c).
    pub fn read_ahead(&self) -> u64 {
        let device = std::fs::metadata(&self.path).unwrap().dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let text = std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        2 * 1024 * text.map_or(128, |text| text.trim().parse::<u64>().unwrap())
    }
}
