//! Memory by the CUDA driver (`--cuda-memory`), on boards of which NVML does not tell.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::live::{Bench, CONTEXT, Done, Running};
use super::{GIB, MIB, PATIENCE, library};
use crate::support::{children_named, eventually, finish, signal, stagemark};

/// A board whose device has the host's memory: NVML tells neither what is in use nor who has it.
const BOARD: &str = "\
    device GPU-9c5a1122-3344-5566-7788-99aabbccddee 32G A%20board\n integrated\n \
    answer nvmlDeviceGetMemoryInfo NOT_SUPPORTED\n answer nvmlDeviceGetComputeRunningProcesses NOT_SUPPORTED\n \
    answer nvmlDeviceGetGraphicsRunningProcesses NOT_SUPPORTED\n";
/// The stand-in's default.
const RESERVED: u64 = 512 * MIB;

fn board(more: &str, library: &Path) -> Bench {
    let bench = Bench::of(&format!("{BOARD}{more}"));
    bench.asking(["--cuda-memory", "--cuda-library", library.to_str().unwrap()])
}

const LOADS: &str = "device allocate weights 0 2G\n until @end\n mark gpu_placed\n";

fn report(done: &Done) -> String {
    let report = finish(stagemark().arg("report").arg(&done.run.path));
    String::from_utf8_lossy(&report.stdout).into_owned()
}

/// The process that asks: a child of the profiler's.
fn helper(running: &Running) -> i32 {
    eventually("the process that asks", || children_named(running.child.id() as i32, "cuda-memory").first().copied())
}

#[test]
fn a_board_is_told_by_the_driver_and_the_context_is_weighed_and_in_no_rise() {
    let bench = board("", &library()).with(PATIENCE.0, PATIENCE.1);
    let mut helper_pid = 0;
    let done = bench.load(LOADS, |running| {
        running.sees("device_rise_bytes", 2 * GIB + CONTEXT);
        helper_pid = helper(running);
        running.open("end");
    });
    assert!(done.status.success());
    let [device] = done.devices() else { panic!("{:?}", done.meta["devices"]) };
    assert_eq!((&device["source"], &device["is_unified"]), (&"nvml".into(), &true.into()));
    assert_eq!((&device["total_bytes"], &device["context"]["bytes"]), (&(32 * GIB).into(), &CONTEXT.into()));
    assert_eq!(device["baseline_bytes"], RESERVED + CONTEXT, "the profiler's own context is in it");
    assert_eq!(done.meta["device_probe"]["sources"].to_string(), r#"["nvml","cuda"]"#);
    let placed = done.run.stage("gpu_placed");
    assert_eq!(placed.known("device_used_bytes"), RESERVED + 2 * CONTEXT + 2 * GIB);
    assert_eq!((placed.known("device_launch_bytes"), done.basis()), (2 * GIB + CONTEXT, "rise"));
    let own = |row: &&crate::folder::Row| row["metric"] == "own_context_bytes" && row["scope"] == "device";
    assert!(done.run.rows("detail.csv").iter().filter(own).all(|row| row["value"] == CONTEXT.to_string()));
    assert!(done.run.rows("detail.csv").iter().any(|row| own(&row)));
    // The process is none of the launch's, and gone with the profiler.
    assert_eq!(done.run.largest("processes"), Some(1));
    let told_of = |row: &&crate::folder::Row| row["pid"] == helper_pid.to_string();
    assert_eq!(done.run.rows("events.csv").iter().filter(told_of).count(), 0);
    eventually("its end", || (!Path::new(&format!("/proc/{helper_pid}/exe")).exists()).then_some(()));
    let text = report(&done);
    assert!(text.contains("is told by the CUDA driver") && text.contains("it takes 400 MiB of the device"), "{text}");
    assert!(text.contains("uses the host's memory"), "{text}");
}

#[test]
fn without_the_management_library_the_driver_alone_tells() {
    let mut bench = board("", &library());
    bench.library = "/nowhere/libnvidia-ml.so.1".into();
    let done = bench.load(LOADS, |running| {
        running.sees("device_rise_bytes", 2 * GIB + CONTEXT);
        running.open("end");
    });
    let [device] = done.devices() else { panic!("{:?}", done.meta["devices"]) };
    assert_eq!((&device["source"], &device["name"]), (&"cuda".into(), &"A board".into()));
    assert_eq!(device["uuid"], "GPU-9c5a1122-3344-5566-7788-99aabbccddee");
    assert_eq!((device["is_unified"].as_bool(), done.basis()), (Some(true), "rise"));
}

#[test]
fn a_context_is_made_only_where_it_is_needed_and_the_launch_may_go() {
    // A card of which NVML tells, a board that the launch may not use, and one that it may.
    let answers = ["MemoryInfo", "ComputeRunningProcesses", "GraphicsRunningProcesses"]
        .map(|of| [1, 2].map(|device| format!("answer nvmlDeviceGet{of} NOT_SUPPORTED device {device}\n")).concat());
    let script = format!(
        "device GPU-one 80G A%20card\n device GPU-two 8G A%20board\n integrated\n device GPU-ten 8G A%20board\n \
         integrated\n{}",
        answers.concat()
    );
    let bench = Bench::of(&script).asking(["--cuda-memory", "--cuda-library", library().to_str().unwrap()]);
    let bench = bench.with("CUDA_VISIBLE_DEVICES", "0,2").with("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    let done = bench.load("device allocate a 0 1G\n device allocate b 1 2G\n until @end\n", |running| {
        running.sees("device_rise_bytes", 3 * GIB + 2 * CONTEXT);
        running.open("end");
    });
    let contexts: Vec<bool> = done.devices().iter().map(|device| device["context"].is_object()).collect();
    assert_eq!(contexts, [false, false, true]);
    assert_eq!(done.devices()[0]["baseline_bytes"], 0, "no context there");
}

#[test]
fn where_nvml_tells_of_everything_no_context_is_made() {
    let bench = Bench::of("device GPU-one 80G A%20card\n");
    let bench = bench.asking(["--cuda-memory", "--cuda-library", library().to_str().unwrap()]);
    let done = bench.load("hold 50\n", |_| {});
    assert!(done.devices()[0]["context"].is_null() && done.devices()[0]["baseline_bytes"] == 0);
    assert!(done.meta["device_probe"]["notes"].to_string().contains("no context was made"));
}

#[test]
fn a_library_that_is_missing_or_is_another_is_said_and_the_launch_goes_on() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().filter_map(|line| line.split_once('/')).map(|(_, path)| format!("/{path}"));
    let libc = { libc }.find(|path| path.contains("libc.so") || path.contains("libc-")).unwrap();
    for (library, why) in [
        ("/nowhere/libcuda.so.1", "/nowhere/libcuda.so.1"),
        ("/proc/version", "CUDA: "),
        (libc.as_str(), "libcuda.so.1 has no cuInit"),
    ] {
        let bench = board("", Path::new(library));
        let done = bench.load("hold 10\n exit 3\n", |_| {});
        assert_eq!(done.status.code(), Some(3));
        let notes = done.meta["device_probe"]["notes"].to_string();
        assert!(notes.contains(why), "{library}: {notes}");
        assert_eq!(done.run.largest("device_used_bytes"), None);
        assert!(done.why("device_used_bytes").contains("not supported"), "{}", done.why("device_used_bytes"));
    }
}

#[test]
fn a_driver_that_hangs_at_once_delays_the_launch_by_no_more_than_its_limit() {
    let begun = Instant::now();
    let done = board("hang cuInit 60s\n", &library()).load("hold 10\n exit 4\n", |_| {});
    assert_eq!(done.status.code(), Some(4));
    assert!(begun.elapsed() < Duration::from_secs(50), "it was waited for");
    let notes = done.meta["device_probe"]["notes"].to_string();
    assert!(notes.contains("has not answered"), "{notes}");
}

#[test]
fn a_reading_that_hangs_and_an_error_halfway_have_their_reasons() {
    for (step, why) in [
        ("step bad hang cuMemGetInfo 60s\n", "the CUDA driver has not answered"),
        ("step bad answer cuMemGetInfo UNKNOWN\n", "CUDA_ERROR_UNKNOWN"),
    ] {
        let bench = board(step, &library());
        let done = bench.load("device allocate weights 0 1G\n until @end\n", |running| {
            running.sees("device_rise_bytes", GIB + CONTEXT);
            running.step("bad");
            let before = running.rows();
            eventually("forty samples meanwhile", || (running.rows() >= before + 40).then_some(()));
            running.open("end");
        });
        assert!(done.status.success());
        assert!(done.why("device_used_bytes").contains(why), "{why}: {}", done.why("device_used_bytes"));
    }
}

#[test]
fn a_driver_that_fails_on_one_context_tells_of_none() {
    let done = board("answer cuDevicePrimaryCtxRetain OUT_OF_MEMORY\n", &library()).load("hold 50\n", |_| {});
    let context = &done.devices()[0]["context"];
    assert!(context["bytes"].is_null(), "{context}");
    assert!(context["reason"].as_str().unwrap().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{context}");
    assert!(done.why("device_used_bytes").contains("CUDA_ERROR_OUT_OF_MEMORY"), "{}", done.why("device_used_bytes"));
}

#[test]
fn a_process_that_asks_and_dies_takes_nothing_with_it() {
    let bench = board("", &library());
    let done = bench.load("device allocate weights 0 1G\n until @end\n exit 5\n", |running| {
        running.sees("device_rise_bytes", GIB + CONTEXT);
        // As a crash would, and no handler can keep.
        signal(helper(running), Signal::SIGKILL);
        let before = running.rows();
        eventually("forty samples after it", || (running.rows() >= before + 40).then_some(()));
        running.open("end");
    });
    assert_eq!(done.status.code(), Some(5));
    assert!(done.why("device_used_bytes").contains("has ended"), "{}", done.why("device_used_bytes"));
    assert_eq!(done.run.largest("processes"), Some(1));
}

#[test]
fn the_library_is_an_option_of_the_question() {
    let mut command = stagemark();
    command.args(["run", "--cuda-library", "/x", "--", "true"]);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--cuda-memory"));
}
