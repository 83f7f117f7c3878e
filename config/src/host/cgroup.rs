//! Control groups: where the process stands, and the limits above it.
//!
//! Two versions exist, and machines that mount both (hybrid). A group's
//! directory is its mount point plus its path, less the part of the tree that
//! the mount leaves out: inside a container the mount often shows a branch
//! only, while `/proc/self/cgroup` may name the path from the real root. From
//! there limits are read upwards as far as the mount shows, since a parent's
//! limit binds its children whatever they say themselves.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ProblemArea;
use super::files::{Report, first_number};
use crate::bytes::Bytes;

/// Version of the control group interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// A finite memory limit of a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CgroupLimit {
    /// The file that states it.
    #[serde(serialize_with = "crate::lossy::path")]
    pub path: PathBuf,
    /// The limit.
    pub bytes: Bytes,
    /// What the group holds of it now and would not give back: its use less
    /// the page cache. Unknown where the kernel has no such file.
    pub held: Option<Bytes>,
    /// Whose interface the file belongs to.
    pub version: CgroupVersion,
}

impl CgroupLimit {
    /// What the group can still take. A use that is unknown counts as none.
    #[must_use]
    pub fn left(&self) -> Bytes {
        let held = self.held.unwrap_or(Bytes(0));
        Bytes(self.bytes.0.saturating_sub(held.0))
    }
}

/// Version 1 writes "no limit" as the largest multiple of the page size below
/// 2^63. Pages have at most 64 KiB where this program runs.
const V1_UNLIMITED_MIN: u64 = 0x7FFF_FFFF_FFFF_0000;

/// Groups nest no deeper than this; what lies above is not looked at.
const DEPTH_MAX: usize = 256;

/// One line of `/proc/self/mountinfo` that mounts control groups.
struct Mount {
    /// The part of the hierarchy that is visible at `point`.
    root: String,
    point: String,
    version: CgroupVersion,
    /// Version 1: the controllers of the hierarchy.
    controllers: Vec<String>,
}

/// The directories of the own group and those above it, from the own upwards,
/// for every hierarchy that may carry `controller`.
///
/// Directories the mount does not show are left out. A hierarchy in which the
/// own group cannot be found is a problem in `area`.
pub(super) fn group_levels(
    report: &mut Report<'_>,
    controller: &str,
    area: ProblemArea,
) -> Vec<(CgroupVersion, Vec<PathBuf>)> {
    group_levels_of(report, "self", controller, area)
}

/// The same for the process that `/proc` calls `process`.
pub(crate) fn group_levels_of(
    report: &mut Report<'_>,
    process: &str,
    controller: &str,
    area: ProblemArea,
) -> Vec<(CgroupVersion, Vec<PathBuf>)> {
    // A kernel without control groups has no such file, and so no limits.
    let groups_path = report.path(&format!("proc/{process}/cgroup"));
    let Some(groups) = report.read_if_present(&groups_path, area) else {
        return Vec::new();
    };
    let mounts_path = report.path("proc/self/mountinfo");
    let Some(mounts) = report.read(&mounts_path, area) else {
        return Vec::new();
    };
    let mounts: Vec<Mount> = mounts.lines().filter_map(parse_mount).collect();
    let mut memberships: Vec<(CgroupVersion, &str)> = groups
        .lines()
        .filter_map(|line| parse_membership(line, controller))
        .collect();
    // A controller belongs to one hierarchy: where version 1 has it, version
    // 2 beside it does not.
    if memberships
        .iter()
        .any(|(version, _)| *version == CgroupVersion::V1)
    {
        memberships.retain(|(version, _)| *version == CgroupVersion::V1);
    }
    let mut found = Vec::new();
    for (version, group) in memberships {
        let mut carriers = mounts
            .iter()
            .filter(|mount| mount.version == version && mount.carries(controller))
            .peekable();
        let is_mounted = carriers.peek().is_some();
        match carriers.find_map(|mount| mount.levels(report, group)) {
            Some(levels) => found.push((version, levels)),
            // The root group has no limits, so nothing is missed.
            None if !is_mounted && group == "/" => {}
            None => {
                let reason =
                    format!("no mount shows the limits of the {controller} group `{group}`");
                report.note(&groups_path, &reason, area);
            }
        }
    }
    found
}

/// The version and path of a `/proc/self/cgroup` line that concerns
/// `controller`.
fn parse_membership<'a>(line: &'a str, controller: &str) -> Option<(CgroupVersion, &'a str)> {
    let mut parts = line.splitn(3, ':');
    let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if id == "0" && controllers.is_empty() {
        return Some((CgroupVersion::V2, path));
    }
    controllers
        .split(',')
        .any(|name| name == controller)
        .then_some((CgroupVersion::V1, path))
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (own, filesystem) = line.split_once(" - ")?;
    let mut own = own.split(' ').skip(3);
    let (root, point) = (own.next()?, own.next()?);
    let mut filesystem = filesystem.split(' ');
    let version = match filesystem.next()? {
        "cgroup" => CgroupVersion::V1,
        "cgroup2" => CgroupVersion::V2,
        _ => return None,
    };
    let options = filesystem.nth(1).unwrap_or_default();
    Some(Mount {
        root: unescape(root),
        point: unescape(point),
        version,
        controllers: options.split(',').map(str::to_owned).collect(),
    })
}

/// Undoes the octal escapes (`\040` for a blank) of the mount table.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Mount {
    fn carries(&self, controller: &str) -> bool {
        match self.version {
            CgroupVersion::V1 => self.controllers.iter().any(|name| name == controller),
            CgroupVersion::V2 => true,
        }
    }

    /// The directories of `group` and its ancestors as far as the mount shows
    /// them; `None` if `group` lies outside.
    fn levels(&self, report: &Report<'_>, group: &str) -> Option<Vec<PathBuf>> {
        let is_outside = |path: &str| path.split('/').any(|part| part == "..");
        if is_outside(group) || is_outside(&self.root) {
            return None;
        }
        let below = if self.root == "/" {
            group
        } else {
            let rest = group.strip_prefix(self.root.as_str())?;
            if !(rest.is_empty() || rest.starts_with('/')) {
                return None;
            }
            rest
        };
        let top = report.path(&self.point);
        let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty()).collect();
        assert!(
            !parts.contains(&".."),
            "a group never leads above its mount"
        );
        let mut levels: Vec<PathBuf> = (0..=parts.len().min(DEPTH_MAX))
            .map(|depth| {
                parts[..depth]
                    .iter()
                    .fold(top.clone(), |path, part| path.join(part))
            })
            .filter(|path| path.is_dir())
            .collect();
        levels.reverse();
        Some(levels)
    }
}

/// Every finite memory limit, from the own group upwards.
pub(super) fn memory_limits(report: &mut Report<'_>) -> Vec<CgroupLimit> {
    let mut limits = Vec::new();
    for (version, levels) in group_levels(report, "memory", ProblemArea::Memory) {
        for (depth, level) in levels.iter().enumerate() {
            let first = limits.len();
            match version {
                CgroupVersion::V1 => {
                    read_limit(
                        report,
                        &level.join("memory.limit_in_bytes"),
                        version,
                        &mut limits,
                    );
                    // The kernel's own minimum over all ancestors: the only
                    // trace of those above the visible top.
                    if depth == 0 {
                        read_hierarchical(report, level, &mut limits);
                    }
                }
                CgroupVersion::V2 => {
                    read_limit(report, &level.join("memory.max"), version, &mut limits);
                    // Above `high` the kernel slows the group down until it
                    // has given pages back: a limit in all but name.
                    read_limit(report, &level.join("memory.high"), version, &mut limits);
                }
            }
            if first < limits.len() {
                let held = read_held(report, level, version);
                for limit in &mut limits[first..] {
                    limit.held = held;
                }
            }
        }
    }
    let mut seen = HashSet::new();
    limits.retain(|limit| seen.insert(limit.path.clone()));
    limits
}

fn read_limit(
    report: &mut Report<'_>,
    path: &Path,
    version: CgroupVersion,
    limits: &mut Vec<CgroupLimit>,
) {
    // The root group has no such file, nor has one whose controller is off.
    let Some(text) = report.read_if_present(path, ProblemArea::Memory) else {
        return;
    };
    add_limit(report, path, text.trim(), version, limits);
}

fn read_hierarchical(report: &mut Report<'_>, level: &Path, limits: &mut Vec<CgroupLimit>) {
    let path = level.join("memory.stat");
    let Some(text) = report.read_if_present(&path, ProblemArea::Memory) else {
        return;
    };
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("hierarchical_memory_limit "));
    if let Some(value) = value {
        add_limit(report, &path, value.trim(), CgroupVersion::V1, limits);
    }
}

fn add_limit(
    report: &mut Report<'_>,
    path: &Path,
    text: &str,
    version: CgroupVersion,
    limits: &mut Vec<CgroupLimit>,
) {
    if text == "max" && version == CgroupVersion::V2 {
        return;
    }
    match text.parse::<u64>() {
        Ok(bytes) if version == CgroupVersion::V1 && bytes >= V1_UNLIMITED_MIN => {}
        Ok(bytes) => limits.push(CgroupLimit {
            path: path.to_owned(),
            bytes: Bytes(bytes),
            held: None,
            version,
        }),
        Err(_) => report.note(
            path,
            &format!("the limit is `{text}`, neither a number of bytes nor `max`"),
            ProblemArea::Memory,
        ),
    }
}

/// What the group of `level`, those below it included, would not give back.
///
/// The kernel drops pages of files before it ends a process, so they are left
/// out: without that a group in which files were read would always be full.
/// Shared memory stays in, which is page cache by name only.
fn read_held(report: &mut Report<'_>, level: &Path, version: CgroupVersion) -> Option<Bytes> {
    let (usage, files) = match version {
        CgroupVersion::V1 => (
            "memory.usage_in_bytes",
            ["total_inactive_file", "total_active_file"],
        ),
        CgroupVersion::V2 => ("memory.current", ["inactive_file", "active_file"]),
    };
    let path = level.join(usage);
    let text = report.read_if_present(&path, ProblemArea::Memory)?;
    let Ok(used_bytes) = text.trim().parse::<u64>() else {
        let reason = format!("the use is `{}`, not a number of bytes", text.trim());
        report.note(&path, &reason, ProblemArea::Memory);
        return None;
    };
    let stat = report.read_if_present(&level.join("memory.stat"), ProblemArea::Memory);
    let stat = stat.unwrap_or_default();
    let value = |key: &str| {
        stat.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
            .and_then(first_number)
    };
    // What is not said to be a file's page does not give way.
    let file_bytes = files
        .into_iter()
        .filter_map(value)
        .fold(0, u64::saturating_add);
    Some(Bytes(used_bytes.saturating_sub(file_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_lines() {
        let check = |line, controller, want| {
            assert_eq!(parse_membership(line, controller), want, "{line}");
        };
        check("0::/a/b", "memory", Some((CgroupVersion::V2, "/a/b")));
        check("4:memory:/a", "memory", Some((CgroupVersion::V1, "/a")));
        check(
            "2:cpu,cpuacct:/a:b",
            "cpu",
            Some((CgroupVersion::V1, "/a:b")),
        );
        check("2:cpuacct:/a", "cpu", None);
        check("9:name=systemd:/", "memory", None);
        check("nonsense", "memory", None);
    }

    #[test]
    fn mount_lines() {
        let line = "31 23 0:28 /docker/a\\040b /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory";
        let mount = parse_mount(line).unwrap();
        assert_eq!(
            (mount.root.as_str(), mount.point.as_str()),
            ("/docker/a b", "/sys/fs/cgroup/memory")
        );
        assert!(mount.carries("memory") && !mount.carries("cpu"));
        assert!(parse_mount("31 23 0:28 / /sys rw - tmpfs tmpfs rw").is_none());
        assert!(parse_mount("").is_none());
    }
}
