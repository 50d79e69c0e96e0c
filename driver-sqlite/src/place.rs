//! The location of the file: checks whether processes of other machines could reach the same folder.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use tenure_core::Result;

use crate::error::{misconfigured, of_system};

/// Checks that the folder of the file is there, and that this machine alone has it.
pub(crate) fn check_place(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let seen = rustix::fs::statfs(folder)
        .map_err(|error| of_system(format_args!("look at the folder {}", folder.display()), error.into()))?;
    let number = seen.f_type as u64;
    let shared = match number & 0xffff_ffff == FUSE {
        false => shared_by_number(number).map(String::from),
        true => mount_of(folder).and_then(type_of_mount).filter(|kind| is_shared_fuse(kind)),
    };
    match shared {
        None => Ok(()),
        Some(kind) => Err(misconfigured(format!(
            "{} is on a file system that several machines share ({kind}): processes of another machine would not see its locks",
            path.display()
        ))),
    }
}

/// The number of the mount that a path is in, where the kernel reports it.
pub(crate) fn mount_of(path: &Path) -> Option<u64> {
    let seen = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::MNT_ID).then_some(seen.stx_mnt_id)
}

/// What `statfs` says of every file system in user space.
const FUSE: u64 = 0x6573_5546;

/// The file system with this number of `statfs`, if several machines share such a one: those of the kernel's `magic.h`, and of modules
/// that have their own. Also those that a virtual machine shares with its host, and cluster file systems, which a single machine may have.
fn shared_by_number(number: u64) -> Option<&'static str> {
    match number & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0x517b => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB2"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x564c => Some("NCP"),
        0x00c3_6400 => Some("Ceph"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        0x6163_6673 => Some("ACFS"),
        0xaad7_aaea => Some("PanFS"),
        0xbeef_dead => Some("StorNext"),
        0x0131_11a8 => Some("IBRIX"),
        0xa501_fcf5 => Some("VxFS"),
        0x1983_0326 => Some("BeeGFS"),
        0x2003_0528 => Some("OrangeFS"),
        0x0102_1997 => Some("9P"),
        0x786f_4256 => Some("VirtualBox shared folders"),
        0xbacb_acbc => Some("VMware shared folders"),
        0x7c7c_6673 => Some("Parallels shared folders"),
        _ => None,
    }
}

/// Whether several machines share the files behind a file system in user space, by the type of its mount. One without its own type is
/// `fuse`, and nothing is known of it.
fn is_shared_fuse(kind: &str) -> bool {
    const SHARED: &[&str] = &[
        "afpfs",
        "blobfuse",
        "blobfuse2",
        "ceph-fuse",
        "curlftpfs",
        "davfs",
        "davfs2",
        "fuse_dfs",
        "gcsfuse",
        "glusterfs",
        "goofys",
        "grpcfuse",
        "juicefs",
        "lizardfs",
        "mfs",
        "moosefs",
        "mountpoint-s3",
        "osxfs",
        "prl_fsd",
        "quobyte",
        "rclone",
        "s3fs",
        "saunafs",
        "seaweedfs",
        "smbnetfs",
        "sshfs",
        "virtiofs",
        "vmhgfs-fuse",
    ];
    SHARED.contains(&kind.strip_prefix("fuse.").unwrap_or(kind))
}

fn type_of_mount(mount: u64) -> Option<String> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    type_in(&String::from_utf8_lossy(&mounts), mount).map(String::from)
}

/// The type of a mount by the lines of `mountinfo`: its number, five more words, some options, `-`, and the type.
fn type_in(mounts: &str, mount: u64) -> Option<&str> {
    let of_mount = |line: &&str| line.split(' ').next().and_then(|number| number.parse().ok()) == Some(mount);
    let words = mounts.lines().find(of_mount)?.split(' ').skip(6);
    words.skip_while(|word| *word != "-").nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_file_systems_are_known_by_their_numbers() {
        for (number, kind) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "CIFS"),
            (0xffff_ffff_fe53_4d42, "SMB2"),
            (0x0102_1997, "9P"),
            (0x786f_4256, "VirtualBox shared folders"),
            (0xbacb_acbc, "VMware shared folders"),
            (0x7c7c_6673, "Parallels shared folders"),
            (0x1983_0326, "BeeGFS"),
            (0x2003_0528, "OrangeFS"),
            (0xaad7_aaea, "PanFS"),
            (0x6163_6673, "ACFS"),
        ] {
            assert_eq!(shared_by_number(number), Some(kind));
        }
        for local in [0xef53, 0x0102_1994, 0x9123_683e, 0x5846_5342, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, FUSE] {
            assert_eq!(shared_by_number(local), None, "{local:x}");
        }
    }

    #[test]
    fn file_systems_in_user_space_are_known_by_the_types_of_their_mounts() {
        let mounts = "23 28 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      41 23 0:44 / /mnt/- rw,nosuid shared:7 master:2 - fuse.vmhgfs-fuse vmhgfs-fuse rw,user_id=0\n\
                      42 23 0:45 / /mnt/a\\040b rw - virtiofs work rw\n\
                      43 23 0:46 / /mnt/c rw - fuse.fuse-overlayfs - rw\n";
        assert_eq!(
            [23, 41, 42, 43, 4].map(|mount| type_in(mounts, mount)),
            [Some("ext4"), Some("fuse.vmhgfs-fuse"), Some("virtiofs"), Some("fuse.fuse-overlayfs"), None]
        );
        for shared in
            ["fuse.vmhgfs-fuse", "virtiofs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.grpcfuse"]
        {
            assert!(is_shared_fuse(shared), "{shared}");
        }
        for other in ["fuse", "fuseblk", "fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.gocryptfs", "fuse.bindfs"] {
            assert!(!is_shared_fuse(other), "{other}");
        }
    }

    #[test]
    fn the_kernel_tells_the_type_of_a_mount() {
        let mount = mount_of(Path::new("/proc/self")).expect("this kernel tells");
        assert_eq!(type_of_mount(mount).as_deref(), Some("proc"));
    }
}
