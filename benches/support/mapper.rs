//! A process of many mappings of one file, and a root that starts others like it. It prints `ready` once all of them
//! are there, and ends when its standard input does.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mprotect};

pub const PAGE: usize = 4096;

const MAPPINGS: &str = "STAGEMARK_BENCH_MAPPINGS";
const OTHERS: &str = "STAGEMARK_BENCH_OTHERS";
const FILE: &str = "STAGEMARK_BENCH_FILE";

/// Makes `command`, which runs this very program, the root of so many processes of so many mappings.
pub fn prepare(command: &mut Command, processes: usize, mappings: usize, file: &Path) {
    command.env(MAPPINGS, mappings.to_string()).env(OTHERS, (processes - 1).to_string()).env(FILE, file);
}

/// Does the process's work, if this is one of them; says whether it was.
pub fn is_one() -> bool {
    let Ok(mappings) = std::env::var(MAPPINGS) else { return false };
    run(mappings.parse().unwrap(), std::env::var(OTHERS).unwrap().parse().unwrap());
    true
}

fn run(mappings: usize, others: usize) {
    let file = File::open(std::env::var_os(FILE).unwrap()).unwrap();
    let size = NonZeroUsize::new(mappings.max(1) * PAGE).unwrap();
    // SAFETY: a new private mapping that nothing reads.
    #[allow(unsafe_code)]
    let start = unsafe { mmap(None, size, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, &file, 0) }.unwrap();
    for page in (1..mappings).step_by(2) {
        let permissions = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a page of the mapping made above, to which nothing refers.
        #[allow(unsafe_code)]
        unsafe { mprotect(start.byte_add(page * PAGE), PAGE, permissions) }.unwrap();
    }
    let children: Vec<Child> = (0..others)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let mut child = command.env(OTHERS, "0").stdout(Stdio::piped()).spawn().unwrap();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            child
        })
        .collect();
    println!("ready");
    // All of them hold the same pipe, and end when it is closed.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    for mut child in children {
        child.wait().unwrap();
    }
}
