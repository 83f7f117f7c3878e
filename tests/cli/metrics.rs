//! `--metrics-listen`: who watches a run sees what its report will say, and can
//! neither slow it down nor keep it alive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{json, k3, program, refusal, tiny};
use crate::exposition::{Family, Labels, parse};
use crate::trunk::packed_tiny;

type Families = BTreeMap<String, Family>;

/// A run that is being watched.
struct Run {
    child: Child,
    address: SocketAddr,
    stderr: std::thread::JoinHandle<String>,
}

impl Run {
    /// Starts `k3 MODEL` with `args`; metrics on a port the system chooses.
    fn start(args: &[&str]) -> Self {
        Self::command(&[&[tiny().as_str()], args].concat())
    }

    /// Starts `k3` with `args`, likewise.
    fn command(args: &[&str]) -> Self {
        let mut child = program()
            .args(args)
            .args(["--metrics-listen", "127.0.0.1:0", "--quiet"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line
            .strip_prefix("metrics: http://")
            .and_then(|rest| rest.strip_suffix("/metrics\n"))
            .unwrap_or_else(|| panic!("{line}"));
        let rest = move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        };
        Self {
            address: address.parse().unwrap(),
            child,
            stderr: std::thread::spawn(rest),
        }
    }

    /// Asks for the figures.
    #[track_caller]
    fn scrape(&self) -> Families {
        let (head, body) = ask(self.address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
        assert!(head.to_ascii_lowercase().contains(kind), "{head}");
        parse(&body)
    }

    /// Waits until the run has something to keep.
    #[track_caller]
    fn wait_for_token(&self) {
        while value(&self.scrape(), "k3_generated_tokens_total") < 1.0 {}
    }

    /// Interrupts the run: exit code, and the time until the end.
    fn interrupt(mut self) -> (Option<i32>, Duration) {
        let mut stdout = self.child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()).unwrap());
        let pid = self.child.id().to_string();
        let started = Instant::now();
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
        let code = self.child.wait().unwrap().code();
        let elapsed = started.elapsed();
        reader.join().unwrap();
        (code, elapsed)
    }
}

/// Head and body of the answer to `request`.
fn ask(address: SocketAddr, request: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    Ok((head.to_owned(), body.to_owned()))
}

/// A run that goes on until it is interrupted.
const ENDLESS: [&str; 7] = [
    "--ids",
    "3,4,5",
    "--gen",
    "1000000",
    "--context",
    "2000000",
    "--ignore-eos",
];

/// The only sample of a family.
#[track_caller]
fn value(families: &Families, name: &str) -> f64 {
    let family = families.get(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(family.samples.len(), 1, "{name}");
    family.samples[0].1
}

/// Counters of a later answer are at least those of an earlier one.
#[track_caller]
fn check_monotonic(before: &Families, after: &Families) {
    for family in before.values().filter(|family| family.kind == "counter") {
        for (labels, earlier) in &family.samples {
            let samples = &after[&family.name].samples;
            let later = samples.iter().find(|(other, _)| other == labels);
            let later = later.unwrap_or_else(|| panic!("{} is gone", family.name)).1;
            assert!(later >= *earlier, "{}: {earlier}, {later}", family.name);
        }
    }
}

/// A row of `docs/metrics.md`: where the report has a figure, and its metric.
#[derive(Debug)]
struct Documented {
    path: Option<String>,
    metric: String,
    labels: Vec<String>,
}

fn documented() -> Vec<Documented> {
    let text = include_str!("../../docs/metrics.md");
    let mut section = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if line.starts_with("## ") {
            let path = line.split('`').nth(1);
            section = path.map(|path| format!("{path}.")).unwrap_or_default();
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let (Some(field), Some(metric)) = (cells.first(), cells.get(1)) else {
            continue;
        };
        let Some(metric) = metric.trim_matches('`').strip_prefix("k3_") else {
            continue;
        };
        let (name, labels) = metric.split_once('{').unwrap_or((metric, ""));
        let labels = labels.trim_end_matches('}').split(',');
        rows.push(Documented {
            path: field
                .contains('`')
                .then(|| format!("{section}{}", field.trim_matches('`'))),
            metric: format!("k3_{name}"),
            labels: labels
                .filter(|label| !label.is_empty())
                .map(str::to_owned)
                .collect(),
        });
    }
    rows
}

/// A JSON value as a sample has it; a null has none.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Null => None,
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        // A name is a label; the sample is 1.
        Value::String(_) => Some(1.0),
        other => Some(other.as_f64().unwrap_or_else(|| panic!("{other}"))),
    }
}

/// The samples that a report promises for a row.
fn promised(report: &Value, row: &Documented, path: &str) -> Vec<(Labels, f64)> {
    let found = |path: &str| path.split('.').fold(report, |value, key| &value[key]);
    let Some((list, field)) = path.split_once("[]") else {
        let value = found(path);
        let parent = found(path.rsplit_once('.').map_or("", |(parent, _)| parent));
        let number = match value {
            Value::Array(items) if row.metric.ends_with("seconds_total") => {
                Some(items.iter().map(|item| item.as_f64().unwrap()).sum())
            }
            Value::Array(items) => Some(items.len() as f64),
            other => number(other),
        };
        let sample = number.map(|number| (labels_of(parent, &row.labels), number));
        return sample.into_iter().collect();
    };
    let items = found(list).as_array().unwrap_or_else(|| panic!("{path}"));
    let field = field.trim_start_matches('.');
    if field.is_empty() {
        let sentence = |item: &Value| item.as_str().unwrap().to_owned();
        let labels = |item| [(row.labels[0].clone(), sentence(item))].into();
        return items.iter().map(|item| (labels(item), 1.0)).collect();
    }
    // Without a label it is the last row.
    let items = match row.labels.is_empty() {
        true => &items[items.len() - 1..],
        false => items,
    };
    let sample = |item: &Value| Some((labels_of(item, &row.labels), number(&item[field])?));
    items.iter().filter_map(sample).collect()
}

fn labels_of(object: &Value, names: &[String]) -> Labels {
    let value = |name: &String| match &object[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    names
        .iter()
        .map(|name| (name.clone(), value(name)))
        .collect()
}

#[track_caller]
fn check_against_report(families: &Families, report: &Value) {
    for row in documented() {
        let Some(path) = &row.path else {
            continue;
        };
        let mut expected = promised(report, &row, path);
        let mut served = families
            .get(&row.metric)
            .map(|family| family.samples.clone())
            .unwrap_or_default();
        let order = |a: &(Labels, f64), b: &(Labels, f64)| a.0.cmp(&b.0);
        expected.sort_by(order);
        served.sort_by(order);
        assert_eq!(served, expected, "{} and {path}", row.metric);
    }
}

#[test]
fn the_last_figures_are_those_of_the_report() {
    let mut run = Run::start(&[
        "--ids",
        "3,4,5",
        "--gen",
        "500",
        "--ignore-eos",
        "--json",
        "--memory",
        "64M",
        "--trunk-gb",
        "0.0003",
        "--slots",
        "9",
        "--disk-gbps",
        "7.5",
    ]);
    // What is said of a run that has hardly begun is well-formed too.
    let mut before = run.scrape();
    let mut scrapes = 0;
    while value(&before, "k3_generated_tokens_total") < 250.0 {
        let after = run.scrape();
        check_monotonic(&before, &after);
        let steps = value(&after, "k3_sweep_steps");
        assert!(value(&after, "k3_sweep_steps_done") <= steps);
        before = after;
        scrapes += 1;
    }
    assert!(scrapes > 2, "{scrapes}");
    // The report is longer than a pipe: from its first byte on until somebody
    // reads the rest, the run is over and its figures are final.
    let mut stdout = run.child.stdout.take().unwrap();
    let mut text = vec![0; 1];
    stdout.read_exact(&mut text).unwrap();
    let last = run.scrape();
    check_monotonic(&before, &last);
    check_monotonic(&last, &run.scrape());
    stdout.read_to_end(&mut text).unwrap();
    assert_eq!(run.child.wait().unwrap().code(), Some(0));
    assert_eq!(run.stderr.join().unwrap(), "");
    assert!(TcpStream::connect(run.address).is_err(), "still serving");

    let report = json(&text);
    check_against_report(&last, &report);
    let streaming = &report["streaming"];
    assert_eq!(streaming["sweeps"].as_array().unwrap().len(), 500);
    let memory = &streaming["memory"];
    let bytes = |key: &str| memory[key].as_u64().unwrap();
    assert!(bytes("peak_bytes") <= bytes("planned_bytes"));
    assert!(value(&last, "k3_cache_evictions_total") > 0.0);
    assert!(value(&last, "k3_engine_ceiling_share") > 0.0);
    assert_eq!(last["k3_plan_lines_bytes"].samples.len(), 14);
    let info = &last["k3_run_info"].samples[0].0;
    assert_eq!(info["source"], "streaming");
    assert_eq!(info["identity"], report["model"]["identity"]);
}

#[test]
fn every_metric_is_documented_and_every_documented_one_is_served() {
    let (_directory, trunk) = packed_tiny();
    let run = Run::start(&[&ENDLESS[..], &["--trunk", &trunk]].concat());
    run.wait_for_token();
    let served: BTreeSet<String> = run.scrape().into_keys().collect();
    let documented: Vec<String> = documented().into_iter().map(|row| row.metric).collect();
    let unique: BTreeSet<String> = documented.iter().cloned().collect();
    assert_eq!(unique.len(), documented.len(), "documented twice");
    let unknown: Vec<_> = served.difference(&unique).collect();
    assert!(unknown.is_empty(), "not documented: {unknown:?}");
    // Served when there is something to say.
    let absent = [
        "k3_engine_ceiling_bytes_per_second",
        "k3_engine_ceiling_share",
        "k3_engine_devices_ceiling_bytes_per_second",
        "k3_fallbacks_info",
        "k3_trunk_manifest_matrices",
    ];
    let of_other_commands = |name: &&String| {
        let mut prefixes = ["k3_ladder_", "k3_bench_"].iter();
        prefixes.any(|prefix| name.starts_with(prefix))
    };
    for name in unique
        .difference(&served)
        .filter(|name| !of_other_commands(name))
    {
        assert!(absent.contains(&name.as_str()), "{name} is not served");
    }
    run.interrupt();
}

#[test]
fn a_run_with_everything_in_memory_is_watched_too() {
    let (_directory, trunk) = packed_tiny();
    let run = Run::start(&[&ENDLESS[..], &["--resident", "--trunk", &trunk]].concat());
    run.wait_for_token();
    let families = run.scrape();
    assert!(value(&families, "k3_trunk_checked_bytes_total") > 0.0);
    assert_eq!(families["k3_run_info"].samples[0].0["source"], "resident");
    assert!(value(&families, "k3_counts_trunk_bytes_total") > 0.0);
    assert!(!families.contains_key("k3_time_overlap"));
    assert_eq!(run.interrupt().0, Some(5));
}

#[test]
fn a_ladder_tells_how_far_it_is_and_its_runs_keep_off_its_port() {
    let model = tiny();
    let args = [
        "ladder", &model, "--ids", "3,4,5", "--gen", "20", "--rungs", "56M,64M",
    ];
    let run = Run::command(&[&args[..], &["--repeats", "500", "--limits", "none"]].concat());
    let done = |families: &Families, outcome: &str| {
        let samples = &families["k3_ladder_runs_done_total"].samples;
        let of = |(labels, _): &&(Labels, f64)| labels["outcome"] == outcome;
        samples.iter().find(of).unwrap().1
    };
    let first = run.scrape();
    let mut last = first.clone();
    while done(&last, "finished") < 3.0 {
        std::thread::sleep(Duration::from_millis(20));
        let next = run.scrape();
        check_monotonic(&last, &next);
        last = next;
    }
    for outcome in ["refused", "out-of-memory", "failed"] {
        assert_eq!(done(&last, outcome), 0.0, "{outcome}");
    }
    assert_eq!(value(&last, "k3_ladder_runs"), 1000.0);
    assert!(value(&last, "k3_ladder_seconds_total") > 0.0);
    check_documented(&last);
    assert_eq!(run.interrupt().0, Some(5));
}

#[test]
fn a_measurement_tells_how_far_it_is() {
    let model = tiny();
    let args = [
        "bench",
        "overlap",
        &model,
        "--positions",
        "1,64",
        "--rounds",
        "40",
    ];
    let run = Run::command(&[&args[..], &["--buffer", "1M", "--trunk-gb", "0"]].concat());
    let measured = |families: &Families| value(families, "k3_bench_measured");
    let mut last = run.scrape();
    while measured(&last) < 1.0 {
        std::thread::sleep(Duration::from_millis(20));
        last = run.scrape();
    }
    let (labels, ratio) = &last["k3_bench_ratio"].samples[0];
    assert_eq!(labels["measured"], "T = 1");
    assert!(*ratio > 0.0, "{ratio}");
    let (labels, share) = &last["k3_bench_stage_share"].samples[0];
    assert!(labels["stage"].starts_with("T = "), "{labels:?}");
    assert!((0.0..=1.0).contains(share), "{share}");
    check_documented(&last);
    assert_eq!(run.interrupt().0, Some(5));
}

#[test]
fn a_measurement_of_a_disk_is_watched_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7; 24 << 20]).unwrap();
    let path = file.display().to_string();
    // Long enough to be looked at in both of its stages, and interrupted.
    let quick = ["--seconds", "0.001", "--rounds", "1", "--pairs", "999"];
    let run = Run::command(&[&["bench", "disk", &path], &quick[..]].concat());
    let mut stages: BTreeSet<String> = BTreeSet::new();
    let mut seen: Option<(String, f64)> = None;
    while !stages.contains("pairs") {
        let families = run.scrape();
        check_documented(&families);
        assert_eq!(value(&families, "k3_bench_measured"), 0.0);
        let Some(family) = families.get("k3_bench_stage_share") else {
            continue;
        };
        let (labels, share) = &family.samples[0];
        assert!((0.0..=1.0).contains(share), "{share}");
        let stage = labels["stage"].clone();
        // Within a stage it only grows.
        if let Some((before, least)) = &seen {
            assert!(*before != stage || share >= least, "{least} {share}");
        }
        seen = Some((stage.clone(), *share));
        stages.insert(stage);
    }
    assert!(
        stages
            .iter()
            .all(|stage| ["sweep", "pairs"].contains(&&**stage))
    );
    // The only device was not complete: nothing to keep.
    assert_eq!(run.interrupt().0, Some(130));
}

/// Every family has a row in `docs/metrics.md`.
#[track_caller]
fn check_documented(families: &Families) {
    let documented = documented();
    for name in families.keys() {
        let is_known = documented.iter().any(|row| row.metric == *name);
        assert!(is_known, "{name} is not documented");
    }
}

#[test]
fn nothing_else_is_served() {
    let run = Run::start(&ENDLESS);
    let status = |request: &str| {
        let request = format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = ask(run.address, &request).unwrap();
        let code = head.split(' ').nth(1).unwrap().to_owned();
        assert!(
            head.to_ascii_lowercase().contains("connection: close"),
            "{head}"
        );
        (code, body)
    };
    let (code, body) = status("GET /");
    assert!(code == "200" && body.lines().count() == 1 && body.contains("/metrics"));
    let (code, body) = status("HEAD /metrics");
    assert!(code == "200" && body.is_empty(), "{code}: {body}");
    for request in ["GET /metrics/", "GET /%2e%2e/etc/passwd", "POST /nowhere"] {
        assert_eq!(status(request).0, "404", "{request}");
    }
    for request in ["POST /metrics", "DELETE /", "PUT /metrics"] {
        assert_eq!(status(request).0, "405", "{request}");
    }
    assert_eq!(
        ask(run.address, "nonsense\r\n\r\n")
            .unwrap()
            .0
            .split(' ')
            .nth(1),
        Some("400")
    );
    run.interrupt();
}

#[test]
fn clients_that_hang_on_hold_up_neither_the_run_nor_its_end() {
    let run = Run::start(&ENDLESS);
    run.wait_for_token();
    let open = || TcpStream::connect(run.address).unwrap();
    let mut silent = Vec::new();
    for index in 0..24 {
        let mut stream = open();
        let part: &[u8] = match index % 3 {
            0 => b"",
            1 => b"GET /metrics HTTP/1.1\r\nX-Slow: ",
            // A whole question whose answer is never read.
            _ => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        };
        stream.write_all(part).unwrap();
        silent.push(stream);
    }
    let (code, elapsed) = {
        std::thread::sleep(Duration::from_millis(300));
        run.interrupt()
    };
    assert_eq!(code, Some(5));
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    drop(silent);
}

#[test]
fn places_held_by_silent_clients_become_free_again() {
    let run = Run::start(&ENDLESS);
    let silent: Vec<TcpStream> = (0..8)
        .map(|_| TcpStream::connect(run.address).unwrap())
        .collect();
    let started = Instant::now();
    // Waits for one of them to be turned out, after five seconds.
    run.scrape();
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    drop(silent);
    run.interrupt();
}

#[test]
fn an_address_that_cannot_be_had_is_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run.json").display().to_string();
    let model = tiny();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = [
        &model,
        "--ids",
        "3",
        "--out",
        &out,
        "--metrics-listen",
        &address,
    ];
    let said = refusal(2, &args);
    for word in [&address, "--metrics-listen", "port 0"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    for wrong in [
        "nonsense",
        "127.0.0.1",
        "localhost:9464",
        "127.0.0.1:99999",
        "",
    ] {
        let said = refusal(2, &[&model, "--ids", "3", "--metrics-listen", wrong]);
        assert!(said.contains("127.0.0.1:9464"), "{wrong}: {said}");
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[test]
fn the_address_is_a_setting_too() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = k3()
        .args([&tiny(), "--ids", "3"])
        .env("K3_METRICS_LISTEN", &address)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("K3_METRICS_LISTEN"), "{said}");
    let output = k3()
        .args([
            &tiny(),
            "--ids",
            "3",
            "--gen",
            "1",
            "--metrics-listen",
            "off",
        ])
        .env("K3_METRICS_LISTEN", &address)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // The flag comes first; a quiet run with a known port says nothing.
    drop(taken);
    let output = k3()
        .args([&tiny(), "--ids", "3", "--gen", "1", "--quiet"])
        .args(["--metrics-listen", &address])
        .env("K3_METRICS_LISTEN", "127.0.0.1:1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
