//! Generation on the committed checkpoints: the same bytes whatever is varied.

use crate::common::{
    Case, case, cases, count_of, fixture, ids_of, isas, json, list, refusal, run, stdout_of, tiny,
};

const CHECKPOINTS: [&str; 3] = ["tiny", "odd", "flat"];

/// Nothing here may change a byte; each entry is added to the arguments.
fn variations() -> Vec<Vec<&'static str>> {
    let mut variations: Vec<Vec<&str>> = isas()
        .into_iter()
        .map(|isa| vec!["--isa", isa, "--threads", "1"])
        .collect();
    variations.extend([
        vec!["--threads", "2"],
        vec!["--threads", "3", "--chunk", "5"],
        vec!["--chunk", "1"],
        vec!["--chunk", "3"],
        vec!["--chunk", "64"],
        vec!["--recompute"],
        vec!["--recompute", "--chunk", "7"],
        vec!["--context", "100000"],
    ]);
    variations
}

#[test]
fn every_prompt_of_every_checkpoint_in_both_forms() {
    for checkpoint in CHECKPOINTS {
        for case in cases(checkpoint) {
            case.check(&[]);
        }
    }
}

#[test]
fn no_execution_setting_changes_a_byte() {
    for checkpoint in CHECKPOINTS {
        for form in ["latent", "expanded"] {
            for name in ["p12", "p17rep"] {
                let case = case(checkpoint, name, form);
                for variation in variations() {
                    case.check(&variation);
                }
            }
        }
    }
}

#[test]
fn every_prompt_position() {
    let mut committed = 0;
    for case in CHECKPOINTS.into_iter().flat_map(cases) {
        if case.name != "p17rep" {
            continue;
        }
        committed += usize::from(case.all_logits.is_some());
        let dump = |chunk: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("logits").display().to_string();
            let mut args = case.args();
            args.extend(["--gen", "0", "--all-positions", "--chunk", chunk].map(str::to_owned));
            args.extend(["--dump-logits".to_owned(), path.clone()]);
            assert!(stdout_of(&args).is_empty());
            std::fs::read(&path).unwrap()
        };
        let whole = dump("64");
        assert_eq!(whole.len(), case.ids.len() * case.logits.len());
        assert!(whole.ends_with(&case.logits), "{}", case.model.display());
        assert!(
            case.all_logits
                .as_ref()
                .is_none_or(|expected| *expected == whole)
        );
        for chunk in ["1", "3", "16", "17"] {
            assert!(
                dump(chunk) == whole,
                "{} --chunk {chunk}",
                case.model.display()
            );
        }
    }
    assert!(
        committed > 0,
        "one checkpoint has the logits of all positions"
    );
}

#[test]
fn teacher_forcing_agrees_with_what_was_generated() {
    let case = case("tiny", "p12", "latent");
    let ids = [case.ids.as_slice(), &case.generated_ids].concat();
    let check = |extra: &[&str]| {
        let list = list(&ids);
        let model = tiny();
        json(&stdout_of(
            &[
                &[&model, "--ids", &list, "--tf-check", "--json", "--quiet"],
                extra,
            ]
            .concat(),
        ))
    };
    for chunk in ["1", "3", "64"] {
        let report = check(&["--chunk", chunk]);
        let found = &report["teacher_forced"];
        assert_eq!(found["compared"], ids.len() - 1);
        assert!(ids_of(&report["generated_ids"]).is_empty());
        let disagreements = found["first_disagreements"].as_array().unwrap();
        let agreed = count_of(&found["agreed"]);
        assert_eq!(agreed + disagreements.len(), ids.len() - 1);
        // Position p predicts p + 1: from the last prompt position on, what
        // was generated must be predicted.
        for entry in disagreements {
            let position = count_of(&entry[0]);
            assert!(
                position + 1 < case.ids.len(),
                "{entry} is in the generated part"
            );
            assert_eq!(entry[1], ids[position + 1]);
        }
    }
    // One wrong id is noticed, where it is.
    let mut wrong = ids.clone();
    let last = wrong.len() - 1;
    wrong[last] = (wrong[last] + 1) % 100;
    let report = json(&stdout_of(&[
        &tiny(),
        "--ids",
        &list(&wrong),
        "--tf-check",
        "--json",
        "-q",
    ]));
    let disagreements = report["teacher_forced"]["first_disagreements"]
        .as_array()
        .unwrap()
        .clone();
    assert!(
        disagreements
            .iter()
            .any(|entry| entry[0] == last - 1 && entry[2] == ids[last])
    );
}

#[test]
fn teacher_forcing_for_a_person() {
    let text = stdout_of(&[&tiny(), "--ids", "3,4,5,6", "--tf-check", "--quiet"]);
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains(" of 3 next tokens are the likeliest ("),
        "{text}"
    );
    let said = refusal(2, &[&tiny(), "--ids", "3", "--tf-check"]);
    assert!(said.contains("at least two"), "{said}");
}

#[test]
fn text_in_text_out() {
    let prompt = "hello and";
    let model = tiny();
    let report = json(&stdout_of(&[
        &model, "-p", prompt, "-n", "12", "--json", "-q",
    ]));
    let ids = ids_of(&json(&stdout_of(&[
        "tokenize", &model, "-t", prompt, "--json",
    ])));
    assert_eq!(ids_of(&report["prompt_ids"]), ids);

    let generated = ids_of(&report["generated_ids"]);
    let bytes = stdout_of(&["detokenize", &model, "--plain", "--ids", &list(&generated)]);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert_eq!(report["generated_text"], text);
    let streamed = String::from_utf8(stdout_of(&[&model, "-p", prompt, "-n", "12", "-q"])).unwrap();
    assert_eq!(streamed, text + "\n");

    let by_ids = stdout_of(&[&model, "--ids", &list(&ids), "-n", "12", "-q"]);
    assert_eq!(String::from_utf8(by_ids).unwrap(), streamed);
}

#[test]
fn generation_stops_at_the_ids_the_configuration_names() {
    let case = case("tiny", "p12", "latent");
    let stop_at = case.generated_ids[4];
    let first = case
        .generated_ids
        .iter()
        .position(|id| *id == stop_at)
        .unwrap();
    let mut config = json(&std::fs::read(fixture("tiny").join("config.json")).unwrap());
    let place = if config.get("text_config").is_some() {
        &mut config["text_config"]
    } else {
        &mut config
    };
    place["eos_token_id"] = stop_at.into();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config.to_string()).unwrap();
    let path = file.path().display().to_string();
    let run_with = |extra: &[&str]| {
        let mut args = case.args();
        args.extend(["--config", &path, "--gen", "24", "--json"].map(str::to_owned));
        args.extend(extra.iter().map(|&arg| arg.to_owned()));
        json(&stdout_of(&args))
    };
    let stopped = run_with(&[]);
    assert_eq!(
        ids_of(&stopped["generated_ids"]),
        case.generated_ids[..=first]
    );
    assert_eq!(stopped["stop_reason"], "stop");
    let ignored = run_with(&["--ignore-eos"]);
    assert_eq!(ids_of(&ignored["generated_ids"]), case.generated_ids);
    assert_eq!(ignored["stop_reason"], "length");
}

#[test]
fn fewer_layers_give_other_logits_and_the_report_says_so() {
    let case = case("tiny", "p5", "latent");
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("logits").display().to_string();
    let mut args = case.args();
    args.extend(
        [
            "--layers",
            "2",
            "--json",
            "--gen",
            "1",
            "--dump-logits",
            &dump,
        ]
        .map(str::to_owned),
    );
    let report = json(&stdout_of(&args));
    assert_eq!(report["model"]["layers"], 2);
    assert!(std::fs::read(&dump).unwrap() != case.logits);
}

#[test]
fn shards_may_lie_in_another_root() {
    let case = case("tiny", "p5", "latent");
    let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut moved = 0;
    for entry in std::fs::read_dir(&case.model).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let is_shard = path
            .extension()
            .is_some_and(|extension| extension == "safetensors");
        let to = if is_shard && moved == 0 {
            other.path()
        } else {
            home.path()
        };
        moved += usize::from(is_shard);
        std::fs::copy(&path, to.join(name)).unwrap();
    }
    assert!(moved > 1, "the fixture has several shards");
    let split = Case {
        model: home.path().to_owned(),
        ..case
    };
    let root = other.path().display().to_string();
    split.check(&["--root", &root]);
    let lost = run(&split.args());
    assert_eq!(lost.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&lost.stderr).contains(".safetensors"));
}

#[test]
fn the_report_tells_what_ran() {
    let case = case("tiny", "p12", "expanded");
    let mut args = case.args();
    args.extend(["--json", "--gen", "3", "--threads", "1", "--isa", "scalar"].map(str::to_owned));
    args.extend(["--chunk", "5"].map(str::to_owned));
    let report = json(&stdout_of(&args));
    assert_eq!(report["report_version"], 2);
    assert_eq!(report["numerics"]["version"], 1);
    assert_eq!(report["numerics"]["attention"], "expanded");
    assert_eq!(report["execution"]["isa"], "scalar");
    assert_eq!(report["execution"]["threads"], 1);
    assert_eq!(report["execution"]["context_positions"], 15);
    assert_eq!(report["sampling"]["temperature"], 0.0);
    assert_eq!(ids_of(&report["prompt_ids"]), case.ids);
    assert_eq!(ids_of(&report["generated_ids"]), case.generated_ids[..3]);
    // Three chunks of the prompt, two steps after the first token.
    assert_eq!(report["counts"]["sweeps"], 5);
    assert_eq!(report["counts"]["positions"], 14);
    assert!(report["counts"]["trunk_bytes"].as_u64().unwrap() > 0);
    assert!(report["counts"]["expert_bytes"].as_u64().unwrap() > 0);
    assert_eq!(
        report["timing"]["token_seconds"].as_array().unwrap().len(),
        3
    );
    assert_eq!(report["model"]["identity"].as_str().unwrap().len(), 64);
}

#[test]
fn the_report_for_a_person_fits_80_columns() {
    let output = run(&["fixtures/tiny", "--ids", "3,4,5", "--gen", "2"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stderr).unwrap();
    for word in [
        "fixtures/tiny",
        "latent attention",
        "3 tokens",
        "2 tokens",
        "experts",
        "tokens/s",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(
        !text.contains('\u{1b}'),
        "no colours and no bar outside a terminal"
    );
}
