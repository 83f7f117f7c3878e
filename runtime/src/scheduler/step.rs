//! One sweep and what follows from it.

use std::sync::Arc;
use std::time::Instant;

use k3_models::{ExpertDemand, Fault, ModelError, ModelFamily, SequenceState as _, Sweep};

use super::attribution::{Part, shares};
use super::event::{Ended, Event, FinishReason, Update};
use super::forming::{Ready, positions};
use super::sequence::{Outcome, Sequence};
use super::{Scheduler, Waiting};
use crate::error::RunError;
use crate::forward::{Cancel, StopSignal, SweepCounts, SweepObserver, SweepProgress, forward};
use crate::source::{ReadBytes, WeightSource};

/// What one sweep was for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Sequences that took part.
    pub sequences: u64,
    /// Positions computed.
    pub positions: u64,
    /// Those of prompts among them.
    pub prompt_positions: u64,
    /// Guesses among them.
    pub guessed: u64,
    /// Guesses that were right.
    pub accepted: u64,
    /// Tokens drawn.
    pub tokens: u64,
    /// What was consumed; nothing is known of a sweep that failed.
    pub counts: SweepCounts,
    /// Payload bytes read.
    pub read: ReadBytes,
}

/// One sequence's part in the sweep at hand.
#[derive(Debug, Clone, Copy)]
struct Participant {
    /// Index among those that run.
    index: usize,
    slot: usize,
    positions: usize,
    /// Pages of it that are read for the sweep.
    past_pages: usize,
}

/// Nobody waits for the sweep any more.
struct Deserted<'a> {
    all: &'a Cancel,
    each: Vec<(Cancel, Option<Instant>)>,
}

impl StopSignal for Deserted<'_> {
    fn is_requested(&self) -> bool {
        self.all.is_requested()
            || self.each.iter().all(|(cancel, deadline)| {
                cancel.is_requested() || deadline.is_some_and(|at| Instant::now() >= at)
            })
    }
}

/// Keeps the picks of the sweep at hand, and tells where it stands.
struct Observer<'a> {
    picks: Option<Vec<(u16, u16)>>,
    progress: &'a SweepProgress,
}

impl SweepObserver for Observer<'_> {
    fn demand(&mut self, demand: &ExpertDemand) {
        if let (Some(picks), Some(layer)) = (self.picks.as_mut(), demand.layer) {
            picks.extend(demand.picks.iter().map(|expert| (layer.0, *expert)));
        }
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.progress.set(done, total);
    }
}

impl<M: ModelFamily, S: WeightSource> Scheduler<'_, M, S> {
    /// Runs the next sweep, if there is anything to do, and tells `events` what
    /// came of it. A sweep that fails ends those that took part in it, and
    /// nobody else.
    ///
    /// # Errors
    ///
    /// [`RunError::Cancelled`] once the whole scheduler is asked to stop: every
    /// request has had its last event then.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Result<Option<StepReport>, RunError> {
        if self.cancel.is_requested() {
            return self.end_all(events);
        }
        self.forget_ended();
        self.dismiss(events);
        self.admit(events);
        // Those whose saved state could not be taken up, and who waited for it.
        self.forsake(events);
        self.retire();
        for sequence in &mut self.running {
            sequence.guess(self.settings.guesses_max);
        }
        let mut participants = self.participants();
        if participants.is_empty() {
            return Ok(None);
        }
        let first_event = events.len();
        self.make_room(&mut participants, events);
        let mut report = match participants.is_empty() {
            true => StepReport::default(),
            false => self.sweep(&participants, events)?,
        };
        let news = events[first_event..].iter();
        let tokens = news.filter(|event| matches!(event.update, Update::Token { .. }));
        report.tokens = tokens.count() as u64;
        self.retire();
        Ok(Some(report))
    }

    /// Ends those that were called off or are too late.
    fn dismiss(&mut self, events: &mut Vec<Event>) {
        let now = Instant::now();
        for sequence in &mut self.running {
            if let Some(reason) = sequence.must_leave(now) {
                sequence.end(reason, None, events);
            }
        }
        self.retire();
    }

    /// Ends everything.
    fn end_all(&mut self, events: &mut Vec<Event>) -> Result<Option<StepReport>, RunError> {
        for sequence in &mut self.running {
            if !sequence.has_ended() {
                sequence.end(FinishReason::Cancelled, None, events);
            }
        }
        self.retire();
        for Waiting { id, request } in self.queue.drain(..) {
            events.extend(request.choice_indices().map(|choice| Event {
                request: id,
                choice,
                update: Update::Ended(Ended::early(FinishReason::Cancelled)),
            }));
        }
        Err(RunError::Cancelled)
    }

    /// Who takes part in the next sweep, in the order of their states.
    fn participants(&self) -> Vec<Participant> {
        let borders = self.prefixes.is_some();
        let ready: Vec<Ready> = self.running.iter().map(|one| one.ready(borders)).collect();
        let counts = positions(&ready, self.settings.chunk_positions);
        let mut participants: Vec<_> = counts
            .into_iter()
            .enumerate()
            .filter(|(_, positions)| *positions > 0)
            .map(|(index, positions)| Participant {
                index,
                slot: self.running[index].slot(),
                positions,
                past_pages: 0,
            })
            .collect();
        participants.sort_unstable_by_key(|participant| participant.slot);
        participants
    }

    /// Brings the pages that the sweep adds to into memory. Whose old ones cannot
    /// leave has failed, and is no participant any more.
    fn make_room(&mut self, participants: &mut Vec<Participant>, events: &mut Vec<Event>) {
        participants.retain_mut(|part| {
            let state = &mut self.states[part.slot];
            let made = state.make_room(part.positions);
            part.past_pages = state.outside().len();
            let Err(error) = made else { return true };
            let error = Arc::new(ModelError::from(error).into());
            self.running[part.index].end(FinishReason::Failed, Some(error), events);
            false
        });
        self.forsake(events);
    }

    /// The sweep of `participants`.
    fn sweep(
        &mut self,
        participants: &[Participant],
        events: &mut Vec<Event>,
    ) -> Result<StepReport, RunError> {
        let mut report = self.announced(participants);
        let segments = participants
            .iter()
            .map(|part| self.running[part.index].segment(part.positions));
        let sweep = Sweep::new(segments.collect());
        let stop = Deserted {
            all: &self.cancel,
            each: participants
                .iter()
                .map(|part| self.running[part.index].leaves())
                .collect(),
        };
        let mut observer = Observer {
            picks: self.trace.is_some().then(Vec::new),
            progress: &self.progress,
        };
        let mut slots = participants.iter().map(|part| part.slot).peekable();
        let states = self.states.iter_mut().enumerate();
        let states = states.filter_map(|(slot, state)| slots.next_if_eq(&slot).map(|_| state));
        let entered = self.pool.enter();
        let ended = forward(
            self.model,
            self.source,
            &sweep,
            states.collect(),
            &mut self.workspace,
            self.pool,
            &mut observer,
            &stop,
        );
        drop(entered);
        let read = self.source.sweep_read_bytes();
        let (finished, counts) = match ended {
            Ok(ended) => ended,
            Err(RunError::Cancelled) if self.cancel.is_requested() => {
                return self.end_all(events).map(|_| report);
            }
            Err(error) => {
                attribute(&mut self.running, participants, read);
                abandon(&mut self.running, participants, error, events);
                return Ok(report);
            }
        };
        if let (Some(trace), Some(picks)) = (&mut self.trace, observer.picks) {
            trace.extend(picks);
        }
        self.counts.add(sweep.position_count(), &counts);
        (report.counts, report.read) = (counts, read);
        let vocab = self.model.vocab_size();
        let shares = attribute(&mut self.running, participants, read);
        let taken = take_rows(
            &mut self.running,
            participants,
            &sweep,
            (finished.logits, vocab),
            finished.faults,
            events,
        );
        self.conclude(participants, &taken, &shares, &mut report, events);
        Ok(report)
    }

    /// What follows once every sequence has had its rows.
    fn conclude(
        &mut self,
        participants: &[Participant],
        taken: &[Taken],
        shares: &[ReadBytes],
        report: &mut StepReport,
        events: &mut Vec<Event>,
    ) {
        for ((part, taken), share) in participants.iter().zip(taken).zip(shares) {
            if let Taken::Guesses(drawn) = taken {
                self.running[part.index].learn(*drawn, *share);
            }
        }
        self.settle(participants, taken, report, events);
        self.counts.guessed += report.guessed;
        self.counts.accepted += report.accepted;
        self.forsake(events);
        self.keep();
    }

    /// What is known of a sweep before it runs.
    fn announced(&self, participants: &[Participant]) -> StepReport {
        let mut report = StepReport {
            sequences: participants.len() as u64,
            ..StepReport::default()
        };
        for part in participants {
            report.positions += part.positions as u64;
            match self.running[part.index].ready(false) {
                Ready::Prompt { .. } => report.prompt_positions += part.positions as u64,
                Ready::Step { guesses } => report.guessed += guesses as u64,
                Ready::Waits => {}
            }
        }
        report
    }

    /// Brings the states to where their sequences are: past the guesses that
    /// were right, and, for the other choices of a prompt, to its end.
    fn settle(
        &mut self,
        participants: &[Participant],
        taken: &[Taken],
        report: &mut StepReport,
        events: &mut Vec<Event>,
    ) {
        for (segment, (part, taken)) in participants.iter().zip(taken).enumerate() {
            match taken {
                Taken::Part => {}
                Taken::Guesses(count) => {
                    let state = &mut self.states[part.slot];
                    if state.is_held() {
                        let workspace = &mut self.workspace;
                        let (model, pool) = (self.model, self.pool);
                        model.commit(workspace, segment, state, *count, pool);
                    }
                    report.accepted += count.saturating_sub(1) as u64;
                }
                Taken::Prompt(row) => self.begin_answers(part, row, events),
            }
        }
    }

    /// Keeps the states that may be wanted again.
    fn keep(&mut self) {
        let Some(prefixes) = &mut self.prefixes else {
            return;
        };
        for sequence in &self.running {
            if let Some(tokens) = sequence.to_keep() {
                prefixes.keep(tokens, &self.states[sequence.slot()]);
            }
        }
    }

    /// Ends the choices that wait for a prompt whose reader has failed.
    fn forsake(&mut self, events: &mut Vec<Event>) {
        let failed = self.running.iter().filter(|sequence| sequence.is_leader());
        let failed: Vec<_> = failed
            .filter_map(|sequence| Some((sequence.request(), Arc::clone(sequence.error()?))))
            .collect();
        for sequence in &mut self.running {
            let mut failed = failed.iter();
            let failed = failed.find(|(request, _)| *request == sequence.request());
            if let (true, Some((_, error))) = (sequence.is_waiting(), failed) {
                sequence.end(FinishReason::Failed, Some(Arc::clone(error)), events);
            }
        }
    }

    /// The prompt that `part` has read is in its state: all choices of the
    /// request go on from there.
    fn begin_answers(&mut self, part: &Participant, row: &[f32], events: &mut Vec<Event>) {
        let request = self.running[part.index].request();
        for index in 0..self.running.len() {
            let sequence = &mut self.running[index];
            if sequence.request() != request || !sequence.is_waiting() {
                continue;
            }
            let states = [part.slot, sequence.slot()];
            let [from, to] = self
                .states
                .get_disjoint_mut(states)
                .expect("two sequences have two states");
            match to.copy_from(from) {
                Ok(()) => sequence.begin_answer(row, events),
                Err(error) => {
                    let error = Arc::new(ModelError::from(error).into());
                    sequence.end(FinishReason::Failed, Some(error), events);
                }
            }
        }
        let leader = &mut self.running[part.index];
        if !leader.has_ended() {
            leader.begin_answer(row, events);
        }
    }
}

/// What a sequence made of its rows.
enum Taken {
    /// A part of its prompt, or an end.
    Part,
    /// This many positions of a step.
    Guesses(usize),
    /// The last part of its prompt, with the row behind the first token; empty
    /// if none was wanted.
    Prompt(Vec<f32>),
}

/// Hands every participant its rows and its fault.
fn take_rows(
    running: &mut [Sequence],
    participants: &[Participant],
    sweep: &Sweep,
    (logits, vocab): (&[f32], usize),
    faults: Vec<Fault>,
    events: &mut Vec<Event>,
) -> Vec<Taken> {
    let mut rest = logits;
    let mut faults = faults.into_iter().peekable();
    let segments = participants.iter().zip(sweep.segments()).enumerate();
    let taken = segments.map(|(index, (part, segment))| {
        let (rows, others) = rest.split_at(segment.logit_row_count() * vocab);
        rest = others;
        let fault = faults.next_if(|fault| fault.segment == index);
        let outcome = Outcome {
            rows,
            vocab,
            fault: fault.map(|fault| (fault.offset, fault.error.into())),
        };
        let sequence = &mut running[part.index];
        if !sequence.is_reading() {
            return Taken::Guesses(sequence.after_step(outcome, events));
        }
        if sequence.after_prompt(part.positions, outcome, events) {
            let last = rows.len().saturating_sub(vocab);
            return Taken::Prompt(rows[last..].to_vec());
        }
        Taken::Part
    });
    taken.collect()
}

/// Counts the sweep for every participant; its share of what was read.
fn attribute(
    running: &mut [Sequence],
    participants: &[Participant],
    read: ReadBytes,
) -> Vec<ReadBytes> {
    let parts = |weight: fn(&Participant) -> usize| -> Vec<Part> {
        let parts = participants.iter().map(|part| Part {
            age: running[part.index].age(),
            positions: weight(part) as u64,
        });
        parts.collect()
    };
    let all = parts(|part| part.positions);
    let [trunk, experts, rows] =
        [read.trunk_bytes, read.expert_bytes, read.row_bytes].map(|bytes| shares(bytes, &all));
    // Everybody's own pages, and nobody else's.
    let past = match read.past_bytes {
        0 => vec![0; participants.len()],
        bytes => shares(bytes, &parts(|part| part.past_pages)),
    };
    let each = participants.iter().enumerate().map(|(index, part)| {
        let share = ReadBytes {
            trunk_bytes: trunk[index],
            expert_bytes: experts[index],
            row_bytes: rows[index],
            past_bytes: past[index],
        };
        running[part.index].count(|counts| {
            counts.sweeps += 1;
            counts.positions += part.positions as u64;
            counts.read_bytes += share.total_bytes();
        });
        share
    });
    each.collect()
}

/// Ends everybody whose state the failed sweep has touched, and those who wait
/// for one of them.
fn abandon(
    running: &mut [Sequence],
    participants: &[Participant],
    error: RunError,
    events: &mut Vec<Event>,
) {
    let now = Instant::now();
    let is_deserted = matches!(error, RunError::Cancelled);
    let error = Arc::new(error);
    let requests: Vec<_> = participants
        .iter()
        .map(|part| running[part.index].request())
        .collect();
    for sequence in running {
        if !requests.contains(&sequence.request()) || sequence.has_ended() {
            continue;
        }
        match sequence.must_leave(now) {
            Some(reason) if is_deserted => sequence.end(reason, None, events),
            _ => sequence.end(FinishReason::Failed, Some(Arc::clone(&error)), events),
        }
    }
}
