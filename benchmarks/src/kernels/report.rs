//! What came out, as data and as tab-separated text.

use std::fmt::Write as _;

use k3_kernels::Isa;
use k3_runtime::statistics::Spread;
use serde::{Serialize, Serializer};

use super::limits::{self, Limit};
use super::measure::KernelRequest;
use super::{Group, Spec, Work};
use crate::fork_join::ForkJoin;
use crate::rounds::Compared;

/// Raised when a field changes its meaning or goes.
pub const REPORT_VERSION: u32 = 1;

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct KernelReport {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// Bytes of weights that took turns.
    pub weights_bytes: usize,
    /// Those of them in 2 MiB pages, where the kernel tells.
    pub huge_bytes: Option<u64>,
    /// Samples of each measure.
    pub rounds: usize,
    /// CPU time of a sample on each thread.
    pub pass_seconds: f64,
    /// Whether it was stopped before all rounds were done.
    pub interrupted: bool,
    /// Whether all limits were kept, and every output had the definition's bits.
    pub passed: bool,
    /// Outputs compared with the definition.
    pub compared: u64,
    /// Those that differed.
    pub mismatches: u64,
    /// Reading memory with the widest loads, by number of threads.
    pub read: Vec<ReadRow>,
    /// Kernels.
    pub rows: Vec<Row>,
    /// Pools.
    pub fork_join: Vec<ForkJoin>,
    /// What the figures have to keep.
    pub limits: Vec<Limit>,
}

/// Reading memory.
#[derive(Debug, Clone, Serialize)]
pub struct ReadRow {
    /// Threads.
    pub threads: usize,
    /// Whose loads.
    #[serde(serialize_with = "isa_name")]
    pub isa: Isa,
    /// Bytes per CPU second.
    pub bytes_per_second: Spread,
}

impl ReadRow {
    pub(super) fn new(threads: usize, isa: Isa, rates: &[f64]) -> Option<Self> {
        Some(Self {
            threads,
            isa,
            bytes_per_second: Spread::of(rates)?,
        })
    }
}

/// A kernel of one instruction set on some threads. Ratios are taken round by
/// round.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Where it belongs.
    pub group: Group,
    /// Its name.
    pub kernel: &'static str,
    /// Shapes, to read.
    pub shape: &'static str,
    /// Instruction set.
    #[serde(serialize_with = "isa_name")]
    pub isa: Isa,
    /// Threads.
    pub threads: usize,
    /// Positions that share the weights.
    pub positions: Option<usize>,
    /// One call.
    pub work: Work,
    /// Bytes per CPU second.
    pub bytes_per_second: Spread,
    /// Multiply-adds, or values, per CPU second.
    pub operations_per_second: Spread,
    /// Bytes, to those of the read right before.
    pub of_read: Option<Spread>,
    /// Bytes, to those of the kernel that does the same from weights as they are.
    pub of_unpacked: Option<Spread>,
    /// Bytes of that kernel, to those of the read.
    pub unpacked_of_read: Option<Spread>,
    /// Operations, to those of the same kernel with one position.
    pub of_one_position: Option<Spread>,
    /// Operations, to those of the same kernel on one thread.
    pub of_one_thread: Option<Spread>,
    /// Outputs compared with the definition.
    pub compared: u64,
    /// Those that differed.
    pub mismatches: u64,
    #[serde(skip)]
    byte_rates: Vec<f64>,
    #[serde(skip)]
    read_rates: Vec<f64>,
    #[serde(skip)]
    operation_rates: Vec<f64>,
}

impl Row {
    pub(super) fn new(
        spec: &Spec,
        isa: Isa,
        threads: usize,
        byte_rates: &[f64],
        operation_rates: Vec<f64>,
        read_rates: &[f64],
        compared: Compared,
    ) -> Self {
        let spread = |rates| Spread::of(rates).expect("a row has a sample");
        Self {
            group: spec.group,
            kernel: spec.name,
            shape: spec.shape,
            isa,
            threads,
            positions: spec.positions,
            work: spec.work,
            bytes_per_second: spread(byte_rates),
            operations_per_second: spread(&operation_rates),
            of_read: ratios(byte_rates, read_rates),
            of_unpacked: None,
            unpacked_of_read: None,
            of_one_position: None,
            of_one_thread: None,
            compared: compared.values,
            mismatches: compared.mismatches,
            byte_rates: byte_rates.to_vec(),
            read_rates: read_rates.to_vec(),
            operation_rates,
        }
    }

    /// Adds what did the same work right before, if anything did: bytes per CPU
    /// second.
    pub(super) fn beside(mut self, unpacked_rates: &[f64]) -> Self {
        self.of_unpacked = ratios(&self.byte_rates, unpacked_rates);
        self.unpacked_of_read = ratios(unpacked_rates, &self.read_rates);
        self
    }

    /// Whether the other row is the same but for positions and threads.
    fn is_kin(&self, other: &Self) -> bool {
        self.kernel == other.kernel && self.isa == other.isa
    }
}

/// Ratios of measures of the same rounds.
fn ratios(these: &[f64], those: &[f64]) -> Option<Spread> {
    let ratios: Vec<f64> = these.iter().zip(those).map(|(a, b)| a / b).collect();
    Spread::of(&ratios)
}

impl KernelReport {
    pub(super) fn of_request(request: &KernelRequest<'_>) -> Self {
        Self {
            report_version: REPORT_VERSION,
            weights_bytes: 0,
            huge_bytes: None,
            rounds: request.rounds,
            pass_seconds: request.pass_seconds,
            interrupted: false,
            passed: false,
            compared: 0,
            mismatches: 0,
            read: Vec::new(),
            rows: Vec::new(),
            fork_join: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// Computes what needs all rows.
    pub(super) fn finish(&mut self) {
        let rates = |like: &Row, positions, threads| {
            let found = self.rows.iter().find(|row| {
                row.is_kin(like) && row.positions == positions && row.threads == threads
            });
            found.map(|row| row.operation_rates.clone())
        };
        let kin = self.rows.iter().map(|row| {
            let single = rates(row, row.positions.map(|_| 1), row.threads);
            let single = single.filter(|_| row.positions.is_some_and(|count| count > 1));
            let alone = rates(row, row.positions, 1).filter(|_| row.threads > 1);
            (single, alone)
        });
        let kin: Vec<_> = kin.collect();
        for (row, (single, alone)) in self.rows.iter_mut().zip(kin) {
            row.of_one_position = single.and_then(|those| ratios(&row.operation_rates, &those));
            row.of_one_thread = alone.and_then(|those| ratios(&row.operation_rates, &those));
        }
        self.compared = self.rows.iter().map(|row| row.compared).sum();
        self.mismatches = self.rows.iter().map(|row| row.mismatches).sum();
        self.limits = limits::of(&self.rows, &self.fork_join);
        self.passed =
            !self.interrupted && self.mismatches == 0 && self.limits.iter().all(|limit| limit.kept);
    }

    /// One row a kernel, separated by tabs, with units in the column names and
    /// nothing where nothing is known.
    #[must_use]
    pub fn to_tsv(&self) -> String {
        let mut text = String::from("kernel\tshape\tisa\tthreads\tpositions");
        for (name, _) in COLUMNS {
            write!(text, "\t{name}_median\t{name}_q1\t{name}_q3").expect(WRITE);
        }
        text.push_str("\tcompared\tmismatches\n");
        for read in &self.read {
            let (isa, threads) = (read.isa, read.threads);
            write!(text, "read bound\t\t{isa}\t{threads}\t").expect(WRITE);
            push_spreads(&mut text, |column| {
                (column == 0).then_some(read.bytes_per_second)
            });
            text.push_str("\t\t\n");
        }
        for row in &self.rows {
            let (kernel, shape, isa, threads) = (row.kernel, row.shape, row.isa, row.threads);
            write!(text, "{kernel}\t{shape}\t{isa}\t{threads}\t").expect(WRITE);
            if let Some(positions) = row.positions {
                write!(text, "{positions}").expect(WRITE);
            }
            push_spreads(&mut text, |column| (COLUMNS[column].1)(row));
            writeln!(text, "\t{}\t{}", row.compared, row.mismatches).expect(WRITE);
        }
        for pool in &self.fork_join {
            for (name, seconds) in [("busy", pool.busy_seconds), ("idle", pool.idle_seconds)] {
                write!(text, "fork-join {name}\t\t\t{}\t", pool.threads).expect(WRITE);
                let last = COLUMNS.len() - 1;
                push_spreads(&mut text, |column| (column == last).then_some(seconds));
                text.push_str("\t\t\n");
            }
        }
        text
    }
}

const WRITE: &str = "writing to a string cannot fail";

type Figure = fn(&Row) -> Option<Spread>;

/// Figures with three columns each.
const COLUMNS: [(&str, Figure); 8] = [
    ("bytes_per_cpu_second", |row| Some(row.bytes_per_second)),
    ("operations_per_cpu_second", |row| {
        Some(row.operations_per_second)
    }),
    ("of_read", |row| row.of_read),
    ("of_unpacked", |row| row.of_unpacked),
    ("unpacked_of_read", |row| row.unpacked_of_read),
    ("of_one_position", |row| row.of_one_position),
    ("of_one_thread", |row| row.of_one_thread),
    ("wall_seconds", |_| None),
];

fn push_spreads(text: &mut String, figure: impl Fn(usize) -> Option<Spread>) {
    for column in 0..COLUMNS.len() {
        match figure(column) {
            Some(Spread { median, q1, q3, .. }) => {
                write!(text, "\t{median:.6e}\t{q1:.6e}\t{q3:.6e}").expect(WRITE);
            }
            None => text.push_str("\t\t\t"),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn isa_name<S: Serializer>(isa: &Isa, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(isa.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::matrix::bf16_spec;

    pub(crate) fn row(isa: Isa, threads: usize, positions: usize, gmacs: &[f64]) -> Row {
        let spec = bf16_spec(positions);
        let rates: Vec<f64> = gmacs.iter().map(|rate| rate * 1e9).collect();
        let bytes: Vec<f64> = rates
            .iter()
            .map(|rate| rate * 2.0 / positions as f64)
            .collect();
        let reads = vec![16e9; gmacs.len()];
        Row::new(
            &spec,
            isa,
            threads,
            &bytes,
            rates,
            &reads,
            Compared::default(),
        )
    }

    fn report(rows: Vec<Row>) -> KernelReport {
        let cancel = k3_runtime::Cancel::default();
        let mut report = KernelReport::of_request(&KernelRequest {
            groups: &[],
            isas: &[],
            threads: &[],
            weights_bytes: 0,
            rounds: 3,
            pass_seconds: 0.1,
            cancel: &cancel,
        });
        report.rows = rows;
        report.finish();
        report
    }

    #[test]
    fn ratios_are_taken_round_by_round_between_kin() {
        let report = report(vec![
            row(Isa::Avx2, 1, 1, &[4.0, 6.0, 5.0]),
            row(Isa::Avx2, 1, 8, &[12.0, 12.0, 20.0]),
            row(Isa::Avx512, 1, 8, &[100.0, 100.0, 100.0]),
            row(Isa::Avx2, 2, 8, &[6.0, 12.0, 10.0]),
        ]);
        // 12 / 4, 12 / 6, 20 / 5.
        let ratio = report.rows[1].of_one_position.unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 3.0, 4.0));
        assert_eq!(report.rows[0].of_one_position, None);
        assert_eq!(report.rows[2].of_one_position, None);
        // 6 / 12, 12 / 12, 10 / 20.
        let ratio = report.rows[3].of_one_thread.unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (0.5, 0.5, 1.0));
        assert_eq!(report.rows[1].of_one_thread, None);
        assert_eq!(report.rows[0].of_unpacked, None);
        // 2 bytes a weight: 10 of 16.
        assert_eq!(report.rows[0].of_read.unwrap().median, 0.625);
    }

    #[test]
    fn a_packed_kernel_stands_beside_the_other_round_by_round() {
        // 2 bytes a weight: 8 and 12 of 10 and 10, these of 16.
        let row = row(Isa::Avx2, 1, 1, &[4.0, 6.0]).beside(&[10e9, 10e9]);
        let ratio = row.of_unpacked.unwrap();
        assert_eq!((ratio.min, ratio.max), (0.8, 1.2));
        assert_eq!(row.unpacked_of_read.unwrap().median, 0.625);
    }

    #[test]
    fn one_difference_fails_even_where_no_limit_is_missed() {
        let mut rows = vec![row(Isa::Scalar, 1, 1, &[1.0])];
        assert!(report(rows.clone()).passed);
        rows[0].mismatches = 1;
        let report = report(rows);
        assert!(!report.passed && report.limits.is_empty());
    }

    #[test]
    fn tsv_rows_have_as_many_cells_as_the_header() {
        let mut report = report(vec![row(Isa::Avx2, 1, 1, &[4.0])]);
        report.read = vec![ReadRow::new(1, Isa::Avx2, &[16e9]).unwrap()];
        let seconds = Spread::of(&[1e-6]).unwrap();
        report.fork_join = vec![ForkJoin {
            threads: 2,
            busy_seconds: seconds,
            idle_seconds: seconds,
        }];
        let text = report.to_tsv();
        let cells = |line: &str| line.split('\t').count();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(
            lines.iter().all(|line| cells(line) == cells(lines[0])),
            "{text}"
        );
        let column = |name| lines[0].split('\t').position(|cell| cell == name).unwrap();
        let cell = |line: &str, name| line.split('\t').nth(column(name)).unwrap().to_owned();
        assert_eq!(cell(lines[2], "bytes_per_cpu_second_median"), "8.000000e9");
        assert_eq!(cell(lines[2], "of_read_q1"), "5.000000e-1");
        assert_eq!(cell(lines[2], "of_one_thread_q1"), "");
        assert_eq!(cell(lines[4], "wall_seconds_median"), "1.000000e-6");
    }
}
