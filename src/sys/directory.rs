//! Directories in small steps: readdir(3) takes 32 KiB of entries at once.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What comes before the name in an entry (getdents(2), `linux_dirent64`): inode, offset, length, type.
const BEFORE_NAME: usize = 8 + 8 + 2 + 1;
const LENGTH_AT: usize = 16;

/// Hands the names of the next entries to `each`, as many as `buffer` has room for; `false` at the directory's end.
///
/// # Errors
/// The kernel's, one of a buffer that is too small for the next entry (`EINVAL`) among them.
pub fn next_names(directory: &File, buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> io::Result<bool> {
    // SAFETY: the kernel writes no more than the length that is given with the buffer, which is borrowed for the call.
    let filled =
        unsafe { libc::syscall(libc::SYS_getdents64, directory.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    let filled = usize::try_from(filled).map_err(|_| io::Error::last_os_error())?;
    let mut rest = buffer.get(..filled).unwrap_or_default();
    while let Some(&[low, high]) = rest.get(LENGTH_AT..LENGTH_AT + 2) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        // One without a length would have no end.
        let Some(entry) = rest.get(..length).filter(|entry| entry.len() > BEFORE_NAME) else { break };
        each(entry[BEFORE_NAME..].split(|&byte| byte == 0).next().unwrap_or_default());
        rest = &rest[length..];
    }
    Ok(filled > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_steps_give_every_name_once() {
        let folder = tempfile::tempdir().unwrap();
        let wanted: Vec<String> = (0..200).map(|number| format!("name-{number:03}")).collect();
        wanted.iter().for_each(|name| drop(File::create(folder.path().join(name)).unwrap()));
        let directory = File::open(folder.path()).unwrap();
        let mut names = Vec::new();
        let mut steps = 0;
        while next_names(&directory, &mut [0; 256], |name| names.push(String::from_utf8_lossy(name).into_owned()))
            .unwrap()
        {
            steps += 1;
        }
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        assert_eq!(names, wanted);
        assert!(steps > 20, "{steps}");
        assert!(next_names(&File::open("/dev/null").unwrap(), &mut [0; 256], |_| {}).is_err());
    }
}
