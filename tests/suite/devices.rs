//! Device memory, by a library that stands in for NVIDIA's and answers by a script, and by files of a kernel that
//! never was.

mod copies;
mod cuda;
mod dry;
mod live;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::folder::RunFolder;
use crate::support::{ended, eventually, finish, folder, reference_loader, stagemark};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The library that Cargo made for these tests: it lies beside them.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libstagemark_stand_in.so")
}

/// How long a look at a mark waits for the device's reader, in milliseconds: far longer than a mark may take, for a machine
/// that gives the reader no CPU meanwhile.
const PATIENCE: (&str, &str) = ("STAGEMARK_DEVICE_PATIENCE_MS", "5000");

struct Launch {
    folder: tempfile::TempDir,
    command: Command,
}

impl Launch {
    /// On a host of which the devices' script says all.
    fn on(devices: &str) -> Launch {
        let folder = folder();
        let script = folder.path().join("devices");
        std::fs::write(&script, devices).unwrap();
        let mut command = stagemark();
        command.env("STAND_IN_DEVICES", &script).env("STAGEMARK_SYSFS", folder.path().join("no-sys"));
        command.env_remove("CUDA_VISIBLE_DEVICES").env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        command.env(PATIENCE.0, PATIENCE.1);
        command.args(["run", "--quiet", "--out"]).arg(folder.path().join("run"));
        command.arg("--nvidia-ml").arg(library());
        Launch { folder, command }
    }

    fn with(mut self, name: &str, value: &str) -> Launch {
        self.command.env(name, value);
        self
    }

    /// At a mark no longer than a mark may take.
    fn impatient(mut self) -> Launch {
        self.command.env_remove(PATIENCE.0);
        self
    }

    /// Runs the loader's script until `gpu_placed` is marked; `until @` in it waits for that.
    fn run_to_the_mark(mut self, acts: &str) -> Run {
        let (script, gate) = (self.folder.path().join("acts"), self.folder.path().join("gate"));
        std::fs::write(&script, acts.replace('@', gate.to_str().unwrap())).unwrap();
        self.command.arg("--").args(reference_loader()).arg("acts").arg(&script).arg(self.folder.path().join("truth"));
        let mut child = self.command.stdin(Stdio::null()).spawn().unwrap();
        let run = RunFolder::at(self.folder.path().join("run"));
        until_placed(&run);
        std::fs::write(gate, "").unwrap();
        assert!(ended(&mut child).success());
        let meta = run.json();
        Run { run, meta, _folder: self.folder }
    }

    /// Runs the loader's script to its end.
    fn run(mut self, acts: &str) -> Run {
        let script = self.folder.path().join("acts");
        std::fs::write(&script, acts).unwrap();
        self.command.arg("--").args(reference_loader()).arg("acts").arg(&script).arg(self.folder.path().join("truth"));
        let output = finish(&mut self.command);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let run = RunFolder::at(self.folder.path().join("run"));
        let meta = run.json();
        Run { run, meta, _folder: self.folder }
    }
}

struct Run {
    run: RunFolder,
    meta: Value,
    _folder: tempfile::TempDir,
}

impl Run {
    fn reason(&self, metric: &str) -> String {
        let absent = self.meta["absent"].as_array().unwrap();
        let found = absent.iter().find(|absent| absent["metric"] == metric);
        found.map(|absent| absent["reason"].as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

const ONE: &str = "driver 570.86.15\nreserved 512M\ncontext 400M\ndevice GPU-aaaa-1 16G A%20card\n";
/// A mark waits until it was looked at, so that the figures at it are of then.
const TAKES: &str = "device allocate A 0 2G\nhold 200\nmark placed\n";

#[test]
fn what_the_launch_takes_is_its_share_and_the_rise() {
    let ran = Launch::on(ONE).run(TAKES);
    let placed = ran.run.stage("placed");
    let taken = 2 * GIB + 400 * MIB;
    assert_eq!(placed.known("device_launch_bytes"), taken);
    assert_eq!(placed.known("device_rise_bytes"), taken);
    assert_eq!(placed.known("device_unexplained_bytes"), 0);
    assert_eq!(placed.known("peak_device_launch_bytes_low"), taken);
    assert_eq!(placed.text("peak_device_launch_bytes_basis"), "sampled");
    assert_eq!(ran.meta["device_probe"]["launch_basis"], "processes");
    let device = &ran.meta["devices"][0];
    assert_eq!((device["uuid"].as_str(), device["name"].as_str()), (Some("GPU-aaaa-1"), Some("A card")));
    assert_eq!((&device["total_bytes"], &device["is_counted"]), (&Value::from(16 * GIB), &Value::from(true)));
    let of_device = |row: &&crate::folder::Row| row["scope"] == "device" && row["metric"] == "launch_bytes";
    let details = ran.run.rows("detail.csv");
    assert!(details.iter().filter(of_device).any(|row| row["value"] == taken.to_string()));
    assert!(details.iter().any(|row| row["scope"] == "process" && row["metric"] == "device_bytes"));
}

#[test]
fn who_has_it_cannot_be_told_and_the_rise_says_so() {
    for pids in ["hidden", "moved", "unmeasured"] {
        let ran = Launch::on(&format!("{ONE}pids {pids}\nhold 0 4194300 1G\n")).run(TAKES);
        let placed = ran.run.stage("placed");
        let taken = 2 * GIB + 400 * MIB;
        assert_eq!(placed.number("device_launch_bytes"), Some(taken), "{pids}: {}", ran.reason("device_launch_bytes"));
        assert_eq!(placed.number("device_unexplained_bytes"), None, "{pids}");
        assert_eq!(ran.meta["device_probe"]["launch_basis"], "rise", "{pids}");
        assert!(ran.meta["device_probe"]["basis_reason"].is_string(), "{pids}");
    }
}

#[test]
fn only_what_the_launch_may_use_is_counted() {
    let two = format!("{ONE}device GPU-bbbb-2 8G\npart MIG-one 3G\npart MIG-two 4G\nhold 0 4194300 1G\n");
    let ran =
        Launch::on(&two).with("CUDA_VISIBLE_DEVICES", "MIG-two").run("device allocate A 0 1G\nhold 200\nmark placed\n");
    let counted: Vec<bool> =
        ran.meta["devices"].as_array().unwrap().iter().map(|device| device["is_counted"] == true).collect();
    assert_eq!(counted, [false, false, false, true]);
    assert_eq!(ran.run.stage("placed").known("device_rise_bytes"), GIB + 400 * MIB);
    assert_eq!(ran.run.stage("placed").known("device_launch_bytes"), GIB + 400 * MIB);
}

#[test]
fn a_device_that_is_lost_has_a_reason_and_the_launch_goes_on() {
    let lost = format!("{ONE}device GPU-bbbb-2 8G\nstep lost answer * GPU_IS_LOST device 1\n");
    let ran = Launch::on(&lost).run(&format!("{TAKES}device step lost\nhold 200\nmark after\n"));
    assert!(ran.run.stage("placed").known("device_used_bytes") > 2 * GIB);
    let after = ran.run.stage("after");
    assert_eq!((after.reached(), after.number("device_used_bytes")), (true, None));
    assert!(ran.reason("device_used_bytes").contains("device 1"), "{}", ran.reason("device_used_bytes"));
    assert!(ran.meta["devices"][1]["reason"].as_str().unwrap().contains("lost"));
}

#[test]
fn a_driver_that_hangs_makes_no_tick_late() {
    let hangs = format!("{ONE}step hang hang nvmlDeviceGetMemoryInfo 30s\n");
    let ran = Launch::on(&hangs).impatient().run(&format!("{TAKES}device step hang\nhold 1500\nmark after\n"));
    let after = ran.run.stage("after");
    assert_eq!((after.reached(), after.number("device_used_bytes")), (true, None));
    assert!(ran.reason("device_used_bytes").contains("has not answered"), "{}", ran.reason("device_used_bytes"));
    // Of the looks themselves none took anything like it: how late they begin is the machine's.
    let costs = ran.run.rows("samples.csv");
    let longest = costs.iter().map(|row| row["cost_ns"].parse::<u64>().unwrap()).max().unwrap();
    assert!(longest < 1_000_000_000, "{longest}");
    assert!(costs.len() > 10, "{}", costs.len());
}

#[test]
fn without_a_library_there_is_a_reason_and_nothing_else() {
    let mut launch = Launch::on(ONE);
    launch.command.arg("--nvidia-ml").arg("/nowhere/libnvidia-ml.so.1");
    let folder = launch.folder.path().join("run");
    launch.command = {
        let mut command = stagemark();
        command.args(["run", "--quiet", "--out"]).arg(&folder).args([
            "--nvidia-ml",
            "/nowhere/libnvidia-ml.so.1",
            "--",
        ]);
        command.env("STAGEMARK_SYSFS", launch.folder.path()).arg("true");
        command
    };
    assert!(finish(&mut launch.command).status.success());
    let meta = RunFolder::at(&folder).json();
    assert_eq!(meta["devices"], Value::Array(Vec::new()));
    let reasons = meta["device_probe"]["reasons"].to_string();
    assert!(reasons.contains("/nowhere/libnvidia-ml.so.1") && reasons.contains("class/drm"), "{reasons}");
    let text = String::from_utf8(std::fs::read(folder.join("timeline.svg")).unwrap()).unwrap();
    assert!(!text.contains("Device memory"));
}

#[test]
fn the_picture_and_the_table_show_it() {
    let ran = Launch::on(ONE).run(TAKES);
    let svg = String::from_utf8(ran.run.bytes("timeline.svg")).unwrap();
    assert!(svg.contains("Device memory"));
    let report = finish(stagemark().arg("report").arg(Path::new(&ran.run.path)));
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(text.contains("device memory at") && text.contains("2.39 GiB"), "{text}");
}

#[test]
fn accounting_mode_bounds_the_peak_that_no_sample_has() {
    let ran = Launch::on(&format!("{ONE}accounting on\n"))
        .run("device allocate A 0 1G\ndevice allocate B 0 4G\ndevice free B\nhold 200\nmark placed\n");
    let placed = ran.run.stage("placed");
    assert_eq!(placed.known("device_launch_bytes"), GIB + 400 * MIB);
    assert_eq!(placed.known("peak_device_launch_bytes_high"), 5 * GIB + 400 * MIB);
    assert_ne!(placed.text("peak_device_launch_bytes_basis"), "sampled");
}

/// Waits until `gpu_placed` is marked.
fn until_placed(run: &RunFolder) {
    let rows = || run.path.join("events.csv").exists().then(|| run.bytes("events.csv"));
    eventually("the mark", || String::from_utf8_lossy(&rows()?).contains(",mark,,gpu_placed,").then_some(()));
}

/// Writes a stage file whose one stage is a plateau of device memory, and names it on the command line.
fn following_a_plateau(launch: Launch) -> Launch {
    following(launch, "{ device = { rise = \"64 MiB\", still = \"200 ms\" } }")
}

/// The same for a stage with this condition.
fn following(mut launch: Launch, when: &str) -> Launch {
    let stages = launch.folder.path().join("plateau.toml");
    let when = format!("when = {when}");
    std::fs::write(&stages, format!("name = \"plateau\"\n[[stage]]\nname = \"gpu_placed\"\n{when}\n")).unwrap();
    launch.command.arg("--stages").arg(stages);
    launch
}

#[test]
fn a_rise_and_then_stillness_place_the_model_and_claim_no_more() {
    let acts = "hold 200\ndevice allocate A 0 1G\nhold 100\ndevice allocate B 0 1G\nuntil @\n";
    let placed = following_a_plateau(Launch::on(ONE)).run_to_the_mark(acts).run.stage("gpu_placed");
    assert_eq!((placed.text("status"), placed.text("evidence")), ("reached", "device"));
    assert_eq!(placed.known("device_launch_bytes"), 2 * GIB + 400 * MIB, "of the first sample of the plateau");
    assert!(placed.text("detail").contains("no proof"), "{}", placed.text("detail"));
}

#[test]
fn without_a_device_nothing_can_be_placed_and_with_one_it_was_not() {
    let none = following_a_plateau(Launch::on("driver 570.86.15\n")).run("hold 50\n").run.stage("gpu_placed");
    assert_eq!(none.text("status"), "not_applicable", "{}", none.text("reason"));
    let used = following(Launch::on(ONE), "{ device = { rise = \"8 GiB\", still = \"200 ms\" } }");
    let used = used.run("device allocate A 0 1G\nhold 500\n").run.stage("gpu_placed");
    assert_eq!(used.text("status"), "not_reached", "{}", used.text("reason"));
    let denied =
        ["MemoryInfo", "ComputeRunningProcesses"].map(|of| format!("answer nvmlDeviceGet{of} NO_PERMISSION\n"));
    let unseen = Launch::on(&format!("{ONE}{}", denied.concat()));
    let unseen = following_a_plateau(unseen).run("hold 50\n").run.stage("gpu_placed");
    assert_eq!(unseen.text("status"), "unknown", "{}", unseen.text("reason"));
}

#[test]
fn a_launch_that_uses_none_of_the_devices_places_nothing() {
    let status = |devices: &str| {
        let placed = following_a_plateau(Launch::on(devices)).run("hold 500\n").run.stage("gpu_placed");
        (placed.text("status").to_owned(), placed.text("reason").to_owned())
    };
    // Others' memory, which stays as it is.
    let (unused, why) = status(&format!("{ONE}hold 0 1 1G\n"));
    assert_eq!(unused, "not_applicable", "{why}");
    assert!(why.contains("no process of it had device memory") && why.contains("more than 64 MiB"), "{why}");
    // Whose memory it is was not told.
    let (unknown, why) = status(&format!("{ONE}answer nvmlDeviceGetComputeRunningProcesses NO_PERMISSION\n"));
    assert_eq!(unknown, "unknown", "{why}");
    // It grew, and nobody of the launch was named.
    let (unknown, why) = status(&format!("{ONE}at 100ms hold 0 1 1G\n"));
    assert_eq!(unknown, "unknown", "{why}");
    assert!(why.contains("no process of it was named"), "{why}");
}

#[test]
fn each_ordinary_way_of_loading_can_place_its_payload_on_a_device() {
    let when =
        "{ all = [ { device = { rise = \"6 MiB\", still = \"100 ms\" } }, { log = '^stage module_populated' } ] }";
    for mode in ["mmap-lazy", "mmap-populate", "read-heap", "prefetch-then-map", "map-and-clone", "log-early"] {
        let mut launch = following(Launch::on(&ONE.replace("context 400M", "context 1M")), when);
        let model = launch.folder.path().join("model.safetensors");
        stagemark_fixtures::models::uniform(&model, 8 * MIB, 4, stagemark_fixtures::models::Fill::Pattern).unwrap();
        launch.command.arg("--").args(reference_loader()).args(["--mode", mode, "--device", "0"]);
        launch.command.args(["--hold", "until-stdin-closes", "--model"]).arg(&model);
        let mut child = launch.command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let run = RunFolder::at(launch.folder.path().join("run"));
        until_placed(&run);
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{mode}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("stage gpu_placed t="), "{mode}: {said}");
        let placed = run.stage("gpu_placed");
        assert_eq!((placed.text("status"), placed.text("evidence")), ("reached", "several"), "{mode}");
        // Whose time the log's line has may be between two answers of the driver.
        let at_mark = placed.number("device_launch_bytes").unwrap_or(9 * MIB);
        assert_eq!((at_mark, run.largest("device_launch_bytes")), (9 * MIB, Some(9 * MIB)), "{mode}");
    }
}

#[test]
fn ranks_place_their_shares_on_devices_of_their_own() {
    let mut launch = Launch::on("reserved 0\ncontext 1M\ndevice GPU-a 1G\ndevice GPU-b 1G\n");
    let model = launch.folder.path().join("model.safetensors");
    stagemark_fixtures::models::uniform(&model, 8 * MIB, 4, stagemark_fixtures::models::Fill::Pattern).unwrap();
    launch.command.args(["--stage", "gpu_placed=notify", "--"]).args(reference_loader());
    launch.command.args(["--mode", "mmap-lazy", "--device", "0", "--fork", "2", "--notify", "--model"]).arg(&model);
    let output = finish(&mut launch.command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = RunFolder::at(launch.folder.path().join("run"));
    assert_eq!(run.stage("gpu_placed").known("device_launch_bytes"), 10 * MIB);
    for device in ["0", "1"] {
        let of = |row: &&crate::folder::Row| {
            row["scope"] == "device" && row["id"] == device && row["metric"] == "launch_bytes"
        };
        let most = run.rows("detail.csv").iter().filter(of).map(|row| row["value"].parse::<u64>().unwrap()).max();
        assert_eq!(most, Some(5 * MIB), "{device}");
    }
}

#[test]
fn each_of_several_devices_has_a_line_and_a_key() {
    let keys = |count: usize| {
        let devices: String = (0..count).map(|device| format!("device GPU-{device}{device}a 16G\n")).collect();
        let acts: String = (0..count).map(|device| format!("device allocate w{device} {device} 1G\n")).collect();
        let ran = Launch::on(&devices).run(&format!("{acts}hold 100\nmark placed\n"));
        String::from_utf8(ran.run.bytes("timeline.svg")).unwrap()
    };
    let (two, eight) = (keys(2), keys(8));
    assert!(two.contains("\ndevice 0\n</text>") && two.contains("\ndevice 1\n</text>"));
    assert!(eight.contains("each of 8 devices by number"));
    for device in 0..8 {
        assert!(eight.contains(&format!(">\n{device}\n</text>")), "{device}");
    }
}

#[test]
fn what_the_files_store_is_held_against_what_came_to_the_device() {
    for (bytes, why) in [
        (8 * MIB, "as much as the payload as it is stored"),
        (4 * MIB, "half of it"),
        (16 * MIB, "twice of it"),
        (5 * MIB, "no half or quarter of it"),
        (56 * MIB, "not twice of it"),
    ] {
        let mut launch = Launch::on(&ONE.replace("context 400M", "context 0"));
        let model = launch.folder.path().join("model.safetensors");
        stagemark_fixtures::models::uniform(&model, 8 * MIB, 4, stagemark_fixtures::models::Fill::Pattern).unwrap();
        launch.command.arg("--artifact").arg(&model);
        let open = format!("open f {}\nmap m f 0 8M private ro\n", model.display());
        let ran = launch.run(&format!("{open}device allocate A 0 {bytes}\nhold 200\nmark placed\n"));
        assert_eq!(ran.run.stage("placed").known("device_launch_bytes"), bytes);
        let report = finish(stagemark().arg("report").arg(Path::new(&ran.run.path)));
        let text = String::from_utf8_lossy(&report.stdout).replace("\n ", "").replace("  ", " ");
        assert!(text.contains("The files store") && text.contains(why), "{bytes}: {text}");
    }
}
