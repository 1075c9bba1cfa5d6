//! What samples show while a launch takes and gives back memory of devices, and others do.
//!
//! A device's reader has its own pace: a test waits for the figure in `samples.csv`, and only then lets the loader go on.

use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{GIB, MIB, library};
use crate::folder::RunFolder;
use crate::support::{LIMIT, ended, eventually, folder, reference_loader, signal, stagemark};

/// What a context takes, by the stand-in's default.
pub(super) const CONTEXT: u64 = 400 * MIB;

/// Devices, and a launch that uses them.
pub(super) struct Bench {
    pub scratch: tempfile::TempDir,
    /// NVML.
    pub library: PathBuf,
    variables: Vec<(&'static str, String)>,
    /// More options of `run`.
    options: Vec<String>,
}

/// A launch that has begun.
pub(super) struct Running<'b> {
    bench: &'b Bench,
    run: RunFolder,
    pub child: Child,
}

/// A test that fails leaves no loader behind that waits for it: the signal goes to the launch too.
impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            signal(self.child.id() as i32, Signal::SIGTERM);
            let begun = Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = self.child.kill();
        }
    }
}

impl Running<'_> {
    /// Waits until a sample has this value.
    pub fn sees(&self, metric: &str, value: u64) {
        eventually(&format!("{metric} {value}"), || {
            let is_there = self.run.path.join("samples.csv").exists();
            is_there.then(|| self.run.latest(metric))?.filter(|now| *now == value)
        });
    }

    /// Rows of samples until now.
    pub fn rows(&self) -> usize {
        let text = std::fs::read_to_string(self.run.path.join("samples.csv")).unwrap_or_default();
        text.lines().count()
    }

    /// Lets the loader's `until @NAME` go on.
    pub fn open(&self, name: &str) {
        std::fs::write(self.bench.gate(name), "").unwrap();
    }

    /// A step of the devices' script.
    pub fn step(&self, name: &str) {
        std::fs::write(self.bench.held().join(format!("step-{name}")), "").unwrap();
    }
}

/// A launch that has ended.
pub(super) struct Done {
    pub run: RunFolder,
    pub meta: Value,
    pub status: ExitStatus,
}

impl Done {
    /// Why a metric is absent.
    pub fn why(&self, metric: &str) -> String {
        let absent = self.meta["absent"].as_array().unwrap();
        let reasons = absent.iter().filter(|absent| absent["metric"] == metric);
        reasons.map(|absent| absent["reason"].as_str().unwrap()).collect::<Vec<_>>().join("; ")
    }

    pub fn devices(&self) -> &[Value] {
        self.meta["devices"].as_array().unwrap()
    }

    /// The UUIDs of the devices that count.
    pub fn counted(&self) -> Vec<&str> {
        let counted = self.devices().iter().filter(|device| device["is_counted"] == true);
        counted.map(|device| device["uuid"].as_str().unwrap()).collect()
    }

    pub fn basis(&self) -> &str {
        self.meta["device_probe"]["launch_basis"].as_str().unwrap_or("none")
    }
}

impl Bench {
    /// Devices by a script of the stand-in's.
    pub fn of(script: &str) -> Bench {
        let bench = Bench { scratch: folder(), library: library(), variables: Vec::new(), options: Vec::new() };
        std::fs::write(bench.script(), script).unwrap();
        std::fs::create_dir(bench.held()).unwrap();
        bench
    }

    pub fn asking<const N: usize>(mut self, options: [&str; N]) -> Bench {
        self.options.extend(options.map(str::to_owned));
        self
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Bench {
        self.variables.push((name, value.to_owned()));
        self
    }

    fn script(&self) -> PathBuf {
        self.scratch.path().join("devices")
    }

    fn held(&self) -> PathBuf {
        self.scratch.path().join("devices.held")
    }

    pub fn gate(&self, name: &str) -> PathBuf {
        self.scratch.path().join(format!("gate-{name}"))
    }

    /// Launches the loader with these acts; `@NAME` in them is a gate.
    pub fn load(&self, acts: &str, meanwhile: impl FnOnce(&Running)) -> Done {
        let script = self.scratch.path().join("acts");
        std::fs::write(&script, acts.replace('@', self.gate("").to_str().unwrap())).unwrap();
        let truth = self.scratch.path().join("truth");
        let mut argv: Vec<String> = reference_loader().map(str::to_owned).into();
        argv.extend(["acts", script.to_str().unwrap(), truth.to_str().unwrap()].map(str::to_owned));
        self.launch(&argv, meanwhile)
    }

    pub fn launch(&self, argv: &[String], meanwhile: impl FnOnce(&Running)) -> Done {
        let out = self.scratch.path().join("run");
        let mut command = stagemark();
        command.args(["run", "--quiet", "--stage", "gpu_placed=notify", "--nvidia-ml"]).arg(&self.library);
        command.args(&self.options).arg("--out").arg(&out).arg("--").args(argv);
        for name in ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"] {
            command.env_remove(name);
        }
        command.env("STAND_IN_DEVICES", self.script()).envs(self.variables.iter().map(|(name, value)| (name, value)));
        // Of this machine's own devices nothing is to be seen.
        if self.variables.iter().all(|(name, _)| *name != "STAGEMARK_SYSFS") {
            command.env("STAGEMARK_SYSFS", self.scratch.path().join("none"));
        }
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let mut running = Running { bench: self, run: RunFolder::at(&out), child };
        meanwhile(&running);
        let status = ended(&mut running.child);
        let run = RunFolder::at(out);
        Done { meta: run.json(), run, status }
    }
}

const ONE: &str = "device GPU-one 80G A%20card\n";

#[test]
fn what_is_taken_first_and_given_back_later_is_seen_as_it_was() {
    // Before anything is read the loader takes what it may ever need, and keeps what it needed.
    let bench = Bench::of(&format!("{ONE} hold 0 {} 3G\n", std::process::id()));
    let acts = "device allocate pool 0 30G\n until @big\n device free pool\n device allocate weights 0 10G\n \
                anon staging 16M\n write staging 0 16M\n device copy weights staging 0 16M\n until @small\n mark gpu_placed\n";
    let done = bench.load(acts, |running| {
        running.sees("device_launch_bytes", 30 * GIB + CONTEXT);
        running.open("big");
        running.sees("device_launch_bytes", 10 * GIB + CONTEXT);
        running.sees("device_used_bytes", 13 * GIB + CONTEXT);
        running.open("small");
    });
    assert!(done.status.success());
    let [device] = done.devices() else { panic!("{:?}", done.meta["devices"]) };
    assert_eq!((&device["uuid"], &device["name"]), (&"GPU-one".into(), &"A card".into()));
    assert_eq!((&device["total_bytes"], &device["baseline_bytes"]), (&(80 * GIB).into(), &(3 * GIB).into()));
    assert_eq!(done.basis(), "processes");
    assert_eq!(done.run.largest("device_launch_bytes"), Some(30 * GIB + CONTEXT));
    assert_eq!(done.run.largest("device_used_bytes"), Some(33 * GIB + CONTEXT));
    let placed = done.run.stage("gpu_placed");
    assert!(placed.reached() && placed.known("peak_device_launch_bytes_low") == 30 * GIB + CONTEXT);
}

#[test]
fn what_is_mapped_placed_and_unmapped_is_on_the_device_alone() {
    let bench = Bench::of(ONE);
    let model = bench.scratch.path().join("model.safetensors");
    let uniform = stagemark_fixtures::models::uniform;
    uniform(&model, 8 * MIB, 4, stagemark_fixtures::models::Fill::Pattern).unwrap();
    let acts = format!(
        "open f {} \n map m f 0 8M private ro\n device allocate weights 0 8M\n until @mapped\n \
         device copy weights m 0 8M\n unmap m 0 8M\n until @placed\n mark gpu_placed\n",
        model.display()
    );
    let done = bench.load(&acts, |running| {
        running.sees("mapped_bytes", 8 * MIB);
        running.sees("device_launch_bytes", 8 * MIB + CONTEXT);
        running.open("mapped");
        running.sees("mapped_bytes", 0);
        running.sees("device_launch_bytes", 8 * MIB + CONTEXT);
        running.open("placed");
    });
    assert!(done.status.success() && done.run.stage("gpu_placed").known("mapped_bytes") == 0);
    let truth = std::fs::read_to_string(bench.scratch.path().join("truth")).unwrap();
    let last: Value = serde_json::from_str(truth.lines().last().unwrap()).unwrap();
    assert_eq!((&last["placed_bytes"], &last["device_bytes"]), (&(8 * MIB).into(), &(8 * MIB + CONTEXT).into()));
}

#[test]
fn others_memory_is_in_use_and_not_the_launchs() {
    // This process is no part of the launch.
    let us = std::process::id();
    let bench = Bench::of(&format!("{ONE} hold 0 {us} 3G\n step more hold 0 {us} 5G\n"));
    let done = bench.load("device allocate weights 0 1G\n until @end\n", |running| {
        running.sees("device_used_bytes", 4 * GIB + CONTEXT);
        running.step("more");
        running.sees("device_used_bytes", 6 * GIB + CONTEXT);
        running.sees("device_launch_bytes", GIB + CONTEXT);
        running.open("end");
    });
    assert_eq!((done.basis(), done.run.largest("device_launch_bytes")), ("processes", Some(GIB + CONTEXT)));
}

#[test]
fn the_whole_tree_counts_and_who_is_gone_holds_nothing() {
    let bench = Bench::of(ONE);
    let acts = "device allocate own 0 1G\n child\n device allocate theirs 0 2G\n ready\n await\n end\n \
                until @both\n release\n wait\n until @end\n";
    bench.load(acts, |running| {
        running.sees("device_launch_bytes", 3 * GIB + 2 * CONTEXT);
        running.open("both");
        running.sees("device_launch_bytes", GIB + CONTEXT);
        running.open("end");
    });
}

#[test]
fn what_is_not_supported_is_absent_with_its_reason() {
    // A board whose device has the host's memory: neither the one nor the other is told (Jetson).
    let answers = "answer nvmlDeviceGetMemoryInfo NOT_SUPPORTED\n answer nvmlDeviceGetComputeRunningProcesses NOT_SUPPORTED\n \
                   answer nvmlDeviceGetGraphicsRunningProcesses NOT_SUPPORTED\n";
    let bench = Bench::of(&format!("{ONE}{answers}"));
    let done = bench.load("device allocate weights 0 1G\n hold 100\n exit 3\n", |_| {});
    assert_eq!(done.status.code(), Some(3));
    for metric in ["device_used_bytes", "device_launch_bytes"] {
        assert_eq!(done.run.largest(metric), None);
        let why = done.why(metric).to_lowercase();
        assert!(why.contains("not supported"), "{metric}: {why}");
    }
}

#[test]
fn a_call_that_hangs_delays_no_tick_and_no_end() {
    let bench = Bench::of(&format!("{ONE} step slow hang nvmlDeviceGetMemoryInfo 10s\n"));
    let mut gap = 0;
    let done = bench.load("device allocate weights 0 1G\n until @end\n", |running| {
        running.sees("device_launch_bytes", GIB + CONTEXT);
        running.step("slow");
        let before = running.rows();
        eventually("forty samples meanwhile", || (running.rows() >= before + 40).then_some(()));
        running.open("end");
        gap = before;
    });
    assert!(done.status.success());
    let rows = done.run.rows("samples.csv");
    let times: Vec<i64> = rows.iter().map(|row| row["t_ns"].parse().unwrap()).collect();
    let longest = times[gap.saturating_sub(2)..].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    // No tick waited for the call, nor for a part of it worth the name.
    assert!(longest < 2_000_000_000, "{longest} ns between two samples");
    // A figure that is not new is not told as one.
    let silent = rows.iter().rev().take(20).filter(|row| !row["device_used_bytes"].is_empty()).count();
    assert!(silent <= 1, "{silent} of the last 20 samples have a figure");
}

#[test]
fn a_library_that_hangs_at_once_delays_the_launch_by_no_more_than_its_limit() {
    let begun = std::time::Instant::now();
    let bench = Bench::of(&format!("hang nvmlInit 50s\n{ONE}"));
    let done = bench.load("hold 10\n exit 4\n", |_| {});
    assert_eq!(done.status.code(), Some(4));
    assert!(begun.elapsed().as_secs() < 45, "it was waited for");
    assert_eq!(done.run.largest("device_used_bytes"), None);
    assert!(!done.why("device_used_bytes").is_empty());
}

#[test]
fn of_eight_devices_those_count_that_the_launch_may_use() {
    let mut script = String::from("reserved 1G\n");
    for device in 0..8 {
        script.push_str(&format!("device GPU-{device}{device}aa-0000 80G Eight\n"));
        if device == 6 {
            script.push_str("part MIG-six-a 20G\n part MIG-six-b 40G\n");
        }
        // Others' memory, which tells the devices apart.
        let place = if device == 6 { "6/0".to_owned() } else { device.to_string() };
        script.push_str(&format!("hold {place} {} {}M\n", std::process::id(), 1 << device));
    }
    let (two, five, six) = ("GPU-22aa-0000", "GPU-55aa-0000", ["MIG-six-a", "MIG-six-b"]);
    for (wish, counted, used) in [
        ("2,5", vec![two, five], 4 + 32),
        ("GPU-55aa-0000,GPU-22aa-0000", vec![two, five], 4 + 32),
        ("GPU-2", vec![two], 4),
        ("2,9,5", vec![two], 4),
        ("6", six.to_vec(), 64),
        ("MIG-six-b", vec![six[1]], 0),
        ("MIG-GPU-66aa-0000/2/0", vec![six[1]], 0),
    ] {
        let bench = Bench::of(&script).with("CUDA_VISIBLE_DEVICES", wish).with("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        let done = bench.load("device allocate weights 0 1G\n until @end\n", |running| {
            running.sees("device_launch_bytes", GIB + CONTEXT);
            running.sees("device_used_bytes", used * MIB + GIB + CONTEXT);
            running.open("end");
        });
        assert_eq!((done.counted(), done.devices().len()), (counted, 10), "{wish}");
    }
}

#[test]
fn a_driver_that_is_not_loaded_is_said() {
    let done = Bench::of("answer nvmlInit DRIVER_NOT_LOADED\n").load("hold 10\n", |_| {});
    assert!(done.status.success() && done.devices().is_empty());
    assert!(done.why("device_used_bytes").to_lowercase().contains("driver"), "{}", done.meta["absent"]);
}

#[test]
fn the_kernels_own_files_tell_of_other_devices() {
    let mut bench = Bench::of(ONE);
    bench.library = "/nowhere/libnvidia-ml.so.1".into();
    let root = bench.scratch.path().join("machine");
    stagemark_fixtures::recorded::unpack(include_str!("../../../fixtures/host/devices.txt"), &root);
    let (sys, proc) = (root.join("sys"), root.join("proc"));
    let bench = bench.with("STAGEMARK_SYSFS", sys.to_str().unwrap()).with("STAGEMARK_PROC", proc.to_str().unwrap());
    // The launch itself puts what its descriptors say into the recorded tree: nobody else knows its number. One client
    // is held twice, and compute's memory is in a file of its own.
    let script = r#"
        put() { ln -s /dev/dri/renderD129 "$PROC/$$/fd/$1"; cp "$FDINFO/$2" "$PROC/$$/fdinfo/$1"; }
        mkdir -p "$PROC/$$/fd" "$PROC/$$/fdinfo"
        put 5 amdgpu-6.15; put 6 amdgpu-6.15; put 7 i915; put 8 i915-local; put 9 xe; put 10 panfrost; put 11 msm
        put 12 amdgpu-5.14
        ln -s /dev/null "$PROC/$$/fd/13"; cp "$FDINFO/xe" "$PROC/$$/fdinfo/13"
        echo held
        until [ -e "$GATE" ]; do read -r -t 0.01 _ <> "$FIFO" || :; done
    "#;
    let fdinfo = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/proc/fdinfo");
    let fifo = bench.scratch.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let gate = bench.gate("end");
    let bench = bench
        .asking(["--stage", "seen=log:^held$"])
        .with("PROC", proc.to_str().unwrap())
        .with("FDINFO", fdinfo)
        .with("GATE", gate.to_str().unwrap())
        .with("FIFO", fifo.to_str().unwrap());
    // Resident where that is told; of devices with memory of their own only that.
    let (amd, local, xe) = (2_097_448 << 10, 768 * MIB, 23_992 << 10);
    let of_the_hosts = 49 * MIB + (36_496 << 10) + 8_388_608;
    let done = bench.launch(&["bash", "-c", script].map(str::to_owned), |running| {
        running.sees("device_launch_bytes", amd + local + xe + of_the_hosts);
        running.open("end");
    });
    assert!(done.status.success());
    let drivers: Vec<&str> = done.devices().iter().map(|device| device["driver"].as_str().unwrap()).collect();
    assert_eq!(drivers, ["i915", "amdgpu", "i915", "xe", "panfrost", "msm"]);
    let unified: Vec<bool> = done.devices().iter().map(|device| device["is_unified"] == true).collect();
    assert_eq!(unified, [true, false, false, false, true, true]);
    // What is the host's memory is in the host account, and once: said of each, and added to nothing.
    let seen = done.run.stage("seen");
    for host in [seen.number("host_bytes_high"), done.run.largest("rss_bytes")].into_iter().flatten() {
        assert!(host < of_the_hosts, "{host} holds what the script's processes have, and no device's memory");
    }
    assert!(done.run.largest("rss_bytes").is_some());
    let report = crate::support::finish(stagemark().arg("report").arg(&done.run.path));
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert_eq!(text.matches("uses the host's memory").count(), 3, "{text}");
    let amdgpu = &done.devices()[1];
    assert_eq!((&amdgpu["total_bytes"], &amdgpu["baseline_bytes"]), (&17_163_091_968_u64.into(), &(3 * GIB).into()));
}

#[test]
fn what_stands_after_the_stopping_event_is_in_its_row() {
    let bench = Bench::of(ONE).asking(["--until", "gpu_placed", "--stage", "before=notify", "--stage", "later=notify"]);
    let acts = "device allocate pool 0 4G\n until @big\n mark before\n device free pool\n device allocate weights 0 1G\n \
                until @small\n mark gpu_placed\n until @steady\n device free weights\n mark later\n";
    let done = bench.load(acts, |running| {
        running.sees("device_launch_bytes", 4 * GIB + CONTEXT);
        running.open("big");
        running.sees("device_launch_bytes", GIB + CONTEXT);
        running.open("small");
        // Two that know it: how long it stood is between them.
        eventually("figures after the mark", || {
            let marked = running
                .run
                .rows("events.csv")
                .into_iter()
                .find(|row| row["kind"] == "mark" && row["name"] == "gpu_placed")?;
            let stop: i64 = marked["t_ns"].parse().ok()?;
            let rows = running.run.rows("samples.csv");
            let after = |row: &&crate::folder::Row| {
                row["t_ns"].parse::<i64>().is_ok_and(|t| t > stop) && !row["device_launch_bytes"].is_empty()
            };
            (rows.iter().filter(after).count() >= 2).then_some(())
        });
        running.open("steady");
    });
    let placed = done.run.stage("gpu_placed");
    assert_eq!(placed.known("steady_device_launch_bytes"), GIB + CONTEXT);
    assert_eq!(placed.known("peak_over_steady_device_launch_bytes"), 3 * GIB);
    assert_eq!(placed.known("peak_over_steady_device_used_bytes"), 3 * GIB);
    assert_eq!(placed.text("steady_reason"), "");
    for other in ["before", "later"] {
        let row = done.run.stage(other);
        assert_eq!(row.number("steady_device_launch_bytes"), None);
        assert_eq!(row.text("steady_reason"), "at the stopping event's row alone");
    }
}

#[test]
fn a_child_that_chooses_a_device_itself_has_it_counted() {
    let bench = Bench::of("device GPU-one 80G A%20card\n device GPU-two 80G A%20card\n device GPU-ten 80G A%20card\n");
    let bench = bench.with("CUDA_VISIBLE_DEVICES", "0").with("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    let acts = bench.scratch.path().join("child-acts");
    std::fs::write(&acts, format!("device allocate a 0 2G\n until {}\n", bench.gate("end").display())).unwrap();
    let loader = reference_loader().map(|word| format!("'{word}'")).join(" ");
    // A launcher whose ranks each get a device of their own, and one more process that is of none.
    let script = format!(
        "for n in 1 2; do CUDA_VISIBLE_DEVICES=$n {loader} acts '{0}' '{0}.truth' & done; env -i true; wait",
        acts.display()
    );
    let done = bench.launch(&["sh", "-c", &script].map(str::to_owned), |running| {
        running.sees("device_launch_bytes", 4 * GIB + 2 * CONTEXT);
        running.sees("device_rise_bytes", 4 * GIB + 2 * CONTEXT);
        running.open("end");
    });
    assert!(done.status.success());
    assert_eq!(done.counted(), ["GPU-one", "GPU-two", "GPU-ten"]);
    let environments = done.meta["device_probe"]["environments"].as_array().unwrap();
    let mut seen: Vec<(&str, String)> = environments
        .iter()
        .map(|own| (own["cuda_visible_devices"].as_str().unwrap(), own["devices"].to_string()))
        .collect();
    seen.sort();
    assert_eq!(seen, [("1", "[1]".to_owned()), ("2", "[2]".to_owned())]);
    assert!(done.meta["device_probe"]["notes"].to_string().contains("may use it by its own environment"));
}
