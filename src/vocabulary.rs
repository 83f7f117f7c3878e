//! Where the vocabulary comes from.

use std::path::{Path, PathBuf};

use k3_formats::config::MAX_CONFIG_BYTES;
use k3_formats::{KimiK3Config, RANK_FILE_BYTES_MAX, RankFile};
use k3_io::{CONFIG_NAME, VOCABULARY_NAME, read_small};
use k3_tokenizer::{RESERVED_SLOT_COUNT, RankTable, Specials, Tokenizer};

use crate::cli::commands::VocabularyArgs;
use crate::commands::{model_path, named_model};
use crate::error::CliError;

/// The file that names the control tokens.
pub(crate) const SPECIALS_FILE: &str = "tokenizer_config.json";
/// Its size at most; the released one has 10 kB.
const SPECIALS_BYTES_MAX: u64 = 16 << 20;

/// The vocabulary at `place`, a directory or a rank file, for a model of
/// `vocab_size` ids; without it, for as many as the vocabulary has. `None` when
/// `place` is a directory without a rank file.
///
/// # Errors
///
/// Files that cannot be read, are malformed or do not belong together.
pub(crate) fn open(place: &Path, vocab_size: Option<usize>) -> Result<Option<Tokenizer>, CliError> {
    let rank_path = if place.is_dir() {
        place.join(VOCABULARY_NAME)
    } else {
        place.to_owned()
    };
    if place.is_dir() && !rank_path.exists() {
        return Ok(None);
    }
    let file = RankFile::parse(&rank_path, &read_small(&rank_path, RANK_FILE_BYTES_MAX)?)?;
    let ranks = RankTable::new(file.tokens().zip(0..))?;
    let base = ranks.rank_count();
    let vocab_size = vocab_size.map_or(base + RESERVED_SLOT_COUNT, |size| {
        u32::try_from(size).expect("capped by the config reader")
    });
    let specials_path = rank_path.with_file_name(SPECIALS_FILE);
    let specials = if specials_path.exists() {
        let bytes = read_small(&specials_path, SPECIALS_BYTES_MAX)?;
        Specials::from_tokenizer_config(&specials_path, &bytes, base, vocab_size)?
    } else {
        Specials::kimi_k3(base)
    };
    Ok(Some(Tokenizer::new(ranks, specials, vocab_size)?))
}

/// The vocabulary that `tokenize` and `detokenize` are asked to use.
///
/// # Errors
///
/// No vocabulary, or one that [`open`] refuses.
pub(crate) fn for_tool(args: &VocabularyArgs) -> Result<Tokenizer, CliError> {
    let named = named_model(args.model.as_deref()).is_some();
    let model = match &args.tokenizer {
        // A vocabulary alone will do.
        Some(_) if !named => None,
        _ => Some(model_path(args.model.as_deref())?),
    };
    let vocab_size = model
        .as_deref()
        .map(config_vocab_size)
        .transpose()?
        .flatten();
    let place: PathBuf = args
        .tokenizer
        .clone()
        .or(model)
        .expect("one of the two is given");
    open(&place, vocab_size)?.ok_or(CliError::NoVocabulary {
        path: place,
        need: "the command needs".to_owned(),
        instead: "",
    })
}

/// `vocab_size` of the model's configuration, when it has one: a vocabulary
/// may lie in a directory of its own.
fn config_vocab_size(model: &Path) -> Result<Option<usize>, CliError> {
    let path = model.join(CONFIG_NAME);
    if !path.exists() {
        return Ok(None);
    }
    let config = KimiK3Config::parse(&path, &read_small(&path, MAX_CONFIG_BYTES)?)?;
    Ok(Some(config.vocab_size))
}
