//! Expert traces: which experts each position of each layer picked.
//!
//! A trace is a sequence of pairs of little-endian `i32`, layer and expert. In
//! each sweep, for each layer with experts in ascending order, for each
//! position, the picked ids follow in pick order. A new sweep starts where the
//! layer index falls; a model with a single such layer therefore has one sweep.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use crate::error::{FormatError, TraceFault};

/// Bytes of one pair.
const PAIR_BYTES: usize = 8;

/// One picked expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracePair {
    /// Zero-based layer.
    pub layer: u32,
    /// Id within the layer.
    pub expert: u32,
}

/// A trace in memory, split into sweeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpertTrace {
    pairs: Vec<TracePair>,
    /// End of each sweep in `pairs`.
    sweep_ends: Vec<usize>,
}

impl ExpertTrace {
    /// Reads a trace; `label` is the path shown in messages. Takes as much
    /// memory as the bytes.
    ///
    /// # Errors
    ///
    /// [`FormatError::Trace`] for a partial pair or a negative number.
    pub fn parse(label: &Path, bytes: &[u8]) -> Result<Self, FormatError> {
        let fault = |offset: usize, fault| FormatError::Trace {
            path: label.to_path_buf(),
            offset: offset as u64,
            fault,
        };
        let (pairs, rest) = bytes.as_chunks::<PAIR_BYTES>();
        if !rest.is_empty() {
            let remainder = rest.len() as u64;
            let kind = TraceFault::PartialPair { remainder };
            return Err(fault(bytes.len() - rest.len(), kind));
        }
        let mut trace = Self {
            pairs: Vec::with_capacity(pairs.len()),
            sweep_ends: Vec::new(),
        };
        for (index, pair) in pairs.iter().enumerate() {
            let [a, b, c, d, e, f, g, h] = *pair;
            let layer = i32::from_le_bytes([a, b, c, d]);
            let expert = i32::from_le_bytes([e, f, g, h]);
            let (Ok(layer), Ok(expert)) = (u32::try_from(layer), u32::try_from(expert)) else {
                let kind = TraceFault::Negative { layer, expert };
                return Err(fault(index * PAIR_BYTES, kind));
            };
            trace.push(TracePair { layer, expert });
        }
        Ok(trace)
    }

    fn push(&mut self, pair: TracePair) {
        let starts_sweep = self.pairs.last().is_none_or(|last| pair.layer < last.layer);
        self.pairs.push(pair);
        match self.sweep_ends.last_mut() {
            Some(end) if !starts_sweep => *end = self.pairs.len(),
            _ => self.sweep_ends.push(self.pairs.len()),
        }
    }

    /// All pairs, in order.
    pub fn pairs(&self) -> &[TracePair] {
        &self.pairs
    }

    /// The sweeps, in order.
    pub fn sweeps(&self) -> impl ExactSizeIterator<Item = Sweep<'_>> {
        let mut start = 0;
        self.sweep_ends.iter().map(move |&end| {
            let pairs = &self.pairs[start..end];
            start = end;
            Sweep { pairs }
        })
    }

    /// Checks the trace against a model: every sweep has every layer of
    /// `moe_layers`, each with the same number of positions and `top_k` ids a
    /// position, all below `expert_count`. `label` is the path shown in
    /// messages.
    ///
    /// # Errors
    ///
    /// [`FormatError::Trace`] with the first pair to blame.
    ///
    /// # Panics
    ///
    /// When `top_k` is zero.
    pub fn check(
        &self,
        label: &Path,
        moe_layers: Range<u32>,
        expert_count: u32,
        top_k: u64,
    ) -> Result<(), FormatError> {
        let fault = |index: usize, fault| FormatError::Trace {
            path: label.to_path_buf(),
            offset: (index * PAIR_BYTES) as u64,
            fault,
        };
        let outside =
            |pair: &TracePair| !moe_layers.contains(&pair.layer) || pair.expert >= expert_count;
        if let Some(index) = self.pairs.iter().position(outside) {
            let TracePair { layer, expert } = self.pairs[index];
            return Err(fault(
                index,
                TraceFault::OutOfRange {
                    layer,
                    expert,
                    layers: moe_layers,
                    expert_count,
                },
            ));
        }
        let mut start = 0;
        for sweep in self.sweeps() {
            sweep
                .check(moe_layers.clone(), top_k)
                .map_err(|(index, kind)| fault(start + index, kind))?;
            start += sweep.pairs.len();
        }
        Ok(())
    }
}

/// The picks of one walk through the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep<'a> {
    pairs: &'a [TracePair],
}

impl<'a> Sweep<'a> {
    /// All pairs of the sweep.
    pub fn pairs(&self) -> &'a [TracePair] {
        self.pairs
    }

    /// The pairs of each layer, layers ascending.
    pub fn layers(&self) -> impl Iterator<Item = &'a [TracePair]> {
        self.pairs.chunk_by(|a, b| a.layer == b.layer)
    }

    /// A fault comes with the index of a pair of the sweep.
    fn check(&self, moe_layers: Range<u32>, top_k: u64) -> Result<(), (usize, TraceFault)> {
        let mut index = 0;
        let mut expected = None;
        let mut layers = moe_layers.clone();
        for picks in self.layers() {
            let layer = picks[0].layer;
            let pairs = picks.len() as u64;
            if !pairs.is_multiple_of(top_k) {
                let kind = TraceFault::UnevenLayer {
                    layer,
                    pairs,
                    top_k,
                };
                return Err((index, kind));
            }
            let positions = *expected.get_or_insert(pairs / top_k);
            let missing = layers.next().filter(|&next| next != layer);
            if missing.is_some() || pairs / top_k != positions {
                let kind = TraceFault::PositionCount {
                    layer: missing.unwrap_or(layer),
                    expected: positions,
                    found: missing.map_or(pairs / top_k, |_| 0),
                };
                return Err((index, kind));
            }
            index += picks.len();
        }
        match layers.next() {
            None => Ok(()),
            Some(layer) => Err((
                index,
                TraceFault::PositionCount {
                    layer,
                    expected: expected.unwrap_or(0),
                    found: 0,
                },
            )),
        }
    }
}

/// Writes a trace, layer by layer.
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
}

impl<W: Write> TraceWriter<W> {
    /// A trace that goes to `out`; unbuffered writes are the caller's choice.
    pub fn new(out: W) -> Self {
        Self { out }
    }

    /// Appends the picks of one layer: for each position its ids in pick order.
    ///
    /// # Errors
    ///
    /// Those of `out`; [`io::ErrorKind::InvalidInput`] for a number beyond
    /// `i32`.
    pub fn layer(&mut self, layer: u32, experts: &[u32]) -> io::Result<()> {
        let signed = |number: u32| {
            i32::try_from(number)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
        };
        let layer = signed(layer)?.to_le_bytes();
        let mut bytes = Vec::with_capacity(experts.len() * PAIR_BYTES);
        for &expert in experts {
            bytes.extend_from_slice(&layer);
            bytes.extend_from_slice(&signed(expert)?.to_le_bytes());
        }
        self.out.write_all(&bytes)
    }

    /// Ends the trace and gives the output back.
    ///
    /// # Errors
    ///
    /// Those of flushing `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
