//! States that outlive their sequences.

use super::*;

/// A store for the states of `bench`.
fn store(bench: &Bench, checkpoint: &k3_runtime::Checkpoint, path: &Path) -> PrefixStore {
    let binding = SnapshotBinding {
        identity: checkpoint.identity(),
        numerics_version: NUMERICS_VERSION,
        form: StateForm::Latent,
        layer_count: u32::try_from(bench.model.layout().layer_count()).unwrap(),
    };
    PrefixStore::open(path, 64 << 20, binding).unwrap()
}

impl Bench {
    /// Runs `requests` beside what `store` has.
    fn run_kept(
        &mut self,
        settings: SchedulerSettings,
        store: &PrefixStore,
        requests: Vec<GenerateRequest>,
    ) -> Vec<Answer> {
        let cancel = Cancel::default();
        let source = &mut self.source;
        let mut scheduler = Scheduler::new(&self.model, source, &self.pool, settings, cancel);
        scheduler.keep_prefixes(store);
        for request in requests {
            scheduler.submit(request).unwrap();
        }
        let mut answers = Answers::new();
        finish(&mut scheduler, &mut answers);
        assert_eq!(scheduler.prefix_notes(), [] as [String; 0]);
        answers.into_values().collect()
    }
}

fn counts(answer: &Answer) -> RequestCounts {
    answer.ended.as_ref().unwrap().counts
}

/// Settings for prompts that reach beyond the first borders.
fn long(sequences_max: usize, chunk: usize) -> SchedulerSettings {
    SchedulerSettings {
        context_positions: 200,
        ..settings(sequences_max, chunk)
    }
}

#[test]
fn a_second_turn_computes_its_new_tokens_alone() {
    for (spec, guesses_max) in [(TinySpec::odd(2), 0), (TinySpec::small(1), 3)] {
        let written = write(&spec);
        let checkpoint = open(written.dir.path()).unwrap();
        let vocab = written.tiny.config.vocab_size;
        let mut bench = Bench::new(&checkpoint, Way::default());
        let directory = tempfile::tempdir().unwrap();
        let mut settings = long(2, 16);
        settings.guesses_max = guesses_max;
        let ask = |ids: &[u32]| GenerateRequest {
            token_rows: true,
            ..GenerateRequest::new(ids.to_vec(), 9, SamplingSettings::default())
        };
        let mut text = prompt(20, vocab, 1);
        for turn in 0..4 {
            // A new store each time: as after a restart.
            let store = store(&bench, &checkpoint, directory.path());
            let want = bench.run(long(1, 64), vec![ask(&text)]).remove(0);
            let got = bench.run_kept(settings, &store, vec![ask(&text)]).remove(0);
            same(&got, &want, &(turn, guesses_max));
            let counts = counts(&got);
            let (known, new) = if turn == 0 {
                (0, 20)
            } else {
                (text.len() - 6, 6)
            };
            assert_eq!(counts.reused_positions, known as u64, "turn {turn}");
            if guesses_max == 0 {
                assert_eq!(counts.positions, new + 8, "turn {turn}");
            }
            text.extend(&got.ids);
            // The last token of the answer is not in the state yet.
            text.extend(prompt(5, vocab, 10 + turn));
        }
    }
}

#[test]
fn prompts_that_begin_alike_share_what_they_have_in_common() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let directory = tempfile::tempdir().unwrap();
    let store = store(&bench, &checkpoint, directory.path());
    let system = prompt(130, vocab, 1);
    let ask = |common: usize, own: usize, seed: u64| {
        let ids = [&system[..common], &prompt(own, vocab, seed)].concat();
        GenerateRequest {
            token_rows: true,
            ..GenerateRequest::new(ids, 5, SamplingSettings::default())
        }
    };
    // One after the other, around the borders at 64 and 128.
    let asked = [
        (130, 10, 100, 0),
        (130, 10, 101, 128),
        (130, 0, 102, 128),
        (128, 1, 103, 128),
        (128, 0, 104, 64),
        (127, 9, 105, 64),
        (64, 1, 106, 64),
        (64, 0, 107, 0),
        (63, 7, 108, 0),
    ];
    for (common, own, seed, reused) in asked {
        let want = bench
            .run(long(1, 64), vec![ask(common, own, seed)])
            .remove(0);
        for chunk in [64, 7] {
            let answer = bench.run_kept(long(1, chunk), &store, vec![ask(common, own, seed)]);
            same(&answer[0], &want, &(common, own, chunk));
            let counts = counts(&answer[0]);
            assert!(
                counts.reused_positions >= reused,
                "{common} {own}: {counts:?}"
            );
            let all = (common + own + 4) as u64;
            assert_eq!(counts.reused_positions + counts.positions, all);
        }
    }
    // Together.
    let list = || {
        asked
            .iter()
            .map(|&(common, own, seed, _)| ask(common, own, seed))
    };
    let want = bench.run(long(1, 64), list().collect());
    let got = bench.run_kept(long(4, 11), &store, list().collect());
    for (index, (got, want)) in got.iter().zip(&want).enumerate() {
        same(got, want, &index);
    }
}

#[test]
fn a_damaged_state_is_computed_again() {
    let written = write(&TinySpec::odd(2));
    let checkpoint = open(written.dir.path()).unwrap();
    let vocab = written.tiny.config.vocab_size;
    let mut bench = Bench::new(&checkpoint, Way::default());
    let directory = tempfile::tempdir().unwrap();
    let ask = || GenerateRequest {
        token_rows: true,
        ..GenerateRequest::new(prompt(140, vocab, 1), 5, SamplingSettings::default())
    };
    let want = bench.run(long(1, 64), vec![ask()]).remove(0);
    let fill = store(&bench, &checkpoint, directory.path());
    bench.run_kept(long(1, 64), &fill, vec![ask()]);
    let mut damaged = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.len() > 1000 {
            let middle = bytes.len() * 3 / 4;
            bytes[middle] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged >= 2);
    let store = store(&bench, &checkpoint, directory.path());
    let cancel = Cancel::default();
    let mut scheduler = Scheduler::new(
        &bench.model,
        &mut bench.source,
        &bench.pool,
        long(1, 64),
        cancel,
    );
    scheduler.keep_prefixes(&store);
    scheduler.submit(ask()).unwrap();
    let mut answers = Answers::new();
    finish(&mut scheduler, &mut answers);
    let got = answers.into_values().next().unwrap();
    same(&got, &want, &"damaged");
    assert_eq!(counts(&got).reused_positions, 0);
    assert!(store.statistics().damaged >= 1);
    assert!(!scheduler.prefix_notes().is_empty());
}
