//! A strict reader of the text format that Prometheus scrapes, version 0.0.4:
//! it takes less than Prometheus does.

use std::collections::BTreeMap;

/// Labels by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// One family with its samples.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    /// Name of all samples.
    pub(crate) name: String,
    /// `counter` or `gauge`.
    pub(crate) kind: String,
    /// Labels and values, at least one.
    pub(crate) samples: Vec<(Labels, f64)>,
}

/// Every family of `text`, by name.
///
/// Each has exactly one HELP, one TYPE right after it and its samples right
/// after that. Counters are called `_total`, nothing else is. Values are finite.
#[track_caller]
pub(crate) fn parse(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line ends");
    assert!(!text.contains('\r'));
    let mut families = BTreeMap::<String, Family>::new();
    let mut current: Option<Family> = None;
    let mut help: Option<String> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            finish(&mut families, current.take());
            assert_eq!(help, None, "two HELP lines before {line}");
            let (name, words) = rest.split_once(' ').expect(line);
            check_name(name);
            assert!(!words.trim().is_empty(), "{line}");
            help = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert_eq!(help.take().as_deref(), Some(name), "HELP before {line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            current = Some(Family {
                name: name.to_owned(),
                kind: kind.to_owned(),
                samples: Vec::new(),
            });
        } else {
            let family = current.as_mut().expect(line);
            let (name, labels, value) = sample(line);
            assert_eq!(name, family.name, "{line}");
            assert!(value.is_finite(), "{line}");
            assert!(family.kind == "gauge" || value >= 0.0, "{line}");
            let known = family.samples.iter().any(|(other, _)| *other == labels);
            assert!(!known, "twice: {line}");
            family.samples.push((labels, value));
        }
    }
    finish(&mut families, current);
    families
}

#[track_caller]
fn finish(families: &mut BTreeMap<String, Family>, family: Option<Family>) {
    if let Some(family) = family {
        assert!(!family.samples.is_empty(), "{} has no sample", family.name);
        let name = family.name.clone();
        assert!(
            families.insert(name.clone(), family).is_none(),
            "{name} twice"
        );
    }
}

#[track_caller]
fn check_name(name: &str) {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let rest = bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    assert!(first && rest, "{name:?} is no name");
}

#[track_caller]
fn sample(line: &str) -> (&str, Labels, f64) {
    let end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(end);
    check_name(name);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect(line);
            check_name(label);
            let (value, after) = quoted(after, line);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            if let Some(after) = after.strip_prefix('}') {
                rest = after;
                break;
            }
            rest = after.strip_prefix(',').expect(line);
        }
    }
    let value = rest.strip_prefix(' ').expect(line);
    let plain = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'e' | b'+');
    assert!(value.bytes().all(plain), "{line}");
    (name, labels, value.parse().expect(line))
}

/// What a quoted value says, and what follows its closing quote.
#[track_caller]
fn quoted<'t>(text: &'t str, line: &str) -> (String, &'t str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return (value, &text[index + 1..]),
            '\\' => value.push(match characters.next().expect(line).1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                other => panic!("\\{other} in {line}"),
            }),
            other => value.push(other),
        }
    }
    panic!("no closing quote in {line}")
}

#[test]
fn the_reader_knows_the_format_and_takes_nothing_else() {
    let good = "# HELP a_total Text\n# TYPE a_total counter\na_total{x=\"\\\"\\n\\\\\"} 1e3\n";
    let families = parse(good);
    let (labels, value) = &families["a_total"].samples[0];
    assert_eq!((labels["x"].as_str(), *value), ("\"\n\\", 1000.0));
    for wrong in [
        "# HELP a Text\n# TYPE a gauge\na NaN\n",
        "# HELP a Text\n# TYPE a gauge\n# TYPE a gauge\na 1\n",
        "# HELP a Text\n# HELP a Text\n# TYPE a gauge\na 1\n",
        "# HELP a Text\n# TYPE a gauge\na 1\na 2\n",
        "# HELP a Text\n# TYPE a gauge\nb 1\n",
        "# HELP a Text\n# TYPE a gauge\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a Text\n# TYPE a counter\na 1\n",
        "# HELP a_total Text\n# TYPE a_total counter\na_total -1\n",
        "# HELP a Text\n# TYPE a gauge\na{x=\"1} 1\n",
        "# HELP a Text\n# TYPE a gauge\na 1",
    ] {
        let refused = std::panic::catch_unwind(|| parse(wrong));
        assert!(refused.is_err(), "{wrong}");
    }
}
