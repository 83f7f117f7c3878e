//! Whatever ends a run, nothing half-written stays.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use k3_pack::PackError;
use k3_pack::error::Exit;
use k3_pack::synth::{SynthPlan, write};

use crate::support::{make, names, settings, small_config};

/// A memory file system, unmounted when dropped.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where mounting is not permitted.
    pub(crate) fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "k3-pack-test"])
            .arg(dir.path())
            .output();
        match status {
            Ok(output) if output.status.success() => Some(Self(dir)),
            _ => {
                k3_formats::gates::not_run("mounting a tmpfs is not permitted here");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(self.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "unmounted");
    }
}

#[test]
fn a_disk_that_fills_up_leaves_nothing() {
    let Some(disk) = SmallDisk::mount("24m") else {
        return;
    };
    let filler = disk.path().join("filler");
    let plan = SynthPlan::new(&settings(&disk.path().join("model"), small_config(60, 32))).unwrap();
    assert!(plan.disk_bytes() > 8 << 20, "worth interrupting");
    // Somebody else takes all there is once the first piece is written.
    let fill = |_| {
        if !filler.exists() {
            let mut file = std::fs::File::create(&filler).unwrap();
            let full = std::io::copy(&mut std::io::repeat(1), &mut file).unwrap_err();
            assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        }
    };
    let error = write(&plan, &AtomicBool::new(false), &fill).unwrap_err();
    assert!(matches!(error, PackError::DiskFull { .. }), "{error}");
    assert_eq!(error.exit(), Exit::NotWritable);
    assert_eq!(names(disk.path()), ["filler"]);
    // With the space back the same plan can be carried out.
    std::fs::remove_file(&filler).unwrap();
    write(&plan, &AtomicBool::new(false), &|_| ()).unwrap();
    assert_eq!(names(disk.path()), ["model"]);
}

#[test]
fn too_little_space_is_refused_with_the_figures() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&dir.path().join("model"), small_config(5, 16));
    let need = SynthPlan::new(&settings).unwrap().disk_bytes();
    settings.reserve_bytes = u64::MAX / 2;
    let error = make(&settings).unwrap_err();
    let PackError::NoSpace {
        checkpoint_bytes,
        reserve_bytes,
        available_bytes,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((*checkpoint_bytes, *reserve_bytes), (need, u64::MAX / 2));
    assert!(*available_bytes > 0);
    let text = error.to_string();
    assert!(
        text.contains("available") && text.contains("missing"),
        "{text}"
    );
    assert_eq!(error.exit(), Exit::Refused);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let plan = SynthPlan::new(&settings(&dir.path().join("model"), small_config(6, 16))).unwrap();
    let cancel = AtomicBool::new(false);
    let error = write(&plan, &cancel, &|_| cancel.store(true, Ordering::Relaxed)).unwrap_err();
    assert!(matches!(error, PackError::Interrupted), "{error}");
    assert_eq!(error.exit(), Exit::Interrupted);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_directory_that_cannot_be_written_is_said_to_be_so() {
    // Not even root creates files in /proc.
    let error = make(&settings(Path::new("/proc/model"), small_config(2, 4))).unwrap_err();
    let is_expected = match &error {
        PackError::NotWritable { path, .. } => path.starts_with("/proc"),
        // No space there either, where statistics of /proc say so.
        PackError::NoSpace {
            available_bytes, ..
        } => *available_bytes == 0,
        _ => false,
    };
    assert!(is_expected, "{error}");
}
