//! `k3 detokenize`.

use k3_tokenizer::Render;

use crate::cli::commands::DetokenizeArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::inputs::given_ids;
use crate::stdout::Stdout;
use crate::vocabulary;

/// Prints exactly the bytes of some ids, without a line end of its own.
///
/// # Errors
///
/// No vocabulary, ids it does not have, or standard output cannot be written.
pub(crate) fn run(args: &DetokenizeArgs) -> Result<Exit, CliError> {
    let given = given_ids(args.ids.as_deref(), args.ids_file.as_deref())?;
    let given = given.expect("clap requires one of the two");
    let tokenizer = vocabulary::for_tool(&args.vocabulary)?;
    let vocab_size = usize::try_from(tokenizer.vocab_size()).expect("capped by the tokenizer");
    let ids = given.check(vocab_size)?;
    let render = if args.plain {
        Render::Plain
    } else {
        Render::Markup
    };
    Stdout.write(&tokenizer.decode(&ids, render)?)?;
    Ok(Exit::Done)
}
