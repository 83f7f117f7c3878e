//! Sampling: reproducible by seed, and what the settings say.

use crate::common::{case, ids_of, isas, json, stdout_of};

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
