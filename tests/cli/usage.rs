//! What is refused, with which exit code, and how it is said.

use crate::common::{case, fixture, k3, names, refusal, run, stdout_of, tiny};

/// Arguments that would run, were it not for what the test adds.
fn with<'a>(model: &'a str, extra: &[&'a str]) -> Vec<&'a str> {
    [&[model, "--ids", "3,4,5", "--gen", "1", "--quiet"], extra].concat()
}

#[test]
fn where_the_built_in_model_will_not_do_both_ways_to_name_one_are_told() {
    for args in [&["verify"][..], &["bench", "disk"]] {
        let said = refusal(2, args);
        for word in ["MODEL", "K3_MODEL"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}

#[test]
fn the_model_comes_from_the_argument_else_the_environment() {
    let args = ["--ids", "3,4,5", "--gen", "2", "--quiet"];
    let expected = stdout_of(&[&[tiny().as_str()], &args[..]].concat());
    let output = k3().args(args).env("K3_MODEL", tiny()).output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout),
        (Some(0), expected.clone())
    );

    let argument = k3()
        .arg(tiny())
        .args(args)
        .env("K3_MODEL", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(
        (argument.status.code(), argument.stdout),
        (Some(0), expected)
    );

    // An empty one is none: the built-in model runs, and the report says so.
    let args = [&args[..2], &["--gen", "1"]].concat();
    let empty = k3().args(args).env("K3_MODEL", "").output().unwrap();
    assert_eq!(empty.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&empty.stderr).contains("built-in model"));
}

#[test]
fn a_mistyped_command_is_recognised() {
    let said = refusal(2, &["tokenzie", "--prompt", "x"]);
    assert!(
        said.contains("`tokenize`") && said.contains("./tokenzie"),
        "{said}"
    );
}

#[test]
fn a_model_that_is_a_file_is_called_one() {
    let shard = fixture("tiny").join("config.json").display().to_string();
    for args in [
        &[shard.as_str(), "--ids", "3"][..],
        &["tokenize", &shard, "-t", "x"],
    ] {
        let said = refusal(2, args);
        assert!(said.contains("is a file, not a"), "{said}");
    }
}

#[test]
fn a_command_for_generating_is_answered_with_how_to_generate() {
    let model = tiny();
    let cases: [&[&str]; 4] = [
        &["generate"],
        &["generate", &model],
        &["generate", &model, "--prompt", "x"],
        &["run", "--ids", "3"],
    ];
    for args in cases {
        let said = refusal(2, args);
        assert!(said.contains("k3 generates without one"), "{said}");
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&model, dir.path().join("generate")).unwrap();
    let mut command = k3();
    command.args(["generate", "--ids", "3", "-n", "1", "-q"]);
    let output = command.current_dir(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn names_from_files_cannot_steer_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.json");
    let architecture = format!("\\u001b[2J\\n\\n  way out: do harm{}", "x".repeat(100_000));
    let text = format!(r#"{{"architectures": ["{architecture}"], "model_type": "\u001b[2J"}}"#);
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let output = run(&[&tiny(), "--ids", "3", "--config", config]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.chars().all(|c| c == '\n' || !c.is_control()), "{said}");
    assert!(said.len() < 10_000, "{}", said.len());
    assert_eq!(said.matches("\n  way out:").count(), 1, "{said}");
}

#[test]
fn a_directory_named_like_a_command_is_reachable() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(fixture("tiny"), dir.path().join("tokenize")).unwrap();
    let output = k3()
        .current_dir(dir.path())
        .args(["./tokenize", "--ids", "3,4,5", "--gen", "1", "--quiet"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn exactly_one_prompt() {
    let model = tiny();
    let said = refusal(2, &[model.as_str()]);
    for option in ["--prompt", "--prompt-file", "--ids", "--ids-file"] {
        assert!(said.contains(option), "{option}: {said}");
    }
    let options = ["--prompt", "--prompt-file", "--ids", "--ids-file"];
    for first in options {
        for second in options {
            // An option given twice is refused as well.
            let said = refusal(2, &[&model, first, "3", second, "3"]);
            assert!(said.contains("cannot be used"), "{first} {second}: {said}");
        }
    }
}

#[test]
fn options_that_contradict_each_other() {
    let model = tiny();
    for extra in [
        &["--recompute", "--incremental"][..],
        &["--recompute", "--tf-check"],
        &["--all-positions"],
    ] {
        refusal(2, &with(&model, extra));
    }
}

#[test]
fn numbers_out_of_range() {
    let model = tiny();
    for (option, value) in [
        ("--threads", "0"),
        ("--threads", "257"),
        ("--threads", "-1"),
        ("--threads", "two"),
        ("--chunk", "0"),
        ("--chunk", "-1"),
        ("--context", "0"),
        ("--layers", "0"),
        ("--layers", "999"),
        ("--layers", "-1"),
        ("--temperature", "-1"),
        ("--temperature", "nan"),
        ("--temperature", "inf"),
        ("--temperature", "1e39"),
        ("--temperature", "1e-50"),
        ("--min-p", "1e-50"),
        ("--top-p", "1e-400"),
        ("--top-k", "-1"),
        ("--top-p", "0"),
        ("--top-p", "1.5"),
        ("--top-p", "nan"),
        ("--min-p", "-0.1"),
        ("--min-p", "1.1"),
        ("--seed", "-1"),
        ("--seed", "18446744073709551616"),
        ("--isa", "sse2"),
        ("--attention", "sparse"),
    ] {
        let said = refusal(2, &with(&model, &[option, value]));
        assert!(
            said.contains(option) && said.to_lowercase().contains(value),
            "{option} {value}: {said}"
        );
    }
    for value in ["-1", "x", "99999999999999999999"] {
        let said = refusal(2, &[&model, "--ids", "3", "--gen", value]);
        assert!(
            said.contains("--gen") && said.contains(value),
            "{value}: {said}"
        );
    }
}

#[test]
fn an_instruction_set_that_is_not_here_is_answered_with_those_that_are() {
    let said = refusal(2, &with(&tiny(), &["--isa", "neon"]));
    for isa in crate::common::isas() {
        assert!(said.contains(isa), "{isa}: {said}");
    }
}

#[test]
fn ids_outside_the_vocabulary_are_refused_before_anything_runs() {
    let model = tiny();
    let vocab: u64 = {
        let config = std::fs::read(fixture("tiny").join("config.json")).unwrap();
        let config = crate::common::json(&config);
        let nested = config.pointer("/text_config/vocab_size");
        nested
            .or(config.get("vocab_size"))
            .unwrap()
            .as_u64()
            .unwrap()
    };
    let beyond = vocab.to_string();
    for id in [
        "-1",
        &beyond,
        "163840",
        "2147483648",
        "4294967299",
        "18446744073709551619",
    ] {
        let ids = format!("3,{id}");
        let said = refusal(2, &[&model, "--ids", &ids]);
        assert!(
            said.contains(id) && said.contains("entry 2"),
            "{id}: {said}"
        );
    }
    for ids in ["3,,4", " , ", "3,4,"] {
        let said = refusal(2, &[&model, "--ids", ids]);
        assert!(said.contains("is empty"), "{said}");
    }
    for ids in ["3,x", "3;4", "0x10", "3.5", "[3,", "[3.0]", "[\"3\"]"] {
        refusal(2, &[&model, "--ids", ids]);
    }
}

#[test]
fn an_empty_prompt_is_refused() {
    let model = tiny();
    for input in [["--ids", ""], ["--ids", "[]"], ["--prompt", ""]] {
        let said = refusal(2, &[&[model.as_str()], &input[..]].concat());
        assert!(said.contains("prompt is empty"), "{said}");
    }
    let empty = tempfile::NamedTempFile::new().unwrap();
    let path = empty.path().to_str().unwrap();
    for option in ["--prompt-file", "--ids-file"] {
        refusal(2, &[&model, option, path]);
    }
}

#[test]
fn prompt_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let model = tiny();
    let direct = stdout_of(&with(&model, &[]));
    for content in ["3\n4\n5\n", "[3, 4, 5]\n", "3, 4, 5", "3,4,5\r\n"] {
        let path = write("ids", content.as_bytes());
        let args = [model.as_str(), "--ids-file", &path, "--gen", "1", "--quiet"];
        assert_eq!(stdout_of(&args), direct, "{content:?}");
    }
    let piped = k3()
        .args([model.as_str(), "--ids-file", "-", "--gen", "1", "--quiet"])
        .write_stdin("3 4 5\n")
        .output()
        .unwrap();
    assert_eq!((piped.status.code(), piped.stdout), (Some(0), direct));

    let broken = write("latin1", b"hello \xe9");
    let said = refusal(2, &[&model, "--prompt-file", &broken]);
    assert!(said.contains("UTF-8 at byte 6"), "{said}");
    let said = refusal(2, &[&model, "--prompt-file", "/no/such/file"]);
    assert!(
        said.contains("/no/such/file") && said.contains("No such file"),
        "{said}"
    );
}

#[test]
fn context_is_a_limit_and_says_what_is_needed() {
    let model = tiny();
    let run_with = |context: &str, gen_count: &str| {
        run(&[
            &model,
            "--ids",
            "3,4,5",
            "--gen",
            gen_count,
            "--context",
            context,
            "--quiet",
        ])
    };
    assert_eq!(run_with("7", "4").status.code(), Some(0));
    assert_eq!(run_with("3", "0").status.code(), Some(0));
    let over = run_with("6", "4");
    assert_eq!(over.status.code(), Some(2));
    let said = String::from_utf8(over.stderr).unwrap();
    assert!(said.contains("--context to 7"), "{said}");
    // The default is 4096.
    let said = refusal(2, &[&model, "--ids", "3", "--gen", "4096"]);
    assert!(said.contains("4097") && said.contains("4096"), "{said}");
}

#[test]
fn a_text_prompt_needs_a_vocabulary_and_says_where_it_comes_from() {
    let model = fixture("odd").display().to_string();
    let said = refusal(2, &[&model, "--prompt", "hello"]);
    for word in ["tiktoken.model", "--tokenizer", "--ids", "Kimi-K3"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let said = refusal(2, &[&tiny(), "--prompt", "hello", "--tokenizer", &model]);
    assert!(said.contains("tiktoken.model"), "{said}");
    refusal(
        2,
        &[&tiny(), "--prompt", "hello", "--tokenizer", "/no/such/dir"],
    );
}

#[test]
fn a_damaged_or_foreign_checkpoint_is_told_by_name() {
    let empty = tempfile::tempdir().unwrap();
    let said = refusal(2, &[empty.path().to_str().unwrap(), "--ids", "3"]);
    assert!(
        said.contains("safetensors") || said.contains("config.json"),
        "{said}"
    );

    let said = refusal(2, &["/no/such/model", "--ids", "3"]);
    assert!(said.contains("/no/such/model"), "{said}");

    let said = refusal(2, &with(&tiny(), &["--config", "/no/such/config"]));
    assert!(said.contains("/no/such/config"), "{said}");

    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), r#"{"model_type": "llama"}"#).unwrap();
    let config = config.path().to_str().unwrap();
    let output = run(&with(&tiny(), &["--config", config]));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    // All that is missing, at once.
    for word in [config, "hidden_size", "attn_res_block_size", "way out"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn a_shard_that_is_cut_short_fails_and_names_it() {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture("tiny")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    let model = dir.path().display().to_string();
    let name = names(dir.path())
        .into_iter()
        .find(|name| name.ends_with("safetensors"))
        .unwrap();
    let shard = std::fs::File::options()
        .write(true)
        .open(dir.path().join(&name))
        .unwrap();
    shard.set_len(shard.metadata().unwrap().len() - 1).unwrap();
    let said = refusal(1, &with(&model, &[]));
    assert!(said.contains(&name), "{said}");
    std::fs::remove_file(dir.path().join(&name)).unwrap();
    let said = refusal(2, &with(&model, &[]));
    assert!(said.contains(&name), "{said}");
}

#[test]
fn aliases_of_another_engine() {
    let case = case("tiny", "p5", "latent");
    let model = tiny();
    let plain = stdout_of(&case.args());
    let mut args = case.args();
    args.extend(["--tok".to_owned(), model, "--incremental".to_owned()]);
    args.retain(|arg| arg != "--quiet");
    let output = run(&args);
    assert_eq!((output.status.code(), output.stdout), (Some(0), plain));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--incremental is the default"), "{said}");
}

#[test]
fn settings_without_effect_are_noted() {
    let output = run(&[
        &tiny(),
        "--ids",
        "3",
        "--gen",
        "1",
        "--top-k",
        "5",
        "--seed",
        "1",
    ]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("--top-k, --seed: no effect at temperature 0"),
        "{said}"
    );
}

/// JSON is Unicode and paths need not be: a report must not be lost for one.
#[test]
fn paths_that_are_not_unicode_end_up_in_json() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    let dir = tempfile::tempdir().unwrap();
    let odd = |name: &[u8]| dir.path().join(OsString::from_vec(name.to_vec()));
    let (model, config) = (odd(b"m\xff"), odd(b"c\xff.json"));
    let (settings, large) = (odd(b"s\xff.toml"), odd(b"w\xff.bin"));
    std::os::unix::fs::symlink(fixture("tiny"), &model).unwrap();
    std::fs::copy(fixture("tiny").join("config.json"), &config).unwrap();
    std::fs::write(&settings, "memory = \"2G\"\n").unwrap();
    std::fs::write(&large, b"some bytes".repeat(2 << 20)).unwrap();
    let path = |path: &std::path::Path| path.as_os_str().to_owned();
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let measure = [
        "bench",
        "disk",
        "--rounds",
        "1",
        "--pairs",
        "1",
        "--seconds",
        "0.01",
    ];
    let cases = [
        [
            words(&["--ids", "3,4", "--json", "--quiet"]),
            vec![path(&model)],
        ],
        [words(&["plan", "--json"]), vec![path(&model)]],
        [words(&["plan", "--json", "--config"]), vec![path(&config)]],
        [
            words(&["plan", &tiny(), "--json", "--settings"]),
            vec![path(&settings)],
        ],
        [words(&["inspect", "--json"]), vec![path(&model)]],
        [words(&["doctor", "--json"]), vec![path(&model)]],
        [
            words(&[&measure[..], &["--json"]].concat()),
            vec![path(&large)],
        ],
        [words(&measure), vec![path(&large)]],
    ];
    for args in cases {
        let output = k3().args(args.concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(
            shown.contains('\u{fffd}') || args[0] == words(&measure),
            "{shown}"
        );
    }
    // A file that names itself in the report of a run.
    let out = dir.path().join("run.json");
    let output = k3()
        .args(["--ids", "3,4", "--gen", "3", "--quiet", "--out"])
        .args([&out, std::path::Path::new(&tiny())])
        .arg("--settings")
        .arg(&settings)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out.exists());
}

#[test]
fn inputs_without_an_end_are_refused_with_the_most_that_is_read() {
    let model = tiny();
    let cases: [(&[&str], &str); 5] = [
        (&["replay", "/dev/zero"], "256.00 MiB"),
        (&[&model, "--ids-file", "/dev/zero"], "256.00 MiB"),
        (&[&model, "--prompt-file", "/dev/zero"], "256.00 MiB"),
        (
            &[&model, "--ids", "3", "--settings", "/dev/zero"],
            "1.00 MiB",
        ),
        (&["plan", &model, "--settings", "/dev/zero"], "1.00 MiB"),
    ];
    for (args, most) in cases {
        let said = refusal(2, args);
        assert!(
            said.contains("/dev/zero: more than") && said.contains(most),
            "{said}"
        );
    }
    // Of a regular file the length is known: nothing of it is read.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let path = path.display().to_string();
    for args in [&["replay", &path][..], &[&model, "--ids-file", &path]] {
        let started = std::time::Instant::now();
        let said = refusal(2, args);
        assert!(said.contains("more than"), "{said}");
        assert!(started.elapsed().as_secs() < 10);
    }
}
