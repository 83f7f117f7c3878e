//! What holds a run to its budget.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use k3_config::{
    Bytes, CgroupVersion, GroupError, GroupParent, GroupPeaks, GroupReader, MemoryGroup,
};

use super::message;
use crate::cli::ladder::{ENTER_GROUP, LimitKind};
use crate::error::{CliError, chain};

/// Enough for a program that prints its version.
const PROBE_LIMIT: Bytes = Bytes(256 << 20);
/// The command that makes scopes.
const SYSTEMD_RUN: &str = "systemd-run";
/// A scope's limit may differ by the rounding to pages.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// A way to hold runs to their budget, one that works here.
#[derive(Debug)]
pub(super) enum Limits {
    /// Groups below the own one.
    Group(GroupParent),
    /// Scopes of systemd, of the user's or the system's manager.
    Scope {
        /// Whether of the user's.
        is_user: bool,
    },
    /// None was wanted.
    None,
}

/// What was chosen, and what was not and why.
#[derive(Debug)]
pub(super) struct Choice {
    pub limits: Limits,
    /// Things worth knowing, one line each.
    pub notes: Vec<String>,
}

impl Limits {
    /// The way that `kind` asks for. Each is tried on a program that only
    /// prints its version before it is relied on.
    ///
    /// # Errors
    ///
    /// [`CliError::NoLimits`] with what stood in the way of each.
    pub(super) fn choose(kind: LimitKind, program: &Path) -> Result<Choice, CliError> {
        let chosen = |limits, notes| Ok(Choice { limits, notes });
        let mut reasons = Vec::new();
        if matches!(kind, LimitKind::Auto | LimitKind::Group) {
            match Self::group(program) {
                Ok((limits, notes)) => return chosen(limits, notes),
                Err(reason) => reasons.push(format!("control group: {reason}")),
            }
        }
        if matches!(kind, LimitKind::Auto | LimitKind::Scope) {
            match Self::scope(program) {
                Ok(limits) => return chosen(limits, reasons),
                Err(reason) => reasons.push(format!("systemd scope: {reason}")),
            }
        }
        if kind == LimitKind::None {
            let note = "--limits none: nothing held the runs to their budget";
            return chosen(Self::None, vec![note.to_owned()]);
        }
        Err(CliError::NoLimits { reasons })
    }

    fn group(program: &Path) -> Result<(Self, Vec<String>), String> {
        let root = Path::new("/");
        let parent = GroupParent::own(root).map_err(|error| chain(&error))?;
        let removed = parent.remove_leftovers(root);
        let notes = removed
            .iter()
            .map(|path| format!("removed {}, left by a run that died", path.display()));
        let notes = notes.collect();
        let limits = Self::Group(parent);
        limits.probe(program)?;
        Ok((limits, notes))
    }

    fn scope(program: &Path) -> Result<Self, String> {
        // The owner of this directory is who the process acts for.
        let user = std::fs::metadata("/proc/self").map_err(|error| error.to_string())?;
        let limits = Self::Scope {
            is_user: user.uid() != 0,
        };
        limits.probe(program)?;
        Ok(limits)
    }

    fn probe(&self, program: &Path) -> Result<(), String> {
        let version = vec!["--version".into()];
        let mut placed = self
            .place(0, PROBE_LIMIT, program, version)
            .map_err(|error| chain(&error))?;
        let output = placed
            .command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", placed.command.get_program().display()))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(message::reason(&output.stderr, output.status))
        }
    }

    /// What holds runs, for a person.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Group(parent) => {
                let version = match parent.version() {
                    CgroupVersion::V1 => 1,
                    CgroupVersion::V2 => 2,
                };
                format!("control groups of version {version}")
            }
            Self::Scope { is_user: true } => "scopes of the user's systemd".to_owned(),
            Self::Scope { is_user: false } => "scopes of systemd".to_owned(),
            Self::None => "nothing".to_owned(),
        }
    }

    /// The group below which groups are made.
    pub(super) fn parent(&self) -> Option<&Path> {
        match self {
            Self::Group(parent) => Some(parent.path()),
            Self::Scope { .. } | Self::None => None,
        }
    }

    /// The command that runs `program` with `arguments` held to `limit`.
    ///
    /// # Errors
    ///
    /// The group cannot be made.
    pub(super) fn place(
        &self,
        number: u32,
        limit: Bytes,
        program: &Path,
        arguments: Vec<OsString>,
    ) -> Result<Placed, GroupError> {
        let pid = std::process::id();
        let mut words: Vec<OsString> = vec![program.into(), ENTER_GROUP.into()];
        words.push(format!("--parent={pid}").into());
        let mut hold = Hold::Nothing;
        match self {
            Self::None => {}
            Self::Group(parent) => {
                let group = parent.create(pid, number, limit)?;
                let mut option = OsString::from("--group=");
                option.push(group.path());
                words.push(option);
                hold = Hold::Group(group);
            }
            Self::Scope { is_user } => {
                let unit = format!("k3-ladder-{pid}-{number}.scope");
                words.splice(0..0, scope_words(&unit, limit, *is_user));
                hold = Hold::Scope { unit, reader: None };
            }
        }
        words.push("--".into());
        words.push(program.into());
        words.extend(arguments);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(Placed {
            command,
            hold,
            limit,
        })
    }
}

fn scope_words(unit: &str, limit: Bytes, is_user: bool) -> Vec<OsString> {
    let fixed = ["--scope", "--quiet", "--collect", "--no-ask-password"];
    let mut words = vec![SYSTEMD_RUN.to_owned()];
    words.extend(fixed.map(str::to_owned));
    if is_user {
        words.push("--user".to_owned());
    }
    words.extend([
        format!("--unit={unit}"),
        format!("--property=MemoryMax={}", limit.0),
        "--property=MemorySwapMax=0".to_owned(),
        "--".to_owned(),
    ]);
    words.into_iter().map(OsString::from).collect()
}

/// A run that is ready to start, with what will hold it.
#[derive(Debug)]
pub(super) struct Placed {
    /// How it is started.
    pub command: Command,
    /// What holds it; removed when dropped.
    pub hold: Hold,
    /// How tightly.
    pub limit: Bytes,
}

/// What holds a run.
#[derive(Debug)]
pub(super) enum Hold {
    /// A group that was made for it.
    Group(MemoryGroup),
    /// A scope, which comes and goes with the run.
    Scope {
        /// Its name.
        unit: String,
        /// Its group, once the run is in it.
        reader: Option<GroupReader>,
    },
    /// Nothing.
    Nothing,
}

impl Hold {
    /// Counts in what the run `pid` holds now.
    pub(super) fn read(&mut self, pid: u32, peaks: &mut GroupPeaks) {
        match self {
            Self::Group(group) => peaks.add(&group.reader().read()),
            Self::Scope { unit, reader } => {
                if reader.is_none() {
                    // Until systemd has moved it the run is in our own group.
                    let found = GroupReader::of_process(Path::new("/"), pid).ok();
                    *reader = found.filter(|group| group.path().ends_with(&*unit));
                }
                if let Some(reader) = reader {
                    peaks.add(&reader.read());
                }
            }
            Self::Nothing => {}
        }
    }

    /// Why the run is not held to `limit` after all, while it runs.
    pub(super) fn fault(&self, limit: Bytes) -> Option<String> {
        let Self::Scope {
            reader: Some(reader),
            ..
        } = self
        else {
            return None;
        };
        let path = reader.path();
        let is_there = path.exists();
        match reader.limit() {
            Some(found) if found.0 < limit.0 + PAGE_BYTES_MAX => None,
            // It ended in between.
            None if !(is_there && path.exists()) => None,
            Some(found) => Some(format!("{}: limited to {found}", path.display())),
            None => Some(format!("{}: not limited", path.display())),
        }
    }

    /// Whether nothing of the run can go to swap; `None` if that is not known.
    pub(super) fn swap_is_off(&self) -> Option<bool> {
        match self {
            Self::Group(group) => Some(group.reader().swap_is_off()),
            Self::Scope { reader, .. } => reader.as_ref().map(GroupReader::swap_is_off),
            Self::Nothing => None,
        }
    }

    /// The directory to remove if the program ends at once.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Group(group) => Some(group.path().to_owned()),
            Self::Scope { .. } | Self::Nothing => None,
        }
    }
}
