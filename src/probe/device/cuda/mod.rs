//! Device memory by the CUDA driver itself, for devices whose memory NVML does not tell: boards whose device has the
//! host's memory, and hosts that have the driver and not the management library. Asked for by `--cuda-memory`, and by
//! nothing else: the driver tells a context's owner alone, and a context takes device memory.
//!
//! The context is a small process's own ([`process`], a hidden verb), which this module starts before the launch and
//! asks over a pipe. So a driver that crashes takes that process, one that hangs is left unanswered, and the profiler
//! itself holds nothing of a device. Only devices that the launch may use, and that nobody else tells of, get a context.
//! What one takes is measured: another process makes one more on each, and ends it again, before the first reading.

pub mod process;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use super::visible::{self, Wishes};
use super::{Device, OwnContext, Shown, Source, Vendor};
use crate::clock::Mono;
use crate::event::Pid;

/// How long each of its first answers is waited for: a driver wakes, contexts are made.
const FIRST: Duration = Duration::from_secs(4);
/// How long a reading is waited for; one that is owed is not waited for again.
const READING: Duration = Duration::from_millis(500);
/// Longest answer, in bytes.
const LONGEST: usize = 1 << 20;
/// More devices than this are not asked for.
const MOST_DEVICES: usize = 64;

/// `--cuda-memory`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `--cuda-library`; the loader's usual one without.
    pub library: Option<PathBuf>,
}

/// A device, as the process tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Found {
    name: String,
    /// `GPU-…`.
    uuid: Option<String>,
    pci: Option<String>,
    is_integrated: bool,
}

/// Free and total bytes, or why not.
type Memory = Result<(u64, u64), String>;

/// A context that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Opened {
    total: u64,
    /// What one more context takes.
    cost: Result<u64, String>,
}

/// A line that the process writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Devices(Result<Vec<Found>, String>),
    Opened(Vec<Result<Opened, String>>),
    Memory(Vec<Memory>),
}

/// What `libcuda.so` is to be, for the time in which it is looked for: cudarc finds it by that name alone.
struct Link(PathBuf);

impl Link {
    fn to(library: &Path) -> Result<Link, String> {
        let told = |error: std::io::Error| format!("{}: {error}", library.display());
        let library = library.canonicalize().map_err(told)?;
        let name = format!("stagemark-cuda-{}-{}", std::process::id(), Mono::now().0);
        let folder = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(told)?;
        let link = Link(folder);
        std::os::unix::fs::symlink(&library, link.0.join("libcuda.so")).map_err(told)?;
        Ok(link)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A folder of ours that stays does no harm.
        let _ = std::fs::remove_file(self.0.join("libcuda.so"));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The process that asks the driver. It ends when its input does, and with this process.
pub struct Asker {
    pid: Pid,
    input: ChildStdin,
    output: ChildStdout,
    buffer: Vec<u8>,
    /// Since when an answer is owed.
    owed: Option<Mono>,
    link: Option<Link>,
}

impl Asker {
    /// Starts it. To be called by a thread that lives as long as the process: its end is the other's
    /// (PR_SET_PDEATHSIG(2const)).
    pub fn start(wanted: &Wanted) -> Result<Asker, String> {
        let link = wanted.library.as_deref().map(Link::to).transpose()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0(process::NAME).arg(process::NAME);
        if let (Some(library), Some(link)) = (&wanted.library, &link) {
            command.arg(library.canonicalize().unwrap_or_else(|_| library.clone()));
            let mut paths = OsString::from(&link.0);
            if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
                paths.push(":");
                paths.push(others);
            }
            command.env("LD_LIBRARY_PATH", paths);
        }
        // All of them, counted as NVML does: which are the launch's is decided here.
        command.env_remove("CUDA_VISIBLE_DEVICES").env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("the process that asks it: {error}"))?;
        let pid = child.id() as Pid;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the process that asks it has no pipes".to_owned());
        };
        // Its list of devices is on its way.
        Ok(Asker { pid, input, output, buffer: Vec::new(), owed: Some(Mono::now()), link })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Asks, unless an answer is owed already.
    fn ask(&mut self, question: &str) -> Result<(), String> {
        if self.owed.is_some() {
            // It comes too late to be of now.
            self.answer(Duration::ZERO)?;
        }
        self.input.write_all(format!("{question}\n").as_bytes()).map_err(|_| ended())?;
        self.owed = Some(Mono::now());
        Ok(())
    }

    /// The next answer that is owed.
    fn answer(&mut self, limit: Duration) -> Result<Answer, String> {
        let deadline = Mono::now().plus(limit.as_nanos() as u64);
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.owed = None;
                return serde_json::from_slice(&line).map_err(|error| format!("its answer: {error}"));
            }
            if self.buffer.len() > LONGEST {
                return Err("its answer has no end".to_owned());
            }
            let left = Duration::from_nanos(deadline.since(Mono::now()));
            // Rounded up, so that what is left is not spent in a busy wait.
            let left = if left.is_zero() { left } else { left + Duration::from_millis(1) };
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => {
                    let waited = self.owed.map_or(0, |since| Mono::now().since(since));
                    return Err(format!("the CUDA driver has not answered for {} ms", waited / 1_000_000));
                }
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.to_string()),
                Ok(_) => {}
            }
            let mut bytes = [0; 4096];
            match self.output.read(&mut bytes) {
                Ok(0) | Err(_) => return Err(ended()),
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
            }
        }
    }

    fn devices(&mut self) -> Result<Vec<Found>, String> {
        match self.answer(FIRST)? {
            Answer::Devices(found) => found.map(|mut found| {
                found.truncate(MOST_DEVICES);
                found
            }),
            _ => Err("it answers something else".to_owned()),
        }
    }

    fn open(&mut self, indices: &[usize]) -> Result<Vec<Result<Opened, String>>, String> {
        let words: Vec<String> = indices.iter().map(usize::to_string).collect();
        self.ask(&format!("open {}", words.join(" ")))?;
        match self.answer(FIRST)? {
            Answer::Opened(opened) if opened.len() == indices.len() => Ok(opened),
            _ => Err("it answers something else".to_owned()),
        }
    }

    fn memory(&mut self, count: usize) -> Result<Vec<Memory>, String> {
        self.ask("read")?;
        match self.answer(READING)? {
            Answer::Memory(memory) if memory.len() == count => Ok(memory),
            _ => Err("it answers something else".to_owned()),
        }
    }
}

fn ended() -> String {
    "the process that asks the CUDA driver has ended".to_owned()
}

/// The devices that CUDA tells of.
pub struct Cuda {
    asker: Asker,
    /// Their places among all devices.
    places: Vec<usize>,
}

impl Cuda {
    /// Has contexts made on those of `devices` whose memory nobody tells and that the launch may use, after those that
    /// only CUDA knows were added; says what there is to know of it. `devices` are NVML's, so far.
    pub fn begin(
        asker: Result<Asker, String>,
        devices: &mut Vec<Device>,
        wishes: &Wishes,
    ) -> (Option<Cuda>, Vec<String>) {
        let mut notes = Vec::new();
        let begun = asker.and_then(|mut asker| {
            let found = asker.devices()?;
            // CUDA's number, and the place.
            let mut wanted: Vec<(usize, usize)> = Vec::new();
            let is_alone = devices.is_empty();
            for (index, found) in found.iter().enumerate() {
                let place = match place_of(found, devices) {
                    Some(place) => place,
                    None if is_alone => {
                        devices.push(device_of(found));
                        devices.len() - 1
                    }
                    None => {
                        notes.push(format!("CUDA: its device {index} ({}) is none of NVML's", found.name));
                        continue;
                    }
                };
                devices[place].is_unified |= found.is_integrated;
                if devices[place].total_bytes.is_none() && !devices[place].is_divided {
                    wanted.push((index, place));
                }
            }
            let may = visible::resolve(devices, wishes).devices;
            wanted.retain(|(_, place)| may[*place]);
            if wanted.is_empty() {
                notes.push(match found.is_empty() {
                    true => "CUDA: it knows of no device".to_owned(),
                    false => "--cuda-memory: no context was made, as there is no device that needs one".to_owned(),
                });
                return Ok(None);
            }
            let indices: Vec<usize> = wanted.iter().map(|(index, _)| *index).collect();
            let opened = asker.open(&indices)?;
            asker.link = None;
            let places = wanted.iter().map(|(_, place)| *place).collect();
            for ((_, place), opened) in wanted.iter().zip(opened) {
                let device = &mut devices[*place];
                device.context = Some(match opened {
                    Ok(Opened { total, cost }) => {
                        device.total_bytes = Some(total);
                        OwnContext { bytes: cost.clone().ok(), reason: cost.err() }
                    }
                    Err(why) => OwnContext { bytes: None, reason: Some(format!("it could not be made: {why}")) },
                });
            }
            Ok(Some(Cuda { asker, places }))
        });
        match begun {
            Ok(cuda) => (cuda, notes),
            Err(why) => {
                notes.push(format!("CUDA: {why}"));
                (None, notes)
            }
        }
    }

    /// Puts what is in use on its devices in place of what nobody else could tell.
    pub fn memory(&mut self, shown: &mut [Shown]) {
        let read = self.asker.memory(self.places.len());
        for (nth, place) in self.places.iter().enumerate() {
            let Some(shown) = shown.get_mut(*place) else { continue };
            let memory = read.as_ref().map_err(Clone::clone).and_then(|all| all[nth].clone());
            match memory {
                Ok((free, total)) => {
                    (shown.used, shown.free, shown.reason) = (Some(total.saturating_sub(free)), Some(free), None);
                }
                Err(why) => {
                    (shown.used, shown.free, shown.reason) = (None, None, Some(format!("CUDA: {why}")));
                }
            }
        }
    }
}

/// Which of the devices it is: by UUID, by address, or because there is one alone.
fn place_of(found: &Found, devices: &[Device]) -> Option<usize> {
    let is = |one: &Option<String>, other: &Option<String>| match (one, other) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => false,
    };
    // NVML's domain has eight digits, CUDA's four.
    let short =
        |pci: &Option<String>| pci.as_ref().and_then(|pci| Some(pci.get(pci.len().checked_sub(12)?..)?.to_owned()));
    let tops = || devices.iter().enumerate().filter(|(_, device)| device.parent.is_none());
    tops()
        .find(|(_, device)| is(&device.uuid, &found.uuid))
        .or_else(|| tops().find(|(_, device)| is(&short(&device.pci), &short(&found.pci))))
        .map(|(place, _)| place)
}

fn device_of(found: &Found) -> Device {
    Device {
        uuid: found.uuid.clone(),
        name: found.name.clone(),
        source: Source::Cuda,
        pci: found.pci.clone().map(|pci| pci.to_ascii_lowercase()),
        is_unified: found.is_integrated,
        ..Device::of(Vendor::Nvidia)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(uuid: &str, pci: &str) -> Found {
        Found { name: "A".into(), uuid: Some(uuid.into()), pci: Some(pci.into()), is_integrated: true }
    }

    #[test]
    fn a_device_is_found_again_by_uuid_or_by_address() {
        let known = |uuid: &str, pci: &str| Device {
            uuid: Some(uuid.into()),
            pci: Some(pci.into()),
            ..Device::of(Vendor::Nvidia)
        };
        let devices = [known("GPU-aa", "00000000:01:00.0"), known("GPU-bb", "00000000:2a:00.0")];
        assert_eq!(place_of(&found("gpu-BB", "0000:99:00.0"), &devices), Some(1));
        assert_eq!(place_of(&found("GPU-x", "0000:2A:00.0"), &devices), Some(1));
        assert_eq!(place_of(&found("GPU-x", "0000:03:00.0"), &devices), None);
        assert_eq!(place_of(&Found { uuid: None, pci: Some("é1:00.0".into()), ..found("", "") }, &devices), None);
    }

    #[test]
    fn a_library_that_is_not_there_is_named_and_no_folder_stays() {
        let wanted = Wanted { library: Some("/nowhere/libcuda.so.1".into()) };
        let why = Asker::start(&wanted).err().unwrap();
        assert!(why.contains("/nowhere/libcuda.so.1"), "{why}");
        let link = Link::to(Path::new("/proc/self/exe")).unwrap();
        let folder = link.0.clone();
        assert!(folder.join("libcuda.so").exists());
        drop(link);
        assert!(!folder.exists());
    }

    #[test]
    fn answers_survive_the_pipe() {
        let opened = Opened { total: 8, cost: Err("x".into()) };
        for answer in [
            Answer::Devices(Err("CUDA_ERROR_NO_DEVICE".into())),
            Answer::Devices(Ok(vec![found("GPU-aa", "0000:01:00.0")])),
            Answer::Opened(vec![Ok(opened), Err("y".into())]),
            Answer::Memory(vec![Ok((1, u64::MAX)), Err("z".into())]),
        ] {
            let line = serde_json::to_vec(&answer).unwrap();
            assert_eq!(serde_json::from_slice::<Answer>(&line).unwrap(), answer);
        }
    }
}
