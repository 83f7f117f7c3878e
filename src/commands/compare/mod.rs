//! `k3 compare`: how far two logit dumps are apart.

mod row;
mod show;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde::Serialize;

use crate::cli::commands::CompareArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::stdout::Stdout;
use row::{RowComparison, number};

/// Bytes of one value.
const VALUE_BYTES: u64 = 4;

/// Two dumps compared. The names of the fields are the names in the JSON.
#[derive(Debug, Serialize)]
struct Comparison {
    /// Whether the dumps are the same bytes.
    identical: bool,
    /// Values in each dump.
    values: u64,
    /// Values per row.
    row_values: usize,
    /// Values whose bits differ.
    differing: usize,
    /// Whether no `--vocab` was given, so that both dumps were taken for one
    /// row each.
    one_row_assumed: bool,
    /// Values of A that are not finite.
    non_finite_a: usize,
    /// Values of B that are not finite.
    non_finite_b: usize,
    /// Largest difference; "inf" in JSON when a value that is not finite stands
    /// against another one.
    #[serde(serialize_with = "number")]
    max_abs_difference: f64,
    /// Largest of the rows' `max_relative`.
    #[serde(serialize_with = "number")]
    max_relative: f64,
    /// Rows whose likeliest ids differ.
    argmax_differs: usize,
    /// Every row, in order.
    rows: Vec<RowComparison>,
}

/// Compares two dumps and prints how they differ.
///
/// # Errors
///
/// Dumps that cannot be read, are no dumps or have different sizes.
pub(crate) fn run(args: &CompareArgs) -> Result<Exit, CliError> {
    let mut left = Dump::open(&args.left)?;
    let mut right = Dump::open(&args.right)?;
    if left.values != right.values {
        return Err(CliError::DumpsDiffer {
            left: args.left.clone(),
            left_count: left.values,
            right: args.right.clone(),
            right_count: right.values,
        });
    }
    let row_values = args.vocab.unwrap_or(left.values);
    if !left.values.is_multiple_of(row_values) {
        return Err(CliError::DumpLength {
            path: args.left.clone(),
            bytes: left.values * VALUE_BYTES,
            expected: format!("whole rows of {row_values} values (--vocab)"),
        });
    }
    let row_count = left.values / row_values;
    let row_values = usize::try_from(row_values).map_err(|_| too_long(&args.left, &left))?;
    let mut rows = Vec::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for row in 0..row_count {
        left.read_row(row_values, &mut a)?;
        right.read_row(row_values, &mut b)?;
        let row = usize::try_from(row).map_err(|_| too_long(&args.left, &left))?;
        rows.push(RowComparison::new(row, &a, &b));
    }
    let comparison = Comparison {
        one_row_assumed: args.vocab.is_none(),
        ..Comparison::new(left.values, row_values, rows)
    };
    let text = if args.json {
        let json = serde_json::to_string_pretty(&comparison).expect("plain data serialises");
        json + "\n"
    } else {
        show::comparison(&comparison)
    };
    Stdout.write(text.as_bytes())?;
    Ok(if comparison.identical {
        Exit::Done
    } else {
        Exit::Failed
    })
}

impl Comparison {
    fn new(values: u64, row_values: usize, rows: Vec<RowComparison>) -> Self {
        let differing = rows.iter().map(|row| row.differing).sum();
        let largest = |of: fn(&RowComparison) -> f64| rows.iter().map(of).fold(0.0, f64::max);
        Self {
            identical: differing == 0,
            values,
            row_values,
            differing,
            one_row_assumed: false,
            non_finite_a: rows.iter().map(|row| row.non_finite_a).sum(),
            non_finite_b: rows.iter().map(|row| row.non_finite_b).sum(),
            max_abs_difference: largest(|row| row.max_abs_difference),
            max_relative: largest(|row| row.max_relative),
            argmax_differs: rows.iter().filter(|row| !row.argmax_agrees()).count(),
            rows,
        }
    }

    /// The row that differs most: by value, else by bits.
    fn worst_row(&self) -> &RowComparison {
        let key = |row: &RowComparison| (row.max_abs_difference, row.differing);
        let worse = |a: &RowComparison, b: &RowComparison| {
            let ((a_value, a_bits), (b_value, b_bits)) = (key(a), key(b));
            a_value
                .total_cmp(&b_value)
                .then(a_bits.cmp(&b_bits))
                .then(b.row.cmp(&a.row))
        };
        self.rows
            .iter()
            .max_by(|a, b| worse(a, b))
            .expect("a dump has at least one row")
    }
}

/// An open dump.
struct Dump<'a> {
    path: &'a Path,
    values: u64,
    reader: BufReader<File>,
}

impl<'a> Dump<'a> {
    fn open(path: &'a Path) -> Result<Self, CliError> {
        let fail = |source| unreadable(path, source);
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if metadata.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        let bytes = metadata.len();
        if bytes == 0 || !bytes.is_multiple_of(VALUE_BYTES) {
            return Err(CliError::DumpLength {
                path: path.to_owned(),
                bytes,
                expected: "a logit dump: raw f32, 4 bytes a value, at least one".to_owned(),
            });
        }
        Ok(Self {
            path,
            values: bytes / VALUE_BYTES,
            reader: BufReader::new(file),
        })
    }

    fn read_row(&mut self, values: usize, row: &mut Vec<f32>) -> Result<(), CliError> {
        row.clear();
        for _ in 0..values {
            let mut bytes = [0; 4];
            let read = self.reader.read_exact(&mut bytes);
            read.map_err(|source| unreadable(self.path, source))?;
            row.push(f32::from_le_bytes(bytes));
        }
        Ok(())
    }
}

fn unreadable(path: &Path, source: io::Error) -> CliError {
    CliError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

fn too_long(path: &Path, dump: &Dump<'_>) -> CliError {
    CliError::DumpLength {
        path: path.to_owned(),
        bytes: dump.values * VALUE_BYTES,
        expected: "within this machine's address space".to_owned(),
    }
}
