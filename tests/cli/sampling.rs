//! Sampling: reproducible by seed, and what the settings say.

use serde_json::Value;

use crate::common::{case, fixture, ids_of, isas, json, list, refusal, run, stdout_of, tiny};

fn sample(extra: &[&str]) -> Vec<u32> {
    let mut args = case("tiny", "p12", "latent").args();
    args.extend(["--gen", "16", "--ignore-eos", "--json"].map(str::to_owned));
    args.extend(extra.iter().map(|&arg| arg.to_owned()));
    ids_of(&json(&stdout_of(&args))["generated_ids"])
}

#[test]
fn a_seed_names_one_continuation_whatever_computes_it() {
    let base = ["--temperature", "1.5", "--seed", "7"];
    let first = sample(&base);
    for extra in [&["--threads", "2"][..], &["--chunk", "1"], &["--recompute"]] {
        assert_eq!(sample(&[&base, extra].concat()), first, "{extra:?}");
    }
    for isa in isas() {
        assert_eq!(
            sample(&[&base[..], &["--isa", isa]].concat()),
            first,
            "{isa}"
        );
    }
}

#[test]
fn other_seeds_give_other_continuations() {
    let draws: Vec<_> = ["0", "1", "18446744073709551615"]
        .map(|seed| sample(&["--temperature", "2", "--seed", seed]))
        .into();
    assert_ne!(draws[0], draws[1]);
    assert_ne!(draws[0], draws[2]);
    assert_ne!(draws[1], draws[2]);
}

#[test]
fn filters_that_leave_one_candidate_are_greedy() {
    let greedy = sample(&[]);
    assert_eq!(greedy, case("tiny", "p12", "latent").generated_ids[..16]);
    for filter in [["--top-k", "1"], ["--top-p", "1e-9"], ["--min-p", "1"]] {
        assert_eq!(
            sample(&[&["--temperature", "2", "--seed", "3"], &filter[..]].concat()),
            greedy
        );
    }
}

/// The report of the same prompt.
fn report(extra: &[&str]) -> Value {
    let mut args = case("tiny", "p12", "latent").args();
    args.extend(["--ignore-eos", "--json"].map(str::to_owned));
    args.extend(extra.iter().map(|&arg| arg.to_owned()));
    json(&stdout_of(&args))
}

/// Every setting that acts on logits at once.
const EVERYTHING: [&str; 22] = [
    "--temperature",
    "0.9",
    "--top-k",
    "200",
    "--top-p",
    "0.95",
    "--min-p",
    "0.001",
    "--repetition-penalty",
    "1.1",
    "--frequency-penalty",
    "0.3",
    "--presence-penalty",
    "-0.2",
    "--logit-bias",
    "10=1.5,11=-2,12=-inf",
    "--seed",
    "11",
    "--logprobs",
    "3",
    "--gen",
    "20",
];

#[test]
fn all_settings_at_once_give_the_same_bits_whatever_computes_them() {
    let results = |extra: &[&str]| {
        let report = report(&[&EVERYTHING[..], extra].concat());
        (
            ids_of(&report["generated_ids"]),
            report["logprobs"].to_string(),
        )
    };
    let first = results(&[]);
    assert_eq!(first.0.len(), 20);
    let least = crate::streaming::smallest(&[]).to_string();
    let variations: [&[&str]; 9] = [
        &["--threads", "2"],
        &["--threads", "3", "--chunk", "5"],
        &["--chunk", "1"],
        &["--chunk", "64"],
        &["--recompute"],
        &["--resident"],
        &["--memory", &least],
        &["--memory", "64M", "--engine", "pread"],
        &["--memory", "1G", "--slots", "4"],
    ];
    let of_isas = isas().into_iter().map(|isa| vec!["--isa", isa]);
    let variations = of_isas.chain(variations.into_iter().map(<[_]>::to_vec));
    for extra in variations {
        assert!(results(&extra) == first, "{extra:?}");
    }
    // None of them is without effect.
    let plain = results(&["--logit-bias", "0=0"]);
    assert_eq!(plain, first, "a bias of 0 changes nothing");
    let without = |name: &str| {
        let at = EVERYTHING.iter().position(|arg| *arg == name).unwrap();
        let mut args = EVERYTHING.to_vec();
        args.drain(at..at + 2);
        ids_of(&report(&args)["generated_ids"])
    };
    for name in [
        "--repetition-penalty",
        "--frequency-penalty",
        "--logit-bias",
    ] {
        assert_ne!(without(name), first.0, "{name}");
    }
}

#[test]
fn penalties_look_at_the_ids_they_say() {
    let distinct = |ids: &[u32]| {
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len() == ids.len()
    };
    let prompt = case("tiny", "p12", "latent").ids;
    let new = sample(&["--repetition-penalty", "1000"]);
    assert!(distinct(&new), "{new:?}");
    assert!(!new.iter().any(|id| prompt.contains(id)), "{new:?}");
    for penalty in ["--frequency-penalty", "--presence-penalty"] {
        let new = sample(&[penalty, "1000"]);
        assert!(distinct(&new), "{penalty}: {new:?}");
        // The prompt is no output: the first token is the same as without.
        assert_eq!(new[0], case("tiny", "p12", "latent").generated_ids[0]);
    }
    // Below 0 what came once comes for ever.
    let again = sample(&["--presence-penalty", "-1000"]);
    assert!(again.iter().all(|id| *id == again[0]), "{again:?}");
}

#[test]
fn a_bias_prefers_and_bans() {
    assert_eq!(sample(&["--logit-bias", "5=1e4"]), [5; 16]);
    let wanted = sample(&["--logit-bias", "5=1e4,6=2e4", "--logit-bias", "7=3e4"]);
    assert_eq!(wanted, [7; 16]);
    let greedy = sample(&[]);
    let ban = format!("{}=-inf", greedy[0]);
    for extra in [&[][..], &["--temperature", "1.5", "--seed", "2"]] {
        let without = sample(&[&["--logit-bias", &ban], extra].concat());
        assert!(!without.contains(&greedy[0]), "{without:?}");
    }
    let report = report(&["--gen", "1", "--logit-bias", "9=2.5,3=-inf"]);
    let told = report["sampling"]["logit_bias"].to_string();
    assert_eq!(told, r#"[[3,"-inf"],[9,2.5]]"#);
}

#[test]
fn logprobs_are_those_of_the_logits() {
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("logits").display().to_string();
    let report = report(&["--gen", "4", "--logprobs", "20", "--dump-logits", &dump]);
    let tokens = report["logprobs"].as_array().unwrap();
    let ids = ids_of(&report["generated_ids"]);
    assert_eq!((tokens.len(), ids.len()), (4, 4));
    for (token, id) in tokens.iter().zip(ids) {
        assert_eq!(token["id"], id);
        let top = token["top"].as_array().unwrap();
        assert_eq!(top.len(), 20);
        // Greedy: the likeliest is what was drawn.
        assert_eq!(top[0]["id"], id);
        assert_eq!(top[0]["logprob"], token["logprob"]);
        let logprobs = top.iter().map(|entry| entry["logprob"].as_f64().unwrap());
        assert!(logprobs.is_sorted_by(|a, b| a >= b));
    }
    let bytes = std::fs::read(&dump).unwrap();
    let logits = bytes.as_chunks::<4>().0.iter().copied();
    let logits: Vec<f32> = logits.map(f32::from_le_bytes).collect();
    let expected = k3_runtime::logprobs(&logits, 20).unwrap();
    let first = expected.of_drawn(ids_of(&report["generated_ids"])[0]);
    let first = serde_json::to_vec(&first.unwrap()).unwrap();
    assert_eq!(tokens[0], json(&first));
}

#[test]
fn logprobs_come_when_asked_for() {
    assert!(report(&["--gen", "2"])["logprobs"].is_null());
    let report = report(&["--gen", "2", "--logprobs", "0", "--temperature", "2"]);
    let tokens = report["logprobs"].as_array().unwrap();
    assert_eq!(tokens.len(), 2);
    for token in tokens {
        assert!(token["logprob"].as_f64().unwrap() < 0.0);
        assert!(token["top"].as_array().unwrap().is_empty());
    }
}

/// A text of the tiny checkpoint, with its ids.
fn text_of(extra: &[&str]) -> (String, Vec<u32>, String) {
    let mut args = vec!["-n", "24", "--ignore-eos", "-q", "--json"];
    args.extend(extra);
    let model = tiny();
    let report = json(&stdout_of(
        &[&[&*model, "-p", "hello and"], &args[..]].concat(),
    ));
    let text = report["generated_text"].as_str().unwrap().to_owned();
    let reason = report["stop_reason"].as_str().unwrap().to_owned();
    (text, ids_of(&report["generated_ids"]), reason)
}

#[test]
fn a_stop_string_ends_the_text_before_it_wherever_tokens_end() {
    let (text, ids, _) = text_of(&[]);
    let decoded = |ids: &[u32]| {
        let args = ["detokenize", &tiny(), "--plain", "--ids", &list(ids)];
        String::from_utf8_lossy(&stdout_of(&args)).into_owned()
    };
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    for (index, count) in [(0, 1), (3, 2), (5, 4), (9, 7), (12, 3)] {
        let end = starts.get(index + count).copied().unwrap_or(text.len());
        let stop = &text[starts[index]..end];
        let escaped = stop.replace('\\', r"\\");
        let (found, stopped, reason) = text_of(&["--stop", &escaped, "--stop=zzzzz"]);
        assert_eq!(reason, "stop-string", "{stop:?} in {text:?}");
        assert_eq!(found, text[..text.find(stop).unwrap()]);
        // All ids that were drawn are told, and not one more was drawn.
        assert!(ids.starts_with(&stopped), "{stopped:?}, {ids:?}");
        assert!(decoded(&stopped).contains(stop), "{stop:?}");
        let before = &stopped[..stopped.len() - 1];
        assert!(
            before.is_empty() || !decoded(before).contains(stop),
            "{stop:?}"
        );
        let streamed = stdout_of(&[
            &*tiny(),
            "-p",
            "hello and",
            "-n",
            "24",
            "--ignore-eos",
            "-q",
            "--stop",
            &escaped,
        ]);
        assert_eq!(String::from_utf8(streamed).unwrap(), found + "\n");
    }
    let (all, all_ids, reason) = text_of(&["--stop", "zzzzz"]);
    assert_eq!((all, all_ids, &*reason), (text, ids, "length"));
}

#[test]
fn a_stop_string_that_spans_tokens_and_one_that_stays_unfinished() {
    let model = tiny();
    let ids = stdout_of(&["tokenize", &model, "--text", "\n", "--json"]);
    let line_end = ids_of(&json(&ids))[0];
    let bias = format!("{line_end}=1e4");
    let lines = ["--logit-bias", &bias];
    let stop = |text| text_of(&[&lines[..], &["--stop", text]].concat());
    let (text, ids, reason) = stop(r"\n\n\n");
    assert_eq!(
        (&*text, &ids[..], &*reason),
        ("", &[line_end; 3][..], "stop-string")
    );
    let (text, ids, reason) = stop(r"\n\tx");
    assert_eq!((text, ids.len(), &*reason), ("\n".repeat(24), 24, "length"));
    // The report for a person says what ended the run.
    let output = run(&[&[&*model, "-p", "a", "--stop", r"\n"], &lines[..]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ended by a stop string"), "{said}");
}

#[test]
fn a_stop_id_ends_after_it_also_beside_ignored_ones() {
    let case = case("tiny", "p12", "latent");
    let greedy = &case.generated_ids;
    let first = greedy.iter().position(|id| *id == greedy[4]).unwrap();
    let ids = format!("{},1", greedy[4]);
    let report = report(&["--gen", "24", "--stop-id", &ids]);
    assert_eq!(ids_of(&report["generated_ids"]), greedy[..=first]);
    assert_eq!(report["stop_reason"], "stop");
}

#[test]
fn what_cannot_be_is_refused() {
    let model = tiny();
    let refused = |extra: &[&str]| {
        let args = [&[&*model, "--ids", "3,4", "--gen", "1"], extra].concat();
        refusal(2, &args)
    };
    for (option, value) in [
        ("--repetition-penalty", "0"),
        ("--repetition-penalty", "-1"),
        ("--repetition-penalty", "nan"),
        ("--frequency-penalty", "inf"),
        ("--presence-penalty", "x"),
        ("--logit-bias", "5"),
        ("--logit-bias", "-5=1"),
        ("--logit-bias", "5=inf"),
        ("--logit-bias", "5=nan"),
        ("--stop", r"a\x"),
        ("--stop-id", "-1"),
        ("--stop-id", "x"),
        ("--logprobs", "21"),
        ("--logprobs", "-1"),
    ] {
        let said = refused(&[option, value]);
        assert!(said.contains(option) && said.contains(value), "{said}");
    }
    assert!(refused(&["--stop", ""]).contains("--stop"));
    let said = refused(&["--logit-bias", "5=1,5=2"]);
    assert!(said.contains("id 5 more than once"), "{said}");
    for option in [["--logit-bias", "999999=1"], ["--stop-id", "999999"]] {
        let said = refused(&option);
        assert!(
            said.contains(option[0]) && said.contains("999999"),
            "{said}"
        );
    }
    let odd = fixture("odd").display().to_string();
    let said = refusal(2, &[&odd, "--ids", "3,4", "--stop", "x"]);
    for part in ["--stop needs", "--tokenizer", "--stop-id"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn settings_without_effect_are_told() {
    let said = |extra: &[&str]| {
        let output = run(&[&[&*tiny(), "--ids", "3,4"], extra].concat());
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stderr).unwrap();
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let none = said(&["--gen", "0", "--stop", "x", "--presence-penalty", "1"]);
    let note = "--presence-penalty, --stop: no effect, as no token is generated";
    assert!(none.contains(note), "{none}");
    let note = "--logprobs: no effect without --json or --out";
    let hidden = said(&["--gen", "1", "--logprobs", "2"]);
    assert!(hidden.contains(note), "{hidden}");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run.json").display().to_string();
    let kept = said(&["--gen", "1", "--logprobs", "2", "--out", &out]);
    assert!(!kept.contains(note), "{kept}");
}
