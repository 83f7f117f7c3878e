//! `k3 tokenize`.

use k3_tokenizer::Mode;

use crate::cli::commands::TokenizeArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::inputs::read_text;
use crate::stdout::Stdout;
use crate::vocabulary;

/// Prints the ids of a text.
///
/// # Errors
///
/// No vocabulary, an unreadable text, or standard output cannot be written.
pub(crate) fn run(args: &TokenizeArgs) -> Result<Exit, CliError> {
    let tokenizer = vocabulary::for_tool(&args.vocabulary)?;
    let text = match (&args.text, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => read_text(file)?,
        (None, None) => unreachable!("clap requires one of the two"),
    };
    let mode = if args.structure {
        Mode::Structure
    } else {
        Mode::Content
    };
    let ids = tokenizer.encode(&text, mode);
    let mut line = if args.json {
        serde_json::to_string(&ids).expect("numbers always serialise")
    } else {
        ids.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    line.push('\n');
    Stdout.write(line.as_bytes())?;
    Ok(Exit::Done)
}
