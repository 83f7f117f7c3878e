//! Plans, presets and refusals.

use insta::{assert_snapshot, with_settings};
use k3_config::Bytes;

use crate::common::{fixture, json, program, refusal, run, stdout_of, tiny};

/// Sizes change with every buffer; what the lines are does not.
const SIZES: [(&str, &str); 2] = [
    (r"\d+(\.\d+)? [kMG]?B( \(\d+\.\d+ [KMG]iB\))? *", "SIZE "),
    (r"\d{5,}", "BYTES"),
];

fn text(args: &[&str]) -> String {
    String::from_utf8(stdout_of(args)).unwrap()
}

fn fixed<'a>(extra: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["plan", "fixtures/tiny", "--threads", "1"];
    [&fixed[..], extra].concat()
}

#[test]
fn every_line_of_a_plan_that_holds_the_whole_model() {
    with_settings!({filters => SIZES.to_vec()}, {
        assert_snapshot!(text(&fixed(&["--memory", "64M"])));
    });
}

#[test]
fn a_refusal_shows_the_least_plan_and_the_ways_out() {
    let said = refusal(2, &fixed(&["--memory", "10M"]));
    with_settings!({filters => SIZES.to_vec()}, {
        assert_snapshot!(said);
    });
}

#[test]
fn the_figure_a_refusal_names_is_accepted_and_one_byte_less_is_not() {
    let said = refusal(2, &fixed(&["--memory", "1"]));
    let line = said.lines().find(|line| line.contains("raise --memory"));
    let words = line.unwrap().split_whitespace();
    let bytes: u64 = words.filter_map(|word| word.parse().ok()).next().unwrap();
    stdout_of(&fixed(&["--memory", &bytes.to_string()]));
    refusal(2, &fixed(&["--memory", &(bytes - 1).to_string()]));
}

#[test]
fn plans_fit_80_columns() {
    for args in [
        fixed(&["--memory", "64M"]),
        fixed(&["--memory", "52.5M", "--disk-gbps", "3"]),
        fixed(&["--memory", "64M", "--preset", "floor", "--cache-gb", "7"]),
        vec!["inspect", "fixtures/tiny"],
        vec!["presets"],
    ] {
        for line in text(&args).lines() {
            assert!(line.chars().count() <= 80, "{args:?}: {line}");
        }
    }
}

#[test]
fn the_lines_add_up_to_the_plan() {
    let report = json(&stdout_of(&fixed(&["--memory", "53M", "--json"])));
    let plan = &report["plan"];
    let lines = plan["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 14);
    let sum: u64 = lines
        .iter()
        .map(|line| line["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(plan["planned"], sum);
    let left = plan["left_over"].as_u64().unwrap();
    assert_eq!(sum + left, 53_000_000);
    assert_eq!(report["model"]["weights_present"], true);
    assert_eq!(report["disk_rate_given"], false);
    assert_eq!(report["forecasts"].as_array().unwrap().len(), 2);
}

#[test]
fn a_disk_rate_gives_the_floor() {
    let at = |rate: &str| {
        let args = fixed(&["--memory", "52.5M", "--disk-gbps", rate, "--json"]);
        let report = json(&stdout_of(&args));
        let forecast = &report["forecasts"][0];
        let bytes = forecast["bytes_per_token"].as_f64().unwrap();
        let seconds = forecast["floor_seconds_per_token"].as_f64().unwrap();
        assert!(bytes > 0.0);
        (bytes, seconds)
    };
    let (bytes, seconds) = at("0.001");
    assert!((seconds - bytes / 1e6).abs() < 1e-9, "{seconds}");
    for wrong in ["0", "-1", "fast", "nan"] {
        refusal(2, &fixed(&["--disk-gbps", wrong]));
    }
}

#[test]
fn what_a_cache_can_hold_is_told_apart_from_what_will_be_found() {
    let with = |extra: &[&str]| {
        let args = fixed(&[&["--memory", "64M", "--disk-gbps", "3"], extra].concat());
        let report = json(&stdout_of(&[&args[..], &["--json"]].concat()));
        (text(&args), report)
    };
    let check = |said: &str, name: &str, why: &str| {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with(why), "{line}");
    };
    // 3 of 10 slots pass experts through.
    let (said, report) = with(&["--slots", "10"]);
    let (slots, forecast) = (&report["plan"]["slots"], &report["forecasts"][0]);
    let [cached, all] = ["cache_count", "expert_count"].map(|key| slots[key].as_f64().unwrap());
    assert!(0.0 < cached && cached < all, "{slots}");
    let share = (1000.0 * cached / all).floor() / 10.0;
    check(
        &said,
        "cached",
        &format!("{share} % of the experts have a slot"),
    );
    check(&said, "bytes per token", "the worst: no expert is found");
    assert_eq!(forecast["hit_share"], 0.0);
    let experts = &report["plan"]["prediction"]["expert_bytes_per_token"];
    assert!(forecast["bytes_per_token"].as_f64().unwrap() > experts.as_f64().unwrap());
    let (said, report) = with(&[]);
    check(&said, "cached", "100.0 % of the experts have a slot");
    check(&said, "bytes per token", "every expert is found in memory");
    assert_eq!(report["forecasts"][0]["hit_share"], 1.0);
    let said = text(&fixed(&["--memory", "64M"]));
    assert!(!said.contains("no expert"), "{said}");
    let said = text(&fixed(&["--memory", "64M", "--slots", "10"]));
    assert_eq!(
        said.matches(" for the disk, no expert found in memory")
            .count(),
        2,
        "{said}"
    );
}

#[test]
fn a_model_that_is_not_here_is_planned_from_its_configuration() {
    let config = fixture("tiny").join("config.json").display().to_string();
    let with = |config: &str| {
        let args = ["plan", "--config", config, "--memory", "64M", "--json"];
        json(&stdout_of(&args))
    };
    let report = with(&config);
    assert_eq!(report["model"]["weights_present"], false);
    assert_eq!(with(&tiny())["plan"], report["plan"], "a directory will do");
    // What depends on types and places alone is the same as with the weights.
    let here = json(&stdout_of(&["plan", &tiny(), "--memory", "64M", "--json"]));
    for part in ["pins", "prediction", "slots"] {
        assert_eq!(here["plan"][part], report["plan"][part], "{part}");
    }
    // So is one of which a part is here.
    let part = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors.index.json"] {
        std::fs::copy(fixture("tiny").join(name), part.path().join(name)).unwrap();
    }
    let part = part.path().display().to_string();
    let partly = json(&stdout_of(&["plan", &part, "--memory", "64M", "--json"]));
    assert_eq!(partly["plan"], report["plan"]);
    assert_eq!(partly["notes"].as_array().unwrap().len(), 1);
    refusal(2, &["plan", "--config", "/no/such/config.json"]);
}

#[test]
fn contradictions_name_both_sides() {
    let said = refusal(2, &fixed(&["--slots", "3"]));
    assert!(said.contains("--slots: 3 slots are too few"), "{said}");
    let said = refusal(2, &fixed(&["--slots", "8", "--cache-gb", "0.001"]));
    assert!(
        said.contains("--slots") && said.contains("--cache-gb"),
        "{said}"
    );
    for (option, value) in [
        ("--memory", "12X"),
        ("--memory", "laptpo"),
        ("--memory", "-1"),
        ("--preset", "tiny"),
        ("--pins", "random"),
        ("--slots", "0"),
        ("--block-bytes", "0"),
        ("--trunk-gb", "-1"),
    ] {
        let said = refusal(2, &fixed(&[option, value]));
        assert!(said.contains(option) && said.contains(value), "{said}");
    }
}

#[test]
fn presets_as_text_and_as_data() {
    let table = text(&["presets"]);
    assert_snapshot!(table);
    assert_eq!(text(&["--list-presets"]), table);
    let rows = json(&stdout_of(&["presets", "--json"]));
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len() + 1, table.lines().count());
    assert_eq!(rows[0]["preset"], "floor");
    assert_eq!(rows[0]["memory_bytes"], 1_610_612_736_u64);
    assert_eq!(rows[0]["chunk_positions"], 16);
}

/// The released configuration, as the published file has it.
fn released_config() -> tempfile::TempDir {
    let config = k3_formats::synth::released_config();
    let text = k3_formats::synth::config_json(&config, k3_formats::synth::Vision::Included);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), text).unwrap();
    dir
}

#[test]
fn the_released_model_fits_from_the_floor_up() {
    let dir = released_config();
    let config = dir.path().display().to_string();
    let plan = |memory: &str| {
        let args = [
            "plan",
            "--config",
            &config,
            "--memory",
            memory,
            "--disk-gbps",
            "2.5",
            "--json",
        ];
        json(&stdout_of(&args))
    };
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let floor = plan("floor");
    assert!(number(&floor["plan"]["planned"]) <= 1_610_612_736);
    assert_eq!(floor["plan"]["context_positions"], 4096);
    assert_eq!(floor["plan"]["lines"].as_array().unwrap().len(), 14);
    let (mut pinned, mut seconds) = (0, f64::INFINITY);
    for memory in ["floor", "8G", "32G", "64G", "128G"] {
        let report = plan(memory);
        let (before, slower) = (pinned, seconds);
        pinned = number(&report["plan"]["pins"]["bytes"]);
        assert!(
            pinned > before,
            "{memory} pins {pinned}, less pins {before}"
        );
        let forecast = &report["forecasts"][0];
        let bytes = forecast["bytes_per_token"].as_f64().unwrap();
        seconds = forecast["floor_seconds_per_token"].as_f64().unwrap();
        assert!((seconds - bytes / 2.5e9).abs() < 1e-6, "{memory}: {bytes}");
        assert!(seconds < slower, "{memory} takes {seconds}, less {slower}");
    }
    let whole = plan("128G");
    assert_eq!(whole["plan"]["prediction"]["trunk_bytes_per_sweep"], 0);
}

#[test]
fn the_published_configuration_is_the_one_planned_from() {
    let Some(data) = k3_testkit::gates::reference_data() else {
        return;
    };
    let dir = released_config();
    let plan = |config: &std::path::Path| {
        let config = config.display().to_string();
        let args = ["plan", "--config", &config, "--memory", "floor", "--json"];
        json(&stdout_of(&args))["plan"].clone()
    };
    assert_eq!(plan(&data.join("k3-config")), plan(dir.path()));
}

#[test]
fn no_output_is_lost_when_the_reader_has_gone() {
    let output = run(&["plan", "fixtures/tiny", "--memory", "1G"]);
    assert_eq!(output.status.code(), Some(0));
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = program().args(["presets"]).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(3));
}

/// The figure that `said` wants --memory raised to, and the one after it.
fn advised(said: &str) -> Vec<u64> {
    let line = said.lines().find(|line| line.contains("raise --memory to"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    let numbers = line.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn the_memory_that_a_refusal_asks_for_is_enough_for_the_chunk_it_brings() {
    let args = |context: u64, memory: u64, extra: &[&str]| {
        let (context, memory) = (context.to_string(), memory.to_string());
        let args = ["--context", &context, "--memory", &memory, "--threads", "2"];
        let model = tiny();
        let all = [&["plan", &model], &args[..], extra].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let smallest = |context, chunk: &str| {
        let extra = ["--json", "--chunk", chunk];
        let report = json(&stdout_of(&args(context, 100_000_000_000, &extra)));
        report["plan"]["smallest_budget"].as_u64().unwrap()
    };
    // The context with which the smaller chunk just stays below 2 GiB.
    let border = 2u64 << 30;
    // Memory for positions comes in pages.
    let (few, many) = (64 * 1600, 64 * 17_600);
    let per_position = (smallest(many, "16") - smallest(few, "16")).div_ceil(many - few);
    let edge = few + (border - smallest(few, "16")) / per_position / 64 * 64;
    assert!(smallest(edge, "16") < border && border < smallest(edge, "64"));
    for context in [4096, edge, edge + 100, 2 * edge] {
        let said = refusal(2, &args(context, 1_000_000, &[]));
        let told = advised(&said);
        let enough = told[0];
        assert!(said.contains(&Bytes(enough).to_string()), "{said}");
        let report = json(&stdout_of(&args(context, enough, &["--json"])));
        assert_eq!(report["plan"]["smallest_budget"], enough);
        refusal(2, &args(context, enough - 1, &[]));
        // What is refused above it is told.
        if context == edge {
            assert_eq!(told[1], border - 1, "{said}");
            assert_eq!(
                advised(&refusal(2, &args(context, border, &[])))[0],
                told[2]
            );
        } else {
            assert_eq!(told.len(), 1, "{said}");
        }
        for above in told {
            stdout_of(&args(context, above, &[]));
        }
    }
}

#[test]
fn a_refusal_quotes_the_chunk_that_was_asked_for() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "chunk = 5000\n").unwrap();
    let path = file.path().display().to_string();
    let said = refusal(2, &fixed(&["--memory", "53M", "--settings", &path]));
    assert!(said.contains(":1 from 5000 to "), "{said}");
    let said = refusal(2, &fixed(&["--memory", "53M", "--chunk", "6000"]));
    assert!(said.contains("lower --chunk from 6000 to "), "{said}");
}

#[test]
fn every_line_of_a_plan_fits_80_columns() {
    let model = tiny();
    let slow = ["plan", &model, "--memory", "64M", "--slots", "10"];
    for args in [
        &slow[..],
        &[&slow[..], &["--disk-gbps", "0.00001"]].concat(),
    ] {
        let said = String::from_utf8(stdout_of(args)).unwrap();
        let lines = said.lines().filter(|line| !line.contains(&model));
        for line in lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(said.contains("no expert"), "{said}");
    }
}

#[test]
fn positions_that_sequences_share_are_planned_in_pages() {
    let args = |extra: &[&'static str]| fixed(&[&["--memory", "64M"], extra].concat());
    let plan = |extra: &[&'static str]| {
        let args = [&args(extra)[..], &["--json"]].concat();
        json(&stdout_of(&args))["plan"].clone()
    };
    let eight = ["--sequences", "8", "--context", "100"];
    for (total, pages) in [
        (&[][..], 16),
        (&["--context-total", "100"], 2),
        (&["--context-total", "129"], 3),
        (&["--context-total", "4000000000"], 16),
    ] {
        let plan = plan(&[&eight, total].concat());
        assert_eq!(plan["pages"]["page_count"], pages, "{total:?}");
        assert_eq!(plan["pages"]["page_positions"], 64);
    }
    let total = [&eight[..], &["--context-total", "129"]].concat();
    let said = text(&args(&total));
    assert!(said.contains("8 sequences share 3 pages of 64"), "{said}");
    // One page less is what a budget that is too small can be met with.
    let short = plan(&total)["smallest_budget"].as_u64().unwrap() - 1;
    let short = short.to_string();
    let with_memory = |total: &str| -> Vec<String> {
        let fixed = ["plan", "fixtures/tiny", "--threads", "1"];
        let asked = ["--memory", &short, "--context-total", total];
        let all = [&fixed[..], &eight, &asked].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    let said = refusal(2, &with_memory("129"));
    assert!(
        said.contains("lower --context-total from 129 to 128"),
        "{said}"
    );
    stdout_of(&with_memory("128"));
    let said = refusal(2, &with_memory("99"));
    assert!(
        said.contains("--context-total 99 is less than the 100"),
        "{said}"
    );
}
