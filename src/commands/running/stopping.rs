//! Strings that end an answer, found while it is drawn.

use std::ops::ControlFlow;
use std::sync::Arc;

use k3_runtime::StopText;
use k3_runtime::scheduler::TokenWatch;
use k3_tokenizer::{Render, StreamDecoder, Tokenizer};

/// Ends an answer with the token that completes a stop string: no token is drawn
/// beyond it, so that its state ends there too.
struct StopWatch {
    decoder: StreamDecoder<Arc<Tokenizer>>,
    stop: StopText,
}

impl TokenWatch for StopWatch {
    fn token(&mut self, id: u32) -> ControlFlow<()> {
        // An id without a token has no text.
        let text = self.decoder.push(id).unwrap_or_default();
        match self.stop.push(text).is_stopped {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// A watch for `strings`, none of which is empty, in the text after `before`; none
/// without strings.
pub(crate) fn stop_watch(
    tokenizer: Option<&Arc<Tokenizer>>,
    strings: &[String],
    before: &[u32],
) -> Option<Box<dyn TokenWatch>> {
    if strings.is_empty() {
        return None;
    }
    let mut watch = StopWatch {
        decoder: StreamDecoder::new(Arc::clone(tokenizer?), Render::Plain),
        stop: StopText::new(strings.to_vec()).expect("empty ones were refused"),
    };
    for id in before {
        let _ = watch.token(*id);
    }
    Some(Box::new(watch))
}

/// The text of an answer of `ids`, up to the first of `strings`, and whether it came
/// to one. Ids without a token in the vocabulary have none.
pub(crate) fn answer_text(
    tokenizer: &Tokenizer,
    strings: &[String],
    ids: &[u32],
) -> (String, bool) {
    let mut decoder = StreamDecoder::new(tokenizer, Render::Plain);
    let mut stop = StopText::new(strings.to_vec()).expect("empty ones were refused");
    let mut text = String::new();
    for id in ids {
        if let Ok(piece) = decoder.push(*id) {
            text.push_str(stop.push(piece).text);
        }
    }
    text.push_str(stop.push(decoder.finish()).text);
    text.push_str(stop.finish());
    (text, stop.is_stopped())
}
