//! The process that asks the CUDA driver, and holds the contexts that the driver wants for it. It says which devices
//! there are, and then answers a line on its input with one on its output:
//!
//! | asked | answered |
//! |---|---|
//! | `open 0 2` | a context on each of these devices: how much memory it has, and what one more context takes |
//! | `read` | free and total bytes of each of them |
//!
//! It decides nothing, and ends without a word to the driver: what it holds goes with it.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::signal::Signal;

use super::{Answer, Found, Memory, Opened};
use crate::artifact::hexadecimal;
use crate::sys::cuda::{Context, Driver};
use crate::sys::process::close_all_but;

/// The hidden verb, and the name by which process listings show the process.
pub const NAME: &str = "cuda-memory";
/// Before the numbers of devices, for a process that makes contexts on them, says so, and ends with its input.
const WEIGH: &str = "--weigh";

/// The process. Must be dispatched before anything opens a descriptor. An argument is the library's path.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    close_all_but(&[]);
    // Only the name is lost if this fails.
    let _ = nix::sys::prctl::set_name(c"cuda-memory");
    // It is no part of the terminal's job; and one that hangs in the driver ends with whoever asked.
    let _ = nix::unistd::setsid();
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let mut arguments = arguments.peekable();
    let library = arguments.next_if(|argument| argument != WEIGH);
    let driver = Driver::open(library.as_deref().map(Path::new));
    if arguments.next_if(|argument| argument == WEIGH).is_some() {
        let indices: Vec<i32> = arguments.filter_map(|argument| argument.to_str()?.parse().ok()).collect();
        return if driver.is_ok_and(|driver| weigh(driver, &indices)) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let found = driver.clone().and_then(devices);
    let has_devices = found.is_ok();
    if !say(&Answer::Devices(found)) || !has_devices {
        return ExitCode::FAILURE;
    }
    let Ok(driver) = driver else { return ExitCode::FAILURE };
    let mut contexts: Vec<Result<Context, String>> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let mut words = line.split_ascii_whitespace();
        let answer = match words.next() {
            Some("open") => {
                let indices: Vec<i32> = words.filter_map(|word| word.parse().ok()).collect();
                contexts = indices.iter().map(|index| driver.retain(*index)).collect();
                Answer::Opened(opened(driver, library.as_deref().map(Path::new), &indices, &contexts))
            }
            Some("read") => Answer::Memory(memory(driver, &contexts)),
            _ => break,
        };
        if !say(&answer) {
            break;
        }
    }
    // Destructors of the driver's may hang; its contexts end with the process.
    crate::sys::process::leave(0)
}

fn say(answer: &Answer) -> bool {
    let mut output = std::io::stdout().lock();
    let Ok(line) = serde_json::to_string(answer) else { return false };
    writeln!(output, "{line}").and_then(|()| output.flush()).is_ok()
}

fn devices(driver: Driver) -> Result<Vec<Found>, String> {
    let one = |index| {
        let described = driver.describe(index)?;
        Ok(Found {
            name: described.name.unwrap_or_default().chars().take(128).collect(),
            uuid: described.uuid.map(uuid),
            pci: described.pci,
            is_integrated: described.is_integrated,
        })
    };
    (0..driver.count()?).map(one).collect()
}

/// As NVML and `CUDA_VISIBLE_DEVICES` write it.
fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = hexadecimal(&bytes);
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn memory(driver: Driver, contexts: &[Result<Context, String>]) -> Vec<Memory> {
    contexts.iter().map(|context| driver.memory(context.clone()?)).collect()
}

/// Of each context: the device's memory, and what one more takes, which a process makes and ends.
fn opened(
    driver: Driver,
    library: Option<&Path>,
    indices: &[i32],
    contexts: &[Result<Context, String>],
) -> Vec<Result<Opened, String>> {
    let before = memory(driver, contexts);
    let during = with_one_more(library, indices).map(|mut other| {
        let during = memory(driver, contexts);
        drop(other.stdin.take());
        // What it had is free again when it is gone.
        let _ = other.wait();
        during
    });
    let cost = |nth: usize, free: u64| {
        let (free_then, _) = during.as_ref().map_err(Clone::clone)?[nth].clone()?;
        match free.checked_sub(free_then) {
            Some(cost) => Ok(cost),
            None => Err("more was free with one more context than without: others gave memory back".to_owned()),
        }
    };
    let one = |(nth, before): (usize, Memory)| before.map(|(free, total)| Opened { total, cost: cost(nth, free) });
    before.into_iter().enumerate().map(one).collect()
}

/// A process that has a context on each of these devices, too.
fn with_one_more(library: Option<&Path>, indices: &[i32]) -> Result<Child, String> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).arg(NAME).args(library).arg(WEIGH).args(indices.iter().map(i32::to_string));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut other = command.spawn().map_err(|error| format!("a process for one more context: {error}"))?;
    let mut said = String::new();
    let heard = other.stdout.take().map(|output| std::io::BufReader::new(output).read_line(&mut said));
    if heard.is_none_or(|heard| heard.is_err()) || said.is_empty() {
        drop(other.stdin.take());
        let _ = other.wait();
        return Err("one more context could not be made".to_owned());
    }
    Ok(other)
}

fn weigh(driver: Driver, indices: &[i32]) -> bool {
    let all = indices.iter().all(|index| driver.retain(*index).is_ok());
    if all && writeln!(std::io::stdout(), "held").is_ok() {
        // Nothing is ever sent: the end of its input is its own.
        let _ = std::io::stdin().lines().next();
    }
    if !all {
        crate::sys::process::leave(1)
    }
    crate::sys::process::leave(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvidia_does() {
        let bytes = *b"\x9c\x5a\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee";
        assert_eq!(uuid(bytes), "GPU-9c5a1122-3344-5566-7788-99aabbccddee");
    }
}
