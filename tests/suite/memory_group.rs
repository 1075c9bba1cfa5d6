//! A version 1 memory group with a limit, for tests of what the kernel does when it is reached.

use std::path::PathBuf;

/// Below this process's own group, taken away in the end.
pub struct Group(pub PathBuf);

impl Group {
    /// `None` where there is no such hierarchy, or none may be made in it.
    pub fn limited(bytes: u64) -> Option<Group> {
        let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            controllers.split(',').any(|name| name == "memory").then_some(path)
        })?;
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("stagemark-test-{}-{number}", std::process::id());
        let path = PathBuf::from(format!("/sys/fs/cgroup/memory{own}")).join(name);
        std::fs::create_dir(&path).ok()?;
        let group = Group(path);
        std::fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(group)
    }

    /// Or says loudly that there is none.
    pub fn or_skip(bytes: u64) -> Option<Group> {
        let group = Group::limited(bytes);
        if group.is_none() {
            eprintln!("SKIPPED: no memory group of version 1 can be made here: it takes root, and such a hierarchy");
        }
        group
    }

    /// How often the kernel has killed in it.
    pub fn kills(&self) -> u64 {
        let text = std::fs::read_to_string(self.0.join("memory.oom_control")).unwrap();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
