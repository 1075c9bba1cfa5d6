//! Resident payload, held against mincore.
//!
//! Some hosts evict clean pages on their own, so that figures taken one after the other may differ a little: they are
//! compared at once, and within a tolerance.
#![allow(clippy::single_range_in_vec_init)]

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use stagemark::artifact::extent::Ranges;
use stagemark::artifact::{Artifact, ArtifactId, Format, Found, Layout};
use stagemark::clock::Mono;
use stagemark::metric::Metric;
use stagemark::probe::residency::ResidencyProbe;
use stagemark::sys::cache::{Mapping, page_size};

use crate::program;

const MIB: u64 = 1 << 20;
const BUDGET: Duration = Duration::from_micros(350);
const LONG: Duration = Duration::from_secs(20);

/// A file of `bytes` bytes, written out and evicted; not sparse, so that it lies on the disk.
fn cold_file(folder: &Path, bytes: u64) -> File {
    let path = folder.join("model.bin");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let block = vec![7; MIB as usize];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(MIB);
        file.write_all(&block[..part as usize]).unwrap();
        left -= part;
    }
    evict(&file);
    file
}

fn evict(file: &File) {
    file.sync_all().unwrap();
    posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
}

fn artifact(folder: &Path, file: &File, layout: Result<Ranges, &str>) -> Artifact {
    let stat = file.metadata().unwrap();
    Artifact {
        path: folder.join("model.bin"),
        real_path: folder.join("model.bin"),
        file: Arc::new(File::open(folder.join("model.bin")).unwrap()),
        size: stat.len(),
        device: stat.dev(),
        inode: stat.ino(),
        modified_ns: stat.mtime() * 1_000_000_000 + stat.mtime_nsec(),
        found: Found::Declared,
        format: Format::Raw,
        layout: layout
            .map(|payload| Arc::new(Layout { payload, ..Layout::default() }))
            .map_err(|reason| reason.to_owned()),
        header_digest: None,
    }
}

/// By the definition: the bytes of `ranges` whose page mincore has in memory.
fn by_mincore(file: &File, ranges: &Ranges) -> u64 {
    let page = page_size();
    let end = file.metadata().unwrap().len().next_multiple_of(page).max(page);
    let mut answer = vec![0; (end / page) as usize];
    Mapping::new(file, 0..end).unwrap().mincore(0..end, &mut answer).unwrap();
    let pages = answer.iter().enumerate().filter(|(_, state)| **state & 1 == 1);
    let resident: Ranges = pages.map(|(index, _)| index as u64 * page..(index as u64 + 1) * page).collect();
    resident.intersection(ranges).len()
}

/// A look, and mincore before and after it; the look must lie between the two, give or take a twentieth.
fn assert_agrees(probe: &mut ResidencyProbe, file: &File, ranges: &Ranges) -> u64 {
    let before = by_mincore(file, ranges);
    let seen = probe.look(LONG).resident_payload.unwrap();
    let after = by_mincore(file, ranges);
    let (low, high) = (before.min(after), before.max(after));
    let tolerance = ranges.len() / 20;
    assert!(low.saturating_sub(tolerance) <= seen && seen <= high + tolerance, "{seen} not in {low}..={high}");
    if before == after {
        // Nothing moved: then it is exact to the byte.
        let again = probe.look(LONG).resident_payload.unwrap();
        if by_mincore(file, ranges) == before {
            assert_eq!(again, before);
        }
    }
    seen
}

fn read(file: &File, bytes: Range<u64>) {
    let mut buffer = vec![0; (bytes.end - bytes.start) as usize];
    file.read_exact_at(&mut buffer, bytes.start).unwrap();
}

/// Touches each page of a file through a mapping of its own.
#[allow(unsafe_code)]
fn touch(file: &File, bytes: u64) {
    use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
    let length = std::num::NonZeroUsize::new(bytes as usize).unwrap();
    // SAFETY: a new mapping at an address of the kernel's choice; the file is ours and keeps its length while it is read;
    // nothing refers into the mapping when it goes.
    unsafe {
        let start = mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, file, 0).unwrap();
        for offset in (0..bytes as usize).step_by(page_size() as usize) {
            std::ptr::read_volatile(start.as_ptr().cast::<u8>().add(offset));
        }
        munmap(start, length.get()).unwrap();
    }
}

#[test]
fn follows_eviction_reading_and_touching() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = 96 * MIB;
    let file = cold_file(folder.path(), bytes);
    // Ranges that begin and end within pages, and leave a hole.
    let ranges = Ranges::from_iter([1_000..40 * MIB + 5, 40 * MIB + 77..50 * MIB + 1, 52 * MIB + 99..bytes - 3]);
    let mut probe = ResidencyProbe::new();
    let trust = probe.add(&artifact(folder.path(), &file, Ok(ranges.clone())), LONG);
    assert_ne!(trust.by, "none", "{}", trust.because);

    let cold = assert_agrees(&mut probe, &file, &ranges);
    assert!(cold < bytes / 10, "{cold} bytes after eviction");

    read(&file, 30 * MIB..60 * MIB);
    let part = assert_agrees(&mut probe, &file, &ranges);
    assert!(part >= cold + 20 * MIB, "{part}");

    touch(&file, bytes);
    let all = assert_agrees(&mut probe, &file, &ranges);
    assert!(all >= ranges.len() - ranges.len() / 20, "{all} of {}", ranges.len());

    evict(&file);
    assert_agrees(&mut probe, &file, &ranges);
}

#[test]
fn edges_count_only_the_bytes_that_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let page = page_size();
    let file = cold_file(folder.path(), 64 * page + 10);
    // One page each at the beginning, in the middle shared by two ranges, and at the end.
    let ranges = Ranges::from_iter([page - 7..5 * page, 20 * page..30 * page + 3, 30 * page + 9..64 * page + 4]);
    let mut probe = ResidencyProbe::new();
    probe.add(&artifact(folder.path(), &file, Ok(ranges.clone())), LONG);
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).unwrap();
    let mut expected = 0;
    for (position, bytes) in [(page - 1, 7), (30 * page, page - 6), (64 * page, 4), (10 * page, 0), (21 * page, page)] {
        read(&file, position..position + 1);
        expected += bytes;
        let seen = assert_agrees(&mut probe, &file, &ranges);
        if by_mincore(&file, &ranges) == expected {
            assert_eq!(seen, expected);
        }
    }
}

#[test]
fn ticks_come_round_to_the_same_figure() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = 64 * MIB;
    let file = cold_file(folder.path(), bytes);
    let ranges = Ranges::from_iter([4_000..bytes]);
    let mut probe = ResidencyProbe::new();
    // No time for a first pass: absent, until ticks have been everywhere.
    probe.add(&artifact(folder.path(), &file, Ok(ranges.clone())), Duration::ZERO);
    let files = probe.files(Mono::now());
    assert_eq!(files[0].resident, Err("not all asked yet".into()));
    // A tick counts what is being read ahead, and mincore does not.
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).unwrap();
    read(&file, 0..32 * MIB);
    let before = by_mincore(&file, &ranges);
    let mut ticks = 0;
    let reading = loop {
        let reading = probe.tick(BUDGET);
        if reading.resident_payload.is_some() {
            break reading;
        }
        assert!(reading.absences.iter().any(|(metric, why)| {
            *metric == Metric::ResidentPayloadBytes && why.contains("model.bin") && why.contains("not all asked yet")
        }));
        ticks += 1;
        assert!(ticks < 10_000);
    };
    assert!(reading.stale_ns.is_some() && reading.absences.is_empty());
    // Ticks take time, in which a host that is short of memory may evict.
    let after = by_mincore(&file, &ranges);
    let (low, high) = (before.min(after).saturating_sub(bytes / 20), before.max(after) + bytes / 20);
    let seen = reading.resident_payload.unwrap();
    assert!((low..=high).contains(&seen), "{seen} is not within {low} to {high}");
}

#[test]
fn memory_filesystems_are_resident() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm to write to");
        return;
    };
    let path = folder.path().join("model.bin");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(32 * MIB).unwrap();
    file.seek(SeekFrom::Start(3 * MIB)).unwrap();
    file.write_all(&vec![1; 10 * MIB as usize + 1]).unwrap();
    let ranges = Ranges::from_iter([100..32 * MIB - 100]);
    let mut probe = ResidencyProbe::new();
    probe.add(&artifact(folder.path(), &file, Ok(ranges.clone())), LONG);
    let seen = assert_agrees(&mut probe, &file, &ranges);
    assert!(seen > 10 * MIB, "{seen}");
}

#[test]
fn a_deleted_or_truncated_file_stays_answered_for() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = 16 * MIB;
    let file = cold_file(folder.path(), bytes);
    let ranges = Ranges::from_iter([0..bytes]);
    let mut probe = ResidencyProbe::new();
    probe.add(&artifact(folder.path(), &file, Ok(ranges.clone())), LONG);
    read(&file, 0..bytes);
    std::fs::remove_file(folder.path().join("model.bin")).unwrap();
    assert!(assert_agrees(&mut probe, &file, &ranges) > bytes / 2);
    // What lies beyond the end is in nobody's memory.
    file.set_len(MIB + 5).unwrap();
    let kept = assert_agrees(&mut probe, &file, &ranges);
    assert!(kept <= MIB + page_size(), "{kept}");
    file.set_len(0).unwrap();
    assert_eq!(probe.look(LONG).resident_payload, Some(0));
    file.set_len(2 * bytes).unwrap();
    assert_agrees(&mut probe, &file, &ranges);
}

#[test]
fn an_unknown_payload_makes_the_total_absent_and_keeps_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = 4 * MIB;
    let file = cold_file(folder.path(), bytes);
    let mut probe = ResidencyProbe::new();
    assert!(probe.tick(BUDGET).resident_payload.is_none(), "there is nothing to have a figure about yet");
    probe.add(&artifact(folder.path(), &file, Ok(Ranges::from_iter([0..MIB]))), LONG);
    probe.add(&artifact(folder.path(), &file, Err("a pickle")), LONG);
    read(&file, 0..bytes);
    let reading = probe.look(LONG);
    assert_eq!(reading.resident_payload, None);
    for metric in [Metric::ResidentPayloadBytes, Metric::NonresidentPayloadBytes] {
        let (_, why) = reading.absences.iter().find(|(absent, _)| *absent == metric).unwrap();
        assert!(why.contains("model.bin") && why.contains("a pickle"), "{why}");
    }
    let files = probe.files(Mono::now());
    assert_eq!(files.iter().map(|file| file.artifact).collect::<Vec<_>>(), [ArtifactId(0), ArtifactId(1)]);
    assert!(files[1].resident.clone().unwrap() > 3 * MIB);
}

/// Names the file that a child of this test binary, as another user, is to look at.
const AS_ANOTHER: &str = "STAGEMARK_TEST_FILE_OF_ANOTHER_USER";

#[test]
fn a_file_of_another_user_is_absent_with_a_reason() {
    if let Some(folder) = std::env::var_os(AS_ANOTHER) {
        let folder = Path::new(&folder);
        let file = File::open(folder.join("model.bin")).unwrap();
        let mut probe = ResidencyProbe::new();
        let trust = probe.add(&artifact(folder, &file, Ok(Ranges::from_iter([0..8 * MIB]))), LONG);
        let reading = probe.look(LONG);
        // Kernels from 6.5 on, before the check of permission came to cachestat, answer truly.
        if trust.by == "cachestat" {
            assert!(reading.resident_payload.unwrap() < 8 * MIB);
        } else {
            assert_eq!(trust.by, "none");
            assert!(trust.because.contains("neither the file's owner nor allowed to write it"), "{}", trust.because);
            assert_eq!(reading.resident_payload, None);
            assert!(reading.absences.iter().any(|(_, why)| why.contains("model.bin") && why.contains("owner")));
        }
        println!("looked as another user");
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let file = cold_file(folder.path(), 8 * MIB);
    std::fs::set_permissions(folder.path().join("model.bin"), PermissionsExt::from_mode(0o644)).unwrap();
    read(&file, 0..MIB);
    // By the kernel's link: the other user may not be allowed to walk to where the test was built.
    let copy = folder.path().join("tests");
    program::copy(Path::new(&format!("/proc/{}/exe", std::process::id())), &copy);
    let output = Command::new(&copy)
        .args(["--exact", "residency::a_file_of_another_user_is_absent_with_a_reason", "--nocapture"])
        .env(AS_ANOTHER, folder.path())
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("looked as another user"), "{said}{:?}", output);
}

#[test]
fn an_overlay_is_answered_by_mincore() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can mount");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let bytes = 16 * MIB;
    drop(cold_file(&at("lower"), bytes));
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        at("lower").display(),
        at("upper").display(),
        at("work").display()
    );
    let mounted = Command::new("mount").args(["-t", "overlay", "overlay", "-o", &options]).arg(at("merged")).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no overlay here: {mounted:?}");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let file = File::open(at("merged").join("model.bin")).unwrap();
        let ranges = Ranges::from_iter([10..bytes]);
        let mut probe = ResidencyProbe::new();
        let trust = probe.add(&artifact(&at("merged"), &file, Ok(ranges.clone())), LONG);
        assert_eq!(trust.by, "mincore", "{}", trust.because);
        read(&file, 0..bytes);
        assert!(assert_agrees(&mut probe, &file, &ranges) > bytes / 2);
    });
    assert!(Command::new("umount").arg("--lazy").arg(at("merged")).status().unwrap().success());
    outcome.unwrap();
}
