//! Layers of settings, and every mistake in them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use k3_config::{
    Bytes, CachePolicy, EngineChoice, Gigabytes, HostMemory, MemoryRequest, Origin, PathList, Pins,
    PositiveCount, Preset, SETTING_KEYS, SettingSources, SettingValues, Settings, SettingsErrors,
    SettingsFile,
};

const FILE: &str = "/etc/k3/settings.toml";

fn environment(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn resolve(
    text: &str,
    variables: &[(&str, &str)],
    flags: SettingValues,
) -> Result<Settings, SettingsErrors> {
    Settings::resolve(SettingSources {
        file: Some(SettingsFile {
            path: Path::new(FILE),
            text,
        }),
        environment: environment(variables),
        flags,
    })
}

fn line(line: usize) -> Origin {
    Origin::File {
        path: FILE.into(),
        line,
    }
}

fn variable(name: &str) -> Origin {
    Origin::Environment {
        variable: name.to_owned(),
    }
}

fn flag(name: &str) -> Origin {
    Origin::Flag {
        name: name.to_owned(),
    }
}

fn count(value: u32) -> PositiveCount {
    PositiveCount::new(value).unwrap()
}

#[test]
fn nothing_given_is_auto() {
    let settings = Settings::resolve(SettingSources::default()).unwrap();
    assert_eq!(settings.memory.value, MemoryRequest::Preset(Preset::Auto));
    assert_eq!(settings.memory.origin, Origin::Default);
    assert_eq!(
        (settings.context.value.get(), settings.pins.value),
        (4096, Pins::Spread)
    );
    assert_eq!(settings.policy.value, CachePolicy::DeepLayers);
    assert_eq!((settings.threads, settings.slots), (None, None));
    assert_eq!(settings.block_bytes.value, Bytes(4 << 20));
}

#[test]
fn later_layers_override_value_by_value() {
    let text = "memory = \"8G\"\ncontext = 1000\nthreads = 2\nengine = \"pread\"\n";
    let flags = SettingValues {
        threads: Some(count(8)),
        ..SettingValues::default()
    };
    let settings = resolve(text, &[("K3_CONTEXT", "2000"), ("K3_THREADS", "4")], flags).unwrap();
    assert_eq!(
        settings.memory.value,
        MemoryRequest::Size(Bytes(8_000_000_000))
    );
    assert_eq!(settings.memory.origin, line(1));
    assert_eq!(settings.context.value.get(), 2000);
    assert_eq!(settings.context.origin, variable("K3_CONTEXT"));
    let threads = settings.threads.unwrap();
    assert_eq!(
        (threads.value.get(), threads.origin),
        (8, flag("--threads"))
    );
    assert_eq!(settings.engine.value, EngineChoice::Pread);
    assert_eq!(settings.engine.origin, line(4));
}

/// A preset acts from the layer that names it.
#[test]
fn presets_and_sizes_override_each_other_by_layer() {
    let laptop = MemoryRequest::Preset(Preset::Laptop);
    let size = MemoryRequest::Size(Bytes(32_000_000_000));
    let with_preset = || SettingValues {
        preset: Some(Preset::Laptop),
        ..SettingValues::default()
    };
    let none = SettingValues::default;
    let check = |text: &str, variables: &[(&str, &str)], flags, want, origin| {
        let memory = resolve(text, variables, flags).unwrap().memory;
        assert_eq!(
            (memory.value, memory.origin),
            (want, origin),
            "{text} {variables:?}"
        );
    };
    check("preset = \"laptop\"", &[], none(), laptop, line(1));
    check(
        "preset = \"laptop\"\nmemory = \"32G\"",
        &[],
        none(),
        size,
        line(2),
    );
    check(
        "preset = \"laptop\"",
        &[("K3_MEMORY", "32G")],
        none(),
        size,
        variable("K3_MEMORY"),
    );
    check(
        "memory = \"32G\"",
        &[],
        with_preset(),
        laptop,
        flag("--preset"),
    );
    check(
        "",
        &[("K3_MEMORY", "32G")],
        with_preset(),
        laptop,
        flag("--preset"),
    );
    let both = SettingValues {
        memory: Some(size),
        ..with_preset()
    };
    check("memory = \"1G\"", &[], both, size, flag("--memory"));
    check(
        "",
        &[("K3_MEMORY", "laptop")],
        none(),
        laptop,
        variable("K3_MEMORY"),
    );
}

#[test]
fn an_empty_variable_is_unset() {
    let variables = [("K3_CONTEXT", ""), ("K3_PINS", ""), ("K3_ROOT", "")];
    let settings = resolve("context = 7", &variables, SettingValues::default()).unwrap();
    assert_eq!(
        (settings.context.value.get(), settings.context.origin),
        (7, line(1))
    );
    assert_eq!(
        (settings.pins.origin, settings.root),
        (Origin::Default, None)
    );
}

#[test]
fn values_may_be_numbers_texts_and_lists() {
    let text = "memory = 8_000_000_000
trunk_gb = 2.5
cache_gb = \"512MiB\"
block_bytes = 0x100000
slots = \"64\"
root = [\"/data/a\", \"b\"]
tokenizer = \"words/tiktoken.model\"
metrics_listen = \"127.0.0.1:9300\"
";
    let settings = resolve(text, &[], SettingValues::default()).unwrap();
    assert_eq!(
        settings.memory.value,
        MemoryRequest::Size(Bytes(8_000_000_000))
    );
    assert_eq!(
        settings.trunk_gb.unwrap().value,
        Gigabytes(Bytes(2_500_000_000))
    );
    assert_eq!(
        settings.cache_gb.unwrap().value,
        Gigabytes(Bytes(512 << 20))
    );
    assert_eq!(settings.block_bytes.value, Bytes(1 << 20));
    assert_eq!(settings.slots.unwrap().value.get(), 64);
    // Relative paths start from the folder of the file that states them.
    let roots = vec![PathBuf::from("/data/a"), PathBuf::from("/etc/k3/b")];
    assert_eq!(settings.root.unwrap().value, PathList(roots));
    let tokenizer = settings.tokenizer.unwrap().value;
    assert_eq!(tokenizer, Path::new("/etc/k3/words/tiktoken.model"));
    assert_eq!(settings.metrics_listen.unwrap().value.port(), 9300);
    let settings = resolve("", &[("K3_ROOT", "/x:y")], SettingValues::default()).unwrap();
    let roots = vec![PathBuf::from("/x"), PathBuf::from("y")];
    assert_eq!(settings.root.unwrap().value, PathList(roots));
}

#[test]
fn all_mistakes_are_listed_at_once() {
    let text = "memroy = \"8G\"
context = 0
pins = \"spred\"
threads = [1, 2]
chunk = true
# a comment
temperature = 0.7
block_bytes = 0
[server]
port = 80
";
    let variables = [("K3_CHUNK", "-3"), ("K3_METRICS_LISTEN", "localhost")];
    let errors = resolve(text, &variables, SettingValues::default()).unwrap_err();
    let lines: Vec<String> = errors.problems.iter().map(ToString::to_string).collect();
    let want = [
        "/etc/k3/settings.toml:1: `memroy` is not a setting; did you mean `memory`?",
        "/etc/k3/settings.toml:2: context: `0` is not a whole number from 1 to 16777216",
        "/etc/k3/settings.toml:3: pins: `spred` is not a known pin placement: did you mean `spread`? write one of spread, prefix",
        "/etc/k3/settings.toml:4: threads: one value is expected, not a list of 2",
        "/etc/k3/settings.toml:5: chunk: a text or a number is expected, not a boolean",
        "/etc/k3/settings.toml:7: `temperature` is not a setting; the settings are memory, preset,",
        "/etc/k3/settings.toml:8: block_bytes: `0` is no size: it has to be at least 1",
        "/etc/k3/settings.toml:9: `server` is not a setting; the settings are memory, preset,",
        "K3_CHUNK: `-3` is not a whole number from 1 to 16777216",
        "K3_METRICS_LISTEN: `localhost` is not an address with a port, such as 127.0.0.1:9300 or [::1]:9300",
    ];
    assert_eq!(lines.len(), want.len(), "{lines:#?}");
    for (line, want) in lines.iter().zip(want) {
        assert!(line.starts_with(want), "{line}\n{want}");
    }
    let text = errors.to_string();
    assert!(
        text.starts_with("10 settings cannot be used:\n  /etc/k3"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 11);
}

#[test]
fn a_single_mistake_is_a_single_line() {
    let errors = resolve("", &[("K3_PRESET", "labtop")], SettingValues::default()).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "K3_PRESET: `labtop` is not a known preset: did you mean `laptop`? write one of floor, laptop, \
         desktop, workstation, server, max, auto"
    );
    let errors = resolve("trunk-gb = 3", &[], SettingValues::default()).unwrap_err();
    assert!(
        errors.to_string().ends_with("did you mean `trunk_gb`?"),
        "{errors}"
    );
}

#[test]
fn what_is_not_toml_names_its_line() {
    let errors = resolve(
        "context = 5\npins = spread\n",
        &[],
        SettingValues::default(),
    )
    .unwrap_err();
    let text = errors.to_string();
    assert!(
        text.starts_with("/etc/k3/settings.toml:2: this is not TOML"),
        "{text}"
    );
    let errors = resolve("context = 5\ncontext = 6\n", &[], SettingValues::default()).unwrap_err();
    assert!(
        errors.to_string().starts_with("/etc/k3/settings.toml:2: "),
        "{errors}"
    );
}

#[test]
fn variables_that_look_mistyped_are_mentioned() {
    let variables = [
        ("K3_MEMROY", "8G"),
        ("K3_MODEL", "x"),
        ("K3_UNRELATED_THING", "y"),
        ("MEMORY", "z"),
    ];
    let settings = resolve("", &variables, SettingValues::default()).unwrap();
    assert_eq!(
        settings.warnings,
        ["K3_MEMROY is not a setting; did you mean K3_MEMORY?"]
    );
    assert_eq!(settings.memory.origin, Origin::Default);
}

#[test]
fn the_budget_and_the_chunk_follow() {
    let text = "memory = \"floor\"\ntrunk_gb = 0.25\n";
    let settings = resolve(text, &[], SettingValues::default()).unwrap();
    let budget = settings.budget(|| unreachable!("a fixed budget")).unwrap();
    assert_eq!(
        (budget.total, budget.trunk),
        (Bytes(1_610_612_736), Some(Bytes(250_000_000)))
    );
    let chunk = settings.chunk_for(budget.total);
    assert_eq!(
        (chunk.value, chunk.origin),
        (16, Origin::Preset(Preset::Floor))
    );
    let settings = resolve("memory = \"8G\"", &[], SettingValues::default()).unwrap();
    let chunk = settings.chunk_for(Bytes(8_000_000_000));
    assert_eq!((chunk.value, chunk.origin), (64, Origin::Default));
    let settings = resolve("chunk = 5", &[], SettingValues::default()).unwrap();
    assert_eq!(settings.chunk_for(Bytes(1)).origin, line(1));
    let nothing = tempfile::tempdir().unwrap();
    assert!(
        settings
            .budget(|| HostMemory::read(nothing.path()))
            .is_err()
    );
}

#[test]
fn the_effective_settings_name_their_origins() {
    let settings = resolve(
        "pins = \"prefix\"",
        &[("K3_SLOTS", "40")],
        SettingValues::default(),
    )
    .unwrap();
    let table = settings.table();
    for want in [
        "memory           auto                     default",
        "pins             prefix                   /etc/k3/settings.toml:1",
        "slots            40                       K3_SLOTS",
        "threads          -                        default",
    ] {
        assert!(table.lines().any(|line| line == want), "{want}\n{table}");
    }
    // Every key but `preset`, which shows as the memory it stands for.
    let keys: Vec<&str> = settings.rows().iter().map(|row| row.key).collect();
    let known: Vec<&str> = SETTING_KEYS
        .iter()
        .map(|key| key.name())
        .filter(|name| *name != "preset")
        .collect();
    assert_eq!(keys, known);
}

#[test]
fn keys_are_spelled_alike_everywhere() {
    for key in SETTING_KEYS {
        assert_eq!(
            key.flag().trim_start_matches('-').replace('-', "_"),
            key.name()
        );
        assert_eq!(key.variable().to_lowercase(), format!("k3_{}", key.name()));
    }
}

#[test]
fn counts_have_one_range_in_every_layer() {
    let text = "context = 4294967295\nchunk = 16777217\n";
    let variables = [("K3_THREADS", "257")];
    let errors = resolve(text, &variables, SettingValues::default()).unwrap_err();
    let lines: Vec<String> = errors.problems.iter().map(ToString::to_string).collect();
    let want = [
        "/etc/k3/settings.toml:1: context: `4294967295` is not a whole number from 1 to 16777216",
        "/etc/k3/settings.toml:2: chunk: `16777217` is not a whole number from 1 to 16777216",
        "K3_THREADS: `257` is not a whole number from 1 to 256",
    ];
    assert_eq!(lines, want);
    let most = "context = 16777216\nchunk = 16777216\nthreads = 256\n";
    resolve(most, &[], SettingValues::default()).unwrap();
}
