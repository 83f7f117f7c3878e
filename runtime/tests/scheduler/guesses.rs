//! Guesses change the number of sweeps alone.

use super::*;

/// A model that says the same few tokens again and again, greedily: its last
/// layers are switched off, so that a token's logits follow from its embedding.
fn repeating() -> common::Written {
    write_with(&TinySpec::small(1), |tensors| {
        for tensor in tensors.iter_mut() {
            let is_output = ["o_proj.weight", "down_proj.weight", "up_proj.weight"]
                .iter()
                .any(|tail| tensor.name.ends_with(tail));
            if is_output {
                tensor.bytes.fill(0);
            }
        }
    })
}

#[test]
fn guesses_change_nothing_but_the_number_of_sweeps() {
    let mut saved = 0;
    for written in [
        repeating(),
        write(&TinySpec::odd(2)),
        write(&TinySpec::wide_union(3)),
    ] {
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let ask = |index: usize| {
            let sampling = SamplingSettings {
                temperature: if index.is_multiple_of(2) { 0.0 } else { 0.7 },
                seed: index as u64,
                ..SamplingSettings::default()
            };
            let ids = prompt(2 + index, vocab, index as u64);
            GenerateRequest {
                token_rows: true,
                ..GenerateRequest::new(ids, 40, sampling)
            }
        };
        for threads in [1, 2] {
            let way = Way {
                threads,
                ..Way::default()
            };
            let mut bench = Bench::new(&checkpoint, way);
            let want = bench.run(settings(1, 64), (0..4).map(ask).collect());
            for (sequences, guesses_max) in [(1, 4), (1, 1), (3, 7), (4, 2)] {
                let mut settings = settings(sequences, 64);
                settings.guesses_max = guesses_max;
                let mut source = Counting::all(&mut bench.source);
                let cancel = Cancel::default();
                let mut scheduler =
                    Scheduler::new(&bench.model, &mut source, &bench.pool, settings, cancel);
                for index in 0..4 {
                    scheduler.submit(ask(index)).unwrap();
                }
                let mut answers = Answers::new();
                let reports = finish(&mut scheduler, &mut answers);
                for (index, (got, want)) in answers.values().zip(&want).enumerate() {
                    same(got, want, &(threads, sequences, guesses_max, index));
                }
                let accepted: u64 = reports.iter().map(|report| report.accepted).sum();
                let counted = answers
                    .values()
                    .map(|answer| answer.ended.as_ref().unwrap());
                let counted: u64 = counted.map(|ended| ended.counts.accepted).sum();
                assert_eq!(accepted, counted);
                saved += accepted;
            }
        }
    }
    assert!(saved > 100, "{saved} guesses were right");
}
