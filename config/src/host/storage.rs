//! What kind of drive a file lies on.

use std::path::Path;

use serde::Serialize;

use super::files::read_optional;

/// The device behind a file, as far as the kernel tells. Nothing depends on
/// it: it is for a person to recognise the drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorageDevice {
    /// Major and minor number, as in `259:1`.
    pub number: String,
    /// Type of the file system, as in `ext4`.
    pub file_system: Option<String>,
    /// Name of the block device, as in `nvme0n1p1`; none for a network or
    /// memory file system.
    pub name: Option<String>,
    /// Whether the kernel takes it for a drive with moving parts. Virtual
    /// drives often say so and have none.
    pub rotational: Option<bool>,
}

impl StorageDevice {
    /// The device with the number `st_dev`, on the machine whose file tree
    /// starts at `root`, usually `/`.
    #[must_use]
    pub fn read(root: &Path, st_dev: u64) -> Self {
        let number = device_number(st_dev);
        let under = |relative: String| root.join(relative);
        let mounts = read_optional(&under("proc/self/mountinfo".to_owned()));
        let mounts = mounts.ok().flatten().unwrap_or_default();
        let mount = mounts.lines().find_map(|line| parse_mount(line, &number));
        let (file_system, source) = mount.unzip();
        // Some file systems have numbers of their own: then the source names
        // the device.
        let by_source = source.as_deref().and_then(|source| {
            let name = source.strip_prefix("/dev/")?.rsplit('/').next()?;
            under(format!("sys/class/block/{name}")).canonicalize().ok()
        });
        let directory = under(format!("sys/dev/block/{number}"))
            .canonicalize()
            .ok()
            .or(by_source);
        let name = directory.as_deref().and_then(Path::file_name);
        Self {
            name: name.map(|name| name.to_string_lossy().into_owned()),
            rotational: directory.as_deref().and_then(rotational),
            number,
            file_system,
        }
    }
}

/// `major:minor` of a device number as Linux encodes it in 64 bits.
fn device_number(st_dev: u64) -> String {
    let major = ((st_dev >> 32) & 0xffff_f000) | ((st_dev >> 8) & 0xfff);
    let minor = ((st_dev >> 12) & 0xffff_ff00) | (st_dev & 0xff);
    format!("{major}:{minor}")
}

/// File system and source of a line of `/proc/self/mountinfo` that mounts
/// device `number`.
fn parse_mount(line: &str, number: &str) -> Option<(String, String)> {
    let (before, after) = line.split_once(" - ")?;
    if before.split(' ').nth(2) != Some(number) {
        return None;
    }
    let mut words = after.split(' ');
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

/// Whether the drive of a block device turns. A partition has its drive's
/// queue one level up.
fn rotational(device: &Path) -> Option<bool> {
    let places = [Some(device), device.parent()];
    let text = places.into_iter().flatten().find_map(|place| {
        read_optional(&place.join("queue/rotational"))
            .ok()
            .flatten()
    })?;
    match text.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_split_as_the_kernel_joins_them() {
        assert_eq!(device_number(0xfe00), "254:0");
        assert_eq!(device_number(0x0001_0301), "259:1");
        assert_eq!(device_number(305_135_975), "1:74599");
    }
}
