//! Which other caches may hold an artifact's bytes: none of them is touched, and a start that is artifact-cold may be
//! served from them. By the filesystem alone; what a cache holds is not known.

use crate::host::Mount;

/// The caches behind a file of this mount.
pub fn of(mount: Option<&Mount>) -> Vec<String> {
    let Some(mount) = mount else { return vec!["not known: the file's mount was not found".to_owned()] };
    let kind = mount.fs_type.as_str();
    let behind = match kind {
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "lustre" | "beegfs" | "gpfs" | "afs" | "gfs2" => {
            format!("the memory of the server, and its devices' ({kind})")
        }
        "9p" | "virtiofs" => format!("the page cache of the host ({kind})"),
        kind if kind.starts_with("fuse") => format!("what the daemon behind {kind} keeps"),
        "zfs" => "ZFS's own cache (ARC), which is beside the page cache".to_owned(),
        "tmpfs" | "ramfs" | "hugetlbfs" => return Vec::new(),
        _ => "the device's own cache".to_owned(),
    };
    vec![behind, "in a virtual machine, the page cache of its host".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_filesystem_is_named() {
        let on = |kind: &str| {
            let mount = Mount {
                id: 1,
                parent: 0,
                device: (0, 1),
                root: "/".into(),
                mount_point: "/".into(),
                options: String::new(),
                fs_type: kind.into(),
                source: String::new(),
                super_options: String::new(),
            };
            of(Some(&mount)).join("; ")
        };
        assert!(on("ext4").starts_with("the device's own cache; in a virtual machine"));
        assert!(on("nfs4").contains("the server"));
        assert!(on("fuse.s3fs").contains("fuse.s3fs"));
        assert!(on("zfs").contains("ARC"));
        assert_eq!(on("tmpfs"), "");
        assert!(of(None)[0].starts_with("not known"));
    }
}
