//! Requests side by side are what each is alone.

use super::*;

#[test]
fn eight_together_are_what_each_is_alone() {
    for (name, spec) in [
        ("small", TinySpec::small(1)),
        ("odd", TinySpec::odd(2)),
        ("wide union", TinySpec::wide_union(3)),
    ] {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let alone: Vec<Answer> = requests(vocab)
            .into_iter()
            .map(|request| {
                let mut bench = Bench::new(&checkpoint, Way::default());
                bench.run(settings(1, 64), vec![request]).remove(0)
            })
            .collect();
        let base = Way::default();
        let ways = [(1, Isa::Scalar), (2, base.isa), (3, base.isa)];
        for (sequences, chunk) in [(8, 64), (8, 1), (3, 5), (2, 64), (1, 3)] {
            for (threads, isa) in ways {
                let way = Way {
                    threads,
                    isa,
                    ..base
                };
                let mut bench = Bench::new(&checkpoint, way);
                let together = bench.run(settings(sequences, chunk), requests(vocab));
                for (index, (got, want)) in together.iter().zip(&alone).enumerate() {
                    same(got, want, &(name, sequences, chunk, threads, isa, index));
                }
            }
        }
        // Another order of arrival.
        let mut reversed = requests(vocab);
        reversed.reverse();
        let mut bench = Bench::new(&checkpoint, base);
        let together = bench.run(settings(4, 7), reversed);
        for (index, (got, want)) in together.iter().rev().zip(&alone).enumerate() {
            same(got, want, &(name, "reversed", index));
        }
    }
}

#[test]
fn requests_that_come_while_others_run_change_nothing() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let want = bench.run(settings(8, 64), requests(vocab));
    for gap in [1, 2, 5] {
        let cancel = Cancel::default();
        let mut scheduler = Scheduler::new(
            &bench.model,
            &mut bench.source,
            &bench.pool,
            settings(5, 4),
            cancel,
        );
        let mut answers = Answers::new();
        let mut events = Vec::new();
        for request in requests(vocab) {
            scheduler.submit(request).unwrap();
            for _ in 0..gap {
                scheduler.step(&mut events).unwrap();
                take(&mut answers, &mut events);
            }
        }
        finish(&mut scheduler, &mut answers);
        for (index, (got, want)) in answers.values().zip(&want).enumerate() {
            same(got, want, &(gap, index));
        }
    }
}

#[test]
fn choices_read_their_prompt_once_and_are_what_single_requests_are() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let base = || requests(vocab).remove(1);
    let choices = |indices: &[u32]| {
        let choices = indices.iter().map(|&index| Choice { index, watch: None });
        choices.collect::<Vec<_>>()
    };
    let single: Vec<_> = (0..3)
        .map(|index| GenerateRequest {
            choices: choices(&[index]),
            ..base()
        })
        .collect();
    let single = bench.run(settings(1, 64), single);
    assert!(single[0].ids != single[1].ids, "choices differ");
    let request = GenerateRequest {
        choices: choices(&[0, 1, 2]),
        ..base()
    };
    let prompt_len = request.prompt_ids.len() as u64;
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        settings(3, 64),
        cancel,
    );
    scheduler.submit(request).unwrap();
    let mut answers = Answers::new();
    let reports = finish(&mut scheduler, &mut answers);
    for (got, want) in answers.values().zip(&single) {
        same(got, want, &"choices");
    }
    let prompt_positions: u64 = reports.iter().map(|report| report.prompt_positions).sum();
    assert_eq!(prompt_positions, prompt_len);
}
