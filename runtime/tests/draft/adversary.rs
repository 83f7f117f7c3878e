//! The ledger's promise, against costs and texts chosen to break it.

use k3_runtime::draft::{DraftWidth, SweepCost};
use k3_runtime::philox::philox4x32;
use proptest::prelude::*;

/// The most one position can have read.
const GUESS_BYTES: u64 = 1_000;

/// Who says which guesses are right, knowing how many are carried.
#[derive(Debug, Clone)]
enum Text {
    /// Each with this chance in 1000.
    Chance(u64),
    /// Right for as long as none is carried, wrong once one is.
    Bait,
    /// Right until this many are carried, then wrong for that many sweeps.
    Trap(usize, usize),
    /// Right and wrong as these say, over and over.
    Bits(Vec<bool>),
}

/// What sweeps read. Shares are in 1000: the most that is drawn.
#[derive(Debug, Clone, Copy)]
struct Costs {
    trunk_bytes: u64,
    /// Of the trunk, drawn anew for every sweep.
    trunk_varies: bool,
    /// Of [`GUESS_BYTES`], what a position alone would read.
    alone_share: u64,
    /// Of that, what it adds to the positions before it.
    added_share: u64,
    counts_rejected: bool,
}

/// What a run read, and what its tokens would have read without guesses.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    read_bytes: u64,
    plain_bytes: u64,
    carried: usize,
}

struct Run {
    text: Text,
    costs: Costs,
    seed: u32,
    drawn: u32,
    judged: usize,
    trapped: usize,
    outcome: Outcome,
}

impl Run {
    fn new(text: Text, costs: Costs, seed: u32) -> Self {
        Self {
            text,
            costs,
            seed,
            drawn: 0,
            judged: 0,
            trapped: 0,
            outcome: Outcome::default(),
        }
    }

    /// 0 up to `below` - 1.
    fn draw(&mut self, below: u64) -> u64 {
        self.drawn += 1;
        let [word, ..] = philox4x32([self.drawn, 0, 0, 0], [self.seed, 0]);
        (u64::from(word) * below) >> 32
    }

    fn share_of(&mut self, bytes: u64, share: u64) -> u64 {
        bytes * self.draw(share + 1) / 1000
    }

    fn is_right(&mut self, carried: usize) -> bool {
        self.judged += 1;
        match &self.text {
            Text::Chance(chance) => {
                let chance = *chance;
                self.draw(1000) < chance
            }
            Text::Bait => carried == 0,
            Text::Trap(width, sweeps) => {
                if self.trapped == 0 && carried >= *width {
                    self.trapped = *sweeps;
                }
                self.trapped == 0
            }
            Text::Bits(bits) => bits[self.judged % bits.len()],
        }
    }

    /// One sweep, as `width` wants it.
    fn sweep(&mut self, width: &mut DraftWidth) {
        let evidence = if self.draw(2) == 0 { 8 } else { 3 };
        let limit = if self.draw(10) == 0 { 2 } else { 16 };
        let carried = width.width(evidence, limit);
        assert!(carried <= limit);
        let mut accepted = 0;
        while accepted < carried && self.is_right(carried) {
            accepted += 1;
        }
        let beyond = (accepted == carried).then(|| self.is_right(carried));
        self.trapped = self.trapped.saturating_sub(1);
        let cost = SweepCost {
            carried,
            accepted,
            evidence,
            beyond,
            ..self.read(carried, accepted)
        };
        width.observe(&cost);
    }

    /// What the sweep reads; what its tokens would have read one by one is added to
    /// the outcome.
    fn read(&mut self, carried: usize, accepted: usize) -> SweepCost {
        let costs = self.costs;
        let mut trunk_read_bytes = costs.trunk_bytes;
        if costs.trunk_varies {
            trunk_read_bytes = self.share_of(trunk_read_bytes, 1000);
        }
        let (mut expert_read_bytes, mut rejected_read_bytes) = (0, 0);
        for position in 0..=carried {
            let alone = self.share_of(GUESS_BYTES, costs.alone_share);
            let added = match position {
                0 => alone,
                _ => self.share_of(alone, costs.added_share),
            };
            expert_read_bytes += added;
            if position > accepted {
                rejected_read_bytes += added;
            } else {
                self.outcome.plain_bytes += trunk_read_bytes + alone;
            }
        }
        self.outcome.read_bytes += trunk_read_bytes + expert_read_bytes;
        self.outcome.carried += carried;
        SweepCost {
            carried,
            accepted,
            evidence: 0,
            beyond: None,
            trunk_read_bytes,
            expert_read_bytes,
            rejected_read_bytes: costs.counts_rejected.then_some(rejected_read_bytes),
        }
    }
}

fn texts() -> impl Strategy<Value = Text> {
    prop_oneof![
        (0..1000_u64).prop_map(Text::Chance),
        Just(Text::Bait),
        (1..17_usize, 1..40_usize).prop_map(|(width, sweeps)| Text::Trap(width, sweeps)),
        prop::collection::vec(any::<bool>(), 1..40).prop_map(Text::Bits),
    ]
}

fn costs() -> impl Strategy<Value = Costs> {
    let trunk = prop_oneof![Just(0), 1..100_000_u64];
    let shares = (0..=1000_u64, 0..=1000_u64);
    (trunk, any::<bool>(), shares, any::<bool>()).prop_map(
        |(trunk_bytes, trunk_varies, (alone_share, added_share), counts_rejected)| Costs {
            trunk_bytes,
            trunk_varies,
            alone_share,
            added_share,
            counts_rejected,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// At every moment of every run, by exact counts.
    #[test]
    fn the_ledger_is_never_overdrawn(text in texts(), costs in costs(), seed in any::<u32>()) {
        let mut width = DraftWidth::new(GUESS_BYTES);
        let mut run = Run::new(text, costs, seed);
        for _ in 0..400 {
            run.sweep(&mut width);
            let ledger = width.ledger();
            prop_assert_eq!(ledger.read_bytes, run.outcome.read_bytes);
            prop_assert!(
                50 * ledger.wasted_bytes <= ledger.read_bytes + 50 * ledger.saved_bytes,
                "{:?}", ledger
            );
            let Outcome { read_bytes, plain_bytes, .. } = run.outcome;
            prop_assert!(read_bytes * 98 <= plain_bytes * 100, "{:?}", run.outcome);
        }
    }
}

const STREAMED: Costs = Costs {
    trunk_bytes: 1_000,
    trunk_varies: false,
    alone_share: 1_000,
    added_share: 1_000,
    counts_rejected: true,
};

fn run(width: &mut DraftWidth, text: Text) -> Outcome {
    let mut run = Run::new(text, STREAMED, 7);
    for _ in 0..2_000 {
        run.sweep(width);
    }
    run.outcome
}

/// Guesses that are free of charge switch the ledger off: what it is there for.
#[test]
fn without_the_ledger_the_adversary_wins() {
    let outcome = run(&mut DraftWidth::new(0), Text::Bait);
    assert!(
        outcome.read_bytes * 100 > outcome.plain_bytes * 105,
        "{outcome:?}"
    );
    let outcome = run(&mut DraftWidth::new(GUESS_BYTES), Text::Bait);
    assert!(
        outcome.read_bytes * 98 <= outcome.plain_bytes * 100,
        "{outcome:?}"
    );
    assert!(outcome.carried > 0, "the bait was taken");
}

/// The promise costs little where guesses are mostly right.
#[test]
fn a_text_that_can_be_guessed_pays_all_the_same() {
    let outcome = run(&mut DraftWidth::new(GUESS_BYTES), Text::Chance(900));
    assert!(
        outcome.read_bytes * 100 < outcome.plain_bytes * 80,
        "{outcome:?}"
    );
}
