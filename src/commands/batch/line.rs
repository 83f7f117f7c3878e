//! One line of the input as it is written.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::sampling::LOGPROBS_MAX;

/// Answers to one prompt at most.
const CHOICES_MAX: u32 = 64;
/// Characters of a wrong value that are shown.
const SHOWN_MAX: usize = 40;

/// What a line is called: handed through as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Label {
    /// A number.
    Number(serde_json::Number),
    /// A text.
    Text(String),
}

/// The keys of a line, whatever they hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    id: Option<Value>,
    prompt: Option<Value>,
    ids: Option<Value>,
    #[serde(rename = "gen")]
    gen_count: Option<Value>,
    choices: Option<Value>,
    temperature: Option<Value>,
    top_k: Option<Value>,
    top_p: Option<Value>,
    min_p: Option<Value>,
    seed: Option<Value>,
    repetition_penalty: Option<Value>,
    frequency_penalty: Option<Value>,
    presence_penalty: Option<Value>,
    logit_bias: Option<Value>,
    stop: Option<Value>,
    stop_ids: Option<Value>,
    logprobs: Option<Value>,
}

/// What a line asks for; what it leaves open is up to the options.
#[derive(Debug)]
pub(super) struct Line {
    pub id: Option<Label>,
    pub prompt: Option<String>,
    pub ids: Option<Vec<u32>>,
    pub gen_count: Option<usize>,
    pub choices: u32,
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f64>,
    pub min_p: Option<f32>,
    pub seed: Option<u64>,
    pub repetition_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    /// Ids ascending.
    pub logit_bias: Option<Vec<(u32, f32)>>,
    /// None of them empty.
    pub stop: Option<Vec<String>>,
    pub stop_ids: Option<Vec<u32>>,
    pub logprobs: Option<usize>,
}

/// A text, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

const TEXT: &str = "a text";
const WHOLE: &str = "a whole number from 0 up";
const NUMBER: &str = "a number";
const IDS: &str = "a list of token ids, as in [3, 4]";
const BIAS: &str = "an object of ids and numbers, as in {\"42\": -1.5, \"7\": \"-inf\"}";

/// What `text` says.
///
/// # Errors
///
/// What is wrong with it, by its key.
pub(super) fn parse(text: &str) -> Result<Line, String> {
    if !text.trim_start().starts_with('{') {
        // A struct may be written as an array otherwise.
        return Err(match text.starts_with('\u{feff}') {
            true => "begins with a byte order mark (U+FEFF): write the file without it".into(),
            false => "not a JSON object".into(),
        });
    }
    let keys: Keys = serde_json::from_str(text).map_err(|error| {
        // The line is known; what is left is the column.
        let message = error.to_string();
        let column = error.column();
        let place = format!(" at line {} column {column}", error.line());
        format!("{} (column {column})", message.replace(&place, ""))
    })?;
    let choices: u32 = typed("choices", keys.choices, WHOLE)?.unwrap_or(1);
    if choices == 0 || choices > CHOICES_MAX {
        return Err(format!("{choices} choices are outside 1..={CHOICES_MAX}"));
    }
    Ok(Line {
        id: typed("id", keys.id, "a text or a number")?,
        prompt: typed("prompt", keys.prompt, TEXT)?,
        ids: typed("ids", keys.ids, IDS)?,
        gen_count: typed("gen", keys.gen_count, WHOLE)?,
        choices,
        temperature: typed("temperature", keys.temperature, NUMBER)?,
        top_k: typed("top_k", keys.top_k, WHOLE)?,
        top_p: typed("top_p", keys.top_p, NUMBER)?,
        min_p: typed("min_p", keys.min_p, NUMBER)?,
        seed: typed("seed", keys.seed, WHOLE)?,
        repetition_penalty: typed("repetition_penalty", keys.repetition_penalty, NUMBER)?,
        frequency_penalty: typed("frequency_penalty", keys.frequency_penalty, NUMBER)?,
        presence_penalty: typed("presence_penalty", keys.presence_penalty, NUMBER)?,
        logit_bias: keys.logit_bias.map(biases).transpose()?,
        stop: stops(keys.stop)?,
        stop_ids: typed("stop_ids", keys.stop_ids, IDS)?,
        logprobs: logprobs(keys.logprobs)?,
    })
}

/// `value` as what `key` takes, which is `what`.
fn typed<T: for<'de> Deserialize<'de>>(
    key: &str,
    value: Option<Value>,
    what: &str,
) -> Result<Option<T>, String> {
    let Some(value) = value else {
        return Ok(None);
    };
    let wrong = wrong(key, &value, what);
    T::deserialize(value).map(Some).map_err(|_| wrong)
}

/// What is said of `value`, which `key` does not take.
fn wrong(key: &str, value: &impl fmt::Display, what: &str) -> String {
    let text = value.to_string();
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("\"{key}\" is {shown}, where {what} is expected")
}

fn stops(value: Option<Value>) -> Result<Option<Vec<String>>, String> {
    let stops = match typed("stop", value, "a text or a list of texts")? {
        None => return Ok(None),
        Some(Texts::One(text)) => vec![text],
        Some(Texts::Several(texts)) => texts,
    };
    if stops.iter().any(String::is_empty) {
        return Err("\"stop\" has an empty text, which ends everything before it begins".into());
    }
    Ok(Some(stops))
}

fn logprobs(value: Option<Value>) -> Result<Option<usize>, String> {
    let count: Option<u64> = typed("logprobs", value, WHOLE)?;
    match count {
        Some(count) if count > LOGPROBS_MAX => Err(format!(
            "\"logprobs\" is {count}, where at most {LOGPROBS_MAX} alternatives are told"
        )),
        count => Ok(count.map(|count| usize::try_from(count).expect("it is small"))),
    }
}

/// Ids with what is added to their logits, ids ascending.
fn biases(value: Value) -> Result<Vec<(u32, f32)>, String> {
    let object = match value {
        Value::Object(object) => object,
        other => return Err(wrong("logit_bias", &other, BIAS)),
    };
    let mut biases = Vec::with_capacity(object.len());
    for (id, value) in &object {
        let parsed = id.parse::<u32>();
        // "7" and "07" would be two values for one id.
        let parsed = parsed.ok().filter(|parsed| parsed.to_string() == *id);
        let id_value = parsed.ok_or_else(|| wrong("logit_bias", &format!("\"{id}\""), BIAS))?;
        biases.push((
            id_value,
            bias(value).ok_or_else(|| wrong("logit_bias", value, BIAS))?,
        ));
    }
    biases.sort_by_key(|(id, _)| *id);
    Ok(biases)
}

/// A finite number, or the text that bans an id: JSON has no such number.
fn bias(value: &Value) -> Option<f32> {
    if value.as_str() == Some("-inf") {
        return Some(f32::NEG_INFINITY);
    }
    let number = f32::deserialize(value).ok()?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_type() {
        for (text, says) in [
            ("{\"gen\": \"x\"}", "\"gen\" is \"x\", where a whole number"),
            ("{\"gen\": 1.5}", "\"gen\" is 1.5"),
            ("{\"ids\": [1, -1]}", "\"ids\" is [1,-1], where a list of"),
            ("{\"id\": []}", "\"id\" is [], where a text or a number"),
            ("{\"prompt\": 3}", "\"prompt\" is 3, where a text"),
            ("{\"seed\": -1}", "\"seed\" is -1"),
            (
                "{\"temperature\": true}",
                "\"temperature\" is true, where a number",
            ),
            (
                "{\"presence_penalty\": \"1\"}",
                "\"presence_penalty\" is \"1\"",
            ),
            ("{\"frequency_penalty\": []}", "\"frequency_penalty\" is []"),
            (
                "{\"repetition_penalty\": {}}",
                "\"repetition_penalty\" is {}",
            ),
            (
                "{\"logit_bias\": [1, 2]}",
                "\"logit_bias\" is [1,2], where an object",
            ),
            ("{\"logit_bias\": {\"x\": 1}}", "\"logit_bias\" is \"x\""),
            ("{\"logit_bias\": {\"07\": 1}}", "\"logit_bias\" is \"07\""),
            (
                "{\"logit_bias\": {\"7\": \"inf\"}}",
                "\"logit_bias\" is \"inf\"",
            ),
            (
                "{\"logit_bias\": {\"7\": -1e39}}",
                "\"logit_bias\" is -1e+39",
            ),
            (
                "{\"stop\": 1}",
                "\"stop\" is 1, where a text or a list of texts",
            ),
            ("{\"stop\": [\"a\", \"\"]}", "\"stop\" has an empty text"),
            (
                "{\"stop_ids\": 3}",
                "\"stop_ids\" is 3, where a list of token ids",
            ),
            (
                "{\"logprobs\": true}",
                "\"logprobs\" is true, where a whole number",
            ),
            ("{\"logprobs\": 21}", "\"logprobs\" is 21, where at most 20"),
            ("{\"choices\": 0}", "0 choices"),
            ("{\"seed\": 1, \"seed\": 2}", "duplicate field `seed`"),
            ("{\"sed\": 1}", "unknown field `sed`"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
        }
        let long = format!("{{\"gen\": \"{}\"}}", "x".repeat(1000));
        assert!(parse(&long).unwrap_err().len() < 120);
    }

    #[test]
    fn values_are_taken_as_they_are_written() {
        let line = parse(
            "{\"ids\": [1], \"logit_bias\": {\"42\": -1.5, \"7\": \"-inf\"}, \"stop\": \"a\\n\", \
             \"stop_ids\": [], \"logprobs\": 0, \"presence_penalty\": -1, \"gen\": null}",
        )
        .unwrap();
        let bias = [(7, f32::NEG_INFINITY), (42, -1.5)];
        assert_eq!(line.logit_bias.as_deref(), Some(&bias[..]));
        assert_eq!(line.stop, Some(vec!["a\n".to_owned()]));
        assert_eq!((line.stop_ids, line.logprobs), (Some(Vec::new()), Some(0)));
        assert_eq!((line.presence_penalty, line.gen_count), (Some(-1.0), None));
        let line = parse("{\"stop\": [\"a\", \"b\"]}").unwrap();
        assert_eq!(line.stop.unwrap().len(), 2);
    }
}
