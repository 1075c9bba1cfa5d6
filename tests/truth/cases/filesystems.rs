//! Residency by filesystem and permission: right, bounded or absent, and who is believed.
//!
//! Second opinions are fincore(1) and the loader's own smaps; on FUSE the former would empty what it looks at.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde_json::Value;
use stagemark_fixtures::models::Fill;

use crate::bench::{Bench, MIB, Model, PAGE};
use crate::claim::{Claim, Figure};
use crate::harness::Case;
use crate::needs::Need;
use crate::profile::{OWN_STORAGE, Profile, taken_back};
use crate::program;
use crate::run::Launch;
use crate::support::stagemark;

const PYTHON: Need = Need::Program("python3");

pub const CASES: &[Case] = &[
    Case::new("file_of_another_user", file_of_another_user).needs(&[Need::Root]),
    Case::new("tables_that_may_not_be_read", tables_that_may_not_be_read).needs(&[Need::Root, PYTHON]),
    Case::new("overlay_lower", |bench| overlay(bench, Layer::Lower)).needs(OVERLAY),
    Case::new("overlay_upper", |bench| overlay(bench, Layer::Upper)).needs(OVERLAY),
    Case::new("overlay_copied_up", |bench| overlay(bench, Layer::CopiedUp)).needs(OVERLAY),
    Case::new("on_ext4", |bench| on_disk(bench, "ext4")).needs(&[Need::Mounts, Need::Program("mkfs.ext4")]),
    Case::new("on_xfs", |bench| on_disk(bench, "xfs")).needs(&[
        Need::Mounts,
        Need::Filesystem("xfs"),
        Need::Program("mkfs.xfs"),
    ]),
    Case::new("on_btrfs", |bench| on_disk(bench, "btrfs")).needs(BTRFS),
    Case::new("on_tmpfs", on_tmpfs).needs(&[Need::Mounts]),
    Case::new("fuse_known_before_start", fuse_known_before_start).needs(BINDFS),
    Case::new("fuse_found_after_start", fuse_found_after_start).needs(BINDFS),
    Case::new("on_hugetlbfs", on_hugetlbfs)
        .needs(&[Need::Mounts, Need::Filesystem("hugetlbfs"), Need::File("/proc/sys/vm/nr_hugepages"), PYTHON])
        .alone(),
    Case::new("direct_reads_of_a_warm_file", direct_reads_of_a_warm_file),
    Case::new("two_files_of_one_inode_in_maps", two_files_of_one_inode_in_maps).needs(BTRFS),
    Case::new("deleted_on_btrfs", deleted_on_btrfs).needs(BTRFS),
    Case::new("deleted_on_btrfs_for_a_user", deleted_on_btrfs_for_a_user).needs(BTRFS),
    Case::new("page_tables_of_a_mapping_partly_written", private_mapping_partly_written).needs(&[PYTHON]),
    Case::new("declared_by_one_mount_loaded_by_another", one_file_by_two_mounts).needs(&[Need::Mounts]),
    Case::new("evicted_and_read_again", evicted_and_read_again).needs(&[PYTHON]),
];

pub(super) const OVERLAY: &[Need] = &[Need::Mounts, Need::Filesystem("overlay")];
const BTRFS: &[Need] = &[Need::Mounts, Need::Filesystem("btrfs"), Need::Program("mkfs.btrfs"), PYTHON];
pub(super) const BINDFS: &[Need] = &[Need::Mounts, Need::Fuse, Need::Program("bindfs"), PYTHON];

const PAYLOAD: u64 = 32 * MIB;
const HALF: u64 = 16 * MIB;
/// Half of the payload touched, page by page and without read-ahead.
const LAZY: &str = "mmap-lazy --touch 16MiB --advice random --shared --notify --hold 0.1";

/// Where a fault maps pages that are in memory, it maps its neighbours too (mm/memory.c, fault_around_bytes).
const FAULT_AROUND: u64 = 16 * PAGE;

/// What is known of the first artifact.
fn artifact(run: &Profile) -> Value {
    run.run.json()["artifacts"][0].clone()
}

fn believed(run: &Profile, by: &str) -> Claim {
    let trust = artifact(run)["trust"].clone();
    Claim::words("who is believed", by, format!("{}: {}", trust["by"].as_str().unwrap(), trust["because"]))
}

/// A figure of `detail.csv` about an artifact at a stage.
fn detail(run: &Profile, stage: &str, artifact: usize, metric: &str) -> Figure {
    let at = run.stage(stage).text("sampled_ns").to_owned();
    let row = run.run.rows("detail.csv").into_iter().find(|row| {
        (row["t_ns"].as_str(), row["scope"].as_str()) == (&at, "artifact")
            && row["id"] == artifact.to_string()
            && row["metric"] == metric
    });
    row.map_or_else(|| Figure::Absent("no row".into()), |row| Figure::Exact(row["value"].parse().unwrap()))
}

/// The page-table view at a stage, as the bound that it is.
fn page_tables(run: &Profile, stage: &str, truth: std::ops::RangeInclusive<u64>, widest: u64) -> Claim {
    let figure = match run.at(stage, "resident_payload_low_bytes") {
        Figure::Exact(low) => Figure::Bounds(Some(low), None),
        other => other,
    };
    Claim::between(format!("resident_payload_low_bytes at {stage}"), truth, figure).widest(widest)
}

/// What fincore(1) says of a file now against what the run said when the command had ended.
fn second_opinion(run: &Profile, model: &Model) -> Vec<Claim> {
    if Need::Program("fincore").lacking().is_some() {
        return Vec::new();
    }
    let output =
        Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(&model.path).output().unwrap();
    let bytes: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    // Of the header it counts pages that the payload has no part in; and the host may evict.
    let (slack, header) = (model.payload / 100, model.start.next_multiple_of(PAGE));
    let within = bytes.saturating_sub(header)..=bytes + slack;
    vec![run.within("exited", "resident_payload_bytes", within)]
}

/// What must hold of the lazy loader wherever its file is, if the page cache has only what was touched.
fn lazily_loaded(run: &Profile, model: &Model) -> Vec<Claim> {
    let mut claims = vec![
        run.resident("module_populated", HALF, 0),
        run.resident("first_response", PAYLOAD, 0),
        page_tables(run, "module_populated", HALF..=HALF, HALF / 100),
        page_tables(run, "first_response", PAYLOAD..=PAYLOAD, PAYLOAD / 100),
    ];
    claims.extend(run.mapped("first_response", model.size, PAYLOAD));
    claims
}

/// A program of this test in Python, whose stages are the lines `stage NAME`, and what it writes down.
struct Script {
    launch: Launch,
    notes: PathBuf,
}

impl Script {
    /// `files` are in `FILES`, and not on the command line.
    fn new(bench: &Bench, text: &str, files: &[&Path], stages: &[&str]) -> Script {
        Script::under(stagemark(), bench, text, files, stages)
    }

    /// The same under this program of stagemark.
    fn under(program: Command, bench: &Bench, text: &str, files: &[&Path], stages: &[&str]) -> Script {
        const PRELUDE: &str = "\
import mmap, os, sys, time
def stage(name):
    print('stage', name, flush=True)
    time.sleep(0.3)
def note(text):
    with open(os.environ['NOTES'], 'a') as notes: notes.write(str(text) + '\\n')
def rss():
    lines = open('/proc/self/smaps').read().split('VmFlags')
    return sum(int(line.split('Rss:')[1].split()[0]) * 1024 for line in lines if FILES[0] in line)
def touch(mapping, start, end):
    for offset in range(start, end, 4096): mapping[offset]
FILES = os.environ['FILES'].split(':')
";
        let script = bench.path("loader.py");
        std::fs::write(&script, format!("{PRELUDE}{text}")).unwrap();
        let notes = bench.path("notes");
        let joined = files.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>().join(":");
        let argv: [&OsStr; 2] = ["python3".as_ref(), script.as_os_str()];
        let launch = Launch::new(program, bench.path("run"), argv).environment("FILES", joined);
        let launch = launch.environment("NOTES", &notes);
        let options = stages.iter().flat_map(|stage| ["--stage".to_owned(), format!("{stage}=log:^stage {stage}$")]);
        Script { launch: launch.options(options), notes }
    }

    fn with(self, change: impl FnOnce(Launch) -> Launch) -> Script {
        Script { launch: change(self.launch), ..self }
    }

    /// The run, and the lines that the script wrote down.
    fn run(self) -> (Profile, Vec<String>) {
        let run = self.launch.run();
        let notes = std::fs::read_to_string(&self.notes).unwrap_or_default();
        (run, notes.lines().map(str::to_owned).collect())
    }
}

const NOBODY: u32 = 65_534;

/// A model of root's, and a stagemark that another user may run beside it: that one may not be allowed to walk to where
/// this was built.
fn for_another_user(bench: &Bench) -> (Model, PathBuf) {
    let model = bench.model(PAYLOAD, Fill::Pattern);
    std::fs::set_permissions(&model.path, Permissions::from_mode(0o644)).unwrap();
    std::fs::set_permissions(bench.path(""), Permissions::from_mode(0o777)).unwrap();
    let program = bench.path("stagemark");
    program::copy(Path::new(stagemark().get_program()), &program);
    (model, program)
}

fn file_of_another_user(bench: &Bench) -> Vec<Claim> {
    let (model, program) = for_another_user(bench);
    let mut launch = Launch::new(
        Command::new(&program),
        bench.path("run"),
        [program.as_os_str(), OsStr::new("reference-loader"), OsStr::new("--model"), model.path.as_os_str()],
    );
    let truth = launch.truth_path();
    launch.arguments([OsStr::new("--truth"), truth.as_os_str(), OsStr::new("--mode")]);
    launch.arguments(LAZY.split_whitespace());
    let run = launch.payload(PAYLOAD).by_user(NOBODY).run();
    let told = Command::new(&program).arg("report").arg(&run.run.path).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let mut claims = vec![
        page_tables(&run, "module_populated", HALF..=HALF, HALF / 100),
        page_tables(&run, "first_response", PAYLOAD..=PAYLOAD, PAYLOAD / 100),
    ];
    claims.extend(run.mapped("first_response", model.size, PAYLOAD));
    let resident = run.at("module_populated", "resident_payload_bytes");
    if artifact(&run)["trust"]["by"] == "cachestat" {
        // A kernel whose cachestat answers anyone: then the answer is the truth.
        claims.push(run.resident("module_populated", HALF, 0));
    } else {
        claims.push(Claim::absent("resident_payload_bytes at module_populated", "neither the file's owner", resident));
        claims.push(believed(&run, "none"));
        let bound = "At module_populated at least 16 of 32 MiB of the payload was resident";
        claims.push(Claim::words("the report's words", bound, told));
        let between = run.samples.iter().filter(|sample| sample.get("resident_payload_low_bytes").is_some()).count();
        claims.push(Claim::holds("the bound is there on ticks too", between > 5, format!("in {between} samples")));
    }
    claims
}

/// A loader that has made itself unreadable (prctl(2), `PR_SET_DUMPABLE`), as programs with secrets do.
fn tables_that_may_not_be_read(bench: &Bench) -> Vec<Claim> {
    let (model, program) = for_another_user(bench);
    let script = bench.path("loader.py");
    let text = "
import ctypes, mmap, os, sys, time
mapping = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, mmap.MAP_SHARED, mmap.PROT_READ)
for offset in range(0, len(mapping), 4096): mapping[offset]
print('stage readable', flush=True)
time.sleep(0.3)
ctypes.CDLL(None).prctl(4, 0)
print('stage hidden', flush=True)
time.sleep(0.3)
";
    std::fs::write(&script, text).unwrap();
    let argv = ["python3".as_ref(), script.as_os_str(), model.path.as_os_str()];
    let options = ["--stage", "readable=log:^stage readable$", "--stage", "hidden=log:^stage hidden$"];
    let launch = Launch::new(Command::new(&program), bench.path("run"), argv).options(options);
    let run = launch.payload(PAYLOAD).by_user(NOBODY).run();
    let low = |stage| run.at(stage, "resident_payload_low_bytes");
    vec![
        page_tables(&run, "readable", PAYLOAD..=PAYLOAD, PAYLOAD / 100),
        Claim::absent("resident_payload_low_bytes at hidden", "cannot be read: permission denied", low("hidden")),
    ]
}

#[derive(Clone, Copy, PartialEq)]
enum Layer {
    Lower,
    Upper,
    CopiedUp,
}

fn overlay(bench: &Bench, layer: Layer) -> Vec<Claim> {
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| bench.folder(name));
    let below = if layer == Layer::Upper { &upper } else { &lower };
    Model::write(below.join("model.safetensors"), PAYLOAD, Fill::Pattern);
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let arguments = ["-t", "overlay", "overlay", "-o", &options].map(OsStr::new);
    let merged = bench.mount("merged", &arguments);
    let path = merged.join("model.safetensors");
    if layer == Layer::CopiedUp {
        // Opening it for writing does that.
        drop(File::options().write(true).open(&path).unwrap());
        assert!(upper.join("model.safetensors").exists());
        let file = File::open(upper.join("model.safetensors")).unwrap();
        file.sync_all().unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    }
    let size = std::fs::metadata(&path).unwrap().len();
    let model = Model { path, size, payload: PAYLOAD, start: size - PAYLOAD };
    let run = bench.loader(&model, LAZY).run();
    let mut claims = lazily_loaded(&run, &model);
    claims.push(believed(&run, "mincore: \"overlayfs"));
    claims.extend(second_opinion(&run, &model));
    claims
}

/// A filesystem of this kind in an image of its own.
pub(super) fn disk(bench: &Bench, kind: &str) -> PathBuf {
    let image = bench.path("image");
    File::create(&image).unwrap().set_len(512 * MIB).unwrap();
    let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    bench.mount("disk", &["-o".as_ref(), "loop".as_ref(), image.as_os_str()])
}

fn on_disk(bench: &Bench, kind: &str) -> Vec<Claim> {
    let model = Model::write(disk(bench, kind).join("model.safetensors"), PAYLOAD, Fill::Pattern);
    let run = bench.loader(&model, LAZY).run();
    let mut claims = lazily_loaded(&run, &model);
    claims.push(believed(&run, "cachestat"));
    claims.push(Claim::words("filesystem", kind, artifact(&run)["filesystem"].as_str().unwrap_or_default()));
    claims.extend(second_opinion(&run, &model));
    claims
}

fn on_tmpfs(bench: &Bench) -> Vec<Claim> {
    let place = bench.mount("memory", &["-t", "tmpfs", "tmpfs"].map(OsStr::new));
    let model = Model::write(place.join("model.safetensors"), PAYLOAD, Fill::Pattern);
    let run = bench.loader(&model, LAZY).run();
    // It is all there, in swap at the worst, from the beginning; page tables know what was touched, and its neighbours.
    let mut claims = vec![
        run.resident("mapping_available", PAYLOAD, 0),
        run.resident("first_response", PAYLOAD, 0),
        page_tables(&run, "module_populated", PAYLOAD..=PAYLOAD, HALF + HALF / 100),
    ];
    let low = run.stage("module_populated").known("resident_payload_low_bytes");
    let touched = HALF..=HALF + FAULT_AROUND;
    claims.push(Claim::between("page tables at module_populated", touched, Figure::Exact(low)));
    claims.push(believed(&run, "cachestat"));
    claims.extend(second_opinion(&run, &model));
    claims
}

/// A model file that is seen through bindfs.
pub(super) fn through_fuse(bench: &Bench) -> Model {
    let below = bench.folder("below");
    Model::write(below.join("model.safetensors"), PAYLOAD, Fill::Pattern);
    let place = bench.folder("fuse");
    let output = Command::new("bindfs").arg(&below).arg(&place).output().unwrap();
    assert!(output.status.success(), "bindfs: {}", String::from_utf8_lossy(&output.stderr));
    bench.unmount_later(&place);
    let path = place.join("model.safetensors");
    let size = std::fs::metadata(&path).unwrap().len();
    Model { path, size, payload: PAYLOAD, start: size - PAYLOAD }
}

fn fuse_known_before_start(bench: &Bench) -> Vec<Claim> {
    let model = through_fuse(bench);
    let text = "
file = os.open(FILES[0], os.O_RDONLY)
mapping = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
mapping.madvise(mmap.MADV_RANDOM)
START = len(mapping) - (32 << 20)
touch(mapping, START, START + (16 << 20))
note(rss())
stage('half')
note(rss())
touch(mapping, START, len(mapping))
stage('whole')
note(rss())
";
    let script = Script::new(bench, text, &[&model.path], &["half", "whole"]);
    let (run, notes) = script.with(|launch| launch.artifact(&model.path).payload(PAYLOAD)).run();
    let mut claims =
        vec![run.resident("half", HALF, 0), run.resident("whole", PAYLOAD, 0), believed(&run, "cachestat")];
    claims.push(page_tables(&run, "half", HALF..=HALF, HALF / 100));
    claims.push(Claim::holds(
        "the profiler emptied nothing",
        notes[0] == notes[1],
        format!("{} B, {} B", notes[0], notes[1]),
    ));
    // read_bytes knows nothing of what FUSE brought in.
    claims.push(run.within("whole", "read_bytes", 0..=OWN_STORAGE));
    claims
}

fn fuse_found_after_start(bench: &Bench) -> Vec<Claim> {
    let model = through_fuse(bench);
    let text = "
file = os.open(FILES[0], os.O_RDONLY)
mapping = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
touch(mapping, 0, len(mapping))
note(rss())
time.sleep(1)
stage('loaded')
note(rss())
os.close(os.open(FILES[0], os.O_RDONLY))
note(rss())
";
    let script = Script::new(bench, text, &[&model.path], &["loaded"]);
    let (run, notes) = script.with(Launch::any_payload).run();
    let rss: Vec<u64> = notes.iter().map(|note| note.parse().unwrap()).collect();
    let whole = model.size.next_multiple_of(PAGE);
    let low = match detail(&run, "loaded", 0, "resident_low_bytes") {
        Figure::Exact(low) => Figure::Bounds(Some(low), None),
        other => other,
    };
    vec![
        Claim::exact("mapped and in memory by smaps, first", whole, Figure::Exact(rss[0])),
        Claim::exact("the same after the profiler has found the file", whole, Figure::Exact(rss[1])),
        Claim::holds("a second open() empties the cache here", rss[2] < whole / 2, format!("{} B are left", rss[2])),
        Claim::absent("resident_payload_bytes", "opening it would empty", run.at("loaded", "resident_payload_bytes")),
        Claim::exact("resident bytes of the file by page tables", model.size, low).widest(MIB),
        believed(&run, "none: \"found after start on a FUSE file system"),
        Claim::words("the warning says what to do", "name it with --artifact", run.warnings()),
        run.exactly("loaded", "artifacts", 1),
        run.exactly("loaded", "mapped_bytes", model.size),
    ]
}

/// Huge pages for the length of a case; what was there before is put back.
struct HugePages {
    before: u64,
}

impl HugePages {
    const COUNT: &str = "/proc/sys/vm/nr_hugepages";

    fn count() -> u64 {
        std::fs::read_to_string(HugePages::COUNT).unwrap().trim().parse().unwrap()
    }

    fn more(pages: u64) -> HugePages {
        let before = HugePages::count();
        std::fs::write(HugePages::COUNT, (before + pages).to_string()).unwrap();
        HugePages { before }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(HugePages::COUNT, self.before.to_string());
    }
}

fn on_hugetlbfs(bench: &Bench) -> Vec<Claim> {
    let pages = HugePages::more(8);
    let got = HugePages::count() - pages.before;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("Hugepagesize:")).unwrap();
    let huge = line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024;
    assert!(got >= 4, "memory is too scattered for 4 huge pages");
    let place = bench.mount("huge", &["-t", "hugetlbfs", "hugetlbfs"].map(OsStr::new));
    let path = place.join("model.bin");
    File::create(&path).unwrap().set_len(4 * huge).unwrap();
    let text = "
file = os.open(FILES[0], os.O_RDWR)
mapping = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
touch(mapping, 0, len(mapping) * 3 // 4)
stage('touched')
";
    let script = Script::new(bench, text, &[&path], &["touched"]);
    let raw = PathBuf::from(format!("raw:{}", path.display()));
    let (run, _) = script.with(|launch| launch.artifact(raw).payload(4 * huge)).run();
    let claims = vec![
        Claim::absent("resident_payload_bytes", "hugetlbfs", run.at("touched", "resident_payload_bytes")),
        page_tables(&run, "touched", 3 * huge..=3 * huge, 0),
        run.exactly("touched", "mapped_payload_bytes", 4 * huge),
        believed(&run, "none"),
    ];
    // A mounted file keeps its pages.
    std::fs::remove_file(&path).unwrap();
    claims
}

fn direct_reads_of_a_warm_file(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(PAYLOAD, Fill::Pattern).warm();
    let run = bench.loader(&model, "odirect --notify --hold 0.1").run();
    let direct = run.mark("module_populated").get("direct_bytes");
    let mut claims = vec![
        // Past the page cache, which keeps what it had.
        run.resident("module_populated", PAYLOAD, 0),
        run.within("module_populated", "read_bytes", direct..=direct + OWN_STORAGE),
        run.exactly("module_populated", "mapped_bytes", 0),
        run.exactly("module_populated", "resident_payload_low_bytes", 0),
    ];
    claims.extend(run.anonymous("module_populated", PAYLOAD));
    claims
}

/// Two models of one inode number, in two subvolumes.
fn two_subvolumes(bench: &Bench) -> [Model; 2] {
    let disk = disk(bench, "btrfs");
    ["one", "other"].map(|name| {
        let volume = disk.join(name);
        let made = Command::new("btrfs").args(["subvolume", "create"]).arg(&volume).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Model::write(volume.join("model.safetensors"), PAYLOAD, Fill::Pattern)
    })
}

fn two_files_of_one_inode_in_maps(bench: &Bench) -> Vec<Claim> {
    let models = two_subvolumes(bench);
    let text = "
mappings = []
for path in FILES:
    file = os.open(path, os.O_RDONLY)
    mappings.append(mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ))
    mappings[-1].madvise(mmap.MADV_RANDOM)
START = len(mappings[0]) - (32 << 20)
touch(mappings[0], START, len(mappings[0]))
touch(mappings[1], START, START + (4 << 20))
for line in open('/proc/self/maps'):
    if 'model.safetensors' in line: note(' '.join(line.split()[3:5]))
stage('loaded')
";
    let paths = [models[0].path.as_path(), models[1].path.as_path()];
    let script = Script::new(bench, text, &paths, &["loaded"]);
    let (run, notes) = script.with(|launch| launch.artifact(paths[0]).artifact(paths[1]).payload(2 * PAYLOAD)).run();
    let one_pair = notes.len() == 2 && notes[0] == notes[1];
    let mut claims = vec![
        Claim::holds("maps show one device and inode for both", one_pair, notes.join(" and ")),
        run.exactly("loaded", "artifacts", 2),
        run.exactly("loaded", "mapped_payload_bytes", 2 * PAYLOAD),
    ];
    for (index, touched) in [PAYLOAD, 4 * MIB].into_iter().enumerate() {
        let of = |metric| detail(&run, "loaded", index, metric);
        let within = touched - taken_back(touched)..=touched;
        claims.push(Claim::between(format!("resident_bytes of file {index}"), within.clone(), of("resident_bytes")));
        claims.push(Claim::between(format!("resident_low_bytes of file {index}"), within, of("resident_low_bytes")));
        claims.push(Claim::exact(format!("mapped_bytes of file {index}"), models[index].size, of("mapped_bytes")));
    }
    claims
}

/// The one is deleted by its name, the other under a name that nobody knew.
const DELETES: &str = "
mappings = []
for path in FILES:
    file = os.open(path, os.O_RDONLY)
    mappings.append(mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ))
    os.close(file)
stage('mapped')
os.unlink(FILES[0])
os.rename(FILES[1], FILES[1] + '.old')
os.unlink(FILES[1] + '.old')
stage('deleted')
";

fn deletes(bench: &Bench, program: Command, change: impl FnOnce(Launch) -> Launch) -> (Profile, [Model; 2]) {
    let models = two_subvolumes(bench);
    for model in &models {
        std::fs::set_permissions(&model.path, Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(model.path.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
    }
    let paths = [models[0].path.as_path(), models[1].path.as_path()];
    let script = Script::under(program, bench, DELETES, &paths, &["mapped", "deleted"]);
    let declared = |launch: Launch| launch.artifact(paths[0]).artifact(paths[1]).payload(2 * PAYLOAD);
    (script.with(declared).with(change).run().0, models)
}

fn deleted_on_btrfs(bench: &Bench) -> Vec<Claim> {
    let (run, models) = deletes(bench, stagemark(), |launch| launch);
    let said = run.warnings().contains("cannot be looked up");
    // Who may follow the links of /proc/PID/map_files is in no doubt.
    let mut claims = vec![Claim::holds("nothing is ambiguous", !said, run.warnings())];
    for stage in ["mapped", "deleted"] {
        for (index, model) in models.iter().enumerate() {
            let what = format!("mapped_bytes of file {index} at {stage}");
            claims.push(Claim::exact(what, model.size, detail(&run, stage, index, "mapped_bytes")));
        }
    }
    claims
}

fn deleted_on_btrfs_for_a_user(bench: &Bench) -> Vec<Claim> {
    let (_, program) = for_another_user(bench);
    let (run, models) = deletes(bench, Command::new(program), |launch| launch.by_user(NOBODY));
    let claim = |stage: &str, index: usize, bytes| {
        let mapped = detail(&run, stage, index, "mapped_bytes");
        Claim::exact(format!("mapped_bytes of file {index} at {stage}"), bytes, mapped)
    };
    let counted = format!("it is counted as {}", models[0].path.display());
    let neither = format!("{}, {}", models[0].path.display(), models[1].path.display());
    vec![
        claim("mapped", 0, models[0].size),
        claim("mapped", 1, models[1].size),
        claim("deleted", 0, models[0].size),
        Claim::words("the match by name is said", counted, run.warnings()),
        // It may be either, and is said to be counted as none.
        claim("deleted", 1, 0),
        Claim::words("the other is said", format!("it may be {neither}, or another file"), run.warnings()),
        Claim::words("and which way it went", "it is counted as none", run.warnings()),
    ]
}

fn private_mapping_partly_written(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(PAYLOAD, Fill::Pattern);
    let text = "
file = os.open(FILES[0], os.O_RDONLY)
mapping = mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
START = len(mapping) - (32 << 20)
touch(mapping, START, len(mapping))
stage('read')
for offset in range(START, START + (16 << 20), 4096): mapping[offset] = 7
stage('written')
";
    let script = Script::new(bench, text, &[&model.path], &["read", "written"]);
    let (run, _) = script.with(|launch| launch.artifact(&model.path).payload(PAYLOAD)).run();
    let mut claims = vec![
        run.resident("read", PAYLOAD, 0),
        page_tables(&run, "read", PAYLOAD..=PAYLOAD, PAYLOAD / 100),
        // The page cache keeps the file's pages; those that were written have a copy beside them.
        run.resident("written", PAYLOAD, 0),
    ];
    // Of the file's own pages the page tables point at half; where large ones were split, at fewer.
    let low = run.stage("written").known("resident_payload_low_bytes");
    claims.push(Claim::between("page tables at written", HALF - MIB..=HALF, Figure::Exact(low)));
    claims.extend(run.mapped("written", model.size, PAYLOAD));
    let grown = run.stage("written").known("rss_anon_bytes") - run.stage("read").known("rss_anon_bytes");
    let error = crate::profile::rss_error();
    claims.push(Claim::between("anonymous memory grew by", HALF - error..=HALF + error, Figure::Exact(grown)));
    claims
}

fn one_file_by_two_mounts(bench: &Bench) -> Vec<Claim> {
    let here = bench.folder("here");
    let model = Model::write(here.join("model.safetensors"), PAYLOAD, Fill::Pattern);
    let there = bench.mount("there", &["--bind".as_ref(), here.as_os_str()]);
    let seen = Model { path: there.join("model.safetensors"), ..model.clone() };
    let run = bench.loader(&seen, LAZY).artifact(&model.path).run();
    let mut claims = lazily_loaded(&run, &model);
    claims.push(run.exactly("first_response", "artifacts", 1));
    claims
}

fn evicted_and_read_again(bench: &Bench) -> Vec<Claim> {
    let model = bench.model(PAYLOAD, Fill::Pattern);
    let text = "
def read():
    with open(FILES[0], 'rb', buffering=0) as file:
        while file.read(1 << 20): pass
read()
stage('first')
note(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
file = os.open(FILES[0], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
note(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
stage('gone')
read()
stage('again')
";
    let script = Script::new(bench, text, &[&model.path], &["first", "gone", "again"]);
    let (run, notes) = script.with(|launch| launch.artifact(&model.path).payload(PAYLOAD)).run();
    let start = run.run.json()["start_monotonic_ns"].as_i64().unwrap();
    let acts: Vec<i64> = notes.iter().map(|note| note.parse::<i64>().unwrap() - start).collect();
    let events = run.run.events("evicted");
    // A fall that a look sees in its middle is told in parts, of which a last one of less than 1 MiB is not told.
    let untold = MIB - 1;
    let figures = |name: &str| -> Vec<u64> {
        let detail = |event: &crate::folder::Row| serde_json::from_str::<Value>(&event["detail"]).unwrap();
        events.iter().map(|event| detail(event)[name].as_u64().unwrap()).collect()
    };
    let most = Figure::Exact(figures("from").into_iter().max().expect("an `evicted` event"));
    let least = Figure::Exact(figures("to").into_iter().min().unwrap());
    let has_room = |event: &crate::folder::Row| {
        let at: i64 = event["t_ns"].parse().unwrap();
        at - event["uncertainty_ns"].parse::<i64>().unwrap() <= acts[1] && at >= acts[0]
    };
    let noise = taken_back(PAYLOAD);
    let ratio: f64 = run.stage("again").text("reread_ratio").parse().unwrap();
    let thousandths = (ratio * 1000.0).round() as u64;
    let largest_ratio = 2_000 + OWN_STORAGE * 1000 / PAYLOAD;
    let told = stagemark().arg("report").arg(&run.run.path).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    vec![
        run.resident("first", PAYLOAD, 0),
        run.within("gone", "resident_payload_bytes", 0..=noise),
        run.resident("again", PAYLOAD, 0),
        Claim::between("evicted from", PAYLOAD - noise..=PAYLOAD, most),
        Claim::between("evicted to", 0..=noise + untold, least),
        Claim::holds("the event's time has room for the act", events.iter().any(has_room), events.len()),
        Claim::between("reread_ratio at again, in thousandths", 1_950..=largest_ratio, Figure::Exact(thousandths)),
        Claim::words("the report says what was evicted", "Evicted from memory up to ", &told),
        Claim::words("and that it was read again", "times the payload up to ", &told),
    ]
}
