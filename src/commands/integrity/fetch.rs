//! `k3 fetch`.

use std::io::Write as _;
use std::path::{Component, Path};
use std::sync::Arc;

use k3_config::Bytes;
use k3_integrity::fetch::{FetchSettings, FetchSummary, fetch};
use k3_integrity::{IntegrityError, Watch};
use k3_runtime::Cancel;

use super::hub;
use super::onlooker::Onlooker;
use crate::cli::integrity::FetchArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupt;
use crate::render::short_rate;
use crate::stdout::Stdout;

/// Downloads.
///
/// # Errors
///
/// What [`fetch`] reports.
pub(crate) fn run(args: &FetchArgs) -> Result<Exit, CliError> {
    refuse_repository_alone(args)?;
    let mut settings = FetchSettings::new(args.directory.clone());
    settings.endpoint = hub::endpoint()?;
    settings.token = hub::token()?;
    settings.repo = args.repo.clone().unwrap_or(settings.repo);
    settings.revision = args.revision.clone().unwrap_or(settings.revision);
    settings.include.clone_from(&args.include);
    settings.exclude.clone_from(&args.exclude);
    settings.recheck = args.recheck;
    if let Some(count) = args.parallel.and_then(|count| usize::try_from(count).ok()) {
        settings.parallel = count;
    }
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let onlooker = Arc::new(Onlooker::new(cancel, args.quiet));
    let watch: Arc<dyn Watch> = onlooker.clone();
    let result = fetch(&settings, &watch);
    onlooker.end();
    let summary = match result {
        Err(IntegrityError::Interrupted) => {
            let kept = "what has come is kept; the same command goes on from there".to_owned();
            return Err(CliError::KeptInterrupted(kept));
        }
        other => other?,
    };
    if args.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain data serialises") + "\n";
        Stdout.write(text.as_bytes())?;
    } else if !args.quiet {
        let text = show(&settings, &summary);
        // The files are there, whether or not anybody can be told.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    Ok(Exit::Done)
}

/// Refuses OWNER/NAME where only a directory is given: it would receive the
/// default repository.
fn refuse_repository_alone(args: &FetchArgs) -> Result<(), CliError> {
    let given = &args.directory;
    let parts: Vec<_> = given.components().collect();
    let is_plain = parts
        .iter()
        .all(|part| matches!(part, Component::Normal(_)));
    if args.repo.is_none() && parts.len() == 2 && is_plain && !given.exists() {
        let parent = given.parent().is_some_and(Path::is_dir);
        if !parent {
            return Err(CliError::RepositoryAlone {
                given: given.clone(),
            });
        }
    }
    Ok(())
}

/// What was done, as text.
fn show(settings: &FetchSettings, summary: &FetchSummary) -> String {
    #[allow(clippy::cast_precision_loss, reason = "a rate to read")]
    let rate = short_rate(summary.fetched_bytes as f64 / summary.seconds.max(1e-9));
    let directory = settings.directory.display();
    format!(
        "{directory}\n  snapshot  {repo} at {commit}\n  files     {files}, {bytes}; {kept} had \
         been here\n  fetched   {fetched} in {seconds:.1} s, {rate}\n  next      k3-pack manifest \
         {directory}\n",
        repo = settings.repo,
        commit = summary.commit,
        files = summary.file_count,
        bytes = Bytes(summary.total_bytes),
        kept = summary.kept_count,
        fetched = Bytes(summary.fetched_bytes),
        seconds = summary.seconds,
    )
}
