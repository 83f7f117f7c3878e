//! What a checkpoint holds, and what it lacks.
//!
//! | module | holds |
//! |---|---|
//! | [`files`] | the files that are there, and what is wrong with the rest |
//! | [`kind`] | what a tensor is, by its name |
//! | [`census`] | the sums |
//! | [`trunk`] | a packed trunk, by itself or beside the checkpoint |
//! | [`show`] | the sums, to read |

mod census;
mod files;
mod kind;
mod show;
mod trunk;

use k3_config::SettingValues;
use k3_formats::{ReadAt, ShardIndex};
use k3_io::FileReader;
use k3_models::kimi_k3::KimiK3Layout;

use super::{model_path, roots};
use crate::cli::commands::InspectArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::settings;
use crate::stdout::Stdout;
use census::Census;
use files::Files;
use trunk::TrunkCensus;

/// Takes the census. What is missing or broken is part of it, and the exit code.
///
/// # Errors
///
/// No such directory, and files that exist but may not be read.
pub(crate) fn run(args: &InspectArgs) -> Result<Exit, CliError> {
    let path = model_path(args.model.as_deref())?;
    let places = [std::slice::from_ref(&path), &args.trunk].concat();
    if let Some(stripes) = trunk::stripes_of(&places) {
        let census = TrunkCensus::of(&stripes)?;
        let text = match args.json {
            true => json(&serde_json::json!({ "trunk": census })),
            false => census.text(),
        };
        Stdout.write(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    let roots = roots(&args.roots)?;
    let mut files = Files::gather(&path, &roots, args.config.as_deref())?;
    let mut census = Census::new(&path, files.config.as_ref());
    for shard in &mut files.shards {
        if let Some(fault) = census.add_shard(shard) {
            files.problems.push(fault);
        }
    }
    census.finish(&files);
    // The strict readers take only what is whole, and say what is wrong.
    if census.problems.is_empty() && census.missing_shards.is_empty() {
        bind(&files, &mut census);
    }
    census.trunk = packed(args, &files, &mut census)?;
    census.complete = census.problems.is_empty()
        && census.missing_shards.is_empty()
        && census.missing_experts.is_empty()
        && files.config.is_some();
    let text = if args.json {
        json(&census)
    } else {
        show::census(&census)
    };
    Stdout.write(text.as_bytes())?;
    Ok(if census.complete {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data serialises") + "\n"
}

/// The packed trunk that `--trunk` or a setting names, against the checkpoint. What
/// is wrong with a trunk that was asked for here is a problem of the census.
///
/// # Errors
///
/// A trunk that was asked for here and is not there or cannot be read.
fn packed(
    args: &InspectArgs,
    files: &Files,
    census: &mut Census,
) -> Result<Option<TrunkCensus>, CliError> {
    let identity = census.identity;
    let shards = files.shards.iter().map(|shard| shard.reader.file_name());
    let (path, shards) = (&files.directory, shards.collect::<Vec<_>>());
    if !args.trunk.is_empty() {
        let found = trunk::beside(&args.trunk, path, &shards, identity)?;
        let problems = found.iter().flat_map(|trunk| trunk.problems.clone());
        census.problems.extend(problems);
        return Ok(found);
    }
    // What a setting names stops no census.
    let settings = settings::resolve(SettingValues::default(), None).ok();
    let places = settings.as_ref().map(settings::trunk).unwrap_or_default();
    if places.is_empty() {
        return Ok(None);
    }
    Ok(
        trunk::beside(places, path, &shards, identity).unwrap_or_else(|error| {
            census
                .notes
                .push(format!("the trunk that a setting names: {error}"));
            None
        }),
    )
}

/// Indexes and binds a checkpoint whose shards are all readable.
fn bind(files: &Files, census: &mut Census) {
    let readers = files.shards.iter().map(|shard| &shard.reader);
    let views: Vec<&dyn ReadAt> = readers.map(|reader: &FileReader| reader as _).collect();
    let index = files.index.as_ref().map(|index| index as &dyn ReadAt);
    let index = match ShardIndex::build(&views, index) {
        Ok(index) => index,
        Err(error) => return census.problems.push(error.to_string()),
    };
    let Some((config, bytes)) = &files.config else {
        return;
    };
    census.identity = Some(index.identity(bytes));
    if let Err(error) = KimiK3Layout::bind(&files.directory, config, &index, None) {
        census.problems.push(error.to_string());
    }
}
