//! Disks that fail: the sequence that is concerned ends, and nobody else.

use std::sync::Mutex;

use k3_actors::ActorError;
use k3_io::{
    EngineCaps, EngineCounters, EngineError, FileId, FileTable, ReadClass, ReadDone, ReadEngine,
    ReadRequest, SpillError,
};
use k3_models::StoreError;

use super::*;

/// What becomes of a read of the file of pages.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Refused,
    /// Other bytes of the same file.
    Elsewhere,
}

/// Does as the engine does, but for one read of the last file.
#[derive(Debug)]
struct FailFile {
    inner: Arc<dyn ReadEngine>,
    file: FileId,
    fault: Fault,
    /// Reads of the file until it fails.
    left: Mutex<usize>,
}

impl ReadEngine for FailFile {
    fn submit(&self, mut request: ReadRequest) {
        let segment = request.segments[0];
        if segment.file == self.file {
            let mut left = self.left.lock().unwrap();
            *left = left.wrapping_sub(1);
            if *left == 0 {
                match self.fault {
                    Fault::Refused => {
                        let failed = ReadDone {
                            tag: request.tag,
                            target: request.target,
                            payload: 0..0,
                            result: Err(EngineError::Cancelled),
                        };
                        return request.reply.send(failed).unwrap();
                    }
                    Fault::Elsewhere => {
                        let other = if segment.offset == 0 { 8192 } else { 0 };
                        request.segments[0].offset = other;
                    }
                }
            }
        }
        self.inner.submit(request);
    }

    fn promote(&self, tag: u64, class: ReadClass) {
        self.inner.promote(tag, class);
    }

    fn cancel(&self, tag: u64) {
        self.inner.cancel(tag);
    }

    fn caps(&self) -> EngineCaps {
        self.inner.caps()
    }

    fn counters(&self) -> EngineCounters {
        self.inner.counters()
    }

    fn shutdown(&self) {
        self.inner.shutdown();
    }
}

fn side() -> Side {
    Side {
        sequences: 3,
        memory_pages: Some(2),
        ..ALL
    }
}

fn three(case: &Case) -> Vec<GenerateRequest> {
    let vocab = case.tiny.config.vocab_size;
    let lengths = [300, 20, 170];
    lengths
        .map(|len| ask(prompt(len, vocab, len as u64), 9, 1))
        .into()
}

/// One of `got` has failed with `text`, and all others are as in `want`.
#[track_caller]
fn one_failed(got: &Outcome, want: &Outcome, text: &str, what: &dyn std::fmt::Debug) {
    let mut failed = 0;
    for (got, want) in got.answers.iter().zip(&want.answers) {
        let (reason, error) = got.ended.as_ref().unwrap();
        if *reason == FinishReason::Failed {
            failed += 1;
            assert!(error.contains(text), "{what:?}: {error}");
            assert_eq!(got.ids, want.ids[..got.ids.len()], "{what:?}");
            assert!(got.bits == want.bits[..got.bits.len()], "{what:?}");
        } else {
            assert_eq!((&got.ids, &got.ended), (&want.ids, &want.ended), "{what:?}");
            assert!(got.bits == want.bits, "{what:?}");
        }
    }
    assert_eq!(failed, 1, "{what:?}");
}

#[test]
fn a_read_that_fails_ends_its_sequence_alone() {
    let case = case();
    let want = run(&case, side(), three(&case), &Beside::default());
    for fault in [Fault::Refused, Fault::Elsewhere] {
        for failing in [1, 2, 3, 4, 7, 19, 40, 64] {
            let wrap = move |inner, table: Arc<FileTable>| -> Arc<dyn ReadEngine> {
                let last = u32::try_from(table.files().len() - 1).unwrap();
                Arc::new(FailFile {
                    inner,
                    file: FileId(last),
                    fault,
                    left: Mutex::new(failing),
                })
            };
            let beside = Beside {
                wrap: Some(&wrap),
                ..Beside::default()
            };
            let got = run(&case, side(), three(&case), &beside);
            let text = match fault {
                Fault::Refused => "cancelled",
                Fault::Elsewhere => "are not what was written there",
            };
            one_failed(&got, &want, text, &(fault, failing));
        }
    }
}

/// A store that takes so many parts and no more.
#[derive(Debug)]
struct Full {
    inner: Arc<dyn PageStore>,
    left: Mutex<usize>,
}

impl PageStore for Full {
    fn write(&self, place: u32, part: usize, values: &[f32]) -> Result<(), StoreError> {
        let mut left = self.left.lock().unwrap();
        *left = left.wrapping_sub(1);
        if *left == 0 {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(StoreError(Arc::new(full)));
        }
        self.inner.write(place, part, values)
    }

    fn read(&self, place: u32, part: usize, values: &mut [f32]) -> Result<(), StoreError> {
        self.inner.read(place, part, values)
    }
}

#[test]
fn a_write_that_fails_ends_its_sequence_alone() {
    let case = case();
    let want = run(&case, side(), three(&case), &Beside::default());
    for failing in 1..=9 {
        let pages = move |inner| -> Arc<dyn PageStore> {
            Arc::new(Full {
                inner,
                left: Mutex::new(failing),
            })
        };
        let beside = Beside {
            pages: Some(&pages),
            ..Beside::default()
        };
        let got = run(&case, side(), three(&case), &beside);
        one_failed(&got, &want, "storage", &failing);
    }
}

/// The others of a request end with it, those of other requests do not.
#[test]
fn a_copy_that_cannot_be_written_ends_its_choice() {
    let case = case();
    let vocab = case.tiny.config.vocab_size;
    let requests = || {
        vec![
            ask(prompt(300, vocab, 2), 5, 2),
            ask(prompt(9, vocab, 2), 5, 1),
        ]
    };
    let want = run(&case, side(), requests(), &Beside::default());
    // Three pages of three parts, then those of the copy.
    for failing in [10, 14, 18] {
        let pages = move |inner| -> Arc<dyn PageStore> {
            Arc::new(Full {
                inner,
                left: Mutex::new(failing),
            })
        };
        let beside = Beside {
            pages: Some(&pages),
            ..Beside::default()
        };
        let got = run(&case, side(), requests(), &beside);
        one_failed(&got, &want, "storage", &failing);
    }
}

#[test]
fn a_disk_without_room_is_refused_before_anything_runs() {
    let case = case();
    let model = case.model(BASE.block_bytes);
    let mut plan = side().plan(&model);
    let dir = TempDir::new().unwrap();
    let start = |plan: &BudgetPlan, dir: &Path| {
        let stream = side().stream(dir);
        Supervisor::start(&model, &case.checkpoint, plan, &stream, None).map(|_| ())
    };
    let missing = dir.path().join("none");
    let refused = start(&plan, &missing).unwrap_err();
    assert!(matches!(
        refused,
        ActorError::Spill(SpillError::Directory { .. })
    ));
    assert!(refused.to_string().contains("--spill"), "{refused}");
    plan.pages.file_page_count = 1 << 44;
    let refused = start(&plan, dir.path()).unwrap_err();
    let said = refused.to_string();
    assert!(matches!(
        refused,
        ActorError::Spill(SpillError::Full { .. })
    ));
    assert!(
        said.contains(&plan.pages.file_bytes().to_string()),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
