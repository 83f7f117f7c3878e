//! What a checkpoint holds, and what it lacks.
//!
//! | module | holds |
//! |---|---|
//! | [`files`] | the files that are there, and what is wrong with the rest |
//! | [`kind`] | what a tensor is, by its name |
//! | [`census`] | the sums |
//! | [`show`] | the sums, to read |

mod census;
mod files;
mod kind;
mod show;

use k3_formats::{ReadAt, ShardIndex};
use k3_io::FileReader;
use k3_models::kimi_k3::KimiK3Layout;

use super::{model_path, roots};
use crate::cli::commands::InspectArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::stdout::Stdout;
use census::Census;
use files::Files;

/// Takes the census. What is missing or broken is part of it, and the exit code.
///
/// # Errors
///
/// No such directory, and files that exist but may not be read.
pub(crate) fn run(args: &InspectArgs) -> Result<Exit, CliError> {
    let path = model_path(args.model.as_deref())?;
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
    census.complete = census.problems.is_empty()
        && census.missing_shards.is_empty()
        && census.missing_experts.is_empty()
        && files.config.is_some();
    let text = if args.json {
        serde_json::to_string_pretty(&census).expect("plain data serialises") + "\n"
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
    census.identity = Some(index.identity(bytes).to_string());
    if let Err(error) = KimiK3Layout::bind(&files.directory, config, &index, None) {
        census.problems.push(error.to_string());
    }
}
