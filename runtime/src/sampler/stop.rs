//! Strings that end a text, found while it comes.

/// A stop string without a character: it would end every text at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stop string has at least one character")]
pub struct EmptyStopString;

/// What a piece of text gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPiece<'a> {
    /// Text that may be shown now.
    pub text: &'a str,
    /// Whether a stop string is complete: what follows is not looked at.
    pub is_stopped: bool,
}

/// Ends a text at the first of several strings.
///
/// The string that ends first wins; of those that end at the same place, the
/// longest, that is the one that begins first. The text is what stands before
/// it: neither the string nor what follows is ever shown. What may still become
/// a stop string is held back, and nothing else: as soon as it cannot, it is
/// shown. Never more than the longest string less a character is held back.
///
/// ```
/// use k3_runtime::sampler::StopText;
/// let mut stop = StopText::new(vec!["\nUser:".to_owned()]).unwrap();
/// assert_eq!(stop.push("Yes.\nUs").text, "Yes.");
/// assert_eq!(stop.push("ually").text, "\nUsually");
/// assert!(stop.push(" no.\nUser: and").is_stopped);
/// assert_eq!(stop.finish(), "");
/// ```
#[derive(Debug, Clone, Default)]
pub struct StopText {
    strings: Vec<String>,
    /// What was shown last, then what is held back.
    buffer: String,
    /// Where in `buffer` that begins.
    shown_bytes: usize,
    is_stopped: bool,
}

impl StopText {
    /// Stops at any of `strings`; at none if there are none.
    ///
    /// # Errors
    ///
    /// A string that is empty.
    pub fn new(strings: Vec<String>) -> Result<Self, EmptyStopString> {
        if strings.iter().any(String::is_empty) {
            return Err(EmptyStopString);
        }
        Ok(Self {
            strings,
            ..Self::default()
        })
    }

    /// The next piece of text.
    pub fn push(&mut self, text: &str) -> StopPiece<'_> {
        self.buffer.drain(..self.shown_bytes);
        self.shown_bytes = 0;
        if !self.is_stopped {
            self.buffer.push_str(text);
            self.shown_bytes = match self.find() {
                Some(start) => {
                    self.buffer.truncate(start);
                    self.is_stopped = true;
                    start
                }
                None => self.buffer.len() - self.held_bytes(),
            };
        }
        StopPiece {
            text: &self.buffer[..self.shown_bytes],
            is_stopped: self.is_stopped,
        }
    }

    /// What was held back, once no more text comes; nothing after a stop.
    pub fn finish(&mut self) -> &str {
        self.buffer.drain(..self.shown_bytes);
        self.shown_bytes = self.buffer.len();
        &self.buffer
    }

    /// Whether a stop string is complete.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Where the winning stop string begins. What is held back is the longest
    /// beginning of one that the text ends with, so it is all in the buffer.
    fn find(&self) -> Option<usize> {
        let ends = self.strings.iter().filter_map(|string| {
            let start = self.buffer.find(string.as_str())?;
            Some((start + string.len(), start))
        });
        ends.min().map(|(_, start)| start)
    }

    /// Bytes at the end of the text that may be the beginning of a stop string.
    fn held_bytes(&self) -> usize {
        let held = self.strings.iter().map(|string| {
            let beginnings = string.char_indices().map(|(end, _)| end).rev();
            let mut beginnings = beginnings.filter(|end| *end <= self.buffer.len());
            let held = beginnings.find(|end| self.buffer.ends_with(&string[..*end]));
            held.expect("every text ends with nothing")
        });
        held.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stop(strings: &[&str]) -> StopText {
        let strings = strings.iter().map(|&string| string.to_owned());
        StopText::new(strings.collect()).unwrap()
    }

    /// Pushes all pieces; each shown text, whether it stopped, what was left.
    fn run(strings: &[&str], pieces: &[&str]) -> (Vec<String>, bool, String) {
        let mut stop = stop(strings);
        let shown = pieces.iter().map(|piece| stop.push(piece).text.to_owned());
        let shown = shown.collect();
        (shown, stop.is_stopped(), stop.finish().to_owned())
    }

    fn check(strings: &[&str], pieces: &[&str], shown: &[&str], is_stopped: bool, rest: &str) {
        let got = run(strings, pieces);
        let got = (
            got.0.iter().map(String::as_str).collect::<Vec<_>>(),
            got.1,
            got.2,
        );
        assert_eq!(got, (shown.to_vec(), is_stopped, rest.to_owned()));
    }

    #[test]
    fn text_is_held_back_only_while_it_may_become_a_stop_string() {
        check(&["abc"], &["xab", "d"], &["x", "abd"], false, "");
        check(&["abc"], &["xab", "c"], &["x", ""], true, "");
        check(&["abc"], &["xab", "ab"], &["x", "ab"], false, "ab");
        // Overlaps itself: the second half may begin another.
        check(&["aab"], &["aa", "a", "b"], &["", "a", ""], true, "");
        check(&["abab"], &["aba", "ba"], &["", ""], true, "");
        check(&[], &["a", "b"], &["a", "b"], false, "");
    }

    #[test]
    fn the_first_to_end_wins_then_the_longest() {
        check(&["abcd", "bc"], &["xabcd"], &["xa"], true, "");
        check(&["c", "abc"], &["xabc"], &["x"], true, "");
        check(&["abc", "ab"], &["xabc"], &["x"], true, "");
        check(&["bc", "zabc", "c"], &["za", "bc"], &["", ""], true, "");
    }

    #[test]
    fn nothing_comes_after_a_stop() {
        check(&["."], &["a.b", "c."], &["a", ""], true, "");
    }

    #[test]
    fn characters_stay_whole() {
        check(&["あい"], &["んあ", "う"], &["ん", "あう"], false, "");
        check(&["あい"], &["んあ", "いx"], &["ん", ""], true, "");
        // The first bytes of あ and い are the same.
        check(&["い"], &["あ"], &["あ"], false, "");
        assert_eq!(
            StopText::new(vec![String::new()]).unwrap_err(),
            EmptyStopString
        );
    }

    /// Over the whole text: where the winner begins.
    fn naive(strings: &[String], text: &str) -> Option<usize> {
        let ends = 0..=text.len();
        let starts = ends.into_iter().filter_map(|end| {
            let ending = strings.iter().filter(|string| {
                text.is_char_boundary(end) && text[..end].ends_with(string.as_str())
            });
            let longest = ending.map(String::len).max()?;
            Some(end - longest)
        });
        starts.into_iter().next()
    }

    /// Over the text so far: what cannot be shown yet.
    fn naive_held(strings: &[String], text: &str) -> usize {
        let starts = (0..text.len()).filter(|start| text.is_char_boundary(*start));
        let mut open = starts.filter(|start| {
            let tail = &text[*start..];
            strings
                .iter()
                .any(|string| string.len() > tail.len() && string.starts_with(tail))
        });
        open.next().map_or(0, |start| text.len() - start)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn as_a_search_over_the_whole_text(
            strings in proptest::collection::vec("[abあい]{1,5}", 0..4),
            pieces in proptest::collection::vec("[abあい]{0,4}", 0..12),
        ) {
            let mut stop = StopText::new(strings.clone()).unwrap();
            let (mut fed, mut shown) = (String::new(), String::new());
            for piece in &pieces {
                fed.push_str(piece);
                let got = stop.push(piece);
                shown.push_str(got.text);
                match naive(&strings, &fed) {
                    Some(start) => {
                        prop_assert!(got.is_stopped);
                        prop_assert_eq!(&shown, &fed[..start]);
                    }
                    None => {
                        prop_assert!(!got.is_stopped);
                        let held = naive_held(&strings, &fed);
                        prop_assert_eq!(&shown, &fed[..fed.len() - held]);
                    }
                }
            }
            let is_stopped = stop.is_stopped();
            shown.push_str(stop.finish());
            prop_assert_eq!(stop.finish(), "");
            if !is_stopped {
                prop_assert_eq!(shown, fed);
            }
        }
    }
}
