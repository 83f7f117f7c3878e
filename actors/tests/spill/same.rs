//! Identical answers, and exactly the bytes that were to be moved.

use super::*;

fn store(case: &Case, model: &KimiK3, path: &Path) -> PrefixStore {
    let binding = SnapshotBinding {
        identity: case.checkpoint.identity(),
        numerics_version: NUMERICS_VERSION,
        form: StateForm::Latent,
        layer_count: u32::try_from(model.layout().layer_count()).unwrap(),
    };
    PrefixStore::open(path, 64 << 20, binding).unwrap()
}

#[test]
fn answers_are_the_same_with_any_pages_in_memory() {
    let case = case();
    let two = Side {
        sequences: 2,
        ..ALL
    };
    let want = run(&case, two, requests(&case), &Beside::default());
    assert_eq!(
        (want.written_bytes, want.plan.pages.file_page_count),
        (0, 0)
    );
    let [pread, uring] = [EnginePreference::Pread, EnginePreference::Uring];
    for (chunk, sequences, guesses, memory_pages, threads, engine) in [
        (1, 2, 0, 1, 1, uring),
        (2, 3, 0, 2, 2, pread),
        (64, 2, 3, 2, 1, uring),
        (65, 8, 0, 3, 2, pread),
        (63, 8, 4, 2, 2, uring),
        (200, 4, 7, 5, 1, pread),
        (330, 3, 0, 6, 1, uring),
    ] {
        let side = Side {
            chunk,
            sequences,
            guesses,
            memory_pages: Some(memory_pages),
            threads,
            engine,
            reorder: None,
        };
        let got = run(&case, side, requests(&case), &Beside::default());
        assert_same(&got, &want, &side);
        let pages = &got.plan.pages;
        assert_eq!(pages.memory_page_count, memory_pages, "{side:?}");
        assert_eq!(pages.file_page_count, (6 - memory_pages) * sequences as u64);
        assert_eq!(got.written_bytes > 0, memory_pages < 6, "{side:?}");
    }
}

/// Late, and in any order.
#[test]
fn it_does_not_matter_when_parts_arrive() {
    let case = case();
    let vocab = case.tiny.config.vocab_size;
    let requests = || {
        vec![
            ask(prompt(310, vocab, 7), 4, 1),
            ask(prompt(200, vocab, 8), 3, 1),
        ]
    };
    let two = Side {
        sequences: 2,
        ..ALL
    };
    let want = run(&case, two, requests(), &Beside::default());
    for (reorder, engine) in [
        (0, EnginePreference::Pread),
        (3, EnginePreference::Uring),
        (9, EnginePreference::Pread),
    ] {
        let side = Side {
            memory_pages: Some(2),
            reorder: Some(reorder),
            engine,
            ..two
        };
        let got = run(&case, side, requests(), &Beside::default());
        assert_same(&got, &want, &side);
        assert!(got.read_bytes > 0);
    }
}

/// Guesses that begin before the end of a page and are wrong behind it.
#[test]
fn guesses_across_the_end_of_a_page_are_taken_or_taken_back() {
    let case = repeating();
    let vocab = case.tiny.config.vocab_size;
    let mut totals = [0, 0];
    for len in 120..=130 {
        let requests = || vec![ask(prompt(len, vocab, 9), 90, 1)];
        let want = run(&case, ALL, requests(), &Beside::default());
        for (guesses, memory_pages) in [(7, 2), (1, 2), (4, 3)] {
            let side = Side {
                guesses,
                chunk: 8,
                memory_pages: Some(memory_pages),
                ..ALL
            };
            let got = run(&case, side, requests(), &Beside::default());
            assert_same(&got, &want, &(len, side));
            assert!(got.written_bytes > 0);
            totals = [totals[0] + got.guessed[0], totals[1] + got.guessed[1]];
        }
    }
    let [guessed, accepted] = totals;
    assert!(guessed > accepted && accepted > 0, "{totals:?}");
}

#[test]
fn what_is_moved_is_what_was_to_be_moved() {
    let case = case();
    let vocab = case.tiny.config.vocab_size;
    for (chunk, memory_pages) in [(1, 1_usize), (17, 2), (64, 2), (64, 4), (100, 3), (64, 6)] {
        let side = Side {
            chunk,
            memory_pages: Some(memory_pages as u64),
            ..ALL
        };
        let (len, gen_count) = (200, 130);
        let request = || vec![ask(prompt(len, vocab, 1), gen_count, 1)];
        let got = run(&case, side, request(), &Beside::default());
        let page_bytes = got.plan.pages.page_bytes;
        let outside = |end: usize| end.div_ceil(64).saturating_sub(memory_pages) as u64;
        let chunks = (0..len)
            .step_by(chunk)
            .map(|start| (start + chunk).min(len));
        // The last token is drawn and never computed.
        let ends: Vec<usize> = chunks.chain(len + 1..len + gen_count).collect();
        assert_eq!(got.sweeps.len(), ends.len(), "{side:?}");
        let mut read_bytes = 0;
        for (sweep, end) in got.sweeps.iter().zip(&ends) {
            assert_eq!(
                sweep.read.past_bytes,
                outside(*end) * page_bytes,
                "{side:?} {end}"
            );
            read_bytes += sweep.read.past_bytes;
        }
        let last = *ends.last().unwrap();
        assert_eq!(got.written_bytes, outside(last) * page_bytes, "{side:?}");
        assert_eq!(got.read_bytes, read_bytes, "{side:?}");
        // Nobody else could have read any of it.
        let all: u64 = got
            .sweeps
            .iter()
            .map(|sweep| sweep.read.total_bytes())
            .sum();
        assert_eq!(got.answers[0].read_bytes, all);
        let predicted = got.plan.prediction.past_bytes_per_sweep;
        assert_eq!(predicted, outside(CONTEXT) * page_bytes);
    }
}

#[test]
fn everybody_reads_his_own_pages() {
    let case = case();
    let vocab = case.tiny.config.vocab_size;
    let side = Side {
        sequences: 3,
        memory_pages: Some(2),
        ..ALL
    };
    let lengths = [300, 20, 170];
    let requests = || lengths.map(|len| ask(prompt(len, vocab, 2), 9, 1)).into();
    let with = run(&case, side, requests(), &Beside::default());
    let without = Side {
        memory_pages: None,
        ..side
    };
    let without = run(&case, without, requests(), &Beside::default());
    assert_same(&with, &without, &side);
    let page_bytes = with.plan.pages.page_bytes;
    let past: u64 = with.sweeps.iter().map(|sweep| sweep.read.past_bytes).sum();
    let each: u64 = with.answers.iter().map(|answer| answer.read_bytes).sum();
    let all: u64 = with
        .sweeps
        .iter()
        .map(|sweep| sweep.read.total_bytes())
        .sum();
    assert_eq!(each, all, "shares add up");
    assert!(past.is_multiple_of(page_bytes) && past > 0);
}

/// States that went through files in both ways: written from pages in a file,
/// restored into such, and the same bytes as ever.
#[test]
fn stored_states_know_nothing_of_where_pages_lie() {
    let case = case();
    let vocab = case.tiny.config.vocab_size;
    let model = case.model(BASE.block_bytes);
    let first = || vec![ask(prompt(270, vocab, 5), 9, 1)];
    let alone = run(&case, ALL, first(), &Beside::default());
    let longer = || {
        let ids = [
            prompt(270, vocab, 5),
            alone.answers[0].ids.clone(),
            prompt(20, vocab, 6),
        ];
        vec![ask(ids.concat(), 20, 1)]
    };
    let want = run(&case, ALL, longer(), &Beside::default());
    let spilled = Side {
        memory_pages: Some(2),
        ..ALL
    };
    let files = |path: &Path| -> BTreeMap<_, _> {
        let entries = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.is_file());
        let read = |path: std::path::PathBuf| {
            let name = path.file_name().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        };
        files.map(read).collect()
    };
    let mut kept = Vec::new();
    for (writer, reader) in [(ALL, spilled), (spilled, ALL), (spilled, spilled)] {
        let dir = TempDir::new().unwrap();
        let store = store(&case, &model, dir.path());
        let beside = Beside {
            store: Some(&store),
            ..Beside::default()
        };
        let got = run(&case, writer, first(), &beside);
        assert_same(&got, &alone, &"the first turn");
        kept.push(files(dir.path()));
        let got = run(&case, reader, longer(), &beside);
        assert!(got.answers[0].reused >= 270, "{}", got.answers[0].reused);
        assert_same(&got, &want, &"the second turn");
    }
    assert!(!kept[0].is_empty());
    assert!(kept[0] == kept[1], "the same bytes from any memory");
}

/// A budget alone decides what stays.
#[test]
fn as_many_pages_stay_as_fit_and_the_rest_is_planned() {
    let case = case();
    let model = case.model(BASE.block_bytes);
    let workspace = |size: &_| model.workspace_bytes(size);
    let inputs = |bytes_max| PlanInputs {
        spill: Some(SpillRequest {
            bytes_max,
            memory_pages: None,
        }),
        ..Side {
            sequences: 4,
            ..ALL
        }
        .inputs()
    };
    let plan = |total: u64, bytes_max| {
        let budget = MemoryBudget::given(Bytes(total), Origin::Default);
        plan_run(&model.footprint(), &workspace, &budget, &inputs(bytes_max))
    };
    let least = match plan(0, None) {
        Err(PlanRefusal::TooSmall(shortfall)) => shortfall.smallest_budget.unwrap().0,
        other => panic!("{other:?}"),
    };
    let mut before = 0;
    for more in 0..60 {
        let plan = plan(least + more * 8192, None).unwrap();
        let pages = plan.pages;
        assert!((2..=6).contains(&pages.memory_page_count));
        assert!(
            pages.memory_page_count >= before,
            "more memory, no fewer pages"
        );
        before = pages.memory_page_count;
        assert_eq!(pages.file_page_count, 4 * (6 - before));
        assert_eq!(pages.page_count, 4 * before);
    }
    assert_eq!(before, 6, "in the end all of them");
    let file_bytes = plan(least, None).unwrap().pages.file_bytes();
    plan(least, Some(file_bytes)).unwrap();
    let refused = plan(least, Some(file_bytes - 1)).unwrap_err();
    assert!(matches!(refused, PlanRefusal::SpillTooLarge { .. }));
    assert!(refused.to_string().contains("--spill-gb"), "{refused}");
}
