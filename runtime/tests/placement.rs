//! Where compute threads run, and that nobody else is kept there.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use k3_config::{CpuQuota, CpuTopology, HostCpu, ThreadPins};
use k3_models::kimi_k3::AttentionForm;
use k3_models::{LogitRows, Workers as _};
use k3_runtime::placement::allowed_cpus;
use k3_runtime::{Cancel, ComputePool, Placement, Session, SessionSettings};
use k3_testkit::{TinySpec, gates};

fn no_limits() -> HostCpu {
    HostCpu {
        cpuset_count: None,
        quota: None,
        node_count: Some(1),
        problems: Vec::new(),
    }
}

/// Without a file tree every processor is a core of its own.
fn plain(cpus: &[u32]) -> CpuTopology {
    let root = tempfile::tempdir().unwrap();
    CpuTopology::read(root.path(), cpus)
}

fn reason(placement: &Placement) -> &str {
    match placement {
        Placement::Floating { reason } => reason,
        Placement::Pinned { cpus } => panic!("pinned to {cpus:?}"),
    }
}

#[test]
fn threads_are_pinned_only_where_each_has_a_processor() {
    let topology = plain(&[2, 3, 7]);
    let decide = |count, host: &HostCpu| Placement::decide(count, &topology, host);
    assert_eq!(decide(2, &no_limits()).cpus(), [2, 3]);
    assert_eq!(decide(3, &no_limits()).cpus(), [2, 3, 7]);
    let shared = decide(4, &no_limits());
    assert_eq!(reason(&shared), "4 threads share 3 processors");
    assert_eq!(reason(&decide(1, &no_limits())), "one thread computes");
    let quota = |quota_us| HostCpu {
        quota: Some(CpuQuota {
            quota_us,
            period_us: 100_000,
        }),
        ..no_limits()
    };
    let limited = decide(2, &quota(250_000));
    assert_eq!(
        reason(&limited),
        "the control group's quota is 2 of 3 processors"
    );
    assert_eq!(decide(2, &quota(300_000)).cpus(), [2, 3]);
    let off = Placement::of_this_process(ThreadPins::Off, 2);
    assert_eq!(reason(&off), "it is off (--pin-threads on)");
}

/// The processors each thread of the pool may use, by index.
fn masks(pool: &ComputePool) -> Vec<Vec<u32>> {
    let masks: Vec<_> = (0..pool.count()).map(|_| Mutex::new(Vec::new())).collect();
    pool.run(pool.count(), &|index| {
        *masks[index].lock().unwrap() = allowed_cpus().unwrap();
    });
    masks
        .into_iter()
        .map(|mask| mask.into_inner().unwrap())
        .collect()
}

/// Two processors of this machine, if it has them.
fn two_cpus() -> Option<Vec<u32>> {
    let allowed = allowed_cpus().unwrap();
    let pair = allowed.get(..2).map(<[u32]>::to_vec);
    if pair.is_none() {
        gates::not_run("this process has a single processor");
    }
    pair
}

#[test]
fn the_caller_is_pinned_between_enter_and_its_end_only() {
    let Some(cpus) = two_cpus() else { return };
    let before = allowed_cpus().unwrap();
    let placement = Placement::Pinned { cpus: cpus.clone() };
    let pool = ComputePool::placed(2, placement).unwrap();
    let report = pool.placement();
    assert!(report.pinned && report.cpus == cpus, "{report:?}");
    assert_eq!(masks(&pool), [before.clone(), vec![cpus[1]]]);
    let entered = pool.enter();
    assert_eq!(masks(&pool), [vec![cpus[0]], vec![cpus[1]]]);
    // Twice is as good as once.
    drop(pool.enter());
    assert_eq!(allowed_cpus().unwrap(), [cpus[0]]);
    drop(entered);
    assert_eq!(allowed_cpus().unwrap(), before);
    // A thread of the caller's is nobody's neighbour.
    let child = std::thread::spawn(|| allowed_cpus().unwrap());
    assert_eq!(child.join().unwrap(), before);
    // A sweep that dies lets go as well.
    let died = catch_unwind(AssertUnwindSafe(|| {
        let _entered = pool.enter();
        assert_eq!(allowed_cpus().unwrap(), [cpus[0]]);
        panic!("a sweep died");
    }));
    assert!(died.is_err());
    assert_eq!(allowed_cpus().unwrap(), before);
    drop(pool);
    assert_eq!(allowed_cpus().unwrap(), before);
}

#[test]
fn a_session_leaves_its_caller_where_it_was() {
    let Some(cpus) = two_cpus() else { return };
    let before = allowed_cpus().unwrap();
    let written = common::write(&TinySpec::small(4));
    let checkpoint = common::open(written.dir.path()).unwrap();
    let way = common::Way::default();
    let (model, mut source) = common::load(&checkpoint, AttentionForm::Latent, way);
    let pool = ComputePool::placed(2, Placement::Pinned { cpus: cpus.clone() }).unwrap();
    let settings = SessionSettings {
        context_positions: 4,
        chunk_positions: 2,
        all_logits: false,
    };
    let mut seen = Vec::new();
    let cancel = Cancel::default();
    let mut session = Session::new(&model, &mut source, &pool, settings, cancel);
    let observed = session.append(&[1, 2, 3], LogitRows::Last, |_, _| {
        seen.push(allowed_cpus().unwrap());
    });
    observed.unwrap();
    // Logits come between two sweeps' ends: the caller still stands where it
    // computed them.
    assert_eq!(seen, [[cpus[0]]]);
    assert_eq!(allowed_cpus().unwrap(), before);
    let child = std::thread::spawn(|| allowed_cpus().unwrap());
    assert_eq!(child.join().unwrap(), before);
}

#[test]
fn a_refused_call_is_reported_and_nothing_else() {
    let Some(cpus) = two_cpus() else { return };
    const EPERM: i32 = 1;
    // A filter stays on its thread and what that starts.
    let tested = std::thread::spawn(move || {
        if !k3_io::refuse_affinity(EPERM) {
            gates::not_run("filters of system calls are not allowed here");
            return;
        }
        let before = allowed_cpus().unwrap();
        let placement = Placement::Pinned { cpus: cpus.clone() };
        let pool = ComputePool::placed(2, placement).unwrap();
        let report = pool.placement();
        assert!(!report.pinned && report.cpus.is_empty(), "{report:?}");
        let reason = report.not_pinned_reason.unwrap();
        let cpu = cpus[1];
        assert_eq!(
            reason,
            format!("sched_setaffinity for processor {cpu}: Operation not permitted")
        );
        let entered = pool.enter();
        assert_eq!(masks(&pool), [before.clone(), before.clone()]);
        drop(entered);
        let hits = AtomicUsize::new(0);
        pool.run(2, &|_| {
            hits.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(hits.load(Ordering::Relaxed), 2);
    });
    tested.join().unwrap();
}

#[test]
fn this_machine_has_a_placement() {
    let count = allowed_cpus().unwrap().len();
    let placement = Placement::of_this_process(ThreadPins::On, count);
    let quota = HostCpu::read(Path::new("/")).quota;
    let is_cut = quota.is_some_and(|quota| quota.whole_processors() < count as u64);
    assert_eq!(placement.cpus().is_empty(), is_cut || count == 1);
}
