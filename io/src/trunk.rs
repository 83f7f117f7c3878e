//! The files of a packed trunk.

use std::path::{Path, PathBuf};

use k3_formats::trunk::{PackedTrunk, TrunkFault, stripe_of_name};
use k3_formats::{FormatError, Identity, ReadAt};

use crate::error::IoError;
use crate::file::FileReader;

/// Ending of a file that a packer has not finished.
pub const PARTIAL_ENDING: &str = "partial";
/// Names of the field's raw trunk.
const FOREIGN_NAMES: [&str; 2] = ["trunk.json", "trunk.bin"];

/// A trunk's files, opened. What they hold is for the readers of `k3-formats`.
#[derive(Debug)]
pub enum TrunkFiles {
    /// Stripe files of `k3-pack trunk`.
    Packed(PackedFiles),
    /// The field's raw trunk.
    Foreign {
        /// `trunk.json`.
        json: FileReader,
        /// `trunk.bin`.
        bin: FileReader,
    },
}

/// Stripe files of a packed trunk, opened.
#[derive(Debug)]
pub struct PackedFiles {
    /// The files, in the order of the directories, then of their names.
    pub files: Vec<FileReader>,
    /// A file of a packing that was not finished.
    unfinished: Option<PathBuf>,
}

impl PackedFiles {
    /// The trunk they hold, which is that of `identity`.
    ///
    /// # Errors
    ///
    /// Those of [`PackedTrunk::open`]; where stripes are missing and an unfinished
    /// one is there, [`IoError::UnfinishedStripe`].
    pub fn open(&self, identity: &Identity) -> Result<PackedTrunk, IoError> {
        let views: Vec<_> = self.files.iter().map(|file| file as &dyn ReadAt).collect();
        PackedTrunk::open(&views, identity).map_err(|error| match (&error, &self.unfinished) {
            (FormatError::Trunk { fault, .. }, Some(unfinished))
                if matches!(**fault, TrunkFault::MissingStripes { .. }) =>
            {
                IoError::UnfinishedStripe {
                    unfinished: unfinished.clone(),
                    source: Box::new(error),
                }
            }
            _ => error.into(),
        })
    }
}

impl TrunkFiles {
    /// Opens the trunk that lies in `directories`.
    ///
    /// # Errors
    ///
    /// A path that is no directory, files that cannot be opened,
    /// [`IoError::NoTrunk`] where there is none, or only an unfinished one, and
    /// [`IoError::SeveralTrunks`] where there is more than one.
    pub fn open(directories: &[PathBuf]) -> Result<Self, IoError> {
        let mut stripes = Vec::new();
        let mut unfinished = None;
        for directory in directories {
            let mut names = file_names(directory)?;
            names.sort();
            for name in names {
                if stripe_of_name(&name).is_some() {
                    stripes.push(FileReader::open(&directory.join(name))?);
                } else if is_unfinished(&name) {
                    unfinished.get_or_insert(directory.join(name));
                }
            }
        }
        let descriptions = directories.iter().map(|place| place.join(FOREIGN_NAMES[0]));
        let foreign: Vec<_> = descriptions.filter(|json| json.exists()).collect();
        match (stripes.as_slice(), foreign.as_slice()) {
            ([], []) => Err(IoError::NoTrunk {
                directories: directories.to_vec(),
                unfinished,
            }),
            (_, []) => Ok(Self::Packed(PackedFiles {
                files: stripes,
                unfinished,
            })),
            ([], [json]) => {
                let bin = FileReader::open(&json.with_file_name(FOREIGN_NAMES[1]))?;
                let json = FileReader::open(json)?;
                Ok(Self::Foreign { json, bin })
            }
            ([], [first, second, ..]) => Err(IoError::SeveralTrunks {
                first: first.clone(),
                second: second.clone(),
            }),
            ([stripe, ..], [json, ..]) => Err(IoError::SeveralTrunks {
                first: stripe.label().to_path_buf(),
                second: json.clone(),
            }),
        }
    }

    /// The files as the format readers take them.
    #[must_use]
    pub fn views(&self) -> Vec<&dyn ReadAt> {
        match self {
            Self::Packed(packed) => packed
                .files
                .iter()
                .map(|file| file as &dyn ReadAt)
                .collect(),
            Self::Foreign { json, bin } => vec![json, bin],
        }
    }
}

/// Whether a packer that has not finished made a file of that name.
fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(PARTIAL_ENDING)
        .and_then(|name| name.strip_suffix('.'))
        .is_some_and(|name| stripe_of_name(name).is_some())
}

fn file_names(directory: &Path) -> Result<Vec<String>, IoError> {
    let system = |source| IoError::System {
        path: directory.to_path_buf(),
        action: "list the directory",
        source,
    };
    let mut names = Vec::new();
    for entry in directory.read_dir().map_err(system)? {
        let name = entry.map_err(system)?.file_name();
        names.extend(name.to_str().map(str::to_owned));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn stripes_are_found_in_all_directories() {
        let dir = tempfile::tempdir().unwrap();
        let places = ["a", "b"].map(|name| dir.path().join(name));
        places
            .iter()
            .for_each(|place| fs::create_dir(place).unwrap());
        let none = TrunkFiles::open(&places).unwrap_err();
        assert!(
            matches!(
                &none,
                IoError::NoTrunk {
                    unfinished: None,
                    ..
                }
            ),
            "{none}"
        );
        let partial = places[1].join("trunk-01-of-02.k3trunk.partial");
        fs::write(&partial, "").unwrap();
        let begun = TrunkFiles::open(&places).unwrap_err().to_string();
        assert!(
            begun.contains("k3trunk.partial") && begun.contains("finish"),
            "{begun}"
        );
        for (place, name) in [(1, "trunk-01-of-02.k3trunk"), (0, "trunk-00-of-02.k3trunk")] {
            fs::write(places[place].join(name), name).unwrap();
        }
        let found = TrunkFiles::open(&places).unwrap();
        assert!(matches!(&found, TrunkFiles::Packed(packed) if packed.files.len() == 2));
        let names: Vec<_> = found.views().iter().map(|file| file.file_name()).collect();
        assert_eq!(names, ["trunk-00-of-02.k3trunk", "trunk-01-of-02.k3trunk"]);
        let missing = TrunkFiles::open(&[dir.path().join("c")]).unwrap_err();
        assert!(matches!(missing, IoError::System { .. }), "{missing}");
    }

    #[test]
    fn a_foreign_trunk_is_both_files() {
        let dir = tempfile::tempdir().unwrap();
        let place = [dir.path().to_path_buf()];
        fs::write(dir.path().join("trunk.json"), "{}").unwrap();
        let error = TrunkFiles::open(&place).unwrap_err().to_string();
        assert!(error.contains("trunk.bin"), "{error}");
        fs::write(dir.path().join("trunk.bin"), "").unwrap();
        let found = TrunkFiles::open(&place).unwrap();
        assert!(matches!(found, TrunkFiles::Foreign { .. }));
        // Which of two is meant, nobody can tell.
        let [place] = place;
        let twice = TrunkFiles::open(&[place.clone(), place.clone()]).unwrap_err();
        assert!(matches!(twice, IoError::SeveralTrunks { .. }), "{twice}");
        fs::write(place.join("trunk-00-of-01.k3trunk"), "").unwrap();
        let both = TrunkFiles::open(&[place]).unwrap_err();
        assert!(matches!(both, IoError::SeveralTrunks { .. }), "{both}");
    }
}
