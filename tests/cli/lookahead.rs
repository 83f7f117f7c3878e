//! Reading the next layer's experts early: the same bytes, a line of the plan,
//! and what it came to.

use crate::common::{case, cases, json, k3, refusal, run, stdout_of, tiny};
use crate::streaming::{number, report, smallest};

/// Stored size of an expert of the tiny model.
const EXPERT_BYTES: u64 = 3264;

#[test]
fn guesses_change_no_byte() {
    for checkpoint in ["tiny", "odd"] {
        for case in cases(checkpoint)
            .into_iter()
            .filter(|case| case.name == "p12")
        {
            for extra in [
                &["--lookahead", "2"][..],
                &["--lookahead", "1", "--slots", "4", "--engine", "pread"],
                &["--lookahead", "99", "--slots", "9", "--policy", "lru"],
            ] {
                case.check(extra);
            }
        }
    }
    let case = case("tiny", "p12", "latent");
    let least = smallest(&["--lookahead", "2"]).to_string();
    case.check(&["--lookahead", "2", "--memory", &least]);
    case.check(&["--lookahead", "2", "--chunk", "4", "--recompute"]);
}

#[test]
fn the_plan_has_a_line_for_the_routers() {
    let args = ["plan", &tiny(), "--memory", "64M", "--threads", "1"];
    let line = |extra: &[&str]| {
        let text = String::from_utf8(stdout_of(&[&args[..], extra].concat())).unwrap();
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with("lookahead blocks"))
            .unwrap()
            .to_owned()
    };
    assert!(line(&[]).ends_with("no lookahead"));
    // One block each: all but the dense first layer's seven.
    assert!(line(&["--lookahead", "2"]).ends_with("7 router blocks"));
    let plan = |extra: &[&str]| json(&stdout_of(&[&args[..], extra, &["--json"]].concat()));
    let guessing = plan(&["--lookahead", "9", "--slots", "8"]);
    let lookahead = &guessing["plan"]["lookahead"];
    let top_k = 3;
    assert_eq!(lookahead["experts_per_position"], top_k);
    assert_eq!(lookahead["slot_count"], 2, "half of four transit slots");
    let off = plan(&[]);
    assert_eq!(off["plan"]["lookahead"]["slot_count"], 0);
}

#[test]
fn no_room_for_the_routers_is_a_refusal_and_not_a_silent_no() {
    let without = smallest(&[]);
    let with = smallest(&["--lookahead", "2"]);
    assert!(with > without);
    let memory = (with - 1).to_string();
    let case = case("tiny", "p12", "latent");
    case.check(&["--memory", &memory]);
    let mut args = case.args();
    args.extend(["--gen", "24", "--memory", &memory, "--lookahead", "2"].map(str::to_owned));
    let said = refusal(2, &args);
    for part in [
        "router blocks",
        &format!("raise --memory to {with}"),
        "leave out --lookahead",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    args.truncate(args.len() - 4);
    args.extend(["--memory", "1000", "--lookahead", "2"].map(str::to_owned));
    let said = refusal(2, &args);
    let (ways, vain) = said.split_once("not enough alone: ").unwrap();
    assert!(!ways.contains("--lookahead"), "{said}");
    assert!(vain.contains("--lookahead"), "{said}");
    let said = refusal(
        2,
        &[&tiny(), "--ids", "3", "--resident", "--lookahead", "2"],
    );
    assert!(said.contains("--resident"), "{said}");
}

#[test]
fn the_report_tells_what_guesses_came_to() {
    let extra = ["--memory", "64M", "--slots", "8"];
    let off = report(&extra);
    let on = report(&[&extra[..], &["--lookahead", "2"]].concat());
    assert_eq!(off["generated_ids"], on["generated_ids"]);
    let (off, on) = (&off["streaming"], &on["streaming"]);
    for key in ["hits", "misses", "evictions", "bypassed"] {
        assert_eq!(off["cache"][key], on["cache"][key], "{key}");
    }
    assert_eq!(off["cache"]["lookahead_used"], 0);
    assert_eq!(off["cache"]["lookahead_wasted_bytes"], 0);
    let cache = &on["cache"];
    let (used, misses) = (number(&cache["lookahead_used"]), number(&cache["misses"]));
    assert!(0 < used && used < misses, "{used} of {misses}");
    let wasted = number(&cache["lookahead_wasted_bytes"]);
    assert_eq!(wasted % EXPERT_BYTES, 0);
    // What was wanted does not count what was not.
    let read = number(&on["bytes"]["expert_read_bytes"]);
    assert_eq!(read, misses * EXPERT_BYTES);
}

#[test]
fn the_summary_has_a_line_for_it_and_fits_80_columns() {
    let args = [
        "fixtures/tiny",
        "--ids",
        "3,4,5",
        "--gen",
        "4",
        "--slots",
        "8",
    ];
    let summary = |lookahead: &str| {
        let output = run(&[&args[..], &["--lookahead", lookahead]].concat());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = summary("2");
    let line = text.lines().find(|line| line.starts_with("lookahead "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("misses begun early"), "{line}");
    assert!(line.chars().count() <= 80, "{line}");
    assert!(!summary("0").contains("lookahead"));
}

#[test]
fn it_can_be_set_like_everything_else() {
    let mut command = k3();
    command.args(["plan", &tiny(), "--json"]);
    command.env("K3_LOOKAHEAD", "3");
    let report = json(&command.output().unwrap().stdout);
    let rows = report["settings"].as_array().unwrap();
    let row = rows.iter().find(|row| row["key"] == "lookahead").unwrap();
    assert_eq!(
        (&row["value"], &row["origin"]),
        (&"3".into(), &"K3_LOOKAHEAD".into())
    );
    let said = refusal(2, &["plan", &tiny(), "--lookahead", "-1"]);
    assert!(
        said.contains("--lookahead") || said.contains("-1"),
        "{said}"
    );
}
